"""Shape arithmetic shared by the definitions; works on symbolic extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Dim, Extent
from ..ir.nodes import TensorType
from .opdef import Types

Shape = tuple[Extent, ...]


def tensor(types: Types, index: int) -> TensorType:
    """Return the type of an input that check_inputs has found present."""
    found = types[index]
    assert found is not None, index
    return found


def optional(values: Sequence[Any], index: int) -> Any:
    """Return an optional trailing input, None when absent."""
    return values[index] if index < len(values) else None


def product(extents: Sequence[Extent]) -> Extent:
    """Return the number of elements."""
    total: Extent = 1
    for extent in extents:
        total = total * extent
    return total


def axis_of(op: str, axis: int, rank: int) -> int:
    """Return a non-negative axis.

    Raises:
        GraphError: the axis is out of range.
    """
    if not -rank <= axis < rank:
        raise GraphError(f"{op} axis is out of range", found=axis,
                         wanted=f"{-rank} <= axis < {rank}")
    return axis % rank


def axes_of(op: str, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Return non-negative axes in the given order; refuses an axis named twice."""
    result = tuple(axis_of(op, axis, rank) for axis in axes)
    if len(set(result)) != len(result):
        raise GraphError(f"{op} names an axis twice", found=tuple(axes))
    return result


def row_major(extents: Sequence[Extent]) -> list[Any]:
    """Return the distance in elements between neighbours along each axis of a dense tensor."""
    return [product(extents[axis + 1:]) for axis in range(len(extents))]


def broadcast(op: str, shapes: Sequence[Shape]) -> Shape:
    """Return the NumPy broadcast of shapes.

    Raises:
        ShapeMismatch: two extents are neither equal nor 1.
    """
    if all(shape == shapes[0] for shape in shapes[1:]):
        return shapes[0]
    rank = max(map(len, shapes))
    result: list[Extent] = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for index, extent in enumerate(shape):
            have = result[offset + index]
            if have == 1:
                result[offset + index] = extent
            elif extent != 1 and extent != have:
                raise ShapeMismatch(
                    f"{op} inputs do not broadcast", found=" and ".join(map(str, shapes)))
    return tuple(result)


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Return whether shape broadcasts to exactly target."""
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(extent == 1 or extent == wanted for extent, wanted in pairs)


def reshaped(op: str, shape: Shape, wanted: Sequence[Extent], allowzero: bool = False) -> Shape:
    """Return the shape that RESHAPE gives: 0 copies an extent, one -1 is computed.

    Raises:
        ShapeMismatch: the element counts differ or do not divide.
    """
    result = list(wanted)
    if not allowzero:
        for index, extent in enumerate(result):
            if extent == 0:
                if index >= len(shape):
                    raise ShapeMismatch(f"{op} copies an extent that the input lacks",
                                        found=tuple(wanted), wanted=f"rank {len(shape)}")
                result[index] = shape[index]
    holes = [index for index, extent in enumerate(result) if extent == -1]
    total = product(shape)
    if len(holes) > 1 or any(isinstance(e, int) and e < -1 for e in result):
        raise ShapeMismatch(f"{op} shape is not usable", found=tuple(wanted),
                            wanted="extents with at most one -1")
    if holes:
        known = product([extent for extent in result if extent != -1])
        if known == 0:
            raise ShapeMismatch(f"{op} cannot compute -1 beside an extent of 0",
                                found=tuple(wanted))
        result[holes[0]] = _quotient(op, total, known, shape, wanted)
    elif product(result) != total:
        raise ShapeMismatch(f"{op} changes the number of elements", found=tuple(wanted),
                            wanted=f"{total} elements as in {tuple(shape)}")
    return tuple(result)


def _quotient(op: str, total: Extent, known: Extent, shape: Shape, wanted: Any) -> Extent:
    exact: Extent
    if isinstance(known, int) or isinstance(total, Dim):
        exact = total // known  # type: ignore[operator] # an int is never divided by a Dim here
    else:
        exact = 0 if total == 0 else -1
    if exact * known != total and not isinstance(exact, Dim):
        raise ShapeMismatch(f"{op} does not divide evenly", found=tuple(wanted),
                            wanted=f"{total} elements as in {tuple(shape)}")
    return exact


def window_pads(attrs: Any, sizes: Sequence[Extent], kernel: Sequence[Extent],
                strides: Sequence[int], dilations: Sequence[int]) -> list[tuple[Extent, Extent]]:
    """Return (begin, end) padding per spatial axis of a convolution or pool, auto_pad resolved."""
    n = len(sizes)
    mode = attrs.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = attrs["pads"] or (0,) * (2 * n)
        return [(pads[i], pads[n + i]) for i in range(n)]
    if mode == "VALID":
        return [(0, 0)] * n
    result: list[tuple[Extent, Extent]] = []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        out = (size + (stride - 1)) // stride
        total = (out - 1) * stride + (k - 1) * dilation + 1 - size
        if isinstance(total, int):
            total = max(total, 0)
        half = total // 2
        small, large = (half, total - half)
        result.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return result


def window_extent(op: str, size: Extent, kernel: Extent, stride: int, dilation: int,
                  pads: tuple[Extent, Extent], ceil_mode: bool = False) -> Extent:
    """Return the output extent of a sliding window along one axis.

    In ceil mode a last window that would start in the end padding is dropped, as in ONNX.
    """
    if stride < 1 or dilation < 1:
        raise GraphError(f"{op} strides and dilations start at 1", found=(stride, dilation))
    reach = (kernel - 1) * dilation + 1
    room = size + pads[0] + pads[1] - reach
    if isinstance(room, int) and room < 0:
        raise ShapeMismatch(f"{op} window is larger than the padded input", found=reach,
                            wanted=f"at most {size + pads[0] + pads[1]}")
    if not ceil_mode:
        return room // stride + 1
    out = (room + (stride - 1)) // stride + 1
    if isinstance(out, int) and isinstance(size, int) and isinstance(pads[0], int) and (
            (out - 1) * stride >= size + pads[0]):
        out -= 1
    return out


def spatial(op: str, attrs: Any, name: str, n: int, default: int) -> tuple[int, ...]:
    """Return a per-axis attribute, default for each axis when empty."""
    given = attrs[name]
    if not given:
        return (default,) * n
    if len(given) != n:
        raise GraphError(f"{op} attribute {name!r} has the wrong length", found=len(given),
                         wanted=n)
    return tuple(given)
