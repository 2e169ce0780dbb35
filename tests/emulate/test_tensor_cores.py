"""Matrix instructions: ldmatrix, stmatrix, mma.sync and wgmma against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from .harness import Case, faults

_RNG = np.random.default_rng(3)

MMA = Case(
    """#include <ge2/ptx/ldmatrix.cuh>
#include <ge2/ptx/mma.cuh>
#include <ge2/ptx/stmatrix.cuh>
#include <ge2/shared.cuh>
#include <ge2/types.cuh>
struct Args { const unsigned short* a; const unsigned short* b; unsigned short* d; };
// d (16 x 8) = a (16 x 16) * b (16 x 8, row-major), halves in and out.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  unsigned short* tile = reinterpret_cast<unsigned short*>(memory);
  const unsigned smem = smem_address(memory);
  const int t = threadIdx.x;
  for (int i = t; i < 256; i += 32) tile[i] = args.a[i];
  for (int i = t; i < 128; i += 32) tile[256 + i] = args.b[i];
  __syncwarp();
  unsigned a[4], b[2];
  float d[4] = {0, 0, 0, 0};
  ldmatrix_x4(a, smem + (t % 16 * 16 + t / 16 * 8) * 2);
  ldmatrix_x2_trans(b, smem + 512 + t % 16 * 16);
  mma_m16n8k16_f16(d, a, b);
  const unsigned out[2] = {pack_f16x2(d[0], d[1]), pack_f16x2(d[2], d[3])};
  __syncwarp();
  stmatrix_x2(smem + t % 16 * 16, out);
  __syncwarp();
  for (int i = t; i < 128; i += 32) args.d[i] = tile[i];
}
""",
    inputs={"a": _RNG.standard_normal((16, 16)).astype(np.float16).view(np.uint16),
            "b": _RNG.standard_normal((16, 8)).astype(np.float16).view(np.uint16)},
    outputs={"d": ((16, 8), "f2")}, smem=768,
)


def test_ldmatrix_mma_and_stmatrix() -> None:
    """One 16 x 8 x 16 product; the f16 result is rounded once."""
    a, b = (MMA.inputs[k].view(np.float16).astype(np.float64) for k in "ab")
    assert np.array_equal(MMA.run()["d"], (a @ b).astype(np.float32).astype(np.float16))


FRAGMENTS = """#include <ge2/ptx/cvt.cuh>
#include <ge2/ptx/mma.cuh>
struct Args { const float* a; const float* b; float* d; };
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  float d[4] = {1, 1, 1, 1};
  BODY
  for (int i = 0; i < 4; ++i) args.d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
"""
TF32 = """unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i)
    a[i] = __float_as_uint(f32_to_tf32(args.a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]));
  for (int i = 0; i < 2; ++i) b[i] = __float_as_uint(f32_to_tf32(args.b[(t + i * 4) * 8 + g]));
  mma_m16n8k8_tf32(d, a, b);"""
F16_K8 = """unsigned a[2], b;
  for (int i = 0; i < 2; ++i) {
    const float* row = args.a + (g + i * 8) * 8 + t * 2;
    a[i] = pack_f16x2(row[0], row[1]);
  }
  b = pack_f16x2(args.b[t * 16 + g], args.b[t * 16 + 8 + g]);
  mma_m16n8k8_f16(d, a, b);"""


@pytest.mark.parametrize("body", [TF32, F16_K8])
def test_mma_of_depth_8(body: str) -> None:
    """Small integers are exact in both types; the accumulator starts at one."""
    a = _RNG.integers(-4, 5, (16, 8)).astype(np.float32)
    b = _RNG.integers(-4, 5, (8, 8)).astype(np.float32)
    case = Case(FRAGMENTS.replace("BODY", body), {"a": a, "b": b}, {"d": ((16, 8), "f4")})
    assert np.array_equal(case.run()["d"], a @ b + 1)


BYTES = """#include <ge2/ptx/mma.cuh>
struct Args { const unsigned* a; const unsigned* b; int* d; };
// d (16 x 8) = a (16 x 32) * b (8 x 32 by rows) - 1; both operands lie as fragments want them.
extern "C" __global__ void kernel(const __grid_constant__ Args args) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  unsigned a[4], b[2];
  for (int i = 0; i < 4; ++i) a[i] = args.a[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
  for (int i = 0; i < 2; ++i) b[i] = args.b[g * 8 + t + i * 4];
  int d[4] = {-1, -1, -1, -1};
  ge2::ptx::mma_m16n8k32_TYPES(d, a, b);
  for (int i = 0; i < 4; ++i) args.d[(g + i / 2 * 8) * 8 + t * 2 + i % 2] = d[i];
}
"""


@pytest.mark.parametrize("types", ["s8s8", "s8u8", "u8s8", "u8u8"])
def test_mma_of_bytes(types: str) -> None:
    """All 256 values, signed or not; sums are exact."""
    a, b = (_RNG.integers(0, 256, shape).astype(np.uint8) for shape in ((16, 32), (8, 32)))
    case = Case(BYTES.replace("TYPES", types), {"a": a, "b": b}, {"d": ((16, 8), "i4")})
    left, right = (x.view(np.int8 if kind == "s8" else np.uint8).astype(np.int64)
                   for x, kind in ((a, types[:2]), (b, types[2:])))
    assert np.array_equal(case.run()["d"], left @ right.T - 1)


@pytest.mark.parametrize("types", ["e4m3e4m3", "e4m3e5m2", "e5m2e4m3", "e5m2e5m2"])
def test_mma_of_8_bit_floats(types: str) -> None:
    """Small integers, exact in both types; the accumulator starts at -1."""
    text = (BYTES.replace("mma.cuh", "mma_f8.cuh").replace("TYPES", types)
            .replace("int* d", "float* d").replace("int d[4]", "float d[4]"))
    kinds = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
    a, b = (_RNG.integers(-4, 5, shape).astype(np.float32).astype(kinds[kind])
            for shape, kind in (((16, 32), types[:4]), ((8, 32), types[4:])))
    case = Case(text, {"a": a.view(np.uint8), "b": b.view(np.uint8)}, {"d": ((16, 8), "f4")})
    assert np.array_equal(case.run()["d"],
                          a.astype(np.float32) @ b.astype(np.float32).T - 1)


WGMMA = Case(
    """#include <ge2/ptx/fence.cuh>
