"""What an operator definition is, and the checks that every definition shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ...contract import DTYPES, FLOAT8_MAX, REQUIRED, AttrSpec, numpy_dtype
from ...errors import DtypeMismatch, GraphError, MissingInput, near_matches
from ..ir.dim import Dim
from ..ir.nodes import TensorType
from ..ir.size import Size

Array = npt.NDArray[Any]
Attrs = Mapping[str, Any]
Types = Sequence[TensorType | None]
Arrays = Sequence[Array | None]

FLOATS = ("f32", "f16", "bf16", "f64")
INTS = ("i32", "i64", "u8", "i8")
SIGNED = (*FLOATS, "i32", "i64", "i8")
NUMERIC = (*FLOATS, *INTS)
F8 = tuple(FLOAT8_MAX)
ALL = (*NUMERIC, "bool", *F8)
INDEX = ("i32", "i64")
BOOL = ("bool",)


class Builder(Protocol):
    """Appends nodes to a graph; what a decomposition is written against."""

    def op(self, name: str, *inputs: str, **attrs: Any) -> str:
        """Append a node and return its first output."""

    def multi(self, name: str, n_outputs: int, *inputs: str, **attrs: Any) -> tuple[str, ...]:
        """Append a node and return its first n_outputs outputs."""

    def constant(self, array: Array) -> str:
        """Return a constant value."""

    def type(self, value: str) -> TensorType:
        """Return the type of a value."""


@dataclass(frozen=True, eq=False)
class OpDef:
    """One operator.

    Attributes:
        name: upper case ("GEMM_BIAS_ACT").
        inputs: input names; a trailing "?" marks an optional one, "*" a variadic last one.
        n_outputs: outputs that infer returns at most; 0 when the attributes decide. A node may
            name fewer.
        attrs: attribute declarations, in params-block order.
        infer: (types, full attributes) -> output types; raises Ge2Error.
        reference: (arrays, full attributes) -> arrays. Gets f16 and bf16 widened to f32; the caller
            rounds to the inferred dtypes once.
        properties: names from ir.properties.
        doc: one line.
        family: which group of kernels serves it.
        dtypes: what the main inputs may be; they all share one dtype.
        other: inputs with a dtype of their own -> what it may be.
        expr: for elementwise operators, (input expressions, full attributes) -> Expr.
        decompose: (builder, input values, full attributes) -> output values, or None when this
            node cannot be decomposed.
    """

    name: str
    inputs: tuple[str, ...]
    n_outputs: int
    attrs: tuple[AttrSpec, ...]
    infer: Callable[[Types, dict[str, Any]], list[TensorType]]
    reference: Callable[[Arrays, dict[str, Any]], list[Array]]
    properties: frozenset[str] = frozenset()
    doc: str = ""
    family: str = "movement"
    dtypes: tuple[str, ...] = ALL
    other: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    expr: Callable[..., Any] | None = None
    decompose: Callable[[Builder, Sequence[str], dict[str, Any]], Sequence[str] | None] | None = (
        None)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Input names without markers."""
        return tuple(name.rstrip("?*") for name in self.inputs)

    @property
    def variadic(self) -> bool:
        """Whether the last input may repeat."""
        return bool(self.inputs) and self.inputs[-1].endswith("*")

    def input_name(self, index: int) -> str:
        """Return the name of input index; a repeated one is numbered ("xs[2]")."""
        last = len(self.inputs) - 1
        if self.variadic and index >= last:
            return f"{self.input_names[last]}[{index - last}]"
        return self.input_names[index]


_KINDS: dict[str, Callable[[Any], Any]] = {}


def _as_int(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer, Dim)):
        raise TypeError
    return value if isinstance(value, Dim | Size) else int(value)


def _as_float(value: Any) -> Any:
    if isinstance(value, Dim):
        return value  # an extent where a number is wanted, as in RANGE
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError
    return float(value)


def _as_bool(value: Any) -> bool:
    if value not in (0, 1):
        raise TypeError
    return bool(value)


def _as_str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _as_dtype(value: Any) -> str:
    if value not in DTYPES:
        raise TypeError
    return str(value)


def _sequence(item: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def convert(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray)):
            raise TypeError
        return tuple(item(v) for v in value)

    return convert


