"""`ge2 run --bisect`, `--memory` and `-v`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Ge2Error
from .output import Report, bad, good, human_bytes, human_time

if TYPE_CHECKING:
    from ..compiler.ir.nodes import Graph, Node
    from ..model import Model


def bisect_model(model: Model, feeds: Mapping[str, Any], atol: float | None, rtol: float | None,
                 report: Report) -> bool:
    """Find the first node whose result departs from float64 on the inputs that it was given.

    Every node of the optimised graph is judged by itself, so that a fault is told apart from the
    error that it inherits.

    Returns:
        True when no node departs.
    """
    from ..compiler.concrete import concretize
    from ..model.compare import compare, default_tolerance

    graph = _all_values(concretize(model.optimized.graph, _sizes(model, feeds)))
    full = {**feeds, **{state: model.state[state] for state in model.graph.aliases.values()}}
    values = {**_run(model, graph, full), **full, **graph.constants}
    judged = 0
    for node in graph.nodes:
        for name, wanted in _node_reference(graph, node, values).items():
            tolerance = default_tolerance(graph.types[name].dtype)
            result = compare(name, np.asarray(values[name]), wanted,
                             atol=tolerance if atol is None else atol,
                             rtol=tolerance if rtol is None else rtol)
            judged += 1
            if not result.ok:
                report.line(f"  {bad('bisect')}    node {node.name!r} ({node.op}) departs first, "
                            f"after {judged - 1} good values")
                report.line("\n".join(f"    {line}" for line in result.report().splitlines()))
                report.data["bisect"] = {"ok": False, "node": node.name, "op": node.op,
                                         **result.as_dict()}
                return False
    report.line(f"  {good('bisect')}    no node departs ({judged} values compared)")
    report.data["bisect"] = {"ok": True, "values": judged}
    return True


def tell_plan(model: Model, symbols: Mapping[str, int], report: Report) -> None:
    """Print what -v adds: the graph after the passes, and its launches on a device."""
    graph = model.optimized.graph
    report.detail(f"  graph: {len(model.graph.nodes)} nodes, {len(graph.nodes)} after the passes")
    if model.backend == "cpu":
        return
    plan = model.explain(symbols=symbols).plan
    if plan is not None:
        report.detail(f"  plan: {len(plan.records)} launches for {plan.device.arch}, arena "
                      f"{human_bytes(plan.arena_bytes)}"
                      + (f", {human_bytes(plan.prepared_bytes)} made of weights once"
                         if plan.preparations else ""))
        for step in plan.steps:
            report.detail(f"    {step.node.name}: "
                          f"{step.choice.variant.id if step.choice else 'nothing to do'}")


def report_memory(model: Model, feeds: Mapping[str, Any], first_seconds: float, report: Report
                  ) -> None:
    """Print weights, what is made of them once, inputs, outputs, arena and their sum, and first
    against steady time."""
    symbols = _sizes(model, feeds)
    plan = model.explain(symbols=symbols).plan
    graph = model.optimized.graph
    rows = {"weights": sum(a.nbytes for a in graph.constants.values()),
            "inputs": sum(np.asarray(a).nbytes if model.backend == "cpu" else a.nbytes
                          for a in feeds.values())}
    if plan is not None:
        rows["outputs"] = sum(plan.roots[r].nbytes for r in set(plan.outputs.values()))
        rows["prepared"] = plan.prepared_bytes
        rows["arena"] = plan.arena_bytes
        rows["semaphores"] = plan.semaphore_bytes
    peak = sum(rows.values())
    start = time.perf_counter()
    model.run(feeds)
    steady = time.perf_counter() - start
    if model.backend == "cpu" and plan is not None:
        report.line(f"  memory as on a GPU ({plan.device.arch}):")
    for name, count in rows.items():
        report.line(f"  {name:10} {human_bytes(count)}")
    live = "" if plan is None else f" (arena holds {human_bytes(plan.live_bound)} live at most)"
    report.line(f"  {'peak':10} {human_bytes(peak)}{live}")
    report.line(f"  first run {human_time(first_seconds)}, steady {human_time(steady)}")
    report.data["memory"] = {**rows, "peak": peak, "first_run_seconds": first_seconds,
                             "steady_seconds": steady,
                             "live_bound": plan.live_bound if plan else None}


def _sizes(model: Model, feeds: Mapping[str, Any]) -> dict[str, int]:
    from ..model.data import check_feeds

    return check_feeds(model.inputs, feeds)


def _all_values(graph: Graph) -> Graph:
    """Return the graph with every computed value as an output and no shared buffers."""
    copy = graph.copy()
    copy.outputs = [value for node in graph.nodes for value in node.outputs if value]
    copy.aliases = {}
    return copy


def _run(model: Model, graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    from ..model.model import to_numpy

    host = {name: to_numpy(array) for name, array in feeds.items()}
    if model.backend == "cpu":
        from ..runtime.cpu import run_graph

        return dict(run_graph(graph, host))
    from ..runtime.executor import Executable

    return Executable(graph, backend=model.backend, device=model.device).run(host)


def _node_reference(graph: Graph, node: Node, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's float64 outputs on given inputs."""
    from ..compiler.ir.nodes import Graph, present
    from ..contract import dtype_name
    from ..runtime.cpu import run_graph

    inputs = list(dict.fromkeys(present(node.inputs)))
    arrays = {name: np.asarray(values[name]) for name in inputs}
    types = {name: type(graph.types[name])(dtype_name(a.dtype), a.shape)
             for name, a in arrays.items()}
    outputs = [name for name in node.outputs if name]
    single = Graph(node.name, inputs, outputs,
                   {**types, **{name: graph.types[name] for name in outputs}}, [node])
    try:
        return dict(run_graph(single, arrays, dtype="f64"))
    except Ge2Error as error:
        error.add_note(f"in node {node.name!r}")
        raise
