"""The score rules of the selector, as two tables: about a kernel, and about one of its variants.

A rule returns points to add, 0 where it has no opinion. Capability scores lie between 0 and 100, so
ten points are a clear preference and a hundred rule a candidate out.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod
from typing import TYPE_CHECKING

from .attention_grad_plans import gradient_preference
from .attention_plans import attention_preference
from .attention_wgmma_plans import wgmma_attention_preference
from .conv_plans import conv_preference
from .conv_wgmma_plans import padded_preference
from .decode_plans import decode_preference
from .elementwise_plans import elementwise_preference
from .facts import GEMM_OPS, Facts
from .gemm_plans import wgmma_preference
from .lower_scan import scan_preference
from .metadata import KernelInfo, Variant, arch_number
from .norm_gemm_plans import norm_gemm_preference
from .row_plans import row_preference
from .row_ring_plans import ring_preference
from .skinny_plans import TIMES as SKINNY_TIMES
from .skinny_plans import skinny_preference

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

KernelRule = Callable[[KernelInfo, Facts, "DeviceProfile"], float]
VariantRule = Callable[[Variant, Facts, "DeviceProfile"], float]


def by_dtype(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """A kernel made for these dtypes beats one that takes any: up to 10 points."""
    best = 0.0
    for rule in kernel.dtypes:
        if rule.mismatch(facts.input_dtypes, facts.output_dtypes):
            continue
        named = [name != "*" for name in (*rule.inputs, rule.output)]
        best = max(best, 10.0 * sum(named) / len(named))
    return best


def by_layout(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """The layout that a kernel lists first suits it best; "strided" is its slow way out."""
    points = 0.0
    for operand, accepted in kernel.layouts:
        found = facts.layouts.get(operand, frozenset())
        fits = [layout for layout in accepted if layout in found]
        if fits and fits[0] == accepted[0]:
            points += 4.0
        elif fits == ["strided"]:
            points -= 8.0
    return points


def by_alignment(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """Kernels with 16-byte accesses gain on aligned tensors and fall behind on others."""
    if "vectorized" not in kernel.flags:
        return 0.0
    watched = [name for name, _ in kernel.layouts] or list(facts.alignment)
    narrowest = min((facts.alignment[n] for n in watched if n in facts.alignment), default=16)
    return {16: 10.0, 8: 4.0, 4: -4.0}.get(narrowest, -15.0)


def by_stride(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """Kernels with wide accesses waste them on tensors without a contiguous axis."""
    if "vectorized" not in kernel.flags:
        return 0.0
    scattered = sum(1 for found in facts.layouts.values() if found == {"strided"})
    return -6.0 * scattered


def by_min_mnk(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """Below its smallest useful product a kernel loses 80 points times the missing share."""
    if not any(kernel.min_mnk):
        return 0.0
    found = [facts.dims.get(name, 0) for name in ("M", "N", "K")]
    ratios = [min(1.0, n / least) for n, least in zip(found, kernel.min_mnk, strict=True) if least]
    return -80.0 * (1.0 - prod(ratios))


def by_arch(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """A kernel written for this very architecture beats one for any newer than an old one."""
    if device.arch in kernel.archs:
        return 12.0
    oldest = min((arch_number(a.removesuffix("+")) for a in kernel.archs if a.endswith("+")),
                 default=75)
    return (oldest - 75) / 5.0


def by_tensor_core(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> float:
    """Tensor cores, where the device has them: device_caps["tensor_core"]."""
    return 25.0 if "tensor_core" in kernel.flags and device.caps.get("tensor_core") else 0.0


KERNEL_RULES: dict[str, KernelRule] = {
    "dtype": by_dtype,
    "layout": by_layout,
    "alignment": by_alignment,
    "stride": by_stride,
    "min_mnk": by_min_mnk,
    "arch": by_arch,
    "tensor_core": by_tensor_core,
}


def by_shape(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Output tiles BM x BN: large ones reuse more, but waste at the edges and fill fewer SMs.

    Six points for each factor of two by which the tiles' time exceeds that of a perfect split over
    all SMs; operand traffic per product grows with 1/BM + 1/BN.
    """
    params, dims = variant.param_map, facts.dims
    bm, bn = params.get("BM"), params.get("BN")
    if variant.kernel.op_type == "CONV2D":
        return 0.0  # its own rule knows the tiles
    if variant.kernel.op_type == "NORM_GEMM":
        return norm_gemm_preference(facts.problem, variant, device)
    if "SCHEDULE" in params and "wgmma" in variant.kernel.flags:
        return wgmma_preference(variant, facts, device)
    if not isinstance(bm, int) or not isinstance(bn, int) or "M" not in dims:
        return 0.0
    m, n, batch = max(dims["M"], 1), max(dims["N"], 1), max(dims["BATCH"], 1)
    splits = _splits(variant)
    waves = -(-(-(-m // bm) * -(-n // bn) * batch * splits) // device.sm_count)
    perfect = m * n * batch / device.sm_count
    traffic = 1.0 + 16.0 / bm + 16.0 / bn
    return -6.0 * log2(waves * bm * bn / splits * traffic / perfect)


def _splits(variant: Variant) -> int:
    splits = variant.param_map.get("SPLIT", 1)
    return splits if isinstance(splits, int) else 1


def by_operator(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Whatever only one operator knows: see OPERATOR_RULES."""
    rule = OPERATOR_RULES.get(variant.kernel.op_type)
    return rule(variant, facts, device) if rule else 0.0


def gemm_shape(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Skinny products by predicted time, others by what splitting K gains."""
    if variant.kernel.name in SKINNY_TIMES:
        return skinny_preference(facts.problem, variant, device)
    if variant.kernel.name == "gemm_bias_act_f32_async":
        return f32_tiles(variant, facts, device)
    return gemm_split(variant, facts, device)


def f32_tiles(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """What by_shape does not know of tiles on CUDA cores: how full they keep the pipelines.

    Many outputs a thread need few reads of shared memory, but only eight warps on a multiprocessor
    hide latency: two small blocks of them, or a large one. Blocks that share K sum in the end.
    """
    dims = facts.dims
    bm, bn = int(variant.param("BM")), int(variant.param("BN"))
    split = _splits(variant)
    blocks = -(-dims["M"] // bm) * -(-dims["N"] // bn) * dims["BATCH"] * split
    warps = bm // 64 * (bn // (4 * int(variant.param("TN"))))
    lonely = warps < 8 and (blocks * warps < 8 * device.sm_count if warps < 4 else
                            blocks % (2 * device.sm_count) <= device.sm_count)
    return ((0.5 if variant.param("BK") == 16 else 0.0) - (3.0 if lonely else 0.0)
            - 0.7 * log2(split) - (0.5 if bn == 128 else 0.0))


def gemm_split(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Splitting K pays where K is long and the output has too few tiles for the device."""
    splits = _splits(variant)
    if splits == 1 and "split_k" not in variant.kernel.flags:
        return 0.0
    dims, params = facts.dims, variant.param_map
    bm, bn = (int(params.get(name, 128)) for name in ("BM", "BN"))
    tiles = -(-dims["M"] // bm) * -(-dims["N"] // bn) * dims["BATCH"]
    starved = tiles * 2 <= device.sm_count and dims["K"] >= 1024
    return 15.0 if starved else -30.0


def row_shape(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Row length and count decide how many threads and blocks share a row."""
    if variant.kernel.name in ("row_pipe", "row_ring"):
        return ring_preference(facts.problem, variant)
    return row_preference(facts.problem, variant, device)


def elementwise_size(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Small tensors need many small blocks; large ones have a measured best shape of block."""
    return elementwise_preference(facts.problem, variant, device)


def conv_shape(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Channels of a group decide between tiles of several heights and a thread per output."""
    padded = "SCHEDULE" in variant.param_map
    preference = padded_preference if padded else conv_preference
    return preference(facts.problem, variant, device)


def concat_words(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Narrow words need many of them in flight; for wide ones fewer registers are better.

    Where words are narrow and pieces long, shifting them out of wide ones beats both.
    """
    if variant.kernel.name == "concat_rows":
        from ...launch.movement import long_pieces

        return 20.0 if long_pieces(facts.problem) else -20.0
    narrow = min(facts.alignment.values()) < 8
    return 5.0 if (variant.param("UNROLL") == 8) == narrow else 0.0


def resample_rows(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """A thread with more rows shares more lines, where there are threads enough.

    Where an image grows and fills the device, sums along rows are better made once.
    """
    if variant.kernel.name == "resample_staged":
        from ...launch.resample import grows

        pays = grows(facts.problem) and facts.dims["SIZE"] >= 8192 * device.sm_count
        x = facts.problem.inputs[0]
        assert x is not None
        tall = x.shape[-2] >= 32  # rows: as many as eight of every thread
        suits = 2.0 if tall == (variant.param("UNROLL") == 8) else 0.0
        return (20.0 if pays else -20.0) + suits
    many = facts.dims["SIZE"] >= 64 * 1024 * device.sm_count
    return 5.0 if (variant.param("ROWS") == 8) == many else 0.0


def gather_staging(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Reading rows whole pays where a good part of each is picked, and rows fill the device.

    An element picked alone costs a sector of 32 bytes, a request of its own and a divergent one.
    """
    if variant.kernel.name != "gather_staged":
        return 0.0
    x, indices = facts.problem.inputs
    assert x is not None and indices is not None
    rows = prod(x.shape[:-1])
    pays = 4 * indices.size >= x.shape[-1] >= 64 and rows >= 4 * device.sm_count
    # Indices are as many bytes as a row or two: of many rows, several share one reading.
    several = rows >= 24 * device.sm_count
    kind = (variant.param("ROWS"), variant.param("GROUPS"))
    suits = 10.0 if several and kind == (1, 8) else 5.0 if kind == (2, 1) else 0.0
    return (40.0 if pays else 0.0) + suits


def pad_ends(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Where most warps meet the end of a row, that end is better made apart."""
    from ...launch.pad import pads_short_rows

    if variant.kernel.name != "pad_rows":
        return 0.0
    return 15.0 if pads_short_rows(facts.problem) else -15.0


def scan_shape(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Rows that are neighbours take a thread each, others as many as their length is worth."""
    threads = variant.param("THREADS") if variant.kernel.name == "row_scan" else None
    return scan_preference(facts.problem, threads)


def attention_tiles(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Padded queries, masked keys, the speed of tiles and schedules, waves of blocks."""
    if variant.kernel.name == "attention_wgmma":
        return wgmma_attention_preference(facts.problem, variant)
    if variant.kernel.name == "attention_decode":
        from ...launch.attention_call import attention_call

        return decode_preference(attention_call(facts.problem), variant, device)
    return attention_preference(facts.problem, variant, device)


def gradient_tiles(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Tensor maps and wgmma for long sequences; few padded queries."""
    return gradient_preference(facts.problem, variant)


def paged_blocks(variant: Variant, facts: Facts, device: DeviceProfile) -> float:
    """Waves of blocks, as where keys follow each other."""
    from ...launch.attention_paged import paged_call

    return decode_preference(paged_call(facts.problem), variant, device)


OPERATOR_RULES: dict[str, VariantRule] = {
    **dict.fromkeys(GEMM_OPS, gemm_shape),
    "ROW": row_shape,
    "SCAN": scan_shape,
    "ELEMENTWISE": elementwise_size,
    "CONCAT": concat_words,
    "GATHER": gather_staging,
    "PAD": pad_ends,
    "RESAMPLE": resample_rows,
    "CONV2D": conv_shape,
    "ATTENTION": attention_tiles,
    "ATTENTION_GRAD": gradient_tiles,
    "PAGED_ATTENTION": paged_blocks,
}

VARIANT_RULES: dict[str, VariantRule] = {
    "shape": by_shape,
    "operator": by_operator,
}
