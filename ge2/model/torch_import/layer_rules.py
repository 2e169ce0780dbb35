"""ATen operators that are layers: products, convolutions, pools, norms, attention, reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...contract import numpy_dtype
from ..node_writer import Unmapped
from .call import Call, Tensor

RULES: dict[str, Callable[[Call], Any]] = {}


def _maps(*names: str) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    def register(rule: Callable[[Call], Any]) -> Callable[[Call], Any]:
        for name in names:
            RULES[name] = rule
        return rule

    return register


@_maps("linear")
def _linear(call: Call) -> str:
    return call.make("GEMM_BIAS_ACT", call.value("input"), call.value("weight"),
                     call.value("bias"), trans_b=True)


@_maps("matmul", "mm", "bmm")
def _matmul(call: Call) -> str:
    other = "mat2" if "mat2" in call.args else "other"
    return call.make("MATMUL", call.value("self"), call.value(other))


@_maps("addmm", "baddbmm")
def _addmm(call: Call) -> str:
    a, b = ("mat1", "mat2") if call.op == "addmm" else ("batch1", "batch2")
    alpha, beta = float(call["alpha"]), float(call["beta"])
    product = [call.value(a), call.value(b)]
    if beta == 1.0:
        return call.make("GEMM_BIAS_ACT", *product, call.value("self"), alpha=alpha)
    return call.make("GEMM_BIAS_ACT", *product, "", call.value("self"), alpha=alpha, beta=beta)


@_maps("einsum")
def _einsum(call: Call) -> str:
    return call.make("EINSUM", *[call.as_value(t) for t in call["tensors"]],
                     equation=call["equation"])


def _numbers(given: Any, n: int) -> tuple[int, ...]:
    """Return one number per spatial axis."""
    listed = list(given) if isinstance(given, list | tuple) else [given]
    return tuple(listed * n if len(listed) == 1 else listed)


@_maps("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d")
def _conv(call: Call) -> str:
    n = call.type("weight").rank - 2
    x = "self" if "self" in call.args else "input"
    if isinstance(call["padding"], str):
        raise Unmapped("padding by name")
    pads = _numbers(call["padding"], n)
    attrs: dict[str, Any] = {"strides": _numbers(call["stride"], n), "pads": (*pads, *pads),
                             "dilations": _numbers(call["dilation"], n), "group": call["groups"]}
    operands = [call.value(x), call.value("weight"), call.value("bias")]
    if call["transposed"] or call.op.startswith("conv_transpose"):
        return call.make("CONV_TRANSPOSE", *operands,
                         output_padding=_numbers(call["output_padding"], n), **attrs)
    if n not in (1, 2):
        raise Unmapped(f"{n} spatial axes")
    return call.make(f"CONV{n}D", *operands, **attrs)


@_maps("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d")
def _pool(call: Call) -> str:
    n = int(call.op[-2])
    kernel = _numbers(call["kernel_size"], n)
    pads = _numbers(call["padding"], n)
    attrs: dict[str, Any] = {"kernel_shape": kernel, "pads": (*pads, *pads),
                             "strides": _numbers(call["stride"] or kernel, n),
                             "ceil_mode": bool(call["ceil_mode"])}
    if call.op.startswith("max"):
        return call.make("MAX_POOL", call.value("self"), dilations=_numbers(call["dilation"], n),
                         **attrs)
    if call["divisor_override"] is not None:
        raise Unmapped("divisor_override")
    return call.make("AVG_POOL", call.value("self"), **attrs,
                     count_include_pad=bool(call["count_include_pad"]))


@_maps("adaptive_avg_pool1d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def _adaptive(call: Call) -> str:
    sizes = list(call["output_size"])
    if all(size == 1 for size in sizes):
        return call.make("GLOBAL_AVG_POOL", call.value("self"))
    shape = call.type("self").shape[2:]
    if not all(isinstance(e, int) and isinstance(s, int) and e % s == 0
               for e, s in zip(shape, sizes, strict=True)):
        raise Unmapped("adaptive pooling to sizes that do not divide")
    kernel = tuple(e // s for e, s in zip(shape, sizes, strict=True))
    return call.make("AVG_POOL", call.value("self"), kernel_shape=kernel, strides=kernel)


@_maps("upsample_nearest2d", "upsample_bilinear2d")
def _upsample(call: Call) -> str:
    size = call["output_size"]
    sizes = (*call.type("self").shape[:2], *(size if size is not None else call.shape[2:]))
    if call.op.endswith("nearest2d"):
        return call.make("RESIZE", call.value("self"), sizes=sizes, mode="nearest",
                         coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    mode = "align_corners" if call["align_corners"] else "half_pixel"
    return call.make("RESIZE", call.value("self"), sizes=sizes, mode="linear",
                     coordinate_transformation_mode=mode)


@_maps("batch_norm", "_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def _batch_norm(call: Call) -> Any:
    if call["training"]:
        raise Unmapped("training: call eval() on the module first")
    x, channels = call.value("input"), call.type("input").shape[1]
    parameters = [call.value("weight") or _filled(call, 1.0, channels),
                  call.value("bias") or _filled(call, 0.0, channels)]
    result = call.make("BATCH_NORM", x, *parameters, call.value("running_mean"),
                       call.value("running_var"), epsilon=float(call["eps"]))
    return result if call.op == "batch_norm" else (result, None, None)


def _filled(call: Call, number: float, *shape: Any) -> str:
    dtype = numpy_dtype(call.type("input").dtype)
    return call.writer.constant(np.full(shape, number, dtype))


@_maps("layer_norm", "rms_norm")
def _layer_norm(call: Call) -> str:
    rank = len(call["normalized_shape"])
    scale = call.value("weight") or _filled(call, 1.0)
    if call.op == "rms_norm":
        eps = call["eps"]
        epsilon = float(np.finfo(np.float32).eps) if eps is None else float(eps)
        return call.make("RMS_NORM", call.value("input"), scale, axis=-rank, epsilon=epsilon)
    return call.make("LAYER_NORM", call.value("input"), scale, call.value("bias"), axis=-rank,
                     epsilon=float(call["eps"]))


@_maps("group_norm")
def _group_norm(call: Call) -> str:
    channels = call.type("input").shape[1]
    parameters = [call.value("weight") or _filled(call, 1.0, channels),
                  call.value("bias") or _filled(call, 0.0, channels)]
    return call.make("GROUP_NORM", call.value("input"), *parameters,
                     num_groups=call["num_groups"], epsilon=float(call["eps"]))


@_maps("softmax", "_softmax", "log_softmax", "_log_softmax")
def _softmax(call: Call) -> str:
    op = "LOG_SOFTMAX" if "log" in call.op else "SOFTMAX"
    return call.make(op, call.value("self", call.dtype), axis=call["dim"])


@_maps("embedding")
def _embedding(call: Call) -> str:
    return call.make("GATHER", call.value("weight"), call.value("indices"), axis=0)


@_maps("scaled_dot_product_attention")
def _attention(call: Call) -> str:
    if call["dropout_p"]:
        raise Unmapped("dropout in attention: call eval() on the module first")
    q, k, v = (call.type(name) for name in ("query", "key", "value"))
    if not q.rank == k.rank == v.rank == 4:
        raise Unmapped(f"attention of rank {q.rank}")
    scale = call["scale"]
    if scale is None:
        if not isinstance(q.shape[3], int):
            raise Unmapped("attention with a symbolic head size")
        scale = 1 / math.sqrt(q.shape[3])
    if q.shape[1] != k.shape[1] and not call["enable_gqa"]:
        raise Unmapped("attention heads that broadcast")
    return call.make("ATTENTION", call.value("query"), call.value("key"), call.value("value"),
                     call.value("attn_mask"), scale=float(scale),
                     is_causal=bool(call["is_causal"]))


_REDUCE = {"mean": "REDUCE_MEAN", "sum": "REDUCE_SUM", "amax": "REDUCE_MAX", "amin": "REDUCE_MIN",
           "prod": "REDUCE_PROD", "logsumexp": "REDUCE_LOGSUMEXP"}


@_maps(*_REDUCE)
def _reduce(call: Call) -> str:
    axes = call["dim"]
    axes = None if axes is None or axes == [] else axes if isinstance(axes, list) else [axes]
    return call.make(_REDUCE[call.op], call.value("self", call.dtype), axes=axes,
                     keepdims=bool(call["keepdim"]))


@_maps("max", "min")
def _extremum(call: Call) -> Any:
    op = call.op.upper()
    if isinstance(call["other"], Tensor):
        return call.make(op, call.value("self"), call.value("other"))
    if call["dim"] is None:
        return call.make(f"REDUCE_{op}", call.value("self"), keepdims=False)
    keep = bool(call["keepdim"])
    return (call.make(f"REDUCE_{op}", call.value("self"), axes=[call["dim"]], keepdims=keep),
            call.make(f"ARG{op}", call.value("self"), axis=call["dim"], keepdims=keep))


@_maps("argmax", "argmin")
def _arg(call: Call) -> str:
    x, axis = call.value("self"), call["dim"]
    if axis is None:
        x, axis = call.make("RESHAPE", x, shape=(-1,)), 0
    return call.make(call.op.upper(), x, axis=axis, keepdims=bool(call["keepdim"]))


@_maps("topk")
def _topk(call: Call) -> Any:
    return call.writer.multi("TOPK", 2, call.value("self"), k=call["k"], axis=call["dim"],
                             largest=call["largest"], sorted=call["sorted"])


@_maps("cumsum")
def _cumsum(call: Call) -> str:
    return call.make("CUMSUM", call.value("self", call.dtype), axis=call["dim"])
