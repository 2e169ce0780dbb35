"""ge2 run: run a model, check its outputs, measure it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from ..errors import EnvironmentUnusable, ModelError, near_matches
from .output import (
    Number,
    Report,
    bad,
    good,
    human_time,
    report_options,
    writable_file,
    writable_folder,
)

if TYPE_CHECKING:
    from ..model import Model
    from ..model.compare import Comparison

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Feeds:
    """A run's inputs and where they come from."""

    arrays: Mapping[str, Any]
    source: str
    symbols: Mapping[str, int] = field(default_factory=dict)


class Bytes(click.ParamType[int]):
    """A number of bytes, such as 4096, 64M or 2G."""

    name = "bytes"
    _UNITS: ClassVar = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("IB").removesuffix("B")
        number = text.rstrip("KMG")
        if not number.isdecimal() or len(number) > 15 or text[len(number):] not in self._UNITS:
            self.fail(f"{value!r} is not a number of bytes such as 4096, 64M or 2G", param, ctx)
        return int(number) * self._UNITS[text[len(number):]]


def _known_suffix(context: click.Context, option: click.Parameter, target: str | None
                  ) -> str | None:
    """Return the value of --output; refuse a file that cannot, or of a kind that is not written."""
    if target in ("", "-"):
        raise click.BadParameter(f"{target!r} is no place for outputs; wanted a file or a folder")
    if target is None:
        return target
    suffix = "" if target.endswith("/") or Path(target).is_dir() else Path(target).suffix
    if suffix not in ("", ".npy", ".npz", ".csv"):
        raise click.BadParameter(f"{target!r} has an unknown suffix {suffix!r}; wanted .npz, .npy, "
                                 f".csv, or a folder: {target}/")
    return str((writable_file if suffix else writable_folder)(context, option, target))


def model_options(function: _Function) -> _Function:
    """Add the options that choose backend, device and named dimensions."""
    for option in (
        click.option("--sym", "symbols", multiple=True, metavar="NAME=N",
                     help="Value of a named dimension for random inputs; may be repeated."),
        click.option("--device", type=click.IntRange(min=0), metavar="N",
                     help="CUDA device index (default GE2_DEVICE, else 0)."),
        click.option("--memory-budget", type=Bytes(), metavar="BYTES",
                     help="Compute cheap intermediates again instead of keeping them, until they "
                     "take at most BYTES; suffixes K, M, G are powers of 1024."),
        click.option("--tuning", type=click.Choice(["on", "off", "pinned"]),
                     help="Kernels by evidence (on), by the rules alone (off), or those of the "
                     "lock file beside the model (pinned). Default GE2_TUNE, else on."),
        click.option("--backend", type=click.Choice(["cuda", "cpu", "emulate"]),
                     help="Default: cuda where a GPU and cupy are, else cpu."),
    ):
        function = option(function)
    return function


@click.command()
@click.argument("path", metavar="MODEL")
@model_options
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE",
              help="An input as .npy, .npz or .csv; NAME may be left out for a model with one "
              "input and for an .npz whose arrays are named as the inputs.")
@click.option("--output", "output", metavar="DIR|FILE", callback=_known_suffix,
              help="Write the outputs: DIR gets NAME.npy each, FILE is an .npz or, for one "
              "output, an .npy or .csv.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True,
              help="Seed of random inputs.")
@click.option("--check", is_flag=True, help="Compare with the float64 NumPy reference.")
@click.option("--atol", type=Number(min=0), metavar="X",
              help="Absolute tolerance (default: the sample's, else by dtype).")
@click.option("--rtol", type=Number(min=0), metavar="X",
              help="Relative tolerance (default: the sample's, else by dtype).")
@click.option("--bench", is_flag=True, help="Measure the time of a run.")
@click.option("--min-time", type=Number(min=0), default=0.5, show_default=True,
              help="--bench: measure at least this many seconds.")
@click.option("--min-samples", type=click.IntRange(min=1), default=10, show_default=True,
              help="--bench: measure at least this often.")
@click.option("--max-noise", type=Number(min=0), default=0.5, show_default=True,
              metavar="PERCENT", help="--bench: until the median's uncertainty is below this.")
@click.option("--timeout", type=Number(min=0), default=15.0, show_default=True,
              metavar="SECONDS", help="--bench: give up after this; the unmet criterion is named.")
@click.option("--profile", is_flag=True, help="Show kernel, time and throughput of each node.")
@click.option("--trace", metavar="FILE", callback=writable_file,
              help="Write the nodes' times for chrome://tracing.")
@click.option("--memory", is_flag=True, help="Show what memory a run takes, first and steady time.")
@click.option("--bisect", is_flag=True,
              help="Name the first node that departs from the float64 reference.")
