"""What identifies the kernels of a variant: the digest of its cubins, or cheaper of its sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ..compiler.kernels import source
from ..launch.record import KernelSource, LaunchRecord
from . import jit
from .disk_cache import Meta


def distinct_sources(records: Sequence[LaunchRecord]) -> list[KernelSource]:
    """Return the kernels of a bound variant, in launch order."""
    return list(dict.fromkeys(record.kernel for record in records))


def cubin_digest(metas: Sequence[Meta]) -> str:
    """Return one digest of compiled kernels in launch order: what evidence is bound to."""
    joined = "+".join(meta.cubin_sha256 for meta in metas)
    return hashlib.sha256(joined.encode()).hexdigest()[:32]


def source_digest(sources: Sequence[KernelSource],
                  render: Callable[[KernelSource], str] = source.render) -> str:
    """Return one digest of rendered kernels: equal sources and compilers make equal cubins.

    Args:
        render: source.render, or one that remembers texts.
    """
    joined = "\0".join(render(s) for s in sources)
    return hashlib.sha256(joined.encode()).hexdigest()[:32]


def compiled_digest(sources: Sequence[KernelSource], arch: str) -> str:
    """Return the cubin digest of kernels, compiling what is not cached.

    Raises:
        CompileFailed, EnvironmentUnusable: they cannot be compiled here.
    """
    compiled = jit.compile(sources, arch)
    return cubin_digest([compiled[s].meta for s in sources])
