"""The direct GEMM path on emulated kernels, against NumPy in float64."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest

from ge2 import errors
from ge2.compiler.kernels import selector
from ge2.compiler.kernels.lower import lower
from ge2.contract import ActKind, DType, dtype_name
from ge2.evidence.device import PROFILES
from ge2.ops import _ops_gemm as gemm
from ge2.ops import gemm_backward, gemm_forward, gemm_plan
from ge2.runtime.device import EmulatedDevice

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a host C++ compiler")

SLOPE = 0.01


@pytest.fixture(scope="module")
def device():
    return EmulatedDevice("sm_80")


@pytest.fixture(autouse=True)
def _on_emulator(device, monkeypatch):
    for module in (gemm_forward, gemm_backward):
        monkeypatch.setattr(module, "device_for", lambda index: device)
    monkeypatch.setattr(gemm_plan.driver, "settle", lambda index: None)


class Buffer:
    """A device buffer with the values of a NumPy matrix, rows ld elements apart."""

    def __init__(self, device, array, ld=None, offset=0):
        array = np.atleast_2d(array)
        rows, columns = array.shape
        self.ld = ld or max(columns, 1)
        self.shape, self.offset = array.shape, offset
        self.dtype = array.dtype
        self.memory = device.allocate((offset + rows * self.ld) * array.itemsize)
        self._view()[...] = array

    def _view(self):
        import ctypes

        size = self.memory.nbytes // self.dtype.itemsize
        raw = (ctypes.c_char * self.memory.nbytes).from_address(self.memory.address)
        flat = np.frombuffer(raw, self.dtype, size)[self.offset:]
        return np.lib.stride_tricks.as_strided(
            flat, self.shape, (self.ld * self.dtype.itemsize, self.dtype.itemsize))

    def read(self):
        return self._view().copy()

    @property
    def tensor(self):
        return gemm.make_tensor_2d(
            self.memory.address + self.offset * self.dtype.itemsize, self.shape,
            DType[dtype_name(self.dtype).upper()], strides=(self.ld, 1))


def poison(shape, dtype):
    return np.full(shape, np.nan, dtype)


def reference_act(act, z):
    from math import erf

    return {
        ActKind.NONE: lambda: z,
        ActKind.RELU: lambda: np.maximum(z, 0),
        ActKind.GELU: lambda: z * 0.5 * (1 + np.vectorize(erf)(z / np.sqrt(2))),
        ActKind.TANH: lambda: np.tanh(z),
        ActKind.LEAKY_RELU: lambda: np.where(z < 0, SLOPE * z, z),
        ActKind.SILU: lambda: z / (1 + np.exp(-z)),
    }[act]()


def slope_of(act, z, step=1e-6):
    return (reference_act(act, z + step) - reference_act(act, z - step)) / (2 * step)


def matrices(rng, m, n, k, trans_a, trans_b, dtype=np.float32):
    a = rng.standard_normal((k, m) if trans_a else (m, k)).astype(dtype)
    b = rng.standard_normal((n, k) if trans_b else (k, n)).astype(dtype)
    return a, b


def op(x, transposed):
    return x.T.astype(np.float64) if transposed else x.astype(np.float64)


@pytest.mark.parametrize("trans_a,trans_b", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("bias_shape", [None, "scalar", "per_n", "per_m", "full"])
def test_forward_adds_bias_by_shape(device, trans_a, trans_b, bias_shape):
    rng = np.random.default_rng(1)
    m, n, k = 5, 5, 7  # M == N: the shape alone decides
    a, b = matrices(rng, m, n, k, trans_a, trans_b)
    shapes = {"scalar": (1, 1), "per_n": (1, n), "per_m": (m, 1), "full": (m, n)}
    bias = None if bias_shape is None else rng.standard_normal(shapes[bias_shape], np.float32)
    y = Buffer(device, poison((m, n), np.float32), ld=n + 3)
    buffers = [Buffer(device, a, ld=a.shape[1] + 2, offset=1), Buffer(device, b)]
    given = None if bias is None else Buffer(device, bias)
    gemm.forward(buffers[0].tensor, buffers[1].tensor, given and given.tensor, y.tensor,
                 gemm.GemmAttrs(trans_a, trans_b, act=ActKind.RELU), None)
    want = op(a, trans_a) @ op(b, trans_b) + (0 if bias is None else bias)
    np.testing.assert_allclose(y.read(), np.maximum(want, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("act", [ActKind.NONE, ActKind.GELU, ActKind.LEAKY_RELU])
def test_forward_scales_adds_c_and_saves_z(device, act):
    rng = np.random.default_rng(2)
    m, n, k = 4, 9, 3
    a, b = matrices(rng, m, n, k, False, False)
    c = rng.standard_normal((m, n), np.float32)
    y, z = (Buffer(device, poison((m, n), np.float32)) for _ in range(2))
    held = [Buffer(device, x) for x in (a, b, c)]
    gemm.forward(held[0].tensor, held[1].tensor, None, y.tensor,
                 gemm.GemmAttrs(alpha=0.5, beta=-2.0, act=act), None, C=held[2].tensor,
                 Z_out=z.tensor)
    want = 0.5 * op(a, False) @ op(b, False) - 2.0 * c
    np.testing.assert_allclose(z.read(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y.read(), reference_act(act, want), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("m,n,k", [(0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 6, 5)])
def test_forward_takes_empty_and_tiny_sizes(device, m, n, k):
    rng = np.random.default_rng(3)
    a, b = matrices(rng, m, n, k, False, False)
    held = [Buffer(device, a.reshape(m, k)), Buffer(device, b.reshape(k, n))]
    y = Buffer(device, poison((m, n), np.float32))
    gemm.forward(held[0].tensor, held[1].tensor, None, y.tensor, gemm.GemmAttrs())
    np.testing.assert_allclose(y.read(), op(a, False) @ op(b, False), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("trans_a,trans_b", list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("act", [ActKind.NONE, ActKind.TANH, ActKind.SILU, ActKind.GELU])
@pytest.mark.parametrize("saved", [True, False])
def test_backward_gives_every_gradient(device, trans_a, trans_b, act, saved):
    rng = np.random.default_rng(4)
    m, n, k, alpha, beta = 6, 4, 5, 1.5, 0.25
    a, b = matrices(rng, m, n, k, trans_a, trans_b)
    bias = rng.standard_normal((1, n), np.float32)
    c, g_y = (rng.standard_normal((m, n), np.float32) for _ in range(2))
    z = alpha * op(a, trans_a) @ op(b, trans_b) + beta * c + bias
    held = {name: Buffer(device, x) for name, x in
            {"A": a, "B": b, "C": c, "gY": g_y, "Z": z.astype(np.float32), "Bias": bias}.items()}
    grads = {name: Buffer(device, poison(like.shape, np.float32)) for name, like in
             {"gA": a, "gB": b, "gC": c, "gBias": bias}.items()}
    gemm.backward(held["A"].tensor, held["B"].tensor, held["C"].tensor, held["gY"].tensor,
                  held["Z"].tensor if saved else None, grads["gA"].tensor, grads["gB"].tensor,
                  grads["gC"].tensor, grads["gBias"].tensor,
                  gemm.GemmAttrs(trans_a, trans_b, alpha, beta, act), None,
                  Bias=held["Bias"].tensor)
    d_z = g_y * slope_of(act, z)
    g_a = alpha * d_z @ op(b, trans_b).T
    g_b = alpha * op(a, trans_a).T @ d_z
    want = {"gA": g_a.T if trans_a else g_a, "gB": g_b.T if trans_b else g_b, "gC": beta * d_z,
            "gBias": d_z.sum(0, keepdims=True)}
    for name, value in want.items():
        np.testing.assert_allclose(grads[name].read(), value, rtol=2e-4, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("shape", [(1, 1), (6, 1), (1, 4), (6, 4)])
def test_bias_gradient_sums_what_was_broadcast(device, shape):
    rng = np.random.default_rng(5)
    a, b = matrices(rng, 6, 4, 3, False, False)
    g_y = rng.standard_normal((6, 4), np.float32)
    held = [Buffer(device, x) for x in (a, b, g_y)]
    g_bias = Buffer(device, poison(shape, np.float32))
    gemm.backward(held[0].tensor, held[1].tensor, None, held[2].tensor, None, None, None, None,
                  g_bias.tensor, gemm.GemmAttrs())
    axes = tuple(i for i in range(2) if shape[i] != (6, 4)[i])
    want = g_y.astype(np.float64).sum(axis=axes, keepdims=True) if axes else g_y
    np.testing.assert_allclose(g_bias.read(), want, rtol=1e-5, atol=1e-5)


def test_f64_is_computed_in_f64(device):
    rng = np.random.default_rng(6)
    a, b = matrices(rng, 3, 4, 50, False, False, np.float64)
    held, y = [Buffer(device, a), Buffer(device, b)], Buffer(device, poison((3, 4), np.float64))
    gemm.forward(held[0].tensor, held[1].tensor, None, y.tensor,
                 gemm.GemmAttrs(act=ActKind.GELU))
    np.testing.assert_allclose(y.read(), reference_act(ActKind.GELU, a @ b), rtol=1e-13,
                               atol=1e-15)


@pytest.mark.parametrize("act", [kind for kind in ActKind if kind is not ActKind.NONE])
def test_backward_knows_every_activation_in_f64(device, act):
    from ge2.compiler.ir import expr as ex
    from ge2.compiler.opdefs.activations import ACTIVATIONS

    rng = np.random.default_rng(9)
    a, b = matrices(rng, 5, 6, 3, False, False, np.float64)
    g_y, z = rng.standard_normal((5, 6)), a @ b
    held = [Buffer(device, x) for x in (a, b, g_y, z)]
    g_a = Buffer(device, poison(a.shape, np.float64))
    gemm.backward(held[0].tensor, held[1].tensor, None, held[2].tensor, held[3].tensor, g_a.tensor,
                  None, None, None, gemm.GemmAttrs(act=act))
    value = ACTIVATIONS[act](ex.input(0, "f64"), SLOPE)
    near = [ex.evaluate([value], [z + step])[0] for step in (-1e-6, 1e-6)]
    want = (g_y * (near[1] - near[0]) / 2e-6) @ b.T
    np.testing.assert_allclose(g_a.read(), want, rtol=1e-6, atol=1e-6)


def test_a_plan_runs_with_new_pointers(device):
    rng = np.random.default_rng(7)
    a, b = matrices(rng, 4, 4, 4, False, False)
    held, y = [Buffer(device, x) for x in (a, b)], Buffer(device, poison((4, 4), np.float32))
    prepared = gemm.plan(held[0].tensor, held[1].tensor, None, y.tensor, gemm.GemmAttrs())
    prepared()
    np.testing.assert_allclose(y.read(), a @ b, rtol=1e-5, atol=1e-5)
    other, y2 = Buffer(device, 2 * a), Buffer(device, poison((4, 4), np.float32))
    prepared(None, [other.tensor.ptr, held[1].tensor.ptr, y2.tensor.ptr])
    np.testing.assert_allclose(y2.read(), 2 * a @ b, rtol=1e-5, atol=1e-5)
    with pytest.raises(errors.Invalid, match="wrong number of pointers"):
        prepared(None, [other.tensor.ptr])


def failing_calls(t):
    attrs = gemm.GemmAttrs()
    wide = gemm.make_tensor_2d(t["B"].ptr, (4, 3))
    return {
        "inner": (errors.ShapeMismatch, "K = 4", lambda: gemm.forward(
            t["A"], wide, None, t["Y"], attrs)),
        "Y": (errors.ShapeMismatch, "Y", lambda: gemm.forward(
            t["A"], t["B"], None, t["A"], attrs)),
        "bias": (errors.ShapeMismatch, "PerN", lambda: gemm.forward(
            t["A"], t["B"], gemm.make_tensor_2d(t["A"].ptr, (1, 7)), t["Y"], attrs)),
        "dtype": (errors.DtypeMismatch, "f16", lambda: gemm.forward(
            t["A"], gemm.make_tensor_2d(t["B"].ptr, (3, 4), gemm.F16), None, t["Y"], attrs)),
        "host": (errors.DeviceMismatch, "CPU", lambda: gemm.forward(
            t["A"], gemm.make_tensor_2d(t["B"].ptr, (3, 4), device=gemm.CPU), None, t["Y"],
            attrs)),
        "mixed": (errors.DeviceMismatch, "GPU 1", lambda: gemm.forward(
            t["A"], gemm.make_tensor_2d(t["B"].ptr, (3, 4), device_index=1), None, t["Y"],
            attrs)),
        "null": (errors.DeviceMismatch, "B", lambda: gemm.forward(
            t["A"], gemm.make_tensor_2d(0, (3, 4)), None, t["Y"], attrs)),
        "overlap": (errors.Invalid, "overlaps A", lambda: gemm.forward(
            t["A"], t["B"], None, gemm.make_tensor_2d(t["A"].ptr, (2, 4)), attrs)),
        "gC": (errors.MissingInput, "C", lambda: gemm.backward(
            t["A"], t["B"], None, t["Y"], None, None, None, t["Y2"], None, attrs)),
        "Z": (errors.MissingInput, "Bias", lambda: gemm.backward(
            t["A"], t["B"], None, t["Y"], None, None, None, None,
            gemm.make_tensor_2d(t["Y2"].ptr, (1, 4)), gemm.GemmAttrs(act=ActKind.GELU))),
        "save_z": (errors.MissingInput, "Z_out", lambda: gemm.forward(
            t["A"], t["B"], None, t["Y"], gemm.GemmAttrs(save_z=True))),
        "int": (errors.DtypeMismatch, "i32", lambda: gemm.make_tensor_2d(
            t["A"].ptr, (2, 3), DType.I32)),
        "column": (errors.LayoutMismatch, "trans_a", lambda: gemm.make_tensor_2d(
            t["A"].ptr, (2, 3), strides=(1, 2))),
        "layout": (errors.LayoutMismatch, "trans_b", lambda: gemm.make_tensor_2d(
            t["A"].ptr, (2, 3), layout=gemm.COL_MAJOR)),
        "ld": (errors.StrideMismatch, "ld = 2", lambda: gemm.make_tensor_2d(
            t["A"].ptr, (2, 3), strides=(2, 1))),
        "negative": (errors.StrideMismatch, "negative", lambda: gemm.make_tensor_2d(
            t["A"].ptr, (2, 3), strides=(-3, 1))),
        "numpy": (errors.DeviceMismatch, "host", lambda: gemm.forward(
            np.zeros((2, 3)), t["B"], None, t["Y"], attrs)),
        "between": (errors.Invalid, "multiple of 4", lambda: gemm.make_tensor_2d(
            t["A"].ptr + 2, (2, 3))),
        "act": (errors.Invalid, "Did you mean gelu", lambda: gemm.forward_ex(
            t["A"], t["B"], None, t["Y"], act="gelo")),
    }


CASES = ("inner", "Y", "bias", "dtype", "host", "mixed", "null", "overlap", "gC", "Z", "save_z",
         "int", "column", "layout", "ld", "negative", "numpy", "between", "act")


@pytest.mark.parametrize("case", CASES)
def test_bad_calls_name_argument_found_and_wanted(device, case):
    held = {"A": Buffer(device, np.ones((2, 3), np.float32)),
            "B": Buffer(device, np.ones((3, 4), np.float32)),
            "Y": Buffer(device, np.ones((2, 4), np.float32)),
            "Y2": Buffer(device, np.ones((2, 4), np.float32))}
    kind, text, call = failing_calls({name: b.tensor for name, b in held.items()})[case]
    with pytest.raises(kind, match=text):
        call()


def test_vectors_may_have_any_stride(device):
    column = gemm.make_tensor_2d(256, (5, 1), strides=(7, 3))
    row = gemm.make_tensor_2d(256, (1, 5), strides=(1, 2))
    assert column.desc.strides == (7, 1)
    assert row.desc.strides[1] == 2


def test_forward_numpy_runs_anywhere():
    rng = np.random.default_rng(8)
    a, b = matrices(rng, 3, 4, 5, False, True)
    bias = rng.standard_normal(4).astype(np.float32)
    y = gemm.forward_numpy(a, b, bias, attrs=gemm.GemmAttrs(trans_b=True, act=ActKind.GELU))
    np.testing.assert_allclose(y, reference_act(ActKind.GELU, a @ b.T + bias), rtol=1e-5,
                               atol=1e-5)


@pytest.mark.parametrize("mode", ["x3", "tf32", "default"])
def test_gradients_are_multiplied_in_the_mode_of_the_forward_call(mode, monkeypatch):
    """Z computed again, gA and gB: all on tensor cores where the call, or GE2_F32, says so."""
    monkeypatch.setenv("GE2_F32", "x3")
    m, n, k = 1024, 2048, 512
    shapes = {"A": (m, k), "B": (k, n), "gY": (m, n), "gA": (m, k), "gB": (k, n), "Bias": (1, n)}
    tensors = dict.fromkeys(("C", "Z", "gC", "gBias"))
    tensors |= {name: gemm.make_tensor_2d(1 << 20, shape) for name, shape in shapes.items()}
    attrs = gemm.GemmAttrs(act=ActKind.GELU, f32=mode)
    plan = gemm_backward._Plan(tensors, attrs, m, n)
    plan.build()
    products = [node for node in plan.nodes if node.op == "GEMM_BIAS_ACT"]
    assert [node.outputs[0] for node in products] == ["Z'", "gA", "gB"]
    wanted = "x3" if mode == "default" else mode
    for node in products:
        names = [name for name in (*node.inputs, *node.outputs) if name]
        problem = lower(node, {name: plan.specs[name] for name in names})
        assert problem.attr_map["f32"] == wanted
        chosen = selector.select(problem, PROFILES["sm_90a"]).variant
        assert chosen.kernel.name == "gemm_bias_act_wgmma_f32" and chosen.param("MODE") == wanted
