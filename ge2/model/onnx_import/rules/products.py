"""Matrix products, convolutions, pools, resizing and quantisation."""

from __future__ import annotations

from typing import Any

from ...node_writer import Unmapped
from ..call import Call
from .elementwise import dtype_of
from .table import RuleTable

RULES = RuleTable()

RULES.direct("MatMul", "MATMUL")
RULES.direct("MatMulInteger", "MATMUL_INTEGER")
RULES.direct("Einsum", "EINSUM", "equation")
RULES.direct("GlobalAveragePool", "GLOBAL_AVG_POOL")
RULES.direct("GlobalMaxPool", "GLOBAL_MAX_POOL")
RULES.direct("ConvTranspose", "CONV_TRANSPOSE", "strides", "pads", "dilations", "group",
             "auto_pad", "output_padding", "output_shape", ignored=("kernel_shape",))


@RULES.rule("Gemm")
def _gemm(call: Call) -> str:
    call.only("alpha", "beta", "transA", "transB")
    attrs = call.take("alpha", "beta", transA="trans_a", transB="trans_b")
    a, b, *c = call.values()
    if attrs.pop("beta", 1.0) != 1.0 and c:
        return call.make("GEMM_BIAS_ACT", a, b, "", *c, beta=call.attrs["beta"], **attrs)
    return call.make("GEMM_BIAS_ACT", a, b, *c, **attrs)


@RULES.rule("Conv")
def _conv(call: Call) -> Any:
    call.only("strides", "pads", "dilations", "group", "auto_pad", "kernel_shape")
    spatial = call.rank(0) - 2
    if spatial not in (1, 2):
        raise Unmapped(f"{spatial} spatial axes")
    return call.make(f"CONV{spatial}D", *call.values(),
                     **call.take("strides", "pads", "dilations", "group", "auto_pad"))


@RULES.rule("MaxPool", "AveragePool", "LpPool")
def _pool(call: Call) -> Any:
    if any(call.wanted[1:]):
        raise Unmapped("indices of a max pool")
    op = {"MaxPool": "MAX_POOL", "AveragePool": "AVG_POOL", "LpPool": "LP_POOL"}
    attrs = {name: value for name, value in call.attrs.items() if name != "storage_order"}
    return [call.make(op[call.op], *call.values(), **attrs), *[""] * (len(call.wanted) - 1)]


@RULES.rule("Resize")
def _resize(call: Call) -> Any:
    if call.opset < 11:
        return _upsample(call)
    scales, sizes = call.elements(2) or None, call.elements(3) or None
    roi = (call.elements(1) or None) if "tf_crop" in call.attrs.get(
        "coordinate_transformation_mode", "") else None
    return call.make("RESIZE", call.value(0), scales=scales, sizes=sizes, roi=roi, **call.attrs)


@RULES.rule("Upsample")
def _upsample(call: Call) -> str:
    """Resize of opset 10 and before it: x / scale, rounded down."""
    mode = call.attrs.get("mode", "nearest")
    return call.make("RESIZE", call.value(0), scales=call.attr_or_list("scales", 1),
                     mode="linear" if mode in ("linear", "bilinear") else mode,
                     coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@RULES.rule("QLinearMatMul")
def _qlinear_matmul(call: Call) -> str:
    """Sums of bytes times both scales, as bytes again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = call.values()
    if call.type(1).dtype != "f32":
        a_scale, b_scale, y_scale = (call.make("CAST", scale, to="f32")
                                     for scale in (a_scale, b_scale, y_scale))
    if call.rank(1) == 1:
        a_scale = call.make("UNSQUEEZE", a_scale, axes=(1,))
    sums = call.make("CAST", call.make("MATMUL_INTEGER", a, b, a_zero, b_zero), to="f32")
    y = call.make("MUL", call.make("MUL", sums, a_scale), b_scale)
    return call.make("QUANTIZE", y, y_scale, y_zero)


@RULES.rule("com.microsoft.MatMulNBits")
def _matmul_nbits(call: Call) -> str:
    """ONNX Runtime's product with packed weights; accuracy_level is a hint that kernels pass over.
    """
    call.only("K", "N", "bits", "block_size", "accuracy_level")
    if call.has(4):
        raise Unmapped("groups by g_idx")
    if call.has(3) and call.type(3).dtype != "u8":
        raise Unmapped("zero points that are no codes")
    return call.make("MATMUL_NBITS", *call.values(0, 1, 2, 3, 5),
                     **call.take("bits", "block_size"))


@RULES.rule("QuantizeLinear")
def _quantize(call: Call) -> str:
    call.only("axis", "block_size", "output_dtype", "saturate", "precision")
    attrs = call.take("axis", "block_size")
    if call.attrs.get("output_dtype"):
        attrs["output_dtype"] = dtype_of(call.attrs["output_dtype"])
    return call.make("QUANTIZE", *call.values(), **attrs)


@RULES.rule("DequantizeLinear")
def _dequantize(call: Call) -> str:
    call.only("axis", "block_size", "output_dtype")
    return call.make("DEQUANTIZE", *call.values(), **call.take("axis", "block_size"))


@RULES.rule("DynamicQuantizeLinear")
def _dynamic_quantize(call: Call) -> Any:
    return call.writer.multi("DYNAMIC_QUANTIZE", 3, *call.values())
