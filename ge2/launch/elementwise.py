"""Launch rules of the elementwise kernels: vectors, tiles in shared memory, single elements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiler.ir.expr import ExprBundle, exp, input, render_c
from ..compiler.ir.expr.cheaper import cheaper
from ..compiler.ir.scalar_ops import C_TYPES
from ..compiler.kernels.elementwise_plans import (
    bundle_of,
    coord_axes,
    present_tensors,
    rows_plan,
    tiled_plan,
    vector_plan,
)
from ..compiler.kernels.walk import INT32_MAX, Walk, divider
from ..contract import DTYPES
from ..errors import Unsupported
from ..problem import Problem, TensorSpec
from .record import ArgsBuilder, KernelSource, LaunchRecord, args_checks, args_dtype
from .rule import LaunchRule

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile

MODES = {1: "ge2::kUnit", 0: "ge2::kBroadcast"}
_GRID_LIMIT = INT32_MAX


def c_types(specs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """Return the C++ storage types of tensors."""
    return tuple(DTYPES[s.dtype].c_type for s in specs)


def index_types(count: int, reach: int) -> tuple[str, str]:
    """Return the C++ types of linear indices and of element offsets (an index-width class)."""
    linear = "unsigned" if count <= INT32_MAX else "unsigned long long"
    return linear, "int" if reach <= INT32_MAX else "long long"


def axes_fields(rank: int) -> np.dtype[Any]:
    """Return the layout of ge2::Axes<rank>."""
    return args_dtype(("extent", "i8", (rank,)), ("multiplier", "u4", (rank,)),
                      ("shift", "u4", (rank,)))


def axes_value(extents: Sequence[int]) -> Mapping[str, Sequence[int]]:
    """Return the members of a ge2::Axes for these extents, outermost first."""
    # Kernels with an extent beyond 31 bits use 64-bit division.
    pairs = [divider(extent) if 0 < extent <= INT32_MAX else (0, 0) for extent in extents]
    return {"extent": extents, "multiplier": [m for m, _ in pairs],
            "shift": [s for _, s in pairs]}


def pointer_fields(n_inputs: int, n_outputs: int) -> list[tuple[str, str]]:
    """Return the leading members of every elementwise Args struct."""
    return ([(f"in{i}", "u8") for i in range(n_inputs)]
            + [(f"out{i}", "u8") for i in range(n_outputs)])


def pointer_slots(n_inputs: int, n_outputs: int) -> dict[str, tuple[int, int]]:
    """Return field -> (slot, addend) of those members."""
    names = [name for name, _ in pointer_fields(n_inputs, n_outputs)]
    return {name: (slot, 0) for slot, name in enumerate(names)}


_FAST = re.compile(r"\bge2::(exp2|exp|tanh|erf|reciprocal|reciprocal_from_one)\(")


def only_narrow(outputs: Sequence[TensorSpec]) -> bool:
    """Whether every result is rounded to 16 bits, so that cheaper functions do."""
    return all(t.dtype in ("f16", "bf16") for t in outputs)


def fast_math(text: str) -> str:
    """Return a rendered statement with the functions of <ge2/tile/fast_math.cuh>."""
    return _FAST.sub(r"ge2::fast::\1(", text)


@lru_cache(maxsize=4096)
def rendered(bundle: ExprBundle, n_inputs: int, axes: tuple[int, ...] = (), fast: bool = False,
             ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (statements, results) of a bundle over x0, x1, ... and coordinates c0, c1, ...

    Raises:
        Unsupported: the expressions read run-time scalars, which no operand carries.
    """
    names = [f"x{i}" for i in range(n_inputs)]
    if bundle.n_scalars:
        raise Unsupported("an elementwise kernel has no run-time scalars", found=bundle.text,
                          hint="Pass the scalar as a rank-0 input.")
    outputs = cheaper(bundle.outputs) if fast else bundle.outputs
    text = render_c(outputs, names, [f"c{a}" for a in range(max(axes, default=-1) + 1)])
    lines = tuple(map(fast_math, text.lines)) if fast else text.lines
    return lines, text.results


def _make_record(problem: Problem, variant: Variant, context: dict[str, Any],
                 dtype: np.dtype[Any], values: dict[str, Any], **launch: Any) -> LaunchRecord:
    n_in, n_out = len(problem.inputs), len(problem.outputs)
    inputs = present_tensors(problem)[:n_in]
    bundle = bundle_of(problem)
    lines, results = rendered(bundle, n_in, coord_axes(bundle), only_narrow(problem.outputs))
    full = {
        **variant.param_map, **context, "in_types": c_types(inputs),
        "out_types": c_types(problem.outputs), "lines": lines, "results": results,
        "result_types": tuple(C_TYPES[e.dtype] for e in bundle.outputs),
        "ARGS_CHECKS": _checks(dtype),
    }
    args, relocs = ArgsBuilder(dtype, values, pointer_slots(n_in, n_out)).pack()
    source = KernelSource(variant.kernel.template, tuple(sorted(full.items())),
                          variant.kernel.name)
    return LaunchRecord(source, args=args, relocs=relocs, pdl="pdl" in variant.kernel.flags,
                        **launch)


