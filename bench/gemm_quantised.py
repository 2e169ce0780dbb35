"""Products of 8-bit and 4-bit operands to time, and what a torch user would call instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ge2.compiler.ir.expr import ExprBundle
from ge2.compiler.opdefs.scaled_matmul import scaled_epilogue
from ge2.launch.nbits import nbits_problem
from ge2.problem import Problem, TensorSpec

from .side_by_side import Case, Peer, Tensors

Shape = tuple[int, int, int]

LARGE = ((1024,) * 3, (2048,) * 3, (4096,) * 3, (8192,) * 3, (4096, 14336, 4096))
FEW_ROWS = ((32, 4096, 4096), (128, 4096, 4096), (512, 14336, 4096))
WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336))
BLOCK = 128


def int8() -> Iterator[Case]:
    """i8 by i8 to i32, and with scales to bf16."""
    for shape in (*LARGE, *FEW_ROWS):
        yield _scaled(shape, "i8", "i32", False, {"_int_mm": _int_mm})
        yield _scaled(shape, "i8", "bf16", True, {"_int_mm": _int_mm_scaled})


def fp8() -> Iterator[Case]:
    """e4m3 by e4m3 with a scale of each operand to bf16 and f32."""
    for shape in (*LARGE, *FEW_ROWS):
        for output in ("bf16", "f32"):
            yield _scaled(shape, "f8e4m3", output, True, {"_scaled_mm": _scaled_mm})


def nbits() -> Iterator[Case]:
    """4-bit weights in groups of 128 against bf16 activations."""
    for m in (1, 4, 16, 64, 512, 4096):
        for n, k in WEIGHTS:
            for block in (32, BLOCK):
                peers: dict[str, Peer] = {"mm": _Dequantised(block)}
                if block == BLOCK:
                    peers["_weight_int4pack_mm"] = _Packed(block)
                yield Case(f"bf16 x 4 bit {m}x{n}x{k} groups of {block}",
                               nbits_problem("bf16", (m, n, k), block), peers,
                           flops=2.0 * m * n * k, regimes=("quick",))


def _scaled(shape: Shape, dtype: str, output: str, scaled: bool,
            peers: dict[str, Peer]) -> Case:
    m, n, k = shape
    scales = [TensorSpec("f32", (m, n), (0, 0))] * 2 if scaled else []
    epilogue: ExprBundle = scaled_epilogue(dtype, output, ["f32"] * len(scales))
    attrs = {"trans_a": False, "trans_b": True, "alpha": 1.0, "beta": 1.0, "act": "none",
             "leaky_slope": 0.01, "f32": "ieee", "epilogue": epilogue}
    problem = Problem("GEMM_BIAS_ACT", (TensorSpec.dense(dtype, (m, k)),
                                        TensorSpec.dense(dtype, (n, k)), *scales),
                      (TensorSpec.dense(output, (m, n)),), tuple(sorted(attrs.items())))
    name = f"{dtype} {m}x{n}x{k} NT {'scaled ' if scaled else ''}{output}"
    return Case(name, problem, peers, flops=2.0 * m * n * k, regimes=("quick",))


def _int_mm(t: Tensors) -> object:
    import torch

    return torch._int_mm(t[0], t[1].t(), out=t[-1])


def _int_mm_scaled(t: Tensors) -> object:
    import torch

    sums = torch._int_mm(t[0], t[1].t())
    return torch.mul(sums, t[2][0, 0] * t[3][0, 0], out=t[-1])


def _scaled_mm(t: Tensors) -> object:
    import torch

    return torch._scaled_mm(t[0], t[1].t(), t[2][0, 0], t[3][0, 0], out_dtype=t[-1].dtype,
                            out=t[-1])


class _Dequantised:
    """cuBLAS on weights that were made bf16 before: four times the bytes."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.made: dict[int, Any] = {}

    def __call__(self, t: Tensors) -> object:
        import torch

        codes = t[1]
        key = codes.data_ptr()
        if key not in self.made:
            flat = codes.reshape(codes.shape[0], -1)
            both = torch.stack([flat & 15, flat >> 4], -1).reshape(codes.shape[0], -1)
            scales = t[2].float().repeat_interleave(self.block, 1)
            weights = (both.float() - 8.0) * scales[:, :both.shape[1]]
            self.made[key] = weights[:, :t[0].shape[1]].to(t[0].dtype)
        return torch.mm(t[0], self.made[key].t(), out=t[-1])


class _Packed(_Dequantised):
    """torch's own kernel for such weights, in its own layout; the values are others."""

    def __call__(self, t: Tensors) -> object:
        import torch

        key = t[1].data_ptr()
        n, k = t[1].shape[0], t[0].shape[1]
        if key not in self.made:
            codes = t[1].reshape(n, k // 2).contiguous()
            packed = torch.ops.aten._convert_weight_to_int4pack(codes, 8)
            scales = torch.ones((k // self.block, n, 2), dtype=t[0].dtype, device=t[0].device)
            self.made[key] = (packed, scales)
        packed, scales = self.made[key]
        return torch.ops.aten._weight_int4pack_mm(t[0], packed, self.block, scales)
