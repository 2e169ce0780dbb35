"""Products of a few rows with large weights, and f32 products, beside torch and a plain copy.

    python -m bench.skinny --out bench/results/h200 [--only NAMES] [--match PARTS] [--variants]

Weights come from memory (cold). torch is the fastest of its calls that compute the same. "nk"
weights are stored [N, K] as in F.linear, "kn" [K, N].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .gemm_cases import gemm_case
from .side_by_side import Case, Part, Tensors, command
from .targets import Goal, Section, Verdict, geomean

LARGE = 64 << 20  # bytes of weights from which a copy is the yardstick
# Rows -> share of a copy with large weights, and geometric mean over small ones to torch.
ROWS: Mapping[int, tuple[float, float]] = {
    1: (0.96, 1.6), 4: (0.96, 1.45), 16: (0.96, 1.3), 64: (0.88, 1.05)}
SMALL = "N and K up to 4096, both layouts, best torch call"
WEIGHTS = ((14336, 4096), (4096, 14336), (4096, 4096), (2048, 2048), (1024, 1024))


def case(m: int, n: int, k: int, dtype: str = "bf16", layout: str = "nk", act: str = "none",
         **rest: Any) -> Case:
    """Return act(X W + bias) for X [m, k] and weights of k x n; "none" is without bias."""
    made = gemm_case((m, n, k), dtype, act, trans_b=layout == "nk", bias=act != "none",
                     regimes=("memory",), constant=(1,), **rest)
    tail = "" if act == "none" else f" bias+{act}"
    peers = dict(made.peers)
    if m == 1 and act == "none":
        peers["mv"] = _mv(layout == "nk")
    # Speed is bytes in the table, but for f32, which CUDA cores multiply.
    return replace(made, name=f"{m}x{n}x{k} {dtype} {layout}{tail}", peers=peers,
                   flops=made.flops if dtype == "f32" else 0.0)


def _mv(stored_nk: bool) -> Callable[[Tensors], Any]:
    import torch

    return lambda t: torch.mv(t[1] if stored_nk else t[1].t(), t[0][0], out=t[4][0]).unsqueeze(0)


def skinny(m: int) -> Iterator[Case]:
    """Yield large and small weights in both layouts."""
    share, _ = ROWS[m]
    for layout in ("nk", "kn"):
        for n, k in WEIGHTS:
            goal = (Goal(f"M {m}, weights from 64 MB, copy", "copy", share)
                    if 2 * n * k >= LARGE else Goal(SMALL, "peers", 0.0))
            yield case(m, n, k, layout=layout, goals=(goal,))


def part(m: int) -> Part:
    """Return the section of a number of rows."""
    def mean(section: Section) -> Iterator[Verdict]:
        yield from geomean(f"M {m}: {SMALL}", ROWS[m][1], section.of(SMALL))

    return Part(lambda: skinny(m), mean)


def other_skinny() -> Iterator[Case]:
    """Yield row counts, extents, dtypes and epilogues besides those of the targets."""
    goals = (Goal("other rows, dtypes and epilogues, best torch call", "peers", 1.0),)
    for m in (2, 8, 24, 32, 48):
        yield case(m, 4096, 4096, goals=goals)
        yield case(m, 11008, 4096, dtype="f16", layout="kn", goals=goals)
    for m, act in ((1, "gelu_tanh"), (16, "relu"), (16, "gelu"), (64, "gelu_tanh")):
        yield case(m, 4096, 4096, act=act, goals=goals)
        yield case(m, 14336, 4096, act=act, goals=goals)
    yield case(7, 5120, 3072, layout="kn", goals=goals)
    yield case(3000, 16, 4096, goals=goals)
    yield case(4096, 8, 4096, layout="kn", dtype="f16", goals=goals)


def f32_cases() -> Iterator[Case]:
    """Yield products on CUDA cores."""
    for m, n, k, layout, act in (
            (1024, 1024, 1024, "kn", "none"), (2048, 2048, 2048, "kn", "none"),
            (4096, 4096, 4096, "kn", "none"), (8192, 8192, 8192, "kn", "none"),
            (4096, 4096, 4096, "nk", "none"), (1024, 1024, 1024, "nk", "relu"),
            (4096, 4096, 1024, "kn", "gelu_tanh"), (1536, 3072, 2048, "nk", "relu"),
            (2048, 1024, 8192, "kn", "none"), (1000, 3000, 2000, "kn", "none")):
        yield case(m, n, k, "f32", layout, act, error=1e-5,
                   goals=(Goal("f32 SIMT from 1024^3, cuBLAS f32", "peers", 1.0),))


SECTIONS: Mapping[str, Part] = {
    **{f"m{m}": part(m) for m in ROWS},
    "f32": Part(f32_cases),
    "skinny": Part(other_skinny),
}

if __name__ == "__main__":
    command("skinny", SECTIONS, __doc__)()
