"""Many sizes of one encoder: kernels, time to plan a class, host time of a new size.

    python -m bench.sizes [--count 1000] [--batch 64] [--seq 512] [--arch sm_90a] [--plans-only]

Runs on the GPU where there is one: each size is called twice with CuPy arrays, and the difference
of the two calls' host times is what a new size costs. Without a GPU, or with --plans-only, the
numbers of each size are computed and written into argument blocks, all but the driver's part.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from ge2.compiler.class_plans import ClassPlans
from ge2.compiler.ir.nodes import Graph
from ge2.compiler.sized_plan import SizedPlan
from ge2.evidence.device import profile_for
from ge2.launch.patch import Args
from ge2.model import GraphBuilder
from ge2.runtime import driver
from ge2.runtime.executor import Executable
from ge2.runtime.sizing import sizing_at

WIDTH, HEADS = 64, 4


def encoder() -> Graph:
    """Return an optimised transformer encoder layer, x [batch, seq, 64] in f16."""
    g, rng = GraphBuilder("encoder"), np.random.default_rng(0)

    def weight(name: str, *shape: int) -> Any:
        return g.weight(name, (rng.standard_normal(shape) * 0.1).astype(np.float16))

    def heads(x: Any) -> Any:
        return g.transpose(g.reshape(x, shape=[0, 0, HEADS, WIDTH // HEADS]), perm=[0, 2, 1, 3])

    x = g.input("x", "f16", ["batch", "seq", WIDTH])
    q, k, v = (g.add(g.matmul(x, weight(f"w{n}", WIDTH, WIDTH)), weight(f"b{n}", WIDTH))
               for n in "qkv")
    scores = g.mul(g.matmul(heads(q), g.transpose(heads(k), perm=[0, 1, 3, 2])),
                   g.constant(0.25, "f16"))
    mixed = g.transpose(g.matmul(g.softmax(scores, axis=-1), heads(v)), perm=[0, 2, 1, 3])
    out = g.matmul(g.reshape(mixed, shape=[0, 0, WIDTH]), weight("wo", WIDTH, WIDTH))
    x = g.layer_norm(g.add(x, out), weight("g1", WIDTH), weight("c1", WIDTH))
    wide = g.gelu(g.add(g.matmul(x, weight("w1", WIDTH, 4 * WIDTH)), weight("b1", 4 * WIDTH)))
    out = g.add(g.matmul(wide, weight("w2", 4 * WIDTH, WIDTH)), weight("b2", WIDTH))
    g.output("y", g.layer_norm(g.add(x, out), weight("g2", WIDTH), weight("c2", WIDTH)))
    return g.model(backend="cpu").optimized.graph


def sizes(count: int, batch: int, seq: int) -> Iterator[dict[str, int]]:
    """Return random sizes, the same ones each time."""
    draw = random.Random(0)
    for _ in range(count):
        yield {"batch": draw.randint(1, batch), "seq": draw.randint(1, seq)}


def plans_only(graph: Graph, wanted: list[dict[str, int]], arch: str) -> None:
    """Print kernels, time to plan, and the time to compute and write a size's numbers."""
    plans = ClassPlans(graph, profile_for(arch))
    blocks: dict[SizedPlan, list[Args]] = {}
    made: list[float] = []
    written: list[float] = []
    for values in wanted:
        start = time.perf_counter()
        sized = plans.find(values, {})
        assert sized is not None
        if sized not in blocks:
            made.append(time.perf_counter() - start)
            blocks[sized] = [Args(r, lambda spec, address: bytes(128)) for r in sized.plan.records]
        start = time.perf_counter()
        numbers = sizing_at(sized, values).numbers
        for args, launch in zip(blocks[sized], sized.launches, strict=True):
            launch.grid(numbers)
            args.resize(numbers, launch.fields, launch.addends, launch.tensor_maps(numbers))
        written.append(time.perf_counter() - start)
    kernels = {record.kernel for sized in blocks for record in sized.plan.records}
    print(f"{len(wanted)} sizes: {len(kernels)} kernels, {len(blocks)} plans of "
          f"{1e3 * median(made):.0f} ms, {1e6 * median(written):.0f} us for a size's numbers")


def on_gpu(graph: Graph, wanted: list[dict[str, int]]) -> None:
    """Print the host time of a first and a second call of each size."""
    import cupy

    executable = Executable(graph, "cuda")
    new: list[float] = []
    again: list[float] = []
    for values in wanted:
        x = cupy.zeros((values["batch"], values["seq"], WIDTH), np.float16)
        out = {"y": cupy.empty_like(x)}
        for times in (new, again):
            start = time.perf_counter()
            executable.run({"x": x}, outputs=out)
            times.append(time.perf_counter() - start)
        cupy.cuda.get_current_stream().synchronize()
    kernels = {record.kernel for bound in executable.plans.shared.values()
               for record in bound.plan.records}
    gap = median(new) - median(again)
    print(f"{len(wanted)} sizes on a GPU: {len(kernels)} kernels, replay "
          f"{1e6 * median(again):.0f} us, a new size {1e6 * gap:.0f} us more (median)")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--plans-only", action="store_true")
    args = parser.parse_args()
    graph, wanted = encoder(), list(sizes(args.count, args.batch, args.seq))
    plans_only(graph, wanted, args.arch)
    if driver.is_available() and not args.plans_only:
        on_gpu(graph, wanted)


if __name__ == "__main__":
    main()
