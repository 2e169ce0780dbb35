"""ge2 lab gen: any device, no GPU, decisions and source."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ge2.commands.lab import lab
from ge2.errors import Invalid
from ge2.evidence.device import find_profile


def gen(*args: str) -> str:
    done = CliRunner().invoke(lab, ["gen", *args], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_decisions_and_source() -> None:
    text = gen("SOFTMAX", "--shape", "4096x65536", "--dtype", "bf16", "--device", "h200")
    assert "SOFTMAX on bf16[4096, 65536] for NVIDIA H200 (sm_90a)" in text
    assert "mergeable    yes" in text and "realization = row_" in text
    assert "not row_warp: row_resident: the row needs" in text
    assert '__global__' in text and "#include <ge2/" in text


def test_another_device_decides_otherwise() -> None:
    args = ("SOFTMAX", "--shape", "64x1048576", "--no-source", "--json", "-")
    new, old = (json.loads(gen(*args, "--device", name).partition("\n{")[2].join(("{", "")))
                for name in ("h200", "sm_80"))
    assert new["steps"][0]["variant"] != old["steps"][0]["variant"]
    reasons = {a["name"]: a["reason"] for a in old["steps"][0]["decisions"][0]["alternatives"]}
    assert "sm_90" in reasons["row_pipe"]


def test_other_operators_and_inputs() -> None:
    text = gen("LAYER_NORM", "--shape", "64x512", "--dtype", "f16", "--no-source")
    assert "f16[64, 512], f16[512]" in text
    assert "ELEMENTWISE" in gen("ADD", "--shape", "64x512,512", "--no-source")
    assert "realization = gemm" in gen("MATMUL", "--shape", "64x32,32x128", "--no-source")


def test_a_row_operator_is_composed_of_what_is_asked_for() -> None:
    text = gen("LAYER_NORM", "--shape", "64x512", "--compose", "--staging", "double_buffer",
               "--reduction", "shared_tree")
    assert "LAYER_NORM composed of double_buffer/shared_tree" in text
    assert "prim/stage/double_buffer.cuh" in text and "lab_compose_rows(" in text
    assert "cp_async/block" in gen("SOFTMAX", "--shape", "64x512", "--compose", "--no-source")
    done = CliRunner().invoke(lab, ["gen", "SOFTMAX", "--shape", "64x512", "--compose",
                                    "--staging", "cp_asink"])
    assert "Did you mean cp_async" in str(done.exception)


def test_mistakes_are_named() -> None:
    for args, word in ((("SOFTMIN", "--shape", "4x4"), "SOFTMAX"),
                       (("SOFTMAX", "--shape", "4by4"), "extents"),
                       (("SOFTMAX", "--shape", "4x4", "--device", "h2000"), "NVIDIA H200")):
        done = CliRunner().invoke(lab, ["gen", *args])
        assert done.exit_code == 2 and word in done.output
    with pytest.raises(Invalid, match="several"):
        find_profile("NVIDIA")
