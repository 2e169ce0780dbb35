"""Every preservation rule: who relies on a licence stops without it, and what is claimed holds."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ge2
from ge2.compiler import opdefs
from ge2.compiler.ir import properties
from ge2.compiler.ir.expr import evaluate
from ge2.compiler.ir.nodes import Node
from ge2.compiler.ir.preservation import NOTHING, RULES, TRANSFORMATIONS, permitted, rules_of
from ge2.compiler.kernels import selector
from ge2.compiler.kernels.lower import lower
from ge2.compiler.memory_budget import node_us
from ge2.compiler.passes.canonicalize import CanonicalizePass
from ge2.compiler.passes.cse import CommonSubexpressionPass
from ge2.compiler.passes.fold_affine import FoldAffinePass
from ge2.compiler.passes.fold_constants import FoldConstantsPass
from ge2.compiler.passes.fold_transposes import FoldTransposesPass
from ge2.compiler.passes.fuse_add_norm import FuseAddNormPass
from ge2.compiler.passes.fuse_elementwise import FuseElementwisePass
from ge2.compiler.passes.fuse_epilogue import FuseEpiloguePass
from ge2.compiler.passes.fuse_gemm import FuseGemmPass
from ge2.compiler.passes.fuse_norm_gemm import FuseNormGemmPass
from ge2.compiler.passes.fuse_row_values import FuseRowValuesPass
from ge2.compiler.passes.fuse_rows import FuseRowsPass
from ge2.compiler.passes.lift_attention import LiftAttentionPass
from ge2.compiler.passes.lift_norms import LiftNormsPass
from ge2.compiler.passes.lift_softmax import LiftSoftmaxPass
from ge2.compiler.passes.merge_products import MergeProductsPass
from ge2.compiler.passes.rematerialize import RematerializePass
from ge2.compiler.passes.split_reductions import SplitReductionsPass
from ge2.errors import Unsupported
from ge2.evidence.device import profile_for
from ge2.problem import TensorSpec

from .graphs import parse, same_values

H200 = profile_for("sm_90a")
HEAD = """
input x: f32[6, 8]
input z: f32[6, 8]
input v: f32[4, 6, 8]
const two: f32[] = 2.0
const w: f32[8, 8]
const u: f32[8, 8]
const s: f32[8]
const half: f32[1] = 0.5
"""
NORM = ("m = REDUCE_MEAN(x, axes=[1])\nd = SUB(x, m)\nq = MUL(d, d)\nr = REDUCE_MEAN(q, axes=[1])\n"
        "a = ADD(r, half)\nb = SQRT(a)\ny = DIV(d, b)\noutput y")
SOFTMAX = "e = EXP(x)\nt = REDUCE_SUM(e, axes=[1])\ny = DIV(e, t)\noutput y"
IDLE = ("h = EXP(x)\na = MATMUL(h, w)\nb = MATMUL(a, u)\nc = MATMUL(b, w)\ny = ADD(c, h)\n"
        "output y")
RECOMPUTE = RematerializePass(1, lambda graph, node: node_us(graph, node, H200))

# (transformation, licence, who asks) -> (its pass, the operator that the licence is taken from,
# a graph that it rewrites).
CASES = {
    ("reorder", "commutative", "canonicalize"):
        (CanonicalizePass(), "ADD", "y = ADD(two, x)\noutput y"),
    ("reorder", "commutative", "cse"):
        (CommonSubexpressionPass(), "ADD",
         "a = ADD(x, z)\nb = ADD(z, x)\ny = MUL(a, b)\noutput y"),
    ("reorder", "transposable", "fold_transposes"):
        (FoldTransposesPass(), "MATMUL", "t = TRANSPOSE(w)\ny = MATMUL(x, t)\noutput y"),
    ("stream", "shift_invariant", "lift_softmax"): (LiftSoftmaxPass(), "SOFTMAX", SOFTMAX),
    ("block", "columnwise", "merge_products"):
        (MergeProductsPass(), "MATMUL",
         "a = MATMUL(x, w)\nb = MATMUL(x, u)\ny = MUL(a, b)\noutput y"),
    ("block", "columnwise", "fold_affine"):
        (FoldAffinePass(), "MATMUL", "a = MATMUL(x, w)\ny = MUL(a, s)\noutput y"),
    ("recompute", "rematerializable", "rematerialize"): (RECOMPUTE, "EXP", IDLE),
    ("recompute", "deterministic", "rematerialize"): (RECOMPUTE, "EXP", IDLE),
    ("recompute", "deterministic", "cse"):
        (CommonSubexpressionPass(), "EXP", "a = EXP(x)\nb = EXP(x)\ny = ADD(a, b)\noutput y"),
    ("recompute", "deterministic", "fold_constants"):
        (FoldConstantsPass(), "EXP", "a = EXP(w)\ny = MATMUL(x, a)\noutput y"),
    ("fuse", "elementwise", "fuse_elementwise"):
        (FuseElementwisePass(), "EXP", "a = EXP(x)\ny = NEG(a)\noutput y"),
    ("fuse", "elementwise", "fuse_add_norm"):
        (FuseAddNormPass(), "ADD", "a = ADD(x, z)\ny = RMS_NORM(a, s)\noutput y, a"),
    ("fuse", "epilogue", "fuse_gemm"):
        (FuseGemmPass(), "MATMUL", "a = MATMUL(x, w)\ny = ADD(a, s)\noutput y"),
    ("fuse", "epilogue", "fuse_epilogue"):
        (FuseEpiloguePass(), "MATMUL", "a = MATMUL(x, w)\ny = SIN(a)\noutput y"),
    ("fuse", "epilogue", "fuse_rows"):
        (FuseRowsPass(), "SOFTMAX", "a = SOFTMAX(x)\ny = MUL(a, z)\noutput y"),
    ("fuse", "epilogue", "fold_affine"):
        (FoldAffinePass(), "CONV2D", "CONV"),
    ("fuse", "prologue", "fuse_rows"):
        (FuseRowsPass(), "SOFTMAX", "a = MUL(x, z)\ny = SOFTMAX(a)\noutput y"),
    ("fuse", "linear", "fuse_gemm"):
        (FuseGemmPass(), "MATMUL", "a = MUL(x, two)\ny = MATMUL(a, w)\noutput y"),
    ("fuse", "mergeable", "fuse_add_norm"):
        (FuseAddNormPass(), "RMS_NORM", "a = ADD(x, z)\ny = RMS_NORM(a, s)\noutput y, a"),
    ("fuse", "mergeable", "fuse_norm_gemm"):
        (FuseNormGemmPass(), "RMS_NORM", "a = RMS_NORM(x, s)\ny = MATMUL(a, w)\noutput y"),
    ("fuse", "mergeable", "fuse_row_values"):
        (FuseRowValuesPass(), "REDUCE_SUM",
         "a = MATMUL(x, w)\ny = REDUCE_SUM(a, axes=[1])\noutput y"),
    ("fuse", "mergeable", "lift_softmax"): (LiftSoftmaxPass(), "REDUCE_SUM", SOFTMAX),
    ("fuse", "mergeable", "lift_norms"): (LiftNormsPass(), "REDUCE_MEAN", NORM),
    ("fuse", "mergeable", "lift_attention"): (LiftAttentionPass(), "SOFTMAX", "ATTENTION"),
    ("split", "mergeable", "split_reductions"):
        (SplitReductionsPass(), "REDUCE_SUM", "y = REDUCE_SUM(v, axes=[0, 2])\noutput y"),
}
CONV = """
input x: f32[2, 4, 6, 6]
const w: f32[8, 4, 3, 3]
a = CONV2D(x, w)
y = SILU(a)
output y
"""


ATTENTION = """
input q: f32[2, 3, 5, 4]
input k: f32[2, 3, 6, 4]
input v: f32[2, 3, 6, 8]
t = TRANSPOSE(k, perm=[0, 1, 3, 2])
z = MATMUL(q, t)
p = SOFTMAX(z)
y = MATMUL(p, v)
output y
"""


def graph_of(text: str):
    return parse({"CONV": CONV, "ATTENTION": ATTENTION}.get(text, HEAD + text))


def test_the_table_is_whole() -> None:
    assert {rule.transformation for rule in RULES} == set(TRANSFORMATIONS)
    for rule in RULES:
        assert rule.licence in properties.PROPERTIES and rule.form and rule.rounding
    asked = {(r.transformation, r.licence, who) for r in RULES for who in r.asked_by}
    assert {case for case in asked if case[2] != "lower_row"} == set(CASES)


def test_every_pass_that_asks_is_in_the_table() -> None:
    """What a pass asks the property table for, beyond algebra on the spot, is a rule's licence."""
    local = {"composes", "idempotent", "involution", "view"}
    listed = {(who, rule.licence) for rule in RULES for who in rule.asked_by}
    listed.add(("fuse_add_norm", "prologue"))  # asked to leave the sum to fuse_rows
    folder = Path(ge2.__file__).parent / "compiler" / "passes"
    for path in folder.glob("*.py"):
        names = re.findall(r'licensed\([^"()]*(?:\([^()]*\))?[^"()]*"(\w+)"\)', path.read_text())
        missing = {n for n in names if n not in local and (path.stem, n) not in listed}
        assert not missing, f"{path.stem} asks for {missing}: a rule of preservation.py says why"


