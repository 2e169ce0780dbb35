"""Importing ONNX models; needs the onnx package (the extra `onnx`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import EnvironmentUnusable

if TYPE_CHECKING:
    from ..node_writer import Imported

INSTALL_LINE = 'pip install "ge2[onnx]"'


def read_onnx(path: str | Path, *, dims: Mapping[str, int] | None = None,
              constants: Mapping[str, Any] | None = None) -> Imported:
    """Import an .onnx file.

    Args:
        path: the file; external data is looked up in its folder.
        dims: named dimensions that have these extents in every run.
        constants: inputs that have these elements in every run.

    Raises:
        EnvironmentUnusable: the onnx package is missing.
        ModelError: the file is broken, or uses what ge2 cannot express; lists all of it.
    """
    try:
        import onnx  # noqa: F401 - only whether it is there
    except ImportError:
        raise EnvironmentUnusable("reading ONNX models needs the onnx package",
                                  hint=INSTALL_LINE) from None
    from .importer import import_model
    from .proto import read_proto

    path = Path(path)
    return import_model(read_proto(path), str(path), path.parent, dims=dims, constants=constants)
