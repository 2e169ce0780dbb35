"""What identifies evidence: problems and devices as stable texts, and short digests of them."""

from __future__ import annotations

import hashlib
from functools import lru_cache

from ..problem import Problem, TensorSpec
from .device import DeviceProfile


def problem_text(problem: Problem) -> str:
    """Return everything that a problem is, in one line that no process or platform changes."""
    inputs = (constant_mark(problem, i) + _tensor(t) for i, t in enumerate(problem.inputs))
    tensors = "; ".join(inputs), "; ".join(map(_tensor, problem.outputs))
    attrs = " ".join(f"{name}={_value(value)}" for name, value in problem.attrs)
    return f"{problem.op_type}({tensors[0]}) -> {tensors[1]} {{{attrs}}}"


def constant_mark(problem: Problem, slot: int) -> str:
    """Return what stands before an input that is the same in every call."""
    return "const " if slot in problem.constant else ""


def _tensor(spec: TensorSpec | None) -> str:
    if spec is None:
        return "-"
    shape, strides = (",".join(map(str, v)) for v in (spec.shape, spec.strides))
    return f"{spec.dtype}[{shape}]({strides})@{spec.align}"


def _value(value: object) -> str:
    return str(getattr(value, "text", value)).replace("\n", " | ")


@lru_cache(maxsize=16384)
def problem_key(problem: Problem) -> str:
    """Return the digest of problem_text, 32 hex digits."""
    return hashlib.blake2b(problem_text(problem).encode(), digest_size=16).hexdigest()


def device_key(device: DeviceProfile) -> str:
    """Return what evidence of a device is filed under: name, architecture, multiprocessors."""
    return f"{device.name}|{device.arch}|{device.sm_count}"


def shape_text(problem: Problem) -> str:
    """Return operator, dtypes and shapes for a person; "'" marks strided or broadcast tensors."""
    def text(spec: TensorSpec | None) -> str:
        if spec is None:
            return "-"
        return f"{spec.dtype}[{','.join(map(str, spec.shape))}]{'' if spec.is_dense else chr(39)}"

    inputs = ", ".join(constant_mark(problem, i) + text(t) for i, t in enumerate(problem.inputs))
    return f"{problem.op_type}: {inputs} -> {', '.join(map(text, problem.outputs))}"
