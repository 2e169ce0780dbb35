"""Launch rules of row_pipe and row_ring: groups of blocks that walk over long rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compiler.kernels.row_plans import row_access, row_layout, row_op_of
from ..compiler.kernels.row_ring_plans import SLACK, RingPlan, packets, ring_bytes, ring_plan
from ..errors import Unsupported
from ..problem import Problem
from .record import LaunchRecord
from .row import SMEM_OF_SM_90, example_rows, is_empty, row_record
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile


@dataclass(frozen=True, slots=True)
class RingRule:
    """Both ways: a group's blocks meet in global memory, or are a cluster.

    On a multiprocessor of an H200 without extras to keep, three blocks of row_ring hold 2 x 32 KB
    each (72 registers), with extras two (96 registers). row_pipe holds 3 x 32 KB twice or 3 x 64 KB
    once. One stage of each block, or two, is under way while another is worked on: 32 to 128 KB,
    where 16 KB would cover the latency of memory at its speed.
    """

    cluster: bool

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if is_empty(problem):
            return []
        plan = ring_plan(problem, variant, device)
        if plan is None:
            raise Unsupported("the row does not fit on the device", found=row_layout(problem).n)
        context: dict[str, Any] = {
            "vector": row_access(problem).vector, "staging": "ring", "keep": plan.keep,
            "full": plan.full, "min_blocks": plan.per_sm, "scratch": plan.smem - SLACK,
        }
        return [row_record(problem, variant, row_access(problem).steps,
                           {**context, **self._group_context(problem)}, splits=plan.blocks,
                           grid=(plan.groups * plan.blocks, 1, 1),
                           block=(variant.param("THREADS") + 32, 1, 1), smem=plan.smem,
                           **self._meeting(problem, plan))]

    def _group_context(self, problem: Problem) -> dict[str, Any]:
        return {} if self.cluster else {"group_words": 4 + 16 * packets(row_op_of(problem))}

    def _meeting(self, problem: Problem, plan: RingPlan) -> dict[str, Any]:
        """Return what lets the blocks of a group wait for each other.

        A cluster's blocks are started together. Those of a group are not, unless the whole grid is:
        two such grids at once would otherwise each hold what the other waits for.
        """
        if self.cluster:
            return {"cluster": (plan.blocks, 1, 1)}
        words = 4 + plan.blocks * 16 * packets(row_op_of(problem))
        return {"semaphores": plan.groups * words, "cooperative": True}

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        blocks = int(variant.param_map.get("BLOCKS", 2))
        accesses = variant.param("THREADS") * variant.param("VECTORS") * blocks
        # All accesses of every thread, and some less.
        (whole, *_), rest = example_rows(8 * accesses, rows=2), example_rows(4 * accesses, rows=2)
        cut = example_rows(4 * accesses - 4 * blocks * 256, rows=3)
        chosen = [whole, cut[1], cut[2], rest[7]]
        threads, vectors, stages = (variant.param(p) for p in ("THREADS", "VECTORS", "STAGES"))
        cluster = int(variant.param_map.get("BLOCKS", 0))
        return [p for p in chosen
                if ring_bytes(p, threads, vectors, stages, cluster) <= SMEM_OF_SM_90]


RULES: dict[str, LaunchRule] = {
    "row_ring.pipe": RingRule(cluster=False),
    "row_ring.cluster": RingRule(cluster=True),
}
