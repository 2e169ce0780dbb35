"""Kernel-level operators in float64: what every kernel is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..compiler.ir.expr import evaluate, widen
from ..contract import DTYPES, numpy_dtype
from ..problem import Problem

Array = np.ndarray[Any, Any]
Inputs = Sequence[Array | None]


def reference(problem: Problem, inputs: Inputs) -> list[Array]:
    """Return the outputs of a problem, floating-point ones in float64."""
    wide = [None if x is None else _wide(x) for x in inputs]
    return _REFERENCES[problem.op_type](problem, wide)


def _wide(x: Array) -> Array:
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def _coords(shape: tuple[int, ...]) -> list[Array]:
    return [np.arange(n).reshape([-1 if a == b else 1 for b in range(len(shape))])
            for a, n in enumerate(shape)]


def _elementwise(problem: Problem, inputs: Inputs) -> list[Array]:
    bundle: Any = widen(problem.attr_map["expr"])  # type: ignore[arg-type]
    shape = problem.outputs[0].shape
    results = evaluate(bundle.outputs, inputs, _coords(shape))
    return [np.broadcast_to(r, shape) for r in results]


def _gemm(problem: Problem, inputs: Inputs) -> list[Array]:
    attrs = problem.attr_map
    a, b = inputs[:2]
    assert a is not None and b is not None
    a = a.swapaxes(-1, -2) if attrs["trans_a"] else a
    b = b.swapaxes(-1, -2) if attrs["trans_b"] else b
    bundle: Any = widen(attrs["epilogue"])  # type: ignore[arg-type]
    acc = _product(a, b)
    shape = problem.outputs[0].shape
    results = evaluate(bundle.outputs, [acc, *inputs[2:]], _coords(shape),
                       [attrs["alpha"], attrs["beta"]])  # type: ignore[list-item]
    outputs = [np.broadcast_to(result, shape) for result in results]
    rows = attrs.get("rows", "none")
    if rows == "max":
        outputs.append(outputs[0].max(-1, keepdims=True))
    elif rows != "none":
        terms = outputs[0] if rows == "sum" else np.square(outputs[0])
        outputs.append(terms.sum(-1, keepdims=True))
    return outputs


def _product(a: Array, b: Array) -> Array:
    """Return a @ b; that of bytes modulo 2**32, as kernels sum them."""
    if a.dtype.kind in "iu" and a.dtype.itemsize == 1:
        wide: Array = np.matmul(a.astype(np.int64), b.astype(np.int64))
        return wide.astype(np.int32)
    return np.asarray(np.matmul(a, b))


def _norm_gemm(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    attrs = dict(problem.attr_map)
    x, scale, b, shift = (*inputs, None)[:4]
    assert x is not None and scale is not None and b is not None
    given = [x, scale] if shift is None else [x, scale, shift]
    rows, = opdefs.reference(str(attrs["norm"]), given, {"epsilon": attrs["epsilon"]})
    first = problem.inputs[0]
    assert first is not None
    # The product sees the rows as they are stored.
    stored = rows.astype(numpy_dtype(first.dtype)).astype(rows.dtype)
    product = replace(problem, attrs=tuple(sorted({**attrs, "trans_a": False}.items())),
                      outputs=problem.outputs[:1])
    return [*_gemm(product, [stored, b, *inputs[4:]]), rows][:len(problem.outputs)]


def _nbits(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    bias = inputs[4] if len(inputs) > 4 else None
    column = None if bias is None else bias[(0,) * (bias.ndim - 1)]
    y, = opdefs.reference("MATMUL_NBITS", [*inputs[:4], column], dict(problem.attr_map))
    return [y]


def _row(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler.ir.row_evaluate import evaluate_row

    row: Any = problem.attr_map["row"]
    wide = row.widened()
    given = [x for x in inputs if x is not None]
    split = wide.n_inputs
    found = evaluate_row(wide, given[:split], given[split:])
    return [np.asarray(y).reshape(spec.shape)
            for y, spec in zip(found, problem.outputs, strict=True)]


def _product_rows(problem: Problem, inputs: Inputs) -> list[Array]:
    """A row operator on the rows of prologue(A) B transposed; prologue(A) has the type of A."""
    a, b, *more = inputs
    assert a is not None and b is not None
    prologue = problem.attr_map.get("prologue")
    if prologue is not None:
        a, = evaluate(widen(prologue).outputs, [a])  # type: ignore[arg-type]
        assert problem.inputs[0] is not None
        a = a.astype(numpy_dtype(problem.inputs[0].dtype)).astype(a.dtype)
    return _row(problem, [a @ b.T, *more])


def _normalize_sum(problem: Problem, inputs: Inputs) -> list[Array]:
    x = inputs[0]
    assert x is not None
    with np.errstate(all="ignore"):
        return [x / x.sum()]


def _weighted_mean(problem: Problem, inputs: Inputs) -> list[Array]:
    scores, values = inputs
    assert scores is not None and values is not None
    with np.errstate(all="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        return [(weights * values).sum(-1) / weights.sum(-1)]


def _window(problem: Problem, inputs: Inputs) -> list[Array]:
    x, weights = inputs
    assert x is not None and weights is not None
    n = problem.outputs[0].size
    total = np.zeros(n)
    for j, weight in enumerate(weights):
        total += weight * x[j:j + n]
    return [total]


def _gelu(z: Array) -> tuple[Array, Array]:
    """Return gelu and its derivative."""
    from ..compiler.ir.erf import erf

    share = 0.5 * (1.0 + erf(z / np.sqrt(2.0)))
    return z * share, share + z * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)


def _normalized_gelu(problem: Problem, inputs: Inputs) -> list[Array]:
    x, dy = inputs
    assert x is not None and dy is not None
    inverse = 1.0 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    z = (x - x.mean(-1, keepdims=True)) * inverse
    y, slope = _gelu(z)
    dz = dy * slope
    mean, share = dz.mean(-1, keepdims=True), (dz * z).mean(-1, keepdims=True)
    return [y, inverse * (dz - mean - z * share)]


def _chain(problem: Problem, inputs: Inputs) -> list[Array]:
    x, bias, scale, residual = inputs
    assert x is not None and bias is not None and scale is not None and residual is not None
    a, _ = _gelu(x + bias)
    inverse = 1.0 / np.sqrt(np.square(a).mean(-1, keepdims=True) + 1e-5)
    return [a * inverse * scale + residual]


def _graph(problem: Problem, inputs: Inputs) -> list[Array]:
    """A computation of several operators, given as the text of a graph in float64."""
    from ..compiler import opdefs
    from ..compiler.ir.text import parse_graph
    from .cpu import run_graph

    graph = parse_graph(str(problem.attr_map["text"]), infer=opdefs.infer)
    feeds = {name: x for name, x in zip(graph.inputs, inputs, strict=True) if x is not None}
    found = run_graph(graph, feeds)
    return [found[name] for name in graph.outputs]


def _concat(problem: Problem, inputs: Inputs) -> list[Array]:
    return [np.concatenate([x for x in inputs if x is not None],
                           axis=int(problem.attr_map["axis"]))]  # type: ignore[call-overload]


def _gather(problem: Problem, inputs: Inputs) -> list[Array]:
    x, indices = inputs
    assert x is not None and indices is not None
    return [np.take(x, indices, axis=int(problem.attr_map["axis"]))]  # type: ignore[call-overload]


def _scan(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    attrs = problem.attr_map
    op = "CUMSUM" if attrs["combine"] == "sum" else "CUMPROD"
    return opdefs.reference(op, list(inputs), {
        "axis": -1, "exclusive": attrs["exclusive"], "reverse": attrs["reverse"]})


def _pad(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    return opdefs.reference("PAD", list(inputs), dict(problem.attr_map))


def _resample(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    return opdefs.reference("RESAMPLE", list(inputs), dict(problem.attr_map))


def _conv(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    attrs = dict(problem.attr_map)
    return opdefs.reference("CONV2D", list(inputs), attrs)


def _pool(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    attrs = dict(problem.attr_map)
    op = "MAX_POOL" if attrs.pop("kind") == "max" else "AVG_POOL"
    if op == "MAX_POOL":
        del attrs["count_include_pad"]
    results = opdefs.reference(op, list(inputs), attrs)
    if results[0].shape != problem.outputs[0].shape:  # the output alone tells that extents round up
        results = opdefs.reference(op, list(inputs), {**attrs, "ceil_mode": True})
    return results


def _attention(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    return opdefs.reference("ATTENTION", list(inputs), {
        **problem.attr_map, "lse": len(problem.outputs) > 1})


def _paged_attention(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    return opdefs.reference("PAGED_ATTENTION", list(inputs), {
        **problem.attr_map, "lse": len(problem.outputs) > 1})


def _attention_grad(problem: Problem, inputs: Inputs) -> list[Array]:
    from ..compiler import opdefs

    return opdefs.reference("ATTENTION_GRAD", list(inputs), problem.attr_map)


_REFERENCES: dict[str, Callable[[Problem, Inputs], list[Array]]] = {
    "ELEMENTWISE": _elementwise,
    "GEMM_BIAS_ACT": _gemm,
    "MATMUL_NBITS": _nbits,
    "ATTENTION": _attention,
    "ATTENTION_GRAD": _attention_grad,
    "PAGED_ATTENTION": _paged_attention,
    "NORM_GEMM": _norm_gemm,
    "ROW": _row,
    "LAB_NORMALIZE_SUM": _normalize_sum,
    "LAB_REDUCE": _row,
    "LAB_COMPOSE_ROWS": _row,
    "LAB_COMPOSE_PRODUCT": _product_rows,
    "LAB_STREAM": _weighted_mean,
    "LAB_STAGE": _window,
    "LAB_REMAT": _normalized_gelu,
    "LAB_FUSE": _chain,
    "LAB_GRAPH": _graph,
    "CONCAT": _concat,
    "GATHER": _gather,
    "PAD": _pad,
    "SCAN": _scan,
    "RESAMPLE": _resample,
    "CONV2D": _conv,
    "POOL1D": _pool,
    "POOL2D": _pool,
    "POOL3D": _pool,
}


def random_inputs(problem: Problem, seed: int) -> list[Array | None]:
    """Return seeded inputs of a problem: standard normal floats, small integers, valid indices.

    Along an axis of stride 0 all elements are the same one. Gradients of attention get what the
    attention itself returns for the other inputs.
    """
    draw = np.random.default_rng(seed)
    arrays: list[Array | None] = []
    for slot, spec in enumerate(problem.inputs):
        if spec is None:
            arrays.append(None)
        else:
            distinct = tuple(n if stride else min(n, 1)
                             for n, stride in zip(spec.shape, spec.strides, strict=True))
            values = (draw.standard_normal(distinct) if DTYPES[spec.dtype].kind == "float"
                      else draw.integers(0, _index_limit(problem, slot), distinct))
            if problem.op_type == "ATTENTION" and slot in (5, 6):
                values = _starts(problem, slot)
            array = values.astype(numpy_dtype(spec.dtype))
            arrays.append(np.broadcast_to(array, spec.shape))
    if problem.op_type == "ATTENTION_GRAD":
        arrays[3:5] = _attended(problem, arrays)
    return arrays


def _attended(problem: Problem, inputs: Inputs) -> list[Array]:
    """Return the outputs and log-sums that attention has for the inputs of its gradients."""
    from ..compiler import opdefs

    given = [None if x is None else _wide(x) for x in (*inputs[:3], *inputs[6:8])]
    made = opdefs.reference("ATTENTION", given, {**problem.attr_map, "lse": True})
    return [x.astype(numpy_dtype(spec.dtype)) for x, spec in
            zip(made, problem.inputs[3:5], strict=True) if spec is not None]


def _starts(problem: Problem, slot: int) -> Array:
    """Return where packed sequences of nearly equal lengths begin."""
    rows, starts = problem.inputs[slot - 5], problem.inputs[slot]
    assert rows is not None and starts is not None
    return np.linspace(0, rows.shape[2], starts.shape[0]).astype(np.int64)


def _index_limit(problem: Problem, slot: int) -> int:
    table = problem.inputs[0]
    if (problem.op_type, slot) in (("ATTENTION", 4), ("ATTENTION_GRAD", 7)):
        return problem.inputs[1].shape[2] + 1  # type: ignore[union-attr]
    if problem.op_type == "PAGED_ATTENTION" and slot in (3, 4):
        k, pages = problem.inputs[1], problem.inputs[3]
        assert k is not None and pages is not None
        return k.shape[0] if slot == 3 else pages.shape[1] * k.shape[2] + 1
    if problem.op_type == "GATHER" and slot == 1 and table is not None:
        return max(table.shape[int(problem.attr_map["axis"])], 1)  # type: ignore[call-overload]
    return 2
