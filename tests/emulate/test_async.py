"""Asynchronous copies: values, and that a missing wait, fence or barrier is found."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.launch.record import KernelSource, LaunchRecord
from ge2.runtime import emulate

from .harness import Case, faults

CP_ASYNC = Case(
    """#include <ge2/ptx/cp_async.cuh>
#include <ge2/shared.cuh>
struct Args { const float* x; float* y; int n; };
// Reverses each row of 128 floats; two stages in flight.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  float* tile = reinterpret_cast<float*>(ge2::shared_memory());
  const unsigned base = ge2::ptx::smem_address(tile);
  const int t = threadIdx.x;
  auto load = [&](int row) {
    const int at = row * 128 + t * 4, left = (args.n - at) * 4;
    const int bytes = left < 0 ? 0 : left < 16 ? left : 16;
    ge2::ptx::cp_async_16(base + (row % 2 * 128 + t * 4) * 4, args.x + (bytes ? at : 0), bytes);
    ge2::ptx::cp_async_commit();
  };
  load(0);
  for (int row = 0; row < 4; ++row) {
    if (row < 3) load(row + 1);
    else ge2::ptx::cp_async_commit();
    ge2::ptx::cp_async_wait<1>();
    __syncthreads();
    const float* stage = tile + row % 2 * 128;
    for (int i = t; i < 128; i += 32) args.y[row * 128 + i] = stage[127 - i];
    __syncthreads();
  }
}
""",
    inputs={"x": np.arange(1, 511, dtype=np.float32)},
    outputs={"y": ((512,), "f4")}, scalars={"n": ("i4", 510)}, smem=1024,
)

BULK = Case(
    """#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/tma.cuh>
#include <ge2/shared.cuh>
struct Args { const float* x; float* y; };
// Doubles 256 floats, in and out by bulk copies.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  float* tile = reinterpret_cast<float*>(memory);
  const unsigned smem = smem_address(memory), bar = smem + 1024;
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expect_tx(bar, 1024);
    bulk_load(smem, args.x, 1024, bar);
  }
  mbarrier_wait(bar, 0);
  for (int i = t; i < 256; i += 64) tile[i] *= 2.0f;
  fence_proxy_async_shared();
  __syncthreads();
  if (t == 0) {
    bulk_store(args.y, smem, 1024);
    bulk_commit();
    bulk_wait_read<0>();
  }
}
""",
    inputs={"x": np.arange(256, dtype=np.float32)}, outputs={"y": ((256,), "f4")},
    block=(64, 1, 1), smem=1032,
)

TENSOR = Case(
    """#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/tma.cuh>