@pytest.mark.parametrize("case", CASES, ids=".".join)
def test_a_rewrite_happens_keeps_values_and_stops_without_its_licence(case) -> None:
    step, op, text = CASES[case]
    graph = graph_of(text)
    result = step(graph)
    assert result.modified
    same_values(graph, result.graph)
    with properties.without(op, case[1]):
        after = step(graph)
    # Passes may do other things to the graph; not this one.
    assert len(after.graph.nodes) != len(result.graph.nodes) or not after.modified or (
        [n.op for n in after.graph.nodes] != [n.op for n in result.graph.nodes])


def problem_of(op: str, rows: int, n: int, **attrs):
    x = TensorSpec.dense("f32", (rows, n))
    y = TensorSpec.dense("f32", (rows, 1) if op.startswith("REDUCE") else (rows, n))
    return lower(Node(op, "n", ("x",), ("y",), attrs), {"x": x, "y": y})


@pytest.mark.parametrize(("op", "attrs"), [("SOFTMAX", {}), ("REDUCE_SUM", {"axes": [1]})])
def test_rows_are_neither_streamed_nor_shared_without_a_licence_to_merge(op, attrs) -> None:
    shared = selector.select(problem_of(op, 4, 1 << 20, **attrs), H200).variant.kernel.name
    assert shared in ("row_split", "row_pipe", "row_cluster")
    with properties.without(op, "mergeable"):
        whole = problem_of(op, 4, 1 << 20, **attrs)
        assert not whole.attr_map["row"].streamable
        assert selector.select(whole, H200).variant.kernel.name in ("row_loop", "row_block")
        assert not permitted(op, "tree-reduce") and not permitted(op, "block")


