"""The MiniLM-L6 sentence encoder for bench.models as a torch module."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ge2.model.weights import open_weights

from .minilm import renamed


class Layer(nn.Module):
    """One transformer layer; query, key and value are one product, the fastest form in torch."""

    def __init__(self, hidden: int, inner: int, heads: int, epsilon: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.dense = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, epsilon)
        self.inner = nn.Linear(hidden, inner)
        self.outer = nn.Linear(inner, hidden)
        self.last_norm = nn.LayerNorm(hidden, epsilon)

    def forward(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        batch, length, hidden = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.heads, hidden // self.heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = self.norm(x + self.dense(seen.transpose(1, 2).reshape(batch, length, hidden)))
        return self.last_norm(x + self.outer(F.gelu(self.inner(x))))


class Encoder(nn.Module):
    """ids and mask [batch, length] to unit vectors [batch, hidden].

    Args:
        folder: with config.json and model.safetensors.
        dtype: of the weights and of what is computed; they are rounded to it.
        masked: False: attention is not told of padding, which is less work than ge2 does.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, masked: bool = True) -> None:
        super().__init__()
        config = json.loads((folder / "config.json").read_text())
        hidden, epsilon = config["hidden_size"], config["layer_norm_eps"]
        self.masked = masked
        self.words = nn.Embedding(config["vocab_size"], hidden)
        self.places = nn.Embedding(config["max_position_embeddings"], hidden)
        self.norm = nn.LayerNorm(hidden, epsilon)
        self.layers = nn.ModuleList(
            Layer(hidden, config["intermediate_size"], config["num_attention_heads"], epsilon)
            for _ in range(config["num_hidden_layers"]))
        weights = open_weights(folder / "model.safetensors", "minilm")
        self.load_state_dict({name: torch.from_numpy(array)
                              for name, array in renamed(weights, config).items()})
        self.to(dtype).eval()

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.norm(self.words(ids) + self.places.weight[:ids.shape[1]])
        allowed = mask[:, None, None, :] if self.masked else None
        for layer in self.layers:
            x = layer(x, allowed)
        counted = mask.unsqueeze(2).to(x.dtype)
        return F.normalize((x * counted).sum(1) / counted.sum(1), dim=-1)


def reference(folder: Path, dtype: torch.dtype, ids: Tensor, mask: Tensor, chunk: int = 32
              ) -> Tensor:
    """Return the vectors in float64 of the weights rounded to dtype, some sentences at a time."""
    module = Encoder(folder, dtype).to(torch.float64).to(ids.device)
    with torch.no_grad():
        return torch.cat([module(*pair) for pair in zip(ids.split(chunk), mask.split(chunk),
                                                        strict=True)])
