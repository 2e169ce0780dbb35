"""Launch rule of the wgmma GEMM: operands and outputs by tensor map, persistent blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..compiler.ir.size import is_tracing, smaller
from ..compiler.kernels.gemm_plans import steps_of, tail_split
from ..contract import DTYPES, FLOAT8_MAX
from ..errors import Unsupported
from ..problem import Problem
from .gemm_args import Operand
from .gemm_call import GemmCall, gemm_call
from .gemm_examples import K, examples_for
from .gemm_source import ALIGNMENT_SLACK, Classes, cpp, source_of
from .record import LaunchRecord, TensorMapSpec

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

SHARED_BYTES = 232448  # the largest dynamic shared memory of a block on sm_90
MAX_STAGES = 8
LONG_K = 1024  # enough k for an example's tile to be split
ROW_BYTES = 128  # of k in a tile, and of columns in a store box
BOX_ROWS = 16  # of a store box
BOX_BYTES = BOX_ROWS * ROW_BYTES
MAP_BYTES = 128


@dataclass(frozen=True, slots=True)
class WgmmaRule:
    """One launch; operands are read where they are."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        refusal = wgmma_refusal(variant, call)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        bm, bn = tile_of(variant)
        maps = (operand_map(0, call.a, call.m, call.k, bm, call.batch[2]),
                operand_map(MAP_BYTES, call.b, call.n, call.k, bn, call.batch[2]),
                *output_maps(2 * MAP_BYTES, call))
        classes = (("K_MAJOR_A", cpp(call.a.column == 1)), ("K_MAJOR_B", cpp(call.b.column == 1)))
        return [product_launch(call, variant, device, maps, classes)]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        k = LONG_K if variant.param_map.get("TAIL") == "split" else K
        return [p for p in examples_for(variant.kernel, k)
                if not wgmma_refusal(variant, gemm_call(p))]


@dataclass(frozen=True, slots=True)
class WgmmaBytesRule:
    """The same for 8-bit operands, both along k."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = gemm_call(problem)
        if call.is_empty:
            return []
        refusal = wgmma_bytes_refusal(variant, call)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        bm, bn = tile_of(variant)
        maps = (operand_map(0, call.a, call.m, call.k, bm, call.batch[2]),
                operand_map(MAP_BYTES, call.b, call.n, call.k, bn, call.batch[2]),
                *output_maps(2 * MAP_BYTES, call))
        promote = int(call.a.dtype in FLOAT8_MAX)
        return [product_launch(call, variant, device, maps, (("PROMOTE", promote),))]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        return [p for p in examples_for(variant.kernel, 4 * K)
                if not wgmma_bytes_refusal(variant, gemm_call(p))]


def wgmma_bytes_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why an 8-bit wgmma variant cannot serve a call; empty where it can."""
    if call.a.column != 1 or call.b.column != 1:
        return "wgmma takes 8-bit operands along K only"
    return wgmma_refusal(variant, call)


def tile_of(variant: Variant) -> tuple[int, int]:
    """Return the output rows and columns of a tile."""
    return int(variant.param("BM")), int(variant.param("BN"))


