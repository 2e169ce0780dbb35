"""Plans for a class of sizes: traced once, then numbers for each new size.

The graph is planned with sizes (ir/size.py) in place of its named dimensions. What comes out - the
fields of argument structs, grids, tensor maps, bytes of buffers and their places - becomes one
generated function of the dimensions. A plan is kept only if a second example leads to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from struct import Struct, pack_into
from typing import Any

from ..errors import Ge2Error
from ..evidence.device import DeviceProfile
from ..launch.record import LaunchRecord, Patch, SizedBytes, TensorMapSpec
from ..problem import Problem, TensorSpec
from .arena import plan_slots
from .concrete import replace_dims
from .ir.nodes import Graph, TensorType
from .ir.size import NotSymbolic, Size, Space, at, tracing
from .kernels.class_choice import (
    choose_for_class,
    names_of_rows,
    problem_at,
    samples_of_rows,
    unaligned_names,
)
from .kernels.selector import Choice
from .number_code import Numbers
from .plan import BufferRef, Plan, Root, launch_offsets, make_plan
from .size_class import MULTIPLE, SizeClass

Ints = tuple[int, ...]
Get = Callable[[Ints], Ints]

# Several times faster than the named tuple's own constructor; it runs for every new size.
_new: Any = tuple.__new__


@dataclass(frozen=True, slots=True)
class LaunchNumbers:
    """How one launch's record follows from a size's numbers.

    Attributes:
        grid: its extents.
        fields: (byte offset, layout, numbers) of what changes in the Args struct.
        addends: of its relocations; None where they are constants.
        maps: each tensor map at the example; its dims and strides, where they are not constants;
            and its addend, where that is none.
    """

    grid: Get
    fields: tuple[tuple[int, Struct, Get], ...]
    addends: Get | None
    maps: tuple[tuple[TensorMapSpec, Get | None, Get | None, Get | None], ...]

    def tensor_maps(self, numbers: Ints) -> tuple[TensorMapSpec, ...]:
        """Return the tensor maps of a size."""
        return tuple(m if dims is None or strides is None else _new(TensorMapSpec, (
            m.offset, m.slot, addend(numbers)[0] if addend else m.addend, m.dtype, dims(numbers),
            strides(numbers), m.box, m.swizzle)) for m, dims, strides, addend in self.maps)


@dataclass(frozen=True, slots=True, eq=False)
class SizedPlan:
    """A plan of all members of a class that meet its conditions.

    Attributes:
        plan: with sizes where numbers depend on the named dimensions.
        space: the class.
        holds: whether a binding (values in the order of the class's names) meets the conditions.
        numbers: binding -> every number of the plan.
        launches: one for each record of the plan.
        launch_offsets: byte offsets in each launch's buffers, then in the semaphores.
        nbytes, offsets: of the roots. memory: (arena bytes, semaphore bytes).
        shapes: output -> extents.
        steps: operator and extents of the first output of each step.
    """

    plan: Plan
    space: Space
    holds: Callable[..., bool]
    numbers: Callable[..., Ints]
    launches: tuple[LaunchNumbers, ...]
    launch_offsets: tuple[Get, ...]
    nbytes: Get
    offsets: Get
    memory: Get
    shapes: Mapping[str, Get]
    steps: tuple[tuple[str, Get], ...]


def sized_plan(graph: Graph, device: DeviceProfile, known: SizeClass,
               feeds: Mapping[str, TensorSpec], values: Mapping[str, int]) -> SizedPlan:
    """Return the plan of a class of sizes.

    Args:
        graph: with named dimensions.
        device: what to choose kernels for.
        known: the class.
        feeds: strides and alignment, by input and output, where they are not dense and 16.
        values: a member that decides what the class leaves open.

    Raises:
        NotSymbolic: the members of the class have no plan in common.
    """
    space, plan = _trace(graph, device, known, feeds, values)
    second = _other_member(known, space, values)
    again, other = _trace(graph, device, known, feeds, second)
    if _essence(space, plan) != _essence(again, other):
        raise NotSymbolic(f"plans at {dict(values)} and {second} differ beyond expressions")
    return _compiled(space, plan, known.names)


def _trace(graph: Graph, device: DeviceProfile, known: SizeClass,
           feeds: Mapping[str, TensorSpec], values: Mapping[str, int]) -> tuple[Space, Plan]:
    space = Space(dict(zip(known.names, known.ranges, strict=True)), dict(values))

    @cache  # layers repeat
    def choose(problem: Problem, profile: DeviceProfile) -> Choice:
        # Row kernels hold rows of bounded length; the others share one choice across ranges.
        lengths = problem.op_type == "ROW" and isinstance(_row_length(problem), Size)
        judged = known.aligned_but_for(unaligned_names(problem, MULTIPLE))
        rows = names_of_rows(problem)
        by_rows = samples_of_rows(problem, judged.members(rows)) if rows else []
        return choose_for_class(problem, profile, by_rows or judged.samples(narrow=lengths))

    concrete = replace_dims(graph, space.size)
    specs = {name: TensorSpec.dense(spec.dtype, concrete.types[name].shape, spec.align)  # type: ignore[arg-type]
             for name, spec in feeds.items()}
    try:
        with tracing():
            return space, make_plan(concrete, device, feeds=specs, choose=choose,
                                    lay_out=plan_slots)
    except Ge2Error as error:
        raise NotSymbolic(f"no plan for a class: {error}") from error


def _row_length(problem: Problem) -> int:
    x = problem.inputs[0]
    return x.shape[-1] if x is not None and x.shape else 1


def _other_member(known: SizeClass, space: Space, first: Mapping[str, int]) -> dict[str, int]:
    """Return another member that meets a space's conditions."""
    for found in known.others(first):
        if space.holds(found):
            return found
    raise NotSymbolic(f"{dict(first)} is like no other size")


# -- comparing two examples -----------------------------------------------------------------------


def _essence(space: Space, plan: Plan) -> Any:
    """Return all that decides how a plan runs, with expressions in place of sizes."""
    steps = [(step.node.name, _plain(step.buffers and [
        (b and (b.root, _plain(b.offset))) for b in step.buffers]), _plain(step.semaphores),
        step.workspace and step.workspace.root, [_record_essence(r) for r in step.records])
        for step in (*plan.preparations, *plan.steps)]
    roots = [(r.name, r.kind, _plain(r.nbytes), _plain(r.offset)) for r in plan.roots]
    return (steps, roots, dict(plan.inputs), dict(plan.outputs), _plain(plan.arena_bytes),
            _plain(plan.semaphore_bytes), space.conditions,
            [_plain(plan.graph.types[name].shape) for name in plan.graph.outputs])


def _record_essence(record: LaunchRecord) -> Any:
    fixed = bytearray(record.args)
    patches = _patches(record)
    for patch in patches:
        width = Struct(f"<{patch.code}").size
        fixed[patch.offset:patch.offset + width] = bytes(width)
    maps = [(m.offset, m.slot, _plain(m.addend), m.dtype, _plain(m.dims), _plain(m.strides), m.box,
             m.swizzle) for m in record.tensor_maps]
    relocs = [(r.offset, r.slot, _plain(r.addend)) for r in record.relocs]
    return (record.kernel, _plain(record.grid), record.block, record.cluster, record.smem,
            record.pdl, bytes(fixed), [(p.offset, p.code, p.size.dim) for p in patches], relocs,
            maps, _plain(record.workspace), _plain(record.semaphores))


def _plain(value: Any) -> Any:
    if isinstance(value, Size):
        return value.dim
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def _patches(record: LaunchRecord) -> Sequence[Patch]:
    return record.args.patches if isinstance(record.args, SizedBytes) else ()


# -- from sizes to numbers ------------------------------------------------------------------------


def _compiled(space: Space, plan: Plan, names: Sequence[str]) -> SizedPlan:
    table = Numbers(names)
    launches = tuple(_launch(record, table) for record in plan.records)
    offsets_of = tuple(table.get(launch_offsets(step)) for step in plan.steps for _ in step.records)
    nbytes = table.get(tuple(root.nbytes for root in plan.roots))
    offsets = table.get(tuple(root.offset for root in plan.roots))
    memory = table.get((plan.arena_bytes, plan.semaphore_bytes))
    shapes = {name: table.get(plan.graph.types[name].shape)  # type: ignore[arg-type]
              for name in plan.graph.outputs}
    steps = tuple((step.problem.op_type, table.get(step.problem.outputs[0].shape))
                  for step in plan.steps)
    return SizedPlan(plan, space, table.check(space.conditions), table.function(), launches,
                     offsets_of, nbytes, offsets, memory, shapes, steps)


def _launch(record: LaunchRecord, table: Numbers) -> LaunchNumbers:
    runs: list[list[Patch]] = []
    for patch in sorted(_patches(record), key=lambda p: p.offset):
        last = runs[-1] if runs else []
        if last and last[-1].offset + Struct(f"<{last[-1].code}").size == patch.offset:
            last.append(patch)
        else:
            runs.append([patch])
    fields = tuple((run[0].offset, Struct("<" + "".join(p.code for p in run)),
                    table.get(tuple(p.size for p in run))) for run in runs)
    addends = tuple(reloc.addend for reloc in record.relocs)
    moving = any(isinstance(addend, Size) for addend in addends)
    maps = tuple(_map(m, table) for m in record.tensor_maps)
    return LaunchNumbers(table.get(record.grid), fields, table.get(addends) if moving else None,
                         maps)


def _map(spec: TensorMapSpec, table: Numbers,
         ) -> tuple[TensorMapSpec, Get | None, Get | None, Get | None]:
    if not any(isinstance(value, Size) for value in (*spec.dims, *spec.strides, spec.addend)):
        return spec, None, None, None
    return (spec, table.get(spec.dims), table.get(spec.strides),
            table.get((spec.addend,)) if isinstance(spec.addend, Size) else None)


# -- one member -----------------------------------------------------------------------------------


def plan_at(sized: SizedPlan, values: Mapping[str, int]) -> Plan:
    """Return the plan of one member, with ints for all sizes."""
    plan = sized.plan
    graph = plan.graph.copy()
    graph.types = {name: TensorType(t.dtype, at(t.shape, values))
                   for name, t in graph.types.items()}
    graph.nodes = [replace(node, attrs={k: at(v, values) for k, v in node.attrs.items()})
                   for node in graph.nodes]
    steps = tuple(replace(
        step, problem=problem_at(step.problem, values), semaphores=at(step.semaphores, values),
        records=tuple(record_at(record, values) for record in step.records),
        buffers=tuple(ref and BufferRef(ref.root, at(ref.offset, values)) for ref in step.buffers))
        for step in plan.steps)
    roots = tuple(Root(r.name, r.kind, at(r.nbytes, values), at(r.offset, values))
                  for r in plan.roots)
    return Plan(graph, plan.device, steps, roots, plan.inputs, plan.outputs,
                at(plan.arena_bytes, values), at(plan.live_bound, values),
                at(plan.semaphore_bytes, values), plan.preparations)


def record_at(record: LaunchRecord, values: Mapping[str, int]) -> LaunchRecord:
    """Return a launch of one member."""
    args = bytearray(record.args)
    for patch in _patches(record):
        pack_into(f"<{patch.code}", args, patch.offset, at(patch.size, values))
    return replace(
        record, grid=at(record.grid, values), args=bytes(args),
        relocs=tuple(replace(r, addend=at(r.addend, values)) for r in record.relocs),
        tensor_maps=tuple(m._replace(addend=at(m.addend, values), dims=at(m.dims, values),
                                  strides=at(m.strides, values)) for m in record.tensor_maps),
        workspace=at(record.workspace, values), semaphores=at(record.semaphores, values))
