"""Launch rules of NORM_GEMM: blocks hold whole rows, normalised, and stream B past them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..compiler.ir.size import Size
from ..compiler.kernels.norm_gemm_plans import block_groups
from ..contract import DTYPES
from ..errors import Unsupported
from ..evidence.device import PROFILES
from ..problem import Problem, TensorSpec
from .gemm import INT32_MAX, Shape, layout_classes, reads_k_major
from .gemm_args import OPERAND_DTYPE, Operand, plain_args_dtype
from .gemm_call import GemmCall, gemm_call
from .gemm_examples import gemm_problem
from .gemm_source import ALIGNMENT_SLACK, Classes, cpp, source_of
from .gemm_wgmma import (
    BOX_BYTES,
    MAP_BYTES,
    ROW_BYTES,
    SHARED_BYTES,
    operand_map,
    operand_refusal,
    output_maps,
)
from .record import LaunchRecord, TensorMapSpec, args_checks

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..evidence.device import DeviceProfile
    from .rule import LaunchRule

MOST_STAGES = 6  # of B: more hide nothing
STORES = 2  # buffers of a warp
EXTRAS = 4  # inputs before those of the epilogue: x, scale, B, shift


@dataclass(frozen=True, slots=True)
class NormGemmCall:
    """A product and the norm of its first operand's rows.

    Attributes:
        product: its operands lie in the slots of NORM_GEMM.
        operands: "scale", then "shift" and "rows" (the second output) where they are there.
        epsilon: added to the variance.
        centred: whether the mean is subtracted.
    """

    product: GemmCall
    operands: tuple[tuple[str, Operand], ...]
    epsilon: float
    centred: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the operands."""
        return tuple(name for name, _ in self.operands)


def norm_gemm_call(problem: Problem) -> NormGemmCall:
    """Return the normal form of a NORM_GEMM problem."""
    attrs = problem.attr_map
    n_in = len(problem.inputs)
    slots = (0, 2, *range(EXTRAS, n_in))
    inner = Problem("GEMM_BIAS_ACT", tuple(problem.inputs[slot] for slot in slots),
                    problem.outputs[:1], tuple(sorted({**attrs, "trans_a": False}.items())))
    call = gemm_call(inner)
    places = (*slots, n_in)

    def moved(operand: Operand) -> Operand:
        return replace(operand, slot=places[operand.slot])

    product = replace(call, a=moved(call.a), b=moved(call.b), y=moved(call.y),
                      extras=tuple((name, moved(x)) for name, x in call.extras))
    operands = [("scale", 1, problem.inputs[1])]
    if n_in > 3 and problem.inputs[3] is not None:
        operands.append(("shift", 3, problem.inputs[3]))
    operands += [("rows", n_in + 1, spec) for spec in problem.outputs[1:]]
    return NormGemmCall(product, tuple((name, _operand(slot, spec)) for name, slot, spec in operands
                                       if spec is not None),
                        float(attrs["epsilon"]),  # type: ignore[arg-type] # checked by the schema
                        attrs["norm"] == "LAYER_NORM")


def _operand(slot: int, spec: TensorSpec) -> Operand:
    row = spec.strides[0] if len(spec.shape) > 1 else 0
    return Operand(slot, spec.dtype, spec.align, row, spec.strides[-1], (0, 0, 0))


