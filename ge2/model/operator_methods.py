"""One method of a graph builder per operator, made from the operator's definition.

operator_stubs.pyi has the same methods as text, for editors and type checkers; docs/generate.py
writes it.
"""

from __future__ import annotations

import inspect
import keyword
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..compiler import opdefs
from ..compiler.ir.dim import Extent
from ..contract import REQUIRED, AttrSpec
from ..errors import near_matches
from .loader import EXTENT_ATTRS
from .value import Operand, Value

_ANNOTATIONS: dict[str, Any] = {
    "int": Extent, "float": float, "bool": bool, "str": str, "dtype": str,
    "ints": Sequence[Extent], "floats": Sequence[float], "expr": object,
}
_TEXTS = {
    "int": "Extent", "float": "float", "bool": "bool", "str": "str", "dtype": "str",
    "ints": "Sequence[Extent]", "floats": "Sequence[float]", "expr": "object",
}


class OperatorMethods:
    """Looks operators up by the name of a method."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        op = name.removesuffix("_").upper()
        if (name.startswith("_") or op not in opdefs.OPS
                or name not in (op.lower(), method_name(op))):
            known = [method_name(key) for key in opdefs.OPS]
            hint = near_matches(name, known)
            raise AttributeError(f"no operator {name!r}{'; ' + hint if hint else ''}")
        return _operator_method(self, op)

    def __dir__(self) -> Iterator[str]:
        yield from super().__dir__()
        yield from map(method_name, opdefs.OPS)


def method_name(op: str) -> str:
    """Return the name of an operator's method: in lower case, with a _ where Python needs one."""
    name = op.lower()
    return f"{name}_" if keyword.iskeyword(name) else name


def _operator_method(builder: Any, op: str) -> Callable[..., Any]:
    """Return the method of one operator, with its signature and docstring."""
    definition = opdefs.OPS[op]

    def method(*inputs: Operand | None, name: str | None = None, **attrs: Any) -> Any:
        bound = list(inputs)
        for formal in definition.inputs[len(bound):]:
            key = formal.rstrip("?*")
            if key in attrs:
                bound.append(attrs.pop(key))
            elif formal.endswith("?"):
                bound.append(None)
        values = builder.apply(op, *bound, name=name, **attrs)
        # Where the attributes decide on further outputs, one alone needs no tuple.
        return values if len(values) > 1 or not definition.n_outputs else values[0]

    method.__name__ = method_name(op)
    method.__qualname__ = f"GraphBuilder.{method.__name__}"
    method.__doc__ = operator_doc(op)
    method.__signature__ = operator_signature(op)  # type: ignore[attr-defined]
    return method


def operator_signature(op: str) -> inspect.Signature:
    """Return the Python signature of an operator's method."""
    definition = opdefs.OPS[op]
    kind = inspect.Parameter
    parameters = []
    for formal in definition.inputs:
        name = formal.rstrip("?*")
        if formal.endswith("*"):
            parameters.append(kind(name, kind.VAR_POSITIONAL, annotation=Operand))
        else:
            default = None if formal.endswith("?") else kind.empty
            parameters.append(kind(name, kind.POSITIONAL_OR_KEYWORD, default=default,
                                   annotation=Operand))
    for spec in definition.attrs:
        default = kind.empty if spec.default is REQUIRED else spec.default
        parameters.append(kind(spec.name, kind.KEYWORD_ONLY, default=default,
                               annotation=_ANNOTATIONS[spec.kind]))
    parameters.append(kind("name", kind.KEYWORD_ONLY, default=None, annotation=str | None))
    returns = Value if definition.n_outputs == 1 else tuple[Value, ...]
    return inspect.Signature(parameters, return_annotation=returns)


def operator_doc(op: str) -> str:
    """Return the docstring of an operator's method."""
    definition = opdefs.OPS[op]
    lines = [definition.doc, "", f"Operator {op}({', '.join(definition.inputs)})."]
    if definition.attrs:
        lines += ["", "Args:"]
        lines += [f"    {spec.name}: {attr_text(spec)}" for spec in definition.attrs]
    return "\n".join(lines)


def attr_text(spec: AttrSpec) -> str:
    """Return one line about an attribute: kind, default, choices, meaning."""
    default = "required" if spec.default is REQUIRED else f"default {spec.default!r}"
    choices = f", one of {', '.join(spec.choices)}" if spec.choices else ""
    return f"{spec.kind}, {default}{choices}. {spec.doc}".rstrip(". ") + "."


def render_stubs() -> str:
    """Return operator_stubs.pyi: every operator's method with its types and docstring."""
    head = ('"""Types of the operator methods of GraphBuilder; written by docs/generate.py."""',
            "", "from collections.abc import Sequence", "from typing import Any, Literal", "",
            "from ..compiler.ir.dim import Extent", "from .value import Operand, Value", "",
            "class OperatorMethods:")
    return "\n".join([*head, *(line for op in opdefs.OPS for line in _stub(op))]) + "\n"


def _stub(op: str) -> list[str]:
    definition = opdefs.OPS[op]
    parameters = ["self"]
    for formal in definition.inputs:
        name = formal.rstrip("?*")
        parameters.append({"?": f"{name}: Operand | None = None", "*": f"*{name}: Operand"}.get(
            formal[-1], f"{name}: Operand"))
    if not definition.variadic:
        parameters.append("*")
    parameters += [_stub_attribute(op, spec) for spec in definition.attrs]
    parameters.append("name: str | None = None")
    text = [line for part in operator_doc(op).split("\n")
            for line in textwrap.wrap(part, 84, subsequent_indent=" " * 8) or [""]]
    body = textwrap.indent("\n".join([f'"""{text[0]}', *text[1:], '"""']), " " * 8)
    head, tail = f"    def {method_name(op)}(", f") -> {_stub_result(definition)}:"
    short = f"{head}{', '.join(parameters)}{tail}"
    long = [head, *(f"        {p}," for p in parameters), f"    {tail}"]
    return [*([short] if len(short) <= 100 else long), body, ""]


def _stub_attribute(op: str, spec: AttrSpec) -> str:
    kind = f"Literal[{', '.join(map(repr, spec.choices))}]" if spec.choices else _TEXTS[spec.kind]
    if len(kind) > 60:
        kind = "str"
    if spec.kind == "float" and spec.name in EXTENT_ATTRS.get(op, ()):
        kind = "float | Extent"
    if spec.default is REQUIRED:
        return f"{spec.name}: {kind}"
    if spec.default is None:
        return f"{spec.name}: {kind} | None = None"
    plain = isinstance(spec.default, int | str | tuple) or math.isfinite(spec.default)
    return f"{spec.name}: {kind} = {spec.default!r}" if plain else f"{spec.name}: {kind} = ..."


def _stub_result(definition: opdefs.OpDef) -> str:
    """Return the type of a method's result; Any where attributes decide whether it is a tuple."""
    if definition.n_outputs == 1:
        return "Value"
    return "Any" if definition.name == "NORM_GEMM" else "tuple[Value, ...]"