@lru_cache(maxsize=1024)
def _checks(dtype: np.dtype[Any]) -> str:
    return args_checks(dtype)


def _stream_record(problem: Problem, variant: Variant, walk: Walk, vector: int) -> LaunchRecord:
    """Return the record of the kernels that walk a linear index: vec and strided."""
    rank = len(walk.shape)
    vectors = -(-walk.size // vector) if vector else walk.size
    linear, offset = index_types(vectors, walk.reach)
    strides, extents = walk.strides, list(walk.shape)
    if vector:
        extents[-1] = -(-extents[-1] // vector)
        strides = tuple((*s[:-1], s[-1] * vector) for s in strides)
    threads, unroll = variant.param("THREADS"), variant.param("UNROLL")
    blocks = -(-vectors // (threads * unroll))
    if blocks > _GRID_LIMIT:
        raise Unsupported("too many elements for one launch", found=walk.size)
    dtype = _stream_dtype(len(problem.inputs), len(problem.outputs), rank, bool(vector))
    values = {"size": walk.size, "axes": axes_value(extents),
              "stride": strides}
    context: dict[str, Any] = {"rank": rank, "linear": linear, "offset": offset}
    if vector:
        values["vectors"] = vectors
        context["vector"] = vector
        context["in_modes"] = tuple(MODES[s[-1]] for s in walk.strides[: len(problem.inputs)])
    else:
        context["coord_axes"] = coord_axes(bundle_of(problem))
    return _make_record(problem, variant, context, dtype, values,
                        grid=(blocks, 1, 1), block=(threads, 1, 1))


@lru_cache(maxsize=1024)
def _stream_dtype(n_inputs: int, n_outputs: int, rank: int, vectors: bool) -> np.dtype[Any]:
    counts = [("vectors", "i8")] if vectors else []
    return args_dtype(*pointer_fields(n_inputs, n_outputs), *counts, ("size", "i8"),
                      ("axes", axes_fields(rank)), ("stride", "i8", (n_inputs + n_outputs, rank)))


@dataclass(frozen=True, slots=True)
class VectorRule:
    """elementwise_vec: one or two vectors per thread, one tile per block."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        walk, vector = vector_plan(problem)
        if not vector:
            raise Unsupported("not vectorisable along the innermost axis", found=walk.strides)
        return [_stream_record(problem, variant, walk, vector)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        add = ExprBundle((exp(input(0)) + input(1),))
        copy = ExprBundle((input(0),))
        row = TensorSpec("f32", (6, 64), (0, 1))
        return [
            elementwise_problem(add, [_dense("f32", 1003), _dense("f32", 1003)], ["f32"]),
            elementwise_problem(add, [_dense("bf16", 6, 64), row], ["f16"]),
            elementwise_problem(ExprBundle((input(0), input(0) * 2.0)),
                                [TensorSpec("f16", (3, 5, 8), (8, 24, 1))], ["f32", "f16"]),
            elementwise_problem(ExprBundle((input(0, "i64"),)), [_dense("i64", 77)], ["i64"]),
            elementwise_problem(copy, [TensorSpec.dense("f32", (40,), align=4)], ["f32"]),
        ]


@dataclass(frozen=True, slots=True)
class StridedRule:
    """elementwise_strided: any strides, one element per access."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        if coord_axes(bundle_of(problem)):
            tensors = present_tensors(problem)
            walk = Walk(problem.outputs[0].shape, tuple(t.strides for t in tensors))
        else:
            walk = vector_plan(problem)[0]
        return [_stream_record(problem, variant, walk, 0)]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        where = ExprBundle(((input(0) > 0.0).choose(input(1), input(2)),))
        return [
            elementwise_problem(where, [TensorSpec("f32", (4, 5, 7), (35, -7, 3)),
                                        TensorSpec("f16", (4, 5, 7), (0, 1, 5)),
                                        TensorSpec("bf16", (4, 5, 7), (0, 0, 0))], ["f32"]),
            elementwise_problem(ExprBundle((input(0, "i32"),)), [_dense("u8", 33)], ["i8"]),
        ]


@dataclass(frozen=True, slots=True)
class RowsRule:
    """elementwise_rows: one vector of outputs per thread, inputs of any strides."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        walk, vector = rows_plan(problem)
        if vector < 1:
            raise Unsupported("outputs are not dense", found=problem.outputs)
        threads = int(variant.param("THREADS"))
        blocks = -(-walk.size // (threads * vector))
        if blocks > _GRID_LIMIT:
            raise Unsupported("too many elements for one launch", found=walk.size)
        linear, offset = index_types(walk.size + vector * threads, walk.reach)
        n_in, rank = len(problem.inputs), len(walk.shape)
        dtype = _stream_dtype(n_in, len(problem.outputs), rank, False)
        values = {"size": walk.size, "axes": axes_value(walk.shape),
                  "stride": np.array(walk.strides, "i8").reshape(-1, rank)}
        context = {"rank": rank, "linear": linear, "offset": offset, "vector": vector,
                   "in_modes": tuple(MODES.get(s[-1], "ge2::kStrided")
                                     for s in walk.strides[:n_in])}
        return [_make_record(problem, variant, context, dtype, values, grid=(blocks, 1, 1),
                             block=(threads, 1, 1))]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        copy = ExprBundle((input(0),))
        add = ExprBundle((input(0) + input(1),))
        return [
            elementwise_problem(copy, [TensorSpec("f16", (30, 53), (64, 1), 2)], ["f16"]),
            elementwise_problem(copy, [TensorSpec("u8", (7, 11), (30, 2), 1)], ["u8"]),
            elementwise_problem(add, [TensorSpec("f32", (9, 5), (5, -1), 4),
                                      TensorSpec("bf16", (9, 5), (1, 0))], ["f32"]),
        ]


@dataclass(frozen=True, slots=True)
class TiledRule:
    """transpose_tiled: tiles over the two axes that inputs and outputs are contiguous along."""

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """See LaunchRule."""
        if problem.outputs[0].size == 0:
            return []
        plan = tiled_plan(problem)
        if plan is None:
            raise Unsupported("no input is contiguous along another axis than the output")
        n_in, n_out = len(problem.inputs), len(problem.outputs)
        tile = (variant.param("TILE_B"), variant.param("TILE_A"))
        extents = [*plan.walk.shape[:-2],
                   *(-(-n // t) for n, t in zip(plan.walk.shape[-2:], tile, strict=True))]
        blocks = 1
        for extent in extents:
            blocks *= extent
        if blocks > _GRID_LIMIT:
            raise Unsupported("too many tiles for one launch", found=blocks)
        strides = plan.walk.strides
        steps = [(*s[:-2], s[-2] * tile[0], s[-1] * tile[1]) for s in strides]
        sizes = [DTYPES[t.dtype].itemsize if s else 0
                 for t, s in zip(present_tensors(problem)[:n_in], plan.staged, strict=True)]
        rank = len(extents)
        values = {"extent_a": plan.walk.shape[-1], "extent_b": plan.walk.shape[-2],
                  "blocks": axes_value(extents), "stride": steps,
                  "stride_a": [s[-1] for s in strides], "stride_b": [s[-2] for s in strides]}
        modes = tuple("staged" if s else MODES[strides[i][-1]]
                      for i, s in enumerate(plan.staged))
        context = {
            "rank": rank, "offset": index_types(1, plan.walk.reach)[1], "vector": plan.vector,
            "in_modes": modes,
            "staged_elements": tuple(sum(sizes[:i]) for i in range(n_in)),
        }
        return [_make_record(problem, variant, context, _tiled_dtype(n_in, n_out, rank), values,
                             grid=(blocks, 1, 1), block=(variant.param("THREADS"), 1, 1),
                             smem=plan.shared_bytes(problem, tile[0] * tile[1]))]

    def examples(self, variant: Variant) -> list[Problem]:
        """See LaunchRule."""
        copy = ExprBundle((input(0),))
        add = ExprBundle((input(0) + input(1),))
        return [
            elementwise_problem(copy, [TensorSpec("f32", (200, 136), (1, 200))], ["f32"]),
            elementwise_problem(copy, [TensorSpec("bf16", (3, 72, 200), (14400, 1, 72))], ["bf16"]),
            elementwise_problem(copy, [TensorSpec("f32", (33, 19), (1, 33), 4)], ["f16"]),
            elementwise_problem(add, [TensorSpec("f16", (64, 72), (1, 64)), _dense("f32", 64, 72)],
                                ["f32"]),
        ]


@lru_cache(maxsize=1024)
def _tiled_dtype(n_inputs: int, n_outputs: int, rank: int) -> np.dtype[Any]:
    count = n_inputs + n_outputs
    return args_dtype(*pointer_fields(n_inputs, n_outputs), ("extent_a", "i8"), ("extent_b", "i8"),
                      ("blocks", axes_fields(rank)), ("stride", "i8", (count, rank)),
                      ("stride_a", "i8", (count,)), ("stride_b", "i8", (count,)))


def elementwise_problem(bundle: ExprBundle, inputs: Sequence[TensorSpec],
                        out_dtypes: Sequence[str]) -> Problem:
    """Return the ELEMENTWISE problem of a bundle over inputs of one shape, with dense outputs."""
    shape = inputs[0].shape
    return Problem("ELEMENTWISE", tuple(inputs),
                   tuple(TensorSpec.dense(d, shape) for d in out_dtypes), (("expr", bundle),))


def _dense(dtype: str, *shape: int) -> TensorSpec:
    return TensorSpec.dense(dtype, shape)


RULES: dict[str, LaunchRule] = {
    "elementwise.vec": VectorRule(),
    "elementwise.strided": StridedRule(),
    "elementwise.rows": RowsRule(),
    "elementwise.tiled": TiledRule(),
}
