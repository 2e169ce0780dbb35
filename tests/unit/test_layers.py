"""Modules import only from their own layer and those below it, and `import ge2` stays light.

Imports inside functions count too. One seam points upwards: the launch table reaches for the
runtime when a launcher is asked for.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
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
    ("compiler.plan", "compiler.steps", "compiler.arena", "compiler.concrete",
     "compiler.sized_plan", "compiler.class_plans", "compiler.finish",
     "compiler.memory_budget"),
    ("runtime",),
    ("ops", "model", "torch"),
    ("tune",),
    ("lab",),
    ("cli", "commands", "__main__"),
)
UPWARDS = {("launch_table", "runtime")}
# A kernel can be launched with no graph: these know none.
GRAPHLESS = ("launch", "launch_table", "runtime.jit", "runtime.launcher", "compiler.kernels.source")
GRAPHS = ("compiler.ir.nodes", "compiler.passes", "compiler.plan", "model")
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
    """Return the ge2 modules that a file imports anywhere; what only a type checker sees is not."""
    parts = module.split(".") if module else []
    package = parts if path.name == "__init__.py" else parts[:-1]
    found: list[str] = []
    for node in _running(ast.parse(path.read_text("utf-8"))):
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


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)):
            yield node
            yield from _running(node)


def _exists(module: str) -> bool:
    path = PACKAGE.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _edges() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE).with_suffix("")
        module = ".".join(p for p in relative.parts if p != "__init__")
        for target in _imports(path, module):
            yield module, target


def _below(module: str, folders: Iterable[str]) -> bool:
    return any(module == folder or module.startswith(folder + ".") for folder in folders)


def test_imports_point_downwards() -> None:
    wrong = [f"{module or 'ge2'} imports {target}" for module, target in _edges()
             if _rank(target) > _rank(module)
             and (module, target.split(".")[0]) not in UPWARDS]
    assert not wrong, "\n".join(wrong)


def test_launching_knows_no_graphs() -> None:
    wrong = [f"{module} imports {target}" for module, target in _edges()
             if _below(module, GRAPHLESS) and _below(target, GRAPHS)]
    assert not wrong, "\n".join(wrong)


def test_the_rules_see_every_kind_of_import() -> None:
    edges = set(_edges())
    assert ("launch_table", "runtime.launcher") in edges  # inside a function
    assert ("runtime.executor", "compiler.plan") in edges
    assert _rank("runtime.jit") > _rank("launch_table") > _rank("compiler.ir.nodes")


def test_importing_the_runtime_loads_neither_cupy_nor_torch() -> None:
    code = ("import sys, ge2, ge2.launch_table, ge2.runtime.executor, ge2.evidence.measure; "
            "assert not {'cupy', 'torch', 'cuda'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)
