"""Types of values: element type and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .dim import Extent, evaluate


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a value; extents may be symbolic."""

    dtype: str
    shape: tuple[Extent, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        """Whether every extent is an int."""
        return all(isinstance(extent, int) for extent in self.shape)

    def concrete(self, symbols: Mapping[str, int]) -> TensorType:
        """Return the type with every symbol replaced by its value."""
        return TensorType(self.dtype, tuple(evaluate(extent, symbols) for extent in self.shape))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"
