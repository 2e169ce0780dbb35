"""Tools for who writes kernels: emulate, bench, diff, new, profile."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ..errors import EnvironmentUnusable, Ge2Error, Invalid
from .kernel_lookup import (
    arch_option,
    choose_example,
    describe,
    find_kernel,
    fitting_problems,
    no_example,
    sized_problems,
    sources_of,
)
from .output import Number, Report, bad, good, report_options, writable_folder

if TYPE_CHECKING:
    from ..compiler.kernels.metadata import Variant
    from ..problem import Problem

Array = np.ndarray[Any, Any]
_TOLERANCE = {"f32": 1e-4, "f16": 5e-3, "bf16": 3e-2, "f64": 1e-10, "tf32": 5e-3}


@click.command()
@click.argument("name")
@arch_option
@click.option("--shape", metavar="N,N,...",
              help="Run the examples in this size: M,N,K of a product; ROWS,N of a row operator; "
              "BATCH,HEADS,QUERIES,KEYS,SIZE of an attention; ... A wrong number of extents tells "
              "which they are.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the inputs.")
@click.option("--all-variants", is_flag=True, help="Every variant, not only the first that fits.")
@report_options
def emulate(name: str, arch: str, shape: str | None, seed: int, all_variants: bool,
            json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Run a kernel's own CUDA source on the CPU and compare with float64.

    Takes the launch rule's example problems. Memory faults, races, bad barriers and elements that
    were not written are errors. Exit code 1 when one fails. Needs g++, no GPU.
    """
    report = Report(json_target, quiet=quiet, verbose=verbose)
    tested: set[str] = set()
    results = []
    extents, refused = _extents(shape), list[str]()
    for variant in find_kernel(name)[1]:
        problems: Iterable[Problem] = fitting_problems(variant, arch)
        if extents is not None:
            problems, reasons = sized_problems(variant, arch, extents)
            refused += reasons
        for problem in problems:
            results.append(_emulate_one(variant, problem, arch, seed, report))
            tested.add(variant.id)
        if tested and not all_variants:
            break
    if not results:
        raise no_example(name, arch, refused)
    failed = sum(1 for r in results if not r["ok"])
    word = bad(f"{failed} fail") if failed else good("all right")
    report.line(f"{len(results)} problems, {len(tested)} variants: {word}")
    report.data = {"arch": arch, "results": results}
    report.finish()
    return 1 if failed else 0


def _extents(shape: str | None) -> list[int] | None:
    if shape is None:
        return None
    extents = shape.split(",")
    if not all(e.strip().isdecimal() and e.isascii() for e in extents):
        raise Invalid("--shape is a list of extents", found=repr(shape), wanted="such as 64,64,64")
    return [int(e) for e in extents]


def _emulate_one(variant: Variant, problem: Problem, arch: str, seed: int, report: Report
                 ) -> dict[str, Any]:
    from ..evidence.device import profile_for
    from ..model.compare import compare
    from ..runtime.emulate import run_problem
    from ..runtime.problem_reference import random_inputs, reference

    inputs = random_inputs(problem, seed)
    start = time.perf_counter()
    try:
        found = run_problem(variant, problem, inputs, device=profile_for(arch))
    except EnvironmentUnusable:
        raise  # no compiler: said once, the kernel is not at fault
    except Ge2Error as error:
        report.line(f"{bad('FAIL')}  {variant.id}  {describe(problem)}\n{error}")
        return {"variant": variant.id, "problem": describe(problem), "ok": False,
                "error": str(error)}
    seconds = time.perf_counter() - start
    wanted = reference(problem, inputs)
    ok, worst = True, 0.0
    for index, (got, want) in enumerate(zip(found, wanted, strict=True)):
        limit = _limit(problem, problem.outputs[index].dtype)
        want = want.reshape(got.shape)
        if got.dtype.kind in "iub":
            want = want.astype(got.dtype)  # the kernel, too, drops what an integer does not hold
        result = compare(f"output {index}", got, want, atol=limit * _scale(want), rtol=limit)
        worst = max(worst, result.max_abs)
        if not result.ok:
            ok = False
            report.line(f"{bad('FAIL')}  {variant.id}  {describe(problem)}\n{result.report()}")
    if ok:
        report.line(f"{good('ok')}    {variant.id}  {describe(problem)}  max abs {worst:.2g}, "
                    f"{seconds:.1f} s")
    return {"variant": variant.id, "problem": describe(problem), "ok": ok, "max_abs": worst,
            "seconds": seconds}


