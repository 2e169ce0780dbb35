"""The sections of bench.gpu_check."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import ge2.launch_table as table
from ge2.compiler.ir.expr import ExprBundle, input, maximum, tanh
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry, selector
from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.evidence.measure import Candidate, Timing, measure
from ge2.launch.params import encode_params
from ge2.problem import Problem, TensorSpec
from ge2.runtime.device import CudaDevice
from ge2.runtime.executor import Executable

from .candidates import buffer_sets, problem_bytes, problem_candidate, torch_candidate

CALLS = 2000


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what, how much, in which unit, compared with what."""

    section: str
    name: str
    value: float | str
    unit: str = ""
    note: str = ""


def gpu_tests(device: CudaDevice) -> Iterator[Row]:
    """Run tests/gpu in this process."""
    import pytest

    class Count:
        def __init__(self) -> None:
            self.outcomes = {"passed": 0, "failed": 0, "skipped": 0}

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.when == "call" or report.outcome != "passed":
                self.outcomes[report.outcome] += 1

    count = Count()
    pytest.main(["tests/gpu", "-q", "--maxfail=60", "-p", "no:cacheprovider",
                 "-W", "default", "--tb=short", "--durations=12", "-o", "timeout=400"],
                plugins=[count])
    for outcome, number in count.outcomes.items():
        yield Row("tests", outcome, number)


