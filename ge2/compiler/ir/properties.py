"""The property table: what is true of each operator, and so which rewrites are licensed.

Operator definitions declare properties under names from PROPERTIES; a rewrite that relies on one
asks licensed() at the moment of rewriting. Take the property away and the rewrite stops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...errors import GraphError, near_matches

PROPERTIES: dict[str, str] = {
    "deterministic": "the outputs depend on inputs and attributes only, and nothing else happens",
    "elementwise": "an output element depends on the broadcast elements at its own index only",
    "commutative": "swapping the two inputs (or reordering what is reduced) changes no exact value",
    "associative": "regrouping applications changes no exact value",
    "idempotent": "applying it twice is the same as once",
    "involution": "applying it twice gives the input back",
    "linear": "f(a x + b y) = a f(x) + b f(y), for each data input on its own or for all together",
    "mergeable": "states of two parts of the input combine into the state of the whole",
    "shift_invariant": "adding a constant along the reduced axis does not change the result",
    "scale_invariant": "multiplying the input by a positive constant does not change the result",
    "order_sensitive": "the result depends on the order of elements along an axis",
    "rematerializable": "cheap enough to compute again instead of keeping the result",
    "view": "every output element is an input element, found by strides alone",
    "composes": "two applications in a row equal one application with other attributes",
    "columnwise": "output channel j depends on channel j of the weights only, and linearly",
    "prologue": "the operand can be a pointwise function of others, computed as it is read",
    "epilogue": "a pointwise function of the result can be applied before the result is stored",
    "bool_result": "the result is bool whatever the inputs are",
    "transposable": "operands can be read transposed instead of being transposed first",
}

_table: dict[str, frozenset[str]] = {}


def declare(op: str, names: Iterable[str]) -> None:
    """Record the properties of an operator. All operators but RANDOM_* are deterministic.

    Raises:
        GraphError: a name is not in PROPERTIES.
    """
    names = frozenset(names)
    for name in names:
        _check(name)
    _table[op] = names if op.startswith("RANDOM_") else names | {"deterministic"}


def licensed(op: str, name: str) -> bool:
    """Return whether an operator has a property; unknown operators have none."""
    _check(name)
    return name in _table.get(op, frozenset())


@contextmanager
def without(op: str, name: str) -> Iterator[None]:
    """Take a property away for a while, to see that rewrites depend on it."""
    _check(name)
    before = _table[op]
    _table[op] = before - {name}
    try:
        yield
    finally:
        _table[op] = before


def _check(name: str) -> None:
    if name not in PROPERTIES:
        raise GraphError(f"unknown property {name!r}", wanted=", ".join(PROPERTIES),
                         hint=near_matches(name, PROPERTIES))
