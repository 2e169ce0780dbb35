"""What the compiler does with a model, and why: passes, launches, chosen and rejected kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..compiler.class_plans import ClassPlans
from ..compiler.concrete import concretize
from ..compiler.finish import finish_graph
from ..compiler.ir.nodes import Graph
from ..compiler.ir.text import format_graph
from ..compiler.kernels import selector
from ..compiler.kernels.selector import Basis, CandidateReport, Chooser
from ..compiler.memory_budget import BudgetedPlan, plan_within
from ..compiler.passes.decompose import DecomposePass
from ..compiler.passes.pass_manager import run_passes
from ..compiler.passes.pipeline import PASSES
from ..compiler.plan import Plan, make_plan
from ..compiler.sized_plan import plan_at
from ..errors import Ge2Error
from ..evidence.device import DeviceProfile, profile_for
from ..evidence.keys import constant_mark
from ..problem import Problem, TensorSpec
from .data import free_symbols

if TYPE_CHECKING:
    from .model import Model

DEFAULT_ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class PassStep:
    """One pass and the graph after it."""

    name: str
    modified: bool
    nodes_before: int
    nodes_after: int
    seconds: float
    graph: Graph


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that decides how a model runs.

    Attributes:
        model: the model's name.
        device: what it was planned for.
        symbols: values of the named dimensions.
        passes: in order, with the graph after each.
        plan: the plan, or None where a node has no kernel.
        problem: why there is no plan; "" when there is one.
        budgeted: what a memory budget made of the plan; None without one.
        launches_before: kernel launches without the passes; None where those nodes have no kernels.
        tuning: "on", "off" or "pinned". evidence: digest of what choices could come from.
    """

    model: str
    device: DeviceProfile
    symbols: Mapping[str, int]
    passes: tuple[PassStep, ...]
    plan: Plan | None
    problem: str
    launches_before: int | None
    tuning: str = "on"
    evidence: str = ""
    budgeted: BudgetedPlan | None = None

    @property
    def launches(self) -> int | None:
        """Kernel launches of one run; None without a plan."""
        return None if self.plan is None else len(self.plan.records)

    def text(self, *, graphs: bool = False, candidates: bool = False) -> str:
        """Return the explanation for a person.

        Args:
            graphs: show the graph after each pass that changed it.
            candidates: show every kernel variant that was considered, with score or refusal.
        """
        sizes = ", ".join(f"{k}={v}" for k, v in self.symbols.items())
        lines = [f"{self.model} on {self.device.name} ({self.device.arch})"
                 + (f" with {sizes}" if sizes else ""), "", "passes"]
        width = max((len(step.name) for step in self.passes), default=0)
        for step in self.passes:
            change = (f"{step.nodes_before} -> {step.nodes_after} nodes" if step.modified
                      else "no change")
            lines.append(f"  {step.name:{width}}  {change:22}  {1e3 * step.seconds:.2f} ms")
            if graphs and step.modified:
                lines += [f"    {line}" for line in format_graph(step.graph).splitlines()]
        lines += ["", *self._plan_lines(candidates)]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        plan = self.plan
        return {
            "model": self.model, "device": self.device.name, "arch": self.device.arch,
            "symbols": dict(self.symbols), "problem": self.problem,
            "passes": [{"name": s.name, "modified": s.modified, "nodes_before": s.nodes_before,
                        "nodes_after": s.nodes_after, "seconds": s.seconds,
                        "graph": format_graph(s.graph)} for s in self.passes],
            "launches_before": self.launches_before, "launches": self.launches,
            "tuning": self.tuning, "evidence": self.evidence,
            "arena_bytes": plan.arena_bytes if plan else None,
            "live_bound": plan.live_bound if plan else None,
            "prepared_bytes": plan.prepared_bytes if plan else None,
            "preparations": len(plan.preparations) if plan else None,
            "memory_budget": _budget_dict(self.budgeted),
            "steps": [self._row_dict(row) for row in plan.explain()] if plan else [],
        }

    def _plan_lines(self, candidates: bool) -> list[str]:
        before = "?" if self.launches_before is None else self.launches_before
        if self.plan is None:
            return [f"no plan: {self.problem}"]
        lines = [f"launches: {before} without passes, {self.launches} with",
                 f"memory:   arena {self.plan.arena_bytes} bytes (at least "
                 f"{self.plan.live_bound} are live at once)",
                 *_prepared_lines(self.plan),
                 f"tuning:   {self.tuning}" + (f", evidence {self.evidence}" if self.evidence
                                               else ", no evidence"),
                 *_budget_lines(self.budgeted), "",
                 "kernels (' marks a tensor that is strided or broadcast)"]
        for row in self.plan.explain():
            kernel = row["kernel"] or "nothing to do"
            score = "" if row["score"] is None else f"  score {row['score']:g}"
            lines.append(f"  {row['node']} ({row['op']}): {kernel}{score}")
            lines.append(f"      {describe(row['problem'])}")
            lines += _basis_lines(row["basis"])
            ranked = list(row["candidates"])
            if candidates:
                lines += [f"      {line}" for line in _candidates(ranked)]
            elif len(ranked) > 1:
                refused = sum(1 for report in ranked if report.reasons)
                lines.append(f"      {len(ranked)} candidates, {refused} refused")
        return lines

    @staticmethod
    def _row_dict(row: Mapping[str, Any]) -> dict[str, Any]:
        basis = row["basis"]
        return {**row, "problem": describe(row["problem"]),
                "basis": asdict(basis) if basis else None, "candidates": [
            {"variant": r.variant_id, "score": r.score, "reasons": r.reasons, "parts": r.parts}
            for r in row["candidates"]]}


