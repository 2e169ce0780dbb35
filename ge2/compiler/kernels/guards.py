"""Guards: which problems a kernel can serve, and the reason where it cannot, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...contract import FLOAT8_MAX
from ...errors import KernelSpecError, near_matches
from ...problem import Problem
from .conv_plans import refuse_conv, refuse_lines
from .conv_wgmma_plans import refuse_padded
from .elementwise_plans import rows_plan, tiled_plan, vector_plan
from .facts import GEMM_OPS, INT32_MAX, Facts
from .headers import refuse_realization
from .metadata import Guards, KernelInfo, Number, Variant, evaluate
from .pool_plans import refuse_pool_window
from .row_plans import (
    refuse_cluster,
    refuse_column,
    refuse_copied,
    refuse_resident,
    refuse_split,
    refuse_thread,
)
from .row_ring_plans import refuse_ring

if TYPE_CHECKING:
    from ...evidence.device import DeviceProfile

CustomGuard = Callable[[Problem, Variant, "DeviceProfile"], str]
"""Returns why the variant cannot serve the problem, or an empty string."""

# A kernel with one of these flags needs the device ability of the same name. Not async_copy: older
# devices run the same source with plain copies.
NEEDED_ABILITIES = ("tensor_core", "tma", "cluster", "wgmma")


def kernel_reasons(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> tuple[str, ...]:
    """Return every reason, shared by all its variants, why a kernel cannot serve a problem."""
    return tuple(_kernel_reasons(kernel, facts, device))


def variant_reasons(variant: Variant, facts: Facts, device: DeviceProfile) -> tuple[str, ...]:
    """Return every further reason why a variant of an accepted kernel cannot serve a problem."""
    guards = variant.kernel.guards_for(device.arch)
    return tuple(_variant_reasons(variant, guards, facts, device))


def _kernel_reasons(kernel: KernelInfo, facts: Facts, device: DeviceProfile) -> Iterator[str]:
    if kernel.op_type != facts.problem.op_type:
        yield f"op_type: serves {kernel.op_type}, not {facts.problem.op_type}"
        return
    if not kernel.runs_on(device.arch):
        yield f"arch: needs {' or '.join(kernel.archs)}, device is {device.arch}"
    for flag in NEEDED_ABILITIES:
        if flag in kernel.flags and not device.caps.get(flag, False):
            yield f"{flag}: {device.name} has none"
    misfits = [rule.mismatch(facts.input_dtypes, facts.output_dtypes) for rule in kernel.dtypes]
    if misfits and all(misfits):
        yield "dtype: " + " / ".join(dict.fromkeys(misfits))
    if facts.problem.op_type in GEMM_OPS:
        with_rows = facts.problem.attr_map.get("rows", "none") != "none"
        if with_rows and "row_values" not in kernel.flags:
            yield "row_values: kernel says nothing of rows"
        if len(facts.problem.outputs) > 1 + with_rows and "two_outputs" not in kernel.flags:
            yield "two_outputs: kernel writes one"
    for operand, accepted in kernel.layouts:
        found = facts.layouts.get(operand)
        if found is not None and found.isdisjoint(accepted):
            best = sorted(found - {"strided"}) or ["strided"]
            yield f"layout: {operand} is {'/'.join(best)}, kernel takes {' or '.join(accepted)}"
    yield from _flag_reasons(kernel.guards_for(device.arch), facts)


def _flag_reasons(guards: Guards, facts: Facts) -> Iterator[str]:
    for name, spec in facts.operands.items():
        if guards.contiguous and not spec.is_dense:
            yield f"contiguous: {name} has strides {list(spec.strides)}"
        if guards.inner_contiguous and "inner" not in facts.layouts[name]:
            yield f"inner_contiguous: {name} has inner stride {spec.strides[-1]}"
        if guards.index32 and spec.max_offset > INT32_MAX:
            yield f"index32: {name} reaches element {spec.max_offset}"


def _variant_reasons(variant: Variant, guards: Guards, facts: Facts,
                     device: DeviceProfile) -> Iterator[str]:
    def number(value: Number) -> int:
        return value if isinstance(value, int) else evaluate(value, variant.param_map)

    if (align := number(guards.align)) > 1:
        watched = [name for name, _ in variant.kernel.layouts] or list(facts.operands)
        for name in watched:
            if (found := facts.alignment.get(name, 16)) < min(align, 16):
                yield f"align: {name} is aligned to {found} bytes, kernel needs {align}"
    if (rank := number(guards.max_rank)) and facts.dims["RANK"] > rank:
        yield f"max_rank: rank {facts.dims['RANK']} is above {rank}"
    if (smem := number(guards.smem_max)) > device.smem_per_block:
        yield f"smem_max: needs {smem} bytes, a block of {device.name} has {device.smem_per_block}"
    for label, says, holds in _BOUNDS:
        for dim, value in getattr(guards, label):
            extent, limit = facts.dims.get(dim), number(value)
            if extent is None:
                yield f"{label}: a {facts.problem.op_type} has no dimension {dim}"
            elif not holds(extent, limit):
                yield f"{label}: {dim} = {extent}, kernel takes {says} {limit}"
    if guards.custom:
        reason = custom_guard(guards.custom, variant.kernel)(facts.problem, variant, device)
        if reason:
            yield f"{guards.custom}: {reason}"


_BOUNDS: tuple[tuple[str, str, Callable[[int, int], bool]], ...] = (
    ("multiple_of", "multiples of", lambda found, limit: found % limit == 0),
    ("max", "at most", lambda found, limit: found <= limit),
    ("min", "at least", lambda found, limit: found >= limit),
)


def custom_guard(name: str, kernel: KernelInfo) -> CustomGuard:
    """Return the function that a kernel's `custom` guard names.

    Raises:
        KernelSpecError: CUSTOM_GUARDS has no such function.
    """
    if name not in CUSTOM_GUARDS:
        raise KernelSpecError(f"{kernel.template}: no custom guard is named {name!r}",
                              hint=near_matches(name, CUSTOM_GUARDS) or "See guards.py.")
    return CUSTOM_GUARDS[name]


def elementwise_vec(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Vectors need an innermost axis that every tensor steps along by 1 or 0."""
    return "" if vector_plan(problem)[1] else "a tensor steps wider than 1 along the inner axis"


