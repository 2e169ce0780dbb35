"""Encoders as exporters write them run in the same few launches, whoever wrote them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.passes.decompose import NATIVE, DecomposePass
from ge2.compiler.passes.lift_attention import LiftAttentionPass
from ge2.compiler.passes.lift_softmax import LiftSoftmaxPass
from ge2.compiler.passes.pass_manager import run_passes
from ge2.compiler.passes.pipeline import PASSES
from ge2.model.onnx_import.importer import import_model
from ge2.runtime.cpu import run_graph

from ...cases.encoders import STYLES, encoder, feeds


def passes():
    """Return the pipeline of a device that has attention kernels."""
    steps = [DecomposePass(native=NATIVE | {"ATTENTION"}) if isinstance(p, DecomposePass) else p
             for p in PASSES]
    if not any(isinstance(p, LiftAttentionPass) for p in steps):
        at = next(i for i, p in enumerate(steps) if isinstance(p, LiftSoftmaxPass))
        steps.insert(at + 1, LiftAttentionPass())
    return tuple(steps)


def launched(graph):
    """Return how many nodes of each operator are no views."""
    return Counter(n.op for n in graph.nodes if "view" not in opdefs.get(n.op).properties)


@pytest.fixture(scope="module", params=STYLES, ids=STYLES)
def graphs(request):
    """Return an encoder of two layers and one of three: before and after the passes."""
    made = []
    for layers in (2, 3):
        graph = import_model(encoder(layers, **STYLES[request.param])).graph
        made.append((graph, run_passes(graph, passes()).graph))
    return made


def test_launches_per_layer(graphs):
    """One for Q, K and V, attention, its projection, the inner layers, and the two norms."""
    two, three = (launched(after) for _, after in graphs)
    layer = three - two
    norms = layer.pop("LAYER_NORM", 0) + layer.pop("ADD_LAYER_NORM", 0)
    assert (layer, norms) == (Counter(GEMM_BIAS_ACT=4, ATTENTION=1), 2)


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
