"""ge2 lab: execution primitives, what they cost, and how kernels come about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from ..errors import Invalid, near_matches
from .lab_catalog import lab_records, list_, show, verify
from .lab_evidence import bench, evaluate, report_
from .output import Report, report_options

if TYPE_CHECKING:
    from ..compiler.codegen import Design
    from ..compiler.ir.nodes import Graph
    from ..compiler.plan import Step
    from ..evidence.device import DeviceProfile

_ALONG_LAST = ("scale", "bias", "weight", "gamma", "beta")


@click.group()
def lab() -> None:
    """Look at execution primitives, measure them, and see how an operator becomes a kernel."""


for _command in (list_, show, verify, bench, evaluate, report_):
    lab.add_command(_command)


@lab.command()
@click.argument("op")
@click.option("--shape", "shapes", required=True, metavar="AxB[,AxB...]",
              help="Shape of each input; those left out follow from the first: weights have its "
              "last extent, others its shape.")
@click.option("--dtype", default="f32", show_default=True, help="Of all inputs.")
@click.option("--device", "device_name", default="h200", show_default=True,
              help="A GPU's name or part of it, or an architecture such as sm_80.")
@click.option("--attr", "attrs", multiple=True, metavar="NAME=VALUE", help="An attribute, as JSON.")
@click.option("--evidence/--no-evidence", default=False,
              help="Prefer what tuning has measured for such a GPU.")
@click.option("--source/--no-source", "with_source", default=True, help="Print the CUDA source.")
@click.option("--compose", is_flag=True, help="Compose row operators of the lab's realizations.")
@click.option("--staging", default="", metavar="NAME", help="With --compose: this staging.")
@click.option("--reduction", default="", metavar="NAME", help="With --compose: this reduction.")
@report_options
def gen(op: str, shapes: str, dtype: str, device_name: str, attrs: tuple[str, ...],
        evidence: bool, with_source: bool, compose: bool, staging: str, reduction: str,
        json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Generate the kernel of an operator and print each decision on the way.

    OP is an operator of `ge2 ops`. No GPU is needed: only the device's profile is read.
    """
    from ..compiler.codegen import design, structure
    from ..compiler.kernels import selector, source
    from ..compiler.passes.pipeline import optimize
    from ..compiler.plan import make_plan
    from ..evidence.device import find_profile
    from ..runtime.tuned import TunedChooser

    report = Report(json_target, quiet=quiet, verbose=verbose)
    try:
        device = find_profile(device_name)
        graph = one_node_graph(op, shapes, dtype, attrs)
    except Invalid as error:
        raise click.UsageError(str(error)) from None
    choose = TunedChooser("on") if evidence else selector.select
    steps = make_plan(optimize(graph).graph, device, choose=choose).steps
    report.line(f"{op.upper()} on {', '.join(str(graph.types[n]) for n in graph.inputs)} "
                f"for {device.name} ({device.arch})")
    report.data = {"device": device.name, "arch": device.arch, "steps": []}
    for step in steps:
        made = design(step.problem, device, choose) if step.choice else None
        answers = structure(step.problem)
        if compose and step.problem.op_type == "ROW":
            text = _composed(report, step, device, staging, reduction)
            for line in ("", text) if with_source else ():
                report.line(line)
            continue
        _show(report, step, made, answers)
        report.data["steps"].append(_as_dict(step, made, answers))
        for record in step.records if with_source else ():
            report.line()
            report.line(source.render(record.kernel))
    report.finish()


