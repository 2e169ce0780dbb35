"""Activations that a model spells out in elementary nodes become one node.

A region of elementwise nodes that depends on one value is a function of that value, however it is
written. It is the activation whose formula it agrees with best at many points, in double
precision, if the difference is what constants of its element type cost. The result is a node that
GEMM and CONV2D can take as their activation, and that runs with the formula that does not overflow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract import DTYPES
from .. import opdefs
from ..ir.expr import Expr, ExprBundle, const, evaluate, input, substitute, walk, widen
from ..ir.nodes import Graph, Node
from .editor import Editor, has_any, is_float
from .fuse_elementwise import fusible, node_formulas, reads_coordinates
from .pass_manager import PassResult

MAX_REGION = 16

# What rounding the numbers of a model to its element type may cost: (relative, absolute).
_TOLERANCES = {"f64": (4e-6, 1e-6), "f32": (4e-6, 1e-6), "f16": (1e-3, 5e-4),
               "bf16": (8e-3, 4e-3)}

# What a region ends in, and what at least one of its nodes is: most regions fail here, cheaply.
_ENDS = frozenset({"MUL", "DIV", "ADD", "SUB", "LOG", "LOG1P", "RECIPROCAL", "CLIP", "MIN", "MAX",
                   "WHERE", "RELU6", "TANH", "SIGMOID"})
_HALLMARKS = frozenset({"ERF", "TANH", "SIGMOID", "EXP", "EXPM1", "CLIP", "MIN", "MAX", "RELU",
                        "RELU6", "HARD_SIGMOID", "SOFTPLUS", "WHERE", "LOG", "LOG1P"})

# Formulas of nodes by name: the regions of many ends overlap. Ends are replaced last to first, so
# that no region holds a node that was replaced.
_Formulas = dict[str, tuple[Expr, ...] | None]

# Name of the operator, its attributes.
_TARGETS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("GELU", {}),
    ("GELU", {"approximate": "tanh"}),
    ("SILU", {}),
    ("HARD_SWISH", {}),
    ("MISH", {}),
    ("SIGMOID", {}),
    ("HARD_SIGMOID", {"alpha": 1 / 6, "beta": 0.5}),
    ("SOFTPLUS", {}),
    ("TANH", {}),
    ("RELU6", {}),
    ("ELU", {}),
)


@dataclass(frozen=True, slots=True)
class LiftActivationsPass:
    """Replaces regions that compute a known activation, the largest first."""

    name: str = "lift_activations"

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        if not has_any(graph, _HALLMARKS):
            return PassResult(graph, False)
        editor = Editor(graph)
        known: _Formulas = {}
        for node in editor.backward():
            if node.op in _ENDS and fusible(editor, node) and is_float(
                    editor.type(node.outputs[0])):
                _lift(editor, node, known)
        return editor.finish()


def _lift(editor: Editor, root: Node, known: _Formulas) -> None:
    region = [root]
    best: tuple[list[Node], str, tuple[str, dict[str, Any]]] | None = None
    while len(region) <= MAX_REGION:
        outer = _outer(editor, region)
        if len(outer) == 1 and len(region) > 1 and any(n.op in _HALLMARKS for n in region):
            found = _recognise(editor, region, outer[0], known)
            if found is not None:
                best = (list(region), outer[0], found)
                break
        step = _next(editor, region, outer)
        if step is None:
            break
        region.append(step)
    if best is None:
        return
    nodes, value, (op, attrs) = best
    made = editor.node(op, [value], root.outputs, attrs, root.name)
    editor.replace(sorted(nodes, key=editor.position), [made])


def _outer(editor: Editor, region: Iterable[Node]) -> list[str]:
    """Return the values that a region reads from outside, numbers left out."""
    inner = {node.outputs[0] for node in region}
    return [v for v in dict.fromkeys(v for node in region for v in node.inputs)
            if v not in inner and editor.number(v) is None]


def _next(editor: Editor, region: list[Node], outer: list[str]) -> Node | None:
    """Return the latest node before the region that nothing outside of it reads."""
    names = {node.name for node in region}
    found: Node | None = None
    for value in outer:
        maker = editor.producer(value)
        if maker is None or not fusible(editor, maker) or editor.is_output(value):
            continue
        if any(reader.name not in names for reader in editor.readers(value)):
            continue
        if found is None or editor.position(maker) > editor.position(found):
            found = maker
    return found


def _recognise(editor: Editor, region: list[Node], value: str, known: _Formulas
               ) -> tuple[str, dict[str, Any]] | None:
    kind = editor.type(value)
    if kind != editor.type(region[0].outputs[0]):
        return None
    formula = _formula(editor, region, value, known)
    return None if formula is None else _activation(formula, kind.dtype)


def _formula(editor: Editor, region: list[Node], value: str, known: _Formulas) -> Expr | None:
    compute = DTYPES[editor.type(value).dtype].compute
    values: dict[str, Expr] = {value: input(0, compute)}
    for node in sorted(region, key=editor.position):
        table: dict[int, Expr] = {}
        for index, read in enumerate(node.inputs):
            number = editor.number(read)
            if read in values:
                table[index] = values[read]
            elif number is not None:
                table[index] = const(number, DTYPES[editor.type(read).dtype].compute)
            else:
                return None
        formulas = _plain_formulas(editor, node, known)
        if formulas is None:
            return None
        values[node.outputs[0]] = substitute(formulas, table)[0]
    return values[region[0].outputs[0]]


def _plain_formulas(editor: Editor, node: Node, known: _Formulas) -> tuple[Expr, ...] | None:
    """Return a node's formulas, worked out once; None where they depend on more than values."""
    if node.name not in known:
        formulas = node_formulas(editor, node)
        # A rounding point inside is part of the model.
        plain = not reads_coordinates(formulas) and all(e.kind != "cast" for e in walk(formulas))
        known[node.name] = formulas if plain else None
    return known[node.name]


@lru_cache(maxsize=4096)
def _activation(formula: Expr, dtype: str) -> tuple[str, dict[str, Any]] | None:
    """Return the operator and attributes whose formula agrees best, within the tolerance."""
    found = _sample(formula)
    known = np.isfinite(found)
    # A spelling may overflow where the operator's own formula does not.
    if known.sum() < 0.8 * known.size:
        return None
    rtol, atol = _TOLERANCES[dtype]
    distances = [
        float(np.max(np.abs(found[known] - wanted[known]) / (atol + rtol * np.abs(wanted[known]))))
        for wanted in _target_samples()]
    best = int(np.argmin(distances))
    return _TARGETS[best] if distances[best] <= 1.0 else None


def _probes() -> npt.NDArray[np.float64]:
    near = np.linspace(-8, 8, 193)
    far = np.array([-60.0, -35.0, -20.0, -12.5, 12.5, 20.0, 35.0, 60.0])
    edges = np.array([-6.0, -3.0, -2.5, 0.0, 2.5, 3.0, 6.0])
    return np.concatenate([near, far, edges, np.random.default_rng(5).uniform(-8, 8, 64)])


def _sample(formula: Expr) -> npt.NDArray[np.float64]:
    wide = widen(ExprBundle((formula,))).outputs
    return np.broadcast_to(evaluate(wide, [_probes()])[0], _probes().shape).astype(np.float64)


@lru_cache(maxsize=1)
def _target_samples() -> tuple[npt.NDArray[np.float64], ...]:
    return tuple(_sample(opdefs.expression(op, attrs, ["f64"])) for op, attrs in _TARGETS)