#include <ge2/shared.cuh>
struct Args {
  ge2::ptx::TensorMap in, out;
  const unsigned short* x;
  unsigned short* y;
  int sx, sy;
};
// Copies three boxes of 64 x 16 halves with two stages: in by a swizzled map, out by a plain one.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  const unsigned smem = smem_address(memory), full = smem + 6144, empty = full + 16;
  const int t = threadIdx.x;
  if (t == 0) {
    for (int s = 0; s < 2; ++s) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 32);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (t >= 32) {
    if (t == 32) {
      for (int i = 0; i < 3; ++i) {
        const int s = i % 2;
        mbarrier_wait(empty + 8 * s, i / 2 % 2 ^ 1);
        mbarrier_arrive_expect_tx(full + 8 * s, 2048);
        tma_load_2d(smem + 2048 * s, &args.in, args.sx, i * 16 + args.sy, full + 8 * s);
      }
    }
    return;
  }
  uint4* out = reinterpret_cast<uint4*>(memory + 4096);
  for (int i = 0; i < 3; ++i) {
    const int s = i % 2;
    mbarrier_wait(full + 8 * s, i / 2 % 2);
    const uint4* stage = reinterpret_cast<const uint4*>(memory + 2048 * s);
    for (int c = t; c < 128; c += 32) out[c] = stage[c / 8 * 8 + (c % 8 ^ c / 8 % 8)];
    mbarrier_arrive(empty + 8 * s);
    fence_proxy_async_shared();
    __syncwarp();
    if (t == 0) {
      tma_store_2d(&args.out, smem + 4096, 0, i * 16);
      bulk_commit();
      bulk_wait_read<0>();
    }
    __syncwarp();
  }
}
""",
    inputs={"x": np.arange(40 * 56, dtype=np.uint16).reshape(40, 56)},
    outputs={"y": ((48, 64), "u2")},
    scalars={"sx": ("i4", -3), "sy": ("i4", -2)},
    maps={"in": ("x", (56, 40), (112,), (64, 16), 128),
          "out": ("y", (64, 48), (128,), (64, 16), 0)},
    block=(64, 1, 1), smem=6144 + 32,
)


def test_cp_async_copies_and_fills_with_zeros() -> None:
    """Rows come out reversed; the last row is short by two elements, which read as zero."""
    padded = np.append(CP_ASYNC.inputs["x"], [0, 0]).reshape(4, 128)
    assert np.array_equal(CP_ASYNC.run()["y"].reshape(4, 128), padded[:, ::-1])


def test_bulk_copies() -> None:
    """256 floats are doubled."""
    assert np.array_equal(BULK.run()["y"], 2 * BULK.inputs["x"])


def test_tensor_copies_swizzle_and_fill_the_outside() -> None:
    """A box that starts at (-3, -2) and ends past the tensor: zeros outside, unswizzled inside."""
    padded = np.zeros((48, 64), np.uint16)
    padded[2:42, 3:59] = TENSOR.inputs["x"]
    assert np.array_equal(TENSOR.run()["y"], padded)


MUTANTS = [
    (CP_ASYNC, "cp_async_wait<1>();", "cp_async_wait<2>();", "missing wait"),
    (CP_ASYNC, "    ge2::ptx::cp_async_wait<1>();\n", "", "missing wait"),
    (CP_ASYNC, "    __syncthreads();\n    const", "    const", "data race"),
    (CP_ASYNC, "[127 - i];\n    __syncthreads();", "[127 - i];", "missing wait"),
    (CP_ASYNC, "left < 16 ? left : 16;", "16;", "out of bounds"),
    (CP_ASYNC, "t * 4) * 4,", "t * 4) * 4 + 4,", "misaligned access"),
    (BULK, "    fence_mbarrier_init();\n", "", "missing fence"),
    (BULK, "  fence_proxy_async_shared();\n", "", "missing fence"),
    (BULK, "  mbarrier_wait(bar, 0);\n", "", "missing wait"),
    (BULK, "  mbarrier_wait(bar, 0);\n", "  if (t < 32) mbarrier_wait(bar, 0);\n", "data race"),
    (BULK, "    bulk_wait_read<0>();\n", "", "missing wait"),
    (BULK, "expect_tx(bar, 1024)", "expect_tx(bar, 2048)", "deadlock"),
    (BULK, "expect_tx(bar, 1024)", "expect_tx(bar, 512)", "bad mbarrier"),
    (BULK, "mbarrier_init(bar, 1)", "mbarrier_init(bar, 2)", "deadlock"),
    (BULK, "  }\n  __syncthreads();\n  if (t == 0) {\n    mbarrier_arrive",
     "  }\n  if (t == 0) {\n    mbarrier_arrive", "data race"),
    (BULK, "args.x, 1024, bar", "args.x + 1, 1024, bar", "misaligned access"),
    (BULK, "args.x, 1024, bar", "args.x + 4, 1024, bar", "out of bounds"),
    (BULK, "fence_proxy_async_shared();\n  __syncthreads();", "fence_proxy_async_shared();",
     "data race"),
    (TENSOR, "i / 2 % 2 ^ 1);", "1);", "bad mbarrier"),
    (TENSOR, "        mbarrier_wait(empty + 8 * s, i / 2 % 2 ^ 1);\n", "", "bad mbarrier"),
    (TENSOR, "    mbarrier_wait(full + 8 * s, i / 2 % 2);\n", "", "uninitialised read"),
    (TENSOR, "    fence_proxy_async_shared();\n    __syncwarp();", "    __syncwarp();",
     "missing fence"),
    (TENSOR, "      bulk_wait_read<0>();\n", "", "missing wait"),
    (TENSOR, "    }\n    __syncwarp();\n  }\n", "    }\n  }\n", "data race"),
    (TENSOR, "mbarrier_init(empty + 8 * s, 32)", "mbarrier_init(empty + 8 * s, 33)", "deadlock"),
    (TENSOR, "mbarrier_init(empty + 8 * s, 32)", "mbarrier_init(empty + 8 * s, 31)", "data race"),
    (TENSOR, "smem + 2048 * s, &args.in", "smem + 2048 * s + 128, &args.in", "misaligned access"),
]


@pytest.mark.parametrize(("case", "old", "new", "kind"), MUTANTS)
def test_broken_copies_are_found(case: Case, old: str, new: str, kind: str) -> None:
    """Each change breaks the kernel in the way that the finding names."""
    assert old in case.text
    assert kind in faults(case, case.text.replace(old, new, 1))


LATE = Case(
    """#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/tma.cuh>
