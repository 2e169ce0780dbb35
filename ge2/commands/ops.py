"""ge2 ops: the operator table, from the definitions."""

from __future__ import annotations

import click

from .output import Report, report_options


@click.command()
@click.argument("name", required=False)
@report_options
def ops(name: str | None, json_target: str | None, quiet: bool, verbose: bool) -> None:
    """List the operators, or show one: inputs, attributes, properties."""
    from ..compiler import opdefs
    from ..compiler.opdefs.doc import render_table
    from ..errors import near_matches
    from ..model.operator_methods import attr_text

    report = Report(json_target, quiet=quiet, verbose=verbose)
    if name is not None and name.upper() not in opdefs.OPS:
        raise click.BadParameter(f"no operator {name!r}. {near_matches(name.upper(), opdefs.OPS)}",
                                 param_hint="NAME")
    if name is not None:
        definition = opdefs.get(name.upper())
        report.data = _as_dict(definition)
        report.line(f"{definition.name}({', '.join(definition.inputs)})   {definition.family}")
        report.line(f"  {definition.doc}")
        for spec in definition.attrs:
            report.line(f"  {spec.name}: {attr_text(spec)}")
        report.line(f"  properties: {', '.join(sorted(definition.properties)) or 'none'}")
        report.line(f"  features: {', '.join(_features(definition.name)) or 'none'}")
        report.line('  In inputs, "?" is optional and "*" takes any number.')
    else:
        definitions = list(opdefs.OPS.values())
        report.data = {"operators": [_as_dict(d) for d in definitions]}
        report.table(("operator", "inputs", "element types", "what it does"), [
            (name, inputs, types, doc.splitlines()[0])
            for name, inputs, types, _, doc in render_table()])
        report.message(f"{len(definitions)} operators; ge2 ops NAME shows one")
    report.finish()


def _features(name: str) -> list[str]:
    from ..compiler.opdefs.features import features

    return [feature for feature, answer in features(name).items() if answer]


def _as_dict(definition: object) -> dict[str, object]:
    from ..compiler.opdefs import OpDef
    from ..contract import REQUIRED

    assert isinstance(definition, OpDef)
    return {
        "name": definition.name, "inputs": definition.inputs, "family": definition.family,
        "doc": definition.doc, "properties": sorted(definition.properties),
        "features": _features(definition.name),
        "attrs": [{"name": s.name, "kind": s.kind, "required": s.default is REQUIRED,
                   "default": None if s.default is REQUIRED else s.default,
                   "choices": s.choices, "doc": s.doc} for s in definition.attrs],
    }
