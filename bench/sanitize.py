"""compute-sanitizer over every kernel variant, on one small case each, in one process per tool.

    python -m bench.sanitize --out FOLDER [--tools memcheck,racecheck,...] [--kernels PART,...]

memcheck, initcheck and synccheck run every variant; racecheck, which does not know of asynchronous
copies by barrier, runs those without TMA. Every operand has an allocation of its own of its exact
size; outputs and workspace are left unwritten, so that a read of them shows. A tool's run ends
after --seconds and says where; --skip goes on from there. Values are not compared: tests/gpu does
that. Scans and the lab's kernels have no cases here.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

import ge2.launch_table as table
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.metadata import KernelInfo, Variant
from ge2.contract import DTYPES, numpy_dtype
from ge2.launch.record import LaunchRecord
from ge2.runtime import jit
from ge2.runtime.device import Allocation, Device, cuda_device, default_index
from tests.cases.problems import Case, cases_for
from tests.cases.runner import random_values

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
OPTIONS = {"memcheck": ("--report-api-errors", "no"),
           "racecheck": ("--racecheck-report", "analysis")}
BLIND = {"tma", "mbarrier"}  # flags of kernels whose order of accesses racecheck does not see
ELEMENTS = 20_000  # of all operands of a case, about
MARK = ">> "
_BANNERS = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY")

Run = tuple[Case, Variant, list[LaunchRecord]]


@dataclass(slots=True)
class Findings:
    """What a tool found.

    Attributes:
        done: variants that ran. found: variant -> first lines of findings, with their counts.
        trouble: why the tool or the process did not go on.
    """

    done: list[str] = field(default_factory=list)
    found: dict[str, dict[str, int]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


def runs(device: Device, parts: Sequence[str], tool: str = "memcheck") -> list[Run]:
    """Return one run for each variant of the kernels whose names hold one of the parts."""
    found = []
    for kernel in registry.all_kernels():
        wanted = not parts or any(part in kernel.name for part in parts)
        blind = tool == "racecheck" and BLIND & set(kernel.flags)
        if wanted and not blind and kernel.runs_on(device.profile.arch):
            found += _runs_of(kernel, device)
    return found


def _runs_of(kernel: KernelInfo, device: Device) -> Iterator[Run]:
    """Yield each variant with the first case that it takes, those of a handy size first."""
    missing = {v.id: v for v in kernel.variants}
    cases = list(cases_for(kernel.op_type))
    random.Random(0).shuffle(cases)
    for case in sorted(cases, key=lambda case: abs(np.log(max(_elements(case), 1) / ELEMENTS))):
        reports = selector.rank(case.problem, device.profile, kernels=[kernel])
        for report in reports:
            if report.score is None or report.variant_id not in missing:
                continue
            variant = missing[report.variant_id]
            records = table.bind(case.problem, variant, device.profile)
            if records:
                del missing[report.variant_id]
                yield case, variant, records
        if not missing:
            return


def _elements(case: Case) -> int:
    return sum(operand.elements for operand in case.operands if operand)


def launch(case: Case, records: Sequence[LaunchRecord], device: Device) -> None:
    """Run a case on operands of their own."""
    kept: list[Allocation] = []
    draw = np.random.default_rng(zlib.crc32(case.name.encode()))
    ranges = {slot: (low, high) for slot, low, high in case.index_range}
    given = dict(case.given)
    addresses = []
    for slot, operand in enumerate(case.operands):
        if operand is None or not operand.elements:
            addresses.append(0)
            continue
        itemsize = DTYPES[operand.spec.dtype].itemsize
        kept.append(device.allocate(operand.elements * itemsize))
        addresses.append(kept[-1].address + operand.offset * itemsize)
        if slot < len(case.problem.inputs):
            values = random_values(draw, operand.spec.dtype, operand.elements, ranges.get(slot))
            if slot in given:
                values = np.array(given[slot], numpy_dtype(operand.spec.dtype))
            device.copy(kept[-1].address, values.ctypes.data, values.nbytes, 0)
            device.synchronize(0)
    workspace = device.allocate(max(1, *(r.workspace for r in records)))
    semaphores = device.allocate(4 * max(1, *(r.semaphores for r in records)), zero=True)
    for unit in device.prepare(records):
        unit.args.patch(addresses, workspace.address, semaphores.address)
        unit(0)
    device.synchronize(0)


def run_child(tool: str, parts: Sequence[str], skip: int, seconds: float) -> None:
    """Run variants under a tool, naming each before it runs."""
    end = time.monotonic() + seconds
    device = cuda_device(default_index())
    todo = runs(device, parts, tool)
    jit.try_compile({r.kernel for _, _, records in todo for r in records}, device.profile.arch)
    for number, (case, variant, records) in enumerate(todo):
        if number < skip:
            continue
        if time.monotonic() > end:
            print(f"{MARK}stopped at {number} of {len(todo)}", flush=True)
            return
        print(f"{MARK}{variant.id}", flush=True)
        try:
            launch(case, records, device)
        except Exception as error:  # the tool says what; the others still run
            print(f"{MARK}raised {type(error).__name__}: {str(error)[:200]}", flush=True)
    print(f"{MARK}all {len(todo)}", flush=True)


def read(lines: Iterable[str]) -> Findings:
    """Return what the output of a tool and of the process that it watches says."""
    result = Findings()
    current, at_end = "before the first launch", False
    for line in lines:
        if line.startswith(MARK):
            text = line.removeprefix(MARK).strip()
            if text.startswith(("all ", "stopped at ")):
                at_end = True
                if text.startswith("stopped"):
                    result.trouble.append(text)
            elif text.startswith("raised "):
                result.trouble.append(f"{current}: {text}")
            else:
                current = text
                result.done.append(text)
        elif line.startswith("========= ") and not line[10:].startswith((" ", *_BANNERS)):
            head = line[10:].strip()
            if head and not head.startswith(("No ", "Internal Sanitizer Info")):
                counts = result.found.setdefault(current, {})
                counts[head] = counts.get(head, 0) + 1
    if not at_end:
        result.trouble.append(f"the process ended at {current}")
    return result


def watch(tool: str, parts: Sequence[str], skip: int, seconds: float) -> Findings:
    """Run a tool over this module's child; what it prints is read when it has ended."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    command = [program, "--tool", tool, *OPTIONS.get(tool, ()), "--print-limit", "1000",
               "--destroy-on-device-error", "kernel", sys.executable, "-m", "bench.sanitize",
               "--child", tool, "--kernels", ",".join(parts), "--skip", str(skip), "--seconds",
               str(seconds)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds + 60, check=False)
        output = done.stdout
    except FileNotFoundError:
        return Findings(trouble=["compute-sanitizer is not installed"])
    except subprocess.TimeoutExpired as error:
        output = (error.stdout or b"").decode(errors="replace")
    found = read(output.splitlines())
    if not found.done:
        found.trouble.append(output[-400:])
    return found


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), help="result folder")
@click.option("--tools", default=",".join(TOOLS), show_default=True, help="comma list")
@click.option("--kernels", default="", help="comma list of parts of kernel names")
@click.option("--skip", default=0, help="variants to pass over, where a run stopped before")
@click.option("--seconds", default=110.0, show_default=True, help="for each tool's launches")
@click.option("--child", default="", hidden=True)
def main(out: Path | None, tools: str, kernels: str, skip: int, seconds: float, child: str) -> None:
    """See the module."""
    parts = [part for part in kernels.split(",") if part]
    if child:
        run_child(child, parts, skip, seconds)
        return
    if out is None:
        raise click.UsageError("--out is missing")
    out.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {}
    for tool in tools.split(","):
        start = time.monotonic()
        found = watch(tool, parts, skip, seconds)
        report[tool] = {**asdict(found), "seconds": round(time.monotonic() - start, 1)}
        (out / "sanitize.json").write_text(json.dumps(report, indent=1) + "\n")
        show(tool, found, report[tool]["seconds"])
    sys.exit(any(row["found"] or row["trouble"] for row in report.values()))





def show(tool: str, found: Findings, seconds: float) -> None:
    """Print a line for each finding, and a summary."""
    for variant, counts in found.found.items():
        for head, count in counts.items():
            click.echo(f"{tool} {variant[:60]}: {count} x {head}"[:160])
    for text in found.trouble:
        click.echo(f"{tool}: {text}"[:400])
    total = sum(sum(counts.values()) for counts in found.found.values())
    click.echo(f"== {tool}: {len(found.done)} variants, {total} findings in {len(found.found)}, "
               f"{seconds:.0f} s")


if __name__ == "__main__":
    main()
