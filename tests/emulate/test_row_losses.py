"""Cross entropy and its gradient in one pass, on the emulator beside NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.text import parse_graph
from ge2.contract import numpy_dtype
from ge2.runtime.executor import Executable


@pytest.mark.parametrize("shape, dtype, tolerance", [
    ((5, 33), "f32", 2e-6), ((3, 2, 700), "f32", 2e-6), ((4, 512), "f16", 2e-3)])
def test_loss_and_gradient(shape: tuple[int, ...], dtype: str, tolerance: float) -> None:
    draw = np.random.default_rng(shape[-1])
    x = (3 * draw.standard_normal(shape)).astype("f2" if dtype == "f16" else "f4")
    label = draw.integers(0, shape[-1], shape[:-1])
    label.flat[0], label.flat[1], label.flat[2] = -100, shape[-1] - 1, shape[-1]
    x[..., 7] = -np.inf
    text = "\n".join([f"input x: {dtype}[{', '.join(map(str, shape))}]",
                      f"input label: i64[{', '.join(map(str, shape[:-1]))}]",
                      "loss, dx = CROSS_ENTROPY(x, label)", "output loss", "output dx"])
    graph = parse_graph(text, infer=opdefs.infer)
    found = Executable(graph, backend="emulate").run({"x": x, "label": label})
    loss, dx = opdefs.reference("CROSS_ENTROPY", [x.astype("f8"), label], {})
    np.testing.assert_allclose(found["loss"], loss, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found["dx"].astype("f8"), dx, rtol=tolerance, atol=tolerance)
    assert found["loss"].flat[0] == 0 and not found["dx"].reshape(-1, shape[-1])[0].any()


@pytest.mark.parametrize("n, dtype", [(100, "f32"), (1000, "bf16")])
def test_rows_as_bytes(n: int, dtype: str) -> None:
    x = np.random.default_rng(n).standard_normal((5, n)).astype("f4")
    x[3] = 0
    given = x.astype(numpy_dtype(dtype))
    x = given.astype("f4")
    text = f"input x: {dtype}[5, {n}]\nq, scale = QUANTIZE_ROWS(x)\noutput q\noutput scale"
    graph = parse_graph(text, infer=opdefs.infer)
    found = Executable(graph, backend="emulate").run({"x": given})
    codes, scale = opdefs.reference("QUANTIZE_ROWS", [x], {})
    np.testing.assert_allclose(found["scale"], scale, rtol=1e-6)
    # A tie may fall either way: elements are multiplied by the inverse of the scale.
    assert np.abs(found["q"].astype(int) - codes).max() <= 1
    assert (found["q"] != codes).mean() < 1e-2
