"""Where things are: kernel sources, cache and data folders."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def kernels_dir() -> Path:
    """Return the folder of kernel sources: inside an installed wheel, else the checkout's."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def include_dir() -> Path:
    """Return the folder that `#include <ge2/...>` is looked up in."""
    return kernels_dir() / "include"


def cache_dir() -> Path:
    """Return the cache folder: GE2_CACHE_DIR, else the platform's user cache folder."""
    from . import config

    configured = config.get("GE2_CACHE_DIR")
    if configured:
        return Path(configured).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("ge2", appauthor=False))


def data_dir() -> Path:
    """Return the folder of tuning evidence: GE2_DATA_DIR, else the platform's user data folder."""
    from . import config

    configured = config.get("GE2_DATA_DIR")
    if configured:
        return Path(configured).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("ge2", appauthor=False))
