"""The scan, its index, and kernels that users bring."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ge2 import paths
from ge2.compiler.kernels import headers, registry
from ge2.errors import KernelSpecError, NoKernelError

from .conftest import BLOCK, BODY, AddTemplate


def test_adding_a_kernel_is_one_file(add_template: AddTemplate) -> None:
    assert registry.kernels_for("SCALE_TEST") == ()
    add_template()
    (info,) = registry.kernels_for("SCALE_TEST")
    assert info.name == "scale_rows" and info.capability_key == "SCALE_TEST__scale_rows"
    assert len(registry.variants(info)) == 3
    assert registry.variant(info.variants[0].id) is info.variants[0]


def test_a_second_start_parses_no_template(
        add_template: AddTemplate, monkeypatch: pytest.MonkeyPatch) -> None:
    add_template()
    first = registry.all_kernels()

    def never(text: str) -> None:
        raise AssertionError("TOML parsed again")

    monkeypatch.setattr("tomllib.loads", never)
    registry.reset()
    headers.remember({})
    assert registry.all_kernels() == first
    assert "block" in headers.realizations("reduce")


def test_an_edited_realization_is_seen_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                               ) -> None:
    folder = tmp_path / "include" / "ge2" / "prim" / "reduce"
    folder.mkdir(parents=True)
    text = '/*--- toml\nprimitive = "reduce"\nscopes = ["warp"]\n---*/\n'
    monkeypatch.setenv("GE2_KERNEL_PATH", str(tmp_path))
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))
    try:
        for scopes in ('["warp"]', '["warp", "block"]'):
            (folder / "mine.cuh").write_text(text.replace('["warp"]', scopes))
            registry.reset()
            found = [v for v in registry.get("lab_reduce").variants
                     if v.param("REALIZATION") == "mine"]
            assert len(found) == scopes.count(",") + 1
    finally:
        monkeypatch.undo()
        registry.reset()


def test_an_edited_template_is_seen_at_once(add_template: AddTemplate) -> None:
    add_template()
    assert len(registry.get("scale_rows").variants) == 3
    add_template((BLOCK + BODY).replace("[1, 4]", "[1, 2, 4]"))
    assert len(registry.get("scale_rows").variants) == 5


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"tables": 3}', b"[]"])
def test_a_broken_index_is_a_miss(add_template: AddTemplate, tmp_path: Path,
                                  content: bytes) -> None:
    add_template()
    first = registry.all_kernels()
    (index,) = (tmp_path / "cache" / "index").glob("*.json")
    index.write_bytes(content)
    registry.reset()
    assert registry.all_kernels() == first
    assert json.loads(index.read_bytes())["tables"]


def test_an_unusable_cache_folder_only_costs_the_index(
        add_template: AddTemplate, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    add_template()
    assert registry.get("scale_rows").name == "scale_rows"


def test_register_takes_the_literal_dictionary(add_template: AddTemplate) -> None:
    add_template(BODY.replace("{{ BLOCK }}", "128").replace("{{ VEC }}", "1"))
    assert registry.kernels_for("SCALE_TEST") == ()
    info = registry.register({"name": "scale_rows", "op_type": "SCALE_TEST", "launch": "mine",
                              "dtypes": {"in": ["f32", "f32", "f32"], "out": "f32"},
                              "flags": {"tensor_core": False, "min_mnk": (256, 256, 128)}})
    assert registry.get("scale_rows") is info
    assert info.min_mnk == (256, 256, 128) and "tensor_core" not in info.flags
    assert info.dtypes[0].inputs == ("f32", "f32", "f32")


def test_register_changes_what_it_names_and_keeps_the_rest(add_template: AddTemplate) -> None:
    add_template()
    before = registry.generation()
    info = registry.register({"name": "scale_rows", "score": 77})
    assert info.score == 77 and info.launch == "scale_test" and len(info.variants) == 3
    assert registry.generation() > before
    registry.reset()
    assert registry.get("scale_rows").score == 50


def test_register_merges_flags_key_by_key(add_template: AddTemplate) -> None:
    add_template(BLOCK.replace("[guards]", "[flags]\nvectorized = true\n[guards]") + BODY)
    info = registry.register({"name": "scale_rows",
                              "flags": {"tensor_core": False, "min_mnk": (256, 256, 128)}})
    assert info.flags == {"vectorized"} and info.min_mnk == (256, 256, 128)


def test_a_missing_launch_rule_is_that_of_the_operators_other_kernels(
        add_template: AddTemplate) -> None:
    add_template()
    add_template("int x;\n", name="scale_other")
    info = registry.register({"name": "scale_other", "op_type": "SCALE_TEST",
                              "dtypes": {"in": ["f32"], "out": "f32"}})
    assert info.launch == "scale_test"


def test_register_without_a_template_says_where_it_looked(add_template: AddTemplate) -> None:
    folder = add_template().parent
    with pytest.raises(KernelSpecError) as caught:
        registry.register({"name": "nowhere", "op_type": "X"})
    message = str(caught.value)
    assert "nowhere.cu.j2" in message and str(folder) in message
    assert str(paths.kernels_dir()) in message and "GE2_KERNEL_PATH" in message


def test_kernel_path_variable_is_searched(add_template: AddTemplate, tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "scale_rows.cu.j2").write_text(BLOCK + BODY)
    monkeypatch.setenv("GE2_KERNEL_PATH", str(other))
    registry.reset()
    assert registry.get("scale_rows").template == str(other / "scale_rows.cu.j2")


def test_near_names_are_offered(add_template: AddTemplate) -> None:
    add_template()
    with pytest.raises(NoKernelError, match="Did you mean scale_rows"):
        registry.get("scale_row")
    with pytest.raises(NoKernelError, match=r"Did you mean scale_rows\[BLOCK=256,VEC=1\]|kernels/"
                       ):
        registry.variant("kernels/scale_rows[BLOCK=256,VEC=3]")


def test_a_warm_start_imports_no_template_engine(add_template: AddTemplate) -> None:
    folder = add_template().parent
    registry.all_kernels()
    script = ("import sys; from ge2.compiler.kernels import registry; "
              "assert registry.get('scale_rows'); "
              "print(sorted({'jinja2', 'cupy', 'cupy_backends'} & set(sys.modules)))")
    env = {"GE2_KERNEL_PATH": str(folder), "GE2_CACHE_DIR": str(paths.cache_dir()),
           "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
