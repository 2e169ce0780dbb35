"""Models: files on disk, graphs written in Python, and calling them."""

from __future__ import annotations

from .builder import GraphBuilder, Value
from .model import Model, load

__all__ = ["GraphBuilder", "Model", "Value", "load"]
