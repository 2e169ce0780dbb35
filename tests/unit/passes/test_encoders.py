"""Encoders as exporters write them run in the same few launches, whoever wrote them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.concrete import concretize
from ge2.compiler.passes.pass_manager import run_passes
from ge2.compiler.passes.pipeline import PASSES
from ge2.compiler.plan import make_plan
from ge2.evidence.device import PROFILES
from ge2.model.onnx_import.importer import import_model
from ge2.runtime.cpu import run_graph

from ...cases.encoders import STYLES, encoder, feeds


def launched(graph):
    """Return how many nodes of each operator are no views."""
    return Counter(n.op for n in graph.nodes if "view" not in opdefs.get(n.op).properties)


@pytest.fixture(scope="module", params=STYLES, ids=STYLES)
def graphs(request):
    """Return an encoder of two layers and one of three: before and after the passes."""
    graphs = [import_model(encoder(n, **STYLES[request.param])).graph for n in (2, 3)]
    return [(graph, run_passes(graph, PASSES).graph) for graph in graphs]


def test_launches_per_layer(graphs):
    """Q, K and V with the norm before them, attention, its projection, the two inner layers."""
    two, three = (launched(after) for _, after in graphs)
    assert three - two == Counter(NORM_GEMM=2, GEMM_BIAS_ACT=2, ATTENTION=1)


def as_half(graph):
    """Return the graph with f16 in place of f32."""
    half = graph.copy()
    half.types = {name: replace(kind, dtype="f16") if kind.dtype == "f32" else kind
                  for name, kind in graph.types.items()}
    half.constants = {name: array.astype("f2") if array.dtype == "f4" else array
                      for name, array in graph.constants.items()}
    half.nodes = [replace(n, attrs={**n.attrs, "rounding": "f16"}) if n.attrs.get("rounding")
                  else n for n in graph.nodes]
    return half


def planned(graph, sizes):
    """Return how many launches each operator has in a plan for an H200."""
    plan = make_plan(concretize(graph, sizes), PROFILES["sm_90a"])
    return Counter(step.node.op for step in plan.steps for _ in step.records)


# Few and many rows.
@pytest.mark.parametrize("sizes", [{"batch": 1, "seq": 16}, {"batch": 256, "seq": 128}], ids=str)
@pytest.mark.parametrize("convert", [lambda graph: graph, as_half], ids=["f32", "f16"])
def test_launches_of_a_plan_per_layer(graphs, sizes, convert):
    """Nothing is copied in between: five kernels."""
    two, three = (planned(convert(after), sizes) for _, after in graphs)
    assert three - two == Counter(NORM_GEMM=2, GEMM_BIAS_ACT=2, ATTENTION=1)


def test_heads_are_strides(graphs):
    """Attention reads slices of one product and writes what the projection reads."""
    _, after = graphs[0]
    makers = after.producers()
    for node in after.nodes:
        if node.op == "ATTENTION":
            slices = [makers[v] for v in node.inputs[:3]]
            while any(n.op == "RESHAPE" for n in slices):
                slices = [makers[n.inputs[0]] if n.op == "RESHAPE" else n for n in slices]
            assert [n.op for n in slices] == ["SLICE"] * 3
            assert len({n.inputs[0] for n in slices}) == 1
            assert node.attrs["q_num_heads"] == 4


@pytest.mark.parametrize("lengths", [(5, 9, 3), (1,), (7, 7)])
def test_values(graphs, lengths):
    for before, after in graphs:
        given = feeds(lengths)
        wanted = run_graph(before, given, dtype="f64")["y"]
        found = run_graph(after, given)["y"]
        real = given["mask"].astype(bool)
        np.testing.assert_allclose(found[real], wanted[real], atol=1e-4)