def _limit(problem: Problem, dtype: str) -> float:
    """Return the error allowed, as a share of an element and of the output's scale."""
    return _TOLERANCE.get("tf32" if problem.attr_map.get("f32") == "tf32" else dtype, 0.0)


def _scale(wanted: Array) -> float:
    """Return the root mean square, at least 1: what sums cancel to carries their terms' errors."""
    finite = wanted[np.isfinite(wanted)]
    return max(1.0, float(np.sqrt(np.mean(np.square(finite))))) if finite.size else 1.0


@click.command()
@click.argument("first")
@click.argument("second")
@arch_option
@report_options
def diff(first: str, second: str, arch: str, json_target: str | None, quiet: bool, verbose: bool
         ) -> None:
    """Compare two kernels or variants: source, registers, spills, shared memory, cubin size."""
    from ..compiler.kernels import source
    from ..runtime import jit
    from .kernel_sass import instruction_counts

    report = Report(json_target, quiet=quiet, verbose=verbose)
    sides = []
    for name in (first, second):
        variant, problem = choose_example(find_kernel(name)[1], arch, 0)
        item = sources_of(variant, problem, arch)[0]
        compiled = jit.compile([item], arch)[item]
        use = compiled.meta.resources
        sides.append({
            "variant": variant.id, "text": source.render(item), "registers": use.registers,
            "spills": use.spill_stores + use.spill_loads, "static_smem": use.static_smem,
            "cubin bytes": compiled.path.stat().st_size, **instruction_counts(compiled.path)})
    a, b = sides
    lines = list(difflib.unified_diff(str(a["text"]).splitlines(), str(b["text"]).splitlines(),
                                      str(a["variant"]), str(b["variant"]), lineterm=""))
    for line in lines or ["the sources are the same"]:
        report.line(line)
    rows = [(key, a.get(key, 0), b.get(key, 0)) for key in {**a, **b}
            if key not in ("variant", "text")]
    report.table(("", "first", "second"), rows, right=frozenset({1, 2}))
    report.data = {"arch": arch, "first": a, "second": b, "diff": lines}
    report.finish()


@click.command()
@click.argument("name")
@click.option("--op", "op_type", required=True, metavar="OP",
              help="Operator type, such as ELEMENTWISE, GEMM_BIAS_ACT or ROW.")
@click.option("--dir", "folder", default="my_kernels", show_default=True, metavar="DIR",
              callback=writable_folder, help="Folder to write into.")
@report_options
def new(name: str, op_type: str, folder: str, json_target: str | None, quiet: bool, verbose: bool
        ) -> None:
    """Write a kernel NAME that works, for you to change, and a test of it.

    The template starts as a copy of ge2's simplest kernel of that operator.
    """
    from ..compiler.kernels import registry, source
    from ..errors import near_matches

    report = Report(json_target, quiet=quiet, verbose=verbose)
    single = [k for k in registry.all_kernels() if k.entries == (k.name,)]
    known = sorted({k.op_type for k in single})
    if op_type.upper() not in known:
        raise click.BadParameter(f"no kernels for {op_type!r}; {near_matches(op_type, known)} "
                                 f"there are {', '.join(known)}", param_hint="--op")
    if not name.isidentifier() or not name.isascii():
        raise click.BadParameter(f"{name!r} is not a C++ name", param_hint="NAME")
    if any(k.name == name for k in registry.all_kernels()):
        raise click.BadParameter(f"there is a kernel {name!r}", param_hint="NAME")
    texts = {k.name: source.template_path(k.template).read_text("utf-8")
             for k in single if k.op_type == op_type.upper()}
    # The least able one is the plainest: short templates may bind to long headers.
    model = min((k for k in single if k.name in texts), key=lambda k: (k.score, k.name)).name
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    template, test = target / f"{name}.cu.j2", target / f"test_{name}.py"
    for path in (template, test):
        if path.exists():
            raise click.BadParameter(f"{path} exists", param_hint="--dir")
    # The name and the entry, not headers, functions and guards of the same name.
    renamed = re.sub(rf'(?<=^name = "){model}(?=")|(?<![\w/:]){model}(?=\()', name, texts[model],
                     flags=re.MULTILINE)
    template.write_text(renamed, encoding="utf-8")
    test.write_text(_TEST.format(name=name), encoding="utf-8")
    report.line(f"wrote {template} (a copy of {model}) and {test}")
    report.line("next:")
    report.line(f"  export GE2_KERNEL_PATH={target.resolve()}")
    report.line(f"  ge2 kernels compile {name}")
    report.line(f"  ge2 kernels emulate {name}")
    report.line(f"  pytest {test}")
    report.data = {"template": str(template), "test": str(test), "copy_of": model}
    report.finish()


