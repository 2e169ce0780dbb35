"""Params blocks: a problem as bytes at a host address, and back.

The layout is contract.params_dtype of the op_type's attribute schema. Expressions travel as their
64-bit digest (ir.expr.intern); 0 stands for None.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Hashable, Sequence
from typing import Any, cast

import numpy as np

from ..compiler.ir.expr import intern, lookup
from ..contract import (
    DTYPE_NAMES,
    DTYPES,
    GE2_API_VERSION,
    HEADER_DTYPE,
    MAX_RANK,
    AttrSpec,
    params_dtype,
)
from ..errors import ApiVersionMismatch, DtypeMismatch, Invalid
from ..problem import Problem, TensorSpec
from .schemas import KernelOp, kernel_op

ABSENT = -1
HEADER_BYTES = HEADER_DTYPE.itemsize
_HEADER = struct.Struct("<4I")


def encode_params(problem: Problem, *, workspace: int = 0, workspace_size: int = 0,
                  semaphores: int = 0) -> np.ndarray[Any, Any]:
    """Return the params block of a problem as a structured array of shape ().

    The caller keeps it alive while its address (`block.ctypes.data`) is in use.

    Args:
        problem: what the launcher is asked to do; absent optional inputs are None.
        workspace, workspace_size, semaphores: device addresses and bytes; 0 lets ge2 provide.
    """
    op = kernel_op(problem.op_type)
    tensors = problem.tensors
    block = np.zeros((), params_dtype(op.attrs, len(tensors)))
    block["header"] = (block.dtype.itemsize, GE2_API_VERSION, len(problem.inputs),
                       len(problem.outputs))
    for slot, spec in enumerate(tensors):
        _encode_tensor(block["tensors"][slot], spec)
    for attr in op.attrs:
        _encode_attr(block["attrs"], attr, problem.attr_map.get(attr.name, attr.default))
    block["trailer"] = (workspace, workspace_size, semaphores)
    return block


def _encode_tensor(row: Any, spec: TensorSpec | None) -> None:
    if spec is None:
        row["rank"] = ABSENT
        return
    rank = len(spec.shape)
    if rank > MAX_RANK:
        raise Invalid("too many axes", found=rank, wanted=f"at most {MAX_RANK}")
    row["dtype"] = DTYPES[spec.dtype].code
    row["rank"] = rank
    row["shape"][:rank] = spec.shape
    row["strides"][:rank] = spec.strides


def _encode_attr(attrs: Any, spec: AttrSpec, value: Any) -> None:
    if spec.kind in ("ints", "floats"):
        values = tuple(value or ())
        attrs[f"{spec.name}_count"] = len(values)
        attrs[spec.name][: len(values)] = values
    elif spec.kind == "expr":
        attrs[spec.name] = 0 if value is None else intern(value)
    elif spec.kind == "str":
        if value not in spec.choices:
            raise Invalid(f"bad value of {spec.name}", argument=spec.name, found=repr(value),
                          wanted=", ".join(spec.choices))
        attrs[spec.name] = spec.choices.index(value)
    elif spec.kind == "dtype":
        attrs[spec.name] = DTYPES[value].code
    else:
        attrs[spec.name] = value


def check_header(address: int, op_type: str, n_buffers: int) -> tuple[np.dtype[Any], int, int]:
    """Return (layout, inputs, outputs) of the block at address, of which only the header is read.

    Args:
        address: host address of the params block.
        op_type: kernel-level operator of the launcher.
        n_buffers: buffers of the call, the block itself not counted.

    Raises:
        ApiVersionMismatch: the block speaks another contract version.
        Invalid: no block, or one for another number of buffers or another operator.
    """
    if address <= 0:
        raise Invalid("the call needs a params block", argument="params", found="a null address",
                      wanted="the host address of a params block as last buffer")
    size, version, n_in, n_out = _HEADER.unpack(ctypes.string_at(address, HEADER_BYTES))
    if version != GE2_API_VERSION:
        raise ApiVersionMismatch("the params block has another contract version",
                                 argument="params.api_version", found=version,
                                 wanted=GE2_API_VERSION, hint="See docs/contract.md, history")
    if n_in + n_out != n_buffers:
        raise Invalid("the params block describes another number of buffers", argument="n",
                      found=f"{n_buffers} buffers", wanted=f"{n_in} inputs + {n_out} outputs")
    op = kernel_op(op_type)
    if not op.accepts_inputs(n_in) or not 1 <= n_out <= op.max_outputs:
        raise Invalid(f"{op_type} takes other buffers", argument="n",
                      found=f"{n_in} inputs and {n_out} outputs", wanted=", ".join(op.inputs))
    dtype = params_dtype(op.attrs, n_buffers)
    if size != dtype.itemsize:
        raise Invalid(f"the params block of {op_type} has a wrong size",
                      argument="params.struct_size", found=size, wanted=dtype.itemsize)
    return dtype, n_in, n_out


def decode_params(address: int, op_type: str, n_buffers: int,
                  aligns: Sequence[int] = ()) -> tuple[Problem, tuple[int, int, int]]:
    """Return the problem in the params block at address, and its trailer.

    Args:
        address: host address of the block.
        op_type: kernel-level operator of the launcher.
        n_buffers: buffers of the call without the block.
        aligns: alignment class of each buffer's address (default 16).

    Returns:
        The problem and (workspace, workspace_size, semaphores).

    Raises:
        ApiVersionMismatch, Invalid, DtypeMismatch: the block is not one of this operator.
    """
    op = kernel_op(op_type)
    dtype, n_in, n_out = check_header(address, op_type, n_buffers)
    block = _read(address, dtype)
    aligns = aligns or (16,) * (n_in + n_out)
    specs = [_decode_tensor(block["tensors"][slot], slot, op, n_in, aligns[slot])
             for slot in range(n_in + n_out)]
    outputs = tuple(spec for spec in specs[n_in:] if spec is not None)
    if len(outputs) != n_out:
        raise Invalid("an output cannot be absent", argument="rank", found=ABSENT)
    attrs = sorted((spec.name, _decode_attr(block["attrs"], spec)) for spec in op.attrs)
    problem = Problem(op_type, tuple(specs[:n_in]), outputs, tuple(attrs))
    workspace, workspace_size, semaphores = (int(v) for v in block["trailer"].item())
    return problem, (workspace, workspace_size, semaphores)


def _read(address: int, dtype: np.dtype[Any]) -> Any:
    return np.frombuffer(ctypes.string_at(address, dtype.itemsize), dtype)[0]


def _decode_tensor(row: Any, slot: int, op: KernelOp, n_in: int, align: int) -> TensorSpec | None:
    name = op.input_name(slot) if slot < n_in else f"output {slot - n_in}"
    rank = int(row["rank"])
    if rank == ABSENT:
        return None
    if not 0 <= rank <= MAX_RANK:
        raise Invalid(f"bad rank of {name}", argument=name, found=rank, wanted=f"0 to {MAX_RANK}")
    code = int(row["dtype"])
    if code not in DTYPE_NAMES:
        raise DtypeMismatch(f"unknown element type of {name}", argument=name, found=code,
                            wanted=", ".join(f"{n}={int(i.code)}" for n, i in DTYPES.items()))
    shape = tuple(int(v) for v in row["shape"][:rank])
    if any(extent < 0 for extent in shape):
        raise Invalid(f"negative extent of {name}", argument=name, found=shape)
    strides = tuple(int(v) for v in row["strides"][:rank])
    return TensorSpec(DTYPE_NAMES[code], shape, strides, align)


def _decode_attr(attrs: Any, spec: AttrSpec) -> Hashable:
    if spec.kind in ("ints", "floats"):
        count = int(attrs[f"{spec.name}_count"])
        if not 0 <= count <= 2 * MAX_RANK:
            raise Invalid(f"bad length of {spec.name}", argument=spec.name, found=count)
        return tuple(attrs[spec.name][:count].tolist())
    value = attrs[spec.name].item()
    if spec.kind == "expr":
        return cast(Hashable, None if value == 0 else lookup(value))
    if spec.kind == "bool":
        return bool(value)
    if spec.kind in ("str", "dtype"):
        table = dict(enumerate(spec.choices)) if spec.kind == "str" else DTYPE_NAMES
        if value not in table:
            raise Invalid(f"bad code of {spec.name}", argument=spec.name, found=value,
                          wanted=", ".join(f"{v}={k}" for k, v in table.items()))
        return table[value]
    return value  # type: ignore[no-any-return]

