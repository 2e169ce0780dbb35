"""Graphs and single problems end to end on the emulator: the GPU's records on host memory."""

from __future__ import annotations

import numpy as np
import pytest

import ge2.launch_table as table
from ge2.compiler import opdefs
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.launch.params import encode_params
from ge2.runtime import cpu
from ge2.runtime.device import EmulatedDevice
from ge2.runtime.executor import Executable
from ge2.runtime.problem_reference import reference

from ..cases.operators import OPERATORS, random_inputs
from ..cases.runner import check_values


def _graph(text: str) -> Graph:
    return parse_graph(text, infer=lambda op, types, attrs: opdefs.infer(op, types, attrs))


GRAPHS = {
    "mlp": """
        input x: f32[batch, 24]
        const w1: f32[24, 33]
        const b1: f32[33]
        const w2: f32[33, 10]
        h = MATMUL(x, w1)
        a = ADD(h, b1)
        r = RELU(a)
        l = MATMUL(r, w2)
        p = SOFTMAX(l, axis=-1)
        output p
    """,
    "views": """
        input x: f32[batch, 6, 4]
        t = TRANSPOSE(x, perm=[0, 2, 1])
        s = SLICE(t, starts=[1], ends=[4], axes=[1], steps=[2])
        r = RESHAPE(t, shape=[-1, 12])
        y = EXP(s)
        z = RELU(r)
        output y, z, t
    """,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_agrees_with_float64(name: str) -> None:
    graph = _graph(GRAPHS[name])
    executable = Executable(graph, backend="emulate")
    for batch in (3, 1, 0):
        x = np.random.default_rng(batch).standard_normal(
            (batch, *graph.types["x"].shape[1:])).astype("f4")
        found = executable.run({"x": x})
        expected = cpu.run_graph(graph, {"x": x}, dtype="f64")
        for value in graph.outputs:
            np.testing.assert_allclose(found[value], expected[value], atol=3e-6)


def test_a_state_is_updated_in_the_caller_s_array() -> None:
    graph = _graph("""
        input x: f32[8]
        input cache: f32[8]
        new = ADD(x, cache)
        y = MUL(new, cache)
        alias new = cache
        output y, new
    """)
    x, cache = np.arange(8, dtype="f4"), np.full(8, 2, "f4")
    found = Executable(graph, backend="emulate").run({"x": x, "cache": cache})
    assert found["new"] is cache
    np.testing.assert_array_equal(cache, np.arange(8) + 2)
    np.testing.assert_array_equal(found["y"], 2 * (np.arange(8) + 2))


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_problem_through_the_executor(operator: str) -> None:
    problem = OPERATORS[operator][1]()
    feeds = random_inputs(problem, 0)
    found = Executable.for_problem(problem, backend="emulate").run(feeds)["out0"]
    inputs = [feeds.get(f"in{i}") for i in range(len(problem.inputs))]
    check_values(operator, "f32", found, reference(problem, inputs)[0], 20_000)


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_problem_through_the_plain_launcher(operator: str) -> None:
    """Host addresses take the place of device addresses."""
    kernel, make = OPERATORS[operator]
    problem = make()
    device = EmulatedDevice()
    feeds = random_inputs(problem, 1)
    buffers = []
    for i, spec in enumerate(problem.tensors):
        if spec is None:
            buffers.append(None)
            continue
        memory = device.allocate(spec.nbytes)
        if i < len(problem.inputs):
            device.copy(memory.address, feeds[f"in{i}"].ctypes.data, spec.nbytes, 0)
        buffers.append(memory)
    block = encode_params(problem)
    bufs = [memory.address if memory else 0 for memory in buffers]
    launch = table.launcher(kernel, device)
    for _ in range(2):  # the second call finds the semaphores as the first left them
        assert launch([*bufs, block.ctypes.data], len(bufs) + 1, 0) == 0, table.last_error()
    found = np.empty(problem.outputs[0].shape, "f4")
    device.copy(found.ctypes.data, bufs[-1], found.nbytes, 0)
    inputs = [feeds.get(f"in{i}") for i in range(len(problem.inputs))]
    check_values(operator, "f32", found, reference(problem, inputs)[0], 20_000)


def test_a_tensor_without_axes_stays_one() -> None:
    torch = pytest.importorskip("torch", reason="tensors are torch's")
    graph = _graph("""
        input x: f32[]
        input y: f32[3]
        z = MUL(x, y)
        s = REDUCE_SUM(z, keepdims=False)
        output s
    """)
    found = Executable(graph, backend="emulate").run({"x": torch.tensor(2.0), "y": torch.ones(3)})
    assert isinstance(found["s"], torch.Tensor) and found["s"].shape == ()
    assert float(found["s"]) == 6.0
