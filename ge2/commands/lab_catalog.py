"""ge2 lab list, show, verify: the catalog of execution primitives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .kernel_lookup import known_arch
from .output import Report, bad, good, report_options

if TYPE_CHECKING:
    from ..evidence.record import Record
    from ..lab.primitives import Primitive, Realization
    from ..lab.verify import Result


@click.command("list")
@click.option("--arch", default="", metavar="SM", callback=known_arch,
              help="Leave out what this architecture does not run.")
@report_options
def list_(arch: str, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """List the primitives by family, with the realizations of each."""
    from ..lab import primitives

    report = Report(json_target, quiet=quiet, verbose=verbose)
    rows, data = [], []
    for family in primitives.FAMILIES:
        found = primitives.realizations(family, arch)
        for primitive in primitives.of_family(family):
            own = [one.name for one in found if one.embodies(primitive)]
            rows.append((family, primitive.name, ", ".join(own)))
            data.append({"family": family, "primitive": primitive.name, "realizations": own,
                         "interchangeable": [one.name for one in found if one.name not in own]})
    report.data = {"primitives": data}
    report.table(("family", "primitive", "realized by"), rows)
    report.message("ge2 lab show NAME tells more of a primitive, or how an operator decomposes")
    report.finish()


@click.command()
@click.argument("name")
@report_options
def show(name: str, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Show a primitive with its contract, or an operator as a composition of primitives.

    NAME is a primitive of `ge2 lab list`, a family, a row operator such as softmax, or one of
    normalization, attention, cross_entropy, gemm_norm, gemm_softmax.
    """
    from ..lab import decompose, primitives

    report = Report(json_target, quiet=quiet, verbose=verbose)
    wanted = name.lower().replace("-", "_")
    if wanted in primitives.PRIMITIVES:
        _show_primitive(report, primitives.get(wanted))
    elif wanted in primitives.FAMILIES:
        for primitive in primitives.of_family(wanted):
            _show_primitive(report, primitive)
            report.line()
    else:
        steps = decompose.steps(wanted)
        report.data = {"operator": wanted, "steps": [
            {"what": s.what, "primitive": s.primitive, "because": s.because} for s in steps]}
        report.line(f"{wanted} as a composition, from its declaration")
        report.table(("part", "primitive", "because"),
                     [(s.what, s.primitive or "-", s.because) for s in steps])
    report.finish()


def _show_primitive(report: Report, primitive: Primitive) -> None:
    from ..lab import primitives

    family = primitives.FAMILIES[primitive.family]
    records = lab_records()
    offered = {one.variant.id for one in _offered(primitive.family, records)}
    report.line(f"{primitive.name}   {primitive.family}")
    report.line(f"  {primitive.definition}")
    for label, text in (("signature", family.signature), ("state", family.state),
                        ("identity", family.identity), ("reference", family.reference),
                        ("needs", ", ".join(primitive.needs) or "nothing"),
                        ("rounding", primitive.numerics)):
        report.line(f"  {label:10} {text}")
    for axis, effect in primitive.costs.items():
        report.line(f"  cost       {axis}: {effect}")
    rows = []
    for one in primitives.realizations(primitive.family):
        mark = "*" if one.embodies(primitive) else ""
        state = "" if one.variant.id in offered else bad("failed verification")
        rows.append((mark, one.name, state, one.numerics, one.summary))
    report.line()
    report.table(("", "realization", "", "numerics", "summary"), rows)
    report.line("  * embodies the primitive; all keep the same contract")
    used = sorted({k for one in primitives.realizations(primitive.family)
                   if one.embodies(primitive) for k in primitives.used_by(one)}
                  | set(family.production))
    report.line(f"  kernels organised so: {', '.join(used) or 'none outside the lab'}")
    report.data.setdefault("primitives", []).append(_as_dict(primitive, offered, used))


def _as_dict(primitive: Primitive, offered: set[str], used: list[str]) -> dict[str, Any]:
    from ..lab import primitives

    family = primitives.FAMILIES[primitive.family]
    return {
        "name": primitive.name, "family": primitive.family, "definition": primitive.definition,
        "signature": family.signature, "state": family.state, "identity": family.identity,
        "reference": family.reference, "needs": primitive.needs, "costs": primitive.costs,
        "rounding": primitive.numerics, "used_by": used,
        "realizations": [{
            "name": one.name, "variant": one.variant.id, "summary": one.summary,
            "numerics": one.numerics, "embodies": one.embodies(primitive),
            "offered": one.variant.id in offered,
        } for one in primitives.realizations(primitive.family)],
    }


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


def _offered(family: str, records: list[Record]) -> list[Realization]:
    from ..lab.verify import offered

    return offered(family, records)


@click.command()
@click.argument("family", nargs=-1)
@click.option("--all", "everything", is_flag=True,
              help="Every family; on a GPU the problems of the sweep, too.")
@click.option("--backend", type=click.Choice(["cuda", "emulate"]), default=None,
              help="Default: the GPU where there is one.")
@report_options
def verify(family: tuple[str, ...], everything: bool, backend: str | None,
           json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Run every realization and compare each element with float64.

    A realization that fails is remembered and never offered again until its sources change. Exits
    with 1 where one fails.
    """
    from ..evidence.records import Store, default_path
    from ..lab import verify as verifier

    report = Report(json_target, quiet=quiet, verbose=verbose)
    wanted = families_of(family, everything)
    device = find_device(backend)
    results: list[Result] = []
    with Store(default_path()) as store:
        for result in verifier.verify(device, wanted, put=store.put,
                                      large=everything and device.kind == "cuda"):
            results.append(result)
            word = good("ok") if result.is_ok else bad(result.state)
            report.line(f"{result.realization.family.name:18} {result.realization.name:28} {word} "
                        f"{result.ulp:6.1f} ulp  {result.problems} problems")
            if result.reason:
                report.line(f"    {result.reason}")
    wrong = [r for r in results if not r.is_ok]
    report.data = {"backend": device.kind, "device": device.profile.name, "results": [
        {"family": r.realization.family.name, "realization": r.realization.name,
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
