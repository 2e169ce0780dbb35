"""From an operator's structure to one kernel: features, candidates, decisions, source."""

from .design import Alternative, Decision, Design, design
from .structure import Answer, structure

__all__ = ["Alternative", "Answer", "Decision", "Design", "design", "structure"]
