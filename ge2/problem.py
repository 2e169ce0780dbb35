"""What a kernel is asked to do: an operator on tensors of given dtype, shape and strides."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .contract import DTYPES


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor as a kernel sees it.

    Attributes:
        dtype: IR name ("f32").
        shape: extents.
        strides: in elements; 0 broadcasts.
        align: largest power of two up to 16 that divides the address, in bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    align: int = 16

    @classmethod
    def dense(cls, dtype: str, shape: tuple[int, ...], align: int = 16) -> TensorSpec:
        """Return the row-major contiguous tensor of this shape."""
        return cls(dtype, tuple(shape), dense_strides(tuple(shape)), align)

    @property
    def size(self) -> int:
        """Number of elements."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of a dense tensor of this shape."""
        return self.size * DTYPES[self.dtype].itemsize

    @property
    def is_dense(self) -> bool:
        """Whether elements lie row-major without gaps (extents of 1 may have any stride)."""
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return self.size == 0
            expected *= extent
        return True

    @property
    def max_offset(self) -> int:
        """Largest element offset that an index can reach (0 for an empty tensor)."""
        if self.size == 0:
            return 0
        pairs = zip(self.shape, self.strides, strict=True)
        return sum((extent - 1) * stride for extent, stride in pairs)


@dataclass(frozen=True)
class Problem:
    """One operator call without its addresses; hashable, so that it can key plans and evidence.

    Attributes:
        op_type: kernel-level operator ("GEMM_BIAS_ACT", "ELEMENTWISE", ...).
        inputs: one spec per input; None for an optional input that is absent.
        outputs: one spec per output.
        attrs: (name, value) pairs sorted by name, every attribute of the operator present.
        constant: inputs that are the same in every call, such as a model's weights, as far as a
            kernel makes use of that: their other forms are made once, and take no time in a call.
    """

    op_type: str
    inputs: tuple[TensorSpec | None, ...]
    outputs: tuple[TensorSpec, ...]
    attrs: tuple[tuple[str, Hashable], ...] = field(default=())
    constant: tuple[int, ...] = ()

    @classmethod
    def of(cls, op_type: str, inputs: Iterable[TensorSpec | None], outputs: Iterable[TensorSpec],
           attrs: Mapping[str, Hashable]) -> Problem:
        """Return the problem with its attributes in order."""
        return cls(op_type, tuple(inputs), tuple(outputs), tuple(sorted(attrs.items())))

    @cached_property
    def _hash(self) -> int:
        return hash((self.op_type, self.inputs, self.outputs, self.attrs, self.constant))

    def __hash__(self) -> int:
        # Binding looks a problem up in several caches; its parts are hashed once.
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        # Without the cached hash: expressions hash differently in every process.
        return Problem, (self.op_type, self.inputs, self.outputs, self.attrs, self.constant)

    @cached_property
    def attr_map(self) -> dict[str, Hashable]:
        """The attributes as a mapping (do not change it)."""
        return dict(self.attrs)

    @property
    def tensors(self) -> tuple[TensorSpec | None, ...]:
        """All tensors in buffer order: inputs, then outputs."""
        return (*self.inputs, *self.outputs)
