"""Compiled kernels of these tests are kept in pytest's own cache folder, not in the user's."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(request: pytest.FixtureRequest,
                 tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    kept = getattr(request.config, "cache", None)  # None with -p no:cacheprovider
    folder = kept.mkdir("ge2_kernels") if kept else tmp_path_factory.mktemp("ge2_kernels")
    before = os.environ.get("GE2_CACHE_DIR")
    os.environ["GE2_CACHE_DIR"] = str(folder)
    yield
    if before is None:
        del os.environ["GE2_CACHE_DIR"]
    else:
        os.environ["GE2_CACHE_DIR"] = before
