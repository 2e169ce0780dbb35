"""Random damage to model files: a ModelError or a model, never another exception."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest

import ge2
from ge2.compiler.opdefs import OPS
from ge2.errors import ModelError

from .folders import good_document, write_folder

DIGITS = Path("examples/digits")
ODD: list[Any] = [None, True, False, -1, 0, 1, 7, 2**63, 1.5, 1e300, "", "x", "h", "y", "batch",
                  "inf", [], {}, [[]], [0], ["x", "x"], {"a": 1}, "\ud800", "é", "a" * 600,
                  "../up", "/", ".", "MATMUL", "CONV2D", "RESHAPE", "SPLIT", "GATHER", "REDUCE_SUM"]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else (
        enumerate(value) if isinstance(value, list) else ())
    for key, child in items:
        found += places(child, (*path, key))
    return found


def damage(document: Any, rng: random.Random) -> None:
    path = rng.choice(places(document))
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    action = rng.randrange(4)
    if action == 0:
        parent[path[-1]] = copy.deepcopy(rng.choice(ODD))
    elif action == 1:
        del parent[path[-1]]
    elif action == 2 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(rng.choice(ODD)))
    elif isinstance(parent, dict):
        parent[str(rng.choice(ODD))] = copy.deepcopy(rng.choice(ODD))
    else:
        rng.shuffle(parent)


def load(path: Path) -> None:
    try:
        ge2.load(path, backend="cpu")
    except ModelError as error:
        assert str(path) in str(error)


@pytest.mark.parametrize("seed", range(300))
def test_damaged_document(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    document = good_document()
    if seed % 2:
        document = json.loads((DIGITS / "conv.json").read_text())
        for name in ("conv.safetensors", "images.npy", "labels.npy", "conv-expected.npy"):
            (tmp_path / name).symlink_to((DIGITS / name).resolve())
        document["weights"] = "conv.safetensors"
    for _ in range(rng.randint(1, 3)):
        if places(document):
            damage(document, rng)
    path = write_folder(tmp_path, text=json.dumps(document))
    load(path)


@pytest.mark.parametrize("seed", range(150))
def test_damaged_bytes(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = write_folder(tmp_path)
    victim = rng.choice([path, tmp_path / "weights.safetensors"])
    data = bytearray(victim.read_bytes())
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(len(data))
        action = rng.randrange(3)
        if action == 0:
            data[at] = rng.randrange(256)
        elif action == 1:
            del data[at:at + rng.randint(1, 20)]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 4))
    victim.write_bytes(bytes(data))
    load(path)


@pytest.mark.parametrize("op", sorted(OPS))
def test_every_operator_with_odd_inputs(tmp_path: Path, op: str) -> None:
    from ge2.compiler import opdefs

    rng = random.Random(op)
    definition = opdefs.OPS[op]
    for _ in range(40):
        n = rng.randint(0, len(definition.inputs) + 1)
        shapes = [[], [0], [3], ["batch"], ["batch", 4], [2, 3, 4], [1, 2, 3, 3], [1, 1, 1, 1, 1]]
        document = {
            "ge2": 1,
            "inputs": [{"name": f"x{i}", "shape": rng.choice(shapes),
                        "dtype": rng.choice(["f32", "i64", "bool", "f16"])} for i in range(n)],
            "outputs": ["y"],
            "nodes": [{"op": op, "inputs": [f"x{i}" for i in range(n)], "outputs": ["y"],
                       "attrs": {spec.name: attr(spec.kind, rng) for spec in definition.attrs
                                 if rng.random() < 0.7}}],
        }
        load(write_folder(tmp_path, document))


def attr(kind: str, rng: random.Random) -> Any:
    number = rng.choice([-3, -1, 0, 1, 2, 5, 10**20])
    return rng.choice({
        "int": [number], "float": [0.5, "inf", number], "bool": [True, 0, 1, 3],
        "ints": [[], [number], [number, 1], [1, 1], [1, 1, 1, 1], [0, -1]],
        "floats": [[], [0.5]], "str": ["none", "relu", "SAME_UPPER", "constant", "x"],
        "dtype": ["f32", "i8", "f8"], "expr": ["x0 + x1", 1, []],
    }[kind])