def product_launch(call: GemmCall, variant: Variant, device: DeviceProfile,
                   maps: tuple[TensorMapSpec, ...], classes: Classes, *,
                   sources: tuple[tuple[str, Operand], ...] = ()) -> LaunchRecord:
    """Return the launch of <ge2/skeleton/wgmma_gemm.cuh> for a call.

    Args:
        maps: of A, B and the outputs, in the order of Args.
        classes: context of the template beyond what every call and variant gives.
        sources: operands of Args before those of the epilogue.
    """
    bm, bn = tile_of(variant)
    consumers = 1 if variant.param("SCHEDULE") == "single" else 2
    per_warp = int(variant.param_map.get("STORES", 2))
    stores = consumers * 4 * per_warp * BOX_BYTES
    stage = (bm + bn) * ROW_BYTES
    stages = min(MAX_STAGES, (SHARED_BYTES - ALIGNMENT_SLACK - 256 - stores) // stage)
    tail = tail_of(call, variant, device)
    args, relocs = call.pack_tensor_maps([operand for _, operand in sources], tail[:2])
    pdl = variant.param_map.get("PDL") == 1
    paired = tuple(name for name, x in call.extras
                   if x.column == 1 and x.vector(False, (2,)) == 2 and call.n % 2 == 0)
    split = tail.splits > 1
    return LaunchRecord(
        kernel=source_of(variant, call,
                         (("STAGES", stages), ("STORES", per_warp), ("PDL", cpp(pdl)),
                          ("SPLITS", cpp(variant.param_map.get("TAIL") == "split")),
                          ("PAIRED", paired), *classes),
                         tensor_maps=True, sources=tuple(name for name, _ in sources)),
        grid=(smaller(tail.items, device.sm_count), 1, 1),
        block=(128 * (1 + consumers), 1, 1),
        args=args,
        relocs=relocs,
        smem=stages * (stage + 16) + stores + ALIGNMENT_SLACK,
        tensor_maps=maps,
        workspace=tail.parts * bm * bn * 4 if split else 0,
        semaphores=2 * tail.parts if split else 0,
        pdl=pdl,
        cooperative=split,
    )


class Tail(NamedTuple):
    """How the tiles of a call are given to blocks.

    Attributes:
        whole: tiles that one block computes each.
        splits: parts of each of the others, along K.
        items: tiles and parts.
        parts: those that leave sums for another block.
    """

    whole: int
    splits: int
    items: int
    parts: int


def tail_of(call: GemmCall, variant: Variant, device: DeviceProfile) -> Tail:
    """Return the tiles of a call; of a variant that splits, those behind the last whole wave are
    split so far that their parts fill the device."""
    bm, bn = tile_of(variant)
    tiles = -(-call.m // bm) * -(-call.n // bn) * call.batches
    if variant.param_map.get("TAIL") != "split":
        return Tail(tiles, 1, tiles, 0)
    whole, splits = tail_split(variant, tiles, steps_of(variant, call.k, call.a.dtype),
                               device.sm_count)
    parts = (tiles - whole) * (splits - 1)
    return Tail(whole, splits, tiles + parts, parts)


def tail_refusal(variant: Variant, call: GemmCall, device: DeviceProfile) -> str:
    """Return why a variant that splits has nothing to split; empty where it has."""
    if variant.param_map.get("TAIL") != "split":
        return ""
    if is_tracing():
        return "how tiles are split depends on the exact sizes"
    splits = tail_of(call, variant, device).splits
    return "" if splits > 1 else "no tile behind the last whole wave is long enough to be split"


def operand_map(offset: int, operand: Operand, extent: int, k: int, tile: int, batches: int
                ) -> TensorMapSpec:
    """Return the map that a WgmmaTile loads through: boxes of 128 bytes of k, or of 64 rows."""
    k_major = operand.column == 1
    inner, outer = (k, extent) if k_major else (extent, k)
    pitch = operand.row if k_major else operand.column
    width = ROW_BYTES // DTYPES[operand.dtype].itemsize
    return _matrix_map(offset, operand, (inner, outer), pitch, batches,
                       (width, tile if k_major else width, 1))


def output_maps(offset: int, call: GemmCall) -> tuple[TensorMapSpec, ...]:
    """Return the maps that the outputs are written through, a StoreBox at a time."""
    return tuple(
        _matrix_map(offset + i * MAP_BYTES, y, (call.n, call.m), y.row, call.batch[2],
                    (ROW_BYTES // DTYPES[y.dtype].itemsize, BOX_ROWS, 1))
        for i, y in enumerate((call.y, *call.more)))


def _matrix_map(offset: int, operand: Operand, extents: tuple[int, int], pitch: int, batches: int,
                box: tuple[int, int, int]) -> TensorMapSpec:
    itemsize = DTYPES[operand.dtype].itemsize
    inner, outer = extents
    # A stride that is never stepped along must still be a multiple of 16 bytes for the driver.
    if outer == 1 or pitch == 0:
        unit = 16 // itemsize
        pitch = -(-inner // unit) * unit
    varies = operand.batch[2] != 0
    batch_stride = operand.batch[2] if varies else pitch * outer
    return TensorMapSpec(offset, operand.slot, 0, operand.dtype,
                         (inner, outer, batches if varies else 1),
                         (pitch * itemsize, batch_stride * itemsize), box, 128)


def wgmma_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why a wgmma variant cannot serve a call; empty where it can."""
    return epilogue_refusal(variant, call) or tma_refusal(call)


def epilogue_refusal(variant: Variant, call: GemmCall) -> str:
    """Return why a variant has no room for an epilogue or cannot store an output."""
    rows = int(variant.param("BM")) // (2 if variant.param("SCHEDULE") == "cooperative" else 1)
    sums = rows * int(variant.param("BN")) // 128
    if sums > 128 and (call.more or any(x.spread.startswith("FULL") for _, x in call.extras)):
        return "no registers are left for an epilogue input or output of the output's shape"
    for y in (call.y, *call.more):
        if call.n % (16 // DTYPES[y.dtype].itemsize):
            # Seen on an H200: a row that ends inside a unit has the rest of it overwritten.
            return "tensor maps store whole units of 16 bytes, and a row of Y ends inside one"
    return ""


def tma_refusal(call: GemmCall) -> str:
    """Return why A, B or an output cannot be reached by tensor maps; empty where they can."""
    if call.batch[0] * call.batch[1] != 1:
        return "batch axes do not merge into one"
    if call.k == 0:
        return "a tensor map has no empty axis"
    outputs = [("Y", y) for y in (call.y, *call.more)]
    for name, x in (("A", call.a), ("B", call.b), *outputs):
        if reason := operand_refusal(name, x):
            return reason
    return ""


def operand_refusal(name: str, x: Operand) -> str:
    """Return why a tensor map cannot reach an operand (an output along its rows)."""
    inner, outer = sorted((x.row, x.column), key=lambda stride: stride != 1)
    if inner != 1 or (name == "Y" and x.column != 1):
        return f"{name} has no axis of stride 1 along which it can be read"
    step = 16 // DTYPES[x.dtype].itemsize
    if x.align % 16 or outer % step or x.batch[2] % step or outer < 0 or x.batch[2] < 0:
        return f"{name} is not aligned to 16 bytes in every row"
    return ""
