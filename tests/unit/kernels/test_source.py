"""Rendering, include rules and digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from ge2 import paths
from ge2.compiler.kernels import registry, source
from ge2.compiler.kernels.headers import include_dirs
from ge2.contract import GE2_API_VERSION
from ge2.errors import KernelSpecError
from ge2.launch.record import KernelSource

from .conftest import BLOCK, BODY, AddTemplate


def kernel_source(path: Path, **context: object) -> KernelSource:
    return KernelSource(str(path), tuple(sorted(context.items())), "scale_rows")


def headers(folder: Path, **files: str) -> source.Headers:
    for name, text in files.items():
        target = folder / "ge2" / f"{name}.cuh"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return source.Headers((folder,))


def test_first_line_names_template_headers_and_version(add_template: AddTemplate) -> None:
    text = source.render(kernel_source(add_template(), BLOCK=128, VEC=1))
    first, *_, last = text.rstrip().split("\n")
    assert first.startswith("// ge2 scale_rows.cu.j2 headers=")
    assert first.endswith(f" api={GE2_API_VERSION}")
    assert f"{source.API_SYMBOL} = {GE2_API_VERSION};" in last
    assert "toml" not in text and "constexpr int BLOCK = 128;" in text


def test_a_name_missing_from_the_context_is_refused(add_template: AddTemplate) -> None:
    with pytest.raises(KernelSpecError, match=r"found VEC.*Did you mean VECT"):
        source.render(kernel_source(add_template(), BLOCK=128, VECT=1))


def test_a_header_edit_anywhere_in_the_closure_changes_the_digest(
        add_template: AddTemplate, tmp_path: Path) -> None:
    src = kernel_source(add_template(BLOCK + "#include <ge2/a.cuh>\n" + BODY), BLOCK=128, VEC=1)
    digests = []
    for inner, unrelated in (("int v = 1;", ""), ("int v = 2;", ""), ("int v = 2;", "int u;")):
        found = headers(tmp_path, a="#include <ge2/b.cuh>\n", b=inner, other=unrelated)
        digests.append(source.digest(src, found))
    assert digests[0] != digests[1]
    assert digests[1] == digests[2], "a header outside the closure must not change the digest"


def test_the_digest_names_no_folder(add_template: AddTemplate, tmp_path: Path) -> None:
    one = add_template()
    other = tmp_path / "elsewhere" / one.name
    other.parent.mkdir()
    other.write_text(one.read_text())
    same = [source.digest(kernel_source(p, BLOCK=128, VEC=1)) for p in (one, other)]
    assert same[0] == same[1]


@pytest.mark.parametrize("line", [
    '#include "ge2/a.cuh"', "#include <cuda_fp16.h>", "#include MACRO", "# include <cmath>",
    "#include <ge2/../secret.cuh>", "  #include <ge2/a.h>",
])
def test_other_include_forms_are_refused(line: str) -> None:
    with pytest.raises(KernelSpecError, match=r"k\.cu:2: include form not allowed"):
        source.own_includes(f"int x;\n{line}\n", "k.cu")


def test_cyclic_includes_end(tmp_path: Path) -> None:
    found = headers(tmp_path, a="#include <ge2/b.cuh>", b="#include <ge2/a.cuh> // back")
    assert list(found.closure("#include <ge2/a.cuh>", "k.cu")) == ["ge2/a.cuh", "ge2/b.cuh"]


def test_a_missing_header_is_named_with_its_includer(tmp_path: Path) -> None:
    found = headers(tmp_path, shared="#include <ge2/tpyes.cuh>", types="")
    with pytest.raises(KernelSpecError,
                       match=r"ge2/shared\.cuh includes <ge2/tpyes\.cuh>.*mean ge2/types"):
        found.closure("#include <ge2/shared.cuh>", "k.cu")


def test_rendered_lines_map_to_template_lines(add_template: AddTemplate) -> None:
    body = ("{# gone #}\n\nint a;\n{% for line in LINES %}\n// {{ line }}\n#define X \\\n  3\n"
            "{% endfor %}\n{{ BLOCK }}{{ VEC }}\nint z;\n\n")
    src = kernel_source(add_template(BLOCK + body), BLOCK="p\nq", VEC=1, LINES=("one", "two"))
    lines = source.render(src).split("\n")
    template = (BLOCK + body).split("\n")
    mapped = source.line_map(src)
    assert len(mapped) == len(lines) - 1
    at = {line: template[number - 1] for line, number in zip(lines, mapped, strict=False) if number}
    assert at == {"int a;": "int a;", "// one": "// {{ line }}", "// two": "// {{ line }}",
                  "#define X \\": "#define X \\", "  3": "  3", "p": "{{ BLOCK }}{{ VEC }}",
                  "q1": "{{ BLOCK }}{{ VEC }}", "int z;": "int z;"}


def test_declared_params_must_be_used(add_template: AddTemplate) -> None:
    add_template(BLOCK + BODY.replace("{{ VEC }}", "1"))
    with pytest.raises(KernelSpecError, match=r"declared params are not used.*found VEC"):
        registry.all_kernels()


def test_own_headers_of_a_user_folder_are_found(add_template: AddTemplate) -> None:
    path = add_template(BLOCK + "#include <ge2/mine.cuh>\n" + BODY)
    own = path.parent / "include" / "ge2" / "mine.cuh"
    own.parent.mkdir(parents=True)
    own.write_text("int mine;\n")
    assert include_dirs() == (paths.include_dir(), path.parent / "include")
    assert "#include <ge2/mine.cuh>" in source.render(kernel_source(path, BLOCK=1, VEC=1))