_KINDS.update({"int": _as_int, "float": _as_float, "bool": _as_bool, "str": _as_str,
               "dtype": _as_dtype, "expr": lambda value: value,
               "ints": _sequence(_as_int), "floats": _sequence(_as_float)})


def fill_attrs(op: OpDef, attrs: Attrs) -> dict[str, Any]:
    """Return every attribute of op in canonical form: defaults filled, lists as tuples.

    Raises:
        GraphError: an attribute is unknown, missing, of the wrong kind or not among the choices.
    """
    full: dict[str, Any] = {}
    used = 0
    for spec in op.attrs:
        if spec.name in attrs:
            used += 1
            full[spec.name] = _check_attr(op, spec, attrs[spec.name])
        elif spec.default is REQUIRED:
            raise GraphError(f"{op.name} needs attribute {spec.name!r}", wanted=spec.kind)
        else:
            full[spec.name] = spec.default
    if used != len(attrs):
        known = [spec.name for spec in op.attrs]
        for name in attrs:
            if name not in known:
                raise GraphError(f"{op.name} has no attribute {name!r}",
                                 wanted=", ".join(known) or "no attributes",
                                 hint=near_matches(name, known))
    return full


def _check_attr(op: OpDef, spec: AttrSpec, value: Any) -> Any:
    if value is None and spec.default is not REQUIRED:
        return spec.default
    try:
        value = _KINDS[spec.kind](value)
    except TypeError:
        wanted = ", ".join(DTYPES) if spec.kind == "dtype" else spec.kind
        raise GraphError(f"{op.name} attribute {spec.name!r} is of the wrong kind",
                         found=repr(value), wanted=wanted) from None
    if spec.choices and value not in spec.choices:
        raise GraphError(f"{op.name} attribute {spec.name!r} has an unknown value",
                         found=repr(value), wanted=", ".join(spec.choices))
    return value


def check_inputs(op: OpDef, types: Types) -> None:
    """Check the number of inputs and their dtypes.

    Raises:
        MissingInput: a required input is absent.
        GraphError: too many inputs.
        DtypeMismatch: an input's dtype is not allowed, or the main inputs differ.
    """
    if len(types) > len(op.inputs) and not op.variadic:
        raise GraphError(f"{op.name} takes {len(op.inputs)} inputs", found=len(types))
    main: str | None = None
    for index, declared in enumerate(op.inputs):
        if declared[-1] not in "?*" and (index >= len(types) or types[index] is None):
            raise MissingInput(f"{op.name} needs input {declared!r}")
    for index, given in enumerate(types):
        if given is None:
            if op.variadic and index >= len(op.inputs) - 1:
                raise MissingInput(f"{op.name} input {op.input_name(index)} may not be absent")
            continue
        # Graphs have many nodes: names are made where one is needed.
        own = op.other.get(op.input_name(index).partition("[")[0]) if op.other else None
        allowed = own or op.dtypes
        if given.dtype not in allowed:
            name = op.input_name(index)
            raise DtypeMismatch(f"{op.name} cannot take {name} of dtype {given.dtype}",
                                found=given, wanted=" or ".join(allowed))
        if own:
            continue
        if main is None:
            main = given.dtype
        elif main != given.dtype:
            name = op.input_name(index)
            raise DtypeMismatch(f"{op.name} input {name} differs in dtype from the others",
                                found=given.dtype, wanted=main,
                                hint="Add a CAST in the model")


def widen(array: Array | None) -> Array | None:
    """Return floats of 16 and 8 bits as f32; everything else as it is."""
    if array is None or array.dtype.char in "fdlqi?bB":
        return array
    if array.dtype in (np.float16, *(numpy_dtype(name) for name in ("bf16", *F8))):
        return array.astype(np.float32)
    return array


def narrow(array: Any, dtype: str) -> Array:
    """Return array in an IR dtype, rounded once, as on the device: integers wrap, 8-bit floats
    saturate."""
    if dtype in FLOAT8_MAX:
        array = np.clip(array, -FLOAT8_MAX[dtype], FLOAT8_MAX[dtype])
    result: Array = np.asarray(array).astype(numpy_dtype(dtype), copy=False)
    return result
