"""Rendered expressions, compiled by the host compiler, give NumPy's values."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from ge2.compiler.ir import expr as E
from ge2.compiler.ir.scalar_ops import C_TYPES, KINDS, SCALAR_OPS
from ge2.contract import numpy_dtype
from ge2.paths import include_dir

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")

_PRELUDE = """
#include <math.h>
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
#include <ge2/scalar.cuh>
"""
_SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 65519.9, 65520.0, 6e-8, 3e-8,
            2.9e-8, 0.5, 2.5, -3.5, 1e30, -2147483648.0, 4e9]


def _samples(dtype: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if KINDS[dtype] == "b":
        return rng.integers(0, 2, 256).astype(bool)
    if KINDS[dtype] == "i":
        edge = np.iinfo(numpy_dtype(dtype))
        special = np.array([0, 1, -1, 2, -2, 7, edge.max, edge.min], dtype=numpy_dtype(dtype))
        pairs = np.roll(np.tile(special, len(special)), seed)
        return np.concatenate([np.repeat(special, 8) if seed else pairs,
                               rng.integers(-40, 40, 192)]).astype(numpy_dtype(dtype))
    special = np.resize(np.array(_SPECIAL), 64)
    values = np.concatenate([np.roll(special, 3 * seed), rng.normal(0, 3, 192)])
    with np.errstate(over="ignore"):
        return values.astype(numpy_dtype(dtype))


class _Program:
    """Many expressions in one shared library, so that the compiler starts once."""

    def __init__(self) -> None:
        self.text = [_PRELUDE]
        self.cases: list[tuple[str, E.Expr, list[str]]] = []

    def add(self, expr: E.Expr, dtypes: list[str]) -> None:
        name = f"case{len(self.cases)}"
        params = ", ".join(f"const {C_TYPES[d]}* p{i}" for i, d in enumerate(dtypes))
        loads = " ".join(f"const {C_TYPES[d]} x{i} = p{i}[i];" for i, d in enumerate(dtypes))
        code = E.render_c([expr], [f"x{i}" for i in range(len(dtypes))])
        self.text.append(
            f'extern "C" void {name}({params}, {C_TYPES[expr.dtype]}* out, int n) {{\n'
            f"for (int i = 0; i < n; ++i) {{ {loads}\n" + "\n".join(code.lines)
            + f"\nout[i] = {code.results[0]}; }} }}")
        self.cases.append((name, expr, dtypes))

    def check(self, folder) -> None:
        source, library = folder / "cases.cpp", folder / "cases.so"
        source.write_text("\n".join(self.text))
        subprocess.run(["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC",
                        f"-I{include_dir()}", str(source), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
        for name, expr, dtypes in self.cases:
            inputs = [_samples(d, i) for i, d in enumerate(dtypes)]
            out = np.empty(256, numpy_dtype(expr.dtype))
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, out)]
            getattr(loaded, name)(*pointers, ctypes.c_int(256))
            _compare(out, E.evaluate([expr], inputs)[0], str(expr))


def _compare(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    expected = np.broadcast_to(expected, found.shape)
    if found.dtype.kind == "f":
        tolerance = 3e-6 if found.dtype == np.float32 else 1e-13
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-45, err_msg=what)
    else:
        np.testing.assert_array_equal(found, expected, err_msg=what)


@pytest.fixture
def program(tmp_path):
    program = _Program()
    yield program
    program.check(tmp_path)


def test_every_primitive_in_every_dtype(program):
    for row in SCALAR_OPS.values():
        for dtype, kind in KINDS.items():
            if kind in row.domain:
                args = [E.input(i, dtype) for i in range(row.arity)]
                program.add(args[0].apply(row.name, *args[1:]), [dtype] * row.arity)


def test_every_cast(program):
    for source in KINDS:
        for target in (*KINDS, "f16", "bf16", "u8", "i8"):
            program.add(E.cast(E.input(0, source), target), [source])


def test_literals_keep_their_bits(program):
    for dtype, values in {
        "f32": (0.1, -0.0, 1e-45, 3.4028235e38, np.inf, -np.inf, np.nan, 16777216.0, 1e10),
        "f64": (0.1, -1e-320, 1e308, np.inf, np.nan, 5.0),
        "i32": (-(2**31), 2**31 - 1, -5), "i64": (-(2**63), 2**63 - 1), "bool": (True, False),
    }.items():
        for value in values:
            x = E.input(0, dtype)
            program.add(E.where(x.eq(x), E.const(value, dtype), E.const(value, dtype)), [dtype])


def test_shared_parts_are_computed_once():
    x = E.input(0)
    shared = E.exp(x)
    code = E.render_c([shared * shared + shared], ["a"])
    assert code.lines == ("const float t0 = ge2::exp(a);", "const float t1 = t0 * t0;",
                          "const float t2 = t1 + t0;")
    assert code.results == ("t2",)


def test_leaves_and_prefix_are_the_callers_names():
    value = E.cast(E.coord(1), "f32") * E.scalar(0) + E.input(1)
    code = E.render_c([value, E.const(2.0)], ["a", "b"], ["row", "col"], ["slope"], prefix="e")
    assert code.lines[0] == "const float e0 = ge2::cast_f32(col);"
    assert code.lines[1] == "const float e1 = e0 * slope;"
    assert code.results == ("e2", "2.0f")
