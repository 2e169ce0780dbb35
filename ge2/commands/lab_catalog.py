"""ge2 lab list, show, verify: the catalog of execution primitives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from .kernel_lookup import known_arch
from .output import Report, bad, good, report_options

if TYPE_CHECKING:
    from ..evidence.record import Record
    from ..lab.primitives import Primitive
    from ..lab.realizations import Realization
    from ..lab.verify import Result


@click.command("list")
@click.option("--arch", default="", metavar="SM", callback=known_arch,
              help="Leave out what this architecture does not run.")
@report_options
def list_(arch: str, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """List the primitives by family, with the realizations of each."""
    from ..lab import primitives
    from ..lab.realizations import realizations

    report = Report(json_target, quiet=quiet, verbose=verbose)
    rows, data = [], []
    for family in primitives.FAMILIES:
        found = realizations(family, arch)
        for primitive in primitives.of_family(family):
            own = _names(one for one in found if one.embodies(primitive))
            others = [name for name in _names(found) if name not in own]
            rows.append((family, primitive.name, ", ".join(own)))
            data.append({"family": family, "primitive": primitive.name, "realizations": own,
                         "interchangeable": others})
        if not primitives.of_family(family):
            rows.append((family, "(composed of the above)", ", ".join(_names(found))))
    report.data = {"primitives": data,
                   "compositions": _names(realizations("composition", arch))}
    report.table(("family", "primitive", "realized by"), rows)
    report.message("ge2 lab show NAME tells more of a primitive, or how an operator decomposes")
    report.finish()


def _names(found: Iterable[Realization]) -> list[str]:
    """Return short names, each once: several consumers may share one."""
    return list(dict.fromkeys(one.name for one in found))


@click.command()
@click.argument("name")
@report_options
def show(name: str, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Show a primitive with its contract, or an operator as a composition of primitives.

    NAME is a primitive of `ge2 lab list`, a family, a row operator such as softmax, one of
    normalization, attention, cross_entropy, gemm_norm, gemm_softmax, or a transformation: reorder,
    tree-reduce, stream, block, recompute, fuse, split.
    """
    from ..compiler.ir.preservation import TRANSFORMATIONS
    from ..lab import decompose, primitives

    report = Report(json_target, quiet=quiet, verbose=verbose)
    wanted = name.lower().replace("-", "_")
    if name.lower() in TRANSFORMATIONS:
        _show_transformation(report, name.lower())
    elif wanted in primitives.PRIMITIVES:
        _show_primitive(report, primitives.get(wanted))
    elif wanted in primitives.FAMILIES:
        for primitive in primitives.of_family(wanted):
            _show_primitive(report, primitive)
            report.line()
        if not primitives.of_family(wanted):
            report.line(wanted)
            _show_contract(report, wanted)
            report.data = {"family": wanted, "realizations": _show_realizations(report, wanted)}
    else:
        steps = decompose.steps(wanted)
        report.data = {"operator": wanted, "steps": [
            {"what": s.what, "primitive": s.primitive, "because": s.because} for s in steps]}
        report.line(f"{wanted} as a composition, from its declaration")
        report.table(("part", "primitive", "because"),
                     [(s.what, s.primitive or "-", s.because) for s in steps])
        treatments = decompose.treatments(wanted)
        report.data["treatments"] = [
            {"realization": r, "kernel": k, "summary": s} for r, k, s in treatments]
        if treatments:
            report.line()
            report.table(("realization", "kernel", "summary"), treatments)
    report.finish()


def _show_transformation(report: Report, name: str) -> None:
    from ..compiler import opdefs
    from ..compiler.ir import properties
    from ..compiler.ir.preservation import TRANSFORMATIONS, rules_of

    report.line(f"{name}: {TRANSFORMATIONS[name]}")
    report.data = {"transformation": name, "what": TRANSFORMATIONS[name], "rules": []}
    for rule in rules_of(name):
        holders = [op for op in opdefs.OPS if properties.licensed(op, rule.licence)]
        report.line()
        report.line(f"  licence    {rule.licence}: {properties.PROPERTIES[rule.licence]}")
        for label, text in (("form", rule.form), ("rounding", rule.rounding),
                            ("asked by", ", ".join(rule.asked_by)),
                            ("held by", f"{len(holders)} operators: {', '.join(holders[:8])}"
                             + (", ..." if len(holders) > 8 else ""))):
            report.line(f"  {label:10} {text}")
        report.data["rules"].append({
            "licence": rule.licence, "form": rule.form, "rounding": rule.rounding,
            "asked_by": rule.asked_by, "held_by": holders})


def _show_primitive(report: Report, primitive: Primitive) -> None:
    from ..lab import primitives
    from ..lab.realizations import realizations, used_by

    family = primitives.FAMILIES[primitive.family]
    report.line(f"{primitive.name}   {primitive.family}")
    report.line(f"  {primitive.definition}")
    _show_contract(report, primitive.family)
    for label, text in (("needs", ", ".join(primitive.needs) or "nothing"),
                        ("rounding", primitive.numerics)):
        report.line(f"  {label:10} {text}")
    for axis, effect in primitive.costs.items():
        report.line(f"  cost       {axis}: {effect}")
    found = _show_realizations(report, primitive.family, primitive)
    report.line("  * embodies the primitive; all of a consumer keep the same contract")
    used = sorted({k for one in realizations(primitive.family)
                   if one.embodies(primitive) for k in used_by(one)}
                  | set(family.production))
    report.line(f"  kernels organised so: {', '.join(used) or 'none outside the lab'}")
    report.data.setdefault("primitives", []).append({
        "name": primitive.name, "family": primitive.family, "definition": primitive.definition,
        "signature": family.signature, "state": family.state, "identity": family.identity,
        "reference": family.reference, "needs": primitive.needs, "costs": primitive.costs,
        "rounding": primitive.numerics, "used_by": used, "realizations": found})


