"""What to tune: problems from an operator and shapes, from the standard sweep, from a model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler import opdefs
from ..compiler.ir.nodes import Graph, Node, TensorType
from ..compiler.kernels import registry
from ..compiler.plan import make_plan
from ..contract import DTYPES, ActKind, numpy_dtype
from ..errors import Ge2Error, Invalid, near_matches
from ..evidence.device import DeviceProfile
from ..evidence.keys import problem_key
from ..problem import Problem
from .sweeps import SWEEPS, Sizes

if TYPE_CHECKING:
    from ..model import Model

LAYOUTS = {"nn": (False, False), "nt": (False, True), "tn": (True, False), "tt": (True, True)}
GEMM = "GEMM_BIAS_ACT"
DIMENSIONS = ("M", "N", "K", "BATCH")


@dataclass(frozen=True, slots=True)
class Task:
    """One problem to tune.

    Attributes:
        problem: with dense or strided operands. label: for a person.
        weight: its share of run time, for the budget; relative.
        nodes: names of the model's nodes that it serves.
    """

    problem: Problem
    label: str
    weight: float = 1.0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for of an operator.

    Attributes:
        op: kernel-level or graph-level operator.
        shapes: texts such as "M=64,N=64,K=64" or "8192x1024"; none: the standard sweep.
        dtypes: element types; none: those of the sweep.
        act, layout: of products.
        constant_weights: the weights of products and convolutions are the same in every call.
    """

    op: str
    shapes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    act: str = "relu"
    layout: str = "nn"
    attrs: Mapping[str, Any] = field(default_factory=dict)
    constant_weights: bool = False


def known_operators() -> list[str]:
    """Return every operator that can be tuned: the kernels' own and those of graphs."""
    kernels = {kernel.op_type for kernel in registry.all_kernels()}
    return sorted(kernels | set(opdefs.OPS))


def tasks_for(request: Request, device: DeviceProfile) -> list[Task]:
    """Return the problems of a request.

    Raises:
        Invalid: no such operator, dtype, activation, layout or shape; names near matches.
    """
    op = request.op.upper()
    known = known_operators()
    if op not in known:
        raise Invalid(f"no operator is named {request.op!r}",
                      hint=near_matches(op, known) or "ge2 ops lists them")
    for dtype in request.dtypes:
        _check(dtype, DTYPES, "dtype")
    _check(request.act, [a.name.lower() for a in ActKind], "activation")
    _check(request.layout, LAYOUTS, "layout")
    if op == GEMM or op == "MATMUL":
        return unique(_gemm_tasks(request, device))
    if request.shapes and op not in opdefs.OPS:
        raise Invalid(f"{op} is no operator of graphs, so --shape does not describe its operands",
                      hint="Leave --shape away to tune its example problems")
    if request.shapes:
        return unique(_shaped(op, request, device))
    if op in SWEEPS:
        return unique(_swept(op, request, device))
    if registry.kernels_for(op):
        return unique(_examples(op))
    return unique(_generic(op, request, device))


def _check(value: str, known: Iterable[str], what: str) -> None:
    names = list(known)
    if value not in names:
        raise Invalid(f"no such {what}", argument=what, found=repr(value),
                      wanted=", ".join(names), hint=near_matches(value, names))


