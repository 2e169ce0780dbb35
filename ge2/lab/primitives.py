"""The catalog: execution primitives between operators and kernels, and how each is realized.

A family shares one contract and its consumers, so all realizations of a consumer are
interchangeable; a primitive is a way of organising the work, which some of them embody. What exists
of each is found by realizations.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..errors import Invalid, near_matches


@dataclass(frozen=True, slots=True)
class Family:
    """Primitives under one contract.

    Attributes:
        name: "reduction". kernels: the consumers that its realizations feed; chains.py has more.
        signature, state, identity: the contract. reference: what outputs are compared with.
        production: kernels whose variants organise their work in the same ways.
    """

    name: str
    kernels: tuple[str, ...]
    signature: str
    state: str
    identity: str
    reference: str
    production: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Primitive:
    """One way of organising a computation.

    Attributes:
        name: "tree_reduction". family: its Family's name.
        definition: what it is.
        needs: properties of the operator that license it, from the property table.
        costs: cost axis -> what the primitive does to it.
        numerics: what changes in rounding.
        embodied: param -> values of the variants that are this primitive.
    """

    name: str
    family: str
    definition: str
    needs: tuple[str, ...]
    costs: Mapping[str, str]
    numerics: str
    embodied: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


FAMILIES: dict[str, Family] = {f.name: f for f in (
    Family("reduction", ("lab_reduce",),
           "Group<THREADS>(scratch).all(state, merge) -> state, in every thread (in the owner only "
           "where the scope is the grid)",
           "any struct of at most 64 bytes: sum, (count, mean, M2), (max, rescaled sum), "
           "(value, position)",
           "merge(a, b) = state of both parts; init() is neutral",
           "the row operator's declaration, evaluated in float64",
           ("row_warp", "row_block", "row_cluster", "row_loop", "row_split", "row_pipe",
            "row_ring")),
    Family("streaming", ("lab_stream",),
           "fold(first, n, step, read) -> Weighted; read(i) gives (score, value)",
           "m = maximum of scores, l = sum of exp(s - m), acc = sum of exp(s - m) v",
           "result = acc / l; adding a constant to all scores changes nothing",
           "sum(softmax(scores) * values) in float64", ("row_loop", "row_pipe", "row_ring")),
    Family("staging", ("lab_stage",),
           "Stage<THREADS, ROWS, SPAN, STAGES>::run(tiles, source, ring, bars, consume); "
           "consume(t, read)",
           "none: tiles are read, never changed",
           "read(r, i) = source.at(t, r)[i] for i < source.length(t), as often as one likes",
           "a sliding weighted sum in float64",
           ("gemm_bias_act_f32_tiled", "gemm_bias_act_tc_f16", "gemm_bias_act_wgmma", "row_pipe",
            "row_ring", "conv2d_lines", "conv2d_wgmma")),
    Family("rematerialization", ("lab_remat",),
           "forward(x) -> y, kept; backward(x, dy, kept) -> dx",
           "kept: normalised rows, or mean and deviation of each row, or nothing",
           "backward sees the same intermediate, bit for bit, however it came by it",
           "gelu of the normalised row and its gradient in float64"),
    Family("boundary", ("lab_fuse",),
           "chain(inputs) -> y in one launch or several",
           "between launches: whole tensors, or one number per row",
           "the result is the same wherever the chain is cut",
           "the chain in float64",
           ("elementwise_vec", "gemm_bias_act_wgmma", "row_block")),
    Family("composition", ("lab_compose_rows", "lab_compose_product"),
           "compose(declaration, staging, reduction) -> a kernel; see ge2.lab.compose",
           "the declaration's: any struct of at most 64 bytes",
           "update, merge and finish as declared; what is staged, and how, changes nothing",
           "the declaration, evaluated in float64"),
)}

# What the choices of a param mean where they are no headers.
CHOICES: dict[str, str] = {
    "values": "forward writes the intermediate, backward reads it",
    "statistics": "forward keeps little (numbers per row, or what is an output anyway), from which "
                  "backward computes the intermediate",
    "nothing": "backward computes the intermediate from the inputs again",
    "unfused": "one launch per operator, every intermediate in memory",
    "elementwise": "neighbouring elementwise operators share a launch",
    "epilogue": "part of what follows a reduction or product is applied before it is stored",
    "accumulation": "a reduction accumulates where its operand is produced, and a product's whole "
                    "epilogue works on the accumulators",
    "everything": "no intermediate is stored; what is needed twice is computed twice",
}

PRIMITIVES: dict[str, Primitive] = {p.name: p for p in (
    Primitive("tree_reduction", "reduction",
              "Pairs of partial states merge level by level, so that depth is logarithmic.",
              ("associative", "mergeable"),
              {"synchronisations": "one barrier per level (none within a warp)",
               "shared memory": "one state per thread, or none with shuffles"},
              "the order becomes a balanced tree: error grows with log n instead of n",
              {"REALIZATION": ("shared_tree", "warp_shuffle")}),
    Primitive("warp_local_reduction", "reduction",
              "The lanes of a warp exchange states; no other warp is involved.",
              ("associative", "mergeable"),
              {"synchronisations": "none between warps", "registers": "one state per lane"},
              "a butterfly of 32 lanes; independent of the block's size", {"SCOPE": ("warp",)}),
    Primitive("block_reduction", "reduction",
              "All threads of a block reduce together: warps first, then their states.",
              ("associative", "mergeable"),
              {"synchronisations": "one or two barriers", "shared memory": "one state per warp"},
              "butterfly within warps, then over warps", {"SCOPE": ("block",)}),
    Primitive("hierarchical_accumulation", "reduction",
              "Several blocks share a row; their states meet in distributed shared memory or in "
              "global memory.",
              ("associative", "mergeable"),
              {"synchronisations": "a cluster barrier, or one atomic per block",
               "bytes": "one state per block through global memory (grid)"},
              "one more level; in block order, so that results do not depend on timing",
              {"SCOPE": ("cluster", "grid")}),
    Primitive("online_accumulation", "streaming",
              "One pass: each element updates the state, which stays valid for the prefix.",
              ("mergeable",),
              {"bytes": "each element once", "flops": "two exponentials per element"},
              "sums are rescaled once per element", {"REALIZATION": ("online",)}),
    Primitive("streaming_weighted_reduction", "streaming",
              "Values are summed under weights that are known only up to a factor until the end.",
              ("mergeable", "shift_invariant"),
              {"bytes": "scores and values once, or scores twice",
               "flops": "one or two exponentials per element"},
              "none beyond that of the weights",
              {"REALIZATION": ("online", "blockwise", "rescale_on_growth", "two_pass")}),
    Primitive("blockwise_state_update", "streaming",
              "A block of elements gets a state of its own, which merges into the running one.",
              ("mergeable",),
              {"flops": "rescaling once per block of elements",
               "registers": "one block of elements"},
              "sums are rescaled once per block", {"REALIZATION": ("blockwise",)}),
    Primitive("rescaling_preserving_accumulation", "streaming",
              "Sums are kept relative to a reference that moves; moving it rescales them exactly.",
              ("shift_invariant", "mergeable"),
              {"flops": "a rescaling only where the maximum grows",
               "branches": "one per element, soon never taken"},
              "fewer roundings than rescaling with every element",
              {"REALIZATION": ("rescale_on_growth", "online")}),
    Primitive("shared_memory_staging", "staging",
              "A tile is copied to shared memory once and read from there by all threads.",
              (), {"bytes": "each once from global memory", "synchronisations": "two per tile",
                   "shared memory": "one tile"},
              "none", {"REALIZATION": ("shared",)}),
    Primitive("double_buffering", "staging",
              "The next tile is loaded while this one is consumed.",
              (), {"registers": "a tile's share per thread", "shared memory": "two tiles",
                   "synchronisations": "one per tile"},
              "none", {"REALIZATION": ("double_buffer",)}),
    Primitive("async_stage_loading", "staging",
              "cp.async fills a ring of stages past the registers.",
              (), {"bytes in flight": "STAGES - 1 tiles per block",
                   "shared memory": "STAGES tiles", "synchronisations": "one per tile"},
              "none", {"REALIZATION": ("cp_async",)}),
    Primitive("producer_consumer_pipeline", "staging",
              "A warp of its own issues bulk copies; consumers and producer wait on mbarriers.",
              (), {"bytes in flight": "STAGES tiles per block", "shared memory": "STAGES tiles",
                   "synchronisations": "two mbarriers per tile, no block barrier",
                   "threads": "one warp more"},
              "none", {"REALIZATION": ("producer_consumer",)}),
    Primitive("intermediate_save_elimination", "rematerialization",
              "An intermediate that is cheap to compute again is not written.",
              ("rematerializable",),
              {"bytes": "one tensor less written and read", "flops": "the intermediate twice"},
              "none: the same expression of the same values", {"KEEP": ("statistics", "nothing")}),
    Primitive("recompute_based_epilogue", "rematerialization",
              "The consumer's epilogue computes what it needs from the inputs.",
              ("rematerializable", "epilogue"),
              {"bytes": "inputs are read again", "flops": "the intermediate again"},
              "none", {"KEEP": ("nothing",)}),
    Primitive("checkpoint_like_realization", "rematerialization",
              "A small summary is kept, from which the intermediate follows cheaply.",
              ("rematerializable", "mergeable"),
              {"bytes": "two numbers per row", "flops": "one multiply-add per element"},
              "none", {"KEEP": ("statistics",)}),
    Primitive("memory_for_compute", "rematerialization",
              "Memory is spent so that nothing is computed twice.",
              (), {"bytes": "a whole tensor written and read", "memory": "a whole tensor"},
              "none", {"KEEP": ("values",)}),
    Primitive("elementwise_boundary_elimination", "boundary",
              "Neighbouring elementwise operators become one launch.",
              ("elementwise",),
              {"bytes": "one write and one read less per boundary", "launches": "one less"},
              "none", {"FUSE": ("elementwise", "epilogue", "accumulation", "everything")}),
    Primitive("partial_epilogue_fusion", "boundary",
              "What follows a reduction's row output is applied before it is stored.",
              ("epilogue",), {"bytes": "one write and one read less", "launches": "one less"},
              "none", {"FUSE": ("epilogue", "accumulation", "everything")}),
    Primitive("accumulation_local_fusion", "boundary",
              "A reduction accumulates where its operand is produced.",
              ("mergeable",),
              {"bytes": "one read less", "synchronisations": "the reduction's, in the producer"},
              "none: the same order", {"FUSE": ("accumulation", "everything")}),
    Primitive("materialization_avoidance", "boundary",
              "No intermediate tensor exists; what is needed twice is computed twice.",
              ("rematerializable", "mergeable"),
              {"bytes": "inputs and outputs only", "flops": "the chain up to the reduction twice"},
              "none", {"FUSE": ("everything",)}),
)}


def get(name: str) -> Primitive:
    """Return a primitive.

    Raises:
        Invalid: there is none of this name.
    """
    if name not in PRIMITIVES:
        raise Invalid("no such primitive", argument="NAME", found=repr(name),
                      wanted="one of ge2 lab list", hint=near_matches(name, PRIMITIVES))
    return PRIMITIVES[name]


def of_family(family: str) -> Sequence[Primitive]:
    """Return the primitives of a family."""
    return [p for p in PRIMITIVES.values() if p.family == family]
