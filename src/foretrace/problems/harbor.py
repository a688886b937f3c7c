"""Harbor tasks: a folder of tasks, each with `task.toml`, `instruction.md`, `environment/`, `tests/` and `solution/`.

A task becomes a Problem if its answer is one Python file and its tests are one pytest file that only calls it, in an
image with nothing but Python. All others need their own image: `problems check --environment` passes them to Harbor.
"""

from __future__ import annotations

import ast
import contextlib
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
"""The file with the answer, in tasks that foretrace writes."""
RECORD = "problem.json"
"""In `tests/` of tasks that foretrace writes: the whole problem except its reference."""
_PYTHON = r"(docker\.io/)?(library/)?python:(latest|slim|3(\.1\d(\.\w+)?)?)(-[\w.-]+)?(@\S+)?"
"""Images of Python 3.10 or later."""
_PYTEST = r"['\"]?(pytest|pytest-json-ctrf)([=<>~]=[\w.]+)?['\"]?"
_PLAIN_IMAGE = re.compile(
    rf"(FROM (--platform=\S+ )?{_PYTHON}( AS \w+)?|WORKDIR .*|CMD .*|RUN mkdir -p [\w/ ]+|ENV PYTHON\w+[= ]\S+"
    rf"|RUN (uv )?pip3? install( -[\w-]+| {_PYTEST})+)",
    re.IGNORECASE,
)
"""Lines of a Dockerfile that add nothing to Python that an answer or its tests might need."""
_PLAIN_COMMAND = re.compile(
    r"(\[.*|\w+=[\w$?/.~-]*|sh|true|(cd|echo|exit|export|mkdir|set)( [^<>]*)?|source \S+/(env|activate)|curl [-\w]+ https://astral\.sh/uv/\S+"
    r"|apt-get (update|install)( -\S+| curl| ca-certificates)*"
    rf"|(python3? -m |uv )?pip3? install( -[\w-]+| {_PYTEST})+"
    rf"|(python3? -m |uvx (-p [\d.]+ |--python [\d.]+ |(-w|--with) {_PYTEST} )*)?pytest"
    r"( -[rvqsl]\w*| --(tb|color)=\w+| --ctrf[= ]\S+| --verbose| --quiet| --no-header| -p no:cacheprovider|"
    r" [\w./${}'\"]+)+)?"
)
"""Commands allowed in a `test.sh`: it installs pytest, runs it on a whole file, and writes the reward."""
_SHELL_WORDS = ("if", "!", "then", "else", "fi")
# fmt: off
_PLAIN_MODULES = frozenset((
    "__future__", "abc", "array", "asyncio", "base64", "bisect", "cmath", "collections", "contextlib", "copy",
    "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "itertools",
    "json", "math", "numbers", "operator", "pprint", "pytest", "random", "re", "statistics", "string", "struct",
    "sys", "textwrap", "threading", "time", "types", "typing", "unittest", "uuid", "warnings",
))
# fmt: on
"""Modules that tests may import besides the answer: they do not access files or run programs."""
_IMPORTS = (ast.Import, ast.ImportFrom)
_OUTSIDE = frozenset({"open", "__import__", "eval", "exec", "compile"})


class _Task(msgspec.Struct, frozen=True):
    name: str | None = None


class _Metadata(msgspec.Struct, frozen=True):
    license: str | None = None