#include <ge2/shared.cuh>
struct Args { const float* x; float* y; };
// Adds one to two times 256 floats, through one stage and one mbarrier.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  const float* tile = reinterpret_cast<const float*>(memory);
  const unsigned smem = smem_address(memory), bar = smem + 1024;
  const int t = threadIdx.x;
  if (t == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
  }
  for (unsigned phase = 0; phase < 2; ++phase) {
    __syncthreads();
    if (t == 0) {
      fence_proxy_async_shared();
      mbarrier_arrive_expect_tx(bar, 1024);
      bulk_load(smem, args.x + 256 * phase, 1024, bar);
    }
    mbarrier_wait(bar, phase);
    for (int i = t; i < 256; i += 64) args.y[256 * phase + i] = tile[i] + 1.0f;
  }
}
""",
    inputs={"x": np.arange(512, dtype=np.float32)}, outputs={"y": ((512,), "f4")},
    block=(64, 1, 1), smem=1032,
)


@pytest.mark.parametrize("seed", range(4))
def test_copies_complete_late_or_at_random(seed: int) -> None:
    """Whenever copies complete, a kernel that waits for them is clean and right."""
    assert np.array_equal(LATE.run(seed=seed)["y"], LATE.inputs["x"] + 1)


@pytest.mark.parametrize(("old", "new"), [
    ("mbarrier_wait(bar, phase);", "if (t < 32) mbarrier_wait(bar, phase);"),
    ("mbarrier_wait(bar, phase);", "mbarrier_wait(bar, t < 32 ? phase : phase ^ 1);"),
    ("bulk_load(smem, args.x + 256 * phase, 1024, bar);",
     "for (int i = 0; i < 256; ++i) args.y[i] = 0;\n"
     "bulk_load(smem, args.y, 1024, bar); args.y[0] = 1;"),
], ids=["no wait", "wrong phase", "source overwritten"])
def test_what_counts_on_early_copies_is_found(old: str, new: str) -> None:
    """Some thread waits for each copy, but not each thread that must."""
    assert old in LATE.text
    assert "missing wait" in faults(LATE, LATE.text.replace(old, new, 1))


def test_a_finding_names_the_seed_of_its_schedule() -> None:
    with pytest.raises(emulate.EmulationError, match="seed=7"):
        BULK.run(BULK.text.replace("    bulk_wait_read<0>();\n", ""), seed=7)


PDL = """#include <ge2/ptx/griddep.cuh>
struct Args { const float* x; float* y; };
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  if (threadIdx.x < 16) ge2::ptx::griddep_wait();
  __syncthreads();
  args.y[threadIdx.x] = args.x[threadIdx.x] + 1.0f;
}
"""


def _chain(text: str) -> np.ndarray:
    """Run x + 1 twice, the second time as a launch that may overlap the first."""
    memory = emulate.Memory()
    a, b, c = (memory.allocate(256, name, initialised=name == "a") for name in "abc")
    memory.bytes_of(a).view(np.float32)[:] = np.arange(64)
    for source, target, pdl in ((a, b, False), (b, c, True)):
        args = np.array([source.address, target.address], np.uint64).tobytes()
        record = LaunchRecord(KernelSource("test", (), "kernel"), (1, 1, 1), (64, 1, 1), args, (),
                              pdl=pdl)
        emulate.launch(record, args, memory=memory, source=text)
    return memory.bytes_of(c).view(np.float32).copy()


def test_an_overlapping_launch_waits_for_the_one_before() -> None:
    """A wait by some threads and a barrier will do; without the wait the finding says so."""
    assert np.array_equal(_chain(PDL), np.arange(64) + 2)
    with pytest.raises(emulate.EmulationError, match="without griddep_wait"):
        _chain(PDL.replace("  if (threadIdx.x < 16) ge2::ptx::griddep_wait();\n", ""))
    with pytest.raises(emulate.EmulationError, match="without griddep_wait"):
        _chain(PDL.replace("  __syncthreads();\n", ""))