@dataclass(frozen=True, slots=True)
class NormGemmRule:
    """One launch of blocks that share tiles of rows, each with every so manieth tile of columns.

    Attributes:
        shape: launch shape of a variant for a product.
        mapped: whether B is read and Y written by tensor map.
    """

    shape: Callable[[Variant, GemmCall], Shape]
    mapped: bool = False

    def bind(self, problem: Problem, variant: Variant, device: DeviceProfile) -> list[LaunchRecord]:
        """Return the launch; see LaunchRule."""
        call = norm_gemm_call(problem)
        product = call.product
        if product.is_empty:
            return []
        refusal = norm_gemm_refusal(problem, variant, device)
        if refusal:
            raise Unsupported(refusal, argument=variant.id, found=problem)
        shape = self.shape(variant, product)
        rows, columns = -(-product.m // shape.tile[0]), -(-product.n // shape.tile[1])
        groups = block_groups(rows, columns, shape.smem, device)
        args, relocs = product.pack([x for _, x in call.operands], (call.epsilon, groups),
                                    2 if self.mapped else 0)
        classes = _classes(call, self.mapped)
        maps: tuple[TensorMapSpec, ...] = ()
        if self.mapped:
            classes += (("STAGES", wgmma_stages(variant, product)), ("STORES", STORES))
            maps = (operand_map(0, product.b, product.n, product.k, shape.tile[1], 0),
                    *output_maps(MAP_BYTES, product))
        return [LaunchRecord(kernel=source_of(variant, product, classes),
                             grid=(rows * groups, 1, 1), block=shape.block, args=args,
                             relocs=relocs, smem=shape.smem, tensor_maps=maps,
                             pdl=True, early=(product.b.slot,) if self.mapped else ())]

    def examples(self, variant: Variant) -> list[Problem]:
        """Return problems for compile tests; see LaunchRule."""
        found = []
        for rule in variant.kernel.dtypes:
            dtype = rule.output
            found += [norm_gemm_problem(dtype, (128, 256, 384)),
                      norm_gemm_problem(dtype, (128, 256, 72), "RMS_NORM", trans_b=True,
                                        fused=True)]
        found += [norm_gemm_problem(dtype, (128, 256, 1024), trans_b=True, rows=False),
                  norm_gemm_problem(dtype, (128, 255, 129), align=DTYPES[dtype].itemsize)]
        return [p for p in found if not norm_gemm_refusal(p, variant, PROFILES["sm_90a"])]


def _classes(call: NormGemmCall, mapped: bool) -> Classes:
    """Return what a template is rendered with besides the product's own context."""
    product, named = call.product, dict(call.operands)
    width = 16 // DTYPES[product.a.dtype].itemsize
    whole = all(named[name].vector(False, (width,)) == width
                for name in ("scale", "shift") if name in named)
    operands: list[tuple[Any, ...]] = [(name, OPERAND_DTYPE) for name in call.names]
    tail = [*operands, ("epsilon", "f8"), ("groups", "i8")]
    extras = [name for name, _ in product.extras]
    maps = [("map_b", "u8", 16), ("map_y", "u8", 16)] if mapped else []
    unused = -plain_args_dtype(extras, *tail, maps=maps).itemsize // 8 % 8 if mapped else 0
    if unused:
        tail.append(("unused", "i8", unused))
    paired = tuple(name for name, x in product.extras
                   if x.column == 1 and x.vector(False, (2,)) == 2 and product.n % 2 == 0)
    classes: dict[str, Any] = dict(layout_classes(product, (8, 4, 2) if width == 8 else (4,)))
    # Rows are read along k, whichever way they lie.
    classes["VEC_A"] = product.a.vector(False, (width,))
    classes["VEC_ROWS"] = named["rows"].vector(False, (width,)) if "rows" in named else 1
    return (*classes.items(), ("MAPPED", mapped), ("UNUSED", unused), ("PAIRED", paired),
            ("ARGS_CHECKS", args_checks(plain_args_dtype(extras, *tail, maps=maps))),
            ("NORM_OPERANDS", call.names),
            ("CENTRED", cpp(call.centred)), ("PARAMETERS", cpp(whole)),
            ("WHOLE", cpp(product.k % width == 0)),
            ("CHUNKS", -(-product.k // (32 * width))))


def norm_gemm_refusal(problem: Problem, variant: Variant, device: DeviceProfile) -> str:
    """Return why a variant cannot serve a problem on a device; empty where it can."""
    product = norm_gemm_call(problem).product
    if isinstance(product.k, Size):
        return "the length of the rows varies"
    if max(abs(product.b.row), abs(product.b.column)) * int(variant.param("BN")) > INT32_MAX:
        return "offsets inside a tile do not fit in 32 bits"
    rule = RULES[variant.kernel.launch]
    assert isinstance(rule, NormGemmRule)
    if rule.mapped and (reason := _map_refusal(product) or (
            wgmma_stages(variant, product) < 2 and "no room is left for stages of B")):
        return reason
    smem = rule.shape(variant, product).smem
    if smem > device.smem_per_block:
        return f"needs {smem} bytes of shared memory, a block has {device.smem_per_block}"
    return ""


def _map_refusal(call: GemmCall) -> str:
    """Return why tensor maps cannot reach B or Y; empty where they can."""
    if call.n % (16 // DTYPES[call.y.dtype].itemsize):
        return "tensor maps store whole units of 16 bytes, and a row of Y ends inside one"
    return operand_refusal("B", call.b) or operand_refusal("Y", call.y)


def wgmma_stages(variant: Variant, call: GemmCall) -> int:
    """Return how many stages of B fit beside the rows and the store buffers."""
    bm, bn = int(variant.param("BM")), int(variant.param("BN"))
    left = SHARED_BYTES - ALIGNMENT_SLACK - 256 - _wgmma_bytes(bm, call)
    return min(MOST_STAGES, left // (bn * ROW_BYTES))


def _wgmma_bytes(bm: int, call: GemmCall) -> int:
    return -(-call.k // 64) * bm * ROW_BYTES + 8 * STORES * BOX_BYTES


def _wgmma_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn = int(variant.param("BM")), int(variant.param("BN"))
    stages = wgmma_stages(variant, call)
    return Shape((bm, bn), (9 * 32, 1, 1), _wgmma_bytes(bm, call) + stages * (bn * ROW_BYTES + 16)
                 + ALIGNMENT_SLACK)


def _mma_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, stages = (int(variant.param(name)) for name in ("BM", "BN", "STAGES"))
    warp_n = bn // 4 if bm == 32 else bn // 2
    warps = bm // 32 * (bn // warp_n)
    ring, sums = stages * bn * 64 * 2, warps * 32 * (warp_n + 8) * 4
    panel = -(-call.k // 64) * 64 * bm * 2
    return Shape((bm, bn), (warps * 32, 1, 1), max(ring, sums) + panel + ALIGNMENT_SLACK)


def _f32_shape(variant: Variant, call: GemmCall) -> Shape:
    bm, bn, stages = (int(variant.param(name)) for name in ("BM", "BN", "STAGES"))
    warps = bm // 16 * (bn // 64)
    ring = stages * (bn + (4 if reads_k_major(call.b) else 0)) * 16
    panel = (-(-call.k // 16) * 16 + 4) * bm
    return Shape((bm, bn), (warps * 32, 1, 1),
                 (max(ring, warps * 16 * 68) + panel) * 4 + ALIGNMENT_SLACK)


def norm_gemm_problem(dtype: str, shape: tuple[int, int, int], norm: str = "LAYER_NORM", *,
                      trans_b: bool = False, align: int = 16, fused: bool = False,
                      rows: bool = True) -> Problem:
    """Return the product of gemm_problem with the norm of its first operand.

    Args:
        dtype: of all operands.
        shape: m, n, k.
        norm: LAYER_NORM, with a shift, or RMS_NORM.
        trans_b: whether B is stored transposed.
        align: of every address, in bytes.
        fused: with the second epilogue of gemm_problem.
        rows: the normalised rows are an output.
    """
    product = gemm_problem((dtype, dtype, dtype), shape=shape, trans=(False, trans_b), align=align,
                           fused=fused)
    x, b, *rest = product.inputs
    assert x is not None
    parameter = TensorSpec.dense(dtype, shape[2:], align)
    shift = parameter if norm == "LAYER_NORM" else None
    attrs: dict[str, Hashable] = {**product.attr_map, "norm": norm, "epsilon": 1e-5}
    del attrs["trans_a"]
    return Problem("NORM_GEMM", (x, parameter, b, shift, *rest),
                   (*product.outputs, *([x] if rows else [])), tuple(sorted(attrs.items())))


RULES: dict[str, LaunchRule] = {
    "norm_gemm.mma": NormGemmRule(_mma_shape),
    "norm_gemm.wgmma": NormGemmRule(_wgmma_shape, mapped=True),
    "norm_gemm.f32": NormGemmRule(_f32_shape),
}
