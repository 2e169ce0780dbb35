"""Runs passes in order, verifies what each changed, and keeps a trace of what happened."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...errors import Ge2Error, PassError
from ...log import topic
from .. import opdefs
from ..ir.nodes import Graph
from ..ir.verify import verify

_SHOWN = 8  # nodes of one pass that GE2_LOG=fuse names


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass returns.

    Attributes:
        graph: a new graph where modified, else the one that was given.
        modified: whether anything changed.
    """

    graph: Graph
    modified: bool


class Pass(Protocol):
    """A rewrite of whole graphs. It never changes the graph that it is given."""

    @property
    def name(self) -> str:
        """Short name, as shown in traces and errors."""
        ...

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        ...


@dataclass(frozen=True, slots=True)
class FunctionPass:
    """A pass made of a function."""

    name: str
    function: Callable[[Graph], PassResult]

    def __call__(self, graph: Graph) -> PassResult:
        """Return the rewritten graph."""
        return self.function(graph)


@dataclass(frozen=True, slots=True)
class PassTrace:
    """What one pass did, for explain.

    Attributes:
        name: the pass.
        modified: whether it changed the graph.
        nodes_before, nodes_after: number of nodes.
        seconds: time of the pass itself, without the verifier.
    """

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Optimized:
    """A graph after its passes, and what each of them did."""

    graph: Graph
    trace: tuple[PassTrace, ...]


def run_passes(graph: Graph, passes: Sequence[Pass], check: bool = True) -> Optimized:
    """Run passes in order.

    Args:
        graph: left as it is.
        passes: in order.
        check: verify the nodes that each pass made or changed.

    Raises:
        PassError: a pass failed, broke the graph or misreported; names it and those before it.
    """
    trace: list[PassTrace] = []
    for step in passes:
        start = time.perf_counter()
        try:
            result = step(graph)
        except Ge2Error as error:
            raise _failure(step, trace, f"failed: {error}") from error
        seconds = time.perf_counter() - start
        if check:
            _check(step, trace, graph, result)
        trace.append(PassTrace(step.name, result.modified, len(graph.nodes),
                               len(result.graph.nodes), seconds))
        if result.modified:
            _log_changes(step, graph, result.graph)
        graph = result.graph
    return Optimized(graph, tuple(trace))


def _log_changes(step: Pass, before: Graph, after: Graph) -> None:
    logger = topic("fuse")
    if not logger.isEnabledFor(logging.INFO):
        return
    known = {id(node) for node in before.nodes}
    made = [f"{n.name} ({n.op})" for n in after.nodes if id(n) not in known]
    shown = ", ".join(made[:_SHOWN]) + (f" and {len(made) - _SHOWN} more" if len(made) > _SHOWN
                                        else "")
    logger.info("%s: %d -> %d nodes; made or changed: %s", step.name, len(before.nodes),
                len(after.nodes), shown or "none")


def _check(step: Pass, trace: Sequence[PassTrace], before: Graph, result: PassResult) -> None:
    known = {id(node) for node in before.nodes}
    changed = [node for node in result.graph.nodes if id(node) not in known]
    if not result.modified:
        if changed or len(result.graph.nodes) != len(before.nodes):
            raise _failure(step, trace, "changed the graph but reports that it did not")
        return
    if result.graph is before:
        raise _failure(step, trace, "changed the graph in place")
    if result.graph.inputs != before.inputs or result.graph.outputs != before.outputs:
        raise _failure(step, trace, "changed the graph's inputs or outputs")
    try:
        verify(result.graph, opdefs.infer, changed)
    except Ge2Error as error:
        raise _failure(step, trace, f"broke the graph: {error}") from error


def _failure(step: Pass, trace: Sequence[PassTrace], what: str) -> PassError:
    before = ", ".join(entry.name for entry in trace) or "no other pass"
    return PassError(f"pass {step.name!r} {what} (ran before it: {before})")
