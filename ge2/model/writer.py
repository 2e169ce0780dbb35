"""Writing a graph as model.json and a safetensors file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..compiler.ir.dim import Dim, symbols
from ..compiler.ir.nodes import Graph, TensorType
from ..errors import GraphError
from .schema import FORMAT_VERSION
from .weights import save_weights


def write_model(graph: Graph, path: Path, *, weights: str | None = None,
                sample: Mapping[str, Any] | None = None) -> Path:
    """Write a graph to a .json file, or to model.json in a folder; return the file's path.

    Raises:
        GraphError: the graph holds something that a model file cannot.
    """
    target = path if path.suffix == ".json" else path / "model.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    states = set(graph.aliases.values())
    hidden = set(graph.aliases)
    document: dict[str, Any] = {
        "ge2": FORMAT_VERSION,
        "name": graph.name,
        "inputs": [{"name": n, **_type(n, graph.types[n])} for n in graph.inputs
                   if n not in states],
        "outputs": [n for n in graph.outputs if n not in hidden] or list(graph.outputs),
    }
    if graph.constants:
        document["weights"] = weights or f"{target.stem}.safetensors"
        save_weights(target.parent / document["weights"], graph.constants)
    document["nodes"] = [_node(node.op, node.name, node.inputs, node.outputs, node.attrs)
                         for node in graph.nodes]
    if graph.aliases:
        document["state"] = {state: {**_type(state, graph.types[state]), "next": value}
                             for value, state in graph.aliases.items()}
    if sample is not None:
        document["sample"] = dict(sample)
    target.write_text(_layout(document), encoding="utf-8")
    return target


def _type(name: str, kind: TensorType) -> dict[str, Any]:
    for extent in kind.shape:
        if not isinstance(extent, int) and symbols(extent) != {str(extent)}:
            raise GraphError(f"input {name!r}: a file holds named dimensions, not {extent}")
    return {"dtype": kind.dtype, "shape": [e if isinstance(e, int) else str(e)
                                           for e in kind.shape]}


def _node(op: str, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
          attrs: Mapping[str, Any]) -> dict[str, Any]:
    node: dict[str, Any] = {"op": op, "name": name, "inputs": list(inputs),
                            "outputs": list(outputs)}
    if attrs:
        node["attrs"] = {key: _attr(op, name, value) for key, value in attrs.items()}
    return node


def _attr(op: str, name: str, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_attr(op, name, item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "inf", -math.inf: "-inf"}.get(value, "nan")
    if isinstance(value, Dim):
        return str(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise GraphError(f"{op} {name!r}: an attribute of type {type(value).__name__} cannot be saved")


def _layout(document: dict[str, Any]) -> str:
    """Return JSON with one line per input and node, which diffs well."""
    lines = []
    for key, value in document.items():
        if key in ("inputs", "nodes") and value:
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            lines.append(f"  {json.dumps(key)}: [\n{rows}\n  ]")
        elif isinstance(value, dict) and value:
            rows = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in value.items())
            lines.append(f"  {json.dumps(key)}: {{\n{rows}\n  }}")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
