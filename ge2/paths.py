"""Where things are: kernel sources, cache and data folders."""

from __future__ import annotations

import os
import tempfile
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


_user_kernel_dirs: list[Path] = []


def add_kernel_dir(folder: Path) -> None:
    """Search a folder for kernel templates (and its include/ for headers) from now on."""
    folder = Path(folder).expanduser().absolute()
    if folder not in _user_kernel_dirs:
        _user_kernel_dirs.append(folder)


def remove_kernel_dirs() -> None:
    """Forget the folders of add_kernel_dir(); those of GE2_KERNEL_PATH stay."""
    _user_kernel_dirs.clear()


def user_kernel_dirs() -> tuple[Path, ...]:
    """Return the folders of users' own kernels: GE2_KERNEL_PATH, then add_kernel_dir()."""
    from . import config

    listed = config.get("GE2_KERNEL_PATH").split(os.pathsep)
    configured = [Path(name).expanduser().absolute() for name in listed if name]
    return (*configured, *_user_kernel_dirs)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees a part of it: temp file beside it, then replace.

    Raises:
        OSError: the folder is missing, read-only or full.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def cache_dir() -> Path:
    """Return the cache folder: GE2_CACHE_DIR, else the platform's user cache folder."""
    from . import config

    configured = config.get("GE2_CACHE_DIR")
    if configured:
        return Path(configured).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("ge2", appauthor=False))


def unusable_cache(folder: Path) -> str:
    """Return why a cache folder must not be used, or an empty string; makes it where missing.

    Cached kernels are executed: a folder that every user may write to is refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mode = folder.stat().st_mode
    except OSError as error:
        return f"kernel cache {folder} cannot be made ({error.strerror or error})"
    if mode & 0o002:
        return (f"kernel cache {folder} is writable by every user, so its kernels cannot be trusted"
                "; chmod o-w it or set GE2_CACHE_DIR")
    return ""


@cache
def private_folder() -> Path:
    """Return a folder of this process for what is not kept; removed at exit."""
    import atexit
    import shutil

    folder = Path(tempfile.mkdtemp(prefix="ge2-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def let_cupy_start() -> None:
    """Give CuPy a cache folder that can be made: it makes one when imported, and fails otherwise.

    Call this before `import cupy`: with a read-only home, CuPy alone would not even be imported.
    """
    if "CUPY_CACHE_DIR" in os.environ:
        return
    folder = Path(os.path.expanduser("~/.cupy/kernel_cache"))  # noqa: PTH111 - as CuPy does
    nearest = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if nearest != folder and not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        os.environ["CUPY_CACHE_DIR"] = str(private_folder() / "cupy")


def data_dir() -> Path:
    """Return the folder of tuning evidence: GE2_DATA_DIR, else the platform's user data folder."""
    from . import config

    configured = config.get("GE2_DATA_DIR")
    if configured:
        return Path(configured).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_data_dir("ge2", appauthor=False))
