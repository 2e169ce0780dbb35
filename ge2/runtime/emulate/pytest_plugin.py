"""A pytest fixture for kernels: `pytest_plugins = ["ge2.runtime.emulate.pytest_plugin"]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ...errors import EnvironmentUnusable
from ...problem import Problem
from . import Report, find_compiler, run_problem

Array = np.ndarray[Any, np.dtype[Any]]


class Emulator:
    """What the `emulator` fixture gives: runs problems and keeps the reports.

    Attributes:
        reports: one per launch since the test began.
    """

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def __call__(self, kernel: Any, problem: Problem, arrays: Sequence[Array | None],
                 **options: Any) -> list[Array]:
        """Run a kernel (name, variant id or Variant) on a problem; see run_problem.

        Raises:
            EmulationError: a detector saw a fault.
        """
        return run_problem(kernel, problem, arrays, reports=self.reports, **options)

    def compare(self, kernel: Any, problem: Problem, arrays: Sequence[Array | None],
                compare: Callable[[Array, Array], None] | None = None, **options: Any) -> None:
        """Run a kernel and compare each output with the operator's float64 reference.

        Args:
            kernel, problem, arrays, options: as for a call.
            compare: takes found and wanted; default: np.testing.assert_allclose with the output
                type's rounding.
        """
        from ..problem_reference import reference

        found = self(kernel, problem, arrays, **options)
        for spec, y, wanted in zip(problem.outputs, found, reference(problem, arrays),
                                   strict=True):
            if compare is not None:
                compare(y, wanted)
                continue
            tolerance = {"f16": 2e-3, "bf16": 1.6e-2, "f64": 1e-12}.get(spec.dtype, 1e-5)
            np.testing.assert_allclose(y.astype(wanted.dtype), wanted, tolerance, tolerance)


@pytest.fixture
def emulator() -> Emulator:
    """Run kernels without a GPU; skips the test where no host compiler is installed."""
    try:
        find_compiler()
    except EnvironmentUnusable as error:
        pytest.skip(str(error))
    return Emulator()
