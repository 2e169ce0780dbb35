"""Host cost of direct GEMM calls beside torch and a bare driver launch.

    python -m bench.gemm_calls --out bench/results/h200

Host figures are medians over rounds of many calls, each call timed on a queue that never fills;
candidates are interleaved. Backward figures are GPU times of measure(). The machine's CPU decides
host figures: compare ratios.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ge2.contract import ActKind
from ge2.ops import _ops_gemm as gemm

from .results import write_results

Call = Callable[[], Any]
CALLS, ROUNDS = 200, 25


def host_cost(calls: dict[str, Call]) -> dict[str, float]:
    """Return the median microseconds of host time per call, interleaved."""
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
    return {name: statistics.median(values) for name, values in samples.items()}


def small_calls() -> dict[str, float]:
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
    return host_cost({
        "bare cuLaunchKernel, packed arguments": bare_launch(),
        "torch F.linear": lambda: linear(a, w, bias),
        "torch addmm + relu": lambda: torch.relu(torch.addmm(bias, a, b)),
        "forward on Tensors": lambda: gemm.forward(*tensors, attrs, None),
        "forward on torch tensors": lambda: gemm.forward(a, b, bias, y, attrs, None),
        "forward on CuPy arrays": lambda: gemm.forward(ca, cb, cbias, cy, attrs, None),
        "plan, same pointers": lambda: plan(0),
        "plan, new pointers each call": lambda: plan(0, pointers[next(turn) & 1]),
    })


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


def numpy_gap() -> dict[str, float]:
    """Microseconds until the result is there: forward on the GPU, forward_numpy."""
    import numpy as np
    import torch

    found = {}
    for n in (16, 64, 256, 1024, 4096):
        host = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
        a = torch.from_numpy(host).cuda()
        y = torch.empty_like(a)

        def direct(a: Any = a, y: Any = y) -> None:
            gemm.forward(a, a, None, y, gemm.GemmAttrs())
            torch.cuda.synchronize()

        def convenient(host: Any = host) -> None:
            gemm.forward_numpy(host, host)

        repeats = 20 if n < 1024 else 3
        for name, call in (("forward", direct), ("forward_numpy", convenient)):
            call()
            samples = []
            for _ in range(repeats):
                start = time.perf_counter()
                call()
                samples.append((time.perf_counter() - start) * 1e6)
            found[f"{name} {n}"] = statistics.median(samples)
    return found


def backward_times() -> dict[str, dict[str, float]]:
    """Linear + gelu backward against torch eager, GPU time in microseconds."""
    import torch

    from ge2.evidence.measure import measure

    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        for m, n, k in ((128,) * 3, (512,) * 3, (1024,) * 3, (4096,) * 3, (4096, 1536, 384)):
            x, w, bias, g_y = (torch.randn(s, device="cuda").to(dtype)
                               for s in ((m, k), (n, k), (n,), (m, n)))
            z = torch.nn.functional.linear(x, w, bias)
            grads = [torch.empty_like(t) for t in (x, w, bias)]
            attrs = gemm.GemmAttrs(trans_b=True, act=ActKind.GELU)

            def ours(stream: int, t: Any = (x, w, g_y, z, *grads), attrs: Any = attrs) -> None:
                gemm.backward(t[0], t[1], None, t[2], t[3], t[4], t[5], None, t[6], attrs, stream)

            def theirs(stream: int, t: Any = (x, w, g_y, z)) -> None:
                with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                    d_z = torch.ops.aten.gelu_backward(t[2], t[3])
                    torch.mm(d_z, t[1])
                    torch.mm(d_z.t(), t[0])
                    d_z.sum(0)

            times = measure({"ge2": ours, "torch": theirs}, cold=False, rounds=15)
            found[f"{str(dtype)[6:]} {m}x{n}x{k}"] = {
                name: timing.median for name, timing in times.items()}
    return found


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(out: Path) -> None:
    """Run all tables."""
    small = small_calls()
    for name, cost in small.items():
        click.echo(f"{name:42} {cost:8.2f} us  {cost / small['torch F.linear']:6.2f} x F.linear")
    gap = numpy_gap()
    for name, cost in gap.items():
        click.echo(f"{name:42} {cost:10.1f} us")
    backward = backward_times()
    for name, times in backward.items():
        click.echo(f"backward {name:33} {times['ge2']:10.1f} us  "
                   f"{times['torch'] / times['ge2']:6.2f} x torch")
    write_results(out / "gemm_calls.json",
                  {"host_us": small, "until_result_us": gap, "backward_us": backward})


if __name__ == "__main__":
    main()
