"""Kernels of the tree broken on purpose: each mutant is caught, each unbroken kernel runs clean.

A mutant changes one place of a template or header: a barrier, wait or fence goes, an index or
bound widens, a buffer shrinks. It counts as caught when a detector speaks; wrong values alone would
need a reference, which a user's own kernel may not have.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from ge2 import paths
from ge2.compiler.ir.expr import ExprBundle, exp
from ge2.compiler.ir.expr import input as leaf
from ge2.compiler.kernels import registry
from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.launch.attention_examples import attention_problem
from ge2.launch.attention_grad import gradient_problem
from ge2.launch.record import LaunchRecord
from ge2.problem import Problem
from ge2.runtime.emulate import Edit, EmulationError, run_problem

from ..cases.attention import attention_case
from ..cases.attention_grad import gradient_case
from ..cases.case import Case
from ..cases.layouts import operand
from .test_registry import accepted, operand_values, profile_of


@dataclass(frozen=True)
class Target:
    """A kernel variant and what it runs: a case, or the smallest one whose problem `fits`.

    `record` changes the launch, still within what the kernel allows.
    """

    variant: str
    fits: Callable[[Problem], bool] | Case
    record: Callable[[LaunchRecord], LaunchRecord] = lambda record: record

    def run(self, edit: Edit) -> None:
        """Run the case; raises EmulationError when a detector speaks."""
        variant, case = registry.variant(self.variant), self.case()
        inputs = [None if s is None else operand_values(case.name, s, i, case)
                  for i, s in enumerate(case.problem.inputs)]
        edit = replace(edit, record=lambda r, change=edit.record: change(self.record(r)))
        run_problem(variant, case.problem, inputs, device=profile_of(variant.kernel), edit=edit)

    def case(self) -> Case:
        """Return the case."""
        if isinstance(self.fits, Case):
            return self.fits
        cases = _accepted(registry.variant(self.variant).kernel.name)[self.variant]
        return next(c for c in cases if self.fits(c.problem))


@cache
def _accepted(kernel: str) -> dict[str, list[Case]]:
    return accepted(registry.get(kernel))


def _gemm(dtype: str, m: int, n: int, k: int, batch: tuple[int, ...] = ()) -> Case:
    """Return Y = A B with a bias per column, all dense."""
    inputs = [operand(dtype, (*batch, m, k), "dense"), operand(dtype, (*batch, k, n), "dense"),
              operand(dtype, (*batch, m, n), "per_column"), None]
    y = operand(dtype, (*batch, m, n), "dense")
    epilogue = gemm_epilogue(dtype, (dtype, None), 1.0, 1.0, "relu", 0.01)
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0, "beta": 1.0, "act": "relu",
             "leaky_slope": 0.01, "epilogue": epilogue}
    problem = Problem("GEMM_BIAS_ACT", tuple(o.spec if o else None for o in inputs), (y.spec,),
                      tuple(sorted(attrs.items())))
    return Case(f"mutants-{dtype}-{m}-{n}-{k}", problem, (*inputs, y), terms=k)


def _wide(problem: Problem) -> bool:
    """Return whether a product has several rows, two tiles of columns and two steps of k."""
    x, y = problem.inputs[0], problem.outputs[0]
    assert x is not None
    return y.shape[0] > 1 and y.shape[-1] > 64 and x.shape[-1] > 64


def _says_of_rows(problem: Problem) -> bool:
    return problem.attr_map.get("rows", "none") != "none" and problem.outputs[0].shape[-1] > 64


def _exp(size: int) -> Case:
    """Return Y = exp(X) over one dense axis."""
    x, y = operand("f32", (size,), "dense"), operand("f32", (size,), "dense")
    bundle = ExprBundle((exp(leaf(0, "f32")),))
    return Case(f"mutants-exp-{size}",
                Problem("ELEMENTWISE", (x.spec,), (y.spec,), (("expr", bundle),)), (x, y))


def _rows(at_least: int) -> Callable[[Problem], bool]:
    return lambda p: p.outputs[0].shape[0] > 1 and p.inputs[0].shape[-1] >= at_least  # type: ignore


def _row_after_row(problem: Problem) -> bool:
    """Return whether each group of blocks has a second row."""
    x = problem.inputs[0]
    return x is not None and x.shape[0] > 1 and x.shape[-1] > 10_000


TILED = Target("gemm/gemm_bias_act_f32_tiled[BM=64,BN=64,BK=8]", _gemm("f32", 67, 66, 20))
CORES = Target("gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=3]", _gemm("f16", 72, 40, 128))
RAGGED = Target("gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=3]",
                _gemm("bf16", 17, 19, 31))
BATCHED = Target("gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=3]",
                 _gemm("f16", 24, 32, 32, (3,)), lambda r: replace(r, grid=(*r.grid[:2], 1)))
NORM = Target("gemm/norm_gemm_mma[BM=32,BN=64,STAGES=3]", _wide)
NORM_WGMMA = Target("gemm/norm_gemm_wgmma[BM=64,BN=128]", _wide)
VALUES = Target("gemm/gemm_bias_act_tc_f16[BM=64,BN=64,BK=32,STAGES=3]", _says_of_rows)
WGMMA = Target("gemm/gemm_bias_act_wgmma[SCHEDULE=cooperative,BM=128,BN=64,STORES=2,PDL=0,"
               "TAIL=whole]",
               _gemm("f16", 520, 72, 336))
PINGPONG = Target("gemm/gemm_bias_act_wgmma[SCHEDULE=pingpong,BM=128,BN=128,STORES=2,PDL=0,"
                  "TAIL=whole]",
                  _gemm("bf16", 264, 136, 400))
ATTENTION = Target("attention/attention_wgmma[BM=192,BN=128,OVERLAP=flat,TURNS=1]",
                   attention_case("mutants", attention_problem("f16", (1, 5, 200, 32), keys=300,
                                                               causal=True, offset=100)))
ONE_BUFFER = Target("attention/attention_wgmma[BM=128,BN=112,OVERLAP=intra,TURNS=0]",
                    attention_case("mutants", attention_problem("f16", (1, 3, 65, 192), keys=90)))
ATTENTION_MMA = Target("attention/attention_mma[BM=64,BN=32]",
                       attention_case("mutants", attention_problem("f16", (1, 1, 70, 32), keys=100,
                                                                   lse=True)))
ATTENTION_SIMT = Target("attention/attention_simt[BM=16]",
                        attention_case("mutants", attention_problem("f32", (1, 1, 20, 24),
                                                                    keys=50)))
GRADIENT = Target("attention/attention_grad_wgmma[QUERIES=96,KEYS=128]",
                  gradient_case("mutants", gradient_problem("f16", (1, 2, 270, 32), groups=1)))
LAB = Target("lab/lab_normalize_sum[STAGES=2]", lambda p: p.outputs[0].shape[0] > 127
             and p.outputs[0].shape[1] > 64)
BLOCK = Target("row/row_block[VECTORS=1,REDUCE=block,WEIGHTS=late,UNPACK=once]", _rows(100))
TREE = Target("row/row_block[VECTORS=1,REDUCE=shared_tree,WEIGHTS=late,UNPACK=once]", _rows(100))
CLUSTER = Target("row/row_cluster[BLOCKS=2,THREADS=512,VECTORS=8]", _rows(100))
SPLIT = Target("row/row_split[THREADS=256,VECTORS=4]", lambda p: p.inputs[0].size > 40_000
               if p.inputs[0] else False)
RING = Target("row/row_ring[BLOCKS=2,THREADS=512,VECTORS=8,STAGES=2]", _row_after_row)
VEC = Target("elementwise/elementwise_vec[THREADS=128,UNROLL=1]", _exp(1003))
TURN = Target("movement/transpose_tiled[TILE_A=64,TILE_B=64,THREADS=256]",
              lambda p: p.outputs[0].size > 1000)


@dataclass(frozen=True)
class Mutant:
    """One change: in the rendered template, or in the header that is named."""

    name: str
    target: Target
    old: str
    new: str
    header: str = ""
    count: int = 1


_TILED_LOOP = "            next_b.store(tiles_b + buffer * BN * BK);\n"
_LAB_READ = "sum += source[i];\n"
_WGMMA = "ge2/skeleton/wgmma_gemm.cuh"
_RING = "ge2/skeleton/row_ring.cuh"
_ATTENTION = "ge2/skeleton/wgmma_attention.cuh"
_GRADIENT = "ge2/skeleton/wgmma_attention_grad.cuh"
MUTANTS = [
    Mutant("tiled: no barrier in the loop", TILED, _TILED_LOOP + "            __syncthreads();\n",
           _TILED_LOOP),
    Mutant("tiled: no barrier before the loop", TILED,
           "next_b.store(tiles_b);\n        __syncthreads();", "next_b.store(tiles_b);"),
    Mutant("tiled: no barrier before the epilogue", TILED,
           "BN * BK, row, column);\n        __syncthreads();\n\n        const Epilogue",
           "BN * BK, row, column);\n\n        const Epilogue"),
    Mutant("tiled: tile B overlaps tile A", TILED, "tiles_a + 2 * BM * BK;",
           "tiles_a + 2 * BM * BK - 4;"),
    Mutant("tiled: one row too many is stored", TILED, "inside = r < m && c < n;",
           "inside = r <= m && c < n;"),
    Mutant("tiled: stores ignore the last column", TILED, "if (e < inside) target",
           "if (e <= inside) target"),
    Mutant("tiled: loads ignore the last row", TILED, "next_a.load(a, args.a.row, args.a.column, "
           "m - row0, depth);", "next_a.load(a, args.a.row, args.a.column, BM, depth);"),
    Mutant("tiled: misaligned vector", TILED, "(staged + q * 4);", "(staged + q * 4 + 1);"),
    Mutant("cores: waits for one stage too few", CORES, "cp_async_wait<STAGES - 2>",
           "cp_async_wait<STAGES - 1>"),
    Mutant("cores: no wait", CORES, "if constexpr (ASYNC) ge2::ptx::cp_async_wait<STAGES - 2>();",
           ""),
    Mutant("cores: no barrier after the wait", CORES,
           "            __syncthreads();  // the tile is there for all", "            //"),
    Mutant("cores: no barrier before the epilogue", CORES,
           "column, lane);\n        }\n        __syncthreads();", "column, lane);\n        }\n"),
    Mutant("cores: a stage is overwritten while it is read", CORES,
           "load(tile + STAGES - 1);\n", "load(tile + STAGES);\n"),
    Mutant("cores: rows outside of A are read", RAGGED, "args.a.column, m - row0,\n",
           "args.a.column, BM,\n"),
    Mutant("cores: no barrier between two matrices", BATCHED,
           "column0 + column, lane);\n        __syncthreads();", "column0 + column, lane);"),
    Mutant("cores: warp barrier of the epilogue", CORES,
           "            __syncwarp();\n#pragma unroll 1", "#pragma unroll 1",
           header="ge2/gemm/mma_warp.cuh"),
    Mutant("cores: fragments at the wrong place", CORES, "offset(k + lane / 8 % 2 * 8 + lane % 8,",
           "offset(k + lane / 8 % 2 * 8 + lane % 8 + 64,", header="ge2/gemm/mma_tile.cuh"),
    Mutant("norm: no barrier between rows and products", NORM,
           "            __syncthreads();  // the tile is there for all", "            //"),
    Mutant("norm: rows outside of x are read", NORM, "first, left, static_cast<int>",
           "first, BM, static_cast<int>"),
    Mutant("norm: columns outside of x are read", NORM, "inside = r < rows_left ? k - column",
           "inside = r < rows_left ? 256 - column", header="ge2/gemm/norm_rows.cuh"),
    Mutant("norm: wgmma reads rows that only threads see", NORM_WGMMA,
           "    ptx::fence_proxy_async_shared();\n    ptx::named", "    ptx::named"),
    Mutant("norm: groups do not wait for each other's rows", NORM_WGMMA,
           "    ptx::named_barrier_sync(1, WARPS * 32);\n", ""),
    Mutant("norm: stores are not waited for", NORM_WGMMA,
           "    if (lane == 0) ptx::bulk_wait_read<0>();\n", ""),
    Mutant("row values: the ticket stays", VALUES, "if (thread == 0) *arrived = 0;", "",
           header="ge2/gemm/row_values.cuh"),
    Mutant("row values: parts are not there when they count", VALUES,
           "        __threadfence();\n        __syncthreads();\n        if (thread == 0) *is_last",
           "        __syncthreads();\n        if (thread == 0) *is_last",
           header="ge2/gemm/row_values.cuh"),
    Mutant("wgmma: full barrier is not waited for", WGMMA,
           "            ptx::mbarrier_wait(shared.full + ring.stage * 8, ring.parity);\n", "",
           header=_WGMMA),
    Mutant("wgmma: empty barrier is not waited for", WGMMA,
           "        ptx::mbarrier_wait(shared.empty + ring.stage * 8, ring.parity ^ 1);\n", "",
           header=_WGMMA),
    Mutant("wgmma: stage handed back too early", WGMMA, "ptx::wgmma_wait<1>();",
           "ptx::wgmma_wait<2>();", header=_WGMMA),
    Mutant("wgmma: the last products are not waited for", WGMMA, "ptx::wgmma_wait<0>();", "",
           header=_WGMMA),
    Mutant("wgmma: too few bytes announced", WGMMA, "(full, STAGE_BYTES);",
           "(full, STAGE_BYTES / 2);", header=_WGMMA),
    Mutant("wgmma: no fence before the tensor store", WGMMA,
           "        ptx::fence_proxy_async_shared();\n", "", header=_WGMMA),
    Mutant("wgmma: store buffer reused too early", WGMMA,
           "            if (lane == 0) ptx::bulk_wait_read<Plan::STORES - 1>();\n", "",
           header=_WGMMA),
    Mutant("wgmma: stores are not waited for", WGMMA,
           "            ptx::bulk_wait_read<0>();  //", "            //", header=_WGMMA),
    Mutant("wgmma: accumulators are not fenced", WGMMA, "            ptx::wgmma_fence();\n", "",
           header=_WGMMA),
    Mutant("wgmma: barrier init is not fenced", WGMMA,
           "            ptx::fence_mbarrier_init();\n", "", header=_WGMMA),
    Mutant("wgmma: one arrival too many is expected", WGMMA, "stage * 8, EMPTY_ARRIVALS);",
           "stage * 8, EMPTY_ARRIVALS + 1);", header=_WGMMA),
    Mutant("wgmma: no barrier after init", WGMMA, "        __syncthreads();\n", "",
           header=_WGMMA),
    Mutant("wgmma: warps store before all have written", WGMMA,
           "            ptx::fence_proxy_async_shared();\n            __syncwarp();",
           "            ptx::fence_proxy_async_shared();", header=_WGMMA),
    Mutant("pingpong: nobody starts the first turn", PINGPONG,
           "            ptx::named_barrier_arrive(other_turn, 2 * GROUP);\n        }\n        int",
           "        }\n        int", header=_WGMMA),
    Mutant("attention: scores are weighed too early", ATTENTION,
           "            ptx::wgmma_wait<1>();\n", "", header=_ATTENTION),
    Mutant("attention: weights are packed too early", ATTENTION,
           "            await_products();\n            take_sums();\n            pack();",
           "            pack();\n            await_products();\n            take_sums();",
           header=_ATTENTION),
    Mutant("attention: keys are handed back too early", ATTENTION,
           "            ptx::wgmma_fence();\n#pragma unroll\n            for (int i = 0; i < HEAD",
           "            if (lane == 0) ptx::mbarrier_arrive(shared.k_empty + k.stage * 8);\n"
           "            ptx::wgmma_fence();\n#pragma unroll\n            for (int i = 0; i < HEAD",
           header=_ATTENTION),
    Mutant("attention: results overwrite queries that are read", ATTENTION,
           "            ptx::named_barrier_sync(1 + GROUPS + group, GROUP);  //", "            //",
           header=_ATTENTION),
    Mutant("attention: no fence before the tensor store", ATTENTION,
           "            ptx::fence_proxy_async_shared();\n            __syncwarp();",
           "            __syncwarp();", header=_ATTENTION),
    Mutant("attention: queries are loaded over results that are stored", ATTENTION,
           "                ptx::bulk_wait_read<0>();\n                ptx::mbarrier",
           "                ptx::mbarrier", header=_ATTENTION),
    Mutant("attention: nobody starts the first turn", ATTENTION,
           "                ptx::named_barrier_arrive(1, 2 * GROUP);  //", "                //",
           header=_ATTENTION),
    Mutant("attention: the counter is not put back", ATTENTION,
           "                args.tickets[0] = 0;\n", "", header=_ATTENTION),
    Mutant("attention: values wait for the phase behind one that is open", ONE_BUFFER, """\
        while (item < tiles.count) {
            const AttentionTile tile = tiles[item];
            const KeyBlocks blocks = blocks_of(args, place_of(args, tile));
#pragma unroll 1
            for (int i = 0; i < blocks.count; ++i) {
                load(args, &args.map_v, v, shared.v, shared.v_full, shared.v_empty, tile,
                     blocks.last - i);
            }
            ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
            ptx::mbarrier_arrive(shared.q_empty + q.stage * 8);
            q.next();
            ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
            item = shared.items[q.stage];
        }
