"""Launch rules of row kernels that keep whole rows in registers or in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..compiler.ir.row_ops import build_row_op
from ..compiler.ir.size import Size
from ..compiler.kernels.row_plans import (
    MAX_LANES,
    WARP,
    copied_shape,
    has_narrow,
    moving_inputs,
    resident_lanes,
    row_access,
    row_layout,
    row_op_of,
)
from ..contract import DTYPES
from ..errors import Unsupported
from ..evidence.device import arch_number
from ..problem import Problem, TensorSpec
from .record import LaunchRecord
from .row import ALIGN_SLACK, example_rows, is_empty, row_context, row_problem, row_record
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


def _has_ends(context: dict[str, Any], lanes: int) -> bool:
    """Return whether elements beside whole vectors go to one thread each: enough threads for it."""
    vector: int = context["vector"]
    return not context["whole"] and vector > 1 and lanes >= 2 * vector - 2


def _full_vectors(n: int, lanes: int, vectors: int, context: dict[str, Any], ends: bool) -> int:
    """Return of how many of its vectors each thread has all elements: they need no test.

    Of a class of sizes all or none, so that one kernel serves it.
    """
    vector: int = context["vector"]
    if isinstance(n, Size):
        return vectors if context["whole"] and n == lanes * vectors * vector else 0
    whole = n // vector if context["whole"] else (n - vector + 1) // vector if ends else 0
    return min(max(whole, 0) // lanes, vectors)


@lru_cache(maxsize=1024)
def _min_blocks(threads: int, vectors: int, operands: int, whole: bool, arch: str,
                spare: int = 0) -> int:
    """Return how many blocks should share a multiprocessor: the compiler's register budget.

    Packed vectors need 4 registers each, the rest of the kernel 44, on newer and smaller GPUs some
    more, and cut vectors a mask each.
    """
    number = arch_number(arch)
    per_sm = {75: 1024, 86: 1536, 89: 1536, 120: 1536}.get(number, 2048)
    rest = (44 if number in (80, 90) else 60) + (0 if whole else 20 + 4 * vectors)
    by_registers = 65536 // (threads * (4 * vectors * operands + rest + spare))
    return max(1, min(by_registers, per_sm // threads, 16))


@dataclass(frozen=True, slots=True)
class ResidentRule:
    """row_warp and row_block: the row lies in the registers of up to 1024 threads."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        layout = row_layout(problem)
        vectors: int = variant.param("VECTORS")
        lanes = resident_lanes(problem, vectors)
        shuffles = variant.param("REDUCE") == "warp_shuffle"
        if lanes > (WARP if shuffles else MAX_LANES):
            raise Unsupported("the row does not fit in registers", found=layout.n,
                              wanted=f"at most {vectors} vectors in each of {MAX_LANES} threads")
        lanes = lanes if shuffles else max(lanes, 2 * WARP)
        per_block = max(1, 128 // lanes)
        scratch = {"warp_shuffle": 0, "block": lanes // WARP * 128, "shared_tree": lanes * 64}
        bytes_needed = scratch[variant.param("REDUCE")] * per_block
        common, op = row_context(problem), row_op_of(problem)
        early = variant.param("WEIGHTS") == "early"
        again, ends = variant.param("UNPACK") == "again", _has_ends(common, lanes)
        context = {
            **common, "full": _full_vectors(layout.n, lanes, vectors, common, ends),
            "ends": ends, "lanes": lanes, "rows_per_block": per_block, "scratch": bytes_needed,
            "min_blocks": _min_blocks(
                lanes * per_block, vectors * (1 if again or not has_narrow(problem) else 2),
                len(moving_inputs(problem)) + (op.n_extras if early else 0),
                common["whole"] or ends,
                device.arch,
                spare=20 * again + 12 * ends + 24 * (op.n_inputs - len(moving_inputs(problem)))),
        }
        blocks = -(-layout.rows // per_block)
        return [row_record(problem, variant, row_access(problem).steps, context,
                        grid=(blocks, 1, 1), block=(lanes * per_block, 1, 1),
                        smem=bytes_needed + ALIGN_SLACK if bytes_needed else 0)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        long = variant.param("REDUCE") != "warp_shuffle"
        n = 64 * 8 * int(variant.param("VECTORS")) if long else 64 * int(variant.param("VECTORS"))
        odd = TensorSpec.dense("bf16", (5, n - 3))
        if variant.param("WEIGHTS") == "early":
            return [p for p in example_rows(n) if row_op_of(p).n_extras]
        if variant.param("UNPACK") == "again":
            return [p for p in example_rows(n) if has_narrow(p)]
        return [*example_rows(n), row_problem(build_row_op("softmax"), [odd], ["bf16"])]


@dataclass(frozen=True, slots=True)
class CopiedRule:
    """row_copied: the row lies in shared memory, each thread's part for itself."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        layout, op = row_layout(problem), row_op_of(problem)
        vectors: int = variant.param("VECTORS")
        lanes, per_block, stage = copied_shape(problem, variant)
        scratch = lanes // WARP * 128 * per_block if variant.param("REDUCE") == "block" else 0
        common = row_context(problem)
        early, ends = variant.param("WEIGHTS") == "early", _has_ends(common, lanes)
        smem = scratch + per_block * stage + ALIGN_SLACK
        by_memory = device.smem_per_sm // (smem + 1024)
        by_registers = _min_blocks(lanes * per_block, vectors * early + max(2, vectors // 2),
                                   op.n_extras + 1,
                                   common["whole"] or ends, device.arch, spare=12 * ends)
        context = {
            **common, "full": _full_vectors(layout.n, lanes, vectors, common, ends),
            "ends": ends, "lanes": lanes, "rows_per_block": per_block, "scratch": scratch,
            "staging": "own",
            "min_blocks": max(1, min(by_memory, by_registers)),
        }
        return [row_record(problem, variant, row_access(problem).steps, context,
                        grid=(-(-layout.rows // per_block), 1, 1),
                        block=(lanes * per_block, 1, 1), smem=smem)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        vectors = int(variant.param("VECTORS"))
        n = (64 if variant.param("REDUCE") == "warp_shuffle" else 64 * 8) * vectors
        if variant.param("WEIGHTS") == "early":
            return [p for p in example_rows(n) if row_op_of(p).n_extras]
        odd = TensorSpec.dense("bf16", (5, n - 3))
        return [*example_rows(n), row_problem(build_row_op("softmax"), [odd], ["bf16"])]


@dataclass(frozen=True, slots=True)
class ThreadRule:
    """row_thread: a block's rows are one piece of memory, each thread reduces one."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        layout, threads = row_layout(problem), int(variant.param("THREADS"))
        staged = threads * layout.n * DTYPES[layout.tensors[0].dtype].itemsize
        return [row_record(problem, variant, row_access(problem).steps, {},
                        grid=(-(-layout.rows // threads), 1, 1), block=(threads, 1, 1),
                        smem=staged + ALIGN_SLACK)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        return [row_problem(build_row_op(name), [TensorSpec.dense(dtype, shape)], [out])
                for name, dtype, shape, out in (
                    ("mean", "f16", (5, 49), "f16"), ("argmax", "f32", (3, 50, 7), "i64"),
                    ("logsumexp", "bf16", (130, 14), "f32"), ("max", "f32", (4, 3), "f32"))]


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """row_cluster: the row lies in the registers of several blocks that see each other."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        threads, blocks = variant.param("THREADS"), variant.param("BLOCKS")
        vectors: int = variant.param("VECTORS")
        if resident_lanes(problem, vectors) > threads * blocks:
            raise Unsupported("the row does not fit in the registers of a cluster",
                              found=row_layout(problem).n)
        scratch = threads // WARP * 128 + 128
        common = row_context(problem)
        ends = _has_ends(common, threads * blocks)
        context = {**common, "scratch": scratch, "again": has_narrow(problem), "ends": ends,
                   "full": _full_vectors(row_layout(problem).n, threads * blocks, vectors, common,
                                         ends)}
        return [row_record(problem, variant, row_access(problem).steps, context,
                        grid=(row_layout(problem).rows * blocks, 1, 1), block=(threads, 1, 1),
                        cluster=(blocks, 1, 1), smem=scratch + ALIGN_SLACK)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        lanes = int(variant.param("THREADS") * variant.param("BLOCKS"))
        accesses = lanes * int(variant.param("VECTORS"))
        narrow, wide = example_rows(8 * accesses), example_rows(4 * accesses - 4)
        return [narrow[0], *wide[1:4]]


RULES: dict[str, LaunchRule] = {
    "row_resident.registers": ResidentRule(),
    "row_resident.cluster": ClusterRule(),
    "row_resident.copied": CopiedRule(),
    "row_resident.thread": ThreadRule(),
}
