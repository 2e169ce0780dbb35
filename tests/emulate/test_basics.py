"""Values of simple kernels, and one fault of each kind that needs no asynchronous copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ge2.errors import CompileFailed, EnvironmentUnusable, LaunchFailed
from ge2.runtime import emulate

from .harness import Case, faults

SHIFT = Case(
    """#include <ge2/shared.cuh>
struct Args { const float* x; float* y; int n; };
extern "C" __global__ void __launch_bounds__(256) kernel(const __grid_constant__ Args args) {
  float* tile = reinterpret_cast<float*>(ge2::shared_memory());
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < args.n ? args.x[i] : 0.0f;
  __syncthreads();
  const float next = tile[(threadIdx.x + 1) % blockDim.x];
  const float pair = next + __shfl_xor_sync(0xffffffffu, next, 1);
  if (i < args.n) args.y[i] = pair;
}
""",
    inputs={"x": np.arange(1000, dtype=np.float32)},
    outputs={"y": ((1000,), "f4")},
    scalars={"n": ("i4", 1000)},
    grid=(4, 1, 1), block=(256, 1, 1), smem=1024,
)


def shifted(x: np.ndarray) -> np.ndarray:
    """Reference of SHIFT."""
    padded = np.zeros(1024, x.dtype)
    padded[: x.size] = x
    following = np.roll(padded.reshape(4, 256), -1, axis=1).reshape(-1, 2)
    return np.repeat(following.sum(1), 2)[: x.size]


def test_shared_memory_barriers_and_shuffles_give_the_values_of_the_gpu() -> None:
    """The kernel's result equals NumPy's."""
    assert np.array_equal(SHIFT.run()["y"], shifted(SHIFT.inputs["x"]))


def test_a_finding_names_kernel_line_block_thread_and_address() -> None:
    """One element too many: the report says where, who, and which byte of which buffer."""
    text = SHIFT.text.replace("if (i < args.n) args.y[i]", "if (i <= args.n) args.y[i]")
    with pytest.raises(emulate.EmulationError) as caught:
        SHIFT.run(text)
    (finding,) = caught.value.report.findings
    assert finding.kind == "out of bounds"
    assert (finding.kernel, finding.line) == ("kernel", 10)
    assert (finding.block, finding.thread) == ((3, 0, 0), (232, 0, 0))
    assert "y + 4000 of 4000 bytes" in finding.message
    assert finding.address > 0


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("  __syncthreads();\n", "", "data race"),
    ("  __syncthreads();\n", "  if (threadIdx.x < 128) __syncthreads();\n", "barrier divergence"),
    ("args.x[i] : 0.0f", "args.x[i + 1] : 0.0f", "out of bounds"),
    ("tile[threadIdx.x] =", "if (threadIdx.x) tile[threadIdx.x] =", "uninitialised read"),
    ("tile[threadIdx.x] =", "tile[threadIdx.x + 1] =", "out of bounds"),
    ("args.x[i] :", "*(const float*)((const char*)(args.x + i) + 2) :", "misaligned access"),
    ("args.y[i] = pair", "const_cast<float*>(args.x)[i] = pair", "write to input"),
    ("args.y[i] = pair", "args.y[i / 2] = pair", "data race"),
    ("0xffffffffu, next", "0x7fffffffu, next", "bad mask"),
    ("next, 1);", "next, 1, 31);", "bad shuffle"),
    ("const int i =", "if (blockIdx.x == 1 && threadIdx.x > 9) return;\n  const int i =",
     "barrier divergence"),
    ("blockDim.x];", "blockDim.x];\n  int zero = args.n - 1000, q = 5 / zero; tile[q] = 0;",
     "division by zero"),
])
def test_faults_are_found(old: str, new: str, kind: str) -> None:
    """Each change breaks the kernel in the way that the finding names."""
    assert old in SHIFT.text
    assert kind in faults(SHIFT, SHIFT.text.replace(old, new, 1))


def test_an_endless_kernel_ends_at_the_step_limit() -> None:
    """A loop that never ends is one finding, not a hang."""
    text = SHIFT.text.replace("  __syncthreads();", "  while (args.n > 0) {}\n")
    with pytest.raises(emulate.EmulationError, match="step limit"):
        SHIFT.run(text, step_limit=100_000)


def test_a_launch_that_the_driver_would_refuse_is_refused() -> None:
    """Too much shared memory names the limit; so does too large a block."""
    big = Case(SHIFT.text, SHIFT.inputs, SHIFT.outputs, SHIFT.scalars, block=(256, 1, 1),
               smem=300_000)
    with pytest.raises(LaunchFailed, match="232448"):
        big.run()
    wide = Case(SHIFT.text, SHIFT.inputs, SHIFT.outputs, SHIFT.scalars, block=(1025, 1, 1))
    with pytest.raises(LaunchFailed, match="1024"):
        wide.run()
    bounded = Case(SHIFT.text, SHIFT.inputs, SHIFT.outputs, SHIFT.scalars, block=(512, 1, 1))
    with pytest.raises(LaunchFailed, match="at most 256 threads"):
        bounded.run()


def test_an_instruction_without_a_twin_is_named(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the function, and no temporary folder is left behind."""
    emulate.Memory()  # builds the runtime where it is kept
    monkeypatch.setattr(emulate.compiler, "cache_folder", lambda: tmp_path)
    text = SHIFT.text.replace("__syncthreads();", "ge2::ptx::frobnicate(1);")
    with pytest.raises(CompileFailed, match="no host twin of frobnicate"):
        SHIFT.run(text)
    assert not list(tmp_path.glob("tmp-*"))


def test_a_slip_is_not_taken_for_a_missing_twin() -> None:
    """A missing semicolon also leaves names undeclared; the first error is told, with its line."""
    text = SHIFT.text.replace("__syncthreads();", "const int a = 1\n const int b = a; y[b] = b;")
    with pytest.raises(CompileFailed, match=r":\d+:\d+: error: expected"):
        SHIFT.run(text)


def test_no_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a missing compiler nor a bad GE2_CXX gives a traceback from subprocess."""
    monkeypatch.setenv("GE2_CXX", "/no/such/compiler")
    with pytest.raises(EnvironmentUnusable, match="install g\\+\\+"):
        emulate.find_compiler()
    monkeypatch.delenv("GE2_CXX")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EnvironmentUnusable, match="found none"):
        emulate.find_compiler()


def test_bank_conflicts_are_counted_per_site() -> None:
    """Neighbours do not collide; a stride of 32 words collides 32-fold."""
    _, clean = SHIFT.report(bank_conflicts=True)
    assert clean.bank_conflicts == 0 and len(clean.banks) == 2
    text = SHIFT.text.replace("tile[(threadIdx.x + 1) % blockDim.x]",
                              "tile[threadIdx.x % 8 * 32 + threadIdx.x / 32]")
    _, bad = SHIFT.report(text, bank_conflicts=True)
    site = max(bad.banks, key=lambda s: s.conflicts)
    assert site.frame.line == 8
    assert site.wavefronts == 8 * site.ideal


def test_kernels_are_built_elsewhere_without_a_cache_folder(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that cannot be made costs the keeping of kernels, not the run."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "file" / "cache"))
    folder = emulate.compiler.cache_folder()
    assert folder.is_dir() and tmp_path not in folder.parents
