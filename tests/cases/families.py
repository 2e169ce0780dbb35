"""Families of random nodes that a GPU compares with torch: many sizes, few kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ge2.compiler.passes.pipeline import optimize
from ge2.compiler.plan import make_plan
from ge2.evidence.device import DeviceProfile
from ge2.launch.record import KernelSource

from . import drawn
from .drawn import REAL, Examples


@dataclass(frozen=True)
class Family:
    """Nodes that share kernels.

    Attributes:
        examples: what draws them.
        dtype: their main dtype; each further one is a set of kernels of its own.
        count: how many are drawn.
    """

    examples: Examples
    dtype: str
    count: int


ROWS = (8, 33, 64, 130)  # fewer kinds of accesses, so fewer kernels

FAMILIES = {
    "broadcasting": Family(drawn.broadcasting(("MUL",), REAL), "f32", 50),
    "choices": Family(drawn.choices(ROWS), "f16", 20),
    "reductions": Family(drawn.reductions(("REDUCE_SUM",), (8, 33, 130)), "f32", 40),
    "maxima": Family(drawn.reductions(("REDUCE_MAX",), (64,)), "f16", 20),
    "slices": Family(drawn.slices(ROWS), "f32", 40),
    "transposes": Family(drawn.movement(("TRANSPOSE",), REAL), "f16", 40),
    "joins": Family(drawn.movement(("CONCAT", "TILE", "EXPAND"), ROWS), "f16", 40),
    "pads": Family(drawn.pads(("constant",), ROWS), "f32", 40),
    "gathers": Family(drawn.gathers(REAL), "f16", 30),
    "products": Family(drawn.matmuls(REAL), "f16", 60),
    "softmax": Family(drawn.norms(("SOFTMAX",), ROWS), "f32", 30),
    "norms": Family(drawn.norms(("LAYER_NORM",), ROWS), "f16", 30),
    "groups": Family(drawn.norms(("GROUP_NORM",), (8, 33)), "f32", 20),
    "convolutions": Family(drawn.windows(("CONV2D",)), "f16", 60),
    "pools": Family(drawn.windows(("MAX_POOL", "AVG_POOL"), ((2, 2), (3, 2)), (2,)), "f16", 30),
    "resize": Family(drawn.resizes(), "f32", 30),
}


def family_sources(device: DeviceProfile, names: Iterable[str] = tuple(FAMILIES),
                   ) -> set[KernelSource]:
    """Return the kernels that the examples of families need on a device."""
    return {record.kernel for name in names
            for example in drawn.draws(FAMILIES[name].examples, FAMILIES[name].count)
            for record in make_plan(optimize(example.graph(FAMILIES[name].dtype)).graph,
                                    device).records}
