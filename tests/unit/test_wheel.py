"""The wheel, installed elsewhere: it holds the kernels, renders them all and runs the example."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., subprocess.CompletedProcess[str]]

RENDER_ALL = """
import ge2
from ge2 import launch_table, paths
from ge2.compiler.kernels import registry, source
from ge2.evidence.device import PROFILES
from ge2.launch.rule import LAUNCH_RULES

rendered = set()
for kernel in registry.all_kernels():
    device = next(p for p in PROFILES.values() if kernel.runs_on(p.arch))
    for variant in kernel.variants:
        for problem in LAUNCH_RULES[kernel.launch].examples(variant):
            try:
                records = launch_table.bind(problem, variant, device)
            except ge2.Ge2Error:
                continue  # an example for another device
            for record in records:
                source.render(record.kernel)
                rendered.add(kernel.name)
missing = {k.name for k in registry.all_kernels()} - rendered
assert not missing, missing
print(ge2.__file__, paths.kernels_dir(), len(rendered))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """Build the wheel, install it into a new environment; return that and a way to run there.

    The environment sees this one's other packages through a .pth file, so that nothing is
    downloaded; a .pth file does not make the checkout importable there.
    """
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder,
                    ROOT], check=True, capture_output=True, text=True)
    wheel, = folder.glob("*.whl")
    home = folder / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps",
                    "--quiet", wheel], check=True)
    site, = home.glob("lib/python*/site-packages")
    (site / "parent.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GE2_", "PYTHON"))}
    environment["GE2_CACHE_DIR"] = str(folder / "cache")

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([home / "bin" / command[0], *command[1:]], cwd=folder, text=True,
                              env=environment, capture_output=True, check=True)

    return folder, run


def test_every_kernel_renders(installed: tuple[Path, Run]) -> None:
    folder, run = installed
    package, kernels, count = run("python", "-c", RENDER_ALL).stdout.split()
    assert Path(package).is_relative_to(folder)
    assert Path(kernels) == Path(package).parent / "kernels"
    assert int(count) >= 3


def test_example_runs(installed: tuple[Path, Run]) -> None:
    folder, run = installed
    shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
    result = run("ge2", "run", "examples/digits/model.json", "--backend", "cpu")
    assert "accuracy 98.61 %" in result.stdout


def test_wheel_holds_every_kernel_source(installed: tuple[Path, Run]) -> None:
    folder, _ = installed
    here = {p.relative_to(ROOT / "kernels") for p in (ROOT / "kernels").rglob("*") if p.is_file()}
    site, = folder.glob("venv/lib/python*/site-packages")
    there = site / "ge2" / "kernels"
    assert here == {p.relative_to(there) for p in there.rglob("*") if p.is_file()}
