"""What checks of problems ask of shapes."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ShapeMismatch
from ..problem import Problem, TensorSpec
from .schemas import KernelOp

Check = Callable[[Problem, KernelOp], None]


def require(condition: bool, name: str, spec: TensorSpec, wanted: object) -> None:
    """Refuse the shape of a named argument unless a condition holds.

    Raises:
        ShapeMismatch: it does not; wanted is what the message says.
    """
    if not condition:
        raise ShapeMismatch(f"bad shape of {name}", argument=name, found=spec.shape, wanted=wanted)


def broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Return whether a shape broadcasts to another one."""
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(have in (1, want) for have, want in pairs)
