"""Guards refuse with reasons, each score rule can flip a choice, and selection is quick."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from ge2.compiler.ir.nodes import Node
from ge2.compiler.ir.row_ops import build_row_op
from ge2.compiler.kernels import registry, selector
from ge2.compiler.kernels.facts import Facts, alignment
from ge2.compiler.kernels.lower import lower
from ge2.compiler.kernels.metadata import DtypeRule, Guards, KernelInfo, Variant
from ge2.compiler.kernels.score_rules import KERNEL_RULES, VARIANT_RULES
from ge2.errors import KernelSpecError, NoKernelError
from ge2.evidence.device import PROFILES, DeviceProfile
from ge2.problem import Problem, TensorSpec

H200, T4 = PROFILES["sm_90a"], PROFILES["sm_75"]
F32 = DtypeRule(("f32",), "f32")
ANY = DtypeRule(("*",), "*")


def kernel(name: str, op_type: str = "GEMM_BIAS_ACT", **kw: Any) -> KernelInfo:
    kw.setdefault("dtypes", (ANY,))
    kw.setdefault("numerics", name)
    return KernelInfo(name, op_type, f"test/{name}.cu.j2", "test", **kw)


def gemm(m: int = 1024, n: int = 1024, k: int = 1024, dtype: str = "f32", *, align: int = 16,
         trans_a: bool = False, a: TensorSpec | None = None, batch: tuple[int, ...] = (),
         ) -> Problem:
    a = a or TensorSpec.dense(dtype, (*batch, k, m) if trans_a else (*batch, m, k), align)
    b = TensorSpec.dense(dtype, (*batch, k, n), align)
    return Problem("GEMM_BIAS_ACT", (a, b, None), (TensorSpec.dense(dtype, (*batch, m, n), align),),
                   (("trans_a", trans_a), ("trans_b", False)))


def chosen(problem: Problem, *kernels: KernelInfo, device: DeviceProfile = H200) -> str:
    return selector.select(problem, device, kernels=kernels).variant.kernel.name


def row(rows: int, n: int) -> Problem:
    spec = TensorSpec.dense("f32", (rows, n))
    return Problem("ROW", (spec,), (spec,), (("row", build_row_op("softmax")),))


# Each case: rule name, a kernel that wins where the rule speaks for it, its rival, the problem (and
# device) where it wins, and those where the rival does.
general, tied = kernel("b_rival", score=50), {"score": 50}
FLIPS: list[tuple[str, KernelInfo, KernelInfo, Any, Any]] = [
    ("dtype", kernel("a", dtypes=(F32, DtypeRule(("*",), "*")), **tied), general,
     (gemm(dtype="f32"), H200), None),
    ("layout", kernel("a", layouts=(("A", ("col", "row")),), **tied),
     kernel("b_rival", layouts=(("A", ("row", "col")),), **tied),
     (gemm(trans_a=True), H200), (gemm(), H200)),
    ("alignment", kernel("a", flags=frozenset({"vectorized"}), **tied), general,
     (gemm(), H200), (gemm(align=4), H200)),
    ("stride", kernel("a", flags=frozenset({"vectorized"}), score=49), kernel("b_rival", score=55),
     (gemm(), H200), (gemm(a=TensorSpec("f32", (1024, 1024), (8192, 4))), H200)),
    ("min_mnk", kernel("a", min_mnk=(256, 256, 128), score=90), kernel("b_rival", score=20),
     (gemm(), H200), (gemm(64, 64, 64), H200)),
    ("arch", kernel("a", archs=("sm_90a", "sm_75+"), **tied), general,
     (gemm(), H200), None),
    ("tensor_core", kernel("a", flags=frozenset({"tensor_core"}), **tied),
     kernel("b_rival", score=60), (gemm(), H200),
     (gemm(), dataclasses.replace(H200, caps={**H200.caps, "tensor_core": False}))),
    ("shape", kernel("a", params=(("BM", (128,)), ("BN", (128,))), **tied),
     kernel("b_rival", params=(("BM", (32,)), ("BN", (32,))), **tied),
     (gemm(4096, 4096), H200), (gemm(96, 96), H200)),
    ("operator", kernel("a", flags=frozenset({"split_k"}), params=(("SPLIT", (8,)),), **tied),
     general, (gemm(128, 128, 8192), H200), (gemm(4096, 4096, 512), H200)),
    ("operator", kernel("a", "ROW", params=(("THREADS", (32,)),), **tied),
     kernel("b_rival", "ROW", params=(("THREADS", (1024,)),), **tied),
     (row(8, 64), H200), (row(8, 65536), H200)),
]


@pytest.mark.parametrize(("rule", "mine", "rival", "wins", "loses"), FLIPS)
def test_each_rule_flips_a_choice(rule: str, mine: KernelInfo, rival: KernelInfo, wins: Any,
                                  loses: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def best() -> list[str]:
        """The choices; the one that a tie would give comes first among the candidates."""
        cases = [(wins, (rival, mine))] + ([(loses, (mine, rival))] if loses else [])
        return [selector.rank(*case, kernels=order)[0].variant_id.split("[")[0]
                for case, order in cases]

    with_rule = best()
    assert with_rule == [f"test/{mine.name}", f"test/{rival.name}"][: len(with_rule)]
    table = KERNEL_RULES if rule in KERNEL_RULES else VARIANT_RULES
    monkeypatch.setitem(table, rule, lambda subject, facts, device: 0.0)
    assert best() != with_rule, "without the rule the choice must be another"


def test_every_rule_has_a_flip() -> None:
    assert {case[0] for case in FLIPS} == {*KERNEL_RULES, *VARIANT_RULES}


def test_the_private_rule_function_gives_the_parts() -> None:
    variant = kernel("a", flags=frozenset({"tensor_core"})).variants[0]
    parts = selector._score_by_rules(gemm(), variant, H200)
    assert parts["tensor_core"] > 0 and "capability" not in parts


REFUSALS: list[tuple[str, KernelInfo, Problem, DeviceProfile]] = [
    ("dtype: input 0 is f16, kernel takes f32", kernel("k", dtypes=(F32,)), gemm(dtype="f16"),
     H200),
    ("arch: needs sm_80+", kernel("k", archs=("sm_80+",)), gemm(), T4),
    ("wgmma: Tesla T4 has none", kernel("k", flags=frozenset({"wgmma"})), gemm(), T4),
    ("layout: A is col", kernel("k", layouts=(("A", ("row",)),)), gemm(trans_a=True), H200),
    ("align: A is aligned to 4 bytes, kernel needs 16", kernel("k", guards=Guards(align=16)),
     gemm(align=4), H200),
    ("align: A is aligned to 4 bytes, kernel needs 8", kernel("k", guards=Guards(align=8)),
     gemm(k=1023), H200),
    ("contiguous: A", kernel("k", guards=Guards(contiguous=True)),
     gemm(a=TensorSpec("f32", (1024, 1024), (2048, 1))), H200),
    ("inner_contiguous: A has inner stride 2", kernel("k", guards=Guards(inner_contiguous=True)),
     gemm(a=TensorSpec("f32", (1024, 1024), (2048, 2))), H200),
    ("max_rank: rank 4 is above 3", kernel("k", guards=Guards(max_rank=3)), gemm(batch=(2, 3)),
     H200),
    ("index32: A reaches element 2147483648", kernel("k", guards=Guards(index32=True)),
     gemm(m=2, n=1, k=1, a=TensorSpec("f32", (2, 1), (2**31, 1))), H200),
    ("smem_max: needs 131072 bytes", kernel("k", guards=Guards(smem_max="1024 * BM"),
                                            params=(("BM", (128,)),)), gemm(), T4),
    ("multiple_of: K = 1020, kernel takes multiples of 8",
     kernel("k", guards=Guards(multiple_of=(("K", 8),))), gemm(k=1020), H200),
    ("max: M = 1024, kernel takes at most 64", kernel("k", guards=Guards(max=(("M", 64),))),
     gemm(), H200),
    ("min: N = 8, kernel takes at least 16", kernel("k", guards=Guards(min=(("N", 16),))),
     gemm(n=8), H200),
    ("min: a GEMM_BIAS_ACT has no dimension ROWS", kernel("k", guards=Guards(min=(("ROWS", 1),))),
     gemm(), H200),
    ("op_type: serves ROW", kernel("k", "ROW"), gemm(), H200),
]


@pytest.mark.parametrize(("reason", "refused", "problem", "device"), REFUSALS)
def test_each_guard_refuses_with_its_reason(reason: str, refused: KernelInfo, problem: Problem,
                                            device: DeviceProfile) -> None:
    (report,) = selector.rank(problem, device, kernels=[refused])
    assert report.score is None and any(r.startswith(reason) for r in report.reasons), report
    with pytest.raises(NoKernelError) as caught:
        selector.select(problem, device, kernels=[refused])
    assert refused.variants[0].id in str(caught.value) and reason in str(caught.value)


def test_all_reasons_are_listed_not_only_the_first() -> None:
    refused = kernel("k", dtypes=(F32,), archs=("sm_100a",), layouts=(("A", ("row",)),))
    (report,) = selector.rank(gemm(dtype="f16", trans_a=True), H200, kernels=[refused])
    assert [r.split(":")[0] for r in report.reasons] == ["arch", "dtype", "layout"]


def test_arch_guards_replace_the_common_ones() -> None:
    k = kernel("k", guards=Guards(align=16), arch_guards=(("sm_75", Guards(align=4)),))
    problem = gemm(align=4)
    assert selector.rank(problem, H200, kernels=[k])[0].score is None
    assert selector.rank(problem, T4, kernels=[k])[0].score is not None


def test_a_cost_model_decides_where_it_has_an_opinion() -> None:
    a, b = kernel("a", score=50), kernel("b", score=90)

    def cost(problem: Problem, variant: Variant, device: DeviceProfile) -> float | None:
        return 100.0 if variant.kernel.name == "a" else None

    assert selector.select(gemm(), H200, kernels=[a, b]).variant.kernel is b
    choice = selector.select(gemm(), H200, kernels=[a, b], cost=cost)
    assert choice.variant.kernel is a and choice.reports[0].parts["cost"] == 100.0
    assert "cost" not in choice.reports[1].parts


def test_the_score_is_the_sum_of_its_parts_and_reports_are_sorted() -> None:
    kernels = [kernel("a", score=10), kernel("b", score=30), kernel("c", archs=("sm_100a",))]
    choice = selector.select(gemm(), H200, kernels=kernels)
    assert [r.variant_id for r in choice.reports] == ["test/b", "test/a", "test/c"]
    assert choice.score == choice.reports[0].score == sum(choice.reports[0].parts.values())


def test_equal_scores_are_decided_by_order() -> None:
    twins = [kernel("a"), kernel("b")]
    assert {chosen(gemm(), *twins) for _ in range(3)} == {"a"}


def test_a_changed_capability_score_changes_the_choice(
        add_template: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    add_template()
    registry.register({"name": "scale_rows", "score": 90})
    spec = TensorSpec.dense("f32", (64,))
    problem = Problem("SCALE_TEST", (spec,), (spec,))
    before = selector.select(problem, H200)
    registry.set_capability("SCALE_TEST__scale_rows", 5)
    after = selector.select(problem, H200)
    assert before.score - after.score == 85
    with pytest.raises(KernelSpecError, match="Did you mean SCALE_TEST__scale_rows"):
        registry.set_capability("SCALE_TEST__scale_row", 5)


def test_problem_dims_of_each_family() -> None:
    assert selector.problem_dims(gemm(3, 5, 7, trans_a=True, batch=(2, 4))) == {
        "M": 3, "N": 5, "K": 7, "BATCH": 8, "SIZE": 120, "RANK": 4}
    assert selector.problem_dims(row(6, 9)) == {"ROWS": 6, "N": 9, "SIZE": 54, "RANK": 2}
    x, w, y = (TensorSpec.dense("f32", s) for s in ((2, 8, 9, 9), (16, 4, 3, 3), (2, 16, 7, 7)))
    conv = selector.problem_dims(Problem("CONV2D", (x, w, None), (y,), (("group", 2),)))
    assert (conv["M"], conv["N"], conv["K"], conv["GROUPS"]) == (98, 8, 36, 2)


def test_a_stack_times_one_matrix_is_scored_as_the_tall_product_that_it_is() -> None:
    a, y = TensorSpec.dense("bf16", (400, 5, 512)), TensorSpec.dense("bf16", (400, 5, 256))
    b = TensorSpec("bf16", (400, 512, 256), (0, 256, 1))
    bias = TensorSpec("bf16", (400, 5, 256), (0, 0, 1))
    stack = Problem("GEMM_BIAS_ACT", (a, b, bias), (y,), (("trans_a", False), ("trans_b", False)))
    assert selector.problem_dims(stack) == {
        "M": 2000, "N": 256, "K": 512, "BATCH": 1, "SIZE": 512000, "RANK": 3}
    tall = kernel("a", score=60, min_mnk=(1024, 128, 128))
    assert chosen(stack, tall, kernel("b", score=40)) == "a"


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("device", [H200, T4])
def test_a_stack_gets_the_kernel_of_the_tall_product(dtype: str, device: DeviceProfile) -> None:
    def best(*shape: int) -> str:
        specs = {"a": TensorSpec.dense(dtype, shape), "b": TensorSpec.dense(dtype, (512, 256))}
        problem = lower(Node("MATMUL", "n", ("a", "b"), ("y",)), specs)
        return selector.select(problem, device).variant.id

    assert best(400, 5, 512) == best(2000, 512)
    assert best(32, 1, 512) == best(32, 512)


def test_a_stack_with_a_residual_of_its_own_layout_stays_a_stack() -> None:
    a, y = TensorSpec.dense("f32", (6, 5, 32)), TensorSpec.dense("f32", (6, 5, 16))
    b = TensorSpec("f32", (6, 32, 16), (0, 16, 1))
    shared = TensorSpec("f32", (6, 5, 16), (0, 16, 1))
    dims = selector.problem_dims(Problem("GEMM_BIAS_ACT", (a, b, None, shared), (y,), ()))
    assert (dims["M"], dims["BATCH"]) == (5, 6)


def test_layouts_look_through_transposition() -> None:
    facts = Facts(gemm(trans_a=True))
    assert "col" in facts.layouts["A"] and "row" not in facts.layouts["A"]
    assert {"row", "dense", "inner"} <= facts.layouts["B"]
    scattered = Facts(gemm(a=TensorSpec("f32", (1024, 1024), (8192, 4))))
    assert scattered.layouts["A"] == {"strided"}


def test_alignment_counts_address_and_outer_strides() -> None:
    assert alignment(TensorSpec("f16", (4, 8), (8, 1))) == 16
    assert alignment(TensorSpec("f16", (4, 8), (9, 1))) == 2
    assert alignment(TensorSpec("f16", (1, 8), (9, 1))) == 16
    assert alignment(TensorSpec("f16", (4, 8), (-4, 1))) == 8
    assert alignment(TensorSpec("f32", (4, 8), (0, 1), 4)) == 4


def test_ten_thousand_nodes_are_selected_within_a_second() -> None:
    kernels = [kernel(f"k{i}", params=(("BM", (64, 128)), ("BN", (64, 128)), ("BK", (8, 16))),
                      guards=Guards(align=16, smem_max="BM * BN")) for i in range(6)]
    problems = [gemm(m=64 * (1 + i % 40)) for i in range(10_000)]
    start = time.process_time()
    for problem in problems:
        selector.select(problem, H200, kernels=kernels)
    assert time.process_time() - start < 1.0