def read_shapes(path: Path) -> tuple[str, ...]:
    """Return the shapes in a file: one a line, or a JSON list of texts or of {"M": ...} objects.

    Raises:
        Invalid: it cannot be read or holds none.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read", found=str(error)) from error
    if text.lstrip().startswith("["):
        try:
            values = json.loads(text)
        except ValueError as error:
            raise Invalid(f"{path} is no JSON", found=str(error)) from error
        shapes = [",".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict)
                  else str(value) for value in values]
    else:
        lines = (line.partition("#")[0].strip() for line in text.splitlines())
        shapes = [line for line in lines if line]
    if not shapes:
        raise Invalid(f"{path} holds no shapes")
    return tuple(shapes)


# -- products -------------------------------------------------------------------------------------


def _gemm_tasks(request: Request, device: DeviceProfile) -> Iterator[Task]:
    for text in request.shapes:
        sizes = parse_gemm(text)
        for dtype in request.dtypes or ("f16",):
            yield gemm_task(sizes, dtype, request.act, request.layout, device,
                            request.constant_weights)
    if not request.shapes:
        for dtype, sizes, layout in SWEEPS[GEMM]:
            if not request.dtypes or dtype in request.dtypes:
                yield gemm_task(sizes, dtype, request.act, layout or request.layout, device,
                                request.constant_weights)


def parse_gemm(text: str) -> Sizes:
    """Return (M, N, K, batch) of "M=..,N=..,K=..[,BATCH=..]" or "MxNxK".

    Raises:
        Invalid: something else, or an extent below 1.
    """
    wanted = "M=..,N=..,K=..[,BATCH=..] or MxNxK, all at least 1"
    if re.fullmatch(r"\d+x\d+x\d+(x\d+)?", text.strip()):
        numbers = [int(n) for n in text.split("x")]
        found = dict(zip(DIMENSIONS, numbers, strict=False))
    else:
        found = {}
        for part in text.replace(" ", "").split(","):
            name, _, number = part.partition("=")
            if name.upper() not in DIMENSIONS or not number.isdecimal() or name.upper() in found:
                raise Invalid("bad shape of a product", argument="shape", found=repr(text),
                              wanted=wanted)
            found[name.upper()] = int(number)
    if not {"M", "N", "K"} <= set(found) or min(found.values()) < 1:
        raise Invalid("bad shape of a product", argument="shape", found=repr(text), wanted=wanted)
    return found["M"], found["N"], found["K"], found.get("BATCH", 1)


def gemm_task(sizes: Sequence[int], dtype: str, act: str, layout: str,
              device: DeviceProfile, constant_weights: bool = False) -> Task:
    """Return act(A B + bias) as a graph's plan poses it."""
    m, n, k, batch = (*sizes, 1)[:4]
    trans_a, trans_b = LAYOUTS[layout]
    lead = (batch,) if batch > 1 else ()
    shapes = [(*lead, *((k, m) if trans_a else (m, k))), (n, k) if trans_b else (k, n), (n,)]
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "act": act}
    if lead:
        shapes[1] = (*lead, *shapes[1])
    (problem,) = node_problems(GEMM, shapes, [dtype] * 3, attrs, device, constant_weights)
    size = f"{m}x{n}x{k}" + (f" batch {batch}" if batch > 1 else "")
    return Task(problem, f"{dtype} {size} {layout} {act}")


# -- other operators ------------------------------------------------------------------------------


def _swept(op: str, request: Request, device: DeviceProfile) -> Iterator[Task]:
    for dtype, shapes, attrs, name in SWEEPS[op]:
        if request.dtypes and dtype not in request.dtypes:
            continue
        dtypes = [dtype] * len(shapes)
        for problem in node_problems(name, shapes, dtypes, {**attrs, **request.attrs}, device,
                                     request.constant_weights):
            yield Task(problem, f"{name} {dtype} {_times(shapes[0])}")


def _shaped(op: str, request: Request, device: DeviceProfile) -> Iterator[Task]:
    for text in request.shapes:
        shapes = _parse_shapes(op, text)
        for dtype in request.dtypes or ("f32",):
            try:
                problems = node_problems(op, shapes, [dtype] * len(shapes), request.attrs, device,
                                         request.constant_weights)
            except Ge2Error as error:
                raise Invalid(f"{op} does not take operands {text} of {dtype}",
                              found=str(error)) from error
            for problem in problems:
                yield Task(problem, f"{op} {dtype} {text}")


def _parse_shapes(op: str, text: str) -> list[tuple[int, ...]]:
    """Return operand shapes of "8192x1024" or "64x64;64x64": one shape serves all operands."""
    parts = text.replace(" ", "").split(";")
    if not all(re.fullmatch(r"\d+(x\d+)*", part) for part in parts):
        raise Invalid("bad shape", argument="shape", found=repr(text),
                      wanted="extents such as 8192x1024, operands separated by ;")
    shapes = [tuple(int(n) for n in part.split("x")) for part in parts]
    if min(min(shape) for shape in shapes) < 1:
        raise Invalid("an extent is 0: there is nothing to tune", argument="shape",
                      found=repr(text))
    if len(shapes) == 1:
        shapes *= _required(op)
    return shapes