#include <ge2/ptx/wgmma.cuh>
#include <ge2/shared.cuh>
struct Args { const unsigned short* a; const unsigned short* b; float* d; };
// d (64 x 64) = a (64 x 64) * b (64 x 64, b[n][k]); tiles are written to shared memory in the
// 128-byte swizzle, rows along K.
extern "C" __global__ void __launch_bounds__(128) kernel(const __grid_constant__ Args args) {
  using namespace ge2::ptx;
  unsigned char* memory = ge2::shared_memory();
  const unsigned smem = smem_address(memory);
  const int t = threadIdx.x;
  for (int i = t; i < 4096; i += 128) {
    const int row = i / 64, k = i % 64;
    const int at = row * 128 + ((k / 8 ^ row % 8) * 16) + k % 8 * 2;
    *reinterpret_cast<unsigned short*>(memory + at) = args.a[i];
    *reinterpret_cast<unsigned short*>(memory + 8192 + at) = args.b[i];
  }
  fence_proxy_async_shared();
  __syncthreads();
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0.5f;
  wgmma_fence();
  for (int k = 0; k < 4; ++k)
    wgmma_TYPE<64, 0, 0>(d, wgmma_descriptor(smem + 32 * k, 0, 1024),
                         wgmma_descriptor(smem + 8192 + 32 * k, 0, 1024), 1);
  wgmma_commit();
  wgmma_wait<0>();
  for (int i = 0; i < 32; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + t % 4 * 2 + i % 2;
    args.d[row * 64 + col] = d[i];
  }
}
""".replace("TYPE", "bf16"),
    inputs={"a": _RNG.standard_normal((64, 64)).astype(ml_dtypes.bfloat16).view(np.uint16),
            "b": _RNG.standard_normal((64, 64)).astype(ml_dtypes.bfloat16).view(np.uint16)},
    outputs={"d": ((64, 64), "f4")}, block=(128, 1, 1), smem=16384,
)


def test_wgmma_with_rows_along_k() -> None:
    """64 x 64 x 64 in four instructions of depth 16, added to 0.5."""
    a, b = (WGMMA.inputs[k].view(ml_dtypes.bfloat16).astype(np.float64) for k in "ab")
    assert np.allclose(WGMMA.run()["d"], a @ b.T + 0.5, rtol=1e-5, atol=1e-5)


def test_wgmma_with_rows_along_n() -> None:
    """The same product with b stored [k][n]: the tile's rows run along N."""
    text = WGMMA.text.replace("<64, 0, 0>", "<64, 0, 1>").replace(
        "smem + 8192 + 32 * k", "smem + 8192 + 2048 * k")
    a, b = (WGMMA.inputs[k].view(ml_dtypes.bfloat16).astype(np.float64) for k in "ab")
    assert np.allclose(WGMMA.run(text)["d"], a @ b + 0.5, rtol=1e-5, atol=1e-5)


