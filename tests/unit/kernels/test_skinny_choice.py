"""Which kernel serves a few rows: the ones that an H200 measured fastest, by shape and layout."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels import selector
from ge2.evidence.device import profile_for
from ge2.launch.gemm_examples import gemm_problem

H200 = profile_for("sm_90a")


def chosen(m: int, n: int, k: int, turned: bool,
           dtype: str = "bf16") -> tuple[str, dict[str, int | str]]:
    problem = gemm_problem((dtype,) * 3, shape=(m, n, k), trans=(False, turned))
    variant = selector.select(problem, H200).variant
    return variant.kernel.name.removeprefix("gemm_bias_act_"), variant.param_map


@pytest.mark.parametrize(("m", "n", "k", "turned", "kernel", "params"), [
    (1, 14336, 4096, True, "skinny", {"PARTS": 2}),  # rows of weights, streamed
    (1, 14336, 4096, False, "skinny_ring", {"SPLIT": 1}),
    (4, 2048, 2048, True, "skinny_mma", {"WARPS": 16, "UNROLL": 4}),  # all loads at once
    (16, 1024, 1024, True, "skinny_mma", {"WARPS": 16, "UNROLL": 2}),
    (16, 4096, 4096, True, "skinny_ring", {"SPLIT": 2, "STAGES": 12}),  # 64 tiles, 132 processors
    (4, 1024, 1024, False, "skinny_ring", {"SPLIT": 4}),
    (64, 14336, 4096, True, "skinny_ring", {"GROUPS": 2, "SPLIT": 1}),  # X is read half as often
    (64, 4096, 4096, False, "skinny_ring", {"GROUPS": 1, "SPLIT": 2}),
])
def test_choice_is_what_measured_fastest(m: int, n: int, k: int, turned: bool, kernel: str,
                                         params: dict[str, int]) -> None:
    name, found = chosen(m, n, k, turned)
    assert name == kernel
    assert {key: found[key] for key in params} == params


def test_columns_of_a_tall_product_are_skinny_as_well() -> None:
    assert chosen(4096, 8, 4096, True)[0].startswith("skinny")


def test_more_rows_than_64_are_no_skinny_product() -> None:
    assert not chosen(128, 4096, 4096, True)[0].startswith("skinny")


def test_a_lonely_square_f32_product_is_split_over_pairs_of_blocks() -> None:
    """64 tiles would leave half of 132 multiprocessors idle."""
    name, params = chosen(1024, 1024, 1024, False, "f32")
    assert (name, params["SPLIT"], params["BM"], params["BN"]) == ("f32_async", 2, 128, 128)
    assert chosen(4096, 4096, 4096, False, "f32")[1]["SPLIT"] == 1
