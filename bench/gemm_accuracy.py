"""Errors of f32 products against float64, beside cuBLAS: max |error| / (|A| |B|) of an element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ge2.compiler.kernels import registry, selector
from ge2.runtime.device import CudaDevice

from .candidates import problem_candidate
from .gemm_cases import gemm_problem
from .targets import Section, Verdict

if TYPE_CHECKING:
    from .side_by_side import Bench

MODES = ("ieee", "tf32", "x3")
X3 = "f32x3: max |error| / (|A| |B|), cuBLAS f32's"
TF32 = "tf32: the error of cuBLAS tf32 (inputs rounded)"
SPECIAL = "f32x3: NaN and Inf as cuBLAS f32 gives them"


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
    for k in (4096, 16384):
        a, b = (torch.randn((1024, k), device="cuda", generator=draw) for _ in range(2))
        scale = torch.randint(-40, 40, a.shape, device="cuda", generator=draw)
        yield f"wide exponents K={k}", torch.ldexp(a, scale), b


def run(bench: Bench, section: Section) -> None:
    """Compare errors by operands and by who multiplied."""
    import torch

    for name, a, b in operands():
        section.run(name, lambda name=name, a=a, b=b: _errors(bench.device, name, a, b))
        torch.cuda.empty_cache()
    section.run("NaN and Inf", lambda: _special(bench.device))


def _errors(device: CudaDevice, name: str, a: Any, b: Any
            ) -> tuple[dict[str, float], list[Verdict]]:
    exact, scale = a.double() @ b.double().t(), a.double().abs() @ b.double().abs().t()
    row: dict[str, float] = {}
    for label, y in _results(device, a, b):
        error = (y.double() - exact).abs()
        row[label] = float((error / scale).max())
        row[f"{label} relative norm"] = float(error.norm() / exact.norm())
    verdicts = []
    for label, error in row.items():
        if "x3" in label and "norm" not in label:
            verdicts.append(_at_most(X3, f"{name}, {label}", 1.0, error / row["cuBLAS f32"]))
        if "tf32" in label and label.startswith("ge2") and "norm" in label:
            ratio = error / row["cuBLAS tf32 relative norm"]
            verdicts.append(_at_most(TF32, f"{name}, {label}", 1.05, ratio))
    return row, verdicts


def _at_most(target: str, case: str, goal: float, value: float) -> Verdict:
    return Verdict(target, case, goal, value, value <= goal, at_most=True)


def _special(device: CudaDevice) -> tuple[dict[str, float], list[Verdict]]:
    """Put NaN, infinities, and what overflows into operands; count elements of another kind."""
    import torch

    draw = torch.Generator(device="cuda").manual_seed(1)
    a, b = (torch.randn((1024, 2048), device="cuda", generator=draw) for _ in range(2))
    for row, value in enumerate((float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e-40)):
        a[3 * row, 7 * row] = value
        b[5 * row, 11 * row] = value
    results = dict(_results(device, a, b))
    wanted = results["cuBLAS f32"]
    found, verdicts = {}, []
    for label, y in results.items():
        differ = (y.isnan() != wanted.isnan()) | (y.isinf() != wanted.isinf())
        differ |= wanted.isinf() & (y != wanted)
        found[label] = int(differ.sum())
        if "x3" in label:
            verdicts.append(_at_most(SPECIAL, label, 0.0, found[label]))
    return found, verdicts


def _results(device: CudaDevice, a: Any, b: Any) -> Iterator[tuple[str, Any]]:
    import torch

    for label, allow in (("cuBLAS f32", False), ("cuBLAS tf32", True)):
        torch.backends.cuda.matmul.allow_tf32 = allow
        yield label, a @ b.t()
    m, k = a.shape
    for mode in MODES:
        problem = gemm_problem((m, b.shape[0], k), "f32", "none", bias=False, f32=mode)
        kernels = [x for x in registry.kernels_for("GEMM_BIAS_ACT")
                   if mode == "ieee" or x.name.endswith("wgmma_f32")]
        seen: set[object] = set()
        for report in selector.rank(problem, device.profile, kernels=kernels):
            if report.score is None:
                continue
            variant = registry.variant(report.variant_id)
            if variant.numerics in seen or variant.kernel.name == "gemm_bias_act_f32":
                continue
            seen.add(variant.numerics)
            yield f"ge2 {variant.numerics}", _ours(device, problem, variant, a, b)


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
