"""The sample of a model file: real inputs, expected outputs, labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..compiler.ir.nodes import TensorType
from ..errors import ModelError, near_matches
from .compare import Comparison, compare
from .data import read_array
from .schema import SampleDecl
from .weights import resolve_inside


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How often the largest element of an output is at the labelled position."""

    name: str
    right: int
    total: int

    def report(self) -> str:
        """Return the line that a person reads."""
        share = 100 * self.right / max(self.total, 1)
        return f"{self.name}: accuracy {share:.2f} % ({self.right} of {self.total})"


@dataclass(slots=True)
class Sample:
    """Files named by a model file; arrays are read when asked for.

    Attributes:
        path: the model file, for messages.
        declared: the sample section.
        inputs: declared type of each model input.
        outputs: the model's output names.
    """

    path: Path
    declared: SampleDecl
    inputs: Mapping[str, TensorType]
    outputs: list[str] = field(default_factory=list)

    def check(self) -> None:
        """Check names and paths without reading an array.

        Raises:
            ModelError: an unknown input or output, or a file that is missing or outside.
        """
        for section, known in (("inputs", list(self.inputs)), ("expected", self.outputs),
                               ("labels", self.outputs)):
            for name, file in getattr(self.declared, section).items():
                where = self._where(section, name)
                if name not in known:
                    noun = "input" if section == "inputs" else "output"
                    raise ModelError(f"{where}: the model has no {noun} {name!r}",
                                     wanted=", ".join(known), hint=near_matches(name, known))
                self._file(file, where)
        missing = [name for name in self.inputs if name not in self.declared.inputs]
        if missing:
            raise ModelError(f"{self.path}: $.sample.inputs: no file for input "
                             f"{', '.join(map(repr, missing))}")

    def feeds(self) -> dict[str, npt.NDArray[Any]]:
        """Return the sample's inputs."""
        return {name: self._read("inputs", name, file, self.inputs[name])
                for name, file in self.declared.inputs.items()}

    def compare(self, outputs: Mapping[str, npt.NDArray[Any]], *, atol: float | None = None,
                rtol: float | None = None) -> list[Comparison]:
        """Compare outputs with the expected ones; tolerances default to the file's."""
        return [
            compare(name, np.asarray(outputs[name]), self._read("expected", name, file),
                    atol=self.declared.atol if atol is None else atol,
                    rtol=self.declared.rtol if rtol is None else rtol)
            for name, file in self.declared.expected.items() if name in outputs
        ]

    def accuracy(self, outputs: Mapping[str, npt.NDArray[Any]]) -> list[Accuracy]:
        """Return the accuracy of each labelled output."""
        found = []
        for name, file in self.declared.labels.items():
            if name not in outputs:
                continue
            labels = self._read("labels", name, file)
            best = np.asarray(outputs[name]).astype(np.float64).argmax(axis=-1)
            if best.shape != labels.shape:
                raise ModelError(f"{self._where('labels', name)}: the labels have another shape",
                                 found=labels.shape, wanted=best.shape)
            found.append(Accuracy(name, int((best == labels).sum()), int(labels.size)))
        return found

    def _read(self, section: str, name: str, file: str, kind: TensorType | None = None
              ) -> npt.NDArray[Any]:
        where = self._where(section, name)
        try:
            return read_array(self._file(file, where), kind)
        except ModelError as error:
            raise ModelError(f"{where}: {error}") from None

    def _file(self, file: str, where: str) -> Path:
        target = resolve_inside(self.path.parent, file, where)
        if not target.is_file():
            raise ModelError(f"{where}: {target} does not exist")
        return target

    def _where(self, section: str, name: str) -> str:
        return f"{self.path}: $.sample.{section}.{name}"
