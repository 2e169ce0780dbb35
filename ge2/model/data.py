"""Input arrays: npy, npz and csv files, random inputs, and the check against declared types."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.ir.dim import Dim, Extent, evaluate, symbols
from ..compiler.ir.nodes import TensorType
from ..contract import DTYPES, dtype_name, numpy_dtype
from ..errors import Ge2Error, ModelError, near_matches


def read_array(path: Path, type_: TensorType | None = None, name: str = "") -> npt.NDArray[Any]:
    """Read one array from a .npy, .npz or .csv file.

    Args:
        path: the file.
        type_: gives a csv file's dtype, and its shape when the input is not a matrix.
        name: which array of an .npz that holds several.

    Raises:
        ModelError: missing, not readable, more than one array, or Python objects inside.
    """
    arrays = read_arrays(path, type_)
    if len(arrays) != 1 and name in arrays:
        return arrays[name]
    if len(arrays) != 1:
        raise ModelError(f"{path} holds {len(arrays)} arrays", found=", ".join(arrays) or "none",
                         wanted=f"one, or one that is named {name!r}" if name else "one")
    return next(iter(arrays.values()))


def read_arrays(path: Path, type_: TensorType | None = None) -> dict[str, npt.NDArray[Any]]:
    """Read every array of a file by name; an npy or csv file holds one, named after its stem."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder", wanted="a .npy, .npz or .csv file")
    if not path.exists():
        names = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        raise ModelError(f"{path} does not exist", hint=near_matches(path.name, names))
    suffix = path.suffix.lower()
    try:
        if suffix == ".csv":
            return {path.stem: _read_csv(path, type_)}
        if suffix == ".npz":
            if not zipfile.is_zipfile(path):
                raise ModelError(f"{path} is not an .npz file: it is no zip archive")
            # Opened here, because np.load leaves a file that is no archive open.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
                return {name: _named_bf16(archive[name]) for name in archive.files}
        if suffix == ".npy":
            return {path.stem: _named_bf16(np.load(path, allow_pickle=False))}
    except Ge2Error:
        raise
    except (OSError, ValueError, EOFError, KeyError, ImportError, SyntaxError, MemoryError) as e:
        raise ModelError(f"{path} cannot be read as {suffix[1:]}: {e}") from None
    except Exception as error:
        if type(error).__module__ not in ("zipfile", "zlib", "tokenize"):
            raise
        raise ModelError(f"{path} is not a valid {suffix[1:]} file: {error}") from None
    raise ModelError(f"{path} has an unknown suffix", found=repr(suffix), wanted=".npy, .npz, .csv")


def check_feeds(types: Mapping[str, TensorType], feeds: Mapping[str, Any],
                known_symbols: Mapping[str, int] | None = None) -> dict[str, int]:
    """Check arrays against the declared inputs and return the value of every named dimension.

    Args:
        types: declared type of each input.
        feeds: anything with .shape and .dtype, by input name.
        known_symbols: values that were asked for; the arrays must agree.

    Raises:
        ModelError: unknown, missing, of another rank, dtype or shape, or sizes that disagree.
    """
    wanted = "; ".join(f"{name}: {kind}" for name, kind in types.items())
    for name in feeds:
        if name not in types:
            raise ModelError(f"the model has no input {name!r}", wanted=wanted or "no inputs",
                             hint=near_matches(name, types))
    missing = [name for name in types if name not in feeds]
    if missing:
        raise ModelError(f"no value for input {', '.join(map(repr, missing))}", wanted=wanted)
    values = dict(known_symbols or {})
    origin = dict.fromkeys(values, "--sym")
    for name, kind in types.items():
        _check_feed(name, kind, feeds[name], values, origin)
    return values


def random_feeds(types: Mapping[str, TensorType], values: Mapping[str, int], seed: int
                 ) -> dict[str, npt.NDArray[Any]]:
    """Return seeded inputs: standard normal floats, integers 0 or 1, random booleans.

    Integers stay below 2 so that index inputs are in range for any table of two rows or more.
    """
    rng = np.random.default_rng(seed)
    feeds = {}
    for name, kind in types.items():
        shape = concrete_shape(kind, values)
        dtype = numpy_dtype(kind.dtype)
        if kind.dtype in ("f32", "f16", "bf16", "f64"):
            feeds[name] = rng.standard_normal(shape).astype(dtype)
        else:
            feeds[name] = rng.integers(0, 2, shape).astype(dtype)
    return feeds


