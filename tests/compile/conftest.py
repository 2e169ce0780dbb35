"""Compiled kernels of these tests are kept in pytest's own cache folder, not in the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(request: pytest.FixtureRequest) -> Iterator[None]:
    assert request.config.cache is not None
    before = os.environ.get("GE2_CACHE_DIR")
    os.environ["GE2_CACHE_DIR"] = str(request.config.cache.mkdir("ge2_kernels"))
    yield
    if before is None:
        del os.environ["GE2_CACHE_DIR"]
    else:
        os.environ["GE2_CACHE_DIR"] = before
