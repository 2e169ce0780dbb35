"""How the operands of a row operator lie in memory, and which row kernels can walk them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2
from typing import TYPE_CHECKING

from ...contract import DTYPES
from ...errors import ShapeMismatch
from ...problem import Problem, TensorSpec, dense_strides
from ..ir.row import RowOp
from ..ir.size import at_most, larger, smaller
from .walk import VECTOR_BYTES, Walk, collapse

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile
    from .metadata import Variant

WARP = 32
MAX_LANES = 1024
NEAR = -(1 << 62)  # stands for a step, see RowAccess
SPLIT_ELEMENTS = 4096  # a block that shares a row should have at least this much to read


@dataclass(frozen=True, slots=True)
class RowLayout:
    """A ROW problem: every tensor as (lead strides, step along the row).

    Attributes:
        tensors: x, extras, outputs.
        lead: the axes that rows are counted over, collapsed, with each tensor's strides.
        steps: element step along the row; 0 for a value per row.
        n: row length.
        rows: number of rows.
    """

    tensors: tuple[TensorSpec, ...]
    lead: Walk
    steps: tuple[int, ...]
    n: int
    rows: int

    @property
    def reach(self) -> int:
        """Largest absolute element offset."""
        along = max(abs(step) * max(self.n - 1, 0) for step in self.steps)
        return self.lead.reach + along


def row_op_of(problem: Problem) -> RowOp:
    """Return the problem's declaration."""
    op = problem.attr_map["row"]
    assert isinstance(op, RowOp), op
    return op


@lru_cache(maxsize=4096)
def row_layout(problem: Problem) -> RowLayout:
    """Return the layout of a ROW problem: x and row outputs [..., n], scalar outputs [...].

    Extras broadcast to x; scalar outputs may keep a last axis of 1.

    Raises:
        ShapeMismatch: an operand does not fit x.
    """
    op = row_op_of(problem)
    inputs = [t for t in problem.inputs if t is not None]
    if len(inputs) != op.n_inputs + op.n_extras or len(problem.outputs) != len(op.outputs):
        raise ShapeMismatch(f"row operator {op.name} takes other operands",
                            found=(len(inputs), len(problem.outputs)),
                            wanted=(op.n_inputs + op.n_extras, len(op.outputs)))
    shape = inputs[0].shape
    lead_shape, n = shape[:-1], shape[-1]
    strides = [_operand_strides(t, shape) for t in inputs]
    for tensor, kind in zip(problem.outputs, op.outputs, strict=True):
        strides.append(_operand_strides(tensor, shape) if kind == "row"
                       else _scalar_strides(tensor, lead_shape))
    steps = [s[-1] for s in strides]
    if n == 1:
        steps = [1 if step else 0 for step in steps]
    lead = collapse(lead_shape, tuple(s[:-1] for s in strides))
    return RowLayout((*inputs, *problem.outputs), lead, tuple(steps), n, _product(lead_shape))


