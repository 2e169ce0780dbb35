"""Representative ATTENTION problems."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..compiler.ir.expr import ExprBundle, cast, coord, input, tanh
from ..compiler.kernels.strides import expand
from ..contract import DTYPES
from ..problem import Problem, TensorSpec

Spec = TensorSpec | None


def attention_problem(dtype: str, q: tuple[int, int, int, int], *, groups: int = 0, keys: int = 0,
                      value: int = 0, mask: str = "", mask_shape: tuple[int, ...] = (),
                      length: str = "", starts: str = "", sequences: int = 0, lse: bool = False,
                      causal: bool = False, offset: int = 0, left: int = -1, right: int = -1,
                      score: ExprBundle | None = None, extras: Sequence[TensorSpec] = (),
                      side_by_side: bool = False, align: int = 16) -> Problem:
    """Return an ATTENTION problem.

    Args:
        dtype: of q, k, v and the result.
        q: its extents [batch, heads, queries, size].
        groups, keys, value: key heads, rows of k, elements of a head of v; 0 = as of q.
        mask, mask_shape: element type and shape of a mask, which is expanded.
        length, starts: element types of kv_len and of the starts of packed sequences.
        sequences: how many packed ones there are.
        lse: also return log-sum-exps.
        causal, offset, left, right: which keys a query sees.
        score, extras: formula of the scores and its operands, which are expanded.
        side_by_side: q, k and v are slices of one tensor [batch, row, heads * size] and the result
            is laid out so, as projections have them.
        align: of every address, in bytes.
    """
    batch, heads, queries, size = q
    groups, keys, value = groups or heads, keys or queries, value or size
    shapes = ((batch, heads, queries, size), (batch, groups, keys, size),
              (batch, groups, keys, value))
    result = (batch, heads, queries, value)
    if side_by_side:
        width = (heads + groups) * size + groups * value
        tensors = [_heads_first(dtype, s, width, align) for s in shapes]
        y = _heads_first(dtype, result, heads * value, align)
    else:
        tensors = [TensorSpec.dense(dtype, s, align) for s in shapes]
        y = TensorSpec.dense(dtype, result, align)
    n = sequences if starts else batch
    scores = (n, heads, queries, keys)
    inputs: list[Spec] = [*tensors, None, None, None, None]
    if mask:
        inputs[3] = expand(TensorSpec.dense(mask, mask_shape or scores, align), scores)
    if length:
        inputs[4] = TensorSpec.dense(length, (n,))
    if starts:
        inputs[5:7] = [TensorSpec.dense(starts, (n + 1,))] * 2
    inputs += [expand(x, scores) for x in extras]
    attrs: dict[str, Hashable] = {
        "scale": size**-0.5, "query_offset": offset, "left_window_size": left,
        "right_window_size": 0 if causal else right, "score": score}
    statistics = TensorSpec.dense(DTYPES[dtype].compute, result[:3])
    return Problem("ATTENTION", tuple(inputs), (y, statistics) if lse else (y,),
                   tuple(sorted(attrs.items())))


def _heads_first(dtype: str, shape: tuple[int, ...], width: int, align: int) -> TensorSpec:
    _, _, rows, size = shape
    return TensorSpec(dtype, shape, (rows * width, size, width, 1), align)


def alibi(dtype: str) -> ExprBundle:
    """Return score + slope * (key - query), the slope being extra 0."""
    compute = DTYPES[dtype].compute
    distance = cast(coord(3) - coord(2), compute)
    return ExprBundle((input(0, compute) + input(1, compute) * distance,))


def softcap(dtype: str, cap: float = 20.0) -> ExprBundle:
    """Return cap * tanh(score / cap)."""
    return ExprBundle((tanh(input(0, DTYPES[dtype].compute) * (1 / cap)) * cap,))


def slopes(dtype: str, heads: int) -> TensorSpec:
    """Return the operand of alibi()."""
    return TensorSpec.dense(dtype, (1, heads, 1, 1))


def examples_for(dtypes: Sequence[str]) -> list[Problem]:
    """Return problems over head sizes, masks and formulas: all for the first dtype, else some."""
    first, *others = dtypes
    found = _examples(first)
    for number, dtype in enumerate(others):
        found += _examples(dtype)[number::3]
    return found


def _examples(dtype: str) -> list[Problem]:
    wide = dtype if dtype == "f64" else "f32"
    return [
        attention_problem(dtype, (1, 2, 70, 64), lse=True),
        attention_problem(dtype, (2, 4, 40, 128), groups=2, causal=True, side_by_side=True),
        attention_problem(dtype, (2, 2, 24, 32), keys=72, mask=dtype, mask_shape=(2, 1, 1, 72),
                          length="i32"),
        attention_problem(dtype, (1, 2, 33, 80), value=72, score=alibi(dtype), lse=True,
                          extras=(slopes(wide, 2),)),
        attention_problem(dtype, (1, 2, 17, 20), mask="bool", left=9, right=3, offset=2,
                          align=DTYPES[dtype].itemsize),
        attention_problem(dtype, (1, 2, 65, 256), score=softcap(dtype)),
        attention_problem(dtype, (1, 1, 90, 96), starts="i32", sequences=3, causal=True, lse=True),
    ]
