"""Every example in README and docs runs; the generated pages are current; links lead somewhere."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ge2.cli import run
from ge2.compiler.kernels import registry

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    for match in FENCE.finditer(page.read_text()):
        yield match[1], match[2]


def commands(text: str) -> Iterator[list[str]]:
    """Yield the ge2 commands of a console block."""
    for line in text.splitlines():
        if line.startswith("$ ge2 "):
            yield shlex.split(line[2:])


def ids(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                      capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.setenv("GE2_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GE2_BACKEND", "cpu")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for kind, text in blocks(page):
        if kind == "python":
            code = compile(text, str(page), "exec")
            if not text.startswith("# needs a GPU"):
                exec(code, names)
        if kind == "console":
            for command in commands(text):
                output = None
                if ">" in command:
                    command, output = command[:command.index(">")], command[-1]
                capsys.readouterr()
                code = run(command[1:])
                printed = capsys.readouterr()
                assert code == 0, f"{command}: {printed.err}"
                if output:
                    Path(output).write_text(printed.out)
    registry.reset()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_json_is_json(page: Path) -> None:
    for kind, text in blocks(page):
        if kind == "json":
            json.loads(text if text.lstrip().startswith("{") else "{" + text + "}")


def test_generated_pages_are_current() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_readme_shows_what_the_example_prints() -> None:
    from click.testing import CliRunner

    from ge2.cli import cli

    result = CliRunner().invoke(cli, ["run", str(ROOT / "examples/digits/model.json"),
                                      "--backend", "cpu"])
    shown = (ROOT / "README.md").read_text()
    accuracy = next(line for line in result.output.splitlines() if "accuracy" in line)
    assert accuracy in shown
