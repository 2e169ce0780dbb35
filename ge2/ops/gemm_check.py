"""Checks of direct GEMM calls; each message names the argument, what was found and wanted."""

from __future__ import annotations

from collections.abc import Mapping

from ..contract import DTYPE_NAMES, ActKind
from ..errors import DeviceMismatch, DtypeMismatch, Invalid, MissingInput, ShapeMismatch
from .gemm_types import Device, GemmAttrs, Tensor


def dims(a: Tensor, b: Tensor, attrs: GemmAttrs) -> tuple[int, int, int]:
    """Return (M, N, K) of op(A) op(B).

    Raises:
        ShapeMismatch: the inner extents differ.
    """
    for name, tensor in (("A", a), ("B", b)):
        if len(tensor.desc.shape) != 2:
            raise ShapeMismatch(f"{name} must be a matrix", argument=name,
                                found=tensor.desc.shape, wanted="two extents")
    m, k = a.desc.shape[::-1] if attrs.trans_a else a.desc.shape
    k_b, n = b.desc.shape[::-1] if attrs.trans_b else b.desc.shape
    if k != k_b:
        stored = "[N, K]" if attrs.trans_b else "[K, N]"
        raise ShapeMismatch("A and B do not fit together", argument="B",
                            found=f"K = {k_b} (B {b.desc.shape}, stored {stored})",
                            wanted=f"K = {k} (A {a.desc.shape})")
    return m, n, k


def matrix(name: str, tensor: Tensor, shape: tuple[int, int]) -> None:
    """Check that a tensor has a shape.

    Raises:
        ShapeMismatch: it has another.
    """
    if tensor.desc.shape != shape:
        raise ShapeMismatch(f"bad shape of {name}", argument=name, found=tensor.desc.shape,
                            wanted=shape)


def bias_kind(bias: Tensor, m: int, n: int) -> str:
    """Return "scalar", "per_n", "per_m" or "full"; a bare (N,) counts as [1, N].

    Raises:
        ShapeMismatch: none of those.
    """
    shape = bias.desc.shape
    if shape in ((1,), (1, 1)) and (m, n) != (1, 1):
        return "scalar"
    kinds = {(n,): "per_n", (1, n): "per_n", (m, 1): "per_m", (m, n): "full"}
    kind = kinds.get(shape)
    if kind is None:
        raise ShapeMismatch("bad shape of Bias", argument="Bias", found=shape,
                            wanted=f"a scalar, [1, {n}] (PerN), [{m}, 1] (PerM) or [{m}, {n}]")
    return kind


def same_kind(tensors: Mapping[str, Tensor | None]) -> int:
    """Check that all tensors share element type and GPU; return the GPU's index.

    Raises:
        DtypeMismatch, DeviceMismatch: they do not; the first one given is the norm.
    """
    given = [(name, t) for name, t in tensors.items() if t is not None]
    first_name, first = given[0]
    for name, tensor in given:
        desc = tensor.desc
        if desc.device is not Device.CUDA:
            raise DeviceMismatch(f"{name} lives on the host", argument=name, found="CPU",
                                 wanted="CUDA", hint="Copy it to the GPU or call forward_numpy")
        if desc.device_index != first.desc.device_index:
            raise DeviceMismatch(f"{first_name} and {name} live on different GPUs", argument=name,
                                 found=f"GPU {desc.device_index}",
                                 wanted=f"GPU {first.desc.device_index}, where {first_name} is")
        if desc.dtype is not first.desc.dtype:
            raise DtypeMismatch(f"{first_name} and {name} differ in element type", argument=name,
                                found=DTYPE_NAMES[desc.dtype],
                                wanted=DTYPE_NAMES[first.desc.dtype])
    return first.desc.device_index


def overlaps(outputs: Mapping[str, Tensor | None], inputs: Mapping[str, Tensor | None]) -> None:
    """Refuse outputs whose memory reaches into an input or another output.

    Raises:
        Invalid: naming both.
    """
    seen = [(n, t.ptr, t.ptr + t.desc.extent_bytes) for n, t in inputs.items() if t is not None]
    for name, tensor in outputs.items():
        if tensor is None:
            continue
        start, end = tensor.ptr, tensor.ptr + tensor.desc.extent_bytes
        for other, low, high in seen:
            if start < high and low < end:
                raise Invalid(f"{name} overlaps {other}", argument=name,
                              found=f"[{start:#x}, {end:#x}) and [{low:#x}, {high:#x})",
                              wanted="memory of its own")
        seen.append((name, start, end))


def required(tensors: Mapping[str, Tensor | None], name: str) -> Tensor:
    """Return an operand that must be there.

    Raises:
        MissingInput: it is None.
    """
    tensor = tensors[name]
    if tensor is None:
        raise MissingInput(f"{name} is required", argument=name, found=None, wanted="a tensor")
    return tensor


def gradients(t: Mapping[str, Tensor | None], attrs: GemmAttrs) -> None:
    """Check that a backward call has what its gradients need.

    Raises:
        MissingInput: naming what is missing and why it is needed.
    """
    if t["gC"] is not None and t["C"] is None:
        raise MissingInput("gC was asked for without C", argument="C", found=None,
                           wanted="the C of the forward call")
    recomputes = t["Z"] is None and attrs.act is not ActKind.NONE
    if recomputes and t["gBias"] is not None and t["Bias"] is None:
        raise MissingInput("Z must be recomputed, which needs the forward call's bias",
                           argument="Bias", found=None, wanted="Bias, or Z",
                           hint="Pass Bias=..., or the Z that forward saved in Z_out")
