"""The operators of bench.operators: each as a graph, with its torch counterpart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator on one shape.

    Attributes:
        name: for the table.
        text: the graph; its output is y.
        peers: name -> torch function of the graph's inputs in order.
        target: "copy" (share of a copy of as many bytes) or "peer" (share of the fastest peer).
        goal: the share that is wanted.
        flops: of products, for TFLOP/s.
        span: integers drawn for integer inputs are below this.
    """

    name: str
    text: str
    peers: dict[str, Call]
    target: str = "copy"
    goal: float = 0.8
    flops: float = 0.0
    span: int = 100


def cases() -> dict[str, list[Case]]:
    """Return all cases by group."""
    return {"movement": _movement(), "windows": _windows(), "conv": _conv()}


def _case(name: str, inputs: str, node: str, peer: Call | None, **rest: Any) -> Case:
    lines = [f"input {text.strip()}" for text in inputs.split(";")]
    text = "\n".join([*lines, f"y = {node}", "output y"])
    return Case(name, text, {"torch": peer} if peer else {}, **rest)


def _movement() -> list[Case]:
    import torch

    functional = torch.nn.functional
    return [
        _case("transpose f32 4096x4096", "x: f32[4096, 4096]", "TRANSPOSE(x, perm=[1, 0])",
              lambda x: x.t().contiguous()),
        _case("transpose f16 8192x4096", "x: f16[8192, 4096]", "TRANSPOSE(x, perm=[1, 0])",
              lambda x: x.t().contiguous()),
        _case("transpose f16 heads 64x512x16x64", "x: f16[64, 512, 16, 64]",
              "TRANSPOSE(x, perm=[0, 2, 1, 3])", lambda x: x.transpose(1, 2).contiguous()),
        _case("transpose f16 NCHW to NHWC 32x64x128x128", "x: f16[32, 64, 128, 128]",
              "TRANSPOSE(x, perm=[0, 2, 3, 1])", lambda x: x.permute(0, 2, 3, 1).contiguous()),
        _case("transpose f32 reversed 256x256x256", "x: f32[256, 256, 256]",
              "TRANSPOSE(x, perm=[2, 1, 0])", lambda x: x.permute(2, 1, 0).contiguous()),
        _case("concat f32 rows 2 x 4096x4096", "a: f32[4096, 4096]; b: f32[4096, 4096]",
              "CONCAT(a, b, axis=0)", lambda a, b: torch.cat([a, b], 0)),
        _case("concat f32 columns 2 x 4096x4096", "a: f32[4096, 4096]; b: f32[4096, 4096]",
              "CONCAT(a, b, axis=1)", lambda a, b: torch.cat([a, b], 1)),
        _case("concat f16 columns 1001+1047+2048",
              "a: f16[8192, 1001]; b: f16[8192, 1047]; c: f16[8192, 2048]",
              "CONCAT(a, b, c, axis=1)", lambda a, b, c: torch.cat([a, b, c], 1)),
        _case("slice f32 unaligned 4095x4090", "x: f32[4096, 4096]",
              "SLICE(x, starts=[1, 3], ends=[4096, 4093], axes=[0, 1])",
              lambda x: x[1:, 3:4093].contiguous()),
        _case("slice f16 half of the columns", "x: f16[16384, 4096]",
              "SLICE(x, starts=[1024], ends=[3072], axes=[1])",
              lambda x: x[:, 1024:3072].contiguous()),
        _case("slice f16 unaligned 8191x4090", "x: f16[8192, 4096]",
              "SLICE(x, starts=[1, 3], ends=[8192, 4093], axes=[0, 1])",
              lambda x: x[1:, 3:4093].contiguous()),
        _case("gather f16 rows of 384, 30522 of them", "x: f16[30522, 384]; i: i64[87040]",
              "GATHER(x, i, axis=0)", lambda x, i: x[i], span=30522),
        _case("gather f32 rows of 1024", "x: f32[16384, 1024]; i: i64[16384]",
              "GATHER(x, i, axis=0)", lambda x, i: x[i], span=16384),
        _case("gather f32 columns of 4096x4096", "x: f32[4096, 4096]; i: i64[4096]",
              "GATHER(x, i, axis=1)", lambda x, i: torch.index_select(x, 1, i), span=4096),
        _case("pad f32 4096x4096 by 1", "x: f32[4096, 4096]", "PAD(x, pads=[1, 1, 1, 1])",
              lambda x: functional.pad(x, (1, 1, 1, 1))),
        _case("pad f16 32x64x128x128 by 1", "x: f16[32, 64, 128, 128]",
              "PAD(x, pads=[1, 1, 1, 1], axes=[2, 3])", lambda x: functional.pad(x, (1, 1, 1, 1))),
        _case("pad f16 rows by 8 columns", "x: f16[8192, 4096]",
              "PAD(x, pads=[8, 8], axes=[1])", lambda x: functional.pad(x, (8, 8))),
        _case("pad f32 reflect by 3", "x: f32[16, 64, 128, 128]",
              'PAD(x, pads=[3, 3, 3, 3], axes=[2, 3], mode="reflect")',
              lambda x: functional.pad(x, (3, 3, 3, 3), mode="reflect")),
        _case("cast f32 to f16", "x: f32[4096, 4096]", 'CAST(x, to="f16")',
              lambda x: x.half()),
        _case("cast f16 to f32", "x: f16[8192, 4096]", 'CAST(x, to="f32")',
              lambda x: x.float()),
        _case("cast i64 to f32", "x: i64[4096, 2048]", 'CAST(x, to="f32")',
              lambda x: x.float()),
    ]


