"""Atomics, fences, named barriers, votes: their order, and what happens without it."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.runtime import emulate

from .harness import Case, faults

LAST_BLOCK = Case(
    """#include <ge2/shared.cuh>
struct Args { const float* x; float* partial; float* y; unsigned* done; };
// Each block sums 64 elements; the last one to finish adds up the partial sums.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  unsigned* last = reinterpret_cast<unsigned*>(ge2::shared_memory());
  float v = args.x[blockIdx.x * 64 + threadIdx.x] + args.x[blockIdx.x * 64 + 32 + threadIdx.x];
  for (int step = 16; step; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
  if (threadIdx.x == 0) {
    args.partial[blockIdx.x] = v;
    __threadfence();
    *last = atomicAdd(args.done, 1u) == gridDim.x - 1;
    __threadfence();
  }
  __syncwarp();
  if (*last) {
    float sum = threadIdx.x < gridDim.x ? args.partial[threadIdx.x] : 0.0f;
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) {
      *args.y = sum;
      *args.done = 0;
    }
  }
}
""",
    inputs={"x": np.arange(512, dtype=np.float32)},
    outputs={"partial": ((8,), "f4"), "y": ((1,), "f4"), "done": ((1,), "u4")},
    zeroed=("done",), grid=(8, 1, 1), smem=4,
)

FLAG = Case(
    """#include <ge2/ptx/ldst.cuh>
struct Args { const float* x; float* y; unsigned* flag; };
// Blocks take turns, each adds to what the one before has left.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  if (threadIdx.x == 0) {
    while (ge2::ptx::load_acquire(args.flag) != blockIdx.x) {}
    const float before = blockIdx.x ? *args.y : 0.0f;
    *args.y = before + args.x[blockIdx.x];
    ge2::ptx::store_release(args.flag, blockIdx.x + 1);
  }
}
""",
    inputs={"x": np.arange(1, 6, dtype=np.float32)},
    outputs={"y": ((1,), "f4"), "flag": ((1,), "u4")}, zeroed=("flag",), grid=(5, 1, 1),
)

NAMED = Case(
    """#include <ge2/ptx/barrier.cuh>
#include <ge2/shared.cuh>
struct Args { const float* x; float* y; };
// The first warp produces two tiles, the second consumes them.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  float* tile = reinterpret_cast<float*>(ge2::shared_memory());
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 2; ++i) {
      if (i) named_barrier_sync(2, 64);
      tile[lane] = args.x[i * 32 + lane];
      named_barrier_arrive(1, 64);
    }
  } else {
    for (int i = 0; i < 2; ++i) {
      named_barrier_sync(1, 64);
      args.y[i * 32 + lane] = tile[31 - lane];
      if (!i) named_barrier_arrive(2, 64);
    }
  }
}
""",
    inputs={"x": np.arange(64, dtype=np.float32)}, outputs={"y": ((64,), "f4")},
    block=(64, 1, 1), smem=128,
)

VOTES = Case(
    """struct Args { const int* x; unsigned* y; };
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  const int v = args.x[threadIdx.x];
  unsigned* y = args.y + threadIdx.x * 6;
  y[0] = __ballot_sync(0xffffffffu, v > 3);
  y[1] = __any_sync(0xffffffffu, v == 31);
  y[2] = __all_sync(0xffffffffu, v < 31);
  y[3] = __reduce_add_sync(0xffffffffu, v);
  y[4] = __shfl_up_sync(0xffffffffu, v, 2);
  y[5] = __shfl_sync(0xffffffffu, v, 9, 8);
}
""",
    inputs={"x": np.arange(32, dtype=np.int32)}, outputs={"y": ((32, 6), "u4")},
)


def test_the_last_block_sees_the_others_partial_sums() -> None:
    """Fence, atomic, fence: the sum of all, and the counter is back at zero."""
    found = LAST_BLOCK.run()
    assert found["y"][0] == LAST_BLOCK.inputs["x"].sum() and found["done"][0] == 0


def test_blocks_may_wait_for_earlier_blocks() -> None:
    """An acquire that polls sees what the release before it published."""
    assert FLAG.run()["y"][0] == 15


def test_named_barriers_hand_tiles_over() -> None:
    """Producer and consumer meet at two barriers."""
    expected = NAMED.inputs["x"].reshape(2, 32)[:, ::-1].ravel()
    assert np.array_equal(NAMED.run()["y"], expected)


def test_votes_and_shuffles() -> None:
    """Ballot, any, all, a reduction, a shuffle up, a shuffle within groups of 8."""
    y = VOTES.run()["y"]
    lane = np.arange(32)
    assert (y[:, 0] == 0xFFFFFFF0).all() and (y[:, 1] == 1).all() and (y[:, 2] == 0).all()
    assert (y[:, 3] == 496).all()
    assert np.array_equal(y[:, 4], np.where(lane < 2, lane, lane - 2))
    assert np.array_equal(y[:, 5], lane // 8 * 8 + 1)


@pytest.mark.parametrize(("case", "old", "new", "kind"), [
    (LAST_BLOCK, "    __threadfence();\n    *last", "    *last", "data race"),
    (LAST_BLOCK, "    __threadfence();\n  }", "  }", "data race"),
    (LAST_BLOCK, "  __syncwarp();\n", "", "data race"),
    (LAST_BLOCK, "atomicAdd(args.done, 1u)", "(*args.done)++", "data race"),
    (LAST_BLOCK, "threadIdx.x < gridDim.x ?", "threadIdx.x <= gridDim.x ?", "out of bounds"),
    (FLAG, "ge2::ptx::store_release(args.flag, blockIdx.x + 1)", "*args.flag = blockIdx.x + 1",
     "data race"),
    (FLAG, "!= blockIdx.x)", "!= blockIdx.x + 1)", "deadlock"),
    (NAMED, "      if (i) named_barrier_sync(2, 64);\n", "", "deadlock"),
    (NAMED, "      named_barrier_sync(1, 64);\n", "", "data race"),
    (NAMED, "named_barrier_arrive(1, 64)", "named_barrier_arrive(3, 64)", "deadlock"),
    (NAMED, "named_barrier_arrive(1, 64)", "named_barrier_arrive(1, 32)", "deadlock"),
    (NAMED, "named_barrier_arrive(1, 64)", "named_barrier_arrive(1, 48)", "bad barrier"),
    (VOTES, "__any_sync(0xffffffffu, v == 31)",
     "v < 9 ? __any_sync(0xffffffffu, v) : __all_sync(0xffffffffu, v)", "barrier divergence"),
])
def test_broken_order_is_found(case: Case, old: str, new: str, kind: str) -> None:
    """Each change breaks the kernel in the way that the finding names."""
    assert old in case.text
    assert kind in faults(case, case.text.replace(old, new, 1))


def test_a_deadlock_says_who_waits_where() -> None:
    """Both warps wait at different barriers; the message lists them with lines and counts."""
    text = NAMED.text.replace("named_barrier_arrive(1, 64)", "named_barrier_arrive(3, 64)")
    with pytest.raises(emulate.EmulationError) as caught:
        NAMED.run(text)
    message = str(caught.value)
    assert "32 threads (0..31) in named barrier at kernel.cu:11 (barrier 2, 32 of 64" in message
    assert "32 threads (32..63) in named barrier at kernel.cu:17 (barrier 1, 32 of 64" in message
