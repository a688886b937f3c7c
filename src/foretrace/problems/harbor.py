"""Harbor tasks: a folder of tasks, each with `task.toml`, `instruction.md`, `environment/`, `tests/` and `solution/`.

A task becomes a Problem where its answer is one Python file and its tests are one pytest file that only calls it, in
an image with nothing but Python. All others need their own image: `problems check --environment` hands them to Harbor.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import ProblemError, Setting, UsageError
from foretrace.core.problem import Problem, Test
from foretrace.problems.base import (
    NeedsImageError,
    ProblemRow,
    UnusableError,
    UnusableRow,
    find_definitions,
    make_problems,
    parse_code,
)

ANSWER = "solution.py"
"""Name of the file with the answer, in tasks that foretrace writes."""
RECORD = "problem.json"
"""File in `tests/` of the tasks that foretrace writes: the whole problem but for its reference."""
_PLAIN_IMAGE = re.compile(
    r"(FROM\s+(docker\.io/)?(library/)?python:\S+|WORKDIR\s.*|RUN\s+mkdir\s+-p\s+[\w/ ]+|ENV\s+PYTHON\w+[= ]\S+"
    r"|RUN\s+(uv )?pip3? install( --[\w-]+)* pytest[\w.=-]*)",
    re.IGNORECASE,
)
"""Lines of a Dockerfile that add nothing to Python that an answer or its tests could need."""
_TEST_COMMAND = re.compile(r"\[\[?|apt-get|cd|command|curl|echo|exit|export|mkdir|pip3?|pytest|set|source|uvx?")
"""What a `test.sh` may run: it installs pytest, runs it, and writes the reward."""
_SHELL_WORDS = ("if", "!", "then", "else", "fi")
_OUTSIDE = frozenset(
    {"importlib", "io", "open", "os", "pathlib", "runpy", "shutil", "socket", "subprocess", "tempfile"}
)
"""What tests look at files or run programs with."""


class Harbor:
    """Harbor tasks in a folder."""

    name = "harbor"
    license = None
    hub = None

    def load(self, path: Path | None = None) -> Iterator[Problem | UnusableRow]:
        """See `ProblemSet.load`; the path is a task or a folder of tasks, at any depth."""
        if path is None:
            raise UsageError("Harbor tasks are read from a folder: name it with ", Setting("path", "FOLDER"))
        folders = sorted(file.parent for file in path.rglob("task.toml"))
        folders = [each for each in folders if not any(parent in folders for parent in each.parents)]
        if not folders:
            raise ProblemError(f"{path}: no task.toml in it: name a Harbor task, or a folder of them")
        return make_problems(map(_make_row, folders), _make_problem)


def _make_row(folder: Path) -> ProblemRow:
    return ProblemRow(str(folder), folder.resolve().name, {"id": folder.resolve().name, "folder": folder})


def _make_problem(row: ProblemRow) -> Problem:
    folder: Path = row.value["folder"]
    if (record := folder / "tests" / RECORD).is_file():
        problem = msgspec.json.decode(record.read_bytes(), type=Problem)
        reference = folder / "solution" / ANSWER
        return msgspec.structs.replace(problem, reference=_read(reference) if reference.is_file() else None)
    try:
        return _make_from_pytest(folder, row.name)
    except UnusableError as error:
        raise NeedsImageError(f"needs its own image: {error}", folder) from None


def _make_from_pytest(folder: Path, name: str) -> Problem:
    config: dict[str, Any] = tomllib.loads(_read(folder / "task.toml"))
    _check_config(config)
    _check_image(folder / "environment", config.get("environment", {}).get("docker_image"))
    tests = sorted(file for file in (folder / "tests").rglob("*") if file.is_file())
    sources = [file for file in tests if file.suffix == ".py"]
    if len(sources) != 1 or {file.name for file in tests} != {"test.sh", sources[0].name}:
        raise UnusableError("its tests are not test.sh and one Python file")
    _check_script(_read(folder / "tests" / "test.sh"), sources[0].name)
    instruction = re.sub(r"\A(\s*(<!--.*canary.*-->|#.*canary.*)\n)+", "", _read(folder / "instruction.md"))
    solve = _read(folder / "solution" / "solve.sh") if (folder / "solution" / "solve.sh").is_file() else ""
    code, module, asked = _read_tests(_read(sources[0]), instruction + solve)
    return Problem(
        id=config.get("task", {}).get("name") or name,
        statement=instruction.strip(),
        entry_point=asked,
        hidden_tests=(Test(code=code),),
        reference=_find_reference(folder / "solution", solve, f"{module}.py", asked),
        source=Harbor.name,
        license=config.get("metadata", {}).get("license"),
    )


def _check_config(config: dict[str, Any]) -> None:
    environment, verifier = config.get("environment", {}), config.get("verifier", {})
    given = {
        "several steps": config.get("steps"),
        "a system other than Linux": environment.get("os", "linux").lower() != "linux",
        "a GPU or TPU": environment.get("gpus") or environment.get("tpu"),
        "servers or skills for the agent": environment.get("mcp_servers") or environment.get("skills_dir"),
        "variables": environment.get("env") or verifier.get("env"),
        "a verifier's environment": verifier.get("environment") or verifier.get("environment_mode") == "separate",
    }
    if asks := [what for what, value in given.items() if value]:
        raise UnusableError(f"task.toml asks for {', '.join(asks)}")


def _check_image(folder: Path, pulled: str | None) -> None:
    others = sorted(file.name for file in folder.rglob("*") if file.is_file() and file.name != "Dockerfile")
    if others:
        raise UnusableError(f"environment/ has {others[0]}")
    lines = f"FROM {pulled}" if pulled else re.sub(r"\\\n", " ", _read(folder / "Dockerfile"))
    for line in (" ".join(line.split()) for line in lines.splitlines()):
        if line and not line.startswith("#") and not _PLAIN_IMAGE.fullmatch(line):
            raise UnusableError(f"its image has `{line[:60]}`")


def _check_script(script: str, tests: str) -> None:
    code = re.sub(r"\\\n", " ", re.sub(r"(?m)(^|\s)#.*$", "", script))
    for command in re.split(r"&&|\|\||[;|\n]", code):
        words = command.split()
        while words and words[0] in _SHELL_WORDS:
            del words[0]
        is_python = words[:1] in (["python"], ["python3"]) and words[1:3] in (["-m", "pytest"], ["-m", "pip"])
        is_plain = not words or words == ["sh"] or re.fullmatch(r"\w+=[\w$?]+", command.strip())
        if "$(" in command or "`" in command or not (is_plain or is_python or _TEST_COMMAND.fullmatch(words[0])):
            raise UnusableError(f"tests/test.sh runs `{' '.join(words)[:60]}`")
    if not re.search(rf"pytest\b.*{re.escape(tests)}", script, re.DOTALL):
        raise UnusableError(f"tests/test.sh does not run pytest on {tests}")


def _read_tests(source: str, texts: str) -> tuple[str, str, str]:
    """The tests as the sandbox judges them, the module that is the answer, and the name that is asked of it.

    Args:
        texts: The instruction and the solution, one of which names the answer's file.
    """
    tree = parse_code(source)
    tree.body = [node for node in tree.body if not ast.unparse(node).startswith(("import sys", "sys.path."))]
    module, names = "", list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [node.module or "."]
        else:
            if isinstance(node, ast.Name) and node.id in _OUTSIDE:
                raise UnusableError(f"its tests use {node.id}")
            continue
        for name in found:
            if name in _OUTSIDE:
                raise UnusableError(f"its tests use {name}")
            if name.partition(".")[0] in sys.stdlib_module_names or name == "pytest":
                continue
            if f"{name}.py" not in texts or module not in ("", name) or not isinstance(node, ast.ImportFrom):
                raise UnusableError(f"its tests import {name}")
            module, node.module = name, "solution"
            names += [alias.name for alias in node.names]
    if not names or "*" in names:
        raise UnusableError("its tests import no function of the answer by name")
    return ast.unparse(tree), module, names[0]


def _find_reference(folder: Path, solve: str, file: str, asked: str) -> str | None:
    """The answer that `solve.sh` writes or copies; `None` where that cannot be told."""
    heredoc = re.search(
        rf"{re.escape(file)}['\"]?[^\n]*<<\s*['\"]?(\w+)['\"]?[^\n]*\n(.*?\n)\1\s*$", solve, re.S | re.M
    )
    texts = [heredoc[2]] if heredoc else [_read(folder / file)] if (folder / file).is_file() else []
    return next((text for text in texts if asked in find_definitions(text)), None)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableError(
            f"{file.parent.name}/{file.name} cannot be read ({getattr(error, 'strerror', error)})"
        ) from None


PLUGIN = Harbor
