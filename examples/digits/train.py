"""Train the two digit classifiers of this folder and write their model files.

    python examples/digits/train.py

Data: digits.npz, 1,797 handwritten digits of 8x8 pixels with values 0 to 16 (UCI "Optical
Recognition of Handwritten Digits", as scikit-learn ships them). Everything here is NumPy: forward,
backward and Adam. The same seed gives the same weights on the same NumPy and BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ge2.model.builder import GraphBuilder, Value

FOLDER = Path(__file__).resolve().parent
SEED = 7
HELD_OUT = 360
CLASSES = 10
Array = npt.NDArray[Any]
Params = dict[str, Array]


def load_data() -> tuple[Array, Array, Array, Array]:
    """Return train images, train labels, held-out images and held-out labels."""
    with np.load(FOLDER / "digits.npz") as data:
        images, labels = data["images"], data["labels"]
    order = np.random.default_rng(SEED).permutation(len(images))
    held, kept = order[:HELD_OUT], order[HELD_OUT:]
    return images[kept], labels[kept], images[held], labels[held]


def glorot(rng: np.random.Generator, fan_in: int, shape: tuple[int, ...]) -> Array:
    """Return initial weights of variance 2 / fan_in."""
    return (rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)).astype(np.float32)


def softmax(x: Array) -> Array:
    """Return row-wise probabilities."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def patches(x: Array) -> Array:
    """Return the 3x3 neighbourhoods of every pixel: [n, c, h, w] -> [n, h, w, c * 9]."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def conv(x: Array, w: Array, b: Array) -> tuple[Array, Array]:
    """Return the 3x3 convolution (NCHW, OIHW, padding 1) and the patches that backward needs."""
    cols = patches(x)
    return (cols @ w.reshape(len(w), -1).T + b).transpose(0, 3, 1, 2), cols


def conv_grad(grad: Array, cols: Array, w: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of a convolution's input, weights and bias."""
    flat = grad.transpose(0, 2, 3, 1).reshape(-1, len(w))
    dw = (flat.T @ cols.reshape(len(flat), -1)).reshape(w.shape)
    turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)  # a correlation's adjoint
    dx, _ = conv(grad, np.ascontiguousarray(turned), np.zeros(w.shape[1], np.float32))
    return dx, dw, flat.sum(axis=0)