""", """\
        for (bool first = true;; first = false) {
            if (!first) {
                ptx::mbarrier_wait(shared.q_full + q.stage * 8, q.parity);
                item = shared.items[q.stage];
            }
            if (item >= tiles.count) break;
            ptx::mbarrier_arrive(shared.q_empty + q.stage * 8);
            q.next();
            const AttentionTile tile = tiles[item];
            const KeyBlocks blocks = blocks_of(args, place_of(args, tile));
            for (int i = 0; i < blocks.count; ++i) {
                load(args, &args.map_v, v, shared.v, shared.v_full, shared.v_empty, tile,
                     blocks.last - i);
            }
        }
""", header=_ATTENTION),
    Mutant("attention mma: a tile is read before it is there", ATTENTION_MMA,
           "        wait();\n        __syncthreads();  // the tile",
           "        __syncthreads();  // the tile"),
    Mutant("attention mma: a stage is refilled while it is read", ATTENTION_MMA,
           "        wait();\n        __syncthreads();  // the tile", "        wait();  //"),
    Mutant("attention mma: results are read before they are staged", ATTENTION_MMA,
           "        __syncwarp();\n        constexpr int CHUNKS = (VALUE",
           "        constexpr int CHUNKS = (VALUE", header="ge2/skeleton/attention_mma.cuh"),
    Mutant("attention mma: rows behind the last are stored", ATTENTION_MMA,
           "            if (r >= inside) break;\n", "", header="ge2/skeleton/attention_mma.cuh"),
    Mutant("attention mma: keys behind the length are read", ATTENTION_MMA,
           "own.band.length - first);\n        V::load", "BN);\n        V::load"),
    Mutant("attention simt: keys are read before they are there", ATTENTION_SIMT,
           "        __syncthreads();\n        attention.add_tile", "        attention.add_tile"),
    Mutant("attention simt: weights are read before they are there", ATTENTION_SIMT,
           "        __syncwarp();\n        add_values();", "        add_values();",
           header="ge2/skeleton/attention_simt.cuh"),
    Mutant("gradient: scores are weighed too early", GRADIENT,
           "            ptx::wgmma_wait<1>();\n            ptx::opaque(p);",
           "            ptx::opaque(p);", header=_GRADIENT),
    Mutant("gradient: slopes are used too early", GRADIENT,
           "                ptx::wgmma_wait<0>();\n            }\n", "            }\n",
           header=_GRADIENT),
    Mutant("gradient: a stage is handed back too early", GRADIENT,
           "            ptx::opaque(g);\n            slope",
           "            ptx::opaque(g);\n            held = -1;\n            if (lane == 0) "
           "ptx::mbarrier_arrive(shared.empty + ring.stage * 8);\n            slope",
           header=_GRADIENT),
    Mutant("gradient: statistics are overwritten while they are read", GRADIENT,
           "                __syncwarp();\n            }\n            if (held",
           "            }\n            if (held", header=_GRADIENT),
    Mutant("gradient: results overwrite rows that are read", GRADIENT,
           "            ptx::named_barrier_sync(1 + group, GROUP);  //", "            //",
           header=_GRADIENT),
    Mutant("gradient: sums are stored before they are there", GRADIENT,
           "            ptx::wgmma_wait<0>();\n            take_sums();",
           "            take_sums();", header=_GRADIENT),
    Mutant("lab: full barrier is not waited for", LAB,
           "        ptx::mbarrier_wait(bars + 8 * stage, parity);\n", ""),
    Mutant("lab: stage refilled while it is read", LAB, _LAB_READ + "        __syncthreads();",
           _LAB_READ + "        //"),
    Mutant("lab: no fence before the ticket", LAB, "sum;\n        __threadfence();", "sum;\n"),
    Mutant("lab: no fence after the ticket", LAB, "return;\n    __threadfence();", "return;\n"),
    Mutant("lab: ticket is not reset", LAB, "        *args.ticket = 0;\n", ""),
    Mutant("lab: tree without barriers", LAB,
           "+ half];\n        __syncthreads();", "+ half];\n"),
    Mutant("lab: one column too many", LAB, "if (column >= args.columns) continue;",
           "if (column > args.columns) continue;"),
    Mutant("block: warps' values are not waited for", BLOCK,
           "            __syncthreads();\n        }\n        const T mine",
           "        }\n        const T mine",
           header="ge2/prim/reduce/block.cuh"),
    Mutant("tree: a level without barrier", TREE,
           "rank + half]);\n            __syncthreads();", "rank + half]);\n",
           header="ge2/prim/reduce/shared_tree.cuh"),
    Mutant("tree: one level too many", TREE, "int half = THREADS / 2;", "int half = THREADS;",
           header="ge2/prim/reduce/shared_tree.cuh"),
    Mutant("cluster: a block ends while others read its states", CLUSTER,
           "void leave() { ptx::cluster_sync(); }", "void leave() {}",
           header="ge2/prim/reduce/cluster.cuh"),
    Mutant("cluster: states are read before they are there", CLUSTER,
           "= value;\n        ptx::cluster_sync();", "= value;",
           header="ge2/prim/reduce/cluster.cuh"),
    Mutant("ring: a row is read before it is there", RING,
           "                ptx::mbarrier_wait(bars + 8 * static_cast<unsigned>(filled.stage), "
           "filled.parity);\n", "", header=_RING),
    Mutant("ring: rows wait for the phase behind the one under way", RING,
           "(filled.stage), filled.parity);", "(filled.stage), filled.parity ^ 1u);",
           header=_RING),
    Mutant("ring: a stage is refilled while it is read", RING,
           "            ptx::mbarrier_wait(bars + kEmpty + 8 * static_cast<unsigned>(place.stage), "
           "place.parity);\n", "", header=_RING),
    Mutant("ring: states are read before they are there", RING,
           "        ptx::mbarrier_wait(bar, round / kRounds & 1u);\n", "",
           header="ge2/prim/exchange/cluster.cuh"),
    Mutant("split: no fence before the ticket", SPLIT, "        __threadfence();\n", "",
           header="ge2/skeleton/row_split.cuh"),
    Mutant("split: ticket is not reset", SPLIT, "    args.semaphores[r] = 0;\n", "",
           header="ge2/skeleton/row_split.cuh"),
    Mutant("split: ticket read before it is there", SPLIT,
           "1u);\n    }\n    __syncthreads();", "1u);\n    }\n",
           header="ge2/skeleton/row_split.cuh"),
    Mutant("elementwise: whole vectors at the end", VEC, "valid[u] = valid_lanes(args, vector);",
           "valid[u] = kVector;"),
    Mutant("elementwise: one element too many", VEC, "static_cast<int>(left) : kVector;",
           "static_cast<int>(left) + 1 : kVector;"),
    Mutant("transpose: no barrier", TURN, "    __syncthreads();\n", ""),
    Mutant("transpose: rows beyond the matrix", TURN, "if (a >= left_a || b >= left_b) continue;",
           "if (a >= left_a || b > left_b) continue;"),
]


def _overlay(folder: Path, mutant: Mutant) -> tuple[Path, ...]:
    """Return include folders in which the mutant's header is changed."""
    source = paths.include_dir()
    shutil.copytree(source, folder / "include")
    path = folder / "include" / mutant.header
    text = path.read_text("utf-8")
    assert mutant.old in text, f"{mutant.header} has changed; so must the mutant"
    path.write_text(text.replace(mutant.old, mutant.new, mutant.count), "utf-8")
    return (folder / "include",)