def explain(model: Model, *, arch: str | None, symbols: dict[str, int]) -> Explanation:
    """Return the explanation of a model; see Model.explain."""
    values = {name: symbols.get(name, 1) for name in model.symbols}
    device = _profile(model, arch)
    graph = model.graph
    steps = []
    for step in PASSES:
        result = run_passes(graph, [step])
        trace, = result.trace
        steps.append(PassStep(trace.name, trace.modified, trace.nodes_before, trace.nodes_after,
                              trace.seconds, result.graph))
        graph = result.graph
    plan, problem = _plan(graph, values, device, model.chooser)
    if plan is not None and model.memory_budget is None and model.chooser.mode != "pinned":
        plan = (_shared_plan(graph, values, device, plan) if _by_rules(plan) else None) or plan
    budgeted = None
    if plan is not None and model.memory_budget is not None:
        budgeted = plan_within(plan.graph, device, model.memory_budget, choose=model.chooser)
        plan = budgeted.plan
    before, _ = _plan(model.graph, values, device, selector.select, finish=_decomposed)
    return Explanation(model.graph.name, device, values, tuple(steps), plan, problem,
                       None if before is None else len(before.records), model.chooser.mode,
                       model.chooser.digest, budgeted)


def describe(problem: Problem) -> str:
    """Return a problem's operator, dtypes and shapes in one line; "'" marks odd strides, "const"
    what is the same in every call."""

    def text(spec: TensorSpec | None) -> str:
        if spec is None:
            return "-"
        return f"{spec.dtype}{list(spec.shape)}{'' if spec.is_dense else chr(39)}"

    inputs = (constant_mark(problem, i) + text(spec) for i, spec in enumerate(problem.inputs))
    return f"{problem.op_type}: {', '.join(inputs)} -> {', '.join(map(text, problem.outputs))}"


def _prepared_lines(plan: Plan) -> list[str]:
    """Return what is made of weights when they are uploaded."""
    if not plan.preparations:
        return []
    launches = len(plan.preparations)
    return [f"prepared: {plan.prepared_bytes} bytes beside the weights, made of them once by "
            f"{launches} launch{'es' if launches > 1 else ''}"]


