"""The MiniLM-L6 sentence encoder for bench.models: its weights and ge2's form of it.

The graph is that of examples/minilm. Without the package's folder, weights of its shapes are drawn.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ge2.model import GraphBuilder, Value
from ge2.model.weights import save_weights

SEED = 0


@dataclass(frozen=True, slots=True)
class Sizes:
    """The extents of an encoder, named as in the package's config.json."""

    hidden_size: int = 384
    intermediate_size: int = 1536
    num_attention_heads: int = 12
    num_hidden_layers: int = 6
    max_position_embeddings: int = 512
    vocab_size: int = 30522
    layer_norm_eps: float = 1e-12


def write_random(folder: Path, sizes: Sizes | None = None) -> Path:
    """Write config.json and model.safetensors with random f32 weights; return the folder.

    Matrices have a deviation of 1 / sqrt(columns), so that values keep their size from layer to
    layer and attention tells keys apart.
    """
    sizes = sizes or Sizes()
    draw = np.random.default_rng(SEED)

    def normal(*shape: int, scale: float = 1.0) -> Any:
        return draw.standard_normal(shape, np.float32) * np.float32(scale)

    hidden, inner = sizes.hidden_size, sizes.intermediate_size
    weights = {
        "embeddings.word_embeddings.weight": normal(sizes.vocab_size, hidden),
        "embeddings.position_embeddings.weight": normal(sizes.max_position_embeddings, hidden),
        "embeddings.token_type_embeddings.weight": normal(2, hidden)}
    norms = ["embeddings.LayerNorm"]
    for number in range(sizes.num_hidden_layers):
        layer = f"encoder.layer.{number}"
        linears = {f"attention.self.{part}": (hidden, hidden) for part in ("query", "key", "value")}
        linears |= {"attention.output.dense": (hidden, hidden),
                    "intermediate.dense": (inner, hidden), "output.dense": (hidden, inner)}
        for name, (rows, columns) in linears.items():
            weights[f"{layer}.{name}.weight"] = normal(rows, columns, scale=columns**-0.5)
            weights[f"{layer}.{name}.bias"] = normal(rows, scale=0.1)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name in norms:
        weights[f"{name}.weight"] = draw.uniform(0.5, 1.5, hidden).astype(np.float32)
        weights[f"{name}.bias"] = normal(hidden, scale=0.1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(asdict(sizes)))
    save_weights(folder / "model.safetensors", weights)
    return folder


def build(folder: Path, dtype: str, f32: str = "default") -> GraphBuilder:
    """Return the encoder as a ge2 graph.

    Args:
        folder: with config.json and model.safetensors.
        dtype: f32, f16 or bf16; of the weights and of what is computed.
        f32: how products of f32 are computed: ieee, tf32 or x3.
    """
    example = _example()

    class Encoder(example.Encoder):  # type: ignore[misc, name-defined]
        def linear(self, name: str, x: Value, act: str = "none") -> Value:
            weight, bias = (self.weight(f"{name}.{part}") for part in ("weight", "bias"))
            return self.g.gemm_bias_act(x, weight, bias, trans_b=True, act=act, f32=f32)

    graph: GraphBuilder = Encoder(folder, dtype).build()
    return graph


def _example() -> Any:
    """Return examples/minilm/convert.py as a module."""
    path = Path(__file__).resolve().parents[1] / "examples/minilm/convert.py"
    spec = importlib.util.spec_from_file_location("minilm_convert", path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def renamed(weights: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the package's arrays by the torch module's names, in f32."""
    place = (weights["embeddings.position_embeddings.weight"]
             + weights["embeddings.token_type_embeddings.weight"][0])  # every token is of type 0
    found = {"words.weight": weights["embeddings.word_embeddings.weight"], "places.weight": place}
    names = {"norm": "embeddings.LayerNorm"}
    for number in range(config["num_hidden_layers"]):
        old, new = f"encoder.layer.{number}", f"layers.{number}"
        names |= {f"{new}.dense": f"{old}.attention.output.dense",
                  f"{new}.norm": f"{old}.attention.output.LayerNorm",
                  f"{new}.inner": f"{old}.intermediate.dense",
                  f"{new}.outer": f"{old}.output.dense",
                  f"{new}.last_norm": f"{old}.output.LayerNorm"}
        for kind in ("weight", "bias"):
            found[f"{new}.qkv.{kind}"] = np.concatenate(
                [weights[f"{old}.attention.self.{part}.{kind}"]
                 for part in ("query", "key", "value")])
    for new, old in names.items():
        found |= {f"{new}.{kind}": weights[f"{old}.{kind}"] for kind in ("weight", "bias")}
    return {name: np.array(array, np.float32) for name, array in found.items()}


def sentences(config: Mapping[str, Any], batch: int, length: int, *, ragged: bool
              ) -> tuple[Any, Any]:
    """Return random ids [batch, length] i64 and a mask of the same shape.

    Args:
        config: the encoder's.
        batch, length: of the arrays.
        ragged: lengths differ from sentence to sentence; else no token is padding.
    """
    draw = np.random.default_rng(SEED + 1)
    ids = draw.integers(0, config["vocab_size"], (batch, length))
    lengths = draw.integers(1, length + 1, batch) if ragged else np.full(batch, length)
    return ids, np.arange(length) < lengths[:, None]