def _show_contract(report: Report, name: str) -> None:
    from ..lab.primitives import FAMILIES

    family = FAMILIES[name]
    for label, text in (("signature", family.signature), ("state", family.state),
                        ("identity", family.identity), ("reference", family.reference)):
        report.line(f"  {label:10} {text}")


def _show_realizations(report: Report, family: str, primitive: Primitive | None = None
                       ) -> list[dict[str, Any]]:
    """Print the realizations of a family, those that embody a primitive with a mark."""
    from ..lab.realizations import realizations
    from ..lab.verify import offered

    good_ones = {one.variant.id for one in offered(family, lab_records())}
    rows, data = [], []
    for one in realizations(family):
        embodies = primitive is not None and one.embodies(primitive)
        state = "" if one.variant.id in good_ones else bad("failed verification")
        rows.append(("*" if embodies else "", one.name, one.consumer, state, one.numerics,
                     one.summary))
        data.append({"name": one.name, "consumer": one.consumer, "variant": one.variant.id,
                     "summary": one.summary, "numerics": one.numerics, "embodies": embodies,
                     "offered": one.variant.id in good_ones})
    report.line()
    report.table(("", "realization", "consumer", "", "numerics", "summary"), rows)
    return data


def lab_records() -> list[Record]:
    """Return the lab's records: the shipped ones and this user's."""
    from ..evidence.exchange import shipped
    from ..evidence.record import Record
    from ..evidence.records import open_default

    found = [item for item in shipped() if isinstance(item, Record)]
    store = open_default()
    if store is not None:
        with store:
            found += store.records()
    return [r for r in found if r.op_type.startswith("LAB_")]


@click.command()
@click.argument("family", nargs=-1)
@click.option("--all", "everything", is_flag=True,
              help="Every family; on a GPU the problems of the sweep, too.")
@click.option("--only", metavar="NAME", default="", help="One realization, such as cp_async.")
@click.option("--backend", type=click.Choice(["cuda", "emulate"]), default=None,
              help="Default: the GPU where there is one.")
@report_options
def verify(family: tuple[str, ...], everything: bool, only: str, backend: str | None,
           json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Run every realization and compare each element with float64.

    A realization that fails is remembered and never offered again until its sources change. Exits
    with 1 where one fails.
    """
    from ..errors import Invalid
    from ..evidence.records import Store, default_path
    from ..lab import verify as verifier

    report = Report(json_target, quiet=quiet, verbose=verbose)
    wanted = families_of(family, everything)
    device = find_device(backend)
    results: list[Result] = []
    with Store(default_path()) as store:
        for result in verifier.verify(device, wanted, put=store.put, only=only,
                                      large=everything and device.kind == "cuda"):
            results.append(result)
            word = good("ok") if result.is_ok else bad(result.state)
            one = result.realization
            report.line(f"{one.family.name:18} {one.consumer:20} {one.name:28} {word} "
                        f"{result.ulp:6.1f} ulp  {result.problems} problems")
            if result.reason:
                report.line(f"    {result.reason}")
    if not results:
        raise Invalid("no realization has this name", argument="--only", found=repr(only),
                      wanted="one of ge2 lab show FAMILY")
    wrong = [r for r in results if not r.is_ok]
    report.data = {"backend": device.kind, "device": device.profile.name, "results": [
        {"family": r.realization.family.name, "realization": r.realization.name,
         "consumer": r.realization.consumer,
         "variant": r.realization.variant.id, "state": r.state, "reason": r.reason,
         "problems": r.problems, "max_abs": r.max_abs, "ulp": r.ulp} for r in results]}
    report.message(f"{len(results) - len(wrong)} of {len(results)} realizations are right")
    report.finish()
    if wrong:
        raise click.exceptions.Exit(1)


def families_of(given: tuple[str, ...], everything: bool) -> list[str]:
    """Return the families that a command line names; all where it names none.

    Raises:
        Invalid: there is no such family.
    """
    from ..errors import Invalid, near_matches
    from ..lab.primitives import FAMILIES

    for name in given:
        if name not in FAMILIES:
            raise Invalid("no such family", argument="FAMILY", found=repr(name),
                          wanted=", ".join(FAMILIES), hint=near_matches(name, FAMILIES))
    return list(given) if given and not everything else list(FAMILIES)


def find_device(backend: str | None) -> Any:
    """Return the GPU or the emulator.

    Raises:
        EnvironmentUnusable: the GPU is wanted and there is none.
    """
    from ..runtime import driver
    from ..runtime.device import EmulatedDevice, cuda_device, default_index

    if backend == "emulate" or (backend is None and not driver.is_available()):
        return EmulatedDevice()
    return cuda_device(default_index())