@report_options
def run(path: str, symbols: tuple[str, ...], device: int | None, backend: str | None,
        memory_budget: int | None, tuning: str | None, inputs: tuple[str, ...],
        output: str | None, seed: int, check: bool,
        atol: float | None, rtol: float | None, bench: bool, min_time: float, min_samples: int,
        max_noise: float, timeout: float, profile: bool, trace: str | None, memory: bool,
        bisect: bool, json_target: str | None, quiet: bool, verbose: bool) -> int:
    """Run MODEL (a model.json file, or an .onnx file).

    Inputs come from --input, else from the model's sample, else they are random. With a sample, the
    outputs are compared with the expected ones and the exit code is 1 when they differ.

    \b
    ge2 run model.json
    ge2 run model.json --input x=x.npy --output results/
    ge2 run model.json --sym batch=32 --check --bench
    """
    report = Report(json_target, quiet=quiet, verbose=verbose)
    model = open_model(path, backend, device, report, tuning, memory_budget)
    if memory_budget is not None and model.backend == "cpu":
        report.message("ge2: the cpu backend has no arena: --memory-budget is not used")
    feeds = gather_feeds(model, inputs, parse_symbols(symbols, model.symbols), seed)
    report.message(f"inputs: {feeds.source}")
    start = time.perf_counter()
    results = to_host(model.run(feeds.arrays))
    seconds = time.perf_counter() - start
    report.line(f"{model.graph.name}: {len(model.graph.nodes)} nodes on {model.backend}, "
                f"first run {human_time(seconds)}")
    report.data = {"model": path, "name": model.graph.name, "backend": model.backend,
                   "inputs": feeds.source, "first_run_seconds": seconds}
    if report.verbose:
        from .run_tools import tell_plan

        tell_plan(model, feeds.symbols, report)
    _describe(results, report)
    if output is not None:
        _write(results, Path(output), report)
    ok = _check_sample(model, feeds, results, atol, rtol, report)
    if check:
        ok = _check_reference(model, feeds, results, atol, rtol, report) and ok
    if bisect:
        from .run_tools import bisect_model

        ok = bisect_model(model, feeds.arrays, atol, rtol, report) and ok
    if memory:
        from .run_tools import report_memory

        report_memory(model, feeds.arrays, seconds, report)
    if profile or trace:
        _profile(model, feeds, profile, trace, report)
    if bench:
        from .bench import Criteria, bench_model

        bench_model(model, feeds.arrays, Criteria(min_time, min_samples, max_noise, timeout),
                    report)
    report.data["ok"] = ok
    report.finish()
    return 0 if ok else 1


def _profile(model: Model, feeds: Feeds, shown: bool, trace: str | None, report: Report) -> None:
    from .node_profile import profile_model, report_profile, write_trace

    rows = profile_model(model, feeds.arrays)
    if shown:
        report_profile(rows, report)
    if trace:
        write_trace(rows, trace)
        report.message(f"wrote {trace}")


def open_model(path: str, backend: str | None, device: int | None, report: Report,
               tuning: str | None = None, memory_budget: int | None = None) -> Model:
    """Load a model for a backend and say why, where the backend is not the obvious one."""
    from ..model import load
    from ..model.backend import INSTALL_LINE, choose_backend, cuda_device_count, has_cupy

    choice = choose_backend(backend)
    if choice.note:
        report.message(f"ge2: {choice.note}")
    if device is not None and choice.name != "cuda":
        report.message(f"ge2: the {choice.name} backend has no devices: --device is not used")
    if choice.name == "cuda":
        count, why = cuda_device_count()
        if not count:
            raise EnvironmentUnusable(f"no CUDA device: {why}",
                                      hint="Use --backend cpu, or see ge2 doctor")
        if not has_cupy():
            raise EnvironmentUnusable("cupy is not installed", hint=f"{INSTALL_LINE}")
    model = load(Path(path), backend=choice.name, device=device, tuning=tuning)
    for note in model.notes:
        report.message(f"note: {note}")
    model.memory_budget = memory_budget
    return model


def parse_symbols(pairs: tuple[str, ...], known: list[str]) -> dict[str, int]:
    """Return the values of --sym name=N options; known are the model's named dimensions."""
    values = {}
    for pair in pairs:
        name, equals, number = pair.partition("=")
        if not equals or not number.isdecimal() or len(number) > 15:
            raise click.BadParameter(f"{pair!r} is not NAME=N with a whole number",
                                     param_hint="--sym")
        if name in values:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--sym")
        if name not in known:
            raise click.BadParameter(f"the model has no named dimension {name!r}; it has: "
                                     f"{', '.join(known) or 'none'}", param_hint="--sym")
        values[name] = int(number)
    return values


def gather_feeds(model: Model, options: tuple[str, ...], symbols: dict[str, int], seed: int
                 ) -> Feeds:
    """Return the inputs from files, else from the sample, else random ones."""
    from ..model.data import check_feeds, random_feeds

    if options:
        arrays = _read_inputs(model, options)
        values = check_feeds(model.inputs, arrays, symbols)
        return Feeds(arrays, f"files ({', '.join(options)})", values)
    if model.sample is not None and not symbols:
        arrays = model.sample.feeds()
        return Feeds(arrays, "the model's sample", check_feeds(model.inputs, arrays))
    values = {name: symbols.get(name, 1) for name in model.symbols}
    sizes = "".join(f", {name}={value}" + ("" if name in symbols else " (set it with --sym)")
                    for name, value in values.items())
    return Feeds(random_feeds(model.inputs, values, seed), f"random, seed {seed}{sizes}", values)