def _budget_lines(budgeted: BudgetedPlan | None) -> list[str]:
    """Return what recomputation saves and costs."""
    if budgeted is None:
        return []
    verdict = "met" if budgeted.fits else "NOT met"
    lines = [f"budget:   {budgeted.budget} bytes, {verdict}: {budgeted.saved_bytes} bytes saved of "
             f"{budgeted.bytes_before}, {budgeted.added_us:.1f} us added (estimated)"]
    return lines + [
        f"          {step.value} is computed again before {step.before}: "
        f"{step.nodes} node{'s' if step.nodes > 1 else ''}, {step.saved_bytes} bytes less where "
        f"most are live, {step.microseconds:.1f} us" for step in budgeted.recomputed]


def _budget_dict(budgeted: BudgetedPlan | None) -> dict[str, Any] | None:
    if budgeted is None:
        return None
    return {"budget": budgeted.budget, "met": budgeted.fits, "bytes_before": budgeted.bytes_before,
            "saved_bytes": budgeted.saved_bytes, "added_us": budgeted.added_us,
            "recomputed": [asdict(step) for step in budgeted.recomputed]}


def _basis_lines(basis: Basis | None) -> list[str]:
    """Return what a choice rests on, where that is more than the rules."""
    if basis is None or not basis.note:
        return []
    return [f"      {basis.kind}: {basis.note}"]


def _decomposed(graph: Graph) -> Graph:
    """Return a graph that no pass but the necessary one has seen."""
    return DecomposePass()(graph).graph


def _plan(graph: Graph, values: Mapping[str, int], device: DeviceProfile, choose: Chooser,
          finish: Callable[[Graph], Graph] = finish_graph) -> tuple[Plan | None, str]:
    try:
        return make_plan(finish(concretize(graph, values)), device, choose=choose), ""
    except Ge2Error as error:
        return None, "; ".join([str(error), *getattr(error, "__notes__", ())])


def _by_rules(plan: Plan) -> bool:
    return all(step.choice is None or step.choice.basis.kind == "rules" for step in plan.steps)


def _shared_plan(graph: Graph, values: Mapping[str, int], device: DeviceProfile, exact: Plan,
                 ) -> Plan | None:
    """Return the plan that a size shares with its class; None where it has one of its own.

    Its problems are those of the exact plan, which evidence is filed under: a class takes no axis
    for one of extent 1.
    """
    sized = ClassPlans(graph, device).find(
        {name: values[name] for name in free_symbols(graph.types[v] for v in graph.inputs)}, {})
    if sized is None:
        return None
    plan = plan_at(sized, values)
    if [step.node.name for step in plan.steps] != [step.node.name for step in exact.steps]:
        return plan
    return replace(plan, steps=tuple(replace(mine, problem=its.problem) for mine, its in zip(
        plan.steps, exact.steps, strict=True)))


def _profile(model: Model, arch: str | None) -> DeviceProfile:
    if arch is None and model.backend == "cuda":
        from ..runtime.device import probe

        return probe(model.device)
    return profile_for(arch or DEFAULT_ARCH)


def _candidates(reports: Sequence[CandidateReport]) -> Iterator[str]:
    """Yield a line for each group of variants of one kernel with the same verdict."""
    groups: dict[tuple[str, str], list[CandidateReport]] = {}
    for report in reports:
        kernel = report.variant_id.partition("[")[0]
        groups.setdefault((kernel, _verdict(report)), []).append(report)
    for (kernel, verdict), members in groups.items():
        score = members[0].score
        head = "refused" if score is None else f"{score:7.1f}"
        name = (members[0].variant_id if len(members) == 1
                else f"{kernel} ({len(members)} variants)")
        yield f"{head}  {name}: {verdict}"


def _verdict(report: CandidateReport) -> str:
    if report.reasons:
        return "; ".join(report.reasons)
    return ", ".join(f"{name} {value:+.3g}" for name, value in report.parts.items())
