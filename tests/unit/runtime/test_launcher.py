"""Plain launchers called directly, with no graph: statuses, last_error, look-up and patching."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import ge2.launch_table as table
from ge2.compiler.ir.expr import ExprBundle, input
from ge2.contract import GE2_API_VERSION, STATUS_EXCEPTIONS, Status
from ge2.errors import CompileFailed, LaunchFailed, OutOfMemory
from ge2.launch.params import encode_params
from ge2.launch.schemas import kernel_op
from ge2.problem import Problem, TensorSpec

from .fake_device import FakeDevice

ADD = ExprBundle((input(0) + input(1),))
X, Y, OUT = 0x10000, 0x20000, 0x30000


def _problem(n: int = 64, dtype: str = "f32", **change: TensorSpec) -> Problem:
    dense = TensorSpec.dense(dtype, (n,))
    return Problem("ELEMENTWISE", (change.get("x", dense), change.get("y", dense)),
                   (change.get("out", dense),), (("expr", ADD),))


def _call(device: FakeDevice, problem: Problem, bufs: tuple[int, ...] = (X, Y, OUT),
          name: str = "elementwise_strided", **trailer: int) -> int:
    block = encode_params(problem, **trailer)
    return table.launcher(name, device)([*bufs, block.ctypes.data], len(bufs) + 1, 7)


def test_a_good_call_launches_on_the_stream_with_the_addresses() -> None:
    device = FakeDevice()
    assert _call(device, _problem()) == 0
    assert table.last_error() is None
    (record, args, stream), = device.launched
    assert stream == 7
    words = {int.from_bytes(args[r.offset:r.offset + 8], "little") for r in record.relocs}
    assert words == {X, Y, OUT}


def test_every_registered_kernel_has_a_launcher_attribute() -> None:
    assert "elementwise_strided" in table.names()
    for name in table.names():
        launcher = getattr(table, f"ge2_launch_{name}")
        assert launcher.__name__ == f"ge2_launch_{name}"
        assert getattr(table, f"ge2_launch_{name}") is launcher


def test_an_unknown_launcher_names_near_matches() -> None:
    with pytest.raises(AttributeError, match="elementwise_strided"):
        table.ge2_launch_elementwise_stride  # noqa: B018


def test_empty_outputs_are_solved_by_no_launch() -> None:
    device = FakeDevice()
    assert _call(device, _problem(0), (0, 0, 0)) == 0
    assert device.launched == []


BAD = TensorSpec("f32", (64,), (0,))


@pytest.mark.parametrize(("problem", "bufs", "status", "argument"), [
    (_problem(out=TensorSpec.dense("f32", (65,))), (X, Y, OUT), Status.SHAPE_MISMATCH, "xs[0]"),
    (_problem(out=BAD), (X, Y, OUT), Status.STRIDE_MISMATCH, "output 0"),
    (_problem(), (0, Y, OUT), Status.MISSING_INPUT, "xs[0]"),
    (_problem(), (X, Y, 0), Status.MISSING_INPUT, "output 0"),
    (_problem(), (X + 2, Y, OUT), Status.STRIDE_MISMATCH, "xs[0]"),
    (_problem(), (X, Y), Status.INVALID, "n"),
])
def test_bad_calls_return_their_status_and_name_the_argument(
        problem: Problem, bufs: tuple[int, ...], status: Status, argument: str) -> None:
    device = FakeDevice()
    assert _call(device, problem, bufs) == status
    error = table.last_error()
    assert error is not None and error.status == status and error.argument == argument
    assert device.launched == []
    with pytest.raises(STATUS_EXCEPTIONS[status]):
        table.raise_for_status(status)


def _with(change: str) -> tuple[FakeDevice, np.ndarray]:
    device, block = FakeDevice(), encode_params(_problem())
    match change:
        case "version":
            block["header"]["api_version"] = 99
        case "size":
            block["header"]["struct_size"] = 2**31
        case "dtype":
            block["tensors"][1]["dtype"] = 42
        case "absent":
            block["tensors"][1]["rank"] = -1
        case "foreign":
            device.foreign.add(Y)
        case "compile":
            device.compile_error = CompileFailed("no")
        case "launch":
            device.launch_error = LaunchFailed("no")
        case "surprise":
            device.launch_error = RuntimeError("out of the blue")
        case "memory":
            device.compile_error = OutOfMemory("no")
        case "host memory":
            device.launch_error = MemoryError("no")
    return device, block


@pytest.mark.parametrize(("change", "status"), [
    ("version", Status.API_VERSION),
    ("size", Status.INVALID),
    ("dtype", Status.DTYPE_MISMATCH),
    ("absent", Status.MISSING_INPUT),
    ("foreign", Status.DEVICE_MISMATCH),
    ("compile", Status.COMPILE_FAILED),
    ("launch", Status.LAUNCH_FAILED),
    ("memory", Status.OUT_OF_MEMORY),
    ("host memory", Status.OUT_OF_MEMORY),
    ("surprise", Status.INVALID),
])
def test_every_failure_is_a_status_and_never_an_exception(change: str, status: Status) -> None:
    device, block = _with(change)
    launch = table.launcher("elementwise_strided", device)
    assert launch([X, Y, OUT, block.ctypes.data], 4, 0) == status


@pytest.mark.parametrize("bufs", [None, [], ["x", "y", "z", "p"], [X, Y, OUT, 0], [1.5] * 4])
def test_nonsense_buffers_are_invalid(bufs: object) -> None:
    launch = table.launcher("elementwise_strided", FakeDevice())
    assert launch(bufs, 4, 0) == Status.INVALID  # type: ignore[arg-type]


def test_a_kernel_that_cannot_take_the_problem_is_unsupported() -> None:
    strided = TensorSpec("f32", (64,), (2,))
    assert _call(FakeDevice(), _problem(x=strided, y=strided), name="elementwise_vec"
                 ) == Status.UNSUPPORTED


def test_errors_are_kept_per_thread() -> None:
    _call(FakeDevice(), _problem(), (0, Y, OUT))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(table.last_error()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert table.last_error() is not None


def test_a_success_clears_the_last_error() -> None:
    _call(FakeDevice(), _problem(), (0, Y, OUT))
    _call(FakeDevice(), _problem())
    assert table.last_error() is None


def test_a_second_call_with_other_addresses_binds_nothing_again() -> None:
    device = FakeDevice()
    launch, block = table.launcher("elementwise_strided", device), encode_params(_problem())
    for base in (X, X + 4096, X + 8192):
        assert launch([base, Y, OUT, block.ctypes.data], 4, 0) == 0
    assert len(device.prepared) == 1 and len(device.launched) == 3
    assert len({args for _, args, _ in device.launched}) == 3


def test_a_block_that_changed_in_place_is_read_anew() -> None:
    device = FakeDevice()
    launch, block = table.launcher("elementwise_strided", device), encode_params(_problem())
    bufs = [X, Y, OUT, block.ctypes.data]
    assert launch(bufs, 4, 0) == 0
    block["tensors"]["shape"][:, 0] = 32
    assert launch(bufs, 4, 0) == 0
    assert len(device.prepared) == 2
    block["header"]["api_version"] = GE2_API_VERSION + 1
    assert launch(bufs, 4, 0) == Status.API_VERSION


def test_another_alignment_class_is_bound_anew() -> None:
    device = FakeDevice()
    launch, block = table.launcher("elementwise_vec", device), encode_params(_problem())
    assert launch([X, Y, OUT, block.ctypes.data], 4, 0) == 0
    assert launch([X + 4, Y + 4, OUT + 4, block.ctypes.data], 4, 0) in (0, Status.UNSUPPORTED)
    assert launch([X + 8, Y + 8, OUT + 8, block.ctypes.data], 4, 0) == 0
    assert len({record for record, _, _ in device.launched}) == len(device.launched)


def test_query_capability_knows_keys_archs_and_changed_scores() -> None:
    key = "ELEMENTWISE__elementwise_strided"
    score = table.query_capability(key)
    assert score > 0
    assert table.query_capability("GEMM_BIAS_ACT__elementwise_strided") == 0
    assert table.query_capability("ELEMENTWISE__nothing") == 0
    assert table.query_capability("nonsense") == 0
    table.set_capability(key, 7)
    try:
        assert table.query_capability(key) == 7
    finally:
        table.set_capability(key, score)


def _gemm(n_inputs: int = 2, act: str = "relu", dtype: str = "f32", **strides: tuple[int, ...],
          ) -> Problem:
    a = TensorSpec(dtype, (64, 64), strides.get("a", (64, 1)))
    square = TensorSpec.dense(dtype, (64, 64))
    bias = TensorSpec(dtype, (64, 64), (0, 1))
    inputs = (a, square, bias, None)[:n_inputs]
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 1.0, "act": act,
             "leaky_slope": 0.01, "epilogue": None}
    return Problem("GEMM_BIAS_ACT", inputs, (square,), tuple(sorted(attrs.items())))


@pytest.mark.parametrize("n_inputs", [2, 3, 4])
def test_optional_inputs_at_the_end_may_be_left_out(n_inputs: int) -> None:
    device = FakeDevice()
    bufs = (X, Y, 0x50000, 0)[:n_inputs]
    assert _call(device, _gemm(n_inputs), (*bufs, OUT), "gemm_bias_act_f32") == 0
    (record, args, _), = device.launched
    words = {r.slot: int.from_bytes(args[r.offset:r.offset + 8], "little") for r in record.relocs}
    assert words[0] == X and words[1] == Y and words[4] == OUT
    assert words.get(2, 0) == (0x50000 if n_inputs > 2 else 0)


def test_the_epilogue_comes_from_the_activation_code() -> None:
    device = FakeDevice()
    for act in ("none", "relu", "gelu"):
        assert _call(device, _gemm(act=act), (X, Y, OUT), "gemm_bias_act_f32") == 0
    assert len({record.kernel for record, _, _ in device.launched}) == 3


def test_a_layout_that_the_kernel_does_not_take_is_told_apart() -> None:
    problem = _gemm(dtype="f16", a=(128, 2))
    status = _call(FakeDevice(), problem, (X, Y, OUT), "gemm_bias_act_wgmma")
    assert status == Status.LAYOUT_MISMATCH
    error = table.last_error()
    assert error is not None and error.argument == "layout"


def test_a_dtype_that_the_kernel_does_not_take_is_a_dtype_mismatch() -> None:
    assert _call(FakeDevice(), _gemm(dtype="f32"), (X, Y, OUT), "gemm_bias_act_tc_f16"
                 ) == Status.DTYPE_MISMATCH


def test_an_architecture_that_the_kernel_does_not_run_on_is_unsupported() -> None:
    assert _call(FakeDevice("sm_80"), _gemm(dtype="f16"), (X, Y, OUT), "gemm_bias_act_wgmma"
                 ) == Status.UNSUPPORTED
    from ge2.evidence.device import profile_for

    key = "GEMM_BIAS_ACT__gemm_bias_act_wgmma"
    assert table.query_capability(key, profile_for("sm_80")) == 0
    assert table.query_capability(key, profile_for("sm_90a")) > 0


def test_scratch_comes_from_the_block_or_from_the_stream_s_pool() -> None:
    spec = TensorSpec.dense("f32", (64, 64))
    problem = Problem("LAB_NORMALIZE_SUM", (spec,), (spec,))
    device = FakeDevice()

    def first_args() -> bytes:
        return next(args for record, args, _ in device.launched if record.semaphores)

    assert _call(device, problem, (X, OUT), "lab_normalize_sum") == 0
    once = first_args()
    device.launched.clear()
    assert _call(device, problem, (X, OUT), "lab_normalize_sum") == 0
    assert first_args() == once  # the same buffers again
    device.launched.clear()
    assert _call(device, problem, (X, OUT), "lab_normalize_sum", workspace=0x7000000,
                 workspace_size=1 << 20, semaphores=0x8000000) == 0
    assert (0x7000000).to_bytes(8, "little") in first_args()
    assert (0x8000000).to_bytes(8, "little") in first_args()
    assert _call(device, problem, (X, OUT), "lab_normalize_sum", workspace=0x7000000,
                 workspace_size=1, semaphores=0x8000000) == Status.INVALID


def _dense(*shape: int, dtype: str = "f32") -> TensorSpec:
    return TensorSpec.dense(dtype, shape)


def _of(op_type: str, inputs: tuple[TensorSpec, ...], out: TensorSpec, **attrs: object) -> Problem:
    given = {a.name: a.default for a in kernel_op(op_type).attrs} | attrs
    return Problem(op_type, inputs, (out,), tuple(sorted(given.items())))


IMAGE, FILTERS, RESULT = _dense(1, 4, 5, 5), _dense(2, 4, 3, 3), _dense(1, 2, 3, 3)
TABLE, PAIR = _dense(2, 3), _dense(2, dtype="i32")


@pytest.mark.parametrize(("name", "problem", "status", "argument"), [
    ("conv2d_direct", _of("CONV2D", (IMAGE, FILTERS), RESULT), Status.OK, ""),
    ("conv2d_direct", _of("CONV2D", (IMAGE, FILTERS), _dense(1, 2, 9, 9)),
     Status.SHAPE_MISMATCH, "output 0"),
    ("conv2d_direct", _of("CONV2D", (IMAGE, FILTERS, _dense(1)), RESULT),
     Status.SHAPE_MISMATCH, "bias"),
    ("conv2d_direct", _of("CONV2D", (IMAGE, FILTERS), RESULT, group=0), Status.INVALID, "group"),
    ("conv2d_direct", _of("CONV2D", (IMAGE, FILTERS), RESULT, strides=(0, 1)),
     Status.INVALID, "strides"),
    ("conv2d_direct", _of("CONV2D", (IMAGE, FILTERS), RESULT, pads=(1,)), Status.INVALID, "pads"),
    ("pool2d", _of("POOL2D", (IMAGE,), _dense(1, 4, 3, 3), kernel_shape=(3, 3)), Status.OK, ""),
    ("pool2d", _of("POOL2D", (IMAGE,), IMAGE, kernel_shape=(3, 3)),
     Status.SHAPE_MISMATCH, "output 0"),
    ("pool2d", _of("POOL2D", (IMAGE,), RESULT, kernel_shape=()), Status.INVALID, "kernel_shape"),
    ("concat_copy", _of("CONCAT", (TABLE, TABLE), _dense(4, 3), axis=2), Status.INVALID, "axis"),
    ("gather", _of("GATHER", (TABLE, PAIR), TABLE, axis=-1), Status.INVALID, "axis"),
    ("gather", _of("GATHER", (TABLE, PAIR), _dense(2, 3, dtype="f16"), axis=0),
     Status.DTYPE_MISMATCH, "x"),
    ("elementwise_vec", _of("ELEMENTWISE", (TABLE,), TABLE, expr=None), Status.INVALID, "expr"),
    ("row_warp", _of("ROW", (TABLE,), TABLE, row=None), Status.INVALID, "row"),
    ("row_warp", _of("ROW", (TABLE,), TABLE, row=ADD), Status.INVALID, "row"),
    ("lab_normalize_sum", _of("LAB_NORMALIZE_SUM", (TABLE,), IMAGE),
     Status.SHAPE_MISMATCH, "output 0"),
])
def test_what_a_kernel_would_read_or_write_out_of_bounds_is_refused(
        name: str, problem: Problem, status: Status, argument: str) -> None:
    bufs = tuple(0x10000 * (i + 1) for i in range(len(problem.tensors)))
    assert _call(FakeDevice(), problem, bufs, name) == status
    error = table.last_error()
    assert (error.argument if error else "") == argument
