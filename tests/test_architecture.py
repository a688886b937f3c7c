"""The house: floors, wings, no cycles, a light import, small files and functions. Read with `ast`, nothing is run."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
FLOORS = [
    {"core", "samples"},  # the samples are rows, without code
    {"encodings"},
    {"models", "sandbox", "protocols", "problems", "sources", "actions"},
    {"episodes", "dataset", "evaluation"},
    {"envs", "report"},
    {"cli"},
]
FLOOR_OF = {name: number for number, floor in enumerate(FLOORS, 1) for name in floor}
TOP = len(FLOORS) + 1
"""Modules at the top (`foretrace/__init__.py`, `foretrace/importing.py`) may import all floors."""
CORE_MAY_IMPORT = {"msgspec", "pyarrow", "zstandard", "numpy", "foretrace", *sys.stdlib_module_names}
HEAVY = {
    "pyarrow",
    "datasets",
    "sklearn",
    "rich",
    "typer",
    "torch",
    "numpy",
    "msgspec",
    "huggingface_hub",
    "json_repair",
}
LONG_FILES: dict[str, str] = {}
"""Files above 400 lines, and why."""
LONG_FUNCTIONS = dict.fromkeys(
    ("foretrace.cli.build:build", "foretrace.cli.generate:generate"),
    "a command: its signature lists and explains its options",
)
"""Functions above 60 lines (`foretrace.module:function`), and why."""
MODULES = {".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): p for p in SRC.rglob("*.py")}


def tree_of(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str, within: ast.AST | None = None) -> Iterator[str]:
    """Full names of what a module imports; of our own, the modules."""
    for node in ast.walk(within or tree_of(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else node.module or ""


def wing(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_go_down_only_and_wings_do_not_know_one_another(module: str) -> None:
    own = FLOOR_OF.get(wing(module), TOP)
    for target in imports(module):
        if not target.startswith("foretrace") or wing(target) == wing(module):
            continue
        floor = FLOOR_OF.get(wing(target), TOP)
        if own == floor == TOP or (target == "foretrace" and own >= FLOOR_OF["cli"]):
            continue  # the version, and the top-level modules among themselves
        assert floor < own, f"{module} (floor {own}) imports {target} (floor {floor})"


def test_no_import_cycles() -> None:
    """Among imports at the top of modules: one inside a function is made when all modules are there."""
    top = {m: [n for n in tree_of(m).body if isinstance(n, (ast.Import, ast.ImportFrom))] for m in MODULES}
    graph = {m: {t for node in nodes for t in imports(m, node) if t in MODULES and t != m} for m, nodes in top.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_core_stands_on_four_libraries() -> None:
    for module in (m for m in MODULES if m.startswith("foretrace.core")):
        strangers = {name.split(".")[0] for name in imports(module)} - CORE_MAY_IMPORT
        assert not strangers, f"{module} imports {strangers}"


def test_import_is_light() -> None:
    script = f"import sys, foretrace; print(sorted({HEAVY!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]", f"`import foretrace` loads {loaded}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_and_functions_are_small(module: str) -> None:
    lines = MODULES[module].read_text(encoding="utf-8").count("\n")
    assert lines <= 400 or module in LONG_FILES, f"{module} has {lines} lines"
    for node in ast.walk(tree_of(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            name = f"{module}:{node.name}"
            assert length <= 60 or name in LONG_FUNCTIONS, f"{name} has {length} lines"
