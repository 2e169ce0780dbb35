"""Modules through torch.export: values, shared weights, named dimensions, what is reported."""

from __future__ import annotations

import importlib.util
from collections import Counter

import numpy as np
import pytest

import ge2
from ge2.errors import EnvironmentUnusable, ModelError

HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="PyTorch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

if HAS_TORCH:
    import torch
    from torch import nn


def check(module, *inputs, dynamic_shapes=None, others=(), atol=1e-5):
    """Import a module and compare its outputs, on other inputs too."""
    module.eval()
    model = ge2.from_torch(module, inputs, dynamic_shapes=dynamic_shapes, backend="cpu")
    for given in (inputs, *others):
        wanted = module(*given)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        found = list(model(*given).values())
        assert len(found) == len(wanted)
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(got), want.detach().numpy(), atol=atol,
                                       rtol=1e-4)
    return model


@pytest.mark.skipif(HAS_TORCH, reason="PyTorch is installed")
def test_without_torch_the_install_line_is_shown():
    with pytest.raises(EnvironmentUnusable, match="pip install torch"):
        ge2.from_torch(None, ())


@needs_torch
def test_a_perceptron_with_a_named_batch():
    layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    model = check(layers, torch.randn(5, 8), dynamic_shapes=({0: "batch"},),
                  others=[(torch.randn(2, 8),)])
    assert [str(t) for t in model.inputs.values()] == ["f32[batch, 8]"]


@needs_torch
@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_is_seven_nodes_per_layer(norm_first):
    from ge2.compiler import opdefs
    from ge2.compiler.passes.pass_manager import run_passes

    from ..passes.test_encoders import passes

    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu",
                                       norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = check(encoder, torch.randn(2, 7, 32), dynamic_shapes=({0: "batch", 1: "seq"},),
                  others=[(torch.randn(3, 5, 32),)])
    graph = run_passes(model.graph, passes()).graph
    counts = Counter(n.op for n in graph.nodes if "view" not in opdefs.get(n.op).properties)
    assert (counts["GEMM_BIAS_ACT"], counts["ATTENTION"], sum(counts.values())) == (8, 2, 14)


@needs_torch
def test_a_convolutional_network_with_two_outputs():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
            self.second, self.pool = nn.Conv2d(8, 16, 3, stride=2, groups=4), nn.MaxPool2d(2)
            self.last = nn.Linear(16, 5)

        def forward(self, x):
            y = self.pool(torch.relu(self.norm(self.first(x))))
            y = nn.functional.adaptive_avg_pool2d(nn.functional.silu(self.second(y)), 1)
            y = self.last(y.flatten(1))
            return y, torch.softmax(y, -1).max(-1).values

    net = Net()
    net.norm.running_mean.uniform_(-1, 1)
    net.norm.running_var.uniform_(0.5, 1.5)
    check(net, torch.randn(2, 3, 16, 16), dynamic_shapes=({0: "n"},),
          others=[(torch.randn(5, 3, 16, 16),)])


@needs_torch
def test_shapes_masks_and_indices():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(20, 6)

        def forward(self, ids, mask):
            x = self.table(ids) + torch.arange(ids.shape[1], dtype=torch.float32)[:, None] / 10
            a, b = x.chunk(2, dim=-1)
            x = torch.cat([a.masked_fill(~mask[..., None], -1.0), b.clamp(-0.5, 0.5)], -1)
            causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
            scores = (x @ x.transpose(1, 2)).masked_fill(~causal, float("-inf"))
            y = torch.softmax(scores / 2, -1) @ x
            return y[:, -1], (y * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def given(batch, length):
        ids = torch.randint(0, 20, (batch, length))
        return ids, torch.arange(length) < torch.randint(1, length + 1, (batch, 1))

    torch.manual_seed(1)
    shapes = {"ids": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "seq"}}
    check(Mixed(), *given(3, 7), dynamic_shapes=shapes, others=[given(2, 4), given(5, 9)])


UNARY = ["relu", "silu", "sigmoid", "tanh", "exp", "sqrt", "rsqrt", "abs", "neg", "sin", "erf",
         "floor", "round", "reciprocal", "log1p", "expm1"]


@needs_torch
@pytest.mark.parametrize("name", UNARY)
def test_unary_operators(name):
    class One(nn.Module):
        def forward(self, x):
            op = getattr(torch, name, None) or getattr(nn.functional, name)
            return op(x)

    check(One(), torch.rand(3, 4) + 0.1)


@needs_torch
def test_mixed_element_types_and_numbers():
    class Types(nn.Module):
        def forward(self, x, n):
            y = x * n + 2 - n / 4
            return y, (y > 1) & (n < 3), torch.where(n == 2, y, 0.0), n // 1.0, x.half().float()

    check(Types(), torch.randn(3, 4), torch.randint(0, 5, (3, 4)), atol=1e-3)


@needs_torch
def test_weights_are_shared_not_copied():
    layer = nn.Linear(4, 4).eval()
    model = ge2.from_torch(layer, (torch.randn(2, 4),), backend="cpu")
    weight, = [a for n, a in model.graph.constants.items() if "weight" in n]
    assert weight.ctypes.data == layer.weight.data_ptr()


@needs_torch
def test_bf16_weights_are_shared_too():
    layer = nn.Linear(4, 4).eval().bfloat16()
    model = ge2.from_torch(layer, (torch.randn(2, 4).bfloat16(),), backend="cpu")
    weight, = [a for n, a in model.graph.constants.items() if "weight" in n]
    assert weight.ctypes.data == layer.weight.data_ptr() and weight.dtype.name == "bfloat16"


@needs_torch
def test_everything_unsupported_is_listed_at_once():
    class Bad(nn.Module):
        def forward(self, x):
            return torch.linalg.det(x) + torch.fft.fft(x).real.sum() + torch.linalg.det(x + 1)

    with pytest.raises(ModelError) as caught:
        ge2.from_torch(Bad(), (torch.randn(3, 3),))
    text = str(caught.value)
    assert "_linalg_det (2)" in text and "_fft_r2c (1)" in text and caught.value.exit_code == 3


@needs_torch
def test_what_torch_cannot_export_is_an_error_of_the_model():
    class Branching(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(ModelError, match="cannot export Branching"):
        ge2.from_torch(Branching(), (torch.randn(3),))
