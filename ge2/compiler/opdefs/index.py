"""Operators that read or write at computed positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...contract import AttrSpec
from ..ir.nodes import TensorType
from .opdef import INDEX, Array, Arrays, OpDef, Types
from .shapes import axis_of, tensor


def wrapped(indices: Array, extent: int) -> Array:
    """Return indices with negative ones counted from the end.

    An index outside the tensor is clamped to it, as the kernels do: no read beyond a buffer.
    """
    positive = np.where(indices < 0, indices + extent, indices)
    return np.asarray(np.clip(positive, 0, max(extent - 1, 0)))


def _infer_gather(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    x, indices = tensor(types, 0), tensor(types, 1)
    axis = axis_of("GATHER", attrs["axis"], x.rank)
    return [TensorType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]))]


def _reference_gather(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    x, indices = arrays
    assert x is not None and indices is not None
    axis = attrs["axis"] % x.ndim
    if not indices.size:
        return [np.zeros((*x.shape[:axis], *indices.shape, *x.shape[axis + 1:]), x.dtype)]
    return [np.take(x, wrapped(indices, x.shape[axis]), axis=axis)]


OPDEFS = (
    OpDef("GATHER", ("x", "indices"), 1, (AttrSpec("axis", "int", 0, doc="axis to pick along"),),
          _infer_gather, _reference_gather, properties=frozenset({"linear", "rematerializable"}),
          family="gather", other={"indices": INDEX},
          doc="Pick slices along an axis; negative indices count from the end."),
)
