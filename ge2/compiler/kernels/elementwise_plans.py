"""Which elementwise kernel can walk a problem, and how: vectors, tiles or single elements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...problem import Problem, TensorSpec, dense_strides
from ..ir.expr import ExprBundle
from ..ir.expr import walk as walk_expr
from .walk import VECTOR_BYTES, Walk, vector_width, walk_of

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from ..ir.expr import Expr
    from .metadata import Variant

# (threads, vectors per thread) -> points on a full device. % of a copy on an H200: 256 x 1
# 100.2, 128 x 1 100.1, 128 x 2 99.7, 256 x 2 97.0.
_BLOCKS = {(256, 1): 3.0, (128, 1): 2.5, (128, 2): 2.0, (256, 2): 0.0}

# Where arithmetic takes a good part of the time 2 x 128 hides it best (gelu of bf16: 80 % of a copy
# against 73 with 256 x 1); with a second operand it does not (90 against 101).
_BUSY_BLOCKS = {(128, 2): 3.0, (128, 1): 2.5, (256, 2): 2.0, (256, 1): 0.0}
_SPECIAL = frozenset({"exp", "exp2", "log", "tanh", "erf", "sin", "cos", "pow", "div", "sqrt"})


@dataclass(frozen=True, slots=True)
class TiledPlan:
    """How a problem maps to tiles over two axes.

    Attributes:
        walk: collapsed axes with the two tile axes last: b, then a.
        staged: per input, whether it is contiguous along b and passes through shared memory.
        vector: elements per access along either axis.
    """

    walk: Walk
    staged: tuple[bool, ...]
    vector: int

    def shared_bytes(self, problem: Problem, tile_elements: int) -> int:
        """Return the shared memory of a block, alignment slack included."""
        sizes = [DTYPES[t.dtype].itemsize for t, staged in
                 zip(present_tensors(problem), self.staged, strict=False) if staged]
        return sum(sizes) * tile_elements + 1024


def present_tensors(problem: Problem) -> tuple[TensorSpec, ...]:
    """Return inputs, then outputs; an elementwise problem has no absent input."""
    return tuple(t for t in problem.tensors if t is not None)


def bundle_of(problem: Problem) -> ExprBundle:
    """Return the problem's expressions."""
    bundle = problem.attr_map["expr"]
    assert isinstance(bundle, ExprBundle), bundle
    return bundle


@lru_cache(maxsize=4096)
def coord_axes(bundle: ExprBundle) -> tuple[int, ...]:
    """Return the output axes whose coordinates the expressions read, ascending."""
    nodes: list[Expr] = walk_expr(bundle.outputs)
    return tuple(sorted({int(n.value) for n in nodes if n.kind == "coord"}))


@lru_cache(maxsize=4096)
def vector_plan(problem: Problem) -> tuple[Walk, int]:
    """Return the walk and the vector width; width 1 or 0 means that vectors are of no use."""
    tensors = present_tensors(problem)
    walk = walk_of(tensors)
    if coord_axes(bundle_of(problem)):
        return walk, 0
    return walk, vector_width(walk, tensors)


