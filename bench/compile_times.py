"""How long NVRTC takes for kernels, nothing from a cache, beside a small kernel of fixed text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import ge2.launch_table as table
from ge2.compiler.kernels import source as sources_of
from ge2.evidence.device import DeviceProfile
from ge2.launch.record import KernelSource
from ge2.runtime import jit, nvrtc

from .targets import Section, Verdict, judged

if TYPE_CHECKING:
    from .side_by_side import Bench, Case

LARGEST = 3  # kernels timed of a family, those that took longest when the cache was filled
ROUNDS = 5
REFERENCE = """
extern "C" __global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float left[16][17], right[16][17];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0.0f;
  for (int first = 0; first < k; first += 16) {
    left[y][x] = row < m && first + x < k ? a[row * k + first + x] : 0.0f;
    right[y][x] = column < n && first + y < k ? b[(first + y) * n + column] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += left[y][i] * right[i][x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}
"""
"""The product by tiles in shared memory that textbooks show."""


def compile_ms(text: str, arch: str, options: Sequence[str] = ()) -> float:
    """Return the milliseconds that NVRTC takes for a source in this process."""
    folders = [str(folder) for folder in sources_of.Headers().folders]
    start = time.perf_counter()
    nvrtc.compile_text(text, "kernel.cu", nvrtc.target_for(arch), folders,
                       (*nvrtc.OPTIONS, *options))
    return 1e3 * (time.perf_counter() - start)


def kernels_of(cases: Iterable[Case], bench: Bench) -> list[KernelSource]:
    """Return the distinct kernels of cases."""
    return list(dict.fromkeys(
        record.kernel for case in cases for problem, variant in bench.work(case)
        for record in table.bind(problem, variant, bench.device.profile)))


def largest(kernels: Sequence[KernelSource], profile: DeviceProfile) -> list[KernelSource]:
    """Return the kernels that took longest to compile, here or where the cache was filled."""
    made = {kernel: done for kernel, done in jit.try_compile(kernels, profile.arch).items()
            if isinstance(done, jit.Compiled)}
    return sorted(made, key=lambda kernel: -made[kernel].meta.compile_ms)[:LARGEST]


def products(bench: Bench, section: Section) -> None:
    """Time the largest kernels of products and, in turns with them, the reference kernel."""
    from .gemm_cases import gemm_case
    from .side_by_side import Bench as Every

    every = Every(bench.device, variants=True)
    cases = [gemm_case((4096,) * 3, "bf16", "gelu"), gemm_case(
        (4096,) * 3, "f32", "none", bias=False, f32="x3")]
    arch = bench.device.profile.arch
    for kernel in largest(kernels_of(cases, every), bench.device.profile):
        text = sources_of.render(kernel)
        compile_ms(REFERENCE, arch)
        took, beside = [], []
        for _ in range(ROUNDS):
            took.append(compile_ms(text, arch, kernel.options))
            beside.append(compile_ms(REFERENCE, arch))
        name = name_of(kernel)
        ratio = statistics.median(a / b for a, b in zip(took, beside, strict=True))
        section.add(name, {"ms": took, "reference_ms": beside, "ratio": ratio}, [judged(
            "compile time of the largest kernel", name, 500.0, took, at_most=True, unit="ms",
            note=f"{ratio:.1f} x the reference kernel")])


def name_of(kernel: KernelSource) -> str:
    """Return a template with the short values of its context."""
    values = [f"{key}={value}" for key, value in kernel.context
              if isinstance(value, int | str) and len(str(value)) < 12]
    return f"{kernel.template.rsplit('/', 1)[-1].removesuffix('.cu.j2')} {','.join(values)}"


def generated(cases: Iterable[Case], bench: Bench, section: Section) -> None:
    """Time each kernel of generated operators once: median and maximum."""
    kernels = kernels_of(cases, bench)
    arch = bench.device.profile.arch
    compile_ms(REFERENCE, arch)
    found: dict[str, Any] = {}
    for kernel in kernels:
        found[name_of(kernel)] = compile_ms(sources_of.render(kernel), arch, kernel.options)
    times = sorted(found.values())
    slowest = max(found, key=lambda name: found[name])
    section.add("ms", found, [
        Verdict("compile time of a generated kernel", f"median of {len(times)}", 60.0,
                statistics.median(times), statistics.median(times) <= 60.0, at_most=True,
                unit="ms"),
        Verdict("compile time of a generated kernel", "maximum", 150.0, times[-1],
                times[-1] <= 150.0, at_most=True, unit="ms", note=slowest[:40])])