def _composed(report: Report, step: Step, device: DeviceProfile, staging: str, reduction: str
              ) -> str:
    """Print how a row operator is composed, and return the source."""
    from ..compiler.kernels import source
    from ..compiler.kernels.row_plans import row_op_of
    from ..lab import plans
    from ..lab.compose import compose

    made = compose(row_op_of(step.problem), staging=staging, reduction=reduction)
    problem = made.problem(*(spec.shape for spec in step.problem.inputs if spec is not None))
    ranked = made.ranked(problem, device, lab_records())
    report.line()
    report.line(f"== {step.node.op} composed of {ranked[0][0].name}")
    report.table(("staging/reduction", "predicted us"),
                 [(one.name, f"{time_us:.2f}") for one, time_us in ranked], right=frozenset({1}))
    report.data["steps"].append({
        "op": step.node.op, "composed_of": ranked[0][0].name,
        "alternatives": {one.name: time_us for one, time_us in ranked}})
    return source.render(plans.bind(problem, ranked[0][0].variant, device)[0].kernel)


def one_node_graph(op: str, shapes: str, dtype: str, attrs: Sequence[str]) -> Graph:
    """Return a graph of one operator.

    Raises:
        Invalid: an unknown operator, a malformed shape or attribute.
    """
    from ..compiler import opdefs
    from ..compiler.ir.text import parse_graph

    if op.upper() not in opdefs.OPS:
        raise Invalid("no such operator", argument="OP", found=repr(op), wanted="one of ge2 ops",
                      hint=near_matches(op.upper(), opdefs.OPS))
    given = [_extents(text) for text in shapes.split(",")]
    names = [n for n in opdefs.get(op.upper()).inputs if not n.endswith(("?", "*"))]
    names += [f"x{i}" for i in range(len(names), len(given))]
    lines = []
    for number, name in enumerate(names):
        shape = given[number] if number < len(given) else (
            given[0][-1:] if name.rstrip("?*") in _ALONG_LAST else given[0])
        lines.append(f"input v{number}: {dtype}[{', '.join(map(str, shape))}]")
    call = ", ".join([f"v{i}" for i in range(len(names))] + [a.strip() for a in attrs])
    lines += [f"y = {op.upper()}({call})", "output y"]
    return parse_graph("\n".join(lines), infer=opdefs.infer)


def _extents(text: str) -> list[int]:
    parts = text.strip().lower().split("x")
    if not all(p.isdecimal() for p in parts):
        raise Invalid("a shape is a list of extents", argument="--shape", found=repr(text),
                      wanted="such as 4096x65536")
    return [int(p) for p in parts]


def _show(report: Report, step: Step, made: Design | None, answers: Sequence[Any]) -> None:
    report.line()
    report.line(f"== {step.node.op} as {step.problem.op_type}")
    for answer in answers:
        word = "yes" if answer.yes else "no"
        report.line(f"  {answer.question:12} {word:4} {answer.because}")
    if made is None:
        report.line("  no launch")
        return
    report.line(f"  walk         {made.walk}")
    for decision in made.decisions:
        report.line(f"  {decision.question} = {decision.answer}")
        report.line(f"      stands on {decision.stands_on}")
        for other in decision.alternatives:
            why = f"{other.score:.4g} points" if other.score is not None else other.reason
            report.line(f"      not {other.name}: {why}")
    for record in step.records:
        together = ", all blocks at once" if record.cooperative else ""
        cluster = f", clusters of {record.cluster[0]}" if record.cluster[0] > 1 else ""
        report.line(f"  launch       {record.kernel.entry}: {record.grid[0]} blocks of "
                    f"{record.block[0]} threads{cluster}{together}, {record.smem} bytes of "
                    "shared memory")


def _as_dict(step: Step, made: Design | None, answers: Sequence[Any]) -> dict[str, Any]:
    return {
        "op": step.node.op, "op_type": step.problem.op_type,
        "structure": {a.question: {"yes": a.yes, "because": a.because} for a in answers},
        "walk": made.walk if made else "",
        "variant": made.choice.variant.id if made else "",
        "decisions": [{
            "question": d.question, "answer": d.answer, "stands_on": d.stands_on,
            "alternatives": [{"name": a.name, "score": a.score, "reason": a.reason}
                             for a in d.alternatives],
        } for d in (made.decisions if made else ())],
    }