def _host_us(call: Callable[[], object], calls: int = CALLS) -> float:
    """Return the median host time of a call in microseconds."""
    import cupy

    for _ in range(50):
        call()
    cupy.cuda.Device().synchronize()
    samples = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(calls // 20):
            call()
        samples.append((time.perf_counter() - start) / (calls // 20) * 1e6)
        cupy.cuda.Device().synchronize()
    return statistics.median(samples)


def _elementwise(shape: tuple[int, ...], dtype: str = "f32") -> Problem:
    spec = TensorSpec.dense(dtype, shape)
    bundle = ExprBundle((maximum(input(0) + input(1), 0.0),))
    return Problem("ELEMENTWISE", (spec, spec), (spec,), (("expr", bundle),))


def launch_costs(device: CudaDevice) -> Iterator[Row]:
    """Host cost of each way to launch a small kernel."""
    import cupy

    problem = _elementwise((64, 64))
    x, y, z = (cupy.ones((64, 64), "f4") for _ in range(3))
    other = cupy.ones((64, 64), "f4")
    block = encode_params(problem)
    address = block.ctypes.data
    launch = table.launcher("elementwise_vec")
    bufs = [x.data.ptr, y.data.ptr, z.data.ptr, address]
    status = launch(bufs, 4, 0)
    assert status == 0, table.last_error()
    yield Row("launch", "plain launcher", _host_us(lambda: launch(bufs, 4, 0)), "us")
    records = table.bind(problem, selector.select(problem, device.profile).variant, device.profile)
    (unit,) = device.prepare(records)
    unit.args.patch(bufs)
    yield Row("launch", "prepared record, no patch", _host_us(lambda: unit(0)), "us")
    executable = Executable.for_problem(problem, backend="cuda")
    feeds = {"in0": x, "in1": y}
    out = {"out0": z}
    yield Row("launch", "executor, same pointers", _host_us(
        lambda: executable.run(feeds, outputs=out)), "us")
    turn = [{"in0": x, "in1": y}, {"in0": other, "in1": y}]
    yield Row("launch", "executor, a new pointer each call", _host_us(
        lambda: executable.run(turn.reverse() or turn[0], outputs=out)), "us")
    yield Row("launch", "executor, new output each call", _host_us(
        lambda: executable.run(feeds)), "us")
    yield Row("launch", "cupy.maximum(x + y, 0)", _host_us(
        lambda: cupy.maximum(x + y, 0.0)), "us")
    yield from _torch_launch()


def _torch_launch() -> Iterator[Row]:
    import torch

    a, b = (torch.ones((64, 64), device="cuda") for _ in range(2))
    c = torch.empty_like(a)
    yield Row("launch", "torch.add(out=)", _host_us(lambda: torch.add(a, b, out=c)), "us")


def _gbps(nbytes: int, timing: Timing) -> float:
    return nbytes / timing.median / 1e3


def _speeds(name: str, problem: Problem, device: CudaDevice,
            peer: Callable[[list[Any]], object] | None, nbytes: int = 0) -> Iterator[Row]:
    """Yield GB/s of the selector's choice, of a plain copy of as many bytes, and of a peer."""
    sets = buffer_sets(problem, device)
    nbytes = nbytes or problem_bytes(problem)
    choice = selector.select(problem, device.profile)
    candidates: dict[str, Candidate] = {
        "ge2": problem_candidate(problem, device, sets, choice.variant),
        "copy": _copy_candidate(nbytes, device),
    }
    if peer is not None:
        candidates["torch"] = torch_candidate(sets, nbytes, peer)
    found = measure(candidates, cold=True, l2_bytes=device.profile.l2_bytes, rounds=12)
    for key, timing in found.items():
        share = found["copy"].median / timing.median
        note = f"{timing}  {share:.2f} x copy"
        label = choice.variant.id if key == "ge2" else key
        yield Row("memory", f"{name}: {label}", _gbps(nbytes, timing), "GB/s", note)


def _copy_candidate(nbytes: int, device: CudaDevice) -> Candidate:
    """Return device-to-device copies that read and write nbytes together."""
    import cupy

    half = nbytes // 2
    count = max(2, -(-3 * device.profile.l2_bytes // nbytes))
    pairs = [(cupy.zeros(half, "u1"), cupy.zeros(half, "u1")) for _ in range(count)]

    def copy(pair: tuple[Any, Any]) -> Callable[[int], object]:
        return lambda stream: device.copy(pair[1].data.ptr, pair[0].data.ptr, half, stream)

    return Candidate([copy(pair) for pair in pairs], nbytes)


def memory_bound(device: CudaDevice) -> Iterator[Row]:
    """Elementwise and row kernels against a copy and torch."""
    import torch

    for dtype in ("f32", "f16"):
        problem = _elementwise((8192, 8192), dtype)
        yield from _speeds(f"relu(x+y) {dtype} 8192x8192", problem, device,
                           lambda t: torch.add(t[0], t[1], out=t[2]))
    spec = TensorSpec.dense("f32", (8192, 8192))
    chain = ExprBundle((tanh(input(0)) * 2.0 + maximum(input(1), 0.0),))
    yield from _speeds("tanh chain f32 8192x8192", Problem(
        "ELEMENTWISE", (spec, spec), (spec,), (("expr", chain),)), device, None)
    turned = TensorSpec("f32", (8192, 8192), (1, 8192))
    yield from _speeds("transpose f32 8192x8192", Problem(
        "ELEMENTWISE", (turned,), (spec,), (("expr", ExprBundle((input(0),))),)), device, None)
    for rows, n, dtype in ((16384, 4096, "f32"), (16384, 4096, "f16"), (262144, 256, "f16"),
                           (64, 1 << 20, "f32")):
        full = TensorSpec.dense(dtype, (rows, n))
        for name in ("softmax", "layer_norm", "sum"):
            op = build_row_op(name)
            extras = [TensorSpec(dtype, (rows, n), (0, 1))] * op.n_extras
            out = full if op.output == "row" else TensorSpec.dense(dtype, (rows,))
            problem = Problem("ROW", (full, *extras), (out,), (("row", op),))
            peer = ((lambda t, s=(rows, n): torch.ops.aten._softmax.out(
                t[0].view(s), -1, False, out=t[1].view(s)))
                    if name == "softmax" else None)
            yield from _speeds(f"{name} {dtype} {rows}x{n}", problem, device, peer)


def _gemm(m: int, n: int, k: int, dtype: str) -> Problem:
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 1.0, "act": "relu",
             "leaky_slope": 0.01,
             "epilogue": gemm_epilogue(dtype, (dtype, None), 1.0, 1.0, "relu", 0.01)}
    return Problem(
        "GEMM_BIAS_ACT",
        (TensorSpec.dense(dtype, (m, k)), TensorSpec.dense(dtype, (k, n)),
         TensorSpec(dtype, (m, n), (0, 1)), None),
        (TensorSpec.dense(dtype, (m, n)),), tuple(sorted(attrs.items())))


def gemms(device: CudaDevice) -> Iterator[Row]:
    """Every GEMM variant at 4096^3 against cuBLAS (torch.matmul, which adds no bias)."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    side = 4096
    for dtype in ("f32", "f16"):
        problem = _gemm(side, side, side, dtype)
        sets = buffer_sets(problem, device)
        candidates = {"cuBLAS": torch_candidate(
            sets, problem_bytes(problem),
            lambda t: torch.matmul(*(x.view(side, side) for x in t[:2]),
                                   out=t[4].view(side, side)))}
        for kernel in registry.kernels_for("GEMM_BIAS_ACT"):
            reports = selector.rank(problem, device.profile, kernels=[kernel])
            able = [r.variant_id for r in reports if r.score is not None]
            if kernel.name == "gemm_bias_act_f32" and dtype != "f32":
                able = []
            for variant_id in able:
                candidates[variant_id] = problem_candidate(
                    problem, device, sets, registry.variant(variant_id))
        found = measure(candidates, cold=True, l2_bytes=device.profile.l2_bytes, rounds=8)
        flops = 2.0 * side**3
        for name, timing in sorted(found.items(), key=lambda item: item[1].median):
            share = found["cuBLAS"].median / timing.median
            yield Row("gemm", f"{dtype} 4096^3 {name}", flops / timing.median / 1e6, "TFLOP/s",
                      f"{timing}  {share:.2f} x cuBLAS")
        chosen = selector.select(problem, device.profile).variant.id
        yield Row("gemm", f"{dtype} 4096^3 selected", chosen)
        del sets, candidates


def models(device: CudaDevice) -> Iterator[Row]:
    """Host time of a call of each example, with arrays on the GPU and on the host."""
    from pathlib import Path

    import cupy

    import ge2

    folder = Path(ge2.__file__).parents[1] / "examples" / "digits"
    images = np.load(folder / "images.npy")
    for file in ("model.json", "conv.json", "model-f16.json"):
        model = ge2.load(folder / file, backend="cuda")
        for batch in (1, 64, len(images)):
            feeds = {"images": cupy.asarray(images[:batch])}
            host = {"images": images[:batch]}
            call = model.executable.run
            yield Row("models", f"{file} batch {batch}, enqueue",
                      _host_us(lambda c=call, f=feeds: c(f), 400), "us")
            yield Row("models", f"{file} batch {batch}, NumPy in and out",
                      _host_us(lambda c=call, f=host: c(f), 400), "us")


def compile_times(device: CudaDevice) -> Iterator[Row]:
    """Sources that this process compiled or loaded."""
    from ge2.runtime import jit

    yield Row("compile", "functions loaded", len(jit._table.functions))
    yield Row("compile", "numpy", np.__version__)


SECTIONS: dict[str, Callable[[CudaDevice], Iterator[Row]]] = {
    "tests": gpu_tests,
    "launch": launch_costs,
    "memory": memory_bound,
    "gemm": gemms,
    "models": models,
    "compile": compile_times,
}
