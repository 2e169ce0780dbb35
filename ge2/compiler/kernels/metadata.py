"""What ge2 knows of a kernel without rendering it: KernelInfo, its guards and its variants."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from ...errors import KernelSpecError, near_matches

_ARCH = re.compile(r"sm_(\d+)([af]?)(\+?)")

FLAGS = (
    "tensor_core", "async_copy", "tma", "wgmma", "mbarrier", "warp_specialized", "persistent",
    "split_k", "stream_k", "cluster", "pdl", "vectorized", "workspace", "semaphores", "atomics",
    "deterministic", "online", "cooperative", "lab", "two_outputs", "row_values",
)
DIMS = (
    "M", "N", "K", "BATCH", "ROWS", "SIZE", "RANK",
    "IN_CHANNELS", "OUT_CHANNELS", "GROUPS", "KERNEL_H", "KERNEL_W",
    "QUERIES", "KEYS", "HEADS", "HEAD_SIZE", "VALUE_SIZE",
)
LAYOUTS = ("row", "col", "strided", "dense", "inner", "broadcast")

Number = int | str
"""A guard's number: an int, or an arithmetic expression over the kernel's params ("2 * BK")."""

ParamValue = int | str
Params = tuple[tuple[str, ParamValue], ...]


@dataclass(frozen=True, slots=True)
class DtypeRule:
    """One accepted dtype combination; "*" takes any, the last input entry repeats."""

    inputs: tuple[str, ...]
    output: str

    def mismatch(self, inputs: Iterable[str | None], outputs: Iterable[str]) -> str:
        """Return why these dtypes do not fit, or an empty string; None is an absent input."""
        for position, found in enumerate(inputs):
            wanted = self.inputs[min(position, len(self.inputs) - 1)] if self.inputs else "*"
            if found is not None and wanted not in ("*", found):
                return f"input {position} is {found}, kernel takes {wanted}"
        for position, found in enumerate(outputs):
            if self.output not in ("*", found):
                return f"output {position} is {found}, kernel writes {self.output}"
        return ""


@dataclass(frozen=True, slots=True)
class Guards:
    """Conditions that a problem must meet before the kernel is a candidate.

    Attributes:
        align: bytes that every address and every non-inner byte stride is a multiple of.
        contiguous: every tensor lies row-major without gaps.
        inner_contiguous: the last axis of every tensor has stride 1.
        max_rank: largest rank of any tensor.
        index32: every element offset fits 31 bits.
        smem_max: largest dynamic shared memory in bytes that a launch asks for.
        multiple_of, max, min: dimension name -> number.
        custom: name of a function in CUSTOM_GUARDS of selector.py.
    """

    align: Number = 1
    contiguous: bool = False
    inner_contiguous: bool = False
    max_rank: Number = 0
    index32: bool = False
    smem_max: Number = 0
    multiple_of: tuple[tuple[str, Number], ...] = ()
    max: tuple[tuple[str, Number], ...] = ()
    min: tuple[tuple[str, Number], ...] = ()
    custom: str = ""


@dataclass(frozen=True)
class KernelInfo:
    """Everything that ge2 knows of one kernel template without rendering it.

    Attributes:
        name: launch-table key and file stem.
        op_type: kernel-level operator that it serves.
        template: path below the kernels folder; absolute for a template from a user's folder.
        launch: name of its launch rule.
        score: capability score of "<op_type>__<name>".
        numerics: id of the accumulation order; `{PARAM}` fields are filled per variant.
        archs: "sm_80+" (that or newer) or "sm_90a" (exactly that).
        entries: extern "C" function names.
        dtypes: accepted combinations.
        layouts: operand name -> accepted layouts.
        flags, min_mnk: boolean features, and the smallest useful (M, N, K).
        params: name -> choices; their cartesian product minus `exclude` are the variants.
        arch_guards: guards per arch pattern; a matching one replaces `guards`.
        realized: params whose choices are the realizations of a primitive, with its name.
    """

    name: str
    op_type: str
    template: str
    launch: str
    summary: str = ""
    score: int = 50
    numerics: str = ""
    archs: tuple[str, ...] = ("sm_75+",)
    entries: tuple[str, ...] = ()
    dtypes: tuple[DtypeRule, ...] = ()
    layouts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    flags: frozenset[str] = frozenset()
    min_mnk: tuple[int, int, int] = (0, 0, 0)
    params: tuple[tuple[str, tuple[ParamValue, ...]], ...] = ()
    guards: Guards = field(default_factory=Guards)
    arch_guards: tuple[tuple[str, Guards], ...] = ()
    exclude: tuple[Params, ...] = ()
    realized: tuple[tuple[str, str], ...] = ()

    @property
    def capability_key(self) -> str:
        """The key of its score: "<OPTYPE>__<KERNEL_NAME>"."""
        return f"{self.op_type}__{self.name}"

    @property
    def family(self) -> str:
        """The template's folder ("gemm"); the first part of variant ids."""
        parts = self.template.rsplit("/", 2)
        return parts[-2] if len(parts) > 1 else ""

    def runs_on(self, arch: str) -> bool:
        """Whether a device of this arch can run the kernel."""
        return any(arch_matches(pattern, arch) for pattern in self.archs)

    def guards_for(self, arch: str) -> Guards:
        """Return the guards on this arch; the first matching override wins."""
        for pattern, guards in self.arch_guards:
            if arch_matches(pattern, arch):
                return guards
        return self.guards

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """Every allowed combination of params, in declaration order."""
        return tuple(Variant(self, params) for params in _combinations(self))

    def __hash__(self) -> int:
        return hash((self.name, self.template))


