"""How long a process takes to its first result, with empty and with full caches; its memory.

    python -m bench.model_start ge2 FOLDER BATCH LENGTH [DEVICE]

is one such process: it prints when it reached what, as JSON. bench.models starts them and takes
the differences.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .minilm import build, sentences
from .targets import Verdict

LIMIT_S = 240.0
FORM = "f16"
CACHES = ("GE2_CACHE_DIR", "GE2_DATA_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
          "CUDA_CACHE_PATH")
TARGETS_S = {"cold": 4.0, "warm": 1.0}
MEMORY = 1.5  # times the plan's arena and weights: modules, graphs and cupy's pool take some
Marks = dict[str, float]


def ge2_process(folder: Path, batch: int, length: int, device: str) -> dict[str, Any]:
    """Load the model, run it twice on NumPy arrays."""
    marks: Marks = {}
    import numpy as np

    import ge2

    marks["import"] = time.time()
    free: list[int] = []
    if device == "cuda":
        from ge2 import paths

        paths.let_cupy_start()
        import cupy

        free.append(cupy.cuda.runtime.memGetInfo()[0])  # makes the context
    marks["context"] = time.time()
    model = ge2.load(folder / "model.json", backend=device)
    marks["loaded"] = time.time()
    ids, mask = _sentences(folder, batch, length)
    result = model(ids=ids, mask=mask)["embedding"]
    marks["first"] = time.time()
    model(ids=ids, mask=mask)
    marks["second"] = time.time()
    assert np.isfinite(result).all()
    found: dict[str, Any] = {"marks": marks}
    if device == "cuda":
        free.append(cupy.cuda.runtime.memGetInfo()[0])
        plan = model.executable.plan({"ids": ids.shape, "mask": mask.shape})
        weights = sum(a.nbytes for a in model.optimized.graph.constants.values())
        found["memory"] = {"taken": free[0] - free[1], "plan": plan.arena_bytes + weights,
                           "arena": plan.arena_bytes, "weights": weights}
    return found


def torch_process(folder: Path, batch: int, length: int, device: str, mode: str
                  ) -> dict[str, Any]:
    """Compile the module, run it twice on NumPy arrays."""
    marks: Marks = {}
    import torch

    from .minilm_torch import Encoder

    marks["import"] = time.time()
    torch.zeros(1, device=device)
    marks["context"] = time.time()
    module = Encoder(folder, getattr(torch, {"f16": "float16"}[FORM])).to(device)
    marks["loaded"] = time.time()
    call = torch.compile(module, mode=mode, dynamic=False)
    given = [torch.from_numpy(array).to(device) for array in _sentences(folder, batch, length)]
    with torch.no_grad():
        for name in ("first", "second"):
            assert call(*given).cpu().isfinite().all()
            marks[name] = time.time()
    return {"marks": marks}


def _sentences(folder: Path, batch: int, length: int) -> tuple[Any, Any]:
    config = json.loads((folder / "config.json").read_text())
    return sentences(config, batch, length, ragged=True)


def seconds(began: float, marks: Mapping[str, float]) -> Marks:
    """Return what a process's marks mean.

    Returns:
        Seconds from the start of the process to the first result ("total"), from the end of the
        import, and from the context, to the first result; of the import and of a second call.
    """
    return {"total": marks["first"] - began, "import": marks["import"] - began,
            "after_import": marks["first"] - marks["import"],
            "after_context": marks["first"] - marks["context"],
            "load": marks["loaded"] - marks["context"],
            "second_call": marks["second"] - marks["first"]}


def starts(folder: Path, batch: int, length: int, without: Sequence[str] = (),
           device: str = "cuda") -> dict[str, Any]:
    """Return the seconds of ge2 and torch.compile, each with empty and then with full caches."""
    figures: dict[str, Any] = {"batch": batch, "form": FORM}
    with tempfile.TemporaryDirectory() as scratch:
        saved = Path(scratch) / "model"
        build(folder, FORM).save(saved / "model.json")
        (saved / "config.json").write_bytes((folder / "config.json").read_bytes())
        for who in ("ge2", "compile", "max-autotune"):
            if who in without:
                continue
            place = saved if who == "ge2" else folder
            caches = {name: f"{scratch}/{who}/{name}" for name in CACHES}
            for state in ("cold", "warm"):
                try:
                    row = _child(who, place, batch, length, device, caches)
                    show(who, state, row)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    click.echo(f"FAIL start {who} {state}: {str(error)[-400:]}")
                    row = {"failed": str(error)[-400:]}
                figures[f"{who} {state}"] = row
    return figures


def start_verdicts(rows: Mapping[str, Any]) -> Iterator[Verdict]:
    """Yield what the targets say of ge2's starts, and of its memory beside the plan's."""
    for state, key in (("cold", "total"), ("warm", "after_import")):
        row = rows.get(f"ge2 {state}", {})
        if key in row:
            goal = TARGETS_S[state]
            yield Verdict(f"{state} start to the first result, B32", f"ge2 {key}", goal, row[key],
                          row[key] <= goal, at_most=True, unit="s")
        if row.get("memory"):
            ratio = row["memory"]["taken"] / row["memory"]["plan"]
            yield Verdict("memory taken, by the plan", f"ge2 {state}", MEMORY, ratio,
                          ratio <= MEMORY, at_most=True)


def _child(who: str, folder: Path, batch: int, length: int, device: str,
           caches: Mapping[str, str]) -> dict[str, Any]:
    """Return what one process took.

    Raises:
        RuntimeError: it failed.
    """
    began = time.time()
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, who, str(folder), str(batch), str(length), device],
        env={**os.environ, **caches}, capture_output=True, text=True, timeout=LIMIT_S,
        check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    return {**seconds(began, found["marks"]), "memory": found.get("memory")}


def show(who: str, state: str, row: Mapping[str, Any]) -> None:
    """Print one line."""
    mark = "    "
    if who == "ge2":
        reached = row["total"] if state == "cold" else row["after_import"]
        mark = "ok  " if reached <= TARGETS_S[state] else "LOW "
    text = "  ".join(f"{name} {row[name]:.2f}" for name in
                     ("total", "import", "after_import", "after_context", "load", "second_call"))
    taken = row["memory"]
    if taken:
        text += f"  memory {taken['taken'] / 1e6:.0f} MB, by the plan {taken['plan'] / 1e6:.0f}"
    click.echo(f"{mark}start {who:12} {state}  {text}")


def main(who: str, folder: str, batch: str, length: str, device: str = "cuda") -> None:
    """Be one process that starts."""
    given = Path(folder), int(batch), int(length), device
    if who == "ge2":
        found = ge2_process(*given)
    else:
        found = torch_process(*given, "default" if who == "compile" else who)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
