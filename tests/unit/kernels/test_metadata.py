"""The vocabulary of kernel metadata: what it means, and that nothing else passes."""

from __future__ import annotations

import pytest

from ge2.compiler.kernels.metadata import KernelInfo, arch_matches, evaluate
from ge2.compiler.kernels.metadata_parse import Where, build, parse_block
from ge2.errors import KernelSpecError

TEXT = """\
{#--- toml
name = "tiled"
op_type = "GEMM_BIAS_ACT"
launch = "gemm"
numerics = "splitk{SPLIT}"
archs = ["sm_75+"]
dtypes = [{ in = ["f16", "f16", "f32"], out = "f16" }]
layouts = { A = ["row", "col"] }
[flags]
tensor_core = true
min_mnk = [256, 256, 128]
[params]
BM = [64, 128]
SPLIT = [1, 2]
[guards]
align = 16
smem_max = "2 * BM"
multiple_of = { K = "BM", N = 8 }
[guards.sm_75]
align = 8
[[exclude]]
BM = 128
SPLIT = 2
---#}
int x;
"""


def parse(text: str = TEXT) -> KernelInfo:
    return build(parse_block(text, "gemm/tiled.cu.j2"), "gemm/tiled.cu.j2",
                 Where("gemm/tiled.cu.j2", text))


def test_variants_are_the_product_without_the_excluded() -> None:
    assert [v.id for v in parse().variants] == [
        "gemm/tiled[BM=64,SPLIT=1]", "gemm/tiled[BM=64,SPLIT=2]", "gemm/tiled[BM=128,SPLIT=1]",
    ]


def test_numerics_id_is_filled_per_variant() -> None:
    assert [v.numerics for v in parse().variants] == ["splitk1", "splitk2", "splitk1"]


def test_arch_guards_override_only_what_they_name() -> None:
    info = parse()
    assert (info.guards_for("sm_80").align, info.guards_for("sm_75").align) == (16, 8)
    assert info.guards_for("sm_75").multiple_of == info.guards.multiple_of


def test_last_dtype_of_the_inputs_repeats_and_absent_inputs_fit() -> None:
    rule = parse().dtypes[0]
    assert rule.mismatch(["f16", "f16", None, "f32", "f32"], ["f16"]) == ""
    assert "input 3 is f16" in rule.mismatch(["f16", "f16", None, "f16"], ["f16"])


@pytest.mark.parametrize(("pattern", "arch", "expected"), [
    ("sm_80+", "sm_75", False), ("sm_80+", "sm_80", True), ("sm_80+", "sm_120a", True),
    ("sm_90a", "sm_90a", True), ("sm_90a", "sm_90", False), ("sm_90a", "sm_100a", False),
    ("sm_90", "sm_90a", True),
])
def test_arch_patterns(pattern: str, arch: str, expected: bool) -> None:
    assert arch_matches(pattern, arch) is expected


def test_expressions_know_params_and_arithmetic_only() -> None:
    assert evaluate("2 * (BM + 8) // 4 - 1", {"BM": 64}) == 35
    for bad in ("__import__('os')", "BM ** 2", "BN", "BM.real", "1.5", "BM //"):
        with pytest.raises(KernelSpecError):
            evaluate(bad, {"BM": 64})


@pytest.mark.parametrize(("old", "new", "line", "message"), [
    ("op_type", "optype", 3, "unknown key 'optype'. Did you mean op_type"),
    ("launch =", "lunch =", 4, "Did you mean launch"),
    ('"f16", "f32"]', '"f16", "f61"]', 7, "unknown dtype 'f61'. Did you mean"),
    ('["row", "col"]', '["rows"]', 8, "unknown layout 'rows'. Did you mean row"),
    ("tensor_core", "tensor_cor", 10, "Did you mean tensor_core"),
    ("[256, 256, 128]", "[256, 256]", 11, "min_mnk is not three integers"),
    ("BM = [64, 128]", "BM = [64, 64]", 13, "distinct choices"),
    ("align = 16", "align = true", 16, "align has a wrong type"),
    ("align = 16", "algin = 16", 16, "Did you mean align"),
    ("align = 16", "align = = 16", 16, "not valid TOML"),
    ("2 * BM", "2 * BX", 17, "bad expression over params"),
    ("N = 8", "Q = 8", 18, "unknown dimension in multiple_of 'Q'"),
    ("[guards.sm_75]", "[guards.sm_7x]", 19, "unknown guard 'sm_7x'"),
    ("SPLIT = 2\n---", "SPLIT = 3\n---", 21, "exclude names no choice of SPLIT"),
    ('name = "tiled"', 'name = "other"', 2, "name differs from the file's"),
    ("splitk{SPLIT}", "splitk{SLIPT}", 5, "numerics names no param"),
])
def test_a_mistake_is_named_with_its_line(old: str, new: str, line: int, message: str) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(KernelSpecError) as caught:
        parse(TEXT.replace(old, new))
    assert str(caught.value).startswith(f"gemm/tiled.cu.j2:{line}: ")
    assert message in str(caught.value)


def test_a_missing_key_is_named() -> None:
    with pytest.raises(KernelSpecError, match="metadata lacks 'dtypes'"):
        build({"name": "tiled", "op_type": "X", "launch": "gemm"}, "tiled.cu.j2", Where("t"))
