"""Params blocks: every problem survives the way to bytes and back, and bad blocks are refused."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ge2.compiler.ir.expr import ExprBundle, input
from ge2.contract import GE2_API_VERSION, ActKind, params_dtype
from ge2.errors import ApiVersionMismatch, DtypeMismatch, Invalid
from ge2.launch.params import decode_params, encode_params
from ge2.launch.schemas import KERNEL_OPS, kernel_op
from ge2.problem import Problem, TensorSpec

BUNDLE = ExprBundle((input(0) * 2.0 + input(1),))
_VALUES = {"int": 1, "float": 0.5, "bool": True, "expr": BUNDLE, "ints": (1, 2, 3, 4),
           "floats": (0.25,), "dtype": "f16"}


def _problem(op_type: str) -> Problem:
    op = kernel_op(op_type)
    inputs = tuple(None if name.endswith("?") else TensorSpec("f16", (3, 4), (0, -1))
                   for name in op.inputs)
    attrs = {a.name: a.choices[-1] if a.kind == "str" else _VALUES[a.kind] for a in op.attrs}
    outputs = (TensorSpec.dense("f32", (3, 4)),)
    return Problem(op_type, inputs, outputs, tuple(sorted(attrs.items())))


@pytest.mark.parametrize("op_type", sorted(KERNEL_OPS))
def test_every_operator_survives_a_round_trip(op_type: str) -> None:
    problem = _problem(op_type)
    block = encode_params(problem, workspace=64, workspace_size=32, semaphores=128)
    found, trailer = decode_params(block.ctypes.data, op_type, len(problem.tensors))
    assert found == problem
    assert trailer == (64, 32, 128)


def test_block_layout_is_the_contract_s() -> None:
    """Fields lie where a C caller that follows docs/contract.md puts them."""
    block = encode_params(_problem("GEMM_BIAS_ACT"))
    op = kernel_op("GEMM_BIAS_ACT")
    assert block.dtype == params_dtype(op.attrs, 6)
    raw = ctypes.string_at(block.ctypes.data, block.dtype.itemsize)
    assert np.frombuffer(raw[:16], "u4").tolist() == [len(raw), GE2_API_VERSION, 5, 1]
    second = np.frombuffer(raw[16 + 136:16 + 2 * 136], "i4")
    assert second[:2].tolist() == [1, 2]
    assert np.frombuffer(raw[16 + 2 * 136:16 + 3 * 136], "i4")[1] == -1  # bias is absent


def test_activation_codes_are_the_choices_of_the_attribute() -> None:
    act = next(a for a in kernel_op("GEMM_BIAS_ACT").attrs if a.name == "act")
    assert [act.choices.index(kind.name.lower()) for kind in ActKind] == [int(k) for k in ActKind]


def _broken(change: str) -> np.ndarray:
    block = encode_params(_problem("GEMM_BIAS_ACT"))
    match change:
        case "version":
            block["header"]["api_version"] = GE2_API_VERSION + 1
        case "size":
            block["header"]["struct_size"] = 700
        case "count":
            block["header"]["n_outputs"] = 2
        case "rank":
            block["tensors"][0]["rank"] = 9
        case "dtype":
            block["tensors"][0]["dtype"] = 77
        case "extent":
            block["tensors"][0]["shape"][1] = -4
        case "act":
            block["attrs"]["act"] = 99
        case "output":
            block["tensors"][5]["rank"] = -1
        case "expr":
            block["attrs"]["epilogue"] = 12345
    return block


@pytest.mark.parametrize(("change", "error", "argument"), [
    ("version", ApiVersionMismatch, "params.api_version"),
    ("size", Invalid, "params.struct_size"),
    ("count", Invalid, "n"),
    ("rank", Invalid, "A"),
    ("dtype", DtypeMismatch, "A"),
    ("extent", Invalid, "A"),
    ("act", Invalid, "act"),
    ("output", Invalid, "rank"),
    ("expr", Invalid, ""),
])
def test_bad_block_is_refused_by_name(change: str, error: type, argument: str) -> None:
    block = _broken(change)
    with pytest.raises(error) as caught:
        decode_params(block.ctypes.data, "GEMM_BIAS_ACT", 6)
    assert caught.value.argument == argument


def test_version_error_names_both_versions() -> None:
    block = _broken("version")
    both = f"found {GE2_API_VERSION + 1}; wanted {GE2_API_VERSION}"
    with pytest.raises(ApiVersionMismatch, match=both):
        decode_params(block.ctypes.data, "GEMM_BIAS_ACT", 6)


def test_null_block_is_invalid() -> None:
    with pytest.raises(Invalid, match="null"):
        decode_params(0, "GEMM_BIAS_ACT", 6)