def _windows() -> list[Case]:
    import torch

    f = torch.nn.functional
    return [
        _case("max pool f16 3x3 s2 32x64x112x112", "x: f16[32, 64, 112, 112]",
              "MAX_POOL(x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])",
              lambda x: f.max_pool2d(x, 3, 2, 1), goal=0.7),
        _case("max pool f32 2x2 s2 32x64x112x112", "x: f32[32, 64, 112, 112]",
              "MAX_POOL(x, kernel_shape=[2, 2], strides=[2, 2])",
              lambda x: f.max_pool2d(x, 2), goal=0.7),
        _case("avg pool f16 3x3 s1 32x64x112x112", "x: f16[32, 64, 112, 112]",
              "AVG_POOL(x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])",
              lambda x: f.avg_pool2d(x, 3, 1, 1, count_include_pad=False), goal=0.7),
        _case("avg pool f16 2x2 s2 32x128x96x96", "x: f16[32, 128, 96, 96]",
              "AVG_POOL(x, kernel_shape=[2, 2], strides=[2, 2])",
              lambda x: f.avg_pool2d(x, 2), goal=0.7),
        _case("global avg pool f16 256x2048x7x7", "x: f16[256, 2048, 7, 7]",
              "GLOBAL_AVG_POOL(x)", lambda x: f.adaptive_avg_pool2d(x, 1), goal=0.7),
        _case("resize f16 nearest x2 32x64x64x64", "x: f16[32, 64, 64, 64]",
              'RESIZE(x, scales=[2, 2], axes=[2, 3], coordinate_transformation_mode="asymmetric",'
              ' nearest_mode="floor")',
              lambda x: f.interpolate(x, scale_factor=2, mode="nearest"), goal=0.7),
        _case("resize f16 linear x2 32x64x64x64", "x: f16[32, 64, 64, 64]",
              'RESIZE(x, scales=[2, 2], axes=[2, 3], mode="linear")',
              lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"), goal=0.7),
        _case("resize f32 linear to half 16x64x224x224", "x: f32[16, 64, 224, 224]",
              'RESIZE(x, scales=[0.5, 0.5], axes=[2, 3], mode="linear")',
              lambda x: f.interpolate(x, scale_factor=0.5, mode="bilinear"), goal=0.7),
    ]


LAYERS = ((32, 64, 56, 64, 3, 1), (32, 128, 28, 128, 3, 1), (32, 256, 14, 256, 3, 1),
          (32, 512, 7, 512, 3, 1), (32, 3, 224, 64, 7, 2), (32, 256, 56, 64, 1, 1),
          (1, 64, 56, 64, 3, 1))
"""Batch, channels, height (= width), filters, filter height (= width), stride."""


def _conv() -> list[Case]:
    return [_layer(*layer) for layer in LAYERS]


def _layer(n: int, c: int, h: int, k: int, r: int, stride: int) -> Case:
    """f16 convolution with bias and ReLU; cuDNN in either memory layout, its best algorithm."""
    import torch

    torch.backends.cudnn.benchmark = True
    pad = r // 2
    out = (h + 2 * pad - r) // stride + 1

    def cudnn(x: Any, w: Any, b: Any) -> Any:
        return torch.relu_(torch.nn.functional.conv2d(x, w, b, stride, pad))

    def channels_last(x: Any, w: Any, b: Any) -> Any:
        return cudnn(x.view(n, h, h, c).permute(0, 3, 1, 2), w.view(k, r, r, c).permute(0, 3, 1, 2),
                     b)

    def fused(x: Any, w: Any, b: Any) -> Any:
        return torch.cudnn_convolution_relu(
            x.view(n, h, h, c).permute(0, 3, 1, 2), w.view(k, r, r, c).permute(0, 3, 1, 2), b,
            (stride, stride), (pad, pad), (1, 1), 1)

    text = "\n".join([
        f"input x: f16[{n}, {c}, {h}, {h}]", f"input w: f16[{k}, {c}, {r}, {r}]",
        f"input b: f16[{k}]",
        f"y = CONV2D(x, w, b, strides=[{stride}, {stride}], pads=[{pad}, {pad}, {pad}, {pad}],"
        ' act="relu")', "output y"])
    return Case(f"conv f16 N{n} C{c} H{h} K{k} R{r} s{stride}", text,
                {"cudnn nchw": cudnn, "cudnn nhwc": channels_last, "cudnn fused nhwc": fused},
                "peer", 0.6, 2.0 * n * out * out * k * c * r * r)
