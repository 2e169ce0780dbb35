"""BERT's uncased WordPiece tokenizer, from a vocab.txt."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

_LONGEST_WORD = 100
# Chinese characters are words of their own.
_IDEOGRAPHS = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
               (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


class Tokenizer:
    """Splits sentences into ids of a vocabulary.

    Args:
        vocabulary: a vocab.txt, one piece a line; a piece that continues a word starts with ##.
    """

    def __init__(self, vocabulary: Path) -> None:
        pieces = vocabulary.read_text(encoding="utf-8").splitlines()
        self.ids = {piece: index for index, piece in enumerate(pieces)}
        self.pad, self.unknown, self.start, self.end = (
            self.ids[f"[{name}]"] for name in ("PAD", "UNK", "CLS", "SEP"))

    def encode(self, sentence: str, longest: int = 256) -> list[int]:
        """Return the ids of a sentence with its start and end marks, cut to longest."""
        ids = [i for word in _words(sentence) for i in self._pieces(word)]
        return [self.start, *ids[:longest - 2], self.end]

    def batch(self, sentences: Sequence[str], longest: int = 256
              ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return (ids, mask) of sentences, padded to the longest of them."""
        rows = [self.encode(sentence, longest) for sentence in sentences]
        ids = np.full((len(rows), max(map(len, rows), default=0)), self.pad, np.int64)
        for row, found in zip(ids, rows, strict=True):
            row[:len(found)] = found
        lengths = np.array([len(row) for row in rows])
        return ids, np.arange(ids.shape[1]) < lengths[:, None]

    def _pieces(self, word: str) -> list[int]:
        """Return the longest pieces from the left; the unknown id where a rest has none."""
        if len(word) > _LONGEST_WORD:
            return [self.unknown]
        found = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            end = next((end for end in range(len(word), start, -1)
                        if prefix + word[start:end] in self.ids), None)
            if end is None:
                return [self.unknown]
            found.append(self.ids[prefix + word[start:end]])
            start = end
        return found


def _words(sentence: str) -> Iterator[str]:
    """Yield lower-case words without accents, and each sign of punctuation."""
    word = ""
    for char in unicodedata.normalize("NFD", _clean(sentence)).lower():
        if unicodedata.category(char) == "Mn":
            continue
        if char == " " or _stands_alone(char):
            if word:
                yield word
            word = ""
            if char != " ":
                yield char
        else:
            word += char
    if word:
        yield word


def _clean(text: str) -> str:
    kept = []
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            kept.append(" ")
        elif char not in "\0\ufffd" and unicodedata.category(char)[0] != "C":
            kept.append(char)
    return "".join(kept)


def _stands_alone(char: str) -> bool:
    code = ord(char)
    return (unicodedata.category(char)[0] == "P" or (code < 128 and not char.isalnum())
            or any(low <= code <= high for low, high in _IDEOGRAPHS))
