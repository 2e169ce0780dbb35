"""ONNX tensors as arrays: data in the model file, and in files beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from ...errors import ModelError
from ..node_writer import Unmapped
from ..weights import resolve_inside

Array = npt.NDArray[Any]


class TensorReader:
    """Reads tensors; data outside of the model file is mapped, not copied.

    Args:
        source: what messages call the model.
        folder: where external data lies; None for a model that was not read from a file.
    """

    def __init__(self, source: str, folder: Path | None) -> None:
        self.source = source
        self.folder = folder
        self._maps: dict[Path, Array] = {}

    def read(self, tensor: TensorProto) -> Array:
        """Return a tensor's elements.

        Raises:
            ModelError: its data is missing, truncated or lies outside of the model's folder.
            Unmapped: its elements are no numbers.
        """
        if tensor.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            raise Unmapped("tensors of strings")
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor)
        try:
            array = numpy_helper.to_array(tensor)
        except (ValueError, TypeError, KeyError) as error:
            raise ModelError(f"{self.source}: tensor {tensor.name!r} is broken: {error}",
                             hint="The file may be truncated") from None
        if array.shape != tuple(tensor.dims):
            raise ModelError(f"{self.source}: tensor {tensor.name!r} is broken",
                             found=array.shape, wanted=tuple(tensor.dims))
        return array

    def _external(self, tensor: TensorProto) -> Array:
        where = f"{self.source}: tensor {tensor.name!r}"
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        if not location:
            raise ModelError(f"{where}: its external data has no location")
        if self.folder is None:
            raise ModelError(f"{where}: its data lies in {location!r}",
                             hint="Import the model from its file")
        path = resolve_inside(self.folder, location, where)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if dtype.itemsize * 8 != _bits(tensor.data_type, dtype):
            raise Unmapped(f"packed external data of type {dtype}")
        start, length = (self._number(where, entries, key) for key in ("offset", "length"))
        need = math.prod(tensor.dims) * dtype.itemsize
        if length is not None and length != need:
            raise ModelError(f"{where}: its external data has a wrong length", found=length,
                             wanted=need)
        data = self._map(path, where)
        begin = start or 0
        if begin + need > data.size:
            raise ModelError(f"{where}: {path} is truncated", found=f"{data.size} bytes",
                             wanted=f"at least {begin + need}")
        raw = data[begin:begin + need]
        if raw.size and raw.ctypes.data % dtype.itemsize:
            raw = raw.copy()
        return raw.view(dtype).reshape(tuple(tensor.dims))

    def _number(self, where: str, entries: dict[str, str], key: str) -> int | None:
        text = entries.get(key)
        if text is None:
            return None
        if not text.isdecimal() or len(text) > 18:
            raise ModelError(f"{where}: external data has a bad {key}", found=repr(text),
                             wanted="a number of bytes")
        return int(text)

    def _map(self, path: Path, where: str) -> Array:
        if path not in self._maps:
            try:
                size = path.stat().st_size
                self._maps[path] = (np.memmap(path, np.uint8, "r") if size
                                    else np.empty(0, np.uint8))
            except OSError as error:
                raise ModelError(f"{where}: its external data cannot be read: {error}") from None
        return self._maps[path]


def _bits(code: int, dtype: np.dtype[Any]) -> int:
    name = TensorProto.DataType.Name(code)
    return int(name[-1]) if name[-1] in "24" and name[-2] in "T" else dtype.itemsize * 8
