"""Plans: a concrete graph as launch records over buffers, with one arena for what is in between.

A plan holds no address and touches no device. Values that are views of others share their root
buffer; operands that a kernel cannot take as strided get a dense copy first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .. import config, launch_table, log
from ..contract import DTYPES
from ..errors import LayoutMismatch, NoKernelError, StrideMismatch, Unsupported
from ..evidence.device import DeviceProfile
from ..launch.record import LaunchRecord
from ..log import topic
from ..problem import Problem, TensorSpec
from . import opdefs
from .arena import ALIGNMENT, Interval, Layout, plan_arena
from .ir.nodes import Graph, Node, TensorType, present
from .kernels import selector
from .kernels.lower import accepts_strides, lower
from .kernels.metadata import Variant
from .kernels.norm_gemm_plans import runs_apart
from .kernels.selector import Choice, Chooser
from .kernels.views import View, view
from .opdefs.decompose import composition
from .steps import BufferRef, Plan, Root, Step, launch_offsets

MAX_ALIGN = 16
_SEMAPHORE_ALIGN = 128
# Operators with kernels that do not take all of their problems, or not on every GPU.
_COMPOSED = ("NORM_GEMM", "PAGED_ATTENTION")
_STRIDE_ERRORS = (StrideMismatch, LayoutMismatch, Unsupported, NoKernelError)


LayOut = Callable[[Sequence[Interval]], Layout]


def make_plan(graph: Graph, device: DeviceProfile, *,
              feeds: Mapping[str, TensorSpec] | None = None, choose: Chooser = selector.select,
              lay_out: LayOut = plan_arena) -> Plan:
    """Return the plan of a concrete graph.

    Args:
        graph: every extent an int.
        device: what to choose kernels for.
        feeds: strides and alignment of inputs and outputs as the caller has them; dense and
            aligned to 16 bytes where absent.
        choose: returns the variant of each problem; default: the selector's rules.
        lay_out: places the buffers of the arena.

    Raises:
        NoKernelError: a node has no kernel; lists the candidates and what refused them.
    """
    builder = _Builder(graph.copy(), device, feeds or {}, choose, lay_out)
    for node in graph.nodes:
        builder.add(node)
    return builder.finish()


def problem_plan(problem: Problem, device: DeviceProfile, variant: Variant | None = None,
                 choose: Chooser = selector.select) -> Plan:
    """Return the plan of one problem, with inputs in0, in1, ... and outputs out0, ...

    Args:
        problem: with dense operands.
        device: what to choose a kernel for.
        variant: which one to take; default: what choose returns.
        choose: as for make_plan.
    """
    graph = Graph(name=problem.op_type)
    names = [f"in{i}" if spec else "" for i, spec in enumerate(problem.inputs)]
    outputs = [f"out{i}" for i in range(len(problem.outputs))]
    for name, spec in zip([*names, *outputs], problem.tensors, strict=True):
        if spec is not None:
            graph.types[name] = TensorType(spec.dtype, spec.shape)
    graph.inputs, graph.outputs = list(present(names)), outputs
    node = Node(problem.op_type, problem.op_type.lower(), tuple(names), tuple(outputs))
    builder = _Builder(graph, device, {}, choose, plan_arena)
    builder.allocate_outputs(node)
    builder.add_problem(node, problem, variant)
    return builder.finish()


@dataclass(slots=True)
class _Draft:
    """A step before offsets are known."""

    node: Node
    problem: Problem
    choice: Choice | None
    records: tuple[LaunchRecord, ...]
    refs: list[BufferRef | None]
    workspace: int = -1


@dataclass(slots=True)
class _Builder:
    graph: Graph
    device: DeviceProfile
    feeds: Mapping[str, TensorSpec]
    choose: Chooser
    lay_out: LayOut
    roots: list[Root] = field(default_factory=list)
    aligns: list[int] = field(default_factory=list)
    values: dict[str, tuple[int, View]] = field(default_factory=dict)
    steps: list[_Draft] = field(default_factory=list)
    copies: dict[str, str] = field(default_factory=dict)
    preparations: dict[tuple[BufferRef, LaunchRecord], Step] = field(default_factory=dict)
    # Layers repeat: equal problems have equal launches.
    bound: dict[tuple[Problem, Variant, tuple[int, ...]], tuple[LaunchRecord, ...]] = field(
        default_factory=dict)
    final_copies: list[tuple[str, int]] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    returned: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for name in self.graph.inputs:
            self._external(name, "input")
        for name in self.graph.constants:
            self._external(name, "constant")
        self.made = {out for node in self.graph.nodes for out in node.outputs}
        self.returned = set(self.graph.outputs) - set(self.graph.aliases)

    def _external(self, name: str, kind: str) -> int:
        spec = self.feeds.get(name) or self._dense_spec(name)
        root = self._root(name, kind, self._dense_spec(name).nbytes, spec.align)
        self.values[name] = (root, View(spec, 0))
        return root

    def _dense_spec(self, name: str) -> TensorSpec:
        kind = self.graph.types[name]
        return TensorSpec.dense(kind.dtype, kind.shape)  # type: ignore[arg-type]

    def _root(self, name: str, kind: str, nbytes: int, align: int = MAX_ALIGN) -> int:
        self.roots.append(Root(name, kind, nbytes))
        self.aligns.append(align)
        return len(self.roots) - 1

    # -- nodes --------------------------------------------------------------------------------

    def add(self, node: Node) -> None:
        """Add a node: as a view where it is one, else as a step."""
        if self._add_view(node):
            return
        if parts := self._apart(node):
            for part in parts:
                self.add(part)
            return
        node = self._with_every_output(node)
        self.allocate_outputs(node)
        try:
            self._add_step(node, node)
        except _STRIDE_ERRORS:
            strided = [v for v in present(node.inputs) if not self.spec(v).is_dense]
            if not strided:
                raise
            dense = self._with_dense_inputs(node, strided)
            if not self._add_view(dense):
                self._add_step(node, dense)

    def _apart(self, node: Node) -> list[Node]:
        """Return the parts of a node that has no kernel here, or is slower in one launch."""
        if node.op not in _COMPOSED and node.attrs.get("rows", "none") == "none":
            return []
        specs = {name: self.spec(name) for name in present(node.inputs)}
        try:
            problem, _ = self._posed(node, specs)
            if not self._is_slow(problem, self.choose(problem, self.device).variant):
                return []
        except _STRIDE_ERRORS as reason:
            log.topic("select").info("%s is planned as its parts: %s", node.name, reason)
        return composition(self.graph, node) or []

    def _is_slow(self, problem: Problem, variant: Variant) -> bool:
        """Return whether two kernels serve a problem better than the one that does all of it."""
        if problem.op_type == "PAGED_ATTENTION":
            return False
        if problem.op_type == "NORM_GEMM":
            return runs_apart(problem, variant, self.device)
        # Values of rows cost next to nothing, but only in the kernel that the product takes anyway.
        attrs = tuple((k, "none" if k == "rows" else v) for k, v in problem.attrs)
        alone = self.choose(replace(problem, outputs=problem.outputs[:-1], attrs=attrs),
                            self.device).variant
        return "row_values" not in alone.kernel.flags

    def _with_every_output(self, node: Node) -> Node:
        """Name the outputs that nobody reads: row kernels write all that an operator has."""
        definition = opdefs.get(node.op)
        if definition.family != "row" or len(list(present(node.outputs))) >= definition.n_outputs:
            return node
        types = [self.graph.types[name] if name else None for name in node.inputs]
        outputs = []
        for i, kind in enumerate(opdefs.infer(node.op, types, node.attrs)):
            name = node.outputs[i] if i < len(node.outputs) else ""
            outputs.append(name or self.graph.fresh(f"{node.name}.unread"))
            self.graph.types.setdefault(outputs[-1], kind)
        return replace(node, outputs=tuple(outputs))

    def _add_view(self, node: Node) -> bool:
        """Add all outputs as views of input 0; False where one of them needs a kernel."""
        if not node.inputs or not node.inputs[0]:
            return False
        root, source = self.values[node.inputs[0]]
        made = [view(node, source, index) for index in range(len(node.outputs))]
        views = [found for found in made if found is not None]
        if len(views) < len(made):
            return False
        for name, found in zip(node.outputs, views, strict=True):
            self.values[name] = (root, found)
        return True

    def allocate_outputs(self, node: Node) -> None:
        """Give each output of a node a buffer: the caller's for graph outputs, else the arena's."""
        for name in node.outputs:
            spec = self._dense_spec(name)
            if name in self.returned:
                feed = self.feeds.get(name)
                root = self._root(name, "output", spec.nbytes, feed.align if feed else MAX_ALIGN)
            else:
                root = self._root(name, "arena", spec.nbytes)
            self.values[name] = (root, View(spec, 0))

    def spec(self, name: str) -> TensorSpec:
        """Return a value's spec with the alignment that its address will have."""
        root, seen = self.values[name]
        nbytes = abs(seen.offset) * DTYPES[seen.spec.dtype].itemsize
        align = min(self.aligns[root], nbytes & -nbytes if nbytes else MAX_ALIGN)
        spec = seen.spec
        return spec if spec.align == align else TensorSpec(
            spec.dtype, spec.shape, spec.strides, align)

    def _ref(self, name: str) -> BufferRef:
        root, seen = self.values[name]
        return BufferRef(root, seen.offset * DTYPES[seen.spec.dtype].itemsize)

    def _posed(self, node: Node, specs: Mapping[str, TensorSpec]
               ) -> tuple[Problem, list[BufferRef | None]]:
        """Return a node's problem and the buffers of its inputs."""
        problem = lower(node, specs)
        names = list(node.inputs)
        if len(problem.inputs) < len(names):
            names = list(present(names))
        names += [""] * (len(problem.inputs) - len(names))
        refs = [self._ref(name) if name and spec is not None else None
                for name, spec in zip(names, problem.inputs, strict=True)]
        if config.get("GE2_PREPARE") == "0":
            return problem, refs
        constant = tuple(slot for slot in self._constants(refs)
                         if launch_table.preparable(problem, slot, self.device))
        return replace(problem, constant=constant) if constant else problem, refs

    def _add_step(self, node: Node, operands: Node) -> None:
        specs = {name: self.spec(name) for name in present((*operands.inputs, *operands.outputs))}
        problem, refs = self._posed(operands, specs)
        if not accepts_strides(problem.op_type) and not all(
                spec is None or spec.is_dense for spec in problem.inputs):
            raise StrideMismatch(f"{problem.op_type} kernels take dense operands")
        refs += [self._ref(name) for name in operands.outputs[: len(problem.outputs)]]
        self.steps.append(self._selected(node, problem, refs))

    def add_problem(self, node: Node, problem: Problem, variant: Variant | None) -> None:
        """Add a step whose operands are the node's, in order."""
        refs = [self._ref(name) if name else None for name in (*node.inputs, *node.outputs)]
        self.steps.append(self._selected(node, problem, refs, variant))

    def _selected(self, node: Node, problem: Problem, refs: list[BufferRef | None],
                  variant: Variant | None = None) -> _Draft:
        if all(output.size == 0 for output in problem.outputs):
            return _Draft(node, problem, None, (), refs)
        try:
            choice = (self.choose(problem, self.device) if variant is None
                      else Choice(variant, 0.0, ()))
        except NoKernelError as error:
            error.add_note(f"while planning node {node.name!r} ({node.op})")
            raise
        topic("select").info("node %s (%s): %s", node.name, node.op, choice.variant.id)
        # What runs before the first launch is not known, and may well write a constant. That launch
        # overlaps nothing, else the second one might start before the unknown has ended.
        is_first = not any(draft.records for draft in self.steps)
        constant = () if is_first else self._constants(refs[:len(problem.inputs)])
        key = problem, choice.variant, constant
        bound = self.bound.get(key)
        if bound is None:
            bound = self.bound[key] = tuple(launch_table.bind(
                problem, choice.variant, self.device, constant=constant,
                prepare=set(problem.constant) <= set(self._constants(refs))))
        records = tuple(record for record in bound if record.prepares < 0)
        if is_first:
            records = *(replace(record, pdl=False) for record in records[:1]), *records[1:]
        made = [self._prepare(node, problem, choice, record, refs[record.prepares])
                for record in bound if record.prepares >= 0]
        draft = _Draft(node, problem, choice, records, [*refs, *made])
        workspace = max((record.workspace for record in records), default=0)
        if workspace:
            draft.workspace = self._root(f"{node.name}.workspace", "workspace", workspace)
        return draft

    def _constants(self, refs: Sequence[BufferRef | None]) -> tuple[int, ...]:
        """Return the slots that hold constants of the graph: never inputs, so never state."""
        return tuple(slot for slot, ref in enumerate(refs)
                     if ref is not None and self.roots[ref.root].kind == "constant")

    def _prepare(self, node: Node, problem: Problem, choice: Choice, record: LaunchRecord,
                 source: BufferRef | None) -> BufferRef | None:
        """Return the buffer that a launch makes of a constant, one for all steps that need it."""
        assert source is not None
        key = source, record
        if key not in self.preparations:
            target = BufferRef(self._root(f"{self.roots[source.root].name}.prepared", "prepared",
                                          record.prepared))
            self.preparations[key] = Step(node, problem, choice, (record,), (source, target))
        return self.preparations[key].buffers[1]

    def _with_dense_inputs(self, node: Node, strided: list[str]) -> Node:
        renamed = {name: self._dense_copy(name) for name in strided}
        inputs = tuple(renamed.get(name, name) for name in node.inputs)
        return Node(node.op, node.name, inputs, node.outputs, node.attrs)

    def _dense_copy(self, name: str) -> str:
        if name not in self.copies:
            copy = f"{name}.dense"
            self.graph.types.setdefault(copy, self.graph.types[name])
            spec = self._dense_spec(name)
            root = self._root(copy, "arena", spec.nbytes)
            self.values[copy] = (root, View(spec, 0))
            self._copy(name, copy)
            self.copies[name] = copy
        return self.copies[name]

    def _copy(self, source: str, target: str) -> None:
        self._add_step(*[Node("IDENTITY", f"copy {source}", (source,), (target,))] * 2)

    # -- outputs and memory -------------------------------------------------------------------

    def finish(self) -> Plan:
        """Copy what must be copied into outputs, lay the arena out, return the plan."""
        outputs = {name: self._output_root(name) for name in dict.fromkeys(self.graph.outputs)}
        offsets, arena_bytes, bound = self._lay_out()
        roots = [Root(r.name, r.kind, r.nbytes, offsets.get(i, 0))
                 for i, r in enumerate(self.roots)]
        semaphores, steps = 0, []
        for draft in self.steps:
            words = max((record.semaphores for record in draft.records), default=0)
            steps.append(Step(draft.node, draft.problem, draft.choice, draft.records,
                              tuple(draft.refs),
                              BufferRef(draft.workspace) if draft.workspace >= 0 else None,
                              semaphores))
            semaphores += -(-4 * words // _SEMAPHORE_ALIGN) * _SEMAPHORE_ALIGN
        inputs = {name: self.values[name][0] for name in self.graph.inputs}
        return Plan(self.graph, self.device, tuple(steps), tuple(roots), inputs, outputs,
                    arena_bytes, bound, semaphores, tuple(self.preparations.values()))

    def _output_root(self, name: str) -> int:
        """Return the root of a graph output, after a copy where the value lies elsewhere."""
        root = self.values[name][0]
        if name in self.graph.aliases:
            target = self.values[self.graph.aliases[name]][0]
            self._copy_to(name, target)
            return target
        if self.roots[root].kind == "output" and self.roots[root].name == name:
            return root
        target = self._root(name, "output", self._dense_spec(name).nbytes)
        self._copy_to(name, target)
        return target

    def _copy_to(self, name: str, root: int) -> None:
        target = f"{name}.out"
        self.graph.types.setdefault(target, self.graph.types[name])
        self.values[target] = (root, View(self._dense_spec(name), 0))
        self._copy(name, target)

    def _lay_out(self) -> tuple[dict[int, int], int, int]:
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        for index, draft in enumerate(self.steps):
            used = [ref.root for ref in draft.refs if ref is not None]
            used += [draft.workspace] if draft.workspace >= 0 else []
            for root in used:
                first.setdefault(root, index)
                last[root] = index
        mine = [i for i, r in enumerate(self.roots) if r.in_arena and i in first]
        layout = self.lay_out([Interval(self.roots[i].nbytes, first[i], last[i]) for i in mine])
        return dict(zip(mine, layout.offsets, strict=True)), layout.nbytes, layout.live_bound


__all__ = ["ALIGNMENT", "BufferRef", "Plan", "Root", "Step", "launch_offsets", "make_plan",
           "problem_plan"]
