"""Products of bytes: zero points, scales and requantisation become one product's epilogue."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import properties
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.passes.pipeline import optimize
from ge2.contract import numpy_dtype
from ge2.runtime.cpu import run_graph
from ge2.runtime.executor import Executable

from .graphs import ops, parse

RNG = np.random.default_rng(5)
QLINEAR = """
input x: u8[9, 40]
const w: i8[40, 12]
const zx: u8[] = 7
const zw: i8[12]
const sw: f32[12]
const sx: f32[] = 0.03
const sy: f32[] = 0.25
const zy: u8[] = 100
m = MATMUL_INTEGER(x, w, zx, zw)
f = CAST(m, to="f32")
g = MUL(f, sx)
h = MUL(g, sw)
y = QUANTIZE(h, sy, zy)
output y
"""


def qlinear() -> Graph:
    graph = parse(QLINEAR)
    graph.constants.update(w=RNG.integers(-128, 128, (40, 12)).astype(np.int8),
                           zw=RNG.integers(-9, 9, 12).astype(np.int8),
                           sw=RNG.uniform(0.01, 0.04, 12).astype(np.float32))
    return graph


def test_a_quantised_product_is_one_product_with_sums_of_its_operands() -> None:
    """Sums over the weights are constants; those over x are rows. All else is the epilogue."""
    made = optimize(qlinear()).graph
    assert sorted(ops(made)) == ["CAST", "REDUCE_SUM", "SCALED_MATMUL"]
    assert made.types["y"].dtype == "u8"


def test_values_are_those_of_integers_on_the_emulator() -> None:
    """Exact sums, then f32 as written: only ties may fall to the other side."""
    graph = qlinear()
    x = RNG.integers(0, 256, (9, 40)).astype(np.uint8)
    wide = ((x.astype(np.int64) - 7)
            @ (graph.constants["w"].astype(np.int64) - graph.constants["zw"]))
    exact = wide * np.float32(0.03) * graph.constants["sw"] / 0.25
    wanted = np.clip(np.rint(exact) + 100, 0, 255)
    y = Executable(optimize(graph).graph, backend="emulate").run({"x": x})["y"]
    clear = np.abs(exact - np.floor(exact) - 0.5) > 1e-3
    assert clear.mean() > 0.9
    assert np.array_equal(y[clear], wanted[clear])
    assert (np.abs(y - wanted) <= 1).all()
    assert 0 in y and 255 in y  # saturated at both ends


def test_without_the_property_nothing_is_fused() -> None:
    with properties.without("SCALED_MATMUL", "epilogue"):
        made = optimize(qlinear()).graph
    assert "FUSED_ELEMENTWISE" in ops(made)


def test_a_sum_that_others_read_stays() -> None:
    graph = parse("input x: i8[4, 8]\ninput w: i8[8, 4]\nm = MATMUL_INTEGER(x, w)\n"
                  'y = CAST(m, to="f32")\noutput y, m')
    made = optimize(graph).graph
    assert "SCALED_MATMUL" in ops(made) and len(made.nodes) == 2
    feeds = {"x": np.full((4, 8), 3, np.int8), "w": np.full((8, 4), -2, np.int8)}
    assert (run_graph(made, feeds)["m"] == -48).all()


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_sums_wrap_modulo_two_to_the_32(dtype: str) -> None:
    value = -128 if dtype == "i8" else 255
    k = 2**31 // value**2 + 3
    a = np.full((1, k), value, numpy_dtype(dtype))
    b = np.full((k, 1), value, a.dtype)
    y, = opdefs.reference("SCALED_MATMUL", [a, b], {})
    assert y.dtype == np.int32
    assert int(y[0, 0]) == (k * value * value + 2**31) % 2**32 - 2**31