# The same with a in registers, loaded as fragments.
FRAGMENT_WGMMA = Case(
    WGMMA.text.replace("  wgmma_fence();\n", """  unsigned a[16];
  for (int i = 0; i < 16; ++i) {
    const int row = t / 32 * 16 + t % 32 / 4 + i % 2 * 8;
    const int k = i / 4 * 16 + i % 4 / 2 * 8 + t % 4 * 2;
    a[i] = args.a[row * 64 + k] | static_cast<unsigned>(args.a[row * 64 + k + 1]) << 16;
  }
  wgmma_fence();
""").replace("wgmma_bf16<64, 0, 0>(d, wgmma_descriptor(smem + 32 * k, 0, 1024),",
             "wgmma_bf16_registers<64, 0>(d, a + 4 * k,"),
    inputs=WGMMA.inputs, outputs=WGMMA.outputs, block=WGMMA.block, smem=WGMMA.smem,
)


def test_wgmma_with_a_in_registers() -> None:
    """The same product once more."""
    a, b = (WGMMA.inputs[k].view(ml_dtypes.bfloat16).astype(np.float64) for k in "ab")
    assert np.allclose(FRAGMENT_WGMMA.run()["d"], a @ b.T + 0.5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transposed", [False, True], ids=["along k", "along n"])
def test_wgmma_in_64_byte_swizzle(transposed: bool) -> None:
    """b as two tiles of 32 columns, one after the other, with rows of 64 bytes."""
    text = FRAGMENT_WGMMA.text.replace(
        "const int at = row * 128 + ((k / 8 ^ row % 8) * 16) + k % 8 * 2;",
        "const int at = k / 32 * 4096 + row * 64 + ((k % 32 / 8 ^ row / 2 % 4) * 16) + k % 8 * 2;")
    text = text.replace(
        "wgmma_descriptor(smem + 8192 + 32 * k, 0, 1024)",
        "wgmma_descriptor_64(smem + 8192 + 1024 * k, 4096, 512)" if transposed else
        "wgmma_descriptor_64(smem + 8192 + k / 2 * 4096 + k % 2 * 32, 0, 512)")
    if transposed:
        text = text.replace("wgmma_bf16_registers<64, 0>", "wgmma_bf16_registers<64, 1>")
    a, b = (WGMMA.inputs[k].view(ml_dtypes.bfloat16).astype(np.float64) for k in "ab")
    wanted = a @ (b if transposed else b.T) + 0.5
    assert np.allclose(FRAGMENT_WGMMA.run(text)["d"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("case", "old", "new", "kind"), [
    (FRAGMENT_WGMMA, "  wgmma_commit();", "  a[5] += 1;\n  wgmma_commit();", "missing wait"),
    (MMA, "  __syncwarp();\n  unsigned a", "  unsigned a", "data race"),
    (MMA, "  __syncwarp();\n  stmatrix", "  stmatrix", "data race"),
    (MMA, "t / 16 * 8) * 2)", "t / 16 * 8) * 2 + 2)", "misaligned access"),
    (MMA, "  mma_m16n8k16_f16(d, a, b);", "  if (t < 31) mma_m16n8k16_f16(d, a, b);",
     "barrier divergence"),
    (MMA, "i < 256; i += 32", "i < 240; i += 32", "uninitialised read"),
    (MMA, "smem + 512 + t % 16 * 16", "smem + 528 + t % 16 * 16", "out of bounds"),
    (WGMMA, "  fence_proxy_async_shared();\n", "", "missing fence"),
    (WGMMA, "  __syncthreads();\n", "", "uninitialised read"),
    (WGMMA, "  wgmma_fence();\n", "", "missing fence"),
    (WGMMA, "fence_proxy_async_shared();\n  __syncthreads();",
     "__syncthreads();\n  fence_proxy_async_shared();", "missing fence"),
    (WGMMA, "smem + 8192 + 32 * k, 0, 1024", "smem + 8192 + 32 * k, 0, 2048", "out of bounds"),
])
def test_broken_products_are_found(case: Case, old: str, new: str, kind: str) -> None:
    """Each change breaks the kernel in the way that the finding names."""
    assert old in case.text
    assert kind in faults(case, case.text.replace(old, new, 1))


def test_wgmma_results_are_not_there_before_the_wait() -> None:
    """Without the wait the accumulators hold NaN."""
    text = WGMMA.text.replace("  wgmma_wait<0>();\n", "")
    assert "missing wait" in faults(WGMMA, text) or np.isnan(WGMMA.run(text)["d"]).all()
