"""The node cases of the onnx package, imported: what ge2 can express, and why not the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ge2.compiler.ir import Graph
from ge2.errors import ModelError
from ge2.model.node_writer import UnsupportedModel
from ge2.model.onnx_import.importer import import_model
from ge2.model.onnx_import.rules import RULES
from ge2.runtime.cpu import run_graph

# Cases of the operators' definitions by other operators.
SEVERAL = "(several nodes)"
OPERATORS = sorted({*(op for op in RULES if "." not in op), "Shape", "Size"})


@dataclass(frozen=True)
class Case:
    """One case: a graph of mostly one node, its inputs and what ONNX expects.

    Attributes:
        op: the ONNX operator, or SEVERAL.
        constants: inputs that the operator needs when the model is imported.
    """

    name: str
    op: str
    graph: Graph
    feeds: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    rtol: float
    atol: float
    constants: tuple[str, ...]


class Unmapped(Exception):
    """The case uses something that ge2 has no operator or dtype for; the message says what."""


def _array(value: Any) -> np.ndarray:
    from onnx import TensorProto, numpy_helper

    if isinstance(value, TensorProto):
        if value.data_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            raise Unmapped("not a tensor of numbers")
        value = numpy_helper.to_array(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        raise Unmapped("not a tensor")
    return np.asarray(value)


def _imported(model: Any, arrays: dict[str, np.ndarray]) -> tuple[Graph, tuple[str, ...]]:
    """Import a case; inputs that must be known become constants."""
    fixed: dict[str, np.ndarray] = {}
    while True:
        try:
            return import_model(model, constants=fixed).graph, tuple(fixed)
        except UnsupportedModel as error:
            more = error.problems.inputs - set(fixed)
            if not more:
                reasons = [f"{what}: {why}" for what, why in error.problems.found]
                raise Unmapped("; ".join(reasons)) from None
            fixed |= {name: arrays[name] for name in more}
        except ModelError as error:
            raise Unmapped(f"model: {error}") from None


def _case(case: Any) -> Case:
    given, wanted = case.data_sets[0]
    nodes, proto = case.model.graph.node, case.model.graph
    arrays = dict(zip([i.name for i in proto.input], map(_array, given), strict=True))
    expected = dict(zip([o.name for o in proto.output], map(_array, wanted), strict=True))
    graph, constants = _imported(case.model, arrays)
    feeds = {name: arrays[name] for name in graph.inputs}
    return Case(case.name, nodes[0].op_type if len(nodes) == 1 else SEVERAL, graph, feeds,
                expected, case.rtol, case.atol, constants)


@lru_cache(maxsize=1)
def all_cases() -> tuple[tuple[Case, ...], dict[str, str]]:
    """Return the cases that ge2 can express, and why each other one is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases: list[Case] = []
        skipped: dict[str, str] = {}
        for case in _unique(collect_testcases(None)):
            try:
                cases.append(_case(case))
            except Unmapped as reason:
                skipped[case.name] = str(reason)
    return tuple(cases), skipped


def _unique(cases: list[Any]) -> Iterator[Any]:
    seen: set[str] = set()
    for case in cases:
        if case.name not in seen:
            seen.add(case.name)
            yield case


@lru_cache(maxsize=1)
def outcomes() -> tuple[tuple[Case, ...], dict[str, str]]:
    """Return the cases that the cpu backend computes right, and why each other one is not there."""
    good: list[Case] = []
    cases, skipped = all_cases()
    bad = dict(skipped)
    for case in cases:
        try:
            check(case, run_graph(case.graph, case.feeds))
            good.append(case)
        except AssertionError:
            bad[case.name] = f"{case.op}: another result"
    return tuple(good), bad


# f16 and bf16 round to 11 and 8 bits; ge2 rounds once where the ONNX references round every step.
RTOL = {"bfloat16": 2e-2, "float16": 2e-3}


def check(case: Case, got: dict[str, np.ndarray]) -> None:
    """Compare outputs with what ONNX expects: dtype, shape, values."""
    for name, wanted in case.expected.items():
        assert got[name].dtype == wanted.dtype, case.name
        assert got[name].shape == wanted.shape, case.name
        wide = "f8" if wanted.dtype.kind not in "biu" else wanted.dtype
        rtol = max(case.rtol, RTOL.get(wanted.dtype.name, 1e-3))
        np.testing.assert_allclose(got[name].astype(wide), wanted.astype(wide), rtol=rtol,
                                   atol=max(case.atol, 1e-6), err_msg=case.name)
