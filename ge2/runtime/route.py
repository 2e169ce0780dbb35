"""Routes: everything about a call that depends on its arrays' signatures but on no address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..compiler.ir.nodes import Graph
from ..errors import (
    DeviceMismatch,
    DtypeMismatch,
    Invalid,
    MissingInput,
    ShapeMismatch,
    StrideMismatch,
    near_matches,
)
from ..problem import TensorSpec, dense_strides
from . import arrays
from .arrays import Signature
from .bound import BoundPlan
from .device import Device
from .sizing import Sizing

# Updating a node costs 0.6 us of host time, a small copy 4.4 us once (measured on an H200).
MANY_NODES = 8
SMALL_INPUT_BYTES = 1 << 20


class InputRoute(NamedTuple):
    """Where an input goes.

    Attributes:
        root: of the plan.
        nbytes: of the dense tensor.
        host: whether it is copied from the host.
        stageable: whether copying it beats updating every launch that reads it.
    """

    root: int
    nbytes: int
    host: bool
    stageable: bool


class OutputRoute(NamedTuple):
    """Where an output comes from.

    Attributes:
        name, root: value and root of the plan.
        nbytes: of the dense tensor.
        host: whether it is copied to the host.
        make: makes a new array on a stream; unused where given or state is set.
        given: position among the caller's output arrays, -1 for none.
        state: position among the inputs of the array that it updates in place, -1 for none.
    """

    name: str
    root: int
    nbytes: int
    host: bool
    make: Callable[[int], Any]
    given: int
    state: int


@dataclass(frozen=True, slots=True)
class Route:
    """How calls with arrays of given signatures run.

    Attributes:
        bound: the plan.
        sizing: its numbers at the size of the arrays.
        inputs: in the order of the graph's inputs.
        outputs: in the order of the plan's outputs.
        kind: whose arrays are made, and whose current stream counts.
        on_gpu: whether any input lives on the GPU.
        host: whether any array lives on the host.
    """

    bound: BoundPlan
    sizing: Sizing
    inputs: tuple[InputRoute, ...]
    outputs: tuple[OutputRoute, ...]
    kind: str
    on_gpu: bool
    host: bool


def check_feeds(graph: Graph, feeds: Mapping[str, Any]) -> None:
    """Refuse inputs that are missing or unknown.

    Raises:
        MissingInput, Invalid.
    """
    for name in graph.inputs:
        if name not in feeds:
            raise MissingInput(f"input {name!r} was not given", argument=name,
                               wanted=", ".join(graph.inputs))
    for name in feeds:
        if name not in graph.inputs:
            raise Invalid(f"the graph has no input {name!r}", argument=name,
                          wanted=", ".join(graph.inputs), hint=near_matches(name, graph.inputs))


def input_specs(graph: Graph, device: Device, signatures: Mapping[str, Signature],
                ) -> dict[str, TensorSpec]:
    """Return the specs of a call's inputs.

    Raises:
        DtypeMismatch, DeviceMismatch: names the input.
    """
    specs = {}
    for name in graph.inputs:
        signature, wanted = signatures[name], graph.types[name].dtype
        spec = specs[name] = arrays.spec_of(signature)
        if spec.dtype != wanted:
            raise DtypeMismatch(f"input {name!r} has a wrong element type", argument=name,
                                found=spec.dtype, wanted=wanted)
        _check_device(device, signature, f"input {name!r}", name)
    return specs


def _check_device(device: Device, signature: Signature, what: str, name: str) -> None:
    if not signature.host and (device.kind != "cuda" or signature.device != device.index):
        raise DeviceMismatch(f"{what} is on another device", argument=name,
                             found=f"GPU {signature.device}",
                             wanted=f"{device.kind} device {device.index}")


def output_specs(graph: Graph, given: Mapping[str, Signature]) -> dict[str, TensorSpec]:
    """Return the specs of the arrays that a caller gave for outputs.

    Raises:
        Invalid: there is no such output.
    """
    for name in given:
        if name not in graph.outputs:
            raise Invalid(f"the graph has no output {name!r}", argument=name,
                          wanted=", ".join(graph.outputs),
                          hint=near_matches(name, graph.outputs))
    return {name: arrays.spec_of(signature) for name, signature in given.items()}


def make_route(bound: BoundPlan, sizing: Sizing, graph: Graph, signatures: Mapping[str, Signature],
               given: Mapping[str, Signature]) -> Route:
    """Return the route of a call.

    Args:
        bound: the plan for these signatures.
        sizing: its numbers.
        graph: whose inputs and aliases count.
        signatures: of the inputs.
        given: of the arrays that the caller gave for outputs.

    Raises:
        DtypeMismatch, ShapeMismatch, StrideMismatch, DeviceMismatch: a given output does not fit.
    """
    plan = bound.plan
    inputs = tuple(_input(bound, sizing, plan.inputs[name], signatures[name])
                   for name in graph.inputs)
    first_gpu = next((s for s in signatures.values() if not s.host), None)
    kinds = {s.kind for s in signatures.values()}
    kind = first_gpu.kind if first_gpu else ("torch" if "torch" in kinds else "numpy")
    place = bound.device.index if first_gpu else None
    outputs = tuple(_output(bound, sizing, graph, name, root, given, signatures, kind, place)
                    for name, root in plan.outputs.items())
    host = any(s.host for s in (*signatures.values(), *given.values()))
    return Route(bound, sizing, inputs, outputs, kind, first_gpu is not None, host)


def _input(bound: BoundPlan, sizing: Sizing, root: int, signature: Signature) -> InputRoute:
    nbytes = sizing.nbytes[root]
    stageable = (len(bound.uses[root]) > MANY_NODES and nbytes <= SMALL_INPUT_BYTES
                 and arrays.spec_of(signature).is_dense)
    return InputRoute(root, nbytes, signature.host, stageable)


def _output(bound: BoundPlan, sizing: Sizing, graph: Graph, name: str, root: int,
            given: Mapping[str, Signature], signatures: Mapping[str, Signature],
            kind: str, place: int | None) -> OutputRoute:
    nbytes, shape = sizing.nbytes[root], sizing.shapes[name]
    source = graph.aliases.get(name)
    if source is not None:
        return OutputRoute(name, root, nbytes, signatures[source].host, _no_array, -1,
                           graph.inputs.index(source))
    if name in given:
        _check_output(name, given[name], graph.types[name].dtype, shape, bound.device)
        return OutputRoute(name, root, nbytes, given[name].host, _no_array,
                           list(given).index(name), -1)
    make = arrays.maker(kind, TensorSpec.dense(graph.types[name].dtype, shape), place)
    return OutputRoute(name, root, nbytes, place is None, make, -1, -1)


def _no_array(stream: int) -> Any:
    raise AssertionError("the array is given")


def _check_output(name: str, signature: Signature, dtype: str, shape: tuple[int, ...],
                  device: Device) -> None:
    found = arrays.spec_of(signature)
    _check_device(device, signature, f"output {name!r}", name)
    if found.dtype != dtype:
        raise DtypeMismatch(f"output {name!r} has a wrong element type", argument=name,
                            found=found.dtype, wanted=dtype)
    if found.shape != shape:
        raise ShapeMismatch(f"output {name!r} has a wrong shape", argument=name,
                            found=found.shape, wanted=shape)
    if not found.is_dense:
        raise StrideMismatch(f"output {name!r} is not dense", argument=name,
                             found=found.strides, wanted=dense_strides(shape))


__all__ = ["InputRoute", "OutputRoute", "Route", "check_feeds", "input_specs",
           "make_route", "output_specs"]
