"""Three operators through all ways of launching: plain launcher, executor, updated graph, capture.

All four use the same launch records; here they give the same, right numbers.
"""

from __future__ import annotations

import gc
import time

import numpy as np
import pytest

import ge2.launch_table as table
from ge2.contract import Status
from ge2.launch.params import encode_params
from ge2.problem import Problem
from ge2.runtime import memory
from ge2.runtime.executor import Executable
from ge2.runtime.problem_reference import reference

from ..cases.operators import OPERATORS, random_inputs
from ..cases.runner import check_values

cupy = pytest.importorskip("cupy")

pytestmark = pytest.mark.parametrize("operator", OPERATORS)


def _expected(problem: Problem, feeds: dict[str, np.ndarray]) -> np.ndarray:
    inputs = [feeds.get(f"in{i}") for i in range(len(problem.inputs))]
    return reference(problem, inputs)[0]


def _check(problem: Problem, feeds: dict, found: np.ndarray) -> None:
    hosts = {name: cupy.asnumpy(x) for name, x in feeds.items()}
    check_values(problem.op_type, "f32", cupy.asnumpy(found), _expected(problem, hosts), 20_000)


def _on_gpu(problem: Problem, seed: int) -> dict:
    return {name: cupy.asarray(x) for name, x in random_inputs(problem, seed).items()}


def _buffers(problem: Problem, feeds: dict, out: object, block: np.ndarray) -> list[int]:
    inputs = [feeds[f"in{i}"].data.ptr if spec else 0 for i, spec in enumerate(problem.inputs)]
    return [*inputs, out.data.ptr, block.ctypes.data]


def test_plain_launcher(operator: str) -> None:
    kernel, make = OPERATORS[operator]
    problem = make()
    block = encode_params(problem)
    launch = getattr(table, f"ge2_launch_{kernel}")
    for seed in range(3):
        feeds = _on_gpu(problem, seed)
        out = cupy.full(problem.outputs[0].shape, np.nan, "f4")
        bufs = _buffers(problem, feeds, out, block)
        assert launch(bufs, len(bufs), cupy.cuda.get_current_stream().ptr) == 0, table.last_error()
        _check(problem, feeds, out)


def test_plain_launcher_with_the_caller_s_workspace(operator: str) -> None:
    kernel, make = OPERATORS[operator]
    problem = make()
    workspace, semaphores = cupy.zeros(1 << 16, "u1"), cupy.zeros(256, "u4")
    block = encode_params(problem, workspace=workspace.data.ptr, workspace_size=workspace.nbytes,
                          semaphores=semaphores.data.ptr)
    feeds = _on_gpu(problem, 0)
    out = cupy.full(problem.outputs[0].shape, np.nan, "f4")
    bufs = _buffers(problem, feeds, out, block)
    assert table.launcher(kernel)(bufs, len(bufs), 0) == 0, table.last_error()
    _check(problem, feeds, out)
    assert not cupy.asnumpy(semaphores).any()


def test_plain_launcher_refuses_host_memory(operator: str) -> None:
    kernel, make = OPERATORS[operator]
    problem = make()
    feeds = random_inputs(problem, 0)
    block = encode_params(problem)
    inputs = [feeds[f"in{i}"].ctypes.data & ~15 if spec else 0
              for i, spec in enumerate(problem.inputs)]
    bufs = [*inputs, cupy.empty(problem.outputs[0].shape, "f4").data.ptr, block.ctypes.data]
    assert table.launcher(kernel)(bufs, len(bufs), 0) == Status.DEVICE_MISMATCH
    assert table.last_error().argument == "bufs[0]"


def test_executor(operator: str) -> None:
    problem = OPERATORS[operator][1]()
    executable = Executable.for_problem(problem, backend="cuda")
    feeds = _on_gpu(problem, 1)
    _check(problem, feeds, executable.run(feeds)["out0"])


def test_updated_graph(operator: str) -> None:
    """A second call with arrays elsewhere updates the nodes of the same graph."""
    problem = OPERATORS[operator][1]()
    executable = Executable.for_problem(problem, backend="cuda")
    pool = executable.bound.leases
    kept, graphs = [], set()
    for seed in range(4):
        feeds = _on_gpu(problem, seed)
        out = executable.run(feeds)["out0"]
        kept.append((feeds, out))
        (lease,) = pool.idle
        graphs.add(id(lease.graph))
    assert len(graphs) == 1 and len({out.data.ptr for _, out in kept}) == 4
    for feeds, out in kept:
        _check(problem, feeds, out)


def test_capture_by_the_caller(operator: str) -> None:
    """Captured launches replay on new contents, after the executable is gone too."""
    kernel, make = OPERATORS[operator]
    problem = make()
    executable = Executable.for_problem(problem, backend="cuda")
    feeds = _on_gpu(problem, 0)
    executable.run(feeds)
    out, plain = (cupy.full(problem.outputs[0].shape, np.nan, "f4") for _ in range(2))
    block = encode_params(problem)
    bufs = _buffers(problem, feeds, plain, block)
    launch = table.launcher(kernel)
    assert launch(bufs, len(bufs), 0) == 0
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        executable.run(feeds, outputs={"out0": out})
        assert launch(bufs, len(bufs), stream.ptr) == 0, table.last_error()
        graph = stream.end_capture()
    owned = memory.release_captured()
    assert owned >= 1
    del executable
    gc.collect()
    for seed in (5, 6):
        for name, values in random_inputs(problem, seed).items():
            feeds[name].set(values)
        out.fill(np.nan)
        plain.fill(np.nan)
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        _check(problem, feeds, out)
        _check(problem, feeds, plain)
    del graph
    gc.collect()
    cupy.cuda.Device().synchronize()
    deadline = time.monotonic() + 5  # the driver runs destructors in a thread of its own
    while memory.release_captured() >= owned and time.monotonic() < deadline:
        time.sleep(0.01)
    assert memory.release_captured() < owned
