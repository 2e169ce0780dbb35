"""From a GEMM call and a variant to the kernel source that serves it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .gemm_call import GemmCall
from .record import KernelSource

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant

ALIGNMENT_SLACK = 1024  # ge2::shared_memory() rounds its base up to this

Classes = tuple[tuple[str, Any], ...]
"""What a rule adds to the context of a template: sorted by the caller in no particular way."""


def source_of(variant: Variant, call: GemmCall, classes: Classes, *, tensor_maps: bool = False,
              sources: tuple[str, ...] = ()) -> KernelSource:
    """Return the source of a variant for a class of calls.

    Args:
        variant: its params join the context.
        call: gives dtypes and epilogue.
        classes: further context.
        tensor_maps: the arguments are those of GemmCall.pack_tensor_maps.
        sources: names of the operands before the extras there.
    """
    dtypes = (call.a.dtype, call.b.dtype, call.y.dtype,
              *((name, x.dtype, x.spread) for name, x in call.extras))
    key = _SourceKey(dtypes, call.epilogue, call, tensor_maps, sources)
    return _source(variant, key, classes)


@dataclass(frozen=True, slots=True)
class _SourceKey:
    """Hashes by what decides the rendered text; carries the call that can render it."""

    dtypes: tuple[Any, ...]
    epilogue: Any
    call: GemmCall
    tensor_maps: bool
    sources: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, _SourceKey) and self.dtypes == other.dtypes
                and self.epilogue == other.epilogue)

    def __hash__(self) -> int:
        return hash((self.dtypes, self.epilogue))


@lru_cache(maxsize=4096)
def _source(variant: Variant, key: _SourceKey, classes: Classes) -> KernelSource:
    kernel = variant.kernel
    context = {**key.call.context(key.tensor_maps, key.sources), **dict(variant.params),
               **dict(classes)}
    return KernelSource(kernel.template, tuple(sorted(context.items())), kernel.entries[0])


def cpp(value: bool) -> str:
    """Return a C++ bool."""
    return "true" if value else "false"
