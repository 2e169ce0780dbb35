"""Calls of an executable on a stand-in for CUDA: updates, leases, captures, staging, failures."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.errors import DeviceMismatch, DtypeMismatch, Invalid, LaunchFailed, MissingInput
from ge2.runtime.executor import Executable

from .fake_cuda import FakeArray, FakeCuda, cuda  # noqa: F401 - a fixture

MODEL = """
input x: f32[batch, 64]
input z: f32[batch, 64]
a = EXP(x)
b = TANH(a)
y = ADD(b, z)
output y
"""
X, Z, Y = 1 << 20, 2 << 20, 3 << 20


def _graph(text: str = MODEL) -> Graph:
    return parse_graph(text, infer=lambda op, types, attrs: opdefs.infer(op, types, attrs))


@pytest.fixture
def executable(cuda: FakeCuda) -> Executable:  # noqa: F811
    return Executable(_graph(), "cuda", cuda)


def _run(executable: Executable, x: int = X, z: int = Z, y: int = Y, stream: int = 5,
         batch: int = 8) -> None:
    executable.run({"x": FakeArray(x, batch, 64), "z": FakeArray(z, batch, 64)}, stream=stream,
                   outputs={"y": FakeArray(y, batch, 64)})


def _words(args: bytes) -> set[int]:
    return {int.from_bytes(args[i:i + 8], "little") for i in range(0, len(args) - 7, 8)}


def _graphs(executable: Executable) -> list:
    (bound,) = [*executable.plans.exact.values(), *executable.plans.shared.values()]
    return [lease.graph for lease in bound.leases.idle]


def test_addresses_reach_the_launches_that_use_them(executable: Executable,
                                                    cuda: FakeCuda) -> None:  # noqa: F811
    _run(executable)
    first, _, last = (args for _, args, _ in cuda.launched)
    assert X in _words(first) and not {Z, Y} & _words(first)
    assert {Z, Y} <= _words(last)


def test_a_moved_array_updates_only_its_launches(executable: Executable,
                                                 cuda: FakeCuda) -> None:  # noqa: F811
    _run(executable)
    _run(executable)
    (graph,) = _graphs(executable)
    assert graph.updates == 0
    _run(executable, x=X + 4096)
    assert graph.updates == 1
    assert X + 4096 in _words(cuda.launched[-3][1]) and _graphs(executable) == [graph]
    _run(executable, x=X + 4096, z=Z + 4096, y=Y + 4096)
    assert graph.updates == 2
    assert {Z + 4096, Y + 4096} <= _words(cuda.launched[-1][1])


def test_one_stream_reuses_one_lease(executable: Executable,
                                     cuda: FakeCuda) -> None:  # noqa: F811
    cuda.finished = True
    for _ in range(3):
        _run(executable)
    assert len(_graphs(executable)) == 1 and cuda.waits == []


def test_a_busy_lease_is_waited_for_even_on_its_own_handle(executable: Executable,
                                                           cuda: FakeCuda) -> None:  # noqa: F811
    for _ in range(3):  # the handle may belong to a new stream by then
        _run(executable)
    assert len(_graphs(executable)) == 1 and len(cuda.waits) == 2


def test_busy_streams_take_leases_of_their_own_up_to_a_limit(
        executable: Executable, cuda: FakeCuda) -> None:  # noqa: F811
    for stream in range(10, 20):
        _run(executable, stream=stream)
    assert len(_graphs(executable)) == 4
    assert cuda.waits == list(range(14, 20))


def test_a_finished_lease_moves_to_another_stream(executable: Executable,
                                                  cuda: FakeCuda) -> None:  # noqa: F811
    cuda.finished = True
    for stream in range(10, 14):
        _run(executable, stream=stream)
    assert len(_graphs(executable)) == 1


def test_a_capture_gets_plain_launches_and_memory_of_its_own(
        executable: Executable, cuda: FakeCuda) -> None:  # noqa: F811
    _run(executable)
    usual = [args for _, args, _ in cuda.launched]
    cuda.launched.clear()
    cuda.capturing.add(5)
    _run(executable)
    captured = [args for _, args, _ in cuda.launched]
    assert len(captured) == 3 and captured[1] != usual[1]  # another arena
    ((lease, *_),) = cuda.kept
    assert lease.graph is None and lease.event is None
    assert len(_graphs(executable)) == 1


def test_host_arrays_are_copied_in_and_out(executable: Executable,
                                           cuda: FakeCuda) -> None:  # noqa: F811
    x, z = np.ones((8, 64), "f4"), np.ones((8, 64), "f4")
    found = executable.run({"x": x, "z": z})
    assert type(found["y"]) is np.ndarray
    sources = [source for _, source, _ in cuda.copies]
    assert sources[:2] == [x.ctypes.data, z.ctypes.data]
    assert cuda.copies[2][0] == found["y"].ctypes.data
    executable.run({"x": x, "z": z})
    (graph,) = _graphs(executable)
    assert graph.updates == 0


def test_an_input_of_many_launches_is_copied_once_it_moves(cuda: FakeCuda) -> None:  # noqa: F811
    lines = ["input x: f32[8, 64]"] + [f"y{i} = EXP(x)" for i in range(12)]
    graph = _graph("\n".join([*lines, "output " + ", ".join(f"y{i}" for i in range(12))]) + "\n")
    executable = Executable(graph, "cuda", cuda)
    outputs = {f"y{i}": FakeArray(Y + 8192 * i, 8, 64) for i in range(12)}
    for address in (X, X, X + 4096, X + 8192):
        executable.run({"x": FakeArray(address, 8, 64)}, stream=5, outputs=outputs)
    (made,) = _graphs(executable)
    assert made.updates == 12  # to the copy, once
    assert [source for _, source, _ in cuda.copies] == [X + 4096, X + 8192]


def test_a_failed_launch_drops_the_lease(executable: Executable,
                                         cuda: FakeCuda) -> None:  # noqa: F811
    cuda.launch_error = LaunchFailed("no")
    with pytest.raises(LaunchFailed):
        _run(executable)
    assert _graphs(executable) == []
    cuda.launch_error = None
    _run(executable)
    assert len(_graphs(executable)) == 1


def test_synchronous_mode_names_the_node(cuda: FakeCuda,  # noqa: F811
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GE2_SYNC", "1")
    executable = Executable(_graph(), "cuda", cuda)
    cuda.launch_error = LaunchFailed("an illegal address")
    with pytest.raises(LaunchFailed, match=r"\(EXP\).*illegal address"):
        _run(executable)


def test_strides_of_the_caller_are_used_in_place(executable: Executable,
                                                 cuda: FakeCuda) -> None:  # noqa: F811
    executable.run({"x": FakeArray(X, 8, 64, strides=(512, 4)), "z": FakeArray(Z, 8, 64)},
                   stream=5, outputs={"y": FakeArray(Y, 8, 64)})
    assert cuda.copies == [] and len(cuda.launched) == 3


@pytest.mark.parametrize(("feeds", "outputs", "error"), [
    ({"x": FakeArray(X, 8, 64)}, {}, MissingInput),
    ({"x": FakeArray(X, 8, 64), "z": FakeArray(Z, 8, 64), "w": FakeArray(Z, 8, 64)}, {}, Invalid),
    ({"x": FakeArray(X, 8, 64), "w": FakeArray(Z, 8, 64)}, {}, MissingInput),
    ({"x": FakeArray(X, 8, 64, device=1), "z": FakeArray(Z, 8, 64)}, {}, DeviceMismatch),
    ({"x": np.ones((8, 64)), "z": FakeArray(Z, 8, 64)}, {}, DtypeMismatch),
    ({"x": FakeArray(X, 8, 64), "z": FakeArray(Z, 8, 64)}, {"q": FakeArray(Y, 8, 64)}, Invalid),
    ({"x": FakeArray(X, 8, 64), "z": FakeArray(Z, 8, 64)}, {"y": FakeArray(X + 64, 8, 64)},
     Invalid),
])
def test_unfit_arrays_are_refused(executable: Executable, feeds: dict, outputs: dict,
                                  error: type) -> None:
    with pytest.raises(error):
        executable.run(feeds, stream=5, outputs=outputs)


def test_prepare_leaves_a_lease_for_the_first_call(executable: Executable,
                                                   cuda: FakeCuda) -> None:  # noqa: F811
    executable.prepare({"x": (8, 64), "z": (8, 64)})
    prepared, allocated = len(cuda.prepared), len(cuda.allocated)
    assert prepared == 3
    (bound,) = [*executable.plans.exact.values(), *executable.plans.shared.values()]
    (lease,) = bound.leases.idle
    assert bound.leases.acquire(5) is lease
    assert (len(cuda.prepared), len(cuda.allocated)) == (prepared, allocated)


def test_arrays_that_move_from_host_to_gpu_are_used_in_place(
        executable: Executable, cuda: FakeCuda) -> None:  # noqa: F811
    executable.run({"x": np.ones((8, 64), "f4"), "z": np.ones((8, 64), "f4")})
    cuda.copies.clear()
    _run(executable)
    assert cuda.copies == []
