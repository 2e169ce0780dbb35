"""Every function of the instruction headers compiles, alone, for the GPUs that have it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ge2.paths import include_dir

nvrtc = pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")

ALL = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
FROM_80 = ALL[1:]
FROM_89 = ALL[3:]
FROM_90 = ALL[4:]
HOPPER = ("sm_90a",)

# header -> (architectures, statements that call each of its functions). Names given: unsigned smem,
# bar; float* f; unsigned* u; const TensorMap* map; int i.
CALLS: dict[str, tuple[tuple[str, ...], str]] = {
    "address": (ALL, "u[0] = smem_address(shared);"),
    "approx": (ALL, "f[0] = ex2_approx(f[0]) + ex2_approx_ftz(f[4]) + lg2_approx(f[1])"
                    " + rcp_approx(f[2]) + rcp_approx_ftz(f[3]) + rsqrt_approx(f[3])"
                    " + tanh_approx(f[4]);"),
    "barrier": (ALL, "named_barrier_sync(1, 32); named_barrier_arrive(i, 64);"),
    "cluster": (FROM_90, "cluster_sync(); cluster_arrive(); cluster_wait(); "
                         "unsigned r = map_shared(smem, cluster_rank());"
                         "f[0] = load_cluster_f32(r) + load_cluster_f32x4(r).x + cluster_size();"
                         "store_cluster_f32(r, f[1]);"
                         "store_async_16(r, uint4{1, 2, 3, 4}, map_shared(bar, 1));"),
    "cp_async": (FROM_80, "cp_async_16(smem, f, i); cp_async_8(smem, f, i); cp_async_4(smem, f, i);"
                          "cp_async_commit(); cp_async_wait<2>();"),
    "cvt": (ALL, "f[0] = f16_to_f32(f32_to_f16(f[0])) + bf16_to_f32(f32_to_bf16(f[1]));"
                 "u[1] = pack_f16x2(f[2], f[3]) + pack_bf16x2(f[2], f[3]) + f64_to_f16(f[2]);"),
    "cvt_f8": (ALL, "f[0] = e4m3_to_f32(f32_to_e4m3(f[0])) + e5m2_to_f32(f32_to_e5m2(f[1]))"
                    " + narrow_f8<3, -6>(f[2], 448.f);"),
    "fence": (FROM_90, "fence_proxy_async_shared(); fence_mbarrier_init();"),
    "griddep": (ALL, "griddep_wait(); griddep_launch_dependents();"),
    "ldmatrix": (ALL, "unsigned r[4], q[2]; ldmatrix_x4(r, smem); u[0] = r[0] + r[3];"
                      "ldmatrix_x4_trans(r, smem); ldmatrix_x2(q, smem); u[1] = q[0] + r[1];"
                      "ldmatrix_x2_trans(q, smem); u[2] = q[1];"),
    "ldst": (ALL, "uint4 v = load_nc_16(f); v.x += load_nc_no_allocate_16(f).y;"
                  "v.y += load_l2_16(f).z;"
                  "store_shared_16(smem, v); v.w += load_shared_16(smem).x;"
                  "v.z += load_shared_8(smem).x;"
                  "store_streaming_16(f, v); store_release(u, load_acquire(u));"
                  "u[1] = atomic_add_acq_rel(u, 1); prefetch_l1(f); prefetch_l2(f);"
                  "store_shared_8(smem, float2{f[0], f[1]});"
                  "auto* w = reinterpret_cast<unsigned long long*>(f);"
                  "store_relaxed_64(w, load_relaxed_64(w + 1));"
                  "auto* q = reinterpret_cast<uint4*>(f);"
                  "store_relaxed_128(q, load_relaxed_128(q + 1));"),
    "minmax": (ALL, "f[0] = max_nan(f[1], f[2]) + min_nan(f[3], f[4]);"),
    "mbarrier": (FROM_90, "mbarrier_init(bar, 3); mbarrier_arrive(bar);"
                          "mbarrier_arrive_expect_tx(bar, 64); mbarrier_wait(bar, 0);"
                          "mbarrier_wait(bar, 1); mbarrier_arrive_cluster(bar, 1);"),
    "mma": (FROM_80, "float d[4] = {f[0]}; unsigned a[4] = {u[0]}, b[2] = {u[1]}, h[2] = {u[2]};"
                     "mma_m16n8k16_f16(d, a, b); mma_m16n8k16_bf16(d, a, b);"
                     "mma_m16n8k8_f16(d, h, u[3]); mma_m16n8k8_tf32(d, a, b); f[0] = d[0];"
                     "int s[4] = {i}; mma_m16n8k32_s8s8(s, a, b);"
                     "mma_m16n8k32_s8u8(s, a, b); mma_m16n8k32_u8s8(s, a, b);"
                     "mma_m16n8k32_u8u8(s, a, b); u[4] = s[1];"),
    "movmatrix": (ALL, "u[0] = movmatrix_trans(u[1]);"),
    "mma_f8": (FROM_89, "float d[4] = {f[0]}; unsigned a[4] = {u[0]}, b[2] = {u[1]};"
                        "mma_m16n8k32_e4m3e4m3(d, a, b); mma_m16n8k32_e4m3e5m2(d, a, b);"
                        "mma_m16n8k32_e5m2e4m3(d, a, b); mma_m16n8k32_e5m2e5m2(d, a, b);"
                        "f[0] = d[0];"),
    "opaque": (ALL, "u[0] = opaque(i); float a[2] = {f[0], f[1]}; unsigned b[2] = {u[1], u[2]};"
                    "opaque(a); opaque(b); f[2] = a[0] + a[1]; u[3] = b[0] + b[1];"),
    "packed": (FROM_80, "u[0] = fma_f16x2(u[0], u[1], u[2]) + fma_bf16x2(u[1], u[2], u[3]);"),
    "setmaxnreg": (HOPPER, "if (i) setmaxnreg_inc<240>(); else setmaxnreg_dec<24>();"),
    "stmatrix": (FROM_90, "unsigned r[4] = {u[0]}, q[2] = {u[1]}; stmatrix_x4(smem, r);"
                          "stmatrix_x4_trans(smem, r); stmatrix_x2(smem, q);"),
    "tma": (FROM_90, "tma_prefetch(map); tma_load_2d(smem, map, i, i, bar);"
                     "tma_load_3d(smem, map, i, i, i, bar);"
                     "tma_load_4d(smem, map, i, i, i, i, bar);"
                     "tma_load_2d_multicast(smem, map, i, i, bar, 3); bulk_load(smem, f, 64, bar);"
                     "tma_store_2d(map, smem, i, i); tma_store_3d(map, smem, i, i, i);"
                     "tma_store_4d(map, smem, i, i, i, i);"
                     "bulk_store(f, smem, 64); bulk_commit();"
                     "bulk_wait<1>(); bulk_wait_read<0>();"),
    "wgmma": (HOPPER, "unsigned long long d = wgmma_descriptor(smem, 16, 1024); wgmma_fence();"
                      + "".join(f"float a{n}[{n // 2}] = {{}}; wgmma_f16<{n}, 0, 1>(a{n}, d, d, i);"
                                f"wgmma_bf16<{n}, 1, 0>(a{n}, d, d, 1); wgmma_commit();"
                                f"wgmma_wait<0>(); f[{n}] = a{n}[{n // 2 - 1}];"
                                for n in (8, 16, 32, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256))
                      + "unsigned h[4] = {u[0], u[1], u[2], u[3]};"
                        "unsigned long long e = wgmma_descriptor_64(smem, 16, 512);"
                      + "".join(f"wgmma_f16_registers<{n}, 1>(a{n}, h, e, i);"
                                f"wgmma_bf16_registers<{n}, 0>(a{n}, h, d, 1); wgmma_commit();"
                                f"wgmma_wait<0>(); f[{n}] = a{n}[{n // 2 - 1}];"
                                for n in (32, 80, 128, 256))
                      + "".join(f"float g{n}[{n // 2}] = {{}}; wgmma_e4m3<{n}>(g{n}, d, d, 1);"
                                f"int s{n}[{n // 2}] = {{}}; wgmma_s8<{n}>(s{n}, d, d, 1);"
                                f"wgmma_commit(); wgmma_wait<0>(); f[{n}] = g{n}[1] + s{n}[2];"
                                f"wgmma_e5m2<{n}>(g{n}, d, d, i); wgmma_u8<{n}>(s{n}, d, d, i);"
                                f"wgmma_commit(); wgmma_wait<0>(); f[{n + 1}] = g{n}[3] + s{n}[0];"
                                for n in (64, 128, 256))
                      + "".join(f"float t{n}[{n // 2}] = {{}}; wgmma_tf32<{n}>(t{n}, d, d, 1);"
                                f"wgmma_commit(); wgmma_wait<0>(); f[{n}] = t{n}[{n // 2 - 1}];"
                                for n in (64, 128, 192, 256))),
}

KERNEL = """#include <ge2/ptx/{header}.cuh>
using namespace ge2::ptx;
struct {map_type};
struct Args {{ float* f; unsigned* u; int i; {map_field} }};
extern "C" __global__ void __launch_bounds__(128, 1) entry(const __grid_constant__ Args args) {{
    __shared__ __align__(128) unsigned char shared[1024];
    float* f = args.f;
    unsigned* u = args.u;
    int i = args.i;
    unsigned smem = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    unsigned bar = smem + 512;
    {map_value}
    {calls}
}}
"""


def compile_text(text: str, arch: str) -> str:
    """Compile for arch and return the log; fail with it otherwise."""
    program = nvrtc.createProgram(text, "test.cu", (), ())
    options = ("-std=c++17", f"-arch={arch}", "--device-as-default-execution-space",
               "-ftz=false", f"-I{include_dir()}", "--ptxas-options=-v")
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        pytest.fail(f"{arch}:\n{nvrtc.getProgramLog(program)}\n{text}")
    return str(nvrtc.getProgramLog(program))


def headers() -> list[Path]:
    return sorted((include_dir() / "ge2" / "ptx").glob("*.cuh"))


@pytest.mark.parametrize(
    ("header", "arch"), [(h, a) for h, (archs, _) in CALLS.items() for a in archs]
)
def test_functions_compile(header: str, arch: str) -> None:
    with_map = header == "tma"
    text = KERNEL.format(
        header=header, calls=CALLS[header][1],
        map_type="Unused",
        map_field="TensorMap map;" if with_map else "",
        map_value="const TensorMap* map = &args.map;" if with_map else "",
    )
    log = compile_text(text, arch)
    assert "setmaxnreg" not in log, log


def test_every_function_is_called() -> None:
    for path in headers():
        names = re.findall(r"^inline [\w ]+?[ *](\w+)\(", path.read_text(), re.MULTILINE)
        assert names, path
        missing = [n for n in names if not re.search(rf"\b{n}\b", CALLS[path.stem][1])
                   and n != "f32_to_tf32"]
        assert not missing, (path.stem, missing)


def test_tf32_rounding_compiles() -> None:
    text = KERNEL.format(header="cvt", calls="f[0] = f32_to_tf32(f[1]);", map_type="Unused",
                         map_field="", map_value="")
    for arch in FROM_80:
        compile_text(text, arch)


@pytest.mark.parametrize("arch", ALL)
def test_types_and_shared_memory_compile(arch: str) -> None:
    stores = "".join(
        f"reinterpret_cast<{t}*>(args.out)[{k}] = ge2::from_compute<{t}>(args.f);"
        f"sum += static_cast<double>(ge2::to_compute(reinterpret_cast<{t}*>(args.in)[{k}]));"
        for k, t in enumerate(("float", "double", "int", "long long", "ge2::f16", "ge2::bf16",
                               "ge2::b8", "signed char", "unsigned char", "ge2::f8e4m3",
                               "ge2::f8e5m2")))
    compile_text(
        "#include <ge2/types.cuh>\n#include <ge2/shared.cuh>\n"
        "struct Args { void* out; void* in; float f; };\n"
        "static_assert(offsetof(Args, f) == 16, \"offset\");\n"
        "static_assert(alignof(ge2::Vec<ge2::f16, 8>) == 16, \"vector\");\n"
        "extern \"C\" __global__ void __launch_bounds__(32) "
        "entry(const __grid_constant__ Args args) {\n"
        f"double sum = 0; {stores}\n"
        "ge2::shared_memory()[threadIdx.x] = 1; __syncthreads();\n"
        "reinterpret_cast<double*>(args.out)[11] = sum + ge2::shared_memory()[0]"
        " + ge2::pack2<ge2::f16>(args.f, 1.f) + ge2::pack2<ge2::bf16>(args.f, 1.f);\n}\n", arch)
