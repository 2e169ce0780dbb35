"""Options and markers of the whole test suite."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# Other work on the machine must not fail a property test; pytest's timeout catches what hangs.
settings.register_profile("ge2", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ge2")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the complete matrices as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    for item in items:
        if "full" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="part of the complete matrix; run with --full"))
