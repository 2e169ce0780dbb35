"""Weights that are brought into another form once: launches of a run, values, what may change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.selector import Choice
from ge2.launch.conv import conv_problem
from ge2.launch.gemm_examples import gemm_problem
from ge2.runtime.cpu import run_graph
from ge2.runtime.device import EmulatedDevice, EmulatedUnit
from ge2.runtime.emulate import EmulationError, run_problem
from ge2.runtime.executor import Executable
from ge2.runtime.problem_reference import random_inputs, reference
from ge2.tune.bench import Bench

from .test_gemm_f32 import X3

PRODUCT = registry.variant(X3[1])
LINES = registry.variant("conv/conv2d_lines[CHANNELS=64,PIXELS=64,SPLIT=1,STAGES=3]")


@pytest.fixture(autouse=True)
def _x3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_F32", "x3")


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return a function that returns the entries launched since its last call."""
    found: list[str] = []
    real = EmulatedUnit.__call__

    def call(self: EmulatedUnit, stream: int, /) -> None:
        found.append(self.record.kernel.entry)
        real(self, stream)

    def take() -> list[str]:
        taken = list(found)
        found.clear()
        return taken

    monkeypatch.setattr(EmulatedUnit, "__call__", call)
    return take


def choose(problem, device) -> Choice:
    own = {"GEMM_BIAS_ACT": PRODUCT, "CONV2D": LINES}.get(problem.op_type)
    return Choice(own, 0.0, ()) if own else selector.select(problem, device)


def product_graph(k: int = 136, n: int = 72, *, state: bool = False) -> Graph:
    """Return relu(x w + b), of a constant w; or of a state to which d is added in every call."""
    draw = np.random.default_rng()
    text = f"""
        input x: f32[rows, {k}]
        {"input" if state else "const"} w: f32[{k}, {n}]
        const b: f32[{n}]
        y = GEMM_BIAS_ACT(x, w, b, act="relu")
        output y
    """
    constants = {name: draw.standard_normal(shape, np.float32)
                 for name, shape in (("w", (k, n)), ("b", (n,)), ("d", (k, n)))}
    if state:
        text += f"const d: f32[{k}, {n}]\nnew = ADD(w, d)\noutput new\n"
    graph = parse_graph(text, constants, infer=opdefs.infer)
    if state:
        graph.aliases = {"new": "w"}
    return graph


def compare(graph: Graph, feeds: dict[str, np.ndarray], found: np.ndarray, rtol: float) -> None:
    wanted = run_graph(graph, feeds, dtype="f64")["y"]
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite], wanted[~finite].astype(found.dtype))
    scale = np.abs(wanted[finite]).max()
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=rtol, atol=rtol * scale)


def test_planes_of_weights_serve_all_calls(launched: Callable[[], list[str]]) -> None:
    """Other activations, other sizes, and weights in which something is infinite."""
    graph = product_graph()
    graph.constants["w"][9, 40] = np.inf
    executable = Executable(graph, "emulate", choose=choose)
    split, multiply = "gemm_bias_act_wgmma_f32_prepare", "gemm_bias_act_wgmma_f32"
    for call, rows in enumerate((5, 70, 5)):
        x = np.random.default_rng().standard_normal((rows, 136), np.float32)
        found = executable.run({"x": x})["y"]
        assert launched() == [split] * (call == 0) + [split, multiply]
        compare(graph, {"x": x}, found, 2e-6)


def test_weights_are_read_once(launched: Callable[[], list[str]]) -> None:
    """Planes and weights agree whatever becomes of the host's arrays."""
    graph = product_graph()
    executable = Executable(graph, "emulate", choose=choose)
    x = np.random.default_rng().standard_normal((5, 136), np.float32)
    before = executable.run({"x": x})["y"]
    graph.constants["w"][:] = np.nan
    np.testing.assert_array_equal(executable.run({"x": x})["y"], before)


def test_state_is_split_in_every_call(launched: Callable[[], list[str]]) -> None:
    graph = product_graph(state=True)
    executable = Executable(graph, "emulate", choose=choose)
    draw = np.random.default_rng()
    w = draw.standard_normal((136, 72), np.float32)
    for _ in range(2):
        x = draw.standard_normal((5, 136), np.float32)
        feeds = {"x": x, "w": w.copy()}
        found = executable.run(feeds)
        assert launched().count("gemm_bias_act_wgmma_f32_prepare") == 2
        compare(graph, {"x": x, "w": w}, found["y"], 2e-6)
        w = found["new"]


def test_a_read_of_what_no_launch_prepared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedUnit, "__call__", _skip(1, EmulatedUnit.__call__))
    with pytest.raises(EmulationError, match=r"prepared 'w\.prepared'"):
        Executable(product_graph(), "emulate", choose=choose).run(
            {"x": np.ones((5, 136), np.float32)})


def _skip(count: int, real: Callable[[EmulatedUnit, int], None]) -> Callable[..., None]:
    """Return a launch of which the first `count` do nothing."""
    left = iter(range(count))

    def call(self: EmulatedUnit, stream: int, /) -> None:
        if next(left, None) is None:
            real(self, stream)
        else:
            self.report = None

    return call


CONVS = {
    "lines": ("x: f16[images, 12, 16, 16]", "w: f16[24, 6, 3, 2]", "strides=[2, 1], group=2"),
    "pairs": ("x: f16[images, 3, 9, 12]", "w: f16[40, 3, 5, 7]",
              "strides=[2, 2], pads=[2, 3, 2, 3]"),
}


@pytest.mark.parametrize("name", CONVS)
def test_filters_are_brought_into_lines_once(name: str,
                                             launched: Callable[[], list[str]]) -> None:
    x, w, attrs = CONVS[name]
    graph = parse_graph(f"input {x}\nconst {w}\ny = CONV2D(x, w, {attrs})\noutput y",
                        infer=opdefs.infer)
    draw = np.random.default_rng()
    graph.constants["w"] = draw.standard_normal(graph.constants["w"].shape).astype("f2")
    executable = Executable(graph, "emulate", choose=choose)
    for call, images in enumerate((2, 1)):
        feeds = {"x": draw.standard_normal((images, *graph.types["x"].shape[1:])).astype("f2")}
        found = executable.run(feeds)["y"]
        assert launched() == ["conv2d_filter_lines"] * (call == 0) + ["conv2d_lines_arrange",
                                                                      "conv2d_lines"]
        compare(graph, feeds, found, 1e-3)


def test_a_constant_problem_is_timed_without_what_is_made_once() -> None:
    plain = gemm_problem(("f32",) * 3, shape=(5, 72, 136))
    attrs = tuple(sorted({**plain.attr_map, "f32": "x3"}.items()))
    for constant, launches in (((), 3), ((1,), 2)):
        bench = Bench(EmulatedDevice())
        bench.load(dataclasses.replace(plain, attrs=attrs, constant=constant), seed=1)
        assert bench.check(PRODUCT).state == "ok"
        (units,) = bench._units_of(bench._loaded(), PRODUCT)
        assert len(units) == launches


def test_direct_launches_of_a_constant_problem_are_complete() -> None:
    problem = conv_problem("f16", (1, 3, 9, 12), (40, 3, 5, 7), strides=(2, 2),
                           pads=(2, 3, 2, 3), constant=(1,))
    inputs = random_inputs(problem, 2)
    (found,), (wanted,) = run_problem(LINES, problem, inputs), reference(problem, inputs)
    np.testing.assert_allclose(found.astype("f8"), wanted, rtol=2e-3, atol=2e-3)


