"""ONNX operators as ge2 operators; one table for the importer, its tests and docs/onnx.md."""

from __future__ import annotations

from . import elementwise, movement, products, reduce, sequence
from .table import Rule

RULES: dict[str, Rule] = {}
for _module in (elementwise, movement, reduce, products, sequence):
    RULES.update(_module.RULES)

__all__ = ["RULES", "Rule"]
