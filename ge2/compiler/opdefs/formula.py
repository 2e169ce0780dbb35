"""Scalar expressions over NumPy arrays in cache-sized blocks, with reused buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...contract import numpy_dtype
from ..ir import expr as ex
from ..ir.expr import Expr
from ..ir.scalar_ops import SCALAR_OPS

Array = npt.NDArray[Any]

# Elements per block: a few f32 buffers of it stay in a core's L2 cache.
BLOCK = 32768

_Step = tuple[Callable[..., Any], tuple[int, ...], int, bool]


class Formula:
    """Expressions compiled to a list of NumPy calls over numbered slots.

    Slots hold constants, the block's inputs and coordinates, then intermediate values; a slot is
    used again once its value has been read for the last time.
    """

    def __init__(self, outputs: Sequence[Expr]) -> None:
        self.constants: list[tuple[int, Array]] = []
        self.inputs: list[tuple[int, int, np.dtype[Any]]] = []
        self.scalars: list[tuple[int, int, np.dtype[Any]]] = []
        self.coords: list[tuple[int, int]] = []
        self.steps: list[_Step] = []
        self.buffers: list[tuple[int, np.dtype[Any]]] = []
        self.n_slots = 0
        order = ex.walk(outputs)
        self._place(order, set(outputs))
        self.results = [self._slot_of[node] for node in outputs]

    def _new_slot(self) -> int:
        self.n_slots += 1
        return self.n_slots - 1

    def _place(self, order: Sequence[Expr], kept: set[Expr]) -> None:
        last = {arg: position for position, node in enumerate(order) for arg in node.args}
        self._slot_of: dict[Expr, int] = {}
        free: dict[np.dtype[Any], list[int]] = {}
        owned: dict[int, np.dtype[Any]] = {}
        for position, node in enumerate(order):
            if node.args:
                function, with_out = _function(node)
                dtype = numpy_dtype(node.dtype)
                slot = free[dtype].pop() if with_out and free.get(dtype) else self._new_slot()
                if with_out and slot not in owned:
                    owned[slot] = dtype
                    self.buffers.append((slot, dtype))
                args = tuple(self._slot_of[arg] for arg in node.args)
                self.steps.append((function, args, slot, with_out))
            else:
                slot = self._leaf(node)
            self._slot_of[node] = slot
            for arg in set(node.args):
                done = self._slot_of[arg]
                if last[arg] == position and arg not in kept and done in owned:
                    free.setdefault(owned[done], []).append(done)

    def _leaf(self, node: Expr) -> int:
        slot = self._new_slot()
        if node.kind == "const":
            self.constants.append((slot, np.asarray(node.value, numpy_dtype(node.dtype))))
        elif node.kind == "coord":
            self.coords.append((slot, int(node.value)))
        else:
            leaves = self.inputs if node.kind == "input" else self.scalars
            leaves.append((slot, int(node.value), numpy_dtype(node.dtype)))
        return slot

    def run(self, arrays: Sequence[Array | None], outputs: Sequence[Array],
            scalars: Sequence[float] = ()) -> None:
        """Evaluate into outputs (all of one shape), to which the arrays broadcast."""
        shape = outputs[0].shape
        views = {index: np.broadcast_to(_present(arrays[index]), shape)
                 for _, index, _ in self.inputs}
        slots: list[Any] = [None] * self.n_slots
        for slot, value in self.constants:
            slots[slot] = value
        for slot, index, dtype in self.scalars:
            slots[slot] = np.asarray(scalars[index], dtype)
        pool: dict[int, Array] = {}
        with np.errstate(all="ignore"):
            for block, offsets in _blocks(shape):
                self._run_block(block, offsets, slots, pool, views, outputs)

    def _run_block(self, block: tuple[Any, ...], offsets: Sequence[int], slots: list[Any],
                   pool: dict[int, Array], views: dict[int, Array],
                   outputs: Sequence[Array]) -> None:
        targets = [output[block] for output in outputs]
        shape = targets[0].shape
        for slot, index, dtype in self.inputs:
            slots[slot] = views[index][block].astype(dtype, copy=False)
        for slot, axis in self.coords:
            places = np.arange(offsets[axis], offsets[axis] + shape[axis])
            slots[slot] = places.reshape(-1, *(1,) * (len(shape) - axis - 1))
        for slot, dtype in self.buffers:
            if slot not in pool or pool[slot].shape != shape:
                pool[slot] = np.empty(shape, dtype)
        for function, args, slot, with_out in self.steps:
            operands = [slots[arg] for arg in args]
            if with_out:
                slots[slot] = function(*operands, out=pool[slot])
            else:
                slots[slot] = function(*operands)
        for target, slot in zip(targets, self.results, strict=True):
            np.copyto(target, slots[slot], casting="unsafe")


@lru_cache(maxsize=4096)
def formula(outputs: tuple[Expr, ...]) -> Formula:
    """Return the compiled form of some expressions."""
    return Formula(outputs)


def evaluate(outputs: tuple[Expr, ...], arrays: Sequence[Array | None],
             scalars: Sequence[float] = ()) -> list[Array]:
    """Return one array per output, in its compute dtype and the broadcast shape of the arrays.

    Coordinates count along the axes of that shape; scalars are the values of run-time scalars.
    """
    shape = np.broadcast_shapes(*(a.shape for a in arrays if a is not None))
    results = [np.empty(shape, numpy_dtype(output.dtype)) for output in outputs]
    if results[0].size:
        formula(outputs).run(arrays, results, scalars)
    return results


def _present(array: Array | None) -> Array:
    assert array is not None
    return array


def _select(condition: Array, yes: Array, no: Array, out: Array) -> Array:
    np.copyto(out, no)
    np.copyto(out, yes, where=condition)
    return out


def _function(node: Expr) -> tuple[Callable[..., Any], bool]:
    """Return the NumPy call of an operation and whether it writes to a given buffer."""
    if node.kind == "select":
        return _select, True
    if node.kind == "cast":
        source = node.args[0].dtype
        target = ex.cast(ex.input(0, source), node.op)
        return lambda x: ex.evaluate([target], [x])[0], False
    function = SCALAR_OPS[node.op].numpy
    if isinstance(function, np.ufunc):
        return function, True
    dtype = numpy_dtype(node.dtype)
    if node.op == "div" and dtype.kind == "f":
        return np.divide, True
    if node.op in ("pow", "fmod") and dtype.kind == "f":
        return (np.power if node.op == "pow" else np.fmod), True
    return lambda *xs: np.asarray(function(*xs)).astype(dtype, copy=False), False


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[tuple[Any, ...], list[int]]]:
    """Yield indices that cover shape in row-major order, each of at most about BLOCK elements."""
    size = int(np.prod(shape))
    if size <= 2 * BLOCK:
        yield (...,), [0] * len(shape)  # an ellipsis keeps a scalar an array
        return
    inner = size
    axis = 0
    while inner // shape[axis] > BLOCK:  # leading axes are walked one index at a time
        inner //= shape[axis]
        axis += 1
    step = max(1, BLOCK // (inner // shape[axis]))
    for index in np.ndindex(*shape[:axis]):
        for start in range(0, shape[axis], step):
            lead = tuple(slice(i, i + 1) for i in index)
            offsets = [*index, start, *(0,) * (len(shape) - axis - 1)]
            yield (*lead, slice(start, start + step), ...), offsets
