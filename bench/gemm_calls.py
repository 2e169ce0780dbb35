"""Host cost of direct GEMM calls beside torch and a bare driver launch; backward beside torch.

    python -m bench.gemm_calls --out bench/results/h200 [--only host,threads,numpy,backward]

Host figures are medians over rounds of many calls, each call timed on a queue that never fills;
candidates are interleaved. Backward figures are GPU times of measure(). The machine's CPU decides
host figures: compare ratios.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from ge2.contract import ActKind
from ge2.evidence.measure import measure
from ge2.ops import _ops_gemm as gemm

from .targets import Found, Section, Verdict, judged, paired, wrong

Call = Callable[[], Any]
CALLS, ROUNDS, THREADS = 200, 25, 8
ERROR = 1e-2  # largest relative L2 difference of gradients
BARE, LINEAR = "bare cuLaunchKernel, packed arguments", "torch F.linear"
# Call -> what it is held against, and the wanted share of that.
HOST: Mapping[str, tuple[str, float]] = {
    "forward on Tensors": (LINEAR, 0.35), "forward on torch tensors": (LINEAR, 0.6),
    "forward on CuPy arrays": (LINEAR, 0.6), "plan, same pointers": (BARE, 0.6),
    "plan, new pointers each call": (BARE, 0.9)}


def host_samples(calls: Mapping[str, Call]) -> dict[str, list[float]]:
    """Return microseconds of host time per call, one value a round, interleaved."""
    import torch

    for call in calls.values():
        for _ in range(20):
            call()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter() - start) / CALLS * 1e6)
    torch.cuda.synchronize()
    return samples


def small_calls() -> dict[str, Call]:
    """16 x 16 + bias + relu, every way of calling it."""
    import cupy
    import torch

    a, b, w, bias = (torch.randn(s, device="cuda") for s in ((16, 16), (16, 16), (16, 16), (16,)))
    y = torch.empty(16, 16, device="cuda")
    ca, cb, cbias, cy = (cupy.asarray(x) for x in (a, b, bias, y))
    attrs = gemm.GemmAttrs(act=ActKind.RELU)
    tensors = [gemm.as_tensor(x) for x in (a, b, bias, y)]
    plan = gemm.plan(a, b, bias, y, attrs)
    others = [torch.empty_like(y) for _ in range(2)]
    pointers = [[a.data_ptr(), b.data_ptr(), bias.data_ptr(), o.data_ptr()] for o in others]
    turn = iter(range(1 << 62))
    linear = torch.nn.functional.linear
    return {
        BARE: bare_launch(),
        LINEAR: lambda: linear(a, w, bias),
        "torch addmm + relu": lambda: torch.relu(torch.addmm(bias, a, b)),
        "forward on Tensors": lambda: gemm.forward(*tensors, attrs, None),
        "forward on torch tensors": lambda: gemm.forward(a, b, bias, y, attrs, None),
        "forward on CuPy arrays": lambda: gemm.forward(ca, cb, cbias, cy, attrs, None),
        "plan, same pointers": lambda: plan(0),
        "plan, new pointers each call": lambda: plan(0, pointers[next(turn) & 1]),
    }


def bare_launch() -> Call:
    """Return a call of cuLaunchKernel with arguments that were packed before."""
    import ctypes

    import cupy
    from cuda.bindings import driver

    kernel = cupy.RawKernel('extern "C" __global__ void nothing(float*, float*, int, int) {}',
                            "nothing")
    kernel.compile()
    values = (ctypes.c_void_p(0), ctypes.c_void_p(0), ctypes.c_int(1), ctypes.c_int(2))
    packed = (ctypes.c_void_p * 4)(*[ctypes.addressof(v) for v in values])
    function = driver.CUfunction(kernel.kernel.ptr)
    stream = driver.CUstream(0)
    address = ctypes.addressof(packed)

    def call(_keep: Any = (kernel, values, packed)) -> None:
        driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, address, 0)

    return call


def host(section: Section) -> None:
    """Time every way of calling against what it is held against."""
    samples = host_samples(small_calls())
    verdicts = []
    for name, (other, goal) in HOST.items():
        ratios = [ours / theirs for ours, theirs in zip(samples[name], samples[other],
                                                        strict=True)]
        verdicts.append(judged("host cost of a 16 x 16 call", name, goal, ratios, at_most=True,
                               note=f"x {other[:24]}, {statistics.median(samples[name]):.2f} us"))
    section.add("host_us", {name: statistics.median(s) for name, s in samples.items()})
    section.conclude(verdicts)


def threads(section: Section) -> None:
    """Compare calls a second from 8 threads, each with its own operands, with those of one."""
    section.run("threads", _threads)


def _threads() -> Found:
    import torch

    attrs = gemm.GemmAttrs(act=ActKind.RELU)

    def caller() -> Call:
        x, w, bias, y = (gemm.as_tensor(torch.randn(s, device="cuda"))
                         for s in ((16, 16), (16, 16), (16,), (16, 16)))
        return lambda: gemm.forward(x, w, bias, y, attrs, None)

    def rate(count: int) -> float:
        """Return calls a second of several threads together."""
        calls = [caller() for _ in range(count)]
        ready = threading.Barrier(count + 1)

        def work(call: Call) -> None:
            for _ in range(20):
                call()
            ready.wait()
            for _ in range(10 * CALLS):
                call()

        running = [threading.Thread(target=work, args=(call,)) for call in calls]
        for thread in running:
            thread.start()
        ready.wait()
        start = time.perf_counter()
        for thread in running:
            thread.join()
        taken = time.perf_counter() - start
        torch.cuda.synchronize()
        return count * 10 * CALLS / taken

    rates = [(rate(1), rate(THREADS)) for _ in range(8)]
    return {"one": [a for a, _ in rates], "eight": [b for _, b in rates]}, [judged(
        "throughput of 8 threads, one thread's", "forward on Tensors", 0.5,
        [b / a for a, b in rates], note=f"{statistics.median(b for _, b in rates):.0f} calls/s")]


def numpy_gap(section: Section) -> None:
    """Time until the result is there: forward on the GPU, forward_numpy. The gap must grow towards
    small sizes."""
    import numpy as np
    import torch

    gaps: dict[int, float] = {}
    for n in (4096, 1024, 256, 64, 16):
        array = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
        a = torch.from_numpy(array).cuda()
        y = torch.empty_like(a)

        def direct(a: Any = a, y: Any = y) -> None:
            gemm.forward(a, a, None, y, gemm.GemmAttrs())
            torch.cuda.synchronize()

        def convenient(array: Any = array) -> None:
            gemm.forward_numpy(array, array)

        calls = {"forward": direct, "forward_numpy": convenient}
        samples: dict[str, list[float]] = {name: [] for name in calls}
        for round_ in range(21 if n < 1024 else 7):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                if round_:
                    samples[name].append((time.perf_counter() - start) * 1e6)
        ratios = [b / a for a, b in zip(*samples.values(), strict=True)]
        gaps[n] = statistics.median(ratios)
        section.add(f"{n}^3", {name: statistics.median(s) for name, s in samples.items()}, [judged(
            "forward_numpy, forward", f"{n}^3 f32", 0.0, ratios,
            note=f"x forward, {statistics.median(samples['forward']):.1f} us")])
    grows = all(gaps[small] > gaps[large] for small, large in ((16, 256), (256, 4096)))
    section.conclude([Verdict("forward_numpy, forward: the gap grows towards small sizes",
                              "16^3 over 4096^3", 1.0, gaps[16] / gaps[4096], grows)])


def backward(section: Section) -> None:
    """Linear + gelu backward against torch eager, GPU time."""
    shapes = ((128,) * 3, (256,) * 3, (512,) * 3, (1024,) * 3, (2048,) * 3, (4096,) * 3,
              (4096, 1536, 384))
    for kind in ("float32", "bfloat16"):
        for shape in shapes:
            section.run(f"{kind} {'x'.join(map(str, shape))}",
                        lambda kind=kind, shape=shape: _backward(kind, shape, "ieee"))
    section.run("float32 x3 4096x4096x4096", lambda: _backward("float32", (4096,) * 3, "x3"))


def _goal(shape: tuple[int, int, int], f32: str) -> tuple[str, float]:
    if f32 == "x3":
        return "backward 4096^3 with f32x3, torch eager", 2.0
    if max(shape) <= 512:
        return "backward up to 512^3, torch eager", 1.3
    return "backward above 512^3, torch eager", 1.0


def _backward(kind: str, shape: tuple[int, int, int], f32: str) -> Found:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    (m, n, k), dtype = shape, getattr(torch, kind)
    x, w, bias, g_y = (torch.randn(s, device="cuda").to(dtype)
                       for s in ((m, k), (n, k), (n,), (m, n)))
    z = torch.nn.functional.linear(x, w, bias)
    grads = [torch.empty_like(t) for t in (x, w, bias)]
    attrs = gemm.GemmAttrs(trans_b=True, act=ActKind.GELU, f32=f32)

    def ours(stream: int) -> None:
        gemm.backward(x, w, None, g_y, z, grads[0], grads[1], None, grads[2], attrs, stream)

    def torch_gradients() -> tuple[Any, Any, Any]:
        d_z = torch.ops.aten.gelu_backward(g_y, z)
        return torch.mm(d_z, w), torch.mm(d_z.t(), x), d_z.sum(0)

    def theirs(stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            torch_gradients()

    ours(0)
    torch.cuda.synchronize()
    error = max(float((ours_.float() - wanted.float()).norm() / wanted.float().norm())
                for ours_, wanted in zip(grads, torch_gradients(), strict=True))
    times = measure({"ge2": ours, "torch": theirs}, cold=False, rounds=15, warm_up_us=200_000.0)
    target, goal = _goal(shape, f32)
    verdict = judged(target, f"{kind} {'x'.join(map(str, shape))} {f32}", goal,
                     paired(times["torch"], times["ge2"]),
                     note=f"x torch, {times['ge2'].median:.1f} us, error {error:.0e}")
    verdicts = [verdict] if error < ERROR else wrong([verdict], f"WRONG: error {error:.1e}")
    return {**{name: t.median for name, t in times.items()}, "error": error}, verdicts


SECTIONS: Mapping[str, Callable[[Section], None]] = {
    "host": host, "threads": threads, "numpy": numpy_gap, "backward": backward}


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True)
@click.option("--only", default="", help=f"comma list of {', '.join(SECTIONS)}")
def main(out: Path, only: str) -> None:
    """Run the tables; each has a file of its own."""
    for name in only.split(",") if only else SECTIONS:
        section = Section(out / f"gemm_calls_{name}.json")
        SECTIONS[name](section)
        section.summary()


if __name__ == "__main__":
    main()
