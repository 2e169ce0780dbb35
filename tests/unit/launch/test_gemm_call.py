"""The normal form of GEMM problems: strides by role, folded and merged batch axes, packed words."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ge2.compiler.ir.expr import ExprBundle, input, scalar
from ge2.compiler.kernels import registry
from ge2.compiler.opdefs.gemm_epilogue import gemm_epilogue
from ge2.errors import Invalid, Unsupported
from ge2.evidence.device import profile_for
from ge2.launch.gemm_args import plain_args_dtype, tensor_map_args_dtype
from ge2.launch.gemm_call import gemm_call, skinny_call, skinny_refusal
from ge2.launch.gemm_examples import gemm_problem
from ge2.launch.gemm_wgmma import tma_refusal
from ge2.launch.rule import LAUNCH_RULES
from ge2.problem import Problem, TensorSpec
from ge2.runtime.emulate.tensor_map import encode_tensor_map

F32 = ("f32", "f32", "f32")
BF16 = ("bf16", "bf16", "bf16")
PRODUCT = ExprBundle((input(0),))


def stacked(a: TensorSpec, b: TensorSpec, batch: tuple[int, ...]) -> Problem:
    """Return the plain product of two stacks of matrices."""
    y = TensorSpec.dense("f32", (*batch, a.shape[-2], b.shape[-1]))
    return Problem("GEMM_BIAS_ACT", (a, b), (y,),
                   (("epilogue", PRODUCT), ("trans_a", False), ("trans_b", False)))


def test_strides_are_given_by_role() -> None:
    call = gemm_call(gemm_problem(F32, shape=(20, 30, 40), trans=(True, False)))
    assert (call.m, call.n, call.k) == (20, 30, 40)
    assert (call.a.row, call.a.column) == (1, 20)  # stored [k, m]
    assert (call.b.row, call.b.column) == (1, 30)  # stored [k, n], indexed (n, k)
    assert [(name, x.slot, x.spread) for name, x in call.extras] == [("bias", 2, "PER_COLUMN_UNIT")]


def test_a_stack_times_one_matrix_is_one_tall_product() -> None:
    call = gemm_call(stacked(TensorSpec.dense("f32", (5, 7, 8)),
                             TensorSpec("f32", (5, 8, 9), (0, 9, 1)), (5,)))
    assert (call.m, call.batches) == (35, 1)


def test_a_stack_with_gaps_between_its_matrices_stays_a_stack() -> None:
    call = gemm_call(stacked(TensorSpec("f32", (5, 7, 8), (100, 8, 1)),
                             TensorSpec("f32", (5, 8, 9), (0, 9, 1)), (5,)))
    assert (call.m, call.batch) == (7, (1, 1, 5))
    assert (call.a.batch, call.b.batch) == ((0, 0, 100), (0, 0, 0))


def test_neighbouring_batch_axes_merge_where_all_operands_allow() -> None:
    call = gemm_call(stacked(TensorSpec.dense("f32", (2, 3, 4, 5)),
                             TensorSpec.dense("f32", (2, 3, 5, 6)), (2, 3)))
    assert call.batch == (1, 1, 6)
    broadcast = gemm_call(stacked(TensorSpec("f32", (2, 3, 4, 5), (0, 20, 5, 1)),
                                  TensorSpec.dense("f32", (2, 3, 5, 6)), (2, 3)))
    assert broadcast.batch == (1, 2, 3)


def test_more_than_three_unrelated_batch_axes_are_refused() -> None:
    batch = (2, 3, 2, 3)
    gaps = TensorSpec("f32", (*batch, 4, 5), (1000, 310, 150, 21, 5, 1))
    with pytest.raises(Unsupported, match="batch axes"):
        gemm_call(stacked(gaps, TensorSpec.dense("f32", (*batch, 5, 6)), batch))


def test_an_epilogue_input_that_is_absent_is_refused() -> None:
    problem = gemm_problem(F32)
    without_bias = dataclasses.replace(problem, inputs=problem.inputs[:2])
    with pytest.raises(Invalid, match="absent"):
        gemm_call(without_bias)


@pytest.mark.parametrize("fused", [False, True])
def test_packed_words_are_the_declared_struct(fused: bool) -> None:
    call = gemm_call(gemm_problem(BF16, shape=(24, 32, 40), fused=fused))
    names = [name for name, _ in call.extras]
    args, relocs = call.pack()
    block = np.frombuffer(args, plain_args_dtype(names))[0]
    assert (block["m"], block["n"], block["k"], block["batches"]) == (24, 32, 40, 1)
    for name, operand in zip(["a", "b", "y", *names], call.operands, strict=True):
        assert (block[name]["row"], block[name]["column"]) == (operand.row, operand.column)
    fields = plain_args_dtype(names).fields
    assert fields is not None
    assert [r.offset for r in relocs] == [fields[n][1] for n in ["a", "b", "y", *names]]

    args, relocs = call.pack_tensor_maps()
    layout = tensor_map_args_dtype(names)
    assert len(args) == layout.itemsize
    assert layout.itemsize % 64 == 0
    assert layout.fields is not None
    assert [r.offset for r in relocs] == [layout.fields[n][1] for n in names]
    assert np.frombuffer(args, layout)[0]["n"] == 32


def test_tensor_maps_need_aligned_rows() -> None:
    assert tma_refusal(gemm_call(gemm_problem(BF16, shape=(64, 64, 64)))) == ""
    assert "A" in tma_refusal(gemm_call(gemm_problem(BF16, shape=(64, 64, 60))))
    assert "A" in tma_refusal(gemm_call(gemm_problem(BF16, shape=(64, 64, 64), align=8)))
    assert tma_refusal(gemm_call(gemm_problem(BF16, shape=(64, 64, 0))))


def test_the_small_operand_of_a_skinny_product_comes_first() -> None:
    variant = next(v for v in registry.get("gemm_bias_act_skinny").variants if v.param("MT") == 4)
    tall = skinny_call(gemm_problem(BF16, shape=(512, 3, 64), trans=(False, True)))
    assert (tall.m, tall.n, tall.a.slot, tall.b.slot) == (3, 512, 1, 0)
    assert (tall.y.row, tall.y.column) == (1, 3)
    assert skinny_refusal(variant, tall) == ""
    assert skinny_refusal(variant, skinny_call(gemm_problem(BF16, shape=(2, 512, 64))))


@pytest.mark.parametrize("name", ["gemm_bias_act_f32", "gemm_bias_act_f32_tiled",
                                  "gemm_bias_act_tc_f16", "gemm_bias_act_wgmma"])
def test_sources_do_not_depend_on_extents(name: str) -> None:
    kernel = registry.get(name)
    dtypes = F32 if "f32" in name else BF16
    device = profile_for("sm_90a")
    rule = LAUNCH_RULES[kernel.launch]
    for variant in kernel.variants:
        sources = {rule.bind(gemm_problem(dtypes, shape=shape), variant, device)[0].kernel
                   for shape in ((64, 64, 64), (1024, 520, 72), (72, 8, 4096))}
        assert len(sources) == 1, variant.id


@pytest.mark.parametrize("k", [24, 136])
def test_maps_of_a_single_row_have_strides_that_the_driver_takes(k: int) -> None:
    problem = gemm_problem(("i8", "i8", "i32"), shape=(1, 64, k), trans=(False, True))
    a, b, *rest = problem.inputs
    assert a is not None and b is not None
    padded = dataclasses.replace(b, strides=(-(-k // 16) * 16, 1))
    problem = dataclasses.replace(problem, inputs=(a, padded, *rest))
    kernel = registry.get("gemm_bias_act_wgmma_8bit")
    rule = LAUNCH_RULES[kernel.launch]
    for variant in kernel.variants:
        (record,) = rule.bind(problem, variant, profile_for("sm_90a"))
        for tensor_map in record.tensor_maps:
            encode_tensor_map(tensor_map, 0)


def test_empty_outputs_need_no_launch() -> None:
    kernel = registry.get("gemm_bias_act_f32")
    problem = gemm_problem(F32, shape=(0, 16, 16))
    rule = LAUNCH_RULES[kernel.launch]
    assert rule.bind(problem, kernel.variants[0], profile_for("sm_90a")) == []


def scaled(alpha: float, beta: float) -> Problem:
    """Return alpha * A B + beta * C as lowering and plain launchers make it."""
    spec = TensorSpec.dense("f32", (256, 256))
    attrs = {"trans_a": False, "trans_b": False, "alpha": alpha, "beta": beta, "act": "none",
             "leaky_slope": 0.01,
             "epilogue": gemm_epilogue("f32", (None, "f32"), alpha, beta, "none", 0.01)}
    return Problem("GEMM_BIAS_ACT", (spec, spec, None, spec), (spec,), tuple(sorted(attrs.items())))


@pytest.mark.parametrize("name", ["gemm_bias_act_f32", "gemm_bias_act_f32_tiled"])
def test_another_factor_is_another_argument_of_the_same_kernel(name: str) -> None:
    kernel = registry.get(name)
    rule, device = LAUNCH_RULES[kernel.launch], profile_for("sm_90a")
    records = [rule.bind(scaled(alpha, beta), kernel.variants[0], device)[0]
               for alpha, beta in ((2.0, 3.0), (-0.5, 7.0), (1.0, 1.0))]
    assert records[0].kernel == records[1].kernel != records[2].kernel
    dtype = plain_args_dtype(["c"])
    values = [np.frombuffer(record.args, dtype)[0] for record in records[:2]]
    assert [(v["alpha"], v["beta"]) for v in values] == [(2.0, 3.0), (-0.5, 7.0)]


def test_an_epilogue_reads_no_other_scalars() -> None:
    spec = TensorSpec.dense("f32", (4, 4))
    problem = Problem("GEMM_BIAS_ACT", (spec, spec), (spec,),
                      (("epilogue", ExprBundle((input(0) * scalar(2),))),))
    with pytest.raises(Invalid, match="other scalars than alpha and beta"):
        gemm_call(problem)
