"""Errors of f32 products against float64, beside cuBLAS: max |error| / (|A| |B|) of an element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ge2.compiler.kernels import registry, selector
from ge2.runtime.device import CudaDevice

from .candidates import problem_candidate
from .gemm_cases import gemm_case

MODES = ("ieee", "tf32", "x3")


def operands() -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, A [M, K], B [N, K]) as torch tensors."""
    import torch

    draw = torch.Generator(device="cuda").manual_seed(0)
    for k in (256, 2048, 4096, 16384):
        shape = (1024, k)
        yield f"normal K={k}", *(torch.randn(shape, device="cuda", generator=draw)
                                 for _ in range(2))
        yield f"uniform(0,1) K={k}", *(torch.rand(shape, device="cuda", generator=draw)
                                       for _ in range(2))
    a, b = (torch.randn((1024, 4096), device="cuda", generator=draw) for _ in range(2))
    scale = torch.randint(-40, 40, a.shape, device="cuda", generator=draw)
    yield "wide exponents K=4096", torch.ldexp(a, scale), b


def run(device: CudaDevice) -> dict[str, Any]:
    """Return errors by operands and by who multiplied; also prints them."""
    import torch

    found: dict[str, Any] = {}
    for name, a, b in operands():
        exact, scale = a.double() @ b.double().t(), a.double().abs() @ b.double().abs().t()
        row: dict[str, float] = {}
        for label, y in _results(device, a, b):
            error = (y.double() - exact).abs()
            row[label] = float((error / scale).max())
            row[f"{label} relative norm"] = float(error.norm() / exact.norm())
        found[name] = row
        torch.cuda.empty_cache()
        click.echo(f"{name:24} " + "  ".join(f"{k} {v:.2e}" for k, v in row.items()
                                             if "norm" not in k))
    return found


def _results(device: CudaDevice, a: Any, b: Any) -> Iterator[tuple[str, Any]]:
    import torch

    for label, allow in (("cuBLAS f32", False), ("cuBLAS tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = allow
        yield label, a @ b.t()
    m, k = a.shape
    shape = (m, b.shape[0], k)
    for mode in MODES:
        case = gemm_case(shape, "f32", "none", bias=False, f32=mode)
        kernels = [x for x in registry.kernels_for("GEMM_BIAS_ACT")
                   if mode == "ieee" or x.name.endswith("wgmma_f32")]
        seen: set[object] = set()
        for report in selector.rank(case.problem, device.profile, kernels=kernels):
            if report.score is None:
                continue
            variant = registry.variant(report.variant_id)
            if variant.numerics in seen or variant.kernel.name == "gemm_bias_act_f32":
                continue
            seen.add(variant.numerics)
            yield f"ge2 {variant.numerics}", _ours(device, case.problem, variant, a, b)


def _ours(device: CudaDevice, problem: Any, variant: Any, a: Any, b: Any) -> Any:
    import cupy
    import torch

    y = torch.full((a.shape[0], b.shape[0]), float("nan"), device="cuda")
    arrays = [cupy.asarray(x) for x in (a.reshape(-1), b.reshape(-1))]
    out = cupy.asarray(y.reshape(-1))
    torch.cuda.synchronize()
    problem_candidate(problem, device, [[*arrays, None, None, out]], variant).launches[0](0)
    torch.cuda.synchronize()
    return y
