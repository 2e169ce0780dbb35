"""GEMM_BIAS_ACT beside torch, in one process.

    python -m bench.gemm --out bench/results/h200 [--only bf16_relu,large,...] [--variants]

The rivals are torch's ways to compute the same, the fastest of them counts: F.linear, addmm and
_addmm_activation; with --compile max-autotune as well. `choice` times every variant on shapes that
no rule was made for, `accuracy` compares with float64, `compile` times NVRTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from . import compile_times, gemm_accuracy, gemm_quantised
from .gemm_cases import PEERS, anchors, f32_modes, f32_weights, few_rows, large, layouts, unseen
from .side_by_side import Part, command
from .targets import Section, Verdict, geomean, losses


def _mean(section: Section) -> Iterator[Verdict]:
    yield from geomean(f"{PEERS}: geometric mean", 1.15, section.verdicts)


def choice(section: Section) -> Iterator[Verdict]:
    """Yield what choices without tuning lose."""
    yield from losses("choice without tuning, best variant",
                      [row["loss"] for row in section.figures.values() if "loss" in row])


SECTIONS: Mapping[str, Part] = {
    "large": Part(large),
    "bf16_relu": Part(lambda: anchors("bf16", "relu"), _mean),
    "bf16_gelu": Part(lambda: anchors("bf16", "gelu_tanh"), _mean),
    "f16_relu": Part(lambda: anchors("f16", "relu"), _mean),
    "f16_gelu": Part(lambda: anchors("f16", "gelu_tanh"), _mean),
    "few_rows": Part(few_rows),
    "f32": Part(f32_modes),
    "f32_weights": Part(f32_weights),
    "choice": Part(unseen, choice),
    "layouts": Part(layouts),
    "int8": Part(gemm_quantised.int8),
    "fp8": Part(gemm_quantised.fp8),
    "nbits": Part(gemm_quantised.nbits),
}
OTHERS = {"accuracy": gemm_accuracy.run, "compile": compile_times.products}

if __name__ == "__main__":
    command("gemm", SECTIONS, __doc__, OTHERS)()
