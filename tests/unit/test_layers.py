"""Modules import only from their own layer and those below it, and `import ge2` stays light.

Imports inside functions are not looked at: the launch table reaches for the runtime only when a
launcher is asked for.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import ge2

PACKAGE = Path(ge2.__file__).parent

# Lowest first; the longest matching prefix counts.
LAYERS = (
    ("contract", "errors", "config", "paths", "log", "problem", ""),
    ("compiler.ir", "compiler", "launch.record", "launch"),
    ("compiler.opdefs",),
    ("compiler.passes", "evidence"),
    ("compiler.kernels", "compiler.codegen", "launch.rule", "launch.schemas", "launch.params",
     "launch.check", "launch.patch", "launch.elementwise"),
    ("launch_table",),
    ("compiler.plan", "compiler.arena", "compiler.concrete"),
    ("runtime",),
    ("ops", "model", "torch"),
    ("tune",),
    ("lab",),
    ("cli", "commands", "__main__"),
)
_FAMILIES = 4  # launch.<family> belongs to the layer of the kernels


def _rank(module: str) -> int:
    best, rank = -1, 0
    for number, names in enumerate(LAYERS):
        for name in names:
            inside = name == "" or module == name or module.startswith(name + ".")
            if inside and len(name) > best:
                best, rank = len(name), number
    if module.startswith("launch.") and module != "launch.record":
        return _FAMILIES
    return rank


def _imports(path: Path, module: str) -> list[str]:
    """Return the ge2 modules that a file imports when it is itself imported."""
    parts = module.split(".") if module else []
    package = parts if path.name == "__init__.py" else parts[:-1]
    found: list[str] = []
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[:len(package) - node.level + 1]
                name = ".".join([*base, *([node.module] if node.module else [])])
            elif node.module and node.module.split(".")[0] == "ge2":
                name = ".".join(node.module.split(".")[1:])
            else:
                continue
            children = [f"{name}.{alias.name}".lstrip(".") for alias in node.names]
            found += [c if _exists(c) else name for c in children]
        elif isinstance(node, ast.Import):
            found += [alias.name[4:] for alias in node.names if alias.name.startswith("ge2.")]
    return found


def _exists(module: str) -> bool:
    path = PACKAGE.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_imports_point_downwards() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE).with_suffix("")
        module = ".".join(p for p in relative.parts if p != "__init__")
        for target in _imports(path, module):
            if _rank(target) > _rank(module):
                wrong.append(f"{module or 'ge2'} imports {target}")
    assert not wrong, "\n".join(wrong)


def test_importing_the_runtime_loads_neither_cupy_nor_torch() -> None:
    code = ("import sys, ge2, ge2.launch_table, ge2.runtime.executor, ge2.evidence.measure; "
            "assert not {'cupy', 'torch', 'cuda'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)
