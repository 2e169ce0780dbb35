"""Launch rules of the GEMM_BIAS_ACT kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem
from .gemm_call import MAX_GRID_Z, GemmCall, gemm_call
from .gemm_examples import examples_for
from .record import KernelSource, LaunchRecord
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

ALIGNMENT_SLACK = 1024  # ge2::shared_memory() rounds its base up to this

Classes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a variant's params and the device say about a launch.

    Attributes:
        tile: output rows and columns of one block.
        block: threads.
        smem: dynamic shared memory in bytes, alignment slack included.
    """

    tile: tuple[int, int]
    block: tuple[int, int, int]
    smem: int


@dataclass(frozen=True, slots=True)
class PlainRule:
    """One launch, one block per output tile and batch entry.

    Attributes:
        shape: launch shape of a variant for a call.
        classes: compile-time classes of a call beyond dtypes and epilogue.
    """

    shape: Callable[[Variant, GemmCall], Shape]
    classes: Callable[[Variant, GemmCall, DeviceProfile], Classes]

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        shape = self.shape(variant, call)
        args, relocs = call.pack()
        tiles = -(-call.m // shape.tile[0]) * -(-call.n // shape.tile[1])
        return [
            LaunchRecord(
                kernel=_source(variant, _key(call), self.classes(variant, call, device)),
                grid=(tiles, 1, min(call.batches, MAX_GRID_Z)),
                block=shape.block,
                args=args,
                relocs=relocs,
                smem=shape.smem,
            )
        ]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return examples_for(variant.kernel)


def _key(call: GemmCall) -> _SourceKey:
    return _SourceKey((call.a.dtype, call.b.dtype, call.y.dtype,
                       *((name, x.dtype, x.spread) for name, x in call.extras)),
                      call.epilogue, call)


@dataclass(frozen=True, slots=True)
class _SourceKey:
    """Hashes by what decides the rendered text; carries the call that can render it."""

    dtypes: tuple[Any, ...]
    epilogue: Any
    call: GemmCall

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, _SourceKey) and self.dtypes == other.dtypes
                and self.epilogue == other.epilogue)

    def __hash__(self) -> int:
        return hash((self.dtypes, self.epilogue))


@lru_cache(maxsize=4096)
def _source(variant: Variant, key: _SourceKey, classes: Classes) -> KernelSource:
    kernel = variant.kernel
    context = {**key.call.context(), **dict(variant.params), **dict(classes)}
    return KernelSource(kernel.template, tuple(sorted(context.items())), kernel.entries[0])


def _simple_shape(variant: Variant, call: GemmCall) -> Shape:
    itemsize = DTYPES[accumulator(call)].itemsize
    return Shape((32, 32), (32, 8, 1), 2 * 32 * 33 * itemsize + ALIGNMENT_SLACK)


def accumulator(call: GemmCall) -> str:
    """Return the dtype that products are summed in: the wider of both operands' compute types."""
    computes = {DTYPES[call.a.dtype].compute, DTYPES[call.b.dtype].compute}
    return next((t for t in ("f64", "f32", "i64") if t in computes), "i32")


def _simple_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    return (("TYPE_ACC", DTYPES[accumulator(call)].c_type),)


def _tiled_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk = (int(variant.param(name)) for name in ("BM", "BN", "BK"))
    return Shape((bm, bn), (bm // 32 * (bn // 64) * 32, 1, 1),
                 max(2 * (bm + bn) * bk, bm // 2 * bn) * 4 + ALIGNMENT_SLACK)


def _tiled_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    return _layout_classes(call, (4,))


def _layout_classes(call: GemmCall, widths: tuple[int, ...]) -> Classes:
    """Return which way the operands lie in memory and how many elements one access may take."""
    classes: list[tuple[str, Any]] = [("VEC_Y", call.y.vector(False, widths[:1]))]
    for name, operand in (("A", call.a), ("B", call.b)):
        k_major = operand.column == 1 or operand.row != 1
        classes += [(f"K_MAJOR_{name}", _cpp(k_major)),
                    (f"VEC_{name}", operand.vector(not k_major, widths))]
    return tuple(classes)


def _cpp(value: bool) -> str:
    return "true" if value else "false"


def _tensor_core_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, bk, stages = (int(variant.param(name)) for name in ("BM", "BN", "BK", "STAGES"))
    warp_n = 64 if bn >= 128 else 32
    warps = 2 * bn // warp_n
    pipeline = (bm + bn) * bk * 2 * stages
    epilogue = warps * 32 * (warp_n + 8) * 4
    return Shape((bm, bn), (warps * 32, 1, 1), max(pipeline, epilogue) + ALIGNMENT_SLACK)


def _tensor_core_classes(variant: Variant, call: GemmCall, device: DeviceProfile) -> Classes:
    if call.a.dtype == "bf16" and not device.caps["bf16"]:
        raise Unsupported("bf16 tensor cores need sm_80", argument="A", found=device.arch)
    asynchronous = device.caps["async_copy"]
    widths = (8, 4, 2) if asynchronous else (8,)
    return (("ASYNC", _cpp(asynchronous)), *_layout_classes(call, widths))


RULES: Mapping[str, LaunchRule] = {
    "gemm": PlainRule(_simple_shape, _simple_classes),
    "gemm.tiled": PlainRule(_tiled_shape, _tiled_classes),
    "gemm.tensor_core": PlainRule(_tensor_core_shape, _tensor_core_classes),
}
