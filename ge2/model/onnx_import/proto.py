"""Reading ONNX files: bytes to a ModelProto of an operator set that ge2 knows."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from ...errors import ModelError, near_matches

log = logging.getLogger(__name__)

OLDEST_OPSET, NEWEST_OPSET = 7, 28
STANDARD = ("", "ai.onnx")


def read_proto(path: Path) -> onnx.ModelProto:
    """Return the model of a file, without its external data.

    Raises:
        ModelError: missing, unreadable, truncated or not ONNX.
    """
    if path.is_dir():
        inside = sorted(p.name for p in path.glob("*.onnx"))
        raise ModelError(f"{path} is a folder", wanted="an .onnx file",
                         hint=f"It holds {', '.join(inside)}" if inside else "")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        names = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        raise ModelError(f"{path} does not exist", hint=near_matches(path.name, names)) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model, or it is truncated",
                         found=f"{len(data)} bytes") from None
    if not model.HasField("graph"):
        raise ModelError(f"{path} is not an ONNX model: it holds no graph",
                         found=f"{len(data)} bytes", hint="The file may be truncated")
    return model


def opset_of(model: onnx.ModelProto, source: str) -> int:
    """Return the version of the standard operators that a model uses.

    Raises:
        ModelError: none is declared, or it is older or newer than what ge2 knows.
    """
    versions = [entry.version for entry in model.opset_import if entry.domain in STANDARD]
    wanted = f"{OLDEST_OPSET} to {NEWEST_OPSET}"
    if not versions:
        raise ModelError(f"{source}: no operator set is declared", wanted=f"opset {wanted}",
                         hint="The file may be truncated")
    version = versions[0]
    if not OLDEST_OPSET <= version <= NEWEST_OPSET:
        raise ModelError(f"{source}: unknown operator set", found=f"opset {version}",
                         wanted=f"opset {wanted}",
                         hint="Export the model again with another opset_version")
    return int(version)


def inlined(model: onnx.ModelProto, own: frozenset[str]) -> onnx.ModelProto:
    """Return a model without calls of functions.

    Functions that the model brings along are put in place, and standard operators that are defined
    by other operators, except those of own.
    """
    from onnx.inliner import inline_local_functions, inline_selected_functions

    if model.functions:
        model = inline_local_functions(model)
    opset = max(e.version for e in model.opset_import if e.domain in STANDARD)
    for op in sorted({n.op_type for n in model.graph.node if n.domain in STANDARD} - own):
        if not onnx.defs.has(op, opset, ""):
            continue
        schema: Any = onnx.defs.get_schema(op, opset, "")
        if schema.has_function or schema.has_context_dependent_function:
            try:
                model = inline_selected_functions(_with_defaults(model, op, schema), [("", op)],
                                                  inline_schema_functions=True)
            except RuntimeError as error:  # onnx needs types here that a model need not declare
                log.debug("%s stays as it is: %s", op, error)
    return model


def _with_defaults(model: onnx.ModelProto, op: str, schema: Any) -> onnx.ModelProto:
    """Return a copy in which an operator's nodes spell all attributes out, as inlining needs."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for node in made.graph.node:
        if node.op_type == op and node.domain in STANDARD:
            given = {attr.name for attr in node.attribute}
            node.attribute.extend(attr.default_value for name, attr in schema.attributes.items()
                                  if name not in given and attr.default_value.name)
    return made
