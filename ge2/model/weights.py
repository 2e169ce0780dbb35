"""Weights in safetensors files, memory-mapped: an array costs nothing until it is read.

The format is 8 bytes of header length, a JSON header and raw little-endian data. The safetensors
package writes it; its reader would copy every array, so that reading is done here: arrays are views
of the mapping, bf16 included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..contract import numpy_dtype
from ..errors import ModelError, near_matches

_CODES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "F64": "f64", "I32": "i32", "I64": "i64",
          "BOOL": "bool", "U8": "u8", "I8": "i8", "F8_E4M3": "f8e4m3", "F8_E5M2": "f8e5m2"}
_MAX_HEADER = 100_000_000


def resolve_inside(folder: Path, name: str, where: str) -> Path:
    """Return folder/name, which must stay inside the folder, symbolic links followed.

    Raises:
        ModelError: an absolute path, or one that leaves the folder.
    """
    try:
        target = (folder / name).resolve()
        inside = target.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(f"{where}: not a usable path: {error}", found=repr(name)) from None
    if Path(name).is_absolute() or not inside:
        raise ModelError(f"{where}: the file lies outside the model's folder", found=repr(name),
                         wanted=f"a relative path inside {folder}")
    return target


def open_weights(path: Path, where: str) -> dict[str, npt.NDArray[Any]]:
    """Map a safetensors file and return its arrays by name, read-only.

    Args:
        path: the file.
        where: file and JSON path that named it, for messages.

    Raises:
        ModelError: missing, not safetensors, truncated, overlapping or of an unknown dtype.
    """
    if path.is_dir():
        raise ModelError(f"{where}: {path} is a folder", wanted="a safetensors file")
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = _header(file.read(8), file.read, size, path, where)
            start = file.tell()
    except FileNotFoundError:
        names = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        raise ModelError(f"{where}: {path} does not exist", hint=near_matches(path.name, names)
                         ) from None
    except OSError as error:
        raise ModelError(f"{where}: {path} cannot be read: {error}") from None
    data: npt.NDArray[Any] = (np.memmap(path, np.uint8, "r", start) if size > start
                              else np.empty(0, np.uint8))
    header.pop("__metadata__", None)
    arrays = {name: _array(name, entry, data, path, where) for name, entry in header.items()}
    _check_layout(header, data.size, path, where)
    return arrays


def save_weights(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as a safetensors file, each aligned to its element size."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array).reshape(array.shape)
               for name, array in arrays.items()}, path)


def _header(first: bytes, read: Any, size: int, path: Path, where: str) -> dict[str, Any]:
    length = int.from_bytes(first, "little") if len(first) == 8 else -1
    if length < 2 or length > _MAX_HEADER:
        raise ModelError(f"{where}: {path} is not a safetensors file")
    if length > size - 8:
        raise ModelError(f"{where}: {path} is truncated in its header", found=f"{size} bytes",
                         wanted=f"at least {length + 8}")
    doubled: list[str] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            names = [name for name, _ in pairs]
            doubled.append(next(name for name in names if names.count(name) > 1))
        return table

    try:
        header = json.loads(read(length), object_pairs_hook=build)
    except (ValueError, RecursionError):
        header = None
    if doubled:
        raise ModelError(f"{where}: {path}: {doubled[0]!r} is in the header twice")
    if not isinstance(header, dict):
        raise ModelError(f"{where}: {path} is not a safetensors file: its header is not JSON")
    return header


def _check_layout(header: Mapping[str, Any], size: int, path: Path, where: str) -> None:
    """Check that the tensors lie one behind the other and fill the file, as the format wants.

    Raises:
        ModelError: two overlap, or there are bytes that belong to none.
    """
    at, before = 0, ""
    for name, entry in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        begin, end = entry["data_offsets"]
        if begin < at:
            raise ModelError(f"{where}: {path}: tensors {before!r} and {name!r} overlap")
        if begin > at:
            break
        at, before = end, name
    if at != size:
        raise ModelError(f"{where}: {path}: the data is not that of the tensors",
                         found=f"{size} bytes", wanted=f"the next tensor, or the end, at {at}")


def _array(name: str, entry: Any, data: npt.NDArray[Any], path: Path, where: str
           ) -> npt.NDArray[Any]:
    try:
        code, shape = entry["dtype"], tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        valid = all(type(v) is int and v >= 0 for v in (*shape, begin, end)) and begin <= end
    except (TypeError, KeyError, ValueError):
        valid = False
    if not valid:
        raise ModelError(f"{where}: {path}: tensor {name!r} has a broken header entry")
    if code not in _CODES:
        raise ModelError(f"{where}: {path}: tensor {name!r} has an unsupported dtype",
                         found=repr(code), wanted=", ".join(_CODES))
    dtype = numpy_dtype(_CODES[code])
    need = math.prod(shape) * dtype.itemsize
    if end - begin != need:
        raise ModelError(f"{where}: {path}: tensor {name!r} of shape {shape} has a wrong size",
                         found=f"{end - begin} bytes", wanted=need)
    if end > data.size:
        raise ModelError(f"{where}: {path} is truncated: tensor {name!r} lies beyond its end",
                         found=f"{data.size} bytes of data", wanted=f"at least {end}")
    raw = data[begin:end]
    if raw.ctypes.data % dtype.itemsize:
        raw = raw.copy()
    array = raw.view(dtype).reshape(shape)
    array.flags.writeable = False
    return array
