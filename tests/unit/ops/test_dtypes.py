"""Element types: what each operator takes works, everything else is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.ir import Graph, Node, TensorType
from ge2.compiler.opdefs import OPS
from ge2.contract import DTYPES, REQUIRED, numpy_dtype
from ge2.errors import DtypeMismatch
from ge2.runtime.cpu import run_graph

ELEMENTWISE = sorted(name for name, op in OPS.items() if op.expr is not None)
FILL = {"to": "f32", "direction": "LEFT"}


def values(dtype: str) -> np.ndarray:
    """Small values inside every function's domain: 1/4, 1/2, 3/4, 1, or 0, 1, 2, 3."""
    if dtype == "bool":
        return np.array([False, True, True, False])
    if DTYPES[dtype].kind == "int":
        return np.arange(4).astype(numpy_dtype(dtype))
    return (np.arange(1, 5) / 4).astype(numpy_dtype(dtype))


def call(name: str, dtype: str, values=values) -> list[np.ndarray]:
    op = OPS[name]
    given = [op.other[i][0] if i in op.other else dtype for i in op.input_names]
    attrs = {s.name: FILL[s.name] for s in op.attrs if s.default is REQUIRED}
    return opdefs.reference(name, [values(d) for d in given], attrs)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_operators_take_their_dtypes_and_refuse_others(name):
    op = OPS[name]
    for dtype in DTYPES:
        if dtype in op.dtypes:
            (got,) = call(name, dtype)
            kind = TensorType(dtype, (4,))
            types = [TensorType(op.other[i][0], (4,)) if i in op.other else kind
                     for i in op.input_names]
            attrs = {s.name: FILL[s.name] for s in op.attrs if s.default is REQUIRED}
            assert opdefs.dtype_of(got) == opdefs.infer(name, types, attrs)[0].dtype
        else:
            with pytest.raises(DtypeMismatch, match=f"{name} cannot take .* of dtype {dtype}"):
                call(name, dtype)


@pytest.mark.parametrize("name", [n for n in ELEMENTWISE if "f64" in OPS[n].dtypes])
def test_floats_agree_to_their_precision(name):
    """f16 and bf16 are f32 results rounded once; f32 is within a few units of f64."""
    exact = call(name, "f64")[0]
    if exact.dtype == bool:
        for dtype in ("f32", "f16", "bf16"):
            np.testing.assert_array_equal(call(name, dtype)[0], exact)
        return
    close = 1e-6 * np.maximum(np.abs(exact), 1)
    finite = np.isfinite(exact)
    single = call(name, "f32")[0]
    np.testing.assert_array_equal(np.isfinite(single), finite)
    assert (np.abs(single[finite] - exact[finite]) <= close[finite]).all()
    for dtype in ("f16", "bf16"):
        half = call(name, dtype)[0]
        np.testing.assert_array_equal(half.astype("f4"), single.astype(half.dtype).astype("f4"))


def test_integers_wrap_and_truncate():
    u8 = np.array([200, 7, 0], np.uint8)
    np.testing.assert_array_equal(opdefs.reference("ADD", [u8, u8], {})[0], [144, 14, 0])
    np.testing.assert_array_equal(opdefs.reference("SUB", [u8[2:], u8[1:2]], {})[0], [249])
    i8 = np.array([-128, 100], np.int8)
    np.testing.assert_array_equal(opdefs.reference("NEG", [i8], {})[0], [-128, -100])
    a, b = np.array([7, -7, 7, -7], "i4"), np.array([2, 2, -2, 0], "i4")
    np.testing.assert_array_equal(opdefs.reference("DIV", [a, b], {})[0], [3, -3, -3, 0])
    np.testing.assert_array_equal(opdefs.reference("MOD", [a[:3], b[:3]], {})[0], [1, 1, -1])
    np.testing.assert_array_equal(opdefs.reference("MOD", [a[:3], b[:3]], {"fmod": 1})[0],
                                  [1, -1, 1])
    big = np.array([2**62, 2**62], np.int64)
    np.testing.assert_array_equal(opdefs.reference("REDUCE_SUM", [big], {})[0], [-2**63])
    x = np.array([2.9, -2.9, 3e9, -3e9, np.nan], np.float32)
    np.testing.assert_array_equal(opdefs.reference("CAST", [x], {"to": "i32"})[0],
                                  [2, -2, 2**31 - 1, -2**31, 0])
    np.testing.assert_array_equal(opdefs.reference("CAST", [x], {"to": "bool"})[0], [True] * 5)


def test_a_model_in_f64_ignores_narrow_casts():
    graph = Graph(inputs=["x"], outputs=["z"], types={
        "x": TensorType("f32", (3,)), "y": TensorType("f16", (3,)), "z": TensorType("f16", (3,))})
    graph.nodes = [Node("CAST", "narrow", ("x",), ("y",), {"to": "f16"}),
                   Node("EXP", "exp", ("y",), ("z",))]
    x = np.array([0.1, 1.1, 2.1], np.float32)
    wide = run_graph(graph, {"x": x}, dtype="f64")["z"]
    np.testing.assert_array_equal(wide, np.exp(x.astype(np.float64)))


@pytest.mark.parametrize("name", sorted(set(OPS) - set(ELEMENTWISE)))
def test_other_operators_refuse_dtypes_by_name(name):
    op = OPS[name]
    main = [i for i in op.input_names if i not in op.other]
    for dtype in set(DTYPES) - set(op.dtypes):
        if not main or op.inputs[0].rstrip("?*") not in main:
            continue
        types = [TensorType(op.other[i][0] if i in op.other else dtype, (2, 2))
                 for i in op.input_names]
        with pytest.raises(DtypeMismatch, match=f"{name} cannot take .* of dtype {dtype}"):
            opdefs.infer(name, types, {s.name: _any(s) for s in op.attrs
                                       if s.default is REQUIRED})


def _any(spec) -> object:
    return {"int": 1, "float": 1.0, "ints": (1,), "dtype": "f32", "bool": False,
            "str": spec.choices[0] if spec.choices else "ij->ji", "expr": None}[spec.kind]
