"""Clusters: distributed shared memory, cluster barriers, multicast."""

from __future__ import annotations

import numpy as np
import pytest

from .harness import Case, faults

SUM = Case(
    """#include <ge2/ptx/cluster.cuh>
#include <ge2/shared.cuh>
struct Args { const float* x; float* y; };
// Each block of a cluster adds up what all of them hold.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  float* mine = reinterpret_cast<float*>(ge2::shared_memory());
  const int i = blockIdx.x * 32 + threadIdx.x;
  mine[threadIdx.x] = args.x[i];
  cluster_sync();
  float sum = 0.0f;
  for (unsigned r = 0; r < cluster_size(); ++r)
    sum += load_cluster_f32(map_shared(smem_address(mine + threadIdx.x), r));
  args.y[i] = sum * (cluster_rank() + 1);
  cluster_arrive();
  cluster_wait();
}
""",
    inputs={"x": np.arange(128, dtype=np.float32)}, outputs={"y": ((128,), "f4")},
    grid=(4, 1, 1), cluster=(2, 1, 1), smem=128,
)

MULTICAST = Case(
    """#include <ge2/ptx/cluster.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/ptx/tma.cuh>
#include <ge2/shared.cuh>
struct Args { ge2::ptx::TensorMap map; const float* x; float* y; };
// The first block of a pair loads one box into both.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  const unsigned smem = smem_address(memory), bar = smem + 512;
  if (threadIdx.x == 0) {
    mbarrier_init(bar, 1);
    fence_mbarrier_init();
  }
  cluster_sync();
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(bar, 512);
    if (cluster_rank() == 0) tma_load_2d_multicast(smem, &args.map, 0, 0, bar, 3);
  }
  mbarrier_wait(bar, 0);
  for (int i = threadIdx.x; i < 128; i += 32)
    args.y[blockIdx.x * 128 + i] = reinterpret_cast<float*>(memory)[i];
  cluster_sync();
}
""",
    inputs={"x": np.arange(128, dtype=np.float32)}, outputs={"y": ((256,), "f4")},
    maps={"map": ("x", (32, 4), (128,), (32, 4), 0)},
    grid=(2, 1, 1), cluster=(2, 1, 1), smem=520,
)

MESSAGES = Case(
    """#include <ge2/ptx/cluster.cuh>
#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/mbarrier.cuh>
#include <ge2/shared.cuh>
struct Args { unsigned* y; };
// Each block of a pair tells both its rank, twice; slots are used in turn.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  const unsigned smem = smem_address(memory), bar = smem + 64, rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int r = 0; r < 2; ++r) mbarrier_init(bar + 8 * r, 1);
    fence_mbarrier_init();
    for (int r = 0; r < 2; ++r) mbarrier_arrive_expect_tx(bar + 8 * r, 32);
  }
  cluster_sync();
  unsigned sum = 0;
  for (unsigned r = 0; r < 2; ++r) {
    if (threadIdx.x < 2)
      store_async_16(map_shared(smem + 32 * r + 16 * rank, threadIdx.x),
                     uint4{rank + 1, 10 * r, 0, 0}, map_shared(bar + 8 * r, threadIdx.x));
    mbarrier_wait(bar + 8 * r, 0);
    const uint4* slot = reinterpret_cast<const uint4*>(memory + 32 * r);
    sum += slot[0].x + slot[1].x + slot[0].y + slot[1].y;
  }
  args.y[blockIdx.x * 32 + threadIdx.x] = sum;
  cluster_sync();
}
""",
    outputs={"y": ((64,), "u4")}, grid=(2, 1, 1), cluster=(2, 1, 1), smem=80,
)


def test_blocks_read_each_others_shared_memory() -> None:
    """Sums over pairs of blocks, scaled by the rank."""
    x = SUM.inputs["x"].reshape(2, 2, 32)
    expected = x.sum(1, keepdims=True) * np.array([1, 2]).reshape(1, 2, 1)
    assert np.array_equal(SUM.run()["y"], expected.ravel())


def test_multicast_reaches_both_blocks() -> None:
    """Both halves of y are x."""
    assert np.array_equal(MULTICAST.run()["y"], np.tile(MULTICAST.inputs["x"], 2))


def test_messages_reach_every_block() -> None:
    """1 + 2 in each of two rounds, and 10 from each block in the second."""
    assert np.array_equal(MESSAGES.run()["y"], np.full(64, 26, "u4"))


@pytest.mark.parametrize(("case", "old", "new", "kind"), [
    (MESSAGES, "    mbarrier_wait(bar + 8 * r, 0);\n", "", "missing wait"),
    (MESSAGES, "+ 8 * r, 32)", "+ 8 * r, 48)", "deadlock"),
    (MESSAGES, "+ 8 * r, 32)", "+ 8 * r, 16)", "missing wait"),
    (MESSAGES, "map_shared(bar + 8 * r, threadIdx.x)", "map_shared(bar + 8 * r, 0)",
     "bad mbarrier"),
    (MESSAGES, "smem + 32 * r + 16 * rank", "smem + 16 * rank", "missing wait"),
    (SUM, "  cluster_sync();\n  float", "  float", "data race"),
    (SUM, "  cluster_arrive();\n  cluster_wait();\n", "", "out of bounds"),
    (SUM, "r < cluster_size()", "r <= cluster_size()", "out of bounds"),
    (SUM, "  cluster_arrive();\n", "  if (cluster_rank()) cluster_arrive();\n", "bad barrier"),
    (MULTICAST, "  cluster_sync();\n  if", "  __syncthreads();\n  if", "data race"),
    (MULTICAST, "bar, 3);", "bar, 1);", "deadlock"),
    (MULTICAST, "    mbarrier_arrive_expect_tx(bar, 512);\n    if (cluster_rank() == 0) tma",
     "    if (cluster_rank() == 0) mbarrier_arrive_expect_tx(bar, 512), tma", "deadlock"),
])
def test_broken_clusters_are_found(case: Case, old: str, new: str, kind: str) -> None:
    """Each change breaks the kernel in the way that the finding names."""
    assert old in case.text
    assert kind in faults(case, case.text.replace(old, new, 1))
