"""The direct GEMM path on a GPU: torch and CuPy operands, streams, capture, threads, training."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from ge2 import errors
from ge2.contract import ActKind
from ge2.ops import _ops_gemm as gemm

torch = pytest.importorskip("torch", reason="torch is not installed")
GELU = gemm.GemmAttrs(act=ActKind.GELU)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.float16: 2e-3,
             torch.bfloat16: 1.6e-2}


def relative(got, want):
    got, want = got.double(), want.double()
    return float((got - want).norm() / want.norm().clamp_min(1e-30))


def operands(m, n, k, dtype=torch.float32, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    made = [torch.randn(shape, device="cuda", generator=generator, dtype=torch.float32).to(dtype)
            for shape in ((m, k), (k, n), (n,))]
    return (*made, torch.full((m, n), float("nan"), device="cuda", dtype=dtype))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("m,n,k", [(16, 16, 16), (33, 129, 17), (1, 300, 64), (257, 1, 8),
                                   (512, 384, 256)])
def test_forward_matches_float64(dtype, m, n, k):
    a, b, bias, y = operands(m, n, k, dtype)
    gemm.forward(a, b, bias, y, GELU, None)
    torch.cuda.synchronize()
    want = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
    assert relative(y, want) < TOLERANCE[dtype]


def test_sliced_and_unaligned_operands():
    base = torch.randn(64, 100, device="cuda")
    a, b = base[1:33, 3:40], torch.randn(37, 50, device="cuda")[:, 1:30]
    y = torch.full((32, 40), float("nan"), device="cuda")[:, 5:34]
    gemm.forward(a, b, None, y, gemm.GemmAttrs())
    torch.cuda.synchronize()
    assert relative(y, a.double() @ b.double()) < 1e-5


def test_cupy_arrays_and_every_kind_of_stream():
    cupy = pytest.importorskip("cupy")
    a, b = cupy.random.rand(40, 30, dtype="f4"), cupy.random.rand(30, 20, dtype="f4")
    want = cupy.asnumpy(a).astype("f8") @ cupy.asnumpy(b).astype("f8")
    side = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    for stream in (None, side, side.ptr, ctypes.c_void_p(side.ptr),
                   torch.cuda.ExternalStream(side.ptr)):
        y = cupy.full((40, 20), cupy.nan, "f4")
        cupy.cuda.Device().synchronize()
        gemm.forward(a, b, None, y, gemm.GemmAttrs(), stream)
        cupy.cuda.Device().synchronize()
        np.testing.assert_allclose(cupy.asnumpy(y), want, rtol=1e-5)


def test_new_pointers_reach_the_kernel_on_every_call():
    for seed in range(6):
        a, b, bias, y = operands(24, 24, 24, seed=seed)
        gemm.forward(a, b, bias, y, gemm.GemmAttrs())
        torch.cuda.synchronize()
        assert relative(y, a.double() @ b.double() + bias.double()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("saved", [True, False])
def test_backward_matches_autograd(dtype, saved):
    a, b, bias, y = operands(70, 50, 90, dtype)
    z = torch.empty_like(y) if saved else None
    gemm.forward(a, b, bias, y, GELU, Z_out=z)
    g_y = torch.randn_like(y)
    grads = [torch.full_like(x, float("nan")) for x in (a, b, bias)]
    gemm.backward(a, b, None, g_y, z, grads[0], grads[1], None, grads[2], GELU, Bias=bias)
    leaves = [x.double().requires_grad_() for x in (a, b, bias)]
    torch.nn.functional.gelu(leaves[0] @ leaves[1] + leaves[2]).backward(g_y.double())
    for got, leaf in zip(grads, leaves, strict=True):
        assert relative(got, leaf.grad) < 4 * TOLERANCE[dtype]


def test_a_captured_call_replays_with_new_values():
    a, b, bias, y = operands(48, 64, 32)
    gemm.plan(a, b, bias, y, GELU)
    stream = torch.cuda.Stream()
    gemm.forward(a, b, bias, y, GELU, stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        gemm.forward(a, b, bias, y, GELU, torch.cuda.current_stream())
    for seed in (1, 2):
        a.copy_(torch.randn_like(a) * seed)
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        want = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
        assert relative(y, want) < 1e-5


def test_eight_threads_on_their_own_streams():
    failures = []

    def work(seed):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for step in range(50):
                    a, b, bias, y = operands(32, 32, 32, seed=100 * seed + step)
                    gemm.forward(a, b, bias, y, gemm.GemmAttrs(), stream)
                    stream.synchronize()
                    assert relative(y, a.double() @ b.double() + bias.double()) < 1e-5
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_host_memory_is_refused_with_its_address():
    a, _b, _bias, y = operands(4, 4, 4)
    host = np.zeros((4, 4), np.float32)
    tensor = gemm.make_tensor_2d(host.ctypes.data, (4, 4))
    with pytest.raises(errors.DeviceMismatch, match="B is not memory of GPU 0"):
        gemm.forward(a, tensor, None, y, gemm.GemmAttrs())


def test_a_gpu_that_is_not_there_is_refused():
    missing = torch.cuda.device_count()
    tensors = [gemm.make_tensor_2d(256, (4, 4), device_index=missing) for _ in range(3)]
    with pytest.raises(errors.DeviceMismatch, match="no such GPU"):
        gemm.forward(*tensors[:2], None, tensors[2], gemm.GemmAttrs())


@pytest.mark.skipif(torch.cuda.is_available() and torch.cuda.device_count() < 2,
                    reason="needs two GPUs")
def test_operands_on_another_gpu_than_the_current_one():
    a, b, bias, y = (x.to("cuda:1") for x in operands(32, 32, 32))
    gemm.forward(a, b, bias, y, GELU, torch.cuda.current_stream(1))
    torch.cuda.synchronize(1)
    assert torch.cuda.current_device() == 0
    want = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
    assert relative(y, want) < 1e-5


def test_forward_numpy_uses_the_gpu():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((30, 20)), rng.standard_normal((20, 10))
    np.testing.assert_allclose(gemm.forward_numpy(a, b), a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("act", ["none", "relu", "gelu", "silu", "tanh"])
def test_gradcheck(act):
    from ge2.torch import linear_act

    x, w, bias = (torch.randn(s, device="cuda", dtype=torch.float64, requires_grad=True)
                  for s in ((5, 7), (6, 7), (6,)))
    assert torch.autograd.gradcheck(lambda *t: linear_act(*t, act), (x, w, bias))


def test_a_small_net_trains_to_torchs_loss_curve():
    from ge2.torch import linear_act

    def losses(layer):
        generator = torch.Generator("cuda").manual_seed(0)
        x = torch.randn(256, 16, device="cuda", generator=generator)
        target = x.sin().sum(1, keepdim=True)
        w1, w2 = (torch.randn(s, device="cuda", generator=generator) * 0.2
                  for s in ((64, 16), (1, 64)))
        weights = [w.requires_grad_() for w in (w1, torch.zeros(64, device="cuda"), w2)]
        optimizer = torch.optim.Adam(weights, 1e-2)
        curve = []
        for _ in range(60):
            h = layer(x, weights[0], weights[1], "gelu")
            loss = ((layer(h, weights[2], None, "none") - target) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        return np.array(curve)

    def plain(x, w, b, act):
        y = torch.nn.functional.linear(x, w, b)
        return torch.nn.functional.gelu(y) if act == "gelu" else y

    ours, theirs = losses(linear_act), losses(plain)
    assert theirs[-1] < 0.5 * theirs[0]
    np.testing.assert_allclose(ours, theirs, rtol=2e-3)


def test_torch_compile_traces_through():
    from ge2.torch import linear_act

    x, w, bias = (torch.randn(s, device="cuda") for s in ((8, 16), (4, 16), (4,)))

    def function(x):
        return linear_act(x * 2, w, bias, "relu") + 1

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert relative(compiled(x), function(x).double()) < 1e-6
