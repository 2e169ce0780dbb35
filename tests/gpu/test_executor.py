"""The executor on a GPU: kinds of arrays, streams, threads, changed pointers, views, shapes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.ir.text import parse_graph
from ge2.errors import DtypeMismatch, Invalid, MissingInput, ShapeMismatch
from ge2.runtime import cpu, jit
from ge2.runtime.executor import Executable

cupy = pytest.importorskip("cupy")

MODEL = """
input x: f32[batch, 64]
const w1: f32[64, 96]
const b1: f32[96]
const w2: f32[96, 10]
h = MATMUL(x, w1)
a = ADD(h, b1)
r = RELU(a)
l = MATMUL(r, w2)
p = SOFTMAX(l, axis=-1)
t = TRANSPOSE(p, perm=[1, 0])
output p, t
"""


def _graph(text: str = MODEL) -> Graph:
    return parse_graph(text, infer=lambda op, types, attrs: opdefs.infer(op, types, attrs))


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = _graph()
    draw = np.random.default_rng(0)
    for name, array in made.constants.items():
        made.constants[name] = (0.2 * draw.standard_normal(array.shape)).astype("f4")
    return made


@pytest.fixture(scope="module")
def executable(graph: Graph) -> Executable:
    return Executable(graph, backend="cuda")


def _x(batch: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, 64)).astype("f4")


def _check(graph: Graph, x: np.ndarray, found: dict) -> None:
    expected = cpu.run_graph(graph, {"x": x}, dtype="f64")
    for name in graph.outputs:
        np.testing.assert_allclose(cupy.asnumpy(found[name]), expected[name], atol=2e-6)


def test_numpy_in_numpy_out(graph: Graph, executable: Executable) -> None:
    x = _x()
    found = executable.run({"x": x})
    assert all(type(y) is np.ndarray for y in found.values())
    _check(graph, x, found)


def test_cupy_in_cupy_out(graph: Graph, executable: Executable) -> None:
    x = cupy.asarray(_x())
    found = executable.run({"x": x})
    assert all(type(y) is cupy.ndarray for y in found.values())
    _check(graph, cupy.asnumpy(x), found)


def test_torch_in_torch_out(graph: Graph, executable: Executable) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(_x()).cuda()
    found = executable.run({"x": x})
    assert all(isinstance(y, torch.Tensor) and y.is_cuda for y in found.values())
    _check(graph, x.cpu().numpy(), {k: v.cpu().numpy() for k, v in found.items()})
    on_host = executable.run({"x": x.cpu()})
    assert all(isinstance(y, torch.Tensor) and not y.is_cuda for y in on_host.values())


def test_strided_and_unaligned_inputs_are_read_in_place(graph: Graph, executable: Executable,
                                                        ) -> None:
    wide = cupy.asarray(np.random.default_rng(1).standard_normal((9, 200)).astype("f4"))
    for x in (wide[:5, 1:65], wide[::2, 8:136:2], wide[:5, 64:0:-1], wide.T[:64, :5].T):
        found = executable.run({"x": x})
        _check(graph, cupy.asnumpy(x), found)


def test_results_are_written_into_the_caller_s_arrays(graph: Graph, executable: Executable,
                                                      ) -> None:
    x, p = cupy.asarray(_x()), cupy.full((5, 10), np.nan, "f4")
    found = executable.run({"x": x}, outputs={"p": p})
    assert found["p"] is p
    _check(graph, cupy.asnumpy(x), found)


def test_pointers_may_change_at_every_call(graph: Graph, executable: Executable) -> None:
    calls = [cupy.asarray(_x(seed=i)) for i in range(6)]
    results = [executable.run({"x": x}) for x in calls]
    for x, found in zip(calls, results, strict=True):
        _check(graph, cupy.asnumpy(x), found)


def test_a_new_batch_size_compiles_nothing(graph: Graph) -> None:
    executable = Executable(graph, backend="cuda")
    executable.run({"x": cupy.asarray(_x(64))})
    before = len(jit._table.functions)
    for batch in (128, 256, 192):
        x = cupy.asarray(_x(batch))
        _check(graph, cupy.asnumpy(x), executable.run({"x": x}))
    assert len(jit._table.functions) == before


def test_streams_that_alternate_stay_ordered(graph: Graph, executable: Executable) -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    calls = []
    for i in range(12):
        x = cupy.asarray(_x(33, seed=i))
        cupy.cuda.Device().synchronize()
        stream = streams[i % 3]
        with stream:
            calls.append((x, executable.run({"x": x})))
    cupy.cuda.Device().synchronize()
    for x, found in calls:
        _check(graph, cupy.asnumpy(x), found)


def test_threads_call_one_executable_at_once(graph: Graph, executable: Executable) -> None:
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
                for i in range(10):
                    x = cupy.asarray(_x(17, seed=100 * seed + i))
                    found = executable.run({"x": x})
                    stream.synchronize()
                    _check(graph, cupy.asnumpy(x), found)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_synchronous_mode_gives_the_same_numbers(graph: Graph, executable: Executable,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    x = cupy.asarray(_x(7))
    first = executable.run({"x": x})
    monkeypatch.setenv("GE2_SYNC", "1")
    second = Executable(graph, backend="cuda").run({"x": x})
    assert (cupy.asnumpy(second["p"]) == cupy.asnumpy(first["p"])).all()


def test_capture_replays_on_new_contents(graph: Graph, executable: Executable) -> None:
    x, p = cupy.asarray(_x(11)), cupy.empty((11, 10), "f4")
    t = cupy.empty((10, 11), "f4")
    executable.run({"x": x}, outputs={"p": p, "t": t})
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        stream.begin_capture()
        executable.run({"x": x}, outputs={"p": p, "t": t})
        captured = stream.end_capture()
    for seed in (1, 2):
        x.set(_x(11, seed))
        cupy.cuda.Device().synchronize()
        captured.launch(stream)
        stream.synchronize()
        _check(graph, cupy.asnumpy(x), {"p": p, "t": t})


def test_host_arrays_cannot_be_captured(executable: Executable) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        with pytest.raises(Invalid, match="host arrays"):
            executable.run({"x": _x()}, stream=stream)
        stream.end_capture()


def test_torch_graphs_capture_the_executor(graph: Graph, executable: Executable) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(_x(6)).cuda()
    executable.run({"x": x})
    captured = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(captured):
        found = executable.run({"x": x})
    x.copy_(torch.from_numpy(_x(6, 3)))
    captured.replay()
    torch.cuda.synchronize()
    _check(graph, _x(6, 3), {k: v.cpu().numpy() for k, v in found.items()})


def test_results_are_bitwise_equal_from_run_to_run(executable: Executable) -> None:
    x = cupy.asarray(_x(129))
    first = cupy.asnumpy(executable.run({"x": x})["p"])
    for _ in range(5):
        assert (cupy.asnumpy(executable.run({"x": x})["p"]) == first).all()


def test_an_empty_batch_gives_empty_results(executable: Executable) -> None:
    found = executable.run({"x": cupy.empty((0, 64), "f4")})
    assert found["p"].shape == (0, 10) and found["t"].shape == (10, 0)


@pytest.mark.parametrize(("feeds", "error"), [
    ({}, MissingInput),
    ({"x": np.zeros((5, 63), "f4")}, ShapeMismatch),
    ({"x": np.zeros((5, 64), "f8")}, DtypeMismatch),
    ({"x": np.zeros((5, 64), "f4"), "z": np.zeros(3, "f4")}, Invalid),
])
def test_unfit_feeds_are_refused_by_name(executable: Executable, feeds: dict, error: type,
                                         ) -> None:
    with pytest.raises(error):
        executable.run(feeds)
