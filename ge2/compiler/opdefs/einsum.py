"""EINSUM: products and sums named by letters, and their composition of matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...contract import REQUIRED, AttrSpec
from ...errors import GraphError, ShapeMismatch
from ..ir.dim import Extent
from ..ir.nodes import TensorType
from .opdef import FLOATS, Array, Arrays, Builder, OpDef, Types
from .shapes import product, tensor


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation without spaces and ellipses: the letters of each operand and of the output."""

    operands: tuple[str, ...]
    output: str


def parse(equation: str, ranks: Sequence[int]) -> Equation:
    """Return the equation with ellipses replaced by digits '0', '1', ... counted from the right.

    Raises:
        GraphError: the equation is malformed or does not fit the ranks.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise GraphError("EINSUM equation does not name every input", found=equation,
                         wanted=f"{len(ranks)} terms")
    widest = 0
    operands = []
    for term, rank in zip(terms, ranks, strict=True):
        letters = term.replace("...", "")
        extra = rank - len(letters)
        if (not letters.isalpha() and letters) or extra < 0 or (extra and "..." not in term):
            raise GraphError(f"EINSUM term {term!r} does not fit an input of rank {rank}")
        dots = "".join(str(i) for i in reversed(range(extra)))
        widest = max(widest, extra)
        operands.append(term.replace("...", dots))
    dots = "".join(str(i) for i in reversed(range(widest)))
    if not arrow:
        seen = "".join(terms).replace(".", "")
        once = "".join(sorted(c for c in set(seen) if seen.count(c) == 1))
        return Equation(tuple(operands), dots + once)
    output = right.replace("...", dots)
    if len(set(output)) != len(output) or not set(output) <= set("".join(operands)):
        raise GraphError("EINSUM output names a letter twice or an unknown one", found=equation)
    return Equation(tuple(operands), output)


def _extents(equation: Equation, shapes: Sequence[tuple[Extent, ...]]) -> dict[str, Extent]:
    sizes: dict[str, Extent] = {}
    for term, shape in zip(equation.operands, shapes, strict=True):
        for letter, extent in zip(term, shape, strict=True):
            known = sizes.get(letter, 1)
            if known != 1 and extent != known and not (letter.isdigit() and extent == 1):
                raise ShapeMismatch(f"EINSUM letter {letter!r} has two extents",
                                    found=f"{known} and {extent}")
            sizes[letter] = extent if known == 1 else known
    return sizes


def _infer(types: Types, attrs: dict[str, Any]) -> list[TensorType]:
    given = [tensor(types, i) for i in range(len(types))]
    equation = parse(attrs["equation"], [t.rank for t in given])
    sizes = _extents(equation, [t.shape for t in given])
    return [TensorType(given[0].dtype, tuple(sizes[c] for c in equation.output))]


def _reference(arrays: Arrays, attrs: dict[str, Any]) -> list[Array]:
    given = [a for a in arrays if a is not None]
    return [np.asarray(np.einsum(attrs["equation"].replace(" ", ""), *given, optimize=True))]


def _sum_out(builder: Builder, value: str, term: str, keep: set[str]) -> tuple[str, str]:
    """Sum the letters of a term that nobody else needs."""
    axes = tuple(i for i, letter in enumerate(term) if letter not in keep)
    if not axes:
        return value, term
    summed = builder.op("REDUCE_SUM", value, axes=axes, keepdims=False)
    return summed, "".join(letter for letter in term if letter in keep)


def _arranged(builder: Builder, value: str, term: str, order: str) -> str:
    """Transpose a value to an order of letters, with axes of extent 1 for those it lacks."""
    present = [letter for letter in order if letter in term]
    perm = tuple(term.index(letter) for letter in present)
    if perm != tuple(range(len(perm))):
        value = builder.op("TRANSPOSE", value, perm=perm)
    missing = tuple(i for i, letter in enumerate(order) if letter not in term)
    return builder.op("UNSQUEEZE", value, axes=missing) if missing else value


def _diagonal(builder: Builder, value: str, term: str) -> tuple[str, str] | None:
    """Turn a repeated letter into one axis: every (n + 1)-th element of the merged axes."""
    for letter in term:
        if term.count(letter) == 1:
            continue
        kind = builder.type(value)
        axes = [i for i, c in enumerate(term) if c == letter][:2]
        n = kind.shape[axes[0]]
        if not isinstance(n, int):
            return None
        rest = [i for i in range(kind.rank) if i not in axes]
        shape = tuple(kind.shape[i] for i in rest)
        moved = builder.op("TRANSPOSE", value, perm=(*rest, *axes))
        merged = builder.op("RESHAPE", moved, shape=(*shape, n * n), allowzero=True)
        value = builder.op("SLICE", merged, axes=(len(rest),), starts=(0,), ends=(n * n,),
                           steps=(n + 1,))
        return _diagonal(builder, value, "".join(term[i] for i in rest) + letter)
    return value, term


def _multiply(builder: Builder, a: tuple[str, str], b: tuple[str, str],
              keep: set[str]) -> tuple[str, str]:
    """Contract two terms into one by a batched matrix product (or a plain product)."""
    (left, lt), (right, rt) = a, b
    left, lt = _sum_out(builder, left, lt, keep | set(rt))
    right, rt = _sum_out(builder, right, rt, keep | set(lt))
    batch = "".join(c for c in lt if c in rt and c in keep)
    inner = "".join(c for c in lt if c in rt and c not in keep)
    rows = "".join(c for c in lt if c not in rt)
    columns = "".join(c for c in rt if c not in lt)
    if not inner:
        order = batch + rows + columns
        return builder.op("MUL", _arranged(builder, left, lt, order),
                          _arranged(builder, right, rt, order)), order
    sizes = {c: e for v, t in ((left, lt), (right, rt))
             for c, e in zip(t, builder.type(v).shape, strict=True) if e != 1}

    def extents(letters: str) -> tuple[Extent, ...]:
        return tuple(sizes.get(c, 1) for c in letters)

    def matrix(value: str, term: str, first: str, second: str) -> str:
        value = _arranged(builder, value, term, batch + first + second)
        own = builder.type(value).shape[:len(batch)]  # a broadcast batch axis stays of extent 1
        return builder.op("RESHAPE", value, allowzero=True,
                          shape=(*own, product(extents(first)), product(extents(second))))

    result = builder.op("MATMUL", matrix(left, lt, rows, inner),
                        matrix(right, rt, inner, columns))
    order = batch + rows + columns
    return builder.op("RESHAPE", result, shape=extents(order), allowzero=True), order


def _decompose(builder: Builder, inputs: Sequence[str],
               attrs: dict[str, Any]) -> Sequence[str] | None:
    equation = parse(attrs["equation"], [builder.type(v).rank for v in inputs])
    terms: list[tuple[str, str]] = []
    for value, term in zip(inputs, equation.operands, strict=True):
        single = _diagonal(builder, value, term)
        if single is None:
            return None
        terms.append(single)
    value, term = terms[0]
    for index, other in enumerate(terms[1:], start=1):
        later = set(equation.output).union(*(t for _, t in terms[index + 1:]))
        value, term = _multiply(builder, (value, term), other, later)
    value, term = _sum_out(builder, value, term, set(equation.output))
    value = _arranged(builder, value, term, equation.output)
    return [value if value != inputs[0] else builder.op("IDENTITY", value)]


OPDEFS = (
    OpDef("EINSUM", ("xs*",), 1,
          (AttrSpec("equation", "str", REQUIRED, doc="as numpy.einsum, letters and '...'"),),
          _infer, _reference, properties=frozenset({"linear", "rematerializable"}), family="gemm",
          dtypes=(*FLOATS, "i32", "i64"), decompose=_decompose,
          doc="Sum of products named by an equation; a matrix product where it is one."),
)