def pool(x: Array) -> tuple[Array, Array]:
    """Return 2x2 maxima and the mask of the positions they came from."""
    n, c, h, w = x.shape
    tiles = x.reshape(n, c, h // 2, 2, w // 2, 2)
    best = tiles.max(axis=(3, 5), keepdims=True)
    mask = tiles == best
    return best.reshape(n, c, h // 2, w // 2), mask / mask.sum(axis=(3, 5), keepdims=True)


def unpool(grad: Array, mask: Array) -> Array:
    """Return the gradient of pool's input."""
    n, c, h, w = grad.shape
    return (grad.reshape(n, c, h, 1, w, 1) * mask).reshape(n, c, 2 * h, 2 * w)


def mlp_loss(p: Params, x: Array, y: Array) -> tuple[Array, Params]:
    """Return the logits of the MLP and, where y is not empty, the gradients."""
    flat = x.reshape(len(x), 64)
    h1 = np.maximum(flat @ p["w1"] + p["b1"], 0)
    h2 = np.maximum(h1 @ p["w2"] + p["b2"], 0)
    logits = h2 @ p["w3"] + p["b3"]
    if not len(y):
        return logits, {}
    d3 = (softmax(logits) - np.eye(CLASSES, dtype=np.float32)[y]) / len(x)
    d2 = (d3 @ p["w3"].T) * (h2 > 0)
    d1 = (d2 @ p["w2"].T) * (h1 > 0)
    return logits, {"w3": h2.T @ d3, "b3": d3.sum(0), "w2": h1.T @ d2, "b2": d2.sum(0),
                    "w1": flat.T @ d1, "b1": d1.sum(0)}


def conv_loss(p: Params, x: Array, y: Array) -> tuple[Array, Params]:
    """Return the logits of the conv net and, where y is not empty, the gradients."""
    c1, cols1 = conv(x[:, None], p["k1"], p["c1"])
    p1, mask1 = pool(np.maximum(c1, 0))
    c2, cols2 = conv(p1, p["k2"], p["c2"])
    p2, mask2 = pool(np.maximum(c2, 0))
    flat = p2.reshape(len(x), -1)
    logits = flat @ p["w"] + p["b"]
    if not len(y):
        return logits, {}
    d = (softmax(logits) - np.eye(CLASSES, dtype=np.float32)[y]) / len(x)
    grads = {"w": flat.T @ d, "b": d.sum(0)}
    d2 = unpool((d @ p["w"].T).reshape(p2.shape), mask2) * (c2 > 0)
    dp1, grads["k2"], grads["c2"] = conv_grad(d2, cols2, p["k2"])
    d1 = unpool(dp1, mask1) * (c1 > 0)
    _, grads["k1"], grads["c1"] = conv_grad(d1, cols1, p["k1"])
    return logits, grads


def train(loss: Callable[[Params, Array, Array], tuple[Array, Params]], p: Params, x: Array,
          y: Array, *, epochs: int, rate: float = 2e-3) -> Params:
    """Minimise the cross entropy with Adam and a cosine rate; images move by up to one pixel."""
    rng = np.random.default_rng(SEED)
    first = {k: np.zeros_like(v) for k, v in p.items()}
    second = {k: np.zeros_like(v) for k, v in p.items()}
    step, steps = 0, epochs * (len(x) // 64)
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(len(x)), len(x) // 64):
            dy, dx = rng.integers(-1, 2, 2) if rng.random() < 0.3 else (0, 0)
            moved = np.roll(x[batch], (dy, dx), (1, 2))
            _, grads = loss(p, moved, y[batch])
            step += 1
            lr = rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            for k, g in grads.items():
                first[k] = 0.9 * first[k] + 0.1 * g
                second[k] = 0.999 * second[k] + 0.001 * g * g
                mean, var = first[k] / (1 - 0.9**step), second[k] / (1 - 0.999**step)
                p[k] = (p[k] - lr * mean / (np.sqrt(var) + 1e-8)).astype(np.float32)
    return p


def mlp_params(rng: np.random.Generator) -> Params:
    """Return initial parameters of the MLP 64-128-64-10."""
    return {"w1": glorot(rng, 64, (64, 128)), "b1": np.zeros(128, np.float32),
            "w2": glorot(rng, 128, (128, 64)), "b2": np.zeros(64, np.float32),
            "w3": glorot(rng, 64, (64, 10)), "b3": np.zeros(10, np.float32)}


def conv_params(rng: np.random.Generator) -> Params:
    """Return initial parameters of the net conv16-pool-conv32-pool-linear10."""
    return {"k1": glorot(rng, 9, (16, 1, 3, 3)), "c1": np.zeros(16, np.float32),
            "k2": glorot(rng, 144, (32, 16, 3, 3)), "c2": np.zeros(32, np.float32),
            "w": glorot(rng, 128, (128, 10)), "b": np.zeros(10, np.float32)}


def scaled_input(g: GraphBuilder, half: bool) -> Value:
    """Declare the images and bring 0..16 to 0..1."""
    images = g.input("images", "u8", ["batch", 8, 8])
    dtype = "f16" if half else "f32"
    return g.mul(g.cast(images, to=dtype), g.constant(np.float32(1 / 16), dtype))


def build_mlp(p: Params, *, half: bool = False) -> GraphBuilder:
    """Return the graph of the trained MLP; half computes in f16 with f32 accumulation."""
    g = GraphBuilder("digits-mlp-f16" if half else "digits-mlp")
    w = {k: g.weight(k, v.astype(np.float16) if half else v) for k, v in p.items()}
    x = g.reshape(scaled_input(g, half), shape=[-1, 64])
    h = g.relu(g.add(g.matmul(x, w["w1"]), w["b1"]))
    h = g.relu(g.add(g.matmul(h, w["w2"]), w["b2"]))
    logits = g.add(g.matmul(h, w["w3"]), w["b3"])
    g.output("probabilities", g.softmax(logits, axis=-1))
    return g


def build_conv(p: Params) -> GraphBuilder:
    """Return the graph of the trained conv net."""
    g = GraphBuilder("digits-conv")
    w = {k: g.weight(k, v) for k, v in p.items()}
    x = g.reshape(scaled_input(g, False), shape=[-1, 1, 8, 8])
    x = g.relu(g.conv2d(x, w["k1"], w["c1"], pads=[1, 1, 1, 1]))
    x = g.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.relu(g.conv2d(x, w["k2"], w["c2"], pads=[1, 1, 1, 1]))
    x = g.max_pool(x, kernel_shape=[2, 2], strides=[2, 2])
    logits = g.add(g.matmul(g.reshape(x, shape=[-1, 128]), w["w"]), w["b"])
    g.output("probabilities", g.softmax(logits, axis=-1))
    return g


def write(g: GraphBuilder, stem: str, expected: str, *, atol: float) -> None:
    """Write stem.json and its weights; expected names the file of the expected output."""
    g.save(FOLDER / f"{stem}.json", weights=f"{stem}.safetensors", sample={
        "inputs": {"images": "images.npy"},
        "expected": {"probabilities": expected},
        "labels": {"probabilities": "labels.npy"},
        "atol": atol, "rtol": 0.0})


def main() -> None:
    """Train both nets, print their accuracy on the held-out images and write the files."""
    x, y, held_x, held_y = load_data()
    np.save(FOLDER / "images.npy", held_x)
    np.save(FOLDER / "labels.npy", held_y)
    scaled, held = (x / 16).astype(np.float32), (held_x / 16).astype(np.float32)
    none = np.empty(0, np.int64)
    mlp = train(mlp_loss, mlp_params(np.random.default_rng(SEED)), scaled, y, epochs=120)
    probabilities = softmax(mlp_loss(mlp, held, none)[0].astype(np.float64))
    print(f"MLP:      {np.mean(probabilities.argmax(1) == held_y):.2%} of {len(held)} images")
    np.save(FOLDER / "model-expected.npy", probabilities.astype(np.float32))
    write(build_mlp(mlp), "model", "model-expected.npy", atol=1e-4)
    write(build_mlp(mlp, half=True), "model-f16", "model-expected.npy", atol=2e-2)
    net = train(conv_loss, conv_params(np.random.default_rng(SEED)), scaled, y, epochs=60)
    probabilities = softmax(conv_loss(net, held, none)[0].astype(np.float64))
    print(f"conv net: {np.mean(probabilities.argmax(1) == held_y):.2%} of {len(held)} images")
    np.save(FOLDER / "conv-expected.npy", probabilities.astype(np.float32))
    write(build_conv(net), "conv", "conv-expected.npy", atol=1e-4)


if __name__ == "__main__":
    main()
