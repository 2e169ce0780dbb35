"""Kernel-level problems on NumPy memory: an independent reading of what specs and attrs mean."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ge2.compiler.ir.expr import evaluate
from ge2.compiler.ir.row_evaluate import evaluate_row
from ge2.contract import numpy_dtype


def read(buffer, offset, spec):
    """Return the elements that a spec at an element offset of a flat buffer names."""
    itemsize = buffer.dtype.itemsize
    return as_strided(buffer[offset:], spec.shape, [s * itemsize for s in spec.strides])


def solve(problem, arrays):
    """Return the outputs, dense, of an ELEMENTWISE, GEMM or ROW problem."""
    attrs = problem.attr_map
    if problem.op_type == "ELEMENTWISE":
        shape = problem.outputs[0].shape
        coords = np.indices(shape, sparse=True) if shape else ()
        results = evaluate(attrs["expr"].outputs, arrays, coords)
    elif problem.op_type == "GEMM_BIAS_ACT":
        a, b, *rest = arrays
        a = np.swapaxes(a, -1, -2) if attrs["trans_a"] else a
        b = np.swapaxes(b, -1, -2) if attrs["trans_b"] else b
        wide = "f8" if a.dtype == np.float64 else "f4"
        acc = np.einsum("...mk,...kn->...mn", a.astype(wide), b.astype(wide))
        results = evaluate(attrs["epilogue"].outputs, [acc, *rest],
                           scalars=[attrs["alpha"], attrs["beta"]])
    elif problem.op_type == "ROW":
        row = attrs["row"]
        results = evaluate_row(row, arrays[: row.n_inputs], arrays[row.n_inputs:])
        results = [r.reshape(s.shape) for r, s in zip(results, problem.outputs, strict=True)]
    else:
        raise NotImplementedError(problem.op_type)
    return [np.broadcast_to(r, s.shape).astype(numpy_dtype(s.dtype))
            for r, s in zip(results, problem.outputs, strict=True)]
