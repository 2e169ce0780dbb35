"""Treatments of a chain as launch records: a plan whose arena is the workspace of one problem.

So a plan is verified, timed and recorded by the same code as a kernel variant.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from .. import launch_table
from ..compiler import opdefs
from ..compiler.ir.text import parse_graph
from ..compiler.kernels import registry, selector
from ..compiler.kernels.metadata import Variant
from ..compiler.passes.pass_manager import run_passes
from ..compiler.plan import Plan, Step, make_plan
from ..errors import Unsupported
from ..evidence.device import DeviceProfile
from ..launch.record import SEMAPHORES, WORKSPACE, LaunchRecord, Reloc, TensorMapSpec
from ..problem import Problem, TensorSpec
from .chains import CHAINS, Chain, Treatment

COMPOSED = "lab/lab_compose_product[STAGING=cp_async,REDUCTION=warp_shuffle,SCOPE=warp,STAGES=4]"

Hole = TypeVar("Hole", Reloc, TensorMapSpec)


@dataclass(frozen=True, slots=True)
class PlanVariant:
    """A treatment of a chain, where kernels have variants.

    Attributes:
        chain, treatment: names.
    """

    chain: str
    treatment: str

    @property
    def id(self) -> str:
        """Derived name, "plan/gemm_chain[FUSE=unfused]"."""
        return f"plan/{self.chain}[{CHAINS[self.chain].param}={self.treatment}]"

    @property
    def param_map(self) -> dict[str, int | str]:
        """What was chosen."""
        return {CHAINS[self.chain].param: self.treatment}

    @property
    def numerics(self) -> str:
        """A plan's rounding follows from its cut."""
        return f"plan-{self.treatment}"

    @property
    def how(self) -> Treatment:
        """The treatment itself."""
        return CHAINS[self.chain].treatments[self.treatment]

    def serves(self, problem: Problem) -> bool:
        """Whether it can run a problem."""
        x = problem.inputs[0]
        return (problem.attr_map.get("chain") == self.chain and x is not None
                and self.how.serves(x.dtype))


AnyVariant = Variant | PlanVariant


def variants(family: str) -> list[PlanVariant]:
    """Return the treatments of a family's chains."""
    return [PlanVariant(chain.name, name) for chain in CHAINS.values() if chain.family == family
            for name, how in chain.treatments.items() if how.is_there]


def bind(problem: Problem, variant: AnyVariant, device: DeviceProfile) -> list[LaunchRecord]:
    """Return the launches of a kernel variant or of a treatment.

    Raises:
        Ge2Error: it does not serve the problem.
    """
    if isinstance(variant, PlanVariant):
        return list(_records(problem, variant, device))
    return launch_table.bind(problem, variant, device)


@lru_cache(maxsize=1024)
def _records(problem: Problem, variant: PlanVariant, device: DeviceProfile
             ) -> tuple[LaunchRecord, ...]:
    if not variant.serves(problem):
        raise Unsupported(f"{variant.id} does not serve this problem",
                          found=problem.attr_map.get("chain", problem.op_type))
    if variant.how.composed is not None:
        return tuple(launch_table.bind(composed_problem(problem, variant.how),
                                       registry.variant(COMPOSED), device))
    made = plan(problem, variant, device)
    slots = {name: slot for slot, name in enumerate((*made.inputs, *made.outputs))}
    return tuple(record for step in made.steps for record in _of_step(made, step, slots))


def composed_problem(problem: Problem, how: Treatment) -> Problem:
    """Return a chain as the problem of the composed kernel that does all of it."""
    assert how.composed is not None
    row, prologue = how.composed
    return Problem("LAB_COMPOSE_PRODUCT", problem.inputs, problem.outputs,
                   (("row", row), ("prologue", prologue)))


def _dims(problem: Problem) -> tuple[int, ...]:
    dims = problem.attr_map["dims"]
    assert isinstance(dims, tuple)
    return dims


@lru_cache(maxsize=1024)
def plan(problem: Problem, variant: PlanVariant, device: DeviceProfile) -> Plan:
    """Return the plan of a treatment; kernels are those that the selector's rules choose."""
    x = problem.inputs[0]
    assert x is not None
    graph = parse_graph(variant.how.graph_text(_dims(problem), x.dtype), infer=opdefs.infer)
    optimized = run_passes(graph, variant.how.passes).graph
    return make_plan(optimized, device, choose=selector.select)


def _of_step(made: Plan, step: Step, slots: dict[str, int]) -> list[LaunchRecord]:
    """Return a step's launches with holes for the problem's operands instead of the step's."""
    def place(hole: Hole) -> Hole:
        if hole.slot == SEMAPHORES:
            return _moved(hole, SEMAPHORES, step.semaphores)
        ref = step.workspace if hole.slot == WORKSPACE else step.buffers[hole.slot]
        assert ref is not None, step.node
        root = made.roots[ref.root]
        if root.in_arena:
            return _moved(hole, WORKSPACE, root.offset + ref.offset)
        if root.name not in slots:
            raise Unsupported("a number of a chain did not become part of a formula",
                              found=root.name)
        return _moved(hole, slots[root.name], ref.offset)

    return [replace(record, relocs=tuple(map(place, record.relocs)),
                    tensor_maps=tuple(map(place, record.tensor_maps)), pdl=False, early=(),
                    workspace=made.arena_bytes, semaphores=made.semaphore_bytes // 4)
            for record in step.records]


def _moved(hole: Hole, slot: int, addend: int) -> Hole:
    if isinstance(hole, TensorMapSpec):
        return hole._replace(slot=slot, addend=hole.addend + addend)
    return replace(hole, slot=slot, addend=hole.addend + addend)


def kept_bytes(problem: Problem, variant: PlanVariant) -> int:
    """Return the bytes that live from the forward part of a chain to its backward part."""
    x = problem.inputs[0]
    assert x is not None
    text = variant.how.graph_text(_dims(problem), x.dtype)
    types = parse_graph(text, infer=opdefs.infer).types
    specs = [TensorSpec.dense(types[v].dtype, types[v].shape)  # type: ignore[arg-type] # concrete
             for v in variant.how.kept]
    return sum(spec.nbytes for spec in specs)


__all__ = ["AnyVariant", "Chain", "PlanVariant", "bind", "kept_bytes", "plan", "variants"]
