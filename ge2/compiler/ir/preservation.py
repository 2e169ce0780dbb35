"""Preservation rules: which changes keep a computation's meaning, by which licence, at what cost.

A transformation is licensed by a property of the operator, in the form that the rule gives. Who
rewrites asks the property table at that moment: take the property away and the rewrite stops. What
a rule says of rounding is all that may change; exact arithmetic would not see the transformation.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import properties

NOTHING = "nothing: the same operations on the same values"

TRANSFORMATIONS: dict[str, str] = {
    "reorder": "operands, or the elements of a reduction, change places",
    "tree-reduce": "states of parts merge pairwise instead of one element after the other",
    "stream": "a state takes in elements as they come; none is seen twice",
    "block": "parts of the work are done apart, or parts that were apart together",
    "recompute": "a value is computed again instead of being kept",
    "fuse": "an operator runs inside another; what lies between is not stored",
    "split": "one operator becomes several",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a transformation.

    Attributes:
        transformation: of TRANSFORMATIONS.
        licence: the property that an operator must have.
        form: what happens.
        rounding: what may change in floating point.
        asked_by: who asks for the licence: passes, and "lower_row" for the kernels of rows.
    """

    transformation: str
    licence: str
    form: str
    rounding: str
    asked_by: tuple[str, ...]


_ORDER = "sums round in another order: the error grows with the logarithm of the number of terms"
_BETWEEN = "what lies between is not rounded to its element type"

RULES: tuple[Rule, ...] = (
    Rule("reorder", "commutative", "the constant operand comes second; equal nodes are found "
         "whatever their operands' order", NOTHING, ("canonicalize", "cse")),
    Rule("reorder", "transposable", "operands are read along the other axis and not moved",
         NOTHING, ("fold_transposes",)),
    Rule("tree-reduce", "mergeable", "threads' states merge by shuffles, trees and barriers",
         _ORDER, ("lower_row",)),
    Rule("stream", "mergeable", "rows of any length pass through a state of fixed size",
         "sums are rescaled where the reference moves: one rounding per move", ("lower_row",)),
    Rule("stream", "shift_invariant", "exponentials are summed relative to a maximum",
         "none beyond that of the shifted terms; nothing overflows", ("lift_softmax",)),
    Rule("block", "mergeable", "blocks, clusters or launches share a row", _ORDER, ("lower_row",)),
    Rule("block", "columnwise", "products of one operand become one over weights side by side; "
         "scales and shifts of channels move into weights",
         "a scaled weight rounds once", ("merge_products", "fold_affine")),
    Rule("recompute", "rematerializable", "a value that lies idle is made again before its use",
         NOTHING, ("rematerialize",)),
    Rule("recompute", "deterministic", "equal nodes run once, nodes of constants ahead of time",
         NOTHING, ("cse", "fold_constants", "rematerialize")),
    Rule("fuse", "elementwise", "neighbouring formulas become one", _BETWEEN,
         ("fuse_elementwise", "fuse_add_norm")),
    Rule("fuse", "epilogue", "a formula is applied to accumulators or rows before they are stored",
         _BETWEEN, ("fuse_gemm", "fuse_epilogue", "fuse_rows", "fold_affine")),
    Rule("fuse", "prologue", "an operand is computed as it is read", _BETWEEN, ("fuse_rows",)),
    Rule("fuse", "linear", "factors of operands become the product's alpha",
         "one rounding of the factor instead of one per element", ("fuse_gemm",)),
    Rule("fuse", "mergeable", "a reduction's, norm's or softmax's state accumulates where its "
         "operand is made", _BETWEEN, ("fuse_add_norm", "fuse_norm_gemm", "fuse_row_values",
                                       "lift_softmax", "lift_norms", "lift_attention")),
    Rule("split", "mergeable", "a reduction over axes that lie apart becomes one per group of axes",
         "partial results are stored: each rounds once", ("split_reductions",)),
)


def rules_of(transformation: str) -> tuple[Rule, ...]:
    """Return the forms of a transformation."""
    return tuple(rule for rule in RULES if rule.transformation == transformation)


def permitted(op: str, transformation: str) -> tuple[Rule, ...]:
    """Return the forms of a transformation that an operator's properties license now."""
    return tuple(rule for rule in rules_of(transformation)
                 if properties.licensed(op, rule.licence))
