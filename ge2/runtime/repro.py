"""A launch that failed as a folder that launches it again: source, record, sizes of its buffers.

    python FOLDER/run.py [cuda|emulate]

The contents of the buffers are not kept: they are zero, or unwritten with the emulator.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..compiler.kernels import source as sources_of
from ..compiler.plan import Step
from ..contract import GE2_API_VERSION
from ..errors import Ge2Error
from ..launch.record import KernelSource, LaunchRecord, Reloc, TensorMapSpec
from . import failures

if TYPE_CHECKING:
    from .device import Device, Unit

_SCRIPT = '''\
"""Launches the kernel of this folder: python run.py [cuda|emulate]"""

import sys
from pathlib import Path

from ge2.runtime.repro import launch_again

launch_again(Path(__file__).parent, sys.argv[1] if len(sys.argv) > 1 else "{kind}")
print("the launch succeeded")
'''


def explain(error: Ge2Error, unit: Unit, step: Step, offsets: tuple[int, ...],
            nbytes: tuple[int, ...], device: Device) -> None:
    """Make the error of a failed launch name its node, and the folder that launches it again."""
    error.args = (f"node {step.node.name!r} ({step.node.op}), kernel "
                  f"{unit.record.kernel.entry}: {error}",)
    folder = save(unit, step, offsets, nbytes, device, error)
    if folder:
        error.add_note(f"{folder} has what is needed to launch it again")


def save(unit: Unit, step: Step, offsets: tuple[int, ...], nbytes: tuple[int, ...],
         device: Device, error: Exception) -> Path | None:
    """Write the folder of a failed launch and return it; None where no disk takes it.

    Args:
        unit: what failed.
        step: what it belongs to.
        offsets: of the step's buffers in their roots.
        nbytes: of the roots.
        device: where it failed.
        error: how.
    """
    record = unit.record
    sizes = [None if ref is None else nbytes[ref.root] - offset
             for ref, offset in zip(step.buffers, offsets[:-1], strict=True)]
    about = {
        "ge2_repro": 1, "api_version": GE2_API_VERSION, "error": str(error),
        "node": step.node.name, "op": step.node.op, "arch": device.profile.arch,
        "device": device.profile.name, "buffers": sizes,
        "workspace": nbytes[step.workspace.root] if step.workspace else 0,
        "semaphores": 4 * max(int.__index__(r.semaphores) for r in step.records),
        "record": _record_dict(unit),
    }
    text = json.dumps(about, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return failures.write(f"{record.kernel.entry}-{digest}", {
        "launch.json": text, "kernel.cu": sources_of.render(record.kernel),
        "run.py": _SCRIPT.replace("{kind}", device.kind)})


def _record_dict(unit: Unit) -> dict[str, Any]:
    record = unit.record
    return {
        "kernel": asdict(record.kernel), "grid": unit.grid, "block": record.block,
        "cluster": record.cluster, "smem": record.smem, "pdl": record.pdl,
        "cooperative": record.cooperative, "args": unit.args.tobytes().hex(),
        "relocs": [asdict(reloc) for reloc in unit.args.relocs()],
        "tensor_maps": [m._asdict() for m in unit.args.maps],
    }


def load(folder: Path) -> tuple[LaunchRecord, dict[str, Any]]:
    """Return the record of a saved launch, and everything else that is known of it."""
    about = json.loads((folder / "launch.json").read_text("utf-8"))
    given = {key: _tuples(value) for key, value in about["record"].items()}
    kernel = {key: _tuples(value) for key, value in about["record"]["kernel"].items()}
    given |= {
        "kernel": KernelSource(**kernel), "args": bytes.fromhex(given["args"]),
        "relocs": tuple(Reloc(**reloc) for reloc in given["relocs"]),
        "tensor_maps": tuple(TensorMapSpec(**{k: _tuples(v) for k, v in m.items()})
                             for m in given["tensor_maps"]),
    }
    return LaunchRecord(**given), about


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def launch_again(folder: Path, backend: str) -> None:
    """Launch a saved kernel once and wait.

    Raises:
        Ge2Error: it fails again.
    """
    from .device import EmulatedDevice, cuda_device, default_index

    record, about = load(folder)
    device: Device = (EmulatedDevice(about["arch"]) if backend == "emulate"
                      else cuda_device(default_index()))
    sizes = [*about["buffers"], about["workspace"], about["semaphores"]]
    held = [device.allocate(n, zero=True) if n else None for n in sizes]
    *buffers, workspace, semaphores = (memory.address if memory else 0 for memory in held)
    (unit,) = device.prepare([record])
    unit.args.patch(buffers, workspace, semaphores)
    with device.active():
        unit(0)
        device.synchronize(0)