def _required(op: str) -> int:
    return max(1, sum(not name.endswith(("?", "*")) for name in opdefs.get(op).inputs))


def _generic(op: str, request: Request, device: DeviceProfile) -> Iterator[Task]:
    """Three sizes of an operator without a sweep of its own, all operands alike."""
    for shape in ((4096, 4096), (512, 1024), (16, 128)):
        for dtype in request.dtypes or ("f32", "f16"):
            shapes = [shape] * _required(op)
            try:
                problems = node_problems(op, shapes, [dtype] * len(shapes), request.attrs, device)
            except Ge2Error as error:
                raise Invalid(f"{op} has no standard sweep: say --shape", found=str(error)
                              ) from error
            for problem in problems:
                yield Task(problem, f"{op} {dtype} {_times(shape)}")


def _examples(op_type: str) -> Iterator[Task]:
    """The launch rules' own examples: what there is for kernels that users bring."""
    from ..evidence.keys import shape_text
    from ..launch.rule import LAUNCH_RULES

    for kernel in registry.kernels_for(op_type):
        for problem in LAUNCH_RULES[kernel.launch].examples(kernel.variants[0]):
            yield Task(problem, shape_text(problem).partition(": ")[2])


def _times(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def node_problems(op: str, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str],
                  attrs: Mapping[str, Any], device: DeviceProfile,
                  constant_weights: bool = False) -> list[Problem]:
    """Return the kernel-level problems of one node of a graph.

    Args:
        constant_weights: all inputs of a product or a convolution but the first are constants.

    Raises:
        Ge2Error: the operands do not fit the operator, or no kernel serves it.
    """
    full = opdefs.full_attrs(op, dict(attrs))
    types = [TensorType(d, tuple(s)) for d, s in zip(dtypes, shapes, strict=True)]
    outputs = opdefs.infer(op, types, full)
    graph = Graph(name=op)
    names = [f"x{i}" for i in range(len(types))]
    results = [f"y{i}" for i in range(len(outputs))]
    graph.types.update(zip([*names, *results], [*types, *outputs], strict=True))
    weights = names[1:] if constant_weights and opdefs.get(op).family in ("gemm", "conv") else []
    graph.constants = {name: np.broadcast_to(np.zeros((), numpy_dtype(t.dtype)),
                                             t.shape)  # type: ignore[arg-type] # static
                       for name, t in zip(names, types, strict=True) if name in weights}
    graph.inputs, graph.outputs = [n for n in names if n not in weights], results
    graph.nodes = [Node(op, op.lower(), tuple(names), tuple(results), full)]
    plan = make_plan(graph, device)
    return [step.problem for step in plan.steps if step.records]


def unique(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks with different problems; weights and nodes of equal ones are joined."""
    found: dict[str, Task] = {}
    for task in tasks:
        key = problem_key(task.problem)
        known = found.get(key)
        found[key] = task if known is None else Task(
            task.problem, known.label, known.weight + task.weight, (*known.nodes, *task.nodes))
    return list(found.values())


def model_tasks(model: Model, device: DeviceProfile, symbols: Sequence[Mapping[str, int]]
                ) -> list[Task]:
    """Return every distinct problem of a model's plans, weighted by its predicted share of time.

    Args:
        symbols: one set of values of the named dimensions per plan.
    """
    from ..compiler.concrete import concretize
    from .space import build_space

    tasks = []
    for values in symbols:
        plan = make_plan(concretize(model.optimized.graph, dict(values)), device)
        for step in plan.steps:
            if not step.records:
                continue
            entry = build_space(step.problem, device).default
            label = f"{step.node.name}" + "".join(f" {k}={v}" for k, v in values.items())
            tasks.append(Task(step.problem, label, entry.predicted_us, (step.node.name,)))
    return unique(tasks)