@dataclass(frozen=True)
class Variant:
    """A kernel with one value for each of its params."""

    kernel: KernelInfo
    params: Params

    @cached_property
    def id(self) -> str:
        """Derived name, "gemm/gemm_bias_act_f32_tiled[BM=64,BN=64]"."""
        base = f"{self.kernel.family}/{self.kernel.name}".lstrip("/")
        inner = ",".join(f"{name}={value}" for name, value in self.params)
        return f"{base}[{inner}]" if inner else base

    @cached_property
    def param_map(self) -> dict[str, ParamValue]:
        """The params as a mapping (do not change it)."""
        return dict(self.params)

    def param(self, name: str) -> Any:
        """Return the value of a param.

        Raises:
            KernelSpecError: the kernel declares no such param.
        """
        try:
            return self.param_map[name]
        except KeyError:
            raise KernelSpecError(f"{self.id} has no param {name}",
                                  hint=near_matches(name, self.param_map)) from None

    @property
    def numerics(self) -> str:
        """The accumulation-order id of this variant."""
        return self.kernel.numerics.format(**self.param_map)

    def __hash__(self) -> int:
        return hash((self.kernel.name, self.params))


def is_arch_pattern(name: str) -> bool:
    """Whether a name may stand in `archs`."""
    return bool(_ARCH.fullmatch(name))


def arch_number(arch: str) -> int:
    """Return 90 for "sm_90a".

    Raises:
        KernelSpecError: the name is no arch.
    """
    match = _ARCH.fullmatch(arch)
    if not match:
        raise KernelSpecError("not a GPU architecture", found=repr(arch), wanted='"sm_90a"')
    return int(match[1])


def arch_matches(pattern: str, arch: str) -> bool:
    """Whether arch satisfies "sm_80+" (that or newer), "sm_90a" (exact) or "sm_90" (any suffix)."""
    match = _ARCH.fullmatch(pattern)
    assert match, pattern
    if match[3]:
        return arch_number(arch) >= int(match[1])
    return arch == pattern or (not match[2] and arch_number(arch) == int(match[1]))


def evaluate(number: Number, params: Mapping[str, ParamValue]) -> int:
    """Return a guard's number for one variant; expressions know + - * // and the params.

    Raises:
        KernelSpecError: the expression is something else or names no param.
    """
    if isinstance(number, int):
        return number
    try:
        return _arithmetic(ast.parse(number, mode="eval").body, params)
    except (SyntaxError, TypeError, KeyError, ZeroDivisionError) as error:
        raise KernelSpecError("bad expression over params", found=repr(number),
                              wanted="+ - * // over " + (", ".join(params) or "no params"),
                              ) from error


def _arithmetic(node: ast.expr, params: Mapping[str, ParamValue]) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            return int(params[name])
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _arithmetic(left, params), _arithmetic(right, params)
            match op:
                case ast.Add():
                    return a + b
                case ast.Sub():
                    return a - b
                case ast.Mult():
                    return a * b
                case ast.FloorDiv():
                    return a // b
    raise TypeError(ast.dump(node))


def _combinations(kernel: KernelInfo) -> Iterator[Params]:
    names = [name for name, _ in kernel.params]
    for values in product(*(choices for _, choices in kernel.params)):
        params = dict(zip(names, values, strict=True))
        dropped = any(all(params.get(k) == v for k, v in rule) for rule in kernel.exclude)
        if not dropped:
            yield tuple(params.items())
