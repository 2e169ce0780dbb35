"""Attention over keys and values in pages that a table names: what a decoder's cache is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...contract import DTYPES, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .attention import OPDEFS as ATTENTION
from .opdef import FLOATS, INDEX, Array, Arrays, Builder, OpDef, Types
from .shapes import broadcasts_to, optional, tensor

TABLE, LENGTH, MASK = 3, 4, 5  # places of the inputs behind q, k and v
TILE = 16  # keys that a kernel takes at a time, of one page
MOST_HEAD, MOST_ROWS = 256, 64  # elements of a head, and query rows of a key head, that it takes


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    q, k, v, table, length = (tensor(types, i) for i in range(5))
    mask = optional(types, MASK)
    if not q.rank == k.rank == v.rank == 4 or table.rank != 2:
        raise ShapeMismatch("PAGED_ATTENTION takes q [batch, head, row, element], pages [page, "
                            "head, row, element] and a table [batch, page of a sample]",
                            found=f"{q}, {k}, {v}, {table}")
    batch, heads, queries, size = q.shape
    if k.shape[3] != size or v.shape[:3] != k.shape[:3]:
        raise ShapeMismatch("PAGED_ATTENTION q, k and v do not fit together",
                            found=f"{q}, {k}, {v}")
    if isinstance(heads, int) and isinstance(k.shape[1], int) and (
            k.shape[1] < 1 or heads % k.shape[1]):
        raise ShapeMismatch("PAGED_ATTENTION key heads do not divide the query heads",
                            found=f"{heads} and {k.shape[1]}")
    if table.shape[0] != batch or length.shape != (batch,):
        raise ShapeMismatch("PAGED_ATTENTION block_table and kv_len have a row per sample",
                            found=f"{table}, {length}", wanted=f"{batch} rows")
    keys = table.shape[1] * k.shape[2]
    if mask is not None and not broadcasts_to(mask.shape, (batch, heads, queries, keys)):
        raise ShapeMismatch("PAGED_ATTENTION mask does not broadcast to the scores", found=mask)
    if mask is not None and mask.dtype not in ("bool", q.dtype):
        raise GraphError("PAGED_ATTENTION mask is bool or of q's dtype", found=mask)
    if attrs["score"] is not None and (attrs["score"].n_inputs > 1 or attrs["score"].n_scalars):
        raise GraphError("PAGED_ATTENTION score is a formula over the score and coordinates",
                         found=attrs["score"].text)
    out = TensorType(q.dtype, (batch, heads, queries, v.shape[3]))
    statistics = TensorType(DTYPES[q.dtype].compute, (batch, heads, queries))
    return [out, statistics] if attrs["lse"] else [out]


def _gathered(pages: Array, table: Array) -> Array:
    """Return a sample's keys one behind another: [batch, head, row, element]."""
    found = pages[table].transpose(0, 2, 1, 3, 4)
    return found.reshape(*found.shape[:2], -1, found.shape[4])


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    q, k, v, table, length = (np.asarray(a) for a in arrays[:5])
    return ATTENTION[0].reference(
        [q, _gathered(k, table), _gathered(v, table), optional(arrays, MASK), length],
        {**attrs, **_HEADS})


_HEADS = {"q_num_heads": None, "kv_num_heads": None, "query_offset": 0}


def _decompose(builder: Builder, inputs: Sequence[str],
               attrs: dict[str, Any]) -> Sequence[str] | None:
    q, k, v, table, length = inputs[:5]
    batch, count = builder.type(table).shape
    _, heads, rows, _ = builder.type(k).shape
    operands = [q]
    for pages in (k, v):
        found = builder.op("TRANSPOSE", builder.op("GATHER", pages, table, axis=0),
                           perm=(0, 2, 1, 3, 4))
        operands.append(builder.op(
            "RESHAPE", found, allowzero=True,
            shape=(batch, heads, count * rows, builder.type(pages).shape[3])))
    operands += [optional(inputs, MASK) or "", length]
    made = builder.multi("ATTENTION", 1 + attrs["lse"], *operands, **attrs)
    return made


def is_served(q: TensorType, k: TensorType, v: TensorType) -> bool:
    """Return whether a kernel reads such pages in place; others are gathered first."""
    heads, queries, groups = q.shape[1], q.shape[2], k.shape[1]
    if q.dtype not in ("f16", "bf16") or not (
            isinstance(heads, int) and isinstance(queries, int) and isinstance(groups, int)):
        return False
    return (_in_tiles(k.shape[2]) and all(_in_tiles(x.shape[3], MOST_HEAD) for x in (q, v))
            and heads // groups * queries <= MOST_ROWS)


def _in_tiles(extent: Extent, most: int | None = None) -> bool:
    if not isinstance(extent, int) or (most is not None and extent > most):
        return False
    return extent > 0 and extent % TILE == 0


OPDEFS = (
    OpDef("PAGED_ATTENTION", ("q", "k", "v", "block_table", "kv_len", "mask?"), 2,
          (AttrSpec("scale", "float", None, doc="factor of the scores; 1 / sqrt(head size)"),
           AttrSpec("is_causal", "bool", False, doc="a query sees keys up to its own place"),
           AttrSpec("softcap", "float", 0.0, doc="scores become cap * tanh(score / cap); 0 = off"),
           AttrSpec("left_window_size", "int", -1, doc="keys seen before a query; -1 = all"),
           AttrSpec("right_window_size", "int", -1, doc="keys seen after a query; -1 = all"),
           AttrSpec("score", "expr", None, doc="what becomes of a score, as of ATTENTION, without "
                    "further inputs"),
           AttrSpec("lse", "bool", False, doc="also return the log-sum-exp of each row")),
          _infer, _reference, properties=frozenset({"mergeable", "rematerializable"}),
          family="paged_attention", dtypes=FLOATS,
          other={"mask": (*FLOATS, "bool"), "block_table": INDEX, "kv_len": INDEX},
          decompose=_decompose,
          doc="ATTENTION whose key n of sample b is row n % R of page block_table[b, n // R], "
              "pages [P, head, R, D]."),
)
