"""Graphs as text: what tests are written in and what dumps show.

    graph mlp
    input x: f32[B, 64]
    const w: f32[64, 10]
    const half: f32[] = 0.5
    h = MATMUL(x, w)
    y: f32[B, 10] = GEMM_BIAS_ACT(h, v, None, c, act="relu") @ name
    output y

A name that is not made of letters, digits, "_" and "." is written as a string. A constant without
values, or with "...", gets reproducible random ones. Types of node outputs may be left out.
"""

from __future__ import annotations

import ast
import json
import operator
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract import DTYPES, numpy_dtype
from ...errors import Ge2Error, GraphError
from .dim import Dim, Extent, symbol
from .expr import ExprBundle, parse
from .nodes import Graph, Node, TensorType
from .verify import Infer

_PLAIN = re.compile(r"[A-Za-z_][\w.]*")
_SHOWN_ELEMENTS = 16


def format_graph(graph: Graph) -> str:
    """Return the text form; arrays of more than 16 elements are shown as "..."."""
    lines = [f"graph {_name(graph.name)}"]
    lines += [f"input {_name(v)}: {graph.types[v]}" for v in graph.inputs]
    for name, array in graph.constants.items():
        value = " = " + repr(array.tolist()) if array.size <= _SHOWN_ELEMENTS else " = ..."
        lines.append(f"const {_name(name)}: {graph.types[name]}{value}")
    lines += [_format_node(graph, node) for node in graph.nodes]
    lines += [f"alias {_name(out)} = {_name(source)}" for out, source in graph.aliases.items()]
    lines.append("output " + ", ".join(map(_name, graph.outputs)))
    return "\n".join(lines) + "\n"


def _format_node(graph: Graph, node: Node) -> str:
    if len(node.outputs) == 1:
        left = f"{_name(node.outputs[0])}: {graph.types[node.outputs[0]]}"
    else:
        left = ", ".join(_name(v) if v else "_" for v in node.outputs)
    args = [_name(v) if v else "None" for v in node.inputs]
    args += [f"{key}={_attr(value)}" for key, value in node.attrs.items()]
    default = node.outputs[0] if node.outputs else ""
    suffix = "" if node.name == default else f" @ {_name(node.name)}"
    return f"{left} = {node.op}({', '.join(args)}){suffix}"


def _name(value: str) -> str:
    return value if _PLAIN.fullmatch(value) and value != "None" else json.dumps(value)


def _attr(value: Any) -> str:
    if isinstance(value, ExprBundle):
        return f"expr({json.dumps(value.text)})"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_attr, value)) + "]"
    return str(value) if isinstance(value, Dim) else repr(value)


def parse_graph(text: str, constants: Mapping[str, npt.NDArray[Any]] | None = None,
                infer: Infer | None = None) -> Graph:
    """Return the graph that a text form describes.

    Args:
        text: the text form.
        constants: arrays for constants without values.
        infer: shape inference, for nodes without types; several outputs always need it.

    Raises:
        GraphError: malformed text; names the line.
    """
    reader = _Reader(Graph(), dict(constants or {}), infer)
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split(" #")[0].strip()
        if line and not line.startswith("#"):
            try:
                reader.line(line)
            except (Ge2Error, SyntaxError, ValueError, KeyError) as error:
                raise GraphError(f"graph text line {number}, {line!r}: {error}") from error
    return reader.graph


