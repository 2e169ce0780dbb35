"""Calls of one executable with many sizes, on a stand-in for CUDA."""

from __future__ import annotations

import random
import time

import pytest

from ge2.compiler.sized_plan import plan_at
from ge2.launch.patch import Args
from ge2.runtime.executor import Executable
from tests.unit.runtime.fake_cuda import FakeArray, FakeCuda, cuda  # noqa: F401 - a fixture
from tests.unit.runtime.fake_device import encode_map

from .encoder import encoder

X, Y = 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def graph():
    return encoder().optimized.graph


def _run(executable: Executable, batch: int, seq: int, x: int = X, y: int = Y) -> float:
    feeds = {"x": FakeArray(x, batch, seq, 64, dtype="f2")}
    outputs = {"y": FakeArray(y, batch, seq, 64, dtype="f2")}
    start = time.thread_time()
    executable.run(feeds, stream=5, outputs=outputs)
    return time.thread_time() - start


def _expected(executable: Executable, batch: int, seq: int) -> list[bytes]:
    """Return the args of a call from a plan of its size, at the addresses of the only lease."""
    sized = executable.plans._class_plan({"batch": batch, "seq": seq}, {})
    bound, = (b for b in executable.plans.shared.values() if _same_class(b.sized, sized))
    (lease,) = bound.leases.idle
    plan = plan_at(bound.sized, {"batch": batch, "seq": seq})
    assert lease.arena is None or lease.arena.nbytes >= plan.arena_bytes
    made = []
    for step in plan.steps:
        for record in step.records:
            args = Args(record, encode_map)
            args.patch([_address(executable, lease, plan, ref) for ref in step.buffers])
            made.append(args.tobytes())
    return made


def _same_class(one, other) -> bool:
    spaces = one.space, other.space
    return spaces[0].ranges == spaces[1].ranges and spaces[0].conditions == spaces[1].conditions


def _address(executable, lease, plan, ref) -> int:
    if ref is None:
        return 0
    root = plan.roots[ref.root]
    base = {"input": X, "output": Y, "arena": lease.arena.address + root.offset}.get(
        root.kind) or executable.weights.address(root.name)
    return base + ref.offset


def test_each_call_launches_what_a_plan_of_its_size_would(graph, cuda: FakeCuda) -> None:  # noqa: F811
    executable = Executable(graph, "cuda", cuda)
    draw = random.Random(5)
    sizes = [(draw.randint(1, 40), draw.randint(1, 300)) for _ in range(60)]
    for batch, seq in [*sizes, *sizes[:5]]:
        cuda.launched.clear()
        _run(executable, batch, seq)
        launched = [args for _, args, _ in cuda.launched]
        assert launched == _expected(executable, batch, seq), (batch, seq)


def test_sizes_share_memory_that_seldom_grows(graph, cuda: FakeCuda) -> None:  # noqa: F811
    executable = Executable(graph, "cuda", cuda)
    for seq in range(1, 400):
        _run(executable, 8, seq)
    weights = len(graph.constants)
    classes = len(executable.plans.shared)
    assert len(cuda.allocated) - weights <= 16 * classes
    before = len(cuda.allocated)
    for seq in range(399, 0, -1):
        _run(executable, 8, seq)
    assert len(cuda.allocated) == before


def test_a_new_size_costs_little_more_than_a_replay(graph, cuda: FakeCuda) -> None:  # noqa: F811
    """Bounds are several times what an idle machine needs (0.1 ms): planning anew takes 20 ms."""
    executable = Executable(graph, "cuda", cuda)
    draw = random.Random(6)
    new, again = [], []
    for _ in range(300):
        size = draw.randint(1, 64), draw.randint(1, 512)
        new.append(_run(executable, *size))
        again.append(_run(executable, *size))
    new.sort()
    assert new[30] - min(again) < 1e-3
    # For four ranges of rows, whether or not each of the two dimensions is a multiple of 8.
    assert len(executable.plans.shared) <= 16 and not executable.plans.exact
