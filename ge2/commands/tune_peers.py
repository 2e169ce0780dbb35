"""`ge2 tune --vs torch`: the chosen kernels beside torch on the same problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..compiler.kernels import registry
from ..errors import Ge2Error
from ..evidence.measure import Candidate, measure, rotations
from ..problem import Problem, TensorSpec
from .output import Report

if TYPE_CHECKING:
    from ..tune.session import Result
    from ..tune.worker import Target

ROUNDS = 15
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
Call = Callable[[], object]


def compare_with_torch(results: Sequence[Result], target: Target, report: Report) -> None:
    """Print torch's time over ge2's for each problem that torch has an equivalent of."""
    try:
        import torch
    except ImportError:
        report.message("ge2: torch is not installed: nothing to compare with")
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    rows, data = [], []
    for result in results:
        decision = result.outcome.decision if result.outcome else None
        if decision is None:
            continue
        try:
            found = _compare(result.task.problem, decision.variant, target.index)
        except (Ge2Error, RuntimeError) as error:
            report.detail(f"{result.task.label}: {error}")
            continue
        if found is None:
            continue
        own, peer = found
        rows.append((result.task.label, f"{own:.2f}", f"{peer:.2f}", f"{peer / own:.2f}"))
        data.append({"problem": result.task.label, "us": own, "torch_us": peer})
    report.table(("problem", "ge2 us", "torch us", "torch / ge2"), rows,
                 right=frozenset({1, 2, 3}))
    report.data["torch"] = data


def _compare(problem: Problem, variant_id: str, index: int) -> tuple[float, float] | None:
    """Return the times of ge2 and torch, measured interleaved on the same kind of buffers."""
    import torch

    from ..runtime.device import cuda_device

    if any(t is not None and t.dtype not in _DTYPES for t in problem.tensors):
        return None
    device = cuda_device(index)
    l2 = device.profile.l2_bytes
    nbytes = sum(_elements(t) * _itemsize(t) for t in problem.tensors if t is not None)
    cold = rotations(nbytes, l2) <= 512
    count = rotations(nbytes, l2) if cold else 1
    with torch.cuda.device(index):
        sets = [[None if t is None else _tensor(t, index) for t in problem.tensors]
                for _ in range(count)]
        peer = [_torch_call(problem, tensors) for tensors in sets]
        if any(call is None for call in peer):
            return None
        own = [_own_call(problem, variant_id, tensors, device) for tensors in sets]
        found = measure({
            "ge2": Candidate(own, nbytes),
            "torch": Candidate([_on_stream(call) for call in peer if call], nbytes),
        }, cold=cold, l2_bytes=l2, rounds=ROUNDS)
    return found["ge2"].median, found["torch"].median


def _elements(spec: TensorSpec) -> int:
    return spec.max_offset + 1 if spec.size else 0


def _itemsize(spec: TensorSpec) -> int:
    from ..contract import DTYPES

    return DTYPES[spec.dtype].itemsize


def _tensor(spec: TensorSpec, index: int) -> Any:
    import torch

    flat = torch.randn(max(_elements(spec), 1), device=f"cuda:{index}").to(
        getattr(torch, _DTYPES[spec.dtype]))
    return flat.as_strided(spec.shape, spec.strides)


def _own_call(problem: Problem, variant_id: str, tensors: Sequence[Any], device: Any
              ) -> Callable[[int], object]:
    from .. import launch_table
    from ..runtime.memory import SCRATCH
    from ..tune.bench import units_of_call

    variant = registry.variant(variant_id)
    records = launch_table.bind(problem, variant, device.profile, prepare=True)
    workspace = max((r.workspace for r in records), default=0)
    words = max((r.semaphores for r in records), default=0)
    scratch = SCRATCH.get(device, 0, workspace, words) if workspace or words else (0, 0)
    addresses = [0 if t is None else t.data_ptr() for t in tensors]
    units = units_of_call(device, records, addresses, *scratch)

    def enqueue(stream: int) -> None:
        for unit in units:
            unit(stream)

    return enqueue


def _on_stream(call: Call) -> Callable[[int], object]:
    import torch

    def enqueue(stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            call()

    return enqueue


def _torch_call(problem: Problem, tensors: Sequence[Any]) -> Call | None:
    """Return the call with which a torch user would solve the problem; None: no one call."""
    make = {"GEMM_BIAS_ACT": _gemm_call, "ROW": _row_call, "CONV2D": _conv_call}.get(
        problem.op_type)
    return make(problem, tensors) if make else None


def _gemm_call(problem: Problem, tensors: Sequence[Any]) -> Call:
    import torch

    attrs = problem.attr_map
    a, b, bias = tensors[:3]
    a = a.transpose(-1, -2) if attrs["trans_a"] else a
    b = b.transpose(-1, -2) if attrs["trans_b"] else b
    out = tensors[-1]
    if a.dim() == 2 and bias is not None and bias.stride(0) == 0:
        row = bias[0]
        return lambda: torch.addmm(row, a, b, out=out)
    return lambda: torch.matmul(a, b, out=out)


def _row_call(problem: Problem, tensors: Sequence[Any]) -> Call | None:
    import torch

    name = getattr(problem.attr_map["row"], "name", "")
    x = tensors[0]
    if name == "softmax":
        return lambda: torch.softmax(x, -1)
    if name == "layer_norm" and len(tensors) == 4:
        scale, bias = (t[(0,) * (t.dim() - 1)] for t in tensors[1:3])
        return lambda: torch.nn.functional.layer_norm(x, x.shape[-1:], scale, bias)
    if name in ("sum", "mean"):
        function = getattr(torch, name)
        return lambda: function(x, -1)
    return None


def _conv_call(problem: Problem, tensors: Sequence[Any]) -> Call | None:
    import torch

    attrs: Any = problem.attr_map
    pads = attrs["pads"]
    x, w, bias = tensors[:3]
    if tuple(pads[:2]) != tuple(pads[2:]):
        return None
    return lambda: torch.nn.functional.conv2d(
        x, w, bias, attrs["strides"], tuple(pads[:2]), attrs["dilations"], attrs["group"])