_TEST = '''"""The kernel {name} against float64, on the CPU."""

from pathlib import Path

from ge2 import paths
from ge2.cli import run
from ge2.compiler.kernels import registry

paths.add_kernel_dir(Path(__file__).parent)
registry.reset()


def test_compiles():
    assert run(["kernels", "compile", "{name}", "--arch", "sm_80"]) == 0


def test_values():
    assert run(["kernels", "emulate", "{name}"]) == 0
'''


@click.command()
@click.argument("name")
@click.option("--example", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which of the launch rule's example problems to launch.")
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--output", metavar="FILE", help="Where to write the script (default NAME_run.py).")
@report_options
def profile(name: str, example: int, device: int, output: str | None, json_target: str | None,
            quiet: bool, verbose: bool) -> None:
    """Write a script that launches one kernel, and print the Nsight Compute command for it.

    The kernel is compiled with -lineinfo (GE2_LINEINFO=1): the profiler shows the template's lines.
    """
    report = Report(json_target, quiet=quiet, verbose=verbose)
    kernel, variants = find_kernel(name)
    path = Path(output or f"{kernel.name}_run.py")
    path.write_text(_SCRIPT.format(variant=variants[0].id, example=example, device=device,
                                   template=kernel.template),
                    encoding="utf-8")
    command = (f"ncu --set full --import-source yes --kernel-name {kernel.entries[0]} "
               f"--export {kernel.name} python {path}")
    report.line(f"wrote {path}")
    report.line(command)
    report.data = {"script": str(path), "command": command}
    report.finish()


_SCRIPT = '''"""Launches {variant} a few times on example problem {example}."""

import os

os.environ["GE2_LINEINFO"] = "1"  # the profiler shows lines of {template}

from ge2.commands.kernel_bench import Workload

workload = Workload({variant!r}, example={example}, device={device})
for _ in range(3):
    workload.run()
'''


@click.command()
@click.argument("first")
@click.argument("second")
@click.option("--example", type=click.IntRange(min=0), default=0, show_default=True,
              help="Which of the launch rule's example problems to run.")
@click.option("--device", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--rounds", type=click.IntRange(min=6), default=40, show_default=True)
@click.option("--same-within", type=Number(min=0), default=1.0, show_default=True,
              metavar="PERCENT", help="Differences below this count as SAME.")
@report_options
def bench(first: str, second: str, example: int, device: int, rounds: int, same_within: float,
          json_target: str | None, quiet: bool, verbose: bool) -> None:
    """Time two kernels or variants against each other, interleaved, on the GPU.

    The verdict on the second, with its 95 % interval: FAST, SLOW, SAME, or UNDECIDED where the
    interval reaches beyond the difference that counts.
    """
    from .kernel_bench import compare_kernels

    report = Report(json_target, quiet=quiet, verbose=verbose)
    result = compare_kernels(first, second, example=example, device=device, rounds=rounds,
                             same_within=same_within / 100)
    report.line(f"problem  {result.problem}")
    report.line(f"first    {result.first}: {result.first_us:.3f} us")
    report.line(f"second   {result.second}: {result.second_us:.3f} us")
    low, high = result.interval
    report.line(f"second / first = {result.ratio:.4f} (95 %: {low:.4f} to {high:.4f}): "
                f"{result.verdict}")
    report.data = result.as_dict()
    report.finish()
