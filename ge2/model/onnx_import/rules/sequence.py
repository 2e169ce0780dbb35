"""Recurrent networks, attention and rotary embeddings."""

from __future__ import annotations

from typing import Any

from ....compiler.ir.dim import Dim
from ...node_writer import Unmapped
from ..call import Call
from .table import RuleTable

RULES = RuleTable()

RULES.direct("RotaryEmbedding", "ROTARY", "interleaved", "num_heads", "rotary_embedding_dim")

_RNN_ATTRS = ("hidden_size", "direction", "layout", "clip", "input_forget", "linear_before_reset",
              "activations", "output_sequence")
_DEFAULT_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}


@RULES.rule("LSTM", "GRU", "RNN")
def _recurrent(call: Call) -> list[str]:
    call.only(*_RNN_ATTRS)
    attrs = call.take("hidden_size", "direction", "layout", "clip", "input_forget",
                      "linear_before_reset")
    attrs.update(_activation(call))
    _check_lengths(call)
    order = [i for i in range(call.n_inputs) if i != 4]
    names = list(call.writer.multi(call.op, 3, *call.values(*order), **attrs))
    return [name if output else "" for name, output in zip(names, call.wanted, strict=False)]


def _activation(call: Call) -> dict[str, str]:
    given = call.attrs.get("activations")
    if not given:
        return {}
    ways = 2 if call.attrs.get("direction") == "bidirectional" else 1
    if call.op == "RNN":
        if len(set(given)) == 1:
            return {"activation": given[0].lower()}
    elif given == _DEFAULT_ACTIVATIONS[call.op] * ways:
        return {}
    raise Unmapped(f"activations {', '.join(given)}")


def _check_lengths(call: Call) -> None:
    lengths = call.known(4) if call.has(4) else None
    if lengths is None:
        return
    steps = call.extent(0, 1 if call.attrs.get("layout") else 0)
    if any(length != steps for length in lengths.reshape(-1)):
        raise Unmapped("sequence_lens shorter than the sequence")


@RULES.rule("Attention")
def _attention(call: Call) -> list[str]:
    call.only("scale", "is_causal", "q_num_heads", "kv_num_heads", "softcap", "softmax_precision",
              "left_window_size", "right_window_size", "qk_matmul_output_mode")
    if len(call.wanted) > 3 and call.wanted[3]:
        raise Unmapped("scores as an output")
    q, k, v = (call.value(i) for i in range(3))
    attrs = call.take("scale", "is_causal", "q_num_heads", "kv_num_heads", "softcap",
                      "left_window_size", "right_window_size")
    outputs: list[str] = []
    past_k, past_v = call.value(4), call.value(5)
    flat = call.rank(0) == 3
    if past_k:
        past = call.writer.type(past_k).shape
        if flat:
            q = _heads_first(call, q, attrs["q_num_heads"])
            k, v = (_heads_first(call, x, past[1]) for x in (k, v))
        attrs["query_offset"] = past[2]
        k, v = call.make("CONCAT", past_k, k, axis=2), call.make("CONCAT", past_v, v, axis=2)
        outputs = [k, v]
    y = call.make("ATTENTION", q, k, v, _padded_mask(call, k), call.value(6), **attrs)
    if past_k and flat:
        y = call.make("RESHAPE", call.make("TRANSPOSE", y, perm=(0, 2, 1, 3)), shape=(0, 0, -1))
    return [y, *outputs, *[""] * (len(call.wanted) - 1 - len(outputs))]


def _heads_first(call: Call, x: str, heads: Any) -> str:
    split = call.make("RESHAPE", x, shape=(0, 0, heads, -1))
    return call.make("TRANSPOSE", split, perm=(0, 2, 1, 3))


def _padded_mask(call: Call, k: str) -> str:
    """Return the mask; one for fewer keys than there are forbids the others."""
    mask = call.value(3)
    if not mask:
        return ""
    kind = call.writer.type(k)
    missing = kind.shape[1 if kind.rank == 3 else 2] - call.writer.type(mask).shape[-1]
    if missing == 0 or isinstance(missing, Dim):
        return mask
    fill = 0.0 if call.writer.type(mask).dtype == "bool" else float("-inf")
    return call.make("PAD", mask, pads=(0, missing), axes=(-1,), value=fill)