class _Config(msgspec.Struct, frozen=True):
    """The part of a `task.toml` that is read."""

    task: _Task = _Task()
    metadata: _Metadata = _Metadata()
    environment: dict[str, Any] = {}
    verifier: dict[str, Any] = {}
    steps: Any = None


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
    with contextlib.suppress(OSError, msgspec.DecodeError):  # others may use this file name too
        problem = msgspec.json.decode((folder / "tests" / RECORD).read_bytes(), type=Problem)
        if problem.statement.strip() not in _read(folder / "instruction.md", ""):
            raise UnusableError(f"instruction.md was edited, and tests/{RECORD} is what counts: edit that too")
        reference = folder / "solution" / ANSWER
        return msgspec.structs.replace(problem, reference=_read(reference, "") if reference.is_file() else None)
    try:
        config = msgspec.convert(tomllib.loads(_read(folder / "task.toml")), type=_Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UnusableError(f"task.toml: {error}") from None
    try:
        return _make_from_pytest(folder, row.name, config)
    except UnusableError as error:
        raise NeedsImageError(f"needs its own image: {error}", folder) from None


def _make_from_pytest(folder: Path, name: str, config: _Config) -> Problem:
    _check_config(config)
    _check_image(folder / "environment", config.environment.get("docker_image"))
    tests = sorted(file for file in (folder / "tests").rglob("*") if file.is_file())
    sources = [file for file in tests if file.suffix == ".py"]
    if len(sources) != 1 or {file.name for file in tests} != {"test.sh", sources[0].name}:
        raise UnusableError("its tests are not test.sh and one Python file")
    _check_script(_read(folder / "tests" / "test.sh"), sources[0].name)
    instruction = re.sub(r"\A(\s*(<!--.*canary.*-->|#.*canary.*)\n)+", "", _read(folder / "instruction.md"))
    solve = _read(folder / "solution" / "solve.sh") if (folder / "solution" / "solve.sh").is_file() else ""
    code, module, asked = _read_tests(_read(sources[0]), instruction + solve)
    return Problem(
        id=config.task.name or name,
        statement=instruction.strip(),
        entry_point=asked,
        hidden_tests=(Test(code=code),),
        reference=_find_reference(folder / "solution", solve, f"{module}.py", asked),
        source=Harbor.name,
        license=config.metadata.license,
    )


def _check_config(config: _Config) -> None:
    environment, verifier = config.environment, config.verifier
    given = {
        "several steps": config.steps,
        "a system other than Linux": str(environment.get("os", "linux")).lower() != "linux",
        "a GPU or TPU": environment.get("gpus") or environment.get("tpu"),
        "servers or skills for the agent": environment.get("mcp_servers") or environment.get("skills_dir"),
        "variables": environment.get("env") or verifier.get("env"),
        "a verifier's environment": verifier.get("environment") or verifier.get("environment_mode") == "separate",
    }
    if asks := [what for what, value in given.items() if value]:
        raise UnusableError(f"task.toml asks for {', '.join(asks)}")


def _check_image(folder: Path, pulled: Any) -> None:
    others = sorted(file.name for file in folder.rglob("*") if file.is_file() and file.name != "Dockerfile")
    if others:
        raise UnusableError(f"environment/ has {others[0]}")
    lines = f"FROM {pulled}" if pulled else re.sub(r"\\\n", " ", _read(folder / "Dockerfile"))
    for line in (" ".join(line.split()) for line in lines.splitlines()):
        if line and not line.startswith("#") and not _PLAIN_IMAGE.fullmatch(line):
            raise UnusableError(f"its image has `{line[:60]}`")


def _check_script(script: str, tests: str) -> None:
    code = re.sub(r"\\\n", " ", re.sub(r"(?m)(^|\s)#.*$", "", script))
    code = re.sub(r"\d?>>?\s*(&\d|['\"]?/(logs/|dev/null)\S*)", " ", code)
    for command in re.split(r"&&|\|\||[;&|\n]", code):
        words = command.split()
        while words and words[0] in _SHELL_WORDS:
            del words[0]
        if "$(" in command or "`" in command or not _PLAIN_COMMAND.fullmatch(" ".join(words)):
            raise UnusableError(f"tests/test.sh runs `{' '.join(words)[:60]}`")
    file = re.escape(tests)
    if not re.search(rf"pytest\b.*{file}", script, re.DOTALL):
        raise UnusableError(f"tests/test.sh does not run pytest on {tests}")
    if not re.search(rf"\bif [^\n]*{file}|{file}[^\n]*&&|{file}.*(=|\[ [^\n]*)['\"]?\$\?", code, re.DOTALL):
        raise UnusableError("tests/test.sh gives a reward whatever pytest says")


def _read_tests(source: str, texts: str) -> tuple[str, str, str]:
    """The tests in the form that the sandbox judges, the answer's module (whose file `texts` name), and the name
    imported from it."""
    tree = parse_code(source)
    paths = [node for node in tree.body if ast.unparse(node).startswith("sys.path")]
    tree.body = [node for node in tree.body if node not in paths]
    gone = _find_names(*paths) - _find_names(tree)  # their imports are removed with them
    tree.body = [node for node in tree.body if not isinstance(node, _IMPORTS) or not _list_imported(node) <= gone]
    module, names, texts_of_tests = "", list[str](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [node.module or "."]
        else:
            if isinstance(node, ast.Name) and node.id in _OUTSIDE:
                raise UnusableError(f"its tests use {node.id}")
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts_of_tests.append(node.value)
            continue
        for name in found:
            if (top := name.partition(".")[0]) in _PLAIN_MODULES:
                continue
            if top in sys.stdlib_module_names:
                raise UnusableError(f"its tests use {name}")
            renamed = any(alias.asname for alias in node.names)
            if f"{name}.py" not in texts or module not in ("", name) or isinstance(node, ast.Import) or renamed:
                raise UnusableError(f"its tests import {name}")
            module, node.module = name, "solution"
            names += [alias.name for alias in node.names]
    if not names or "*" in names:
        raise UnusableError("its tests import no function of the answer by name")
    if any(text.startswith(f"{module}.") for text in texts_of_tests):
        raise UnusableError(f"its tests name {module} in a text, as patch() does")
    return ast.unparse(tree), module, names[0]


def _find_names(*nodes: ast.AST) -> set[str]:
    return {node.id for top in nodes for node in ast.walk(top) if isinstance(node, ast.Name)}


def _list_imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {alias.asname or alias.name.partition(".")[0] for alias in node.names}


def _find_reference(folder: Path, solve: str, file: str, asked: str) -> str | None:
    """The answer that `solve.sh` writes or copies; `None` if it cannot be determined."""
    name = re.escape(file)
    heredoc = re.search(rf"{name}['\"]?[^\n]*<<\s*['\"]?(\w+)['\"]?[^\n]*\n(.*?\n)\1\s*$", solve, re.S | re.M)
    rest = solve.replace(heredoc[2], "", 1) if heredoc else solve
    lines = [line for line in rest.splitlines() if re.search(rf"(?<!\w){name}", line.partition("#")[0])]
    if len(lines) != 1 or not (heredoc or re.match(r"\s*cp\s", lines[0])):
        return None  # something else accesses it too
    texts = [heredoc[2]] if heredoc else [_read(folder / file)] if (folder / file).is_file() else []
    return next((text for text in texts if asked in find_definitions(text)), None)


def _read(file: Path, newline: str | None = None) -> str:
    try:
        with file.open(encoding="utf-8", newline=newline) as text:
            return text.read()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableError(
            f"{file.parent.name}/{file.name} cannot be read ({getattr(error, 'strerror', error)})"
        ) from None


PLUGIN = Harbor