def to_host(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays of any kind as NumPy arrays."""
    from ..model.model import to_numpy

    return {name: to_numpy(array) for name, array in results.items()}


def _read_inputs(model: Model, options: tuple[str, ...]) -> dict[str, Any]:
    from ..model.data import read_array, read_arrays

    arrays: dict[str, Any] = {}
    names = list(model.inputs)
    for option in options:
        name, equals, file = option.partition("=")
        if not equals:
            name, file = "", option
        found = {}
        if name:
            if name not in model.inputs:
                raise ModelError(f"--input {option}: the model has no input {name!r}",
                                 wanted=", ".join(f"{n}: {t}" for n, t in model.inputs.items()),
                                 hint=near_matches(name, names))
            found[name] = read_array(Path(file), model.inputs[name], name)
        elif len(names) == 1:
            found[names[0]] = read_array(Path(file), model.inputs[names[0]], names[0])
        else:
            found = read_arrays(Path(file))
        for key, array in found.items():
            if key in arrays:
                raise ModelError(f"--input {option}: input {key!r} is given twice")
            arrays[key] = array
    return arrays


def _describe(results: Mapping[str, Any], report: Report) -> None:
    import numpy as np

    described = {}
    for name, array in results.items():
        values = array.astype(np.float64)
        finite = values[np.isfinite(values)]
        low, high, mean = ((float(finite.min()), float(finite.max()), float(finite.mean()))
                           if finite.size else (0.0, 0.0, 0.0))
        odd = int(values.size - finite.size)
        shape = ", ".join(map(str, array.shape))
        text = f"  {name}: {array.dtype}[{shape}]"
        if finite.size:
            text += f"  min {low:.6g}  max {high:.6g}  mean {mean:.6g}"
        report.line(text + (f"  {bad(f'{odd} NaN or Inf')}" if odd else ""))
        described[name] = {"dtype": str(array.dtype), "shape": array.shape, "min": low,
                           "max": high, "mean": mean, "nan_or_inf": odd}
    report.data["outputs"] = described


def _write(results: Mapping[str, Any], target: Path, report: Report) -> None:
    import numpy as np

    from ..model.data import as_native

    arrays = {name: as_native(array) for name, array in results.items()}
    try:
        if target.suffix in (".npy", ".csv"):
            if len(arrays) != 1:
                raise click.BadParameter(f"{target.name} holds one array, the model has "
                                         f"{len(arrays)} outputs; name a folder or an .npz",
                                         param_hint="--output")
            array, = arrays.values()
            if target.suffix == ".npy":
                np.save(target, array)
            else:
                np.savetxt(target, array.reshape(array.shape[0] if array.ndim else 1, -1),
                           delimiter=",", fmt="%.9g")
        elif target.suffix == ".npz":
            np.savez(target, **arrays)  # type: ignore[arg-type]
        else:
            target.mkdir(parents=True, exist_ok=True)
            for name, array in arrays.items():
                np.save(target / f"{_file_name(name)}.npy", array)
    except OSError as error:
        raise ModelError(f"--output {target} cannot be written: {error.strerror}") from None
    report.message(f"wrote {target}")


def _file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)


def _indented(label: str, item: Comparison) -> str:
    """Return a comparison's report behind a label, its further lines below."""
    color = good if item.ok else bad
    return f"  {color(label)}{' ' * (10 - len(label))}" + item.report().replace("\n", "\n    ")


def _check_sample(model: Model, feeds: Feeds, results: Mapping[str, Any], atol: float | None,
                  rtol: float | None, report: Report) -> bool:
    if model.sample is None or feeds.source != "the model's sample":
        return True
    compared = model.sample.compare(results, atol=atol, rtol=rtol)
    for item in compared:
        report.line(_indented("expected", item))
    rated = model.sample.accuracy(results)
    for accuracy in rated:
        report.line(f"  {accuracy.report()}")
    report.data["expected"] = [item.as_dict() for item in compared]
    report.data["accuracy"] = {a.name: a.right / max(a.total, 1) for a in rated}
    return all(item.ok for item in compared)


def _check_reference(model: Model, feeds: Feeds, results: Mapping[str, Any], atol: float | None,
                     rtol: float | None, report: Report) -> bool:
    import numpy as np

    from ..model.compare import compare, default_tolerance

    model.reset_state()
    wanted = model.reference(feeds.arrays)
    compared = []
    for name, array in results.items():
        tolerance = default_tolerance(model.graph.types[name].dtype)
        compared.append(compare(name, array, np.asarray(wanted[name]),
                                atol=tolerance if atol is None else atol,
                                rtol=tolerance if rtol is None else rtol))
    for item in compared:
        report.line(_indented("check", item))
    report.data["check"] = [item.as_dict() for item in compared]
    return all(item.ok for item in compared)