def free_symbols(types: Iterable[TensorType]) -> list[str]:
    """Return the named dimensions of some types, in order of appearance."""
    found: dict[str, None] = {}
    for kind in types:
        for extent in kind.shape:
            found.update(dict.fromkeys(sorted(symbols(extent))))
    return list(found)


def concrete_shape(kind: TensorType, values: Mapping[str, int]) -> tuple[int, ...]:
    """Return a type's shape as ints."""
    return tuple(evaluate(extent, values) for extent in kind.shape)


def as_native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array that .npy can hold: bf16 is stored as f32, which loses nothing."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _check_feed(name: str, kind: TensorType, array: Any, values: dict[str, int],
                origin: dict[str, str]) -> None:
    found_dtype = _dtype_of(array)
    if found_dtype != kind.dtype:
        raise ModelError(f"input {name!r} has another element type", found=found_dtype,
                         wanted=kind.dtype,
                         hint=f"Convert it, for example .astype({numpy_dtype(kind.dtype).name!r})")
    shape = tuple(int(extent) for extent in array.shape)
    if len(shape) != kind.rank:
        raise ModelError(f"input {name!r} has another rank", found=shape, wanted=kind)
    for axis, (extent, size) in enumerate(zip(kind.shape, shape, strict=True)):
        _bind_extent(name, kind, axis, extent, size, shape, values, origin)


def _bind_extent(name: str, kind: TensorType, axis: int, extent: Extent, size: int,
                 shape: tuple[int, ...], values: dict[str, int], origin: dict[str, str]) -> None:
    if isinstance(extent, Dim):
        label = str(extent)
        if label not in values and symbols(extent) == {label}:
            values[label], origin[label] = size, f"input {name!r}"
            return
        wanted = evaluate(extent, values)
        if wanted != size:
            raise ModelError(f"input {name!r}: axis {axis} disagrees about {label}", found=size,
                             wanted=f"{wanted} (from {origin.get(label, 'other inputs')})")
    elif extent != size:
        raise ModelError(f"input {name!r} has another shape", found=shape, wanted=kind,
                         hint=f"Axis {axis} is {size} instead of {extent}")


def _dtype_of(array: Any) -> str:
    dtype = array.dtype
    if isinstance(dtype, np.dtype):
        try:
            return dtype_name(dtype)
        except Ge2Error:
            return str(dtype)
    words = {"torch.float32": "f32", "torch.float16": "f16", "torch.bfloat16": "bf16",
             "torch.float64": "f64", "torch.int32": "i32", "torch.int64": "i64",
             "torch.bool": "bool", "torch.uint8": "u8", "torch.int8": "i8"}
    return words.get(str(dtype), str(dtype))


def _named_bf16(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return bf16 for the 2-byte void type that .npy keeps of it."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        return array.view(numpy_dtype("bf16"))
    return array


def _read_csv(path: Path, type_: TensorType | None) -> npt.NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # NumPy's "no data": said below
        try:
            table = np.loadtxt(path, delimiter=",", dtype=np.float64, ndmin=2)
        except UnicodeDecodeError:
            raise ModelError(f"{path} is not text") from None
        except ValueError as error:  # what follows a semicolon is advice to who calls NumPy
            raise ModelError(f"{path} cannot be read as csv: {str(error).partition(';')[0]}"
                             ) from None
    if table.size == 0:
        raise ModelError(f"{path} holds no numbers")
    if type_ is None:
        return table.astype(np.float32)
    array = table.astype(numpy_dtype(type_.dtype))
    if not np.array_equal(array.astype(np.float64), table) and DTYPES[type_.dtype].kind != "float":
        raise ModelError(f"{path} holds numbers that are no {type_.dtype}")
    if type_.rank == 2:
        return array
    tail = type_.shape[1:]
    if type_.rank > 2 and all(isinstance(e, int) for e in tail):
        count = int(np.prod([e for e in tail if isinstance(e, int)]))
        if array.shape[1] == count:
            return array.reshape(array.shape[0], *(e for e in tail if isinstance(e, int)))
    return array.reshape(-1) if type_.rank == 1 and 1 in array.shape else array
