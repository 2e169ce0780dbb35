"""Encoders as exporters write them run in the same few launches, whoever wrote them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ge2.compiler import opdefs
from ge2.compiler.passes.decompose import NATIVE, DecomposePass
from ge2.compiler.passes.fuse_norm_gemm import FuseNormGemmPass
from ge2.compiler.passes.lift_attention import LiftAttentionPass
from ge2.compiler.passes.lift_softmax import LiftSoftmaxPass
from ge2.compiler.passes.merge_products import MergeProductsPass
from ge2.compiler.passes.pass_manager import run_passes
from ge2.compiler.passes.pipeline import PASSES
from ge2.model.onnx_import.importer import import_model
from ge2.runtime.cpu import run_graph

from ...cases.encoders import STYLES, encoder, feeds


def passes(*native):
    """Return the pipeline of a device that has kernels of attention and of more operators."""
    wanted = NATIVE | {"ATTENTION", *native}
    steps = [DecomposePass(native=wanted) if isinstance(p, DecomposePass) else p
             for p in PASSES if not isinstance(p, LiftAttentionPass | FuseNormGemmPass)]
    _insert(steps, LiftSoftmaxPass, LiftAttentionPass())
    if "NORM_GEMM" in native:
        _insert(steps, MergeProductsPass, FuseNormGemmPass())
    return tuple(steps)


def _insert(steps, behind, step):
    at = next(i for i, p in enumerate(steps) if isinstance(p, behind))
    steps.insert(at + 1, step)


def launched(graph):
    """Return how many nodes of each operator are no views."""
    return Counter(n.op for n in graph.nodes if "view" not in opdefs.get(n.op).properties)


@pytest.fixture(scope="module", params=STYLES, ids=STYLES)
def graphs(request):
    """Return an encoder of two layers and one of three: before and after the passes."""
    graphs = [import_model(encoder(n, **STYLES[request.param])).graph for n in (2, 3)]
    return [(graph, run_passes(graph, passes()).graph) for graph in graphs]


def test_launches_per_layer(graphs):
    """One for Q, K and V, attention, its projection, the inner layers, and the two norms."""
    two, three = (launched(after) for _, after in graphs)
    layer = three - two
    norms = layer.pop("LAYER_NORM", 0) + layer.pop("ADD_LAYER_NORM", 0)
    assert (layer, norms) == (Counter(GEMM_BIAS_ACT=4, ATTENTION=1), 2)


def test_launches_per_layer_with_norms_inside_products(graphs):
    """A product that normalises the rows it loads leaves five launches."""
    fused = [run_passes(before, passes("NORM_GEMM")).graph for before, _ in graphs]
    layer = launched(fused[1]) - launched(fused[0])
    assert layer == Counter(NORM_GEMM=2, GEMM_BIAS_ACT=2, ATTENTION=1)
    assert sum(layer.values()) <= 6
    given = feeds((5, 9, 3))
    real = given["mask"].astype(bool)
    for (before, _), after in zip(graphs, fused, strict=True):
        wanted = run_graph(before, given, dtype="f64")["y"]
        np.testing.assert_allclose(run_graph(after, given)["y"][real], wanted[real], atol=1e-4)


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
