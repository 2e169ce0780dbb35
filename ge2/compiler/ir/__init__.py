"""Intermediate representation: types, graphs, scalar expressions, properties, verifier, text."""

from .dim import Dim, Extent, evaluate, symbol
from .nodes import Graph, Node, present
from .types import TensorType

__all__ = ["Dim", "Extent", "Graph", "Node", "TensorType", "evaluate", "present", "symbol"]
