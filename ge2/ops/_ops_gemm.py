"""The direct GEMM path: GPU buffers go straight to the kernel.

    from ge2.ops import _ops_gemm as gemm

    gemm.forward(A, B, bias, Y, gemm.GemmAttrs(act=gemm.ActKind.RELU), stream)

Operands are CuPy arrays, torch tensors, DLPack objects, or Tensors made from raw addresses with
make_tensor_2d. Nothing is copied. See docs/gemm.md.
"""

from __future__ import annotations

from typing import Any

from ..contract import ActKind, DType
from .gemm_backward import backward
from .gemm_forward import forward
from .gemm_numpy import forward_numpy
from .gemm_plan import GemmPlan, plan
from .gemm_types import Device, GemmAttrs, Layout, Tensor, TensorDesc, as_tensor, make_tensor_2d

F32, F16, BF16, F64 = DType.F32, DType.F16, DType.BF16, DType.F64
CUDA, CPU = Device.CUDA, Device.CPU
ROW_MAJOR, COL_MAJOR = Layout.ROW_MAJOR, Layout.COL_MAJOR


def forward_ex(A: Any, B: Any, Bias: Any, Y: Any, *, trans_a: bool = False, trans_b: bool = False,
               alpha: float = 1.0, beta: float = 1.0, act: ActKind | int | str = ActKind.NONE,
               leaky_slope: float = 0.0, C: Any = None, Z_out: Any = None,
               stream: Any = None) -> None:
    """forward with plain Python values; act also by name ("gelu")."""
    attrs = GemmAttrs(trans_a, trans_b, alpha, beta, _act(act), leaky_slope)
    forward(A, B, Bias, Y, attrs, stream, C=C, Z_out=Z_out)


def backward_ex(A: Any, B: Any, gY: Any, *, C: Any = None, Z: Any = None, gA: Any = None,
                gB: Any = None, gC: Any = None, gBias: Any = None, Bias: Any = None,
                trans_a: bool = False, trans_b: bool = False, alpha: float = 1.0,
                beta: float = 1.0, act: ActKind | int | str = ActKind.NONE,
                leaky_slope: float = 0.0, stream: Any = None) -> None:
    """backward with plain Python values; act also by name ("gelu")."""
    attrs = GemmAttrs(trans_a, trans_b, alpha, beta, _act(act), leaky_slope)
    backward(A, B, C, gY, Z, gA, gB, gC, gBias, attrs, stream, Bias=Bias)


def _act(act: ActKind | int | str) -> ActKind:
    from ..errors import Invalid, near_matches

    if isinstance(act, str):
        if act.upper() not in ActKind.__members__:
            names = [kind.name.lower() for kind in ActKind]
            raise Invalid("unknown activation", argument="act", found=repr(act),
                          wanted=", ".join(names), hint=near_matches(act, names))
        return ActKind[act.upper()]
    return ActKind(act)


__all__ = [
    "BF16", "COL_MAJOR", "CPU", "CUDA", "F16", "F32", "F64", "ROW_MAJOR", "ActKind", "DType",
    "Device", "GemmAttrs", "GemmPlan", "Layout", "Tensor", "TensorDesc", "as_tensor", "backward",
    "backward_ex", "forward", "forward_ex", "forward_numpy", "make_tensor_2d", "plan",
]
