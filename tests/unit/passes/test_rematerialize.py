"""Recomputation under a memory budget: what is computed again, what is not, and what it costs."""

from __future__ import annotations

import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import properties
from ge2.compiler.ir.verify import verify
from ge2.compiler.memory_budget import node_us, plan_within
from ge2.compiler.passes.rematerialize import RematerializePass, rematerialize
from ge2.compiler.plan import make_plan
from ge2.errors import OutOfMemory
from ge2.evidence.device import profile_for

from .graphs import parse, same_values

DEVICE = profile_for("sm_90a")

# h lies idle while the two products make their large results; it is one exp away from x.
IDLE = """
    input x: f32[64, 256]
    const w: f32[256, 1024]
    const v: f32[1024, 256]
    h = EXP(x)
    a = MATMUL(h, w)
    b = TANH(a)
    c = MATMUL(b, v)
    y = ADD(c, h)
    output y
"""


def cost(graph, node):
    return node_us(graph, node, DEVICE)


def budgeted(text, budget):
    graph = parse(text)
    made, done = rematerialize(graph, budget, cost)
    verify(made, opdefs.infer)
    same_values(graph, made)
    return made, done


def test_an_idle_value_is_computed_again():
    made, done = budgeted(IDLE, 1)
    assert done[0].value == "h"
    assert done[0].before == "y" and done[0].nodes == 1
    assert done[0].saved_bytes == 64 * 256 * 4
    assert done[0].microseconds > 0
    assert [node.op for node in made.nodes].count("EXP") == 2


def test_nothing_happens_within_the_budget():
    graph = parse(IDLE)
    assert RematerializePass(1 << 30, cost)(graph).graph is graph
    assert not RematerializePass(1 << 30, cost)(graph).modified


def test_the_property_is_the_licence():
    with properties.without("EXP", "rematerializable"):
        made, done = budgeted(IDLE, 1)
    assert not done
    assert [node.op for node in made.nodes].count("EXP") == 1


def test_a_random_value_is_never_drawn_twice():
    random = [name for name in opdefs.OPS if name.startswith("RANDOM_")]
    assert not any(properties.licensed(name, "deterministic") for name in random)


def test_what_would_need_a_value_that_is_gone_takes_that_along():
    """g needs h, which is dead by then: both are computed again from x."""
    made, done = budgeted("""
        input x: f32[64, 256]
        const w: f32[256, 1024]
        const v: f32[1024, 256]
        h = EXP(x)
        g = SIGMOID(h)
        a = MATMUL(g, w)
        b = TANH(a)
        c = MATMUL(b, v)
        y = ADD(c, g)
        output y
    """, 1)
    first = next(step for step in done if step.value == "g")
    assert first.nodes == 2
    assert [node.op for node in made.nodes].count("EXP") == 2


def test_a_much_smaller_input_is_kept_longer_instead():
    """Widening again from f16 keeps the f16 value: half the bytes of the f32 one."""
    _, done = budgeted("""
        input x: f32[64, 256]
        const w: f32[256, 1024]
        const v: f32[1024, 256]
        n = MATMUL(x, w)
        half = CAST(n, to="f16")
        wide = CAST(half, to="f32")
        a = EXP(wide)
        b = MATMUL(a, v)
        c = MATMUL(b, w)
        d = TANH(c)
        y = ADD(d, wide)
        output y
    """, 1)
    assert next(step for step in done if step.value == "wide").nodes == 1


def test_a_view_of_a_recomputed_value_is_made_again_too():
    made, done = budgeted("""
        input x: f32[64, 256]
        const w: f32[256, 1024]
        const v: f32[1024, 64]
        h = EXP(x)
        t = TRANSPOSE(h, perm=[1, 0])
        a = MATMUL(h, w)
        b = TANH(a)
        c = MATMUL(b, v)
        d = MATMUL(t, c)
        output d
    """, 1)
    assert done[0].nodes == 2
    assert [node.op for node in made.nodes].count("TRANSPOSE") == 2


def test_a_value_that_is_read_at_the_peak_stays():
    _, done = budgeted("""
        input x: f32[64, 256]
        h = EXP(x)
        a = TANH(h)
        y = ADD(a, h)
        output y
    """, 1)
    assert not done


def test_a_state_is_not_read_again_after_it_may_have_changed():
    graph = parse("""
        input x: f32[64, 256]
        input cache: f32[64, 256]
        const w: f32[256, 1024]
        const v: f32[1024, 256]
        h = EXP(cache)
        a = MATMUL(h, w)
        b = TANH(a)
        c = MATMUL(b, v)
        new = ADD(c, x)
        y = ADD(c, h)
        alias new = cache
        output y, new
    """)
    _, done = rematerialize(graph, 1, cost)
    assert not any(step.value == "h" for step in done)


def test_a_plan_comes_within_its_budget():
    graph = parse(IDLE)
    free = make_plan(graph, DEVICE)
    budget = free.arena_bytes - 1024
    found = plan_within(graph, DEVICE, budget)
    assert found.fits and found.plan.arena_bytes <= budget
    assert found.bytes_before == free.arena_bytes
    assert found.saved_bytes == free.arena_bytes - found.plan.arena_bytes > 0
    assert found.added_us == sum(step.microseconds for step in found.recomputed) > 0
    assert found.checked() is found.plan


def test_an_impossible_budget_is_refused_with_the_numbers():
    found = plan_within(parse(IDLE), DEVICE, 1024)
    assert not found.fits
    with pytest.raises(OutOfMemory, match="memory budget") as caught:
        found.checked()
    assert "1024" in str(caught.value)


def test_views_cost_no_time_and_products_more_than_sums():
    graph = parse(IDLE)
    products = [cost(graph, node) for node in graph.nodes if node.op == "MATMUL"]
    sums = [cost(graph, node) for node in graph.nodes if node.op == "ADD"]
    assert min(products) > max(sums) > 0
    views = parse("input x: f32[4, 8]\nt = TRANSPOSE(x, perm=[1, 0])\noutput t")
    assert cost(views, views.nodes[0]) == 0