class _Reader:
    def __init__(self, graph: Graph, given: dict[str, npt.NDArray[Any]],
                 infer: Infer | None) -> None:
        self.graph, self.given, self.infer = graph, given, infer

    def line(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        graph = self.graph
        if word == "graph":
            graph.name = _read_names(rest)[0]
        elif word == "input":
            name, declared = _split_type(rest)
            graph.inputs.append(name)
            graph.types[name] = _read_type(declared)
        elif word == "const":
            self.constant(rest)
        elif word == "output":
            graph.outputs.extend(_read_names(rest))
        elif word == "alias":
            out, _, source = rest.partition("=")
            graph.aliases[_read_names(out)[0]] = _read_names(source)[0]
        else:
            self.node(line)

    def constant(self, rest: str) -> None:
        left, _, value = rest.partition(" = ")
        name, declared = _split_type(left)
        kind = _read_type(declared)
        dtype = numpy_dtype(kind.dtype)
        shape = tuple(int(n) for n in kind.shape if isinstance(n, int))
        if name in self.given:
            array = np.asarray(self.given[name])
        elif value.strip() in ("", "..."):
            rng = np.random.default_rng(zlib.crc32(name.encode()))
            array = rng.normal(0, 1 if DTYPES[kind.dtype].kind == "float" else 3, shape)
        else:
            array = np.asarray(_value(ast.parse(value.strip(), mode="eval").body))
        self.graph.constants[name] = array.astype(dtype).reshape(shape)
        self.graph.types[name] = kind

    def node(self, line: str) -> None:
        left, _, right = line.partition(" = ")
        call, _, name = right.partition(" @ ")
        declared = ""
        if ": " in left:
            first, declared = _split_type(left)
            names = [first]
        else:
            names = ["" if n == "_" else n for n in _read_names(left)]
        tree = ast.parse(call.strip(), mode="eval").body
        if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
            raise GraphError("not a node", wanted="y = OP(inputs, attribute=value)")
        inputs = tuple(_operand(a) for a in tree.args)
        attrs = {str(k.arg): _value(k.value) for k in tree.keywords}
        types = self.output_types(tree.func.id, inputs, attrs, declared, names)
        self.graph.types.update({n: t for n, t in zip(names, types, strict=False) if n})
        own = _read_names(name)[0] if name else next(n for n in names if n)
        self.graph.nodes.append(Node(tree.func.id, own, inputs, tuple(names), attrs))

    def output_types(self, op: str, inputs: Iterable[str], attrs: Mapping[str, Any],
                     declared: str, names: list[str]) -> list[TensorType]:
        if declared:
            return [_read_type(declared)]
        if self.infer is None:
            raise GraphError(f"the type of {names[0]!r} is not written and cannot be inferred")
        return self.infer(op, [self.graph.types[v] if v else None for v in inputs], attrs)


def _read_names(text: str) -> list[str]:
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^\s,]+', text)
    return [json.loads(p) if p.startswith('"') else p for p in parts]


def _split_type(text: str) -> tuple[str, str]:
    name, _, declared = text.rpartition(": ")
    return _read_names(name)[0], declared


def _read_type(text: str) -> TensorType:
    match = re.fullmatch(r"(\w+)\[(.*)\]", text.strip())
    if match is None or match[1] not in DTYPES:
        raise GraphError("not a type", found=repr(text), wanted="f32[B, 64]")
    extents = ast.parse(f"[{match[2]}]", mode="eval").body
    return TensorType(match[1], tuple(_value(extents)))


def _operand(tree: ast.expr) -> str:
    if isinstance(tree, ast.Constant):
        return "" if tree.value is None else str(tree.value)
    return ast.unparse(tree)  # a name, or a dotted one


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}
_WORDS = {"inf": float("inf"), "nan": float("nan"), "true": True, "false": False}


def _value(tree: ast.expr) -> Any:
    """Return an attribute value: numbers, strings, lists, expr("..."), extents over symbols."""
    if isinstance(tree, ast.Constant):
        return tree.value
    if isinstance(tree, ast.List | ast.Tuple):
        return [_value(item) for item in tree.elts]
    if isinstance(tree, ast.Name):
        return _WORDS[tree.id] if tree.id in _WORDS else symbol(tree.id)
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        return -_value(tree.operand)
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "expr":
        return parse(_value(tree.args[0]))
    if isinstance(tree, ast.BinOp):
        return _arithmetic(type(tree.op), _value(tree.left), _value(tree.right))
    raise GraphError("not a value", found=ast.unparse(tree))


def _arithmetic(op: type[ast.operator], left: Any, right: Any) -> Extent:
    if op is ast.Pow:
        return _arithmetic(ast.Mult, left, _arithmetic(op, left, right - 1)) if right else 1
    if op not in _BINARY:
        raise GraphError("not an extent", found=op.__name__)
    result: Extent = _BINARY[op](left, right)
    return result


def constants_of(graph: Graph) -> dict[str, npt.NDArray[Any]]:
    """Return the constants that format_graph shortens, for parse_graph to take back."""
    return {n: a for n, a in graph.constants.items() if a.size > _SHOWN_ELEMENTS}
