"""The house: floors, wings, no circles, private means private, a light import. Read with `ast`, nothing is run.

Every import counts: those inside functions, and those that only the type checker sees.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src"
FLOORS = [
    {"core", "samples"},  # the samples are rows, without code
    {"encodings", "rows", "engines", "objectstores"},
    {"models", "sandbox", "protocols", "problems", "sources", "actions", "clean"},
    {"episodes", "dataset", "exports", "evaluation"},
    {"registry", "report"},
    {"envs", "doctor"},
    {"api"},
    {"cli"},
]
FLOOR_OF = {name: number for number, floor in enumerate(FLOORS, 1) for name in floor}
CORE_MAY_IMPORT = {"msgspec", "pyarrow", "zstandard", "numpy", "foretrace", *sys.stdlib_module_names}
HEAVY = {
    "pyarrow",
    "datasets",
    "sklearn",
    "rich",
    "click",
    "torch",
    "numpy",
    "msgspec",
    "huggingface_hub",
    "json_repair",
}
PUBLIC_PACKAGES = {"foretrace", "foretrace.envs.trl"}
"""Their `__init__` gives the names that users import, so it needs the modules below it, which must not need it."""
MODULES = {".".join(p.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): p for p in SRC.rglob("*.py")}


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[tuple[str, str]]:
    """What a module imports, wherever in it: the module, and the name taken from it (empty for the module itself)."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            assert node.module is not None
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full, "") if full in MODULES else (node.module, alias.name)


def wing(module: str) -> str:
    return module.split(".")[1] if module.startswith("foretrace.") else ""


def package(module: str) -> str:
    return module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]


def test_the_floors_are_those_that_exist() -> None:
    """A wing that is renamed must be renamed here, and a new one finds its floor."""
    assert {wing(module) for module in MODULES} - {"", "__main__"} == set(FLOOR_OF)


@pytest.mark.parametrize("module", sorted(m for m in MODULES if wing(m) in FLOOR_OF))
def test_imports_go_down_only_and_wings_do_not_know_one_another(module: str) -> None:
    own = FLOOR_OF[wing(module)]
    for target, _ in imports(module):
        if target.partition(".")[0] != "foretrace" or wing(target) == wing(module):
            continue
        floor = FLOOR_OF.get(wing(target), len(FLOORS) + 1)
        assert floor < own, f"{module} (floor {own}) imports {target} (floor {floor})"


def ancestors(module: str) -> set[str]:
    """The packages that a module lies in, whose `__init__` runs before it."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def test_no_import_circles() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        run = {t for t, _ in imports(module) if t in MODULES and t != module}
        graph[module] = run | ancestors(module) - PUBLIC_PACKAGES
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_an_underscore_means_that_no_other_package_imports_this() -> None:
    for module in MODULES:
        for target, name in imports(module):
            if target not in MODULES or package(module) == package(target):
                continue
            parts = [*target.split("."), name]
            private = [p for p in parts if p.startswith("_") and not p.endswith("__")]
            assert not private, f"{module} imports {target} {name}"


def test_core_stands_on_four_libraries() -> None:
    for module in (m for m in MODULES if wing(m) == "core"):
        strangers = {name.split(".")[0] for name, _ in imports(module)} - CORE_MAY_IMPORT
        assert not strangers, f"{module} imports {strangers}"


def test_import_is_light() -> None:
    script = f"import sys, foretrace; print(sorted({HEAVY!r} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == "[]", f"`import foretrace` loads {loaded}"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_files_and_functions_can_be_read_at_once(module: str) -> None:
    lines = MODULES[module].read_text(encoding="utf-8").count("\n")
    assert lines <= 600, f"{module} has {lines} lines: is it one idea?"
    for node in ast.walk(tree(module)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # A public function's signature and docstring list and explain its settings, however many there are.
            body = node.body[ast.get_docstring(node) is not None :] or node.body
            length = (node.end_lineno or 0) - body[0].lineno + 1
            assert length <= 60, f"{module}:{node.name} has {length} lines"
