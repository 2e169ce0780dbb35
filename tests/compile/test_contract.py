"""The contract's device side says what its Python side says, to both compilers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from shutil import which

import numpy as np
import pytest

from ge2 import contract
from ge2.paths import include_dir
from ge2.runtime import elf, jit, nvrtc

STRUCTS = {"Header": contract.HEADER_DTYPE, "TensorDesc": contract.TENSOR_DTYPE,
           "Trailer": contract.TRAILER_DTYPE}
ENUMS: dict[str, type[IntEnum]] = {"Status": contract.Status, "DType": contract.DType,
                                   "ActKind": contract.ActKind}


def struct_checks(name: str, dtype: np.dtype) -> Iterator[str]:
    """Yield asserts of size, offsets and member sizes, and that there are no further members."""
    yield f"sizeof(ge2::{name}) == {dtype.itemsize}"
    assert dtype.fields is not None
    for field, (kind, offset) in dtype.fields.items():
        yield f"offsetof(ge2::{name}, {field}) == {offset}"
        yield f"sizeof(ge2::{name}::{field}) == {kind.itemsize}"
    assert sum(kind.itemsize for kind, _ in dtype.fields.values()) == dtype.itemsize


def checks() -> list[str]:
    lines = [f"GE2_API_VERSION == {contract.GE2_API_VERSION}",
             f"GE2_MAX_RANK == {contract.MAX_RANK}"]
    for name, dtype in STRUCTS.items():
        lines += struct_checks(name, dtype)
    for name, kind in ENUMS.items():
        lines += [f"static_cast<int>(ge2::{name}::{m.name}) == {m.value}" for m in kind]
    return lines


def program(lines: list[str], prelude: str) -> str:
    asserts = "\n".join(f'static_assert({line}, "contract");' for line in lines)
    return f"#include {prelude}\n#include <ge2/contract.cuh>\n{asserts}\n"


@pytest.mark.skipif(not which("g++"), reason="needs g++")
def test_header_matches_for_the_host_compiler(tmp_path: Path) -> None:
    for name, lines in (("good", checks()), ("bad", [*checks(), "sizeof(ge2::Header) == 17"])):
        path = tmp_path / f"{name}.cpp"
        path.write_text(program(lines, "<cstddef>"))
        done = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", f"-I{include_dir()}", path],
                              capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is (name == "good"), done.stderr


def test_header_matches_for_nvrtc() -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")
    target = nvrtc.target_for("sm_80")
    folders = [str(include_dir())]
    kernel = 'extern "C" __global__ void k() {}\n'
    text = program(checks(), "<ge2/types.cuh>")  # Which brings offsetof.
    nvrtc.compile_text(text + kernel, "contract.cu", target, folders)
    with pytest.raises(nvrtc.NvrtcRefused, match="static assertion failed"):
        nvrtc.compile_text(program(["sizeof(ge2::TensorDesc) == 1"], "<ge2/types.cuh>"),
                           "contract.cu", target, folders)


def test_enumerations_of_the_header_have_no_further_members() -> None:
    text = (include_dir() / "ge2" / "contract.cuh").read_text()
    for name, kind in ENUMS.items():
        body = text.split(f"{name} : int {{")[1].split("};")[0]
        assert [line.split("=")[0].strip() for line in body.strip().splitlines()] == [
            member.name for member in kind]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90a", "sm_130a"])
def test_a_binary_of_another_version_is_refused_with_both_named(
        arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")
    text = ('extern "C" __global__ void k() {}\n'
            'extern "C" { __device__ unsigned int ge2_api_version = 1; }\n')
    code = nvrtc.compile_text(text, "k.cu", nvrtc.target_for(arch), []).code
    monkeypatch.setattr(jit, "GE2_API_VERSION", 1)
    jit.check_api(code, "old.cubin")
    monkeypatch.setattr(jit, "GE2_API_VERSION", 2)
    with pytest.raises(jit.ApiVersionMismatch, match=r"old\.cubin.*found 1; wanted 2"):
        jit.check_api(code, "old.cubin")
    bare = nvrtc.compile_text('extern "C" __global__ void k() {}', "k.cu", nvrtc.target_for(arch),
                              []).code
    with pytest.raises(jit.ApiVersionMismatch, match="found none"):
        jit.check_api(bare, "foreign.cubin")


def test_a_cut_cubin_is_noticed() -> None:
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy's NVRTC bindings")
    code = nvrtc.compile_text('extern "C" __global__ void k() {}', "k.cu",
                              nvrtc.target_for("sm_80"), []).code
    assert elf.file_size(code) == len(code)
    with pytest.raises(elf.BadElf):
        elf.file_size(code[:40])
    with pytest.raises(elf.BadElf):
        elf.read_u32(code[: len(code) // 2], "ge2_api_version")