@lru_cache(maxsize=4096)
def rows_plan(problem: Problem) -> tuple[Walk, int]:
    """Return the walk and the elements of one store; 0 where outputs are not one dense run."""
    walk = walk_of(present_tensors(problem))
    dense = dense_strides(walk.shape)
    n_in = len(problem.inputs)
    if coord_axes(bundle_of(problem)) or any(s != dense for s in walk.strides[n_in:]):
        return walk, 0
    widest = max(DTYPES[t.dtype].itemsize for t in present_tensors(problem))
    aligned = min(t.align // DTYPES[t.dtype].itemsize for t in problem.outputs)
    return walk, max(1, min(VECTOR_BYTES // widest, aligned))


@lru_cache(maxsize=4096)
def tiled_plan(problem: Problem) -> TiledPlan | None:
    """Return the plan over tiles, or None where no input is contiguous along another axis."""
    tensors = present_tensors(problem)
    walk = walk_of(tensors)
    if len(walk.shape) < 2 or walk.strides[-1][-1] != 1 or coord_axes(bundle_of(problem)):
        return None
    across = {strides.index(1) for strides in walk.strides
              if strides[-1] not in (0, 1) and 1 in strides}
    if len(across) != 1:
        return None
    order = [axis for axis in range(len(walk.shape) - 1) if axis not in across]
    order += [*across, len(walk.shape) - 1]
    shape = tuple(walk.shape[axis] for axis in order)
    strides = tuple(tuple(s[axis] for axis in order) for s in walk.strides)
    if min(shape[-2:]) < 8 or any(s[-1] not in (0, 1) and s[-2] != 1 for s in strides):
        return None
    staged = tuple(s[-1] not in (0, 1) for s in strides)
    turned = Walk(shape, strides)
    return TiledPlan(turned, staged[: len(problem.inputs)], _tile_vector(turned, tensors, staged))


def _tile_vector(walk: Walk, tensors: tuple[TensorSpec, ...], staged: tuple[bool, ...]) -> int:
    sizes = [DTYPES[t.dtype].itemsize for t in tensors]
    width = min(VECTOR_BYTES // max(sizes), 8)
    while width > 1 and not all(
        _tile_fits(walk, index, tensor.align, sizes[index], staged[index], width)
        for index, tensor in enumerate(tensors)
    ):
        width //= 2
    # Blocks of 2 x 2 gain nothing over single elements and cost registers.
    return width if width * max(sizes) >= 8 else 1


def _tile_fits(walk: Walk, index: int, align: int, size: int, staged: bool, width: int) -> bool:
    if walk.shape[-1] % width or walk.shape[-2] % width:
        return False
    strides = walk.strides[index]
    if strides[-1] == 0 and not staged:
        return True
    inner = -2 if staged else -1
    others = [s for axis, s in enumerate(strides, -len(strides)) if axis != inner]
    return align % (width * size) == 0 and all(s % width == 0 for s in others)


def elementwise_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return score points for the shape of a block or tile."""
    params = variant.param_map
    if "TILE_A" in params:
        return _tile_preference(problem, variant, device)
    # Accesses of 2 bytes keep too few of them in flight: 54 % of a copy, those of 4 bytes 94 %.
    widest = max(DTYPES[t.dtype].itemsize for t in present_tensors(problem))
    if variant.kernel.name == "elementwise_vec" and 0 < vector_plan(problem)[1] * widest < 4:
        return -45.0
    threads, unroll = params.get("THREADS"), params.get("UNROLL")
    if not isinstance(threads, int) or not isinstance(unroll, int):
        return 0.0
    size = problem.outputs[0].size
    if size >= threads * unroll * 4 * device.sm_count * 4:
        blocks = _BUSY_BLOCKS if _is_busy(problem) else _BLOCKS
        return blocks.get((threads, unroll), 0.0)
    return -log2(threads * unroll / 128)


def _is_busy(problem: Problem) -> bool:
    """Whether 16-bit elements are worked on with a special function, one operand at a time."""
    if len(problem.inputs) > 1:
        return False
    narrow = any(t.dtype in ("f16", "bf16") for t in problem.outputs)
    return narrow and _has_special(bundle_of(problem))


@lru_cache(maxsize=4096)
def _has_special(bundle: ExprBundle) -> bool:
    return any(n.op in _SPECIAL for n in walk_expr(bundle.outputs))


def _tile_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """16-bit elements want 128 x 128 (95 % of a copy against 90), wider ones 64 x 64."""
    plan = tiled_plan(problem)
    if plan is None:
        return 0.0
    a, b = int(variant.param("TILE_A")), int(variant.param("TILE_B"))
    rows, columns = plan.walk.shape[-2:]
    tiles = plan.walk.size // max(rows * columns, 1) * -(-columns // a) * -(-rows // b)
    covered = plan.walk.size / (tiles * a * b)
    narrow = max(DTYPES[t.dtype].itemsize for t in present_tensors(problem)) <= 2
    fits = (a == b == 128) if narrow else (a == b == 64)
    return 4.0 * fits - 10.0 * (1 - covered) - 8.0 * (tiles < 2 * device.sm_count and a * b > 4096)
