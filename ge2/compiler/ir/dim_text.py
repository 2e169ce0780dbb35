"""Extents from text: "2*seq + 1", "((batch + 1) // 2)", as extents print themselves."""

from __future__ import annotations

import re
from typing import Any

from ...errors import GraphError
from .dim import Extent, symbol

_TOKEN = re.compile(r"\s*(?:(\d{1,18})|([A-Za-z_][A-Za-z0-9_]*)|(\*\*|//|[-+*%()]))")
_DEEPEST = 50


def parse_extent(text: str) -> Extent:
    """Return the extent that a text names.

    Raises:
        GraphError: the text is no extent.
    """
    parser = _Parser(text)
    result = parser.sum()
    if parser.token is not None:
        raise parser.fail()
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = self.depth = 0
        self.token: str | None = None
        self.next()

    def fail(self) -> GraphError:
        return GraphError("not an extent", found=repr(self.text[:80]),
                          wanted='numbers and dimension names with + - * ** // %, as "2*seq + 1"')

    def next(self) -> None:
        rest = self.text[self.place:]
        if not rest.strip():
            self.token = None
            return
        match = _TOKEN.match(rest)
        if match is None:
            raise self.fail()
        self.place += match.end()
        self.token = match[0].strip()

    def take(self, *tokens: str) -> str | None:
        found = self.token
        if found not in tokens:
            return None
        self.next()
        return found

    def sum(self) -> Extent:
        result = self.product()
        while sign := self.take("+", "-"):
            term = self.product()
            result = result + term if sign == "+" else result - term
        return result

    def product(self) -> Extent:
        result = self.power()
        while sign := self.take("*", "//", "%"):
            factor = self.power()
            if sign == "*":
                result = result * factor
            elif factor == 0:
                raise self.fail()
            else:
                result = _divided(result, factor, sign)
        return result

    def power(self) -> Extent:
        base = self.atom()
        if not self.take("**"):
            return base
        exponent = self.atom()
        if not isinstance(exponent, int) or not 0 <= exponent <= 16:
            raise self.fail()
        result: Extent = 1
        for _ in range(exponent):
            result = result * base
        return result

    def atom(self) -> Extent:
        if self.take("-"):
            return -1 * self.atom()
        if self.take("("):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise self.fail()
            inner = self.sum()
            self.depth -= 1
            if not self.take(")"):
                raise self.fail()
            return inner
        token = self.token
        if token is None or not (token[0].isalnum() or token[0] == "_"):
            raise self.fail()
        self.next()
        return int(token) if token.isdecimal() else symbol(token)


def _divided(top: Any, bottom: Any, sign: str) -> Extent:
    result: Extent = top // bottom if sign == "//" else top % bottom
    return result