def test_what_only_merges_has_no_kernel_without_a_licence() -> None:
    with properties.without("ARGMAX", "mergeable"), pytest.raises(Unsupported, match="licence"):
        lower(Node("ARGMAX", "n", ("x",), ("y",), {"axis": 1, "keepdims": False}),
              {"x": TensorSpec.dense("f32", (3, 9)), "y": TensorSpec.dense("i64", (3,))})


# -- what the rules claim, on random operands -----------------------------------------------------

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, deadline=None)
MERGING = [op for op in opdefs.OPS if permitted(op, "tree-reduce")
           and (op.startswith("REDUCE") or op in ("SOFTMAX", "LOG_SOFTMAX"))]


def _row(op: str, n: int):
    attrs = {"axes": [1]} if op.startswith("REDUCE") else {}
    return problem_of(op, 3, n, **attrs).attr_map["row"].widened()


def _finished(row, state, x):
    return evaluate(row.finish[:1], [*state, x], (np.arange(x.shape[-1]),),
                    (np.float64(x.shape[-1]),))[0]


def _streamed(row, x):
    state = [np.broadcast_to(v, (len(x), 1)) for v in evaluate(
        tuple(v.init for v in row.state), [])]
    for i in range(x.shape[1]):
        state = evaluate(row.update, [*state, x[:, i:i + 1]], (np.asarray([i]),))
    return state