def _edit(mutant: Mutant, folder: Path) -> Edit:
    if mutant.header:
        return Edit(includes=_overlay(folder, mutant))

    def text(source: str) -> str:
        assert mutant.old in source, "the template has changed; so must the mutant"
        return source.replace(mutant.old, mutant.new, mutant.count)

    return Edit(text=text)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_a_broken_kernel_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    """A detector speaks, and the message names the kernel."""
    with pytest.raises(EmulationError) as caught:
        mutant.target.run(_edit(mutant, tmp_path))
    assert registry.variant(mutant.target.variant).kernel.name in str(caught.value)


def _half_workspace(record: LaunchRecord) -> LaunchRecord:
    return replace(record, workspace=record.workspace // 2)


def _less_shared(record: LaunchRecord) -> LaunchRecord:
    return replace(record, smem=record.smem - 16 if record.smem else 0)


@pytest.mark.parametrize(("target", "change"), [
    (SPLIT, _half_workspace), (LAB, _half_workspace), (TILED, _less_shared),
    (WGMMA, _less_shared), (TURN, _less_shared),
], ids=["split-workspace", "lab-workspace", "tiled-shared", "wgmma-shared", "transpose-shared"])
def test_too_little_memory_is_caught(
        target: Target, change: Callable[[LaunchRecord], LaunchRecord]) -> None:
    """A shrunk workspace or shared memory is an access out of bounds."""
    with pytest.raises(EmulationError, match="out of bounds"):
        target.run(Edit(record=change))


@pytest.mark.parametrize("target", [TILED, CORES, RAGGED, BATCHED, NORM, NORM_WGMMA, VALUES,
                                    ATTENTION_MMA, ATTENTION_SIMT, GRADIENT, WGMMA, PINGPONG, LAB,
                                    BLOCK, TREE, CLUSTER, SPLIT, RING, VEC, TURN],
                         ids=lambda t: t.variant)
def test_the_unbroken_kernel_is_clean(target: Target) -> None:
    """No detector speaks on the cases that the mutants run."""
    target.run(Edit())
