"""Composed kernels: operators that exist nowhere else, right against float64 on the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ge2
from ge2 import paths
from ge2.compiler import opdefs
from ge2.compiler.ir.expr import ExprBundle, exp, input, log, maximum
from ge2.compiler.ir.row import RowOp, row_op
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry
from ge2.compiler.opdefs.user_rows import USER_ROWS
from ge2.errors import Ge2Error, Invalid, NoKernelError
from ge2.evidence.device import profile_for
from ge2.evidence.record import Record
from ge2.lab import declared
from ge2.lab.compose import Composition, compose
from ge2.tune.verify import compare

H200 = profile_for("sm_90a")
rng = np.random.default_rng()


def check(made: Composition, *arrays: np.ndarray) -> None:
    """Compare every element with float64, within the bounds of tuning."""
    found, wanted = made.run(*arrays), made.reference(*arrays)
    problem = made.problem(*(a.shape for a in arrays))
    for index, (y, right) in enumerate(zip(found, wanted, strict=True)):
        assert not (why := compare(problem, index, y, right, None).problem), why


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("op", [declared.weighted_moments, declared.normalized_distance])
@pytest.mark.parametrize("shape", [(1, 4), (3, 1284)])
def test_rows_of_two_operands(op: object, shape: tuple[int, int]) -> None:
    check(compose(op()), floats(*shape), floats(*shape))  # type: ignore[operator]


def test_weighted_moments_are_those_of_the_textbook() -> None:
    scores, values = floats(2, 64), floats(2, 64)
    mean, variance = compose(declared.weighted_moments()).run(scores, values)
    weights = np.exp(scores.astype("f8"))
    weights /= weights.sum(1, keepdims=True)
    middle = (weights * values).sum(1)
    assert np.allclose(mean, middle, atol=1e-6)
    assert np.allclose(variance, (weights * (values - middle[:, None]) ** 2).sum(1), atol=1e-6)


def test_a_product_that_is_not_stored() -> None:
    check(compose(declared.product_logsumexp(), product=True), floats(65, 20), floats(68, 20))


def test_large_scores_do_not_overflow() -> None:
    made = compose(declared.product_logsumexp(), product=True)
    check(made, 30 * floats(3, 16), 30 * floats(8, 16))


def test_a_prologue_an_epilogue_with_operands_and_row_outputs() -> None:
    """softmax(relu(A) B^T + bias) * scale: the scores are computed twice and never stored."""
    m = maximum(input(0, "f32"), 0.0)
    op = row_op("scores", inputs=2, extras=1, state={"m": -1e30, "s": 0.0},
                single=lambda r: (r.x + r.xs[1], r.x * 0.0 + 1.0),
                merge=lambda a, b: (
                    maximum(a.m, b.m), a.s * exp(a.m - maximum(a.m, b.m))
                    + b.s * exp(b.m - maximum(a.m, b.m))),
                finish=lambda s, r: exp(r.x + r.xs[1] - s.m) / s.s * r.extras[0])
    made = compose(op, product=True, prologue=ExprBundle((m,)))
    a, b, bias, scale = floats(5, 12), floats(68, 12), floats(68), floats(68)
    check(made, a, b, bias, scale)
    scores = np.maximum(a, 0).astype("f8") @ b.T + bias
    weights = np.exp(scores - scores.max(1, keepdims=True))
    found, = made.run(a, b, bias, scale)
    assert np.allclose(found, weights / weights.sum(1, keepdims=True) * scale, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_product_of_16_bits_on_tensor_cores(dtype: str) -> None:
    """Rows beyond a tile, a depth that is half an mma's, operands of the state and the epilogue."""
    op = row_op("shifted_logsumexp", inputs=2, state={"m": -1e30, "s": 0.0}, outputs=("scalar",),
                single=lambda r: (r.x + r.xs[1], r.x * 0.0 + 1.0),
                merge=lambda a, b: (
                    maximum(a.m, b.m), a.s * exp(a.m - maximum(a.m, b.m))
                    + b.s * exp(b.m - maximum(a.m, b.m))),
                finish=lambda s, r: s.m + log(s.s))
    made = compose(op, product=True, prologue=ExprBundle((maximum(input(0, "f32"), 0.0),)))
    a, b, bias = (floats(*shape).astype(dtype) for shape in ((130, 24), (68, 24), (68,)))
    check(made, a, b, bias)
    scores = np.maximum(a, 0).astype("f8") @ b.astype("f8").T + bias.astype("f8")
    assert np.allclose(made.run(a, b, bias)[0], np.log(np.exp(scores).sum(1)), atol=1e-5)


def test_rows_with_weights_a_first_element_and_a_value_per_element() -> None:
    made = compose(build_row_op("layer_norm", pivot=True), staging="producer_consumer")
    check(made, 1000 + floats(3, 1100), floats(1100), floats(1100))


