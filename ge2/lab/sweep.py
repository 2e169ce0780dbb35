"""The problems of each family: small ones to verify on, and the sweep that evidence is about."""

from __future__ import annotations

from collections.abc import Callable

from ..compiler.ir.row_ops import build_row_op
from ..launch.check import WINDOW_TILE
from ..launch.lab_compose import compose_product_problem, compose_rows_problem
from ..launch.lab_primitives import (
    fuse_problem,
    reduce_problem,
    remat_problem,
    stage_problem,
    stream_problem,
)
from ..problem import Problem
from . import declared
from .chains import CHAINS

# One row operator for each kind of state: a number, a position, moments, maximum and sum.
STATES = ("sum", "max", "argmax", "variance", "logsumexp")
SWEPT_STATES = ("sum", "argmax", "variance", "logsumexp")
_ROWS = ((65536, 64), (16384, 1024), (4096, 4096), (1024, 16384), (64, 262144), (1, 1 << 24))
_TALL = ((65536, 64), (16384, 256), (16384, 1024), (4096, 4096), (1024, 16384), (256, 32768))
_PRODUCTS = ((512, 1024, 1024), (2048, 1024, 1024), (8192, 1024, 1024))
_HEADS = ((16, 16, 128, 64), (8, 16, 256, 64), (4, 16, 512, 64), (2, 16, 1024, 64))


def _verify_reduce() -> list[Problem]:
    return [reduce_problem(op, rows, n) for op in STATES
            for rows, n in ((1, 1), (5, 31), (3, 777), (2, 9001))]


def _verify_remat() -> list[Problem]:
    return [*(remat_problem(rows, n) for rows, n in ((1, 17), (3, 257), (2, 1500))),
            *(CHAINS[name].problem(3, 300) for name in ("softmax_backward", "layer_norm_backward")),
            CHAINS["gemm_backward"].problem(40, 72, 36)]


def _verify_boundary() -> list[Problem]:
    return [*(fuse_problem(rows, n) for rows, n in ((1, 1), (3, 257), (2, 1500))),
            CHAINS["gemm_chain"].problem(66, 72, 36), CHAINS["norm_gemm"].problem(40, 72, 64),
            CHAINS["attention"].problem(1, 2, 40, 64, dtype="f16")]


def _verify_composition() -> list[Problem]:
    return [compose_rows_problem(declared.weighted_moments(), 3, 2052),
            compose_rows_problem(build_row_op("softmax"), 2, 20),
            compose_product_problem(declared.product_logsumexp(), 66, 72, 20)]


def _sweep_remat() -> list[Problem]:
    rows = [CHAINS[name].problem(*shape) for name in ("softmax_backward", "layer_norm_backward")
            for shape in _TALL]
    products = [CHAINS["gemm_backward"].problem(*shape, dtype="f16") for shape in _PRODUCTS]
    return [*(remat_problem(*shape) for shape in _TALL), *rows, *products]


def _sweep_boundary() -> list[Problem]:
    products = [CHAINS[name].problem(*shape, dtype=dtype) for name, dtype in (
        ("gemm_chain", "f32"), ("gemm_chain", "f16"), ("norm_gemm", "f16"))
        for shape in _PRODUCTS]
    heads = [CHAINS["attention"].problem(*shape, dtype="f16") for shape in _HEADS]
    return [*(fuse_problem(*shape) for shape in _TALL), *products, *heads]


def _sweep_composition() -> list[Problem]:
    rows = [compose_rows_problem(op, *shape) for op in (
        declared.weighted_moments(), declared.normalized_distance()) for shape in _TALL]
    return rows + [compose_product_problem(declared.product_logsumexp(), *shape)
                   for shape in _PRODUCTS]


# Tiny, ragged, and longer than a thread's share.
VERIFY: dict[str, Callable[[], list[Problem]]] = {
    "reduction": _verify_reduce,
    "streaming": lambda: [stream_problem(rows, n) for rows, n in ((1, 1), (3, 255), (2, 5003))],
    "staging": lambda: [stage_problem(tiles * WINDOW_TILE, taps)
                        for tiles, taps in ((1, 1), (3, 5), (11, 65))],
    "rematerialization": _verify_remat,
    "boundary": _verify_boundary,
    "composition": _verify_composition,
}

SWEEP: dict[str, Callable[[], list[Problem]]] = {
    "reduction": lambda: [reduce_problem(op, *shape) for op in SWEPT_STATES for shape in _ROWS],
    "streaming": lambda: [stream_problem(*shape) for shape in _ROWS],
    "staging": lambda: [stage_problem(n, taps) for n in (1 << 18, 1 << 21, 1 << 24)
                        for taps in (1, 9, 33, 65)],
    "rematerialization": _sweep_remat,
    "boundary": _sweep_boundary,
    "composition": _sweep_composition,
}


def condition(problem: Problem) -> str:
    """Return what varies within a family besides the size: the state, the taps, the chain."""
    x, *more = problem.inputs
    assert x is not None
    row = str(getattr(problem.attr_map.get("row"), "name", ""))
    if problem.op_type == "LAB_STAGE":
        return f"{more[0].size if more[0] else 0} taps"
    if problem.op_type == "LAB_GRAPH":
        return f"{problem.attr_map['chain']} {x.dtype}"
    return {"LAB_COMPOSE_ROWS": f"rows {row}", "LAB_COMPOSE_PRODUCT": f"product {row}",
            "LAB_REMAT": "gelu of a norm", "LAB_FUSE": "norm between formulas"}.get(
                problem.op_type, row)


def extent(problem: Problem) -> int:
    """Return the size along the sweep; see extent_name()."""
    x = problem.inputs[0]
    assert x is not None
    if problem.op_type == "LAB_STAGE":
        return problem.outputs[0].size
    return x.shape[{"rows": 0, "tokens": -2}.get(extent_name(problem), -1)]


def extent_name(problem: Problem) -> str:
    """Return what is swept: the length of rows, their number, outputs of a window, tokens."""
    chain = problem.attr_map.get("chain", "")
    if problem.op_type == "LAB_STAGE":
        return "outputs"
    if chain == "attention":
        return "tokens"
    if problem.op_type == "LAB_COMPOSE_PRODUCT" or "gemm" in str(chain):
        return "rows"
    return "row length"


def label(problem: Problem) -> str:
    """Return the shape for a person."""
    x = problem.inputs[0]
    assert x is not None
    shape = " x ".join(map(str, x.shape)) if len(x.shape) > 1 else str(problem.outputs[0].size)
    if extent_name(problem) == "rows" and problem.op_type == "LAB_GRAPH":
        dims = problem.attr_map["dims"]
        assert isinstance(dims, tuple)
        shape = " x ".join(map(str, dims))
    return " ".join(filter(None, (condition(problem), shape)))
