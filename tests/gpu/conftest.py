"""GPU tests run where there is a GPU and cupy; elsewhere each is skipped with the reason."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ge2.runtime import driver


def _reason() -> str:
    if find_spec("cupy") is None:
        return "cupy is not installed"
    return "" if driver.is_available() else "there is no usable NVIDIA GPU"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder without a GPU, and end the process when one of them hangs.

    A wait for a kernel that never ends does not return to Python, where the timeout's signal would
    be seen; its thread ends the process instead.
    """
    reason = _reason()
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(method="thread"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def device():
    """The GPU under test."""
    from ge2.runtime.device import cuda_device, default_index

    return cuda_device(default_index())
