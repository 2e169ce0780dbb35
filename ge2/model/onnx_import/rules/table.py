"""Tables of rules: ONNX operator -> what makes it with ge2 operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..call import Call

Rule = Callable[[Call], "Any"]


class RuleTable(dict[str, Rule]):
    """Rules by operator name ("Add"; "com.microsoft.Gelu" for another domain).

    A rule returns one result or a sequence: graph values by name ("" for one that it cannot make),
    Known values or arrays.
    """

    def rule(self, *names: str) -> Callable[[Rule], Rule]:
        """Register a function for operators."""
        def register(function: Rule) -> Rule:
            for name in names:
                self[name] = function
            return function

        return register

    def direct(self, name: str, op: str, *attrs: str, ignored: Sequence[str] = (),
               fixed: Mapping[str, Any] | None = None) -> None:
        """Register an operator whose inputs and attributes are those of a ge2 operator.

        Args:
            name: the ONNX operator. op: the ge2 operator.
            attrs: attributes taken over; another one makes the node unsupported.
            ignored: attributes without a meaning for the result.
            fixed: attributes of the ge2 operator that the ONNX operator implies.
        """
        def translate(call: Call) -> str:
            call.only(*attrs, *ignored)
            return call.make(op, *call.values(), **call.take(*attrs), **(fixed or {}))

        self[name] = translate
