"""The verifier: the rules of the IR as a table, checked after loading and after every pass."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from ...contract import DTYPES, dtype_name
from ...errors import Ge2Error, GraphError
from .nodes import Graph, Node, TensorType, present

Infer = Callable[[str, Sequence[TensorType | None], Mapping[str, Any]], list[TensorType]]
Rule = Callable[[Graph, Collection[Node]], Iterator[str]]


def verify(graph: Graph, infer: Infer | None = None,
           changed: Collection[Node] | None = None) -> None:
    """Check a graph against every rule.

    Args:
        graph: what to check.
        infer: shape inference; when given, node output types are compared with what it returns.
        changed: nodes to check in detail (all by default); order and names are always checked.

    Raises:
        GraphError: a rule is broken; says which, where and how.
    """
    nodes = graph.nodes if changed is None else changed
    for name, rule in RULES.items():
        for problem in rule(graph, nodes):
            raise GraphError(f"graph {graph.name!r} breaks rule {name!r}: {problem}")
    if infer is not None:
        for node in nodes:
            _check_types(graph, node, infer)


def _unique_names(graph: Graph, _: Collection[Node]) -> Iterator[str]:
    names = {node.name for node in graph.nodes}
    if len(names) != len(graph.nodes):
        seen: set[str] = set()
        for node in graph.nodes:
            if node.name in seen:
                yield f"two nodes are named {node.name!r}"
            seen.add(node.name)


def _single_assignment(graph: Graph, _: Collection[Node]) -> Iterator[str]:
    made = set(graph.inputs)
    if len(made) != len(graph.inputs):
        yield "an input is listed twice"
    for name in graph.constants:
        if name in made:
            yield f"{name!r} is both an input and a constant"
        made.add(name)
    for node in graph.nodes:
        for out in present(node.outputs):
            if out in made:
                yield f"{out!r} is made twice, the second time by node {node.name!r}"
            made.add(out)


def _defined_before_use(graph: Graph, _: Collection[Node]) -> Iterator[str]:
    made = {*graph.inputs, *graph.constants}
    for node in graph.nodes:
        for value in node.inputs:
            if value and value not in made:
                yield f"node {node.name!r} reads {value!r} before anything makes it"
        made.update(node.outputs)
    for value in graph.outputs:
        if value not in made:
            yield f"output {value!r} is made by no node"


def _typed(graph: Graph, nodes: Collection[Node]) -> Iterator[str]:
    for value in (*graph.inputs, *graph.constants):
        if value not in graph.types:
            yield f"{value!r} has no type"
    for node in nodes:
        if not any(node.outputs):
            yield f"node {node.name!r} has no output"
        for value in present(node.outputs):
            if value not in graph.types:
                yield f"{value!r} of node {node.name!r} has no type"
            elif graph.types[value].dtype not in DTYPES:
                yield f"{value!r} has unknown dtype {graph.types[value].dtype!r}"


def _constants_match(graph: Graph, _: Collection[Node]) -> Iterator[str]:
    for name, array in graph.constants.items():
        declared = graph.types[name]
        if tuple(array.shape) != declared.shape or dtype_name(array.dtype) != declared.dtype:
            yield f"constant {name!r} is {array.dtype}{list(array.shape)}, typed {declared}"


def _aliases_fit(graph: Graph, _: Collection[Node]) -> Iterator[str]:
    for out, source in graph.aliases.items():
        if out not in graph.outputs or source not in graph.inputs:
            yield f"alias {out!r} -> {source!r} is not from an output to an input"
        elif graph.types[out] != graph.types[source]:
            yield f"alias {out!r} is {graph.types[out]}, {source!r} is {graph.types[source]}"


RULES: dict[str, Rule] = {
    "node names are unique": _unique_names,
    "values are made once": _single_assignment,
    "values are made before they are read": _defined_before_use,
    "values are typed": _typed,
    "constants match their types": _constants_match,
    "aliases join outputs to inputs of the same type": _aliases_fit,
}


def _check_types(graph: Graph, node: Node, infer: Infer) -> None:
    where = f"graph {graph.name!r}, node {node.name!r} ({node.op})"
    types = [graph.types[value] if value else None for value in node.inputs]
    try:
        inferred = infer(node.op, types, node.attrs)
    except Ge2Error as error:
        raise GraphError(f"{where}: {error}") from error
    for value, found in zip(node.outputs, inferred, strict=False):
        if value and graph.types[value] != found:
            raise GraphError(f"{where}: {value!r} has the wrong type",
                             found=graph.types[value], wanted=found)
    if len(node.outputs) > len(inferred):
        raise GraphError(f"{where} names too many outputs", found=len(node.outputs),
                         wanted=len(inferred))
