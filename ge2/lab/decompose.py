"""Operators as compositions of primitives, derived from their declarations.

Nothing here is listed by hand but which parts a composite has: what a part does follows from its
stages, merge and finish.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..compiler.ir.expr import Expr, inputs_of, walk
from ..compiler.ir.row import RowOp
from ..compiler.ir.row_ops import ROW_OPS, build_row_op
from ..compiler.kernels import registry
from ..errors import Invalid, near_matches


@dataclass(frozen=True, slots=True)
class Step:
    """One part of an operator.

    Attributes:
        what: "max tracking", "rescaled accumulation", ...
        primitive: of the catalog that realizes it; "" for plain arithmetic.
        because: what in the declaration says so.
    """

    what: str
    primitive: str
    because: str


# The parts of operators that are more than one row operator; "product" is a GEMM.
COMPOSITES: dict[str, tuple[str, ...]] = {
    "normalization": ("layer_norm",),
    "attention": ("product", "softmax", "weighted product"),
    "cross_entropy": ("logsumexp", "pick"),
    "gemm_norm": ("product", "rms_norm"),
    "gemm_softmax": ("product", "softmax"),
}

_FIXED: dict[str, Step] = {
    "product": Step("accumulation over tiles of K", "async_stage_loading",
                    "a sum of products: partial sums are states that add"),
    "weighted product": Step("weighted reduction", "streaming_weighted_reduction",
                             "a product whose left operand is known up to the factor of the "
                             "denominator"),
    "pick": Step("gather of one element per row", "", "an index picks the label's score"),
}


# Composites that an operator of graphs does in one launch.
_OPERATORS = {"attention": "ATTENTION", "gemm_norm": "NORM_GEMM"}


def treatments(name: str) -> list[tuple[str, str, str]]:
    """Return (realization, kernel, what it does) of a composite; none for others.

    All kernels of one launch are streaming: what is between the parts never reaches memory.
    """
    op_type = _OPERATORS.get(name)
    if op_type is None:
        return []
    parts = "a launch per part; what is between them goes through memory"
    return [("materialised", "-", parts), *(
        ("streaming", kernel.name, kernel.summary) for kernel in registry.kernels_for(op_type))]


def known() -> list[str]:
    """Return the names that steps() takes."""
    return [*ROW_OPS, *COMPOSITES]


def steps(name: str) -> list[Step]:
    """Return the parts of an operator, in order.

    Raises:
        Invalid: neither a row operator nor a composite.
    """
    if name in COMPOSITES:
        return [step for part in COMPOSITES[name]
                for step in ([_FIXED[part]] if part in _FIXED else steps(part))]
    if name not in ROW_OPS:
        raise Invalid("no such operator in the lab", argument="NAME", found=repr(name),
                      wanted="a primitive or one of " + ", ".join(known()),
                      hint=near_matches(name, known()))
    return list(_row_steps(build_row_op(name)))


def _row_steps(op: RowOp) -> Iterator[Step]:
    seen = 0
    for number, stage in enumerate(op.stages):
        for accumulator in stage:
            yield _stage_step(number, accumulator.combine, accumulator.element, seen)
        seen += len(stage)
    if not op.stages:
        yield Step("state update per element", "online_accumulation",
                   f"update folds an element into ({', '.join(v.name for v in op.state)})")
    if op.streamable:
        rescales = any("exp" in e.op for e in walk(op.merge))
        members = ", ".join(v.name for v in op.state)
        yield Step("mergeable summary", "hierarchical_accumulation",
                   f"merge joins two states ({members})")
        yield Step("blockwise or streaming update" if rescales
                   else "blockwise reduction or online update",
                   "rescaling_preserving_accumulation" if rescales else "blockwise_state_update",
                   "merge rescales by exp of the difference of maxima" if rescales
                   else "a block's state merges into the running one")
    yield from _finish_steps(op)


def _stage_step(number: int, combine: str, element: Expr, seen: int) -> Step:
    if combine.startswith(("max", "min")):
        return Step(f"{combine[:3]} tracking", "warp_local_reduction",
                    f"stage {number} combines by {combine}")
    earlier = any(i < seen for i in _inputs(element))
    if earlier and any("exp" in e.op for e in walk((element,))):
        return Step("rescaled accumulation", "rescaling_preserving_accumulation",
                    f"stage {number} sums exp of a difference to an earlier stage")
    if earlier:
        return Step("statistics accumulation", "block_reduction",
                    f"stage {number} sums deviations from an earlier stage")
    return Step("statistics accumulation" if number == 0 else "accumulation", "block_reduction",
                f"stage {number} sums over the row")


def _finish_steps(op: RowOp) -> Iterator[Step]:
    members = len(op.state)
    reads = [i for e in op.finish for i in _inputs(e)]
    divides = any(e.op in ("div", "reciprocal", "rsqrt") for e in walk(op.finish))
    weights = any(e.op == "exp" and _reads_state_and_element(e, members)
                  for e in walk(op.finish))
    if "row" in op.outputs:
        coupled = divides and any(i < members for i in reads)
        if coupled:
            yield Step("denominator coupling", "partial_epilogue_fusion",
                       "finish divides every element by what the whole row determines")
        if coupled and weights:
            yield Step("weighted reduction", "streaming_weighted_reduction",
                       "the outputs are exp of an element minus the state's maximum: weights "
                       "that are known up to the denominator")
        yield Step("separable normalize stage" if coupled and not weights
                   else "separable finish stage", "recompute_based_epilogue",
                   "finish needs the state and the element only, so it may run apart")
    else:
        yield Step("finish", "", "one value per row from the state")


def _reads_state_and_element(expr: Expr, members: int) -> bool:
    found = _inputs(expr)
    return any(i < members for i in found) and any(i >= members for i in found)


def _inputs(expr: Expr) -> set[int]:
    return set(inputs_of((expr,)))