def test_a_class_that_declares_an_operator_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (opdefs.OPS, USER_ROWS):  # the declaration is gone after the test
        monkeypatch.setitem(table, "COMPOSED_POWER", None)
        table.pop("COMPOSED_POWER")

    @ge2.row_operator
    class COMPOSED_POWER:
        """mean(x * x)"""

        state = {"squares": 0.0}  # noqa: RUF012 - a declaration
        outputs = ("scalar",)

        def update(s, r):  # type: ignore[no-untyped-def]
            return [s.squares + r.x * r.x]

        def merge(a, b):  # type: ignore[no-untyped-def]
            return [a.squares + b.squares]

        def finish(s, r):  # type: ignore[no-untyped-def]
            return s.squares / r.n

    x = floats(4, 256)
    found, = compose(COMPOSED_POWER).run(x)
    assert np.allclose(found, np.square(x).mean(1), rtol=1e-5)


def test_every_staging_and_reduction_can_be_asked_for() -> None:
    made = compose(declared.normalized_distance())
    names = {one.name for one in made.candidates()}
    assert len(names) == 10 and "producer_consumer/shared_tree" in names
    text = compose(declared.normalized_distance(), staging="producer_consumer",
                   reduction="shared_tree").source((4, 64), (4, 64))
    assert "prim/stage/producer_consumer.cuh" in text and "prim/reduce/shared_tree.cuh" in text


def test_evidence_decides_and_what_failed_is_not_offered() -> None:
    made = compose(declared.normalized_distance())
    problem = made.problem((4, 64), (4, 64))

    def record(name: str, **more: object) -> Record:
        one, = (c for c in made.candidates() if c.name == name)
        facts = {"state": "ok", "time_us": 1.0, "predicted_us": 2.0, **more}
        return Record(problem="p", op_type="LAB_COMPOSE_ROWS", shape="", device="d", cubin="",
                      variant=one.variant.id, **facts)  # type: ignore[arg-type]

    assert made.choose(problem, H200).name == "cp_async/block"
    records = [record("shared/block"), record("direct/block", time_us=3.0)]
    assert made.choose(problem, H200, records).name == "shared/block"
    assert compose(declared.normalized_distance(), staging="direct").choose(
        problem, H200, records).name == "direct/block"


def test_a_wrong_staging_is_not_composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's header that forgets a barrier is one candidate more until verify has seen it."""
    from ge2.lab.verify import verify
    from ge2.runtime.device import EmulatedDevice

    folder = tmp_path / "include" / "ge2" / "prim" / "stage"
    folder.mkdir(parents=True)
    text = (paths.include_dir() / "ge2/prim/stage/shared.cuh").read_text()
    broken = text.replace("::shared", "::hasty").replace("            __syncthreads();\n", "", 1)
    assert broken.count("__syncthreads") == 1
    (folder / "hasty.cuh").write_text(broken)
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path))
    registry.reset()
    try:
        made, records = compose(declared.normalized_distance()), []
        assert "hasty/block" in [one.name for one in made.candidates()]
        states = {r.realization.name: r.state for r in verify(
            EmulatedDevice(), ["composition"], only="hasty", put=records.append)}
        assert {name for name, state in states.items() if state != "ok"} == {
            "hasty/block", "hasty/shared_tree", "hasty/warp_shuffle"}
        assert not [one.name for one in made.candidates(records) if "hasty" in one.name]
        with pytest.raises(NoKernelError, match="cannot be composed so"):
            compose(declared.normalized_distance(), staging="hasty").candidates(records)
    finally:
        monkeypatch.undo()
        registry.reset()


def pivoted() -> RowOp:
    return row_op("pivoted", state={"s": 0.0}, update=lambda s, r: [s.s + r.x - r.first],
                  merge=lambda a, b: [a.s + b.s], finish=lambda s, r: s.s, outputs=("scalar",),
                  pivot=True)


@pytest.mark.parametrize(("call", "reason"), [
    (lambda: compose("softmax"), "nothing to compose"),
    (lambda: compose(pivoted(), product=True), "tile by tile"),
    (lambda: compose(pivoted(), prologue=ExprBundle((input(0, "f32"),))), "prologue"),
    (lambda: compose(pivoted(), staging="cpasync").candidates(), "Did you mean cp_async"),
    (lambda: compose(pivoted()).problem((3,)), "matrices"),
    (lambda: compose(pivoted()).run(np.zeros((2, 8))), "f32"),
    (lambda: compose(pivoted()).run(np.zeros((2, 8), "f2")), "f32"),
    (lambda: compose(declared.product_logsumexp(), product=True).run(
        floats(4, 8).astype("f2"), floats(4, 8)), "one dtype"),
    (lambda: compose(declared.product_logsumexp(), product=True).run(
        floats(4, 4).astype("f2"), floats(4, 4).astype("f2")), "multiple of 8"),
    (lambda: compose(declared.normalized_distance()).problem((2, 8), (3, 8), (1, 1)), "fewer"),
    (lambda: compose(declared.normalized_distance()).run(
        floats(2, 8), floats(3, 8)), "broadcasts to"),
])
def test_mistakes_are_named(call: object, reason: str) -> None:
    with pytest.raises((Invalid, NoKernelError, Ge2Error), match=reason):
        call()  # type: ignore[operator]