@pytest.mark.parametrize("op", MERGING)
@few
@given(seeds, st.integers(2, 14), st.data())
def test_streamed_in_blocks_and_in_trees_a_row_has_one_state(op, seed, n, data) -> None:
    """stream, block and tree-reduce: sequential, cut anywhere and merged pairwise finish alike."""
    x = np.abs(np.random.default_rng(seed).normal(1, 0.4, (3, n)))
    row = _row(op, n)
    wanted = _finished(row, _streamed(row, x), x)
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=3)))
    parts = [_streamed(row, part) for part in np.split(x, cuts, axis=1)]
    singles = [_streamed(row, x[:, i:i + 1]) for i in range(n)]
    for states in (parts, singles):
        while len(states) > 1:
            pairs = [evaluate(row.merge, [*a, *b])
                     for a, b in zip(states[::2], states[1::2], strict=False)]
            states = pairs + states[2 * len(pairs):]
        np.testing.assert_allclose(_finished(row, states[0], x), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("op", [op for op in MERGING if permitted(op, "reorder")])
@few
@given(seeds)
def test_reordered_reductions_differ_by_rounding_alone(op, seed) -> None:
    rng = np.random.default_rng(seed)
    x = np.abs(rng.normal(1, 0.3, (3, 40))).astype("f4")
    attrs = {"axes": [1]}
    whole, = opdefs.reference(op, [x], attrs)
    moved, = opdefs.reference(op, [x[:, rng.permutation(40)]], attrs)
    np.testing.assert_allclose(moved, whole, rtol=40 * 2.0**-24)


@few
@given(seeds, st.sampled_from(["ADD", "MUL", "MAX", "MIN"]))
def test_operands_that_change_places_change_no_bit(seed, op) -> None:
    assert next(r for r in permitted(op, "reorder")).rounding == NOTHING
    a, b = np.random.default_rng(seed).normal(size=(2, 50)).astype("f4")
    np.testing.assert_array_equal(opdefs.reference(op, [a, b], {})[0],
                                  opdefs.reference(op, [b, a], {})[0])


@pytest.mark.parametrize("op", ["EXP", "GELU", "SOFTMAX", "RMS_NORM", "REDUCE_SUM"])
@few
@given(seeds)
def test_what_is_recomputed_has_the_same_bits(op, seed) -> None:
    assert {r.licence for r in permitted(op, "recompute")} == {"rematerializable", "deterministic"}
    assert all(r.rounding == NOTHING for r in permitted(op, "recompute"))
    x = np.random.default_rng(seed).normal(size=(3, 17)).astype("f4")
    arrays = [x, np.ones(17, "f4")] if op == "RMS_NORM" else [x]
    first, = opdefs.reference(op, arrays, {})
    again, = opdefs.reference(op, [a.copy() for a in arrays], {})
    np.testing.assert_array_equal(first, again)


CHAIN = ["NEG", "EXP", "TANH", "SIGMOID", "ABS", "SIN"]


@few
@given(seeds, st.lists(st.sampled_from(CHAIN), min_size=2, max_size=6),
       st.sampled_from(["f32", "f16"]))
def test_fused_formulas_differ_by_what_is_not_rounded_in_between(seed, chain, dtype) -> None:
    lines = [f"input v0: {dtype}[5, 7]"]
    lines += [f"v{i + 1} = {op}(v{i})" for i, op in enumerate(chain)]
    graph = parse("\n".join([*lines, f"output v{len(chain)}"]))
    result = FuseElementwisePass()(graph)
    assert result.modified and len(result.graph.nodes) == 1
    same_values(graph, result.graph, seed % 1000)


@few
@given(seeds, st.permutations(range(4)), st.integers(1, 3))
def test_split_reductions_sum_to_the_whole(seed, axes, count) -> None:
    chosen = sorted(axes[:count])
    text = f"input x: f64[3, 4, 2, 5]\ny = REDUCE_SUM(x, axes={chosen})\noutput y"
    graph = parse(text)
    same_values(graph, SplitReductionsPass()(graph).graph, seed % 1000)


def test_rules_are_found_by_operator() -> None:
    assert {r.licence for r in permitted("SOFTMAX", "fuse")} >= {"epilogue", "prologue"}
    assert not permitted("TOPK", "stream") and len(rules_of("fuse")) == 5
