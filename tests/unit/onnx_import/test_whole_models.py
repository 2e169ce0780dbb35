"""Whole models beside onnxruntime: a file-type classifier, and networks of the onnx package."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import zipfile
import zlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ge2.model import load
from ge2.model.model import Model
from ge2.model.onnx_import.importer import import_model

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is the oracle")
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


def oracle(model: bytes | str, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options).run(None, feeds)


# -- magika: raw bytes to a label -----------------------------------------------------------------

def magika_folder() -> Path:
    spec = importlib.util.find_spec("magika")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the magika package is not installed")
    return sorted(Path(spec.submodule_search_locations[0], "models").glob("standard*"))[-1]


PYTHON = """import os
from dataclasses import dataclass

@dataclass
class Point:
    x: float
    y: float

    def norm(self) -> float:
        return (self.x ** 2 + self.y ** 2) ** 0.5

def main():
    for name in os.listdir("."):
        print(name, Point(1.0, len(name)).norm())

if __name__ == "__main__":
    main()
"""
HTML = """<!DOCTYPE html>
<html lang="en"><head><title>A page</title><style>p { color: red; }</style></head>
<body><h1>Heading</h1><p>Some <a href="http://example.com">text</a>.</p>
<script>console.log("hello");</script></body></html>
"""
C_CODE = """#include <stdio.h>
#include <stdlib.h>

typedef struct { int id; char *name; } item_t;

static int compare(const void *a, const void *b) {
    return ((const item_t *)a)->id - ((const item_t *)b)->id;
}

int main(int argc, char **argv) {
    item_t *items = malloc(sizeof(item_t) * 10);
    for (int i = 0; i < 10; i++) { items[i].id = rand() % 100; }
    qsort(items, 10, sizeof(item_t), compare);
    printf("%d\\n", items[0].id);
    free(items);
    return 0;
}
"""
SQL = """CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age INTEGER);
INSERT INTO users (id, name, age) VALUES (1, 'Ada', 36), (2, 'Alan', 41);
SELECT name, COUNT(*) FROM users JOIN orders ON users.id = orders.user_id
WHERE age > 30 GROUP BY name ORDER BY name DESC;
"""


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return len(data).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    pixels = np.random.default_rng(0).integers(0, 256, (32, 1 + 3 * 32), dtype=np.uint8)
    pixels[:, 0] = 0
    head = (32).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(pixels.tobytes())) + chunk(b"IEND", b""))


def archive() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for i in range(5):
            file.writestr(f"notes/{i}.txt", f"line {i}\n" * 200)
    return target.getvalue()


FILES = {
    "python": PYTHON.encode(), "html": HTML.encode(), "c": C_CODE.encode(), "sql": SQL.encode(),
    "png": png(), "zip": archive(),
    "gzip": gzip.compress(b"".join(b"%d some text to compress\n" % i for i in range(300))),
    "json": json.dumps({"users": [{"id": i, "name": f"user {i}", "tags": ["a", "b"]}
                                  for i in range(40)], "total": 40}, indent=2).encode(),
}


def features(content: bytes, config: dict[str, int]) -> np.ndarray:
    """Return what magika's model reads: both ends of a file without white space, padded."""
    block, pad = min(config["block_size"], len(content)), config["padding_token"]
    head = list(content[:block].lstrip()[:config["beg_size"]])
    tail = list(content[len(content) - block:].rstrip()[-config["end_size"]:])
    return np.array(head + [pad] * (config["beg_size"] - len(head))
                    + [pad] * (config["end_size"] - len(tail)) + tail, np.int32)


def test_magika_labels_files_of_eight_kinds():
    folder = magika_folder()
    config = json.loads((folder / "config.min.json").read_text())
    model = load(folder / "model.onnx", backend="cpu")
    batch = np.stack([features(content, config) for content in FILES.values()])
    found = model(batch)
    scores, = found.values()
    labels = [config["target_labels_space"][i] for i in scores.argmax(1)]
    assert labels == list(FILES)
    wanted, = oracle(str(folder / "model.onnx"), {"bytes": batch})
    np.testing.assert_allclose(scores, wanted, atol=1e-5)


# -- networks with constant weights, given random ones ---------------------------------------------

def with_random_weights(proto: onnx.ModelProto) -> None:
    """Replace ConstantOfShape by weights of about unit gain, batch statistics by likely ones."""
    rng = np.random.default_rng(7)
    shapes = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    readers = {name: (node.op_type, place) for node in proto.graph.node
               for place, name in enumerate(node.input)}
    kept = []
    for node in proto.graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(shapes[node.input[0]])
        array = rng.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        if readers.get(node.output[0]) in (("BatchNormalization", 1), ("BatchNormalization", 4)):
            array = rng.uniform(0.5, 1.5, shape)
        proto.graph.initializer.append(
            numpy_helper.from_array(array.astype(np.float32), node.output[0]))
    del proto.graph.node[:]
    proto.graph.node.extend(kept)


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1", "resnet50",
                                  "densenet121"])
def test_networks_of_the_onnx_package(name):
    path = LIGHT / f"light_{name}.onnx"
    if not path.exists():
        pytest.skip("this version of the onnx package has no light networks")
    proto = onnx.load(path)
    with_random_weights(proto)
    info = next(i for i in proto.graph.input
                if i.name not in {t.name for t in proto.graph.initializer})
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    feeds = {info.name: np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)}
    got = Model(import_model(proto).graph, backend="cpu").run(feeds)
    wanted = oracle(proto.SerializeToString(), feeds)
    for array, expected in zip(got.values(), wanted, strict=True):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(array / scale, expected / scale, atol=2e-4)