def _operand_strides(tensor: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return strides expanded to shape; missing axes and extents of 1 broadcast."""
    missing = len(shape) - len(tensor.shape)
    if missing < 0:
        raise ShapeMismatch("row operand has too many axes", found=tensor.shape, wanted=shape)
    result = [0] * missing
    for extent, stride, wanted in zip(tensor.shape, tensor.strides, shape[missing:], strict=True):
        if extent not in (wanted, 1):
            raise ShapeMismatch("row operand does not broadcast", found=tensor.shape, wanted=shape)
        result.append(0 if extent == 1 and wanted != 1 else stride)
    return tuple(result)


def _scalar_strides(tensor: TensorSpec, lead: tuple[int, ...]) -> tuple[int, ...]:
    if tensor.shape == lead:
        return (*tensor.strides, 0)
    if tensor.shape == (*lead, 1):
        return (*tensor.strides[:-1], 0)
    if tensor.size == _product(lead) and tensor.is_dense:
        return (*dense_strides(lead), 0)
    raise ShapeMismatch("output with one value per row has another shape", found=tensor.shape,
                        wanted=lead)


def _product(extents: tuple[int, ...]) -> int:
    total = 1
    for extent in extents:
        total *= extent
    return total


@dataclass(frozen=True, slots=True)
class RowAccess:
    """How row kernels access memory along a row.

    Attributes:
        vector: elements per access.
        shifted: rows start off 16-byte boundaries, all tensors by as much; vectors then lie on the
            boundaries and the first and last of a row are cut.
        steps: per tensor 1 where it is accessed in vectors, NEAR where those are put together from
            aligned ones, else its step (0) or any other number (element by element).
    """

    vector: int
    shifted: bool
    steps: tuple[int, ...]


@lru_cache(maxsize=4096)
def row_access(problem: Problem) -> RowAccess:
    """Return the widest access along the row that addresses and strides allow."""
    layout = row_layout(problem)
    unit = [i for i, step in enumerate(layout.steps) if step == 1]
    if 0 not in unit:
        return RowAccess(1, False, layout.steps)
    sizes = {i: DTYPES[layout.tensors[i].dtype].itemsize for i in unit}
    widest = VECTOR_BYTES // max(sizes.values())
    width = widest
    while width > 1 and not all(
        layout.tensors[i].align % (width * sizes[i]) == 0
        and all(s % width == 0 for s in layout.lead.strides[i]) for i in unit
    ):
        width //= 2
    if width < widest and at_most(layout.n) >= 4 * widest:
        shifted = _shifted_access(layout, unit, widest)
        if shifted is not None:
            return shifted
    return RowAccess(width, False, layout.steps)


def _shifted_access(layout: RowLayout, unit: list[int], width: int) -> RowAccess | None:
    # Weights along the row stay where they are while rows move: accesses are not aligned to them.
    lead = layout.lead.strides
    moving = [i for i in unit if any(lead[i])]
    phases = {tuple(s % width for s in lead[i]) for i in moving}
    if 0 not in moving or len(phases) != 1:
        return None
    if any(layout.tensors[i].align < VECTOR_BYTES for i in moving):
        return None
    steps = tuple(
        step if step != 1 or i in moving else NEAR if layout.tensors[i].align >= VECTOR_BYTES else 2
        for i, step in enumerate(layout.steps))
    return RowAccess(width, True, steps)


def moving_inputs(problem: Problem) -> list[TensorSpec]:
    """Return the operands of the state that differ along the row."""
    steps = row_access(problem).steps[: row_op_of(problem).n_inputs]
    return [t for t, step in zip(row_layout(problem).tensors, steps, strict=False) if step]


def copies_along(steps: tuple[int, ...]) -> bool:
    """Return whether operands lie as copies want them, or are the same all along the row."""
    return steps[0] == 1 and all(step in (0, 1) for step in steps)


def row_vector(problem: Problem) -> int:
    """Return elements per access along the row."""
    return row_access(problem).vector


@lru_cache(maxsize=4096)
def column_vector(problem: Problem) -> int:
    """Return rows per access along the innermost lead axis; 0 where x is not contiguous there."""
    layout = row_layout(problem)
    if layout.lead.strides[0][-1] != 1 or layout.lead.shape[-1] < 2:
        return 0
    unit = [i for i, s in enumerate(layout.lead.strides) if s[-1] == 1]
    sizes = {i: DTYPES[layout.tensors[i].dtype].itemsize for i in unit}
    # Each row of the vector has a state in registers: eight of one word where there are few
    # columns to share the work by, four of more.
    state = row_op_of(problem).state
    small = len(state) == 1 and DTYPES[state[0].dtype].itemsize == 4
    most = 8 if small and layout.lead.shape[-1] <= 4096 else 4
    width = min(VECTOR_BYTES // max(sizes.values()), most)
    while width > 1:
        if all(_column_fits(layout, i, width, sizes[i]) for i in unit):
            return width
        width //= 2
    return 1


def _column_fits(layout: RowLayout, index: int, width: int, size: int) -> bool:
    others = (*layout.lead.strides[index][:-1], layout.steps[index])
    inner = layout.lead.shape[-1]
    return (layout.tensors[index].align % (width * size) == 0
            and all(s % width == 0 for s in others)
            and (len(layout.lead.shape) == 1 or inner % width == 0))


def has_narrow(problem: Problem) -> bool:
    """Return whether any operand of the state has 16-bit floats, which registers hold packed."""
    inputs = problem.inputs[: row_op_of(problem).n_inputs]
    return any(t is not None and t.dtype in ("f16", "bf16") for t in inputs)


def resident_lanes(problem: Problem, vectors: int) -> int:
    """Return the threads per row that hold it with `vectors` accesses each; a power of two."""
    access, n = row_access(problem), row_layout(problem).n
    longest = at_most(n)  # of the class of sizes that the kernel serves
    whole = max(-(-(longest // access.vector) // vectors), 1)
    if (access.shifted or n % access.vector) and whole >= 2 * access.vector - 2:
        # What lies beside whole accesses goes to one thread each.
        return 1 << (whole - 1).bit_length()
    accesses = -(-longest // access.vector) + access.shifted
    need = max(-(-accesses // vectors), 1)
    return 1 << (need - 1).bit_length()


def row_splits(layout: RowLayout, sm_count: int, blocks_per_sm: int) -> int:
    """Return how many blocks share a row so that the device is filled once."""
    by_device = -(-sm_count * blocks_per_sm // max(layout.rows, 1))
    return larger(1, smaller(smaller(by_device, layout.n // SPLIT_ELEMENTS), 4096))


def refuse_resident(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_warp and row_block: the row fits in that many registers."""
    vectors = variant.param("VECTORS")
    lanes = resident_lanes(problem, vectors)
    if variant.param("WEIGHTS") == "early" and row_op_of(problem).n_extras == 0:
        return "no weights to read early"
    narrow = has_narrow(problem)
    if variant.param("UNPACK") == "again":
        if not narrow:
            return "no 16-bit elements to keep packed"
    elif narrow and lanes <= MAX_LANES and vectors > 2:
        registers = 8 * vectors * len(moving_inputs(problem)) + 44
        if max(lanes, 4 * WARP) * registers > device.registers_per_sm:
            return f"{registers} registers in each of {lanes} threads, unpacked"
    if variant.param("REDUCE") == "warp_shuffle":
        return "" if lanes <= WARP else f"the row needs {lanes} threads, a warp has {WARP}"
    if lanes <= WARP:
        return "one warp holds the row"
    return "" if lanes <= MAX_LANES else f"the row needs {lanes} threads, a block has {MAX_LANES}"


def copied_shape(problem: Problem, variant: Variant) -> tuple[int, int, int]:
    """Return threads per row, rows per block and bytes per row of row_copied."""
    vectors = variant.param("VECTORS")
    lanes = resident_lanes(problem, vectors)
    if variant.param("REDUCE") == "block":
        lanes = max(lanes, 2 * WARP)
    chunk = row_access(problem).vector * sum(
        DTYPES[t.dtype].itemsize for t in moving_inputs(problem))
    return lanes, max(1, 128 // lanes), lanes * vectors * chunk


def refuse_copied(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_copied: contiguous rows that fit in a block's shared memory."""
    op, access = row_op_of(problem), row_access(problem)
    if not copies_along(access.steps[: op.n_inputs]) or access.vector < 2:
        return "an operand of the state is not read in vectors along the row"
    if variant.param("WEIGHTS") == "early" and op.n_extras == 0:
        return "no weights to read early"
    lanes, per_block, nbytes = copied_shape(problem, variant)
    if variant.param("REDUCE") == "warp_shuffle":
        if lanes > WARP:
            return f"the row needs {lanes} threads, a warp has {WARP}"
    elif resident_lanes(problem, variant.param("VECTORS")) <= WARP:
        return "one warp holds the row"
    elif lanes > MAX_LANES:
        return f"the row needs {lanes} threads, a block has {MAX_LANES}"
    total = per_block * (nbytes + lanes // WARP * 128) + 1024
    if total > device.smem_per_block:
        return f"needs {total} bytes of shared memory, a block has {device.smem_per_block}"
    return ""


def refuse_cluster(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_cluster: the row fills at least half of the cluster's registers."""
    lanes = resident_lanes(problem, variant.param("VECTORS"))
    have = variant.param("THREADS") * variant.param("BLOCKS")
    if lanes > have:
        return f"the row needs {lanes} threads, the cluster has {have}"
    return "" if 2 * lanes > have else "fewer blocks hold the row"


def refuse_split(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_split: at least two blocks per row have something to do."""
    if not row_op_of(problem).streamable:
        return "the operator has no merge"
    blocks = 2048 // variant.param("THREADS")
    splits = row_splits(row_layout(problem), device.sm_count, blocks)
    return "" if splits > 1 else "rows are too short or too many for several blocks each"


def refuse_column(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_column: rows are neighbours in memory, their elements are not."""
    if not row_op_of(problem).streamable:
        return "the operator has no merge"
    if row_layout(problem).steps[0] == 1:
        return "the elements of a row are neighbours in memory"
    return "" if column_vector(problem) else "rows are not neighbours in memory"


_THREAD_BYTES = 16 * 1024  # of a block: longer rows keep several threads busy each


def refuse_thread(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Guard of row_thread: short rows without gaps, whose starts spread over shared memory."""
    op, x = row_op_of(problem), problem.inputs[0]
    assert x is not None
    if op.n_inputs > 1 or op.n_extras or "row" in op.outputs:
        return "not one operand to values per row alone"
    if not all(t.is_dense for t in row_layout(problem).tensors) or x.align < VECTOR_BYTES:
        return "a tensor is strided, or x is not aligned to 16 bytes"
    nbytes = x.shape[-1] * DTYPES[x.dtype].itemsize
    if nbytes % 8 == 0:
        return "rows start in the same banks"
    if not 0 < nbytes * int(variant.param("THREADS")) <= _THREAD_BYTES:
        return f"the rows of a block exceed {_THREAD_BYTES} bytes, or are empty"
    return ""


def _thread_points(problem: Problem, device: DeviceProfile) -> float:
    """Rows that start off vectors cost the other kernels tests of each element; many fill the GPU.
    """
    return 60.0 if row_layout(problem).rows >= 1024 * device.sm_count else 0.0


def row_preference(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """Return score points by row length and count, from measurements on an H200."""
    layout = row_layout(problem)
    params = variant.param_map
    if variant.kernel.name == "row_thread":
        return _thread_points(problem, device)
    points = -40.0 if layout.steps[0] != 1 else 0.0
    if "DOWN" in params:
        return _column_points(problem, variant)
    if "semaphores" in variant.kernel.flags:
        return points + _split_points(problem, variant, device)
    if "BLOCKS" in params:
        # One block per row wins while it holds the row: a cluster waits for its slowest block.
        other = float(variant.param("THREADS") != 512)
        return points - 2.0 * log2(float(params["BLOCKS"])) - 4.0 * other
    if "REDUCE" not in params:
        share = max(layout.n, 1) / int(variant.param("THREADS"))
        return points - abs(log2(share / 32))
    return points + _resident_points(problem, variant, device)


def _column_points(problem: Problem, variant: Variant) -> float:
    """Threads along rows; few columns leave most of a warp without work and want longer ones."""
    columns = row_layout(problem).lead.shape[-1]
    if columns < 8:
        return -60.0
    down, unroll = variant.param("DOWN"), variant.param("UNROLL")
    stages, narrow = row_op_of(problem).stages, has_narrow(problem)
    sums = bool(stages) and stages[0][0].combine == "sum"
    wanted = (16 if columns <= 1024 else 8, 8 if not narrow and (columns <= 1024 or sums) else 4)
    return 20.0 - 3.0 * float((down != wanted[0]) + (unroll != wanted[1]))


def _split_points(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """A row output costs a second launch and a second read; then rows must be really long."""
    layout = row_layout(problem)
    short = 2**16 if row_op_of(problem).reads_row_to_finish else 2**14
    most = device.sm_count if layout.n >= 2**18 else device.sm_count // 2
    threads = 512 if layout.n >= 2**22 else 256
    shape = 2.0 * float(variant.param("VECTORS") == 8) + float(variant.param("THREADS") == threads)
    if layout.n < short or layout.rows > most:
        return shape - 30.0
    return shape + (30.0 if row_op_of(problem).reads_row_to_finish else 45.0)


# Accesses of a row up to which a row of the table holds -> accesses per thread, from the shares of
# a copy that were measured at 16, 32, 64, ... 4096 accesses: without weights, with them.
_VECTORS = ((16, 1, 2), (32, 1, 1), (64, 2, 4), (128, 2, 4), (256, 2, 2), (1024, 4, 4),
            (2048, 8, 4), (1 << 62, 8, 8))


def _resident_points(problem: Problem, variant: Variant, device: DeviceProfile) -> float:
    """How a block or less holds a row: accesses per thread, reduction, weights."""
    layout, op = row_layout(problem), row_op_of(problem)
    accesses = -(-layout.n // row_vector(problem))
    found = int(variant.param("VECTORS"))
    points = -6.0 * abs(log2(found / _wanted_vectors(problem, layout, device)))
    # A tree moves a state once per level, a butterfly all of them: large states want the tree.
    wide = any(DTYPES[v.dtype].itemsize == 8 for v in op.state) and not op.stages
    if variant.param("REDUCE") == "shared_tree":
        points += 4.0 if wide else -8.0
    early = variant.param("WEIGHTS") == "early"
    if op.n_extras and early == (accesses <= 256 and op.n_inputs == 1):
        points += 2.0
    if variant.kernel.name == "row_copied":
        # Fewer registers than the row itself takes: wins where they let few blocks run.
        points += 8.0 if accesses > 2048 and not op.n_extras else -4.0
    return points


def _wanted_vectors(problem: Problem, layout: RowLayout, device: DeviceProfile) -> int:
    accesses = -(-layout.n // row_vector(problem))
    in_cache = layout.tensors[0].nbytes * 4 < device.l2_bytes
    if in_cache and accesses <= 8 * WARP and layout.rows >= 8 * device.sm_count:
        return min(1 << (max(accesses // WARP, 1) - 1).bit_length(), 8)
    op = row_op_of(problem)
    if accesses <= WARP and not op.reads_row_to_finish:
        return 2  # nothing is written: what counts is how much each thread has under way
    if accesses > MAX_LANES and len(op.stages) == 1:
        return 4
    weighted = op.n_extras > 0 and op.n_inputs == 1 and len(op.stages) > 1
    narrow = has_narrow(problem)
    for limit, plain, weights in _VECTORS:
        if accesses <= limit:
            # f32 elements are a quarter of an access: fewer of them share a reduction.
            return weights if weighted and (narrow or limit not in (64, 128)) else plain
    return 8