def elementwise_rows(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Rows need outputs that lie in one piece."""
    return "" if rows_plan(problem)[1] > 1 else "outputs are not dense, or not aligned"


def transpose_tiled(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tiles need inputs that are contiguous along one other axis than the output."""
    plan = tiled_plan(problem)
    if plan is None:
        return "no input is contiguous along one other axis"
    smem = plan.shared_bytes(problem, variant.param("TILE_A") * variant.param("TILE_B"))
    if smem > device.smem_per_block:
        return f"needs {smem} bytes of shared memory, a block has {device.smem_per_block}"
    return ""


def concat_rows(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """A few dense and aligned inputs."""
    from ...launch.movement import rows_refusal

    return rows_refusal(problem)


def gather_staged(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Dense rows in whole 16-byte words, few enough of them to be kept."""
    from ...launch.gather import staged_bytes, staged_refusal

    return (staged_refusal(problem, variant)
            or _exceeds_shared(staged_bytes(problem, variant) + 1024, device))


def pad_rows(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Aligned tensors whose rows show a few vectors of x."""
    from ...launch.pad import rows_refusal

    return rows_refusal(problem)


def resample_staged(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Sums along the last two axes; those along rows lie in shared memory."""
    from ...launch.resample import staged_bytes, staged_refusal

    return (staged_refusal(problem, variant)
            or _exceeds_shared(staged_bytes(problem, variant) + 1024, device))


def norm_gemm(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Rows lie in shared memory, next to stages of B."""
    from ...launch.norm_gemm import norm_gemm_refusal

    return norm_gemm_refusal(problem, variant, device)


def gemm_tensor_core(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tensor cores before sm_80 take f16 but not bf16."""
    spec = problem.inputs[0]
    is_bf16 = spec is not None and spec.dtype == "bf16"
    return "bf16 needs sm_80" if is_bf16 and not device.caps["bf16"] else ""


def gemm_tensor_core_8bit(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tensor cores before sm_89 take 8-bit integers but not floats; sums of those need registers.
    """
    if not any(x is not None and x.dtype in FLOAT8_MAX for x in problem.inputs[:2]):
        return ""
    if not device.caps["fp8"]:
        return "8-bit floats need sm_89"
    native = device.arch in ("sm_89", "sm_120a")
    if variant.param("BM") == 128 and not native:
        return "no registers are left where mma.sync of 8-bit floats is made of other instructions"
    return ""


def gemm_f32_async(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Splitting K needs clusters; tiles are addressed by 32-bit offsets."""
    from ...launch.gemm import async_refusal
    from ...launch.gemm_call import gemm_call

    if int(variant.param("SPLIT")) > 1 and not device.caps["cluster"]:
        return "blocks that share K need clusters"
    return async_refusal(variant, gemm_call(problem))


def gemm_skinny(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """A few rows or columns, read in 16-byte vectors."""
    from ...launch.gemm_call import skinny_call, skinny_refusal

    return skinny_refusal(variant, skinny_call(problem))


def gemm_skinny_mma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Up to 16 rows or columns against weights along k, read in 16-byte vectors."""
    from ...launch.gemm_call import skinny_call
    from ...launch.gemm_skinny import direct_refusal

    return direct_refusal(skinny_call(problem))


def gemm_skinny_ring(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Up to 64 rows or columns, copied 16 bytes at a time."""
    from ...launch.gemm_call import skinny_call
    from ...launch.gemm_skinny import ring_refusal

    return ring_refusal(variant, skinny_call(problem))


def gemm_wgmma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tensor maps need a unit stride and 16-byte rows in A, B and Y."""
    from ...launch.gemm_call import gemm_call
    from ...launch.gemm_wgmma import tail_refusal, wgmma_refusal

    call = gemm_call(problem)
    return wgmma_refusal(variant, call) or tail_refusal(variant, call, device)


def gemm_wgmma_8bit(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tensor maps as for gemm_wgmma, and operands along K: wgmma transposes no bytes."""
    from ...launch.gemm_call import gemm_call
    from ...launch.gemm_wgmma import wgmma_bytes_refusal

    return wgmma_bytes_refusal(variant, gemm_call(problem))


def gemm_wgmma_any(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Where tensor maps do not reach an operand or the output."""
    from ...launch.gemm_call import gemm_call
    from ...launch.gemm_wgmma_any import wgmma_any_refusal

    return wgmma_any_refusal(variant, gemm_call(problem))


def gemm_wgmma_f32(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Only where the problem asks for f32 products of this kind."""
    from ...launch.gemm_wgmma_f32 import wgmma_f32_refusal

    return wgmma_f32_refusal(problem, variant)


def attention_decode(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Few query rows of a key head; rows in whole vectors."""
    from ...launch.attention_call import attention_call
    from ...launch.attention_decode import decode_refusal

    return decode_refusal(attention_call(problem))


def attention_decode_paged(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """As attention_decode, and whole tiles of keys in each page."""
    from ...launch.attention_paged import paged_refusal

    return paged_refusal(problem)


def attention_grad_mma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tiles of all operands lie in shared memory."""
    from ...launch.attention_grad import gradient_call, mma_gradient_bytes

    return _exceeds_shared(mma_gradient_bytes(variant, gradient_call(problem).forward), device)


def attention_grad_simt(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tiles of all operands lie in shared memory."""
    from ...launch.attention_grad import gradient_call, simt_gradient_bytes

    return _exceeds_shared(simt_gradient_bytes(gradient_call(problem).forward), device)


def attention_grad_wgmma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Plain scores, tensor maps reach all tensors, and sums fit in registers."""
    from ...launch.attention_grad import gradient_call
    from ...launch.attention_grad_wgmma import wgmma_gradient_refusal

    return wgmma_gradient_refusal(variant, gradient_call(problem))


def attention_simt(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Sums lie in registers; queries, keys, values and weights of a tile in shared memory."""
    from ...launch.attention import simt_refusal, simt_shared_bytes
    from ...launch.attention_call import attention_call

    call = attention_call(problem)
    return (simt_refusal(variant, call)
            or _exceeds_shared(simt_shared_bytes(variant, call), device))


def attention_mma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Sums and scores lie in registers, queries and two tiles of keys in shared memory."""
    from ...launch.attention import mma_refusal, mma_shared_bytes
    from ...launch.attention_call import attention_call

    call = attention_call(problem)
    if call.q.dtype == "bf16" and not device.caps["bf16"]:
        return "bf16 needs sm_80"
    if int(variant.param("BM")) == 128 and not device.caps["async_copy"]:
        return "copies through registers leave no room for the sums of 128 queries"
    return (mma_refusal(variant, call)
            or _exceeds_shared(mma_shared_bytes(variant, call), device))


def _exceeds_shared(nbytes: int, device: DeviceProfile) -> str:
    if nbytes <= device.smem_per_block:
        return ""
    return f"needs {nbytes} bytes of shared memory, a block has {device.smem_per_block}"


def nbits_skinny(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Up to 16 rows, and codes that a lane reads in whole words of one group."""
    from ...launch.nbits import nbits_call, skinny_refusal

    return skinny_refusal(nbits_call(problem))


def nbits_mma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Rows of codes that are copied 16 bytes at a time."""
    from ...launch.nbits import mma_refusal, nbits_call

    return mma_refusal(nbits_call(problem))


def attention_wgmma(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Tensor maps reach all tensors, and a tile fits in shared memory and registers."""
    from ...launch.attention_call import attention_call
    from ...launch.attention_wgmma import wgmma_refusal

    return wgmma_refusal(variant, attention_call(problem))


CUSTOM_GUARDS: dict[str, CustomGuard] = {
    "attention_decode": attention_decode,
    "attention_decode_paged": attention_decode_paged,
    "attention_grad_mma": attention_grad_mma,
    "attention_grad_simt": attention_grad_simt,
    "attention_grad_wgmma": attention_grad_wgmma,
    "attention_mma": attention_mma,
    "attention_simt": attention_simt,
    "attention_wgmma": attention_wgmma,
    "concat_rows": concat_rows,
    "conv2d_size": refuse_conv,
    "conv2d_lines": refuse_lines,
    "conv2d_wgmma": refuse_padded,
    "elementwise_rows": elementwise_rows,
    "elementwise_vec": elementwise_vec,
    "gather_staged": gather_staged,
    "lab_realization": refuse_realization,
    "pool2d_window": refuse_pool_window,
    "pad_rows": pad_rows,
    "resample_staged": resample_staged,
    "row_cluster": refuse_cluster,
    "row_column": refuse_column,
    "row_copied": refuse_copied,
    "row_resident": refuse_resident,
    "row_ring": refuse_ring,
    "row_split": refuse_split,
    "row_thread": refuse_thread,
    "nbits_mma": nbits_mma,
    "nbits_skinny": nbits_skinny,
    "gemm_f32_async": gemm_f32_async,
    "gemm_skinny": gemm_skinny,
    "gemm_skinny_mma": gemm_skinny_mma,
    "gemm_skinny_ring": gemm_skinny_ring,
    "gemm_tensor_core": gemm_tensor_core,
    "gemm_tensor_core_8bit": gemm_tensor_core_8bit,
    "gemm_wgmma": gemm_wgmma,
    "gemm_wgmma_8bit": gemm_wgmma_8bit,
    "gemm_wgmma_any": gemm_wgmma_any,
    "gemm_wgmma_f32": gemm_wgmma_f32,
    "norm_gemm": norm_gemm,
    "transpose_tiled": transpose_tiled,
}
