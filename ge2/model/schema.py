"""The model file's types: what model.json may hold, and its JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

FORMAT_VERSION = 1

Name = Annotated[
    str,
    Meta(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f\x7f]+(?!\n)$",
         description="a name; no control characters"),
]
FilePath = Annotated[
    str, Meta(min_length=1, description="a path relative to the model file, inside its folder")
]
# In Python `$` also matches before a final newline; (?!\n) refuses that.
Extent = Annotated[int, Meta(ge=0, le=2**40)] | Annotated[
    str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(?!\n)$", description="a named dimension")
]
DTypeName = Annotated[
    str, Meta(description="f32, f16, bf16, f64, i32, i64, bool, u8, i8, f8e4m3 or f8e5m2")
]
Tolerance = Annotated[float, Meta(ge=0)]


class InputDecl(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One model input. Here and below an unknown key is an error, not a silent typing mistake."""

    name: Name
    dtype: DTypeName
    shape: Annotated[list[Extent], Meta(max_length=8)]


class NodeDecl(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One operator application; "" stands for an optional input that is absent."""

    op: Name
    inputs: list[str]
    outputs: Annotated[list[Name], Meta(min_length=1)]
    name: Name | None = None
    attrs: dict[str, Any] = {}


class StateDecl(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A buffer that outlives a call: starts as zeros, then holds the value named by next."""

    dtype: DTypeName
    shape: Annotated[list[Annotated[int, Meta(ge=0, le=2**40)]], Meta(max_length=8)]
    next: Name


class SampleDecl(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Files with real inputs and what the model should answer."""

    inputs: dict[str, FilePath]
    expected: dict[str, FilePath] = {}
    labels: dict[str, FilePath] = {}
    atol: Tolerance = 1e-4
    rtol: Tolerance = 1e-4


class ModelFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A model: a graph of operators, the file of its weights, and a sample."""

    ge2: Annotated[int, Meta(description="format version", ge=1)]
    inputs: list[InputDecl]
    outputs: Annotated[list[Name], Meta(min_length=1)]
    nodes: list[NodeDecl]
    name: Name = "model"
    weights: FilePath | Annotated[list[FilePath], Meta(min_length=1)] | None = None
    state: dict[str, StateDecl] = {}
    sample: SampleDecl | None = None


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of model.json."""
    schema = msgspec.json.schema(ModelFile)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"ge2 model file, format version {FORMAT_VERSION}",
        **schema,
    }
