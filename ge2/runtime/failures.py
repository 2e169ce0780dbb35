"""What failed as folders in the cache that make it fail again; the newest few are kept.

    python FOLDER/run.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from .. import log, paths
from ..compiler.kernels.source import Headers
from ..errors import CompileFailed
from . import nvrtc
from .compile_worker import Request

KEPT = 100
_SCRIPT = '''\
"""Compiles the kernel of this folder again, with the headers beside it; needs NVRTC, no GPU."""

import sys
from pathlib import Path

from ge2.errors import Ge2Error
from ge2.runtime.failures import compile_again

try:
    compile_again(Path(__file__).parent)
except Ge2Error as error:
    sys.exit(str(error))
print("it compiles")
'''


def write(name: str, files: dict[str, str]) -> Path | None:
    """Write a folder below the cache's `failed`, else below this process's own.

    Args:
        name: of the folder; one that is there is written over.
        files: text by path in the folder.

    Returns:
        The folder, or None where no disk takes it.
    """
    for place in (paths.cache_dir() / "failed", None):
        try:
            folder = (place or paths.private_folder()) / name
            for file, text in files.items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                paths.write_atomic(folder / file, text.encode())
            folder.touch()
            _drop_old(folder.parent if place else None)
            return folder
        except OSError as error:
            log.topic("compile").info("cannot keep %s: %s", name, error)
    return None


def _drop_old(place: Path | None) -> None:
    found = sorted(place.iterdir(), key=lambda p: p.stat().st_mtime) if place else []
    for old in found[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def save_compile(request: Request, text: str) -> Path | None:
    """Keep a failed compile and return its folder.

    Args:
        request: what did not compile.
        text: the compiler's log, in lines of the template.
    """
    about = {"ge2_compile": 1, "template": request.template, "entry": request.entry,
             "name": request.name, "arch": request.arch, "is_ptx": request.is_ptx,
             "options": request.options, "nvrtc": nvrtc.version()}
    headers = Headers(tuple(map(Path, request.include_dirs))).closure(request.text, request.name)
    return write(f"{Path(request.name).stem}-{request.key[:12]}", {
        "kernel.cu": request.text, "log.txt": text, "run.py": _SCRIPT,
        "compile.json": json.dumps(about, indent=1),
        **{f"include/{name}": content.decode() for name, content in headers.items()}})


def compile_again(folder: Path) -> nvrtc.Binary:
    """Compile the kernel of a folder that save_compile wrote.

    Raises:
        CompileFailed: it fails again; carries the log, in lines of kernel.cu.
    """
    about: dict[str, Any] = json.loads((folder / "compile.json").read_text("utf-8"))
    source = folder / "kernel.cu"
    try:
        return nvrtc.compile_text(
            source.read_text("utf-8"), str(source), nvrtc.Target(about["arch"], about["is_ptx"]),
            [str(folder / "include")], about["options"])
    except nvrtc.NvrtcRefused as error:
        raise CompileFailed(f"{source} does not compile for {about['arch']}:\n{error.log}",
                            log=error.log, source_path=str(source)) from None
