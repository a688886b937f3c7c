"""Write problems as Harbor tasks: a folder for each, with instruction, environment, tests and solution."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from foretrace.core.errors import UsageError
from foretrace.core.problem import Problem
from foretrace.core.python_source import try_parse
from foretrace.exports.export_traces import ExportReport, make_file_name, open_new_folder, refuse_empty
from foretrace.problems.harbor import ANSWER, RECORD
from foretrace.problems.public_tests.extract import extract_public_tests
from foretrace.sandbox.judging import compare

FORMAT = "harbor-tasks"
_JUDGE = Path(__file__).with_name("harbor_judge.py")
_IMAGE = "python:3.12-slim"
_PATH = f"/root/{ANSWER}"
"""Path of the answer, in a folder of the image, since not everybody builds images."""
_TEST = f"""\
#!/bin/bash
# The reward is 1 if {_PATH} passes all tests, else 0.
mkdir -p /logs/verifier
if python3 -I /tests/judge.py {_PATH}; then reward=1; else reward=0; fi
# Harbor prefers other files to reward.txt: the answer may have written one.
rm -rf /logs/verifier/reward.*
echo $reward > /logs/verifier/reward.txt
"""
_SOLVE = f"#!/bin/bash\ncp /solution/{ANSWER} {_PATH}\n"
_CONFIG = """\
schema_version = "1.4"

[task]
name = {name}
keywords = ["python"]

[metadata]
problem = {problem}
license = {license}

[agent]
timeout_sec = 600.0

[verifier]
timeout_sec = 600.0

[environment]
docker_image = {image}
cpus = 1
memory_mb = 2048
"""


def write_tasks(problems: Iterable[Problem], out: Path) -> ExportReport:
    """Write a task for each problem, all of them or none.

    Raises:
        UsageError: `out` is a file, or a folder that is not empty.
        StoreError: it cannot be written.
        ForetraceError: none of the problems can become a task.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise UsageError(f"{out}: name a folder that is empty or not there yet: each task becomes a folder in it")
    counts, drops = Counter[str](), Counter[str]()
    with open_new_folder(out) as folder:
        for problem in problems:
            counts["problems"] += 1
            if any(_needs_test_library(test.code) for test in (*problem.public_tests, *problem.hidden_tests)):
                drops["its tests need pytest or unittest"] += 1
                continue
            counts["without_solution"] += problem.reference is None
            name = _make_name(problem.id)
            for path, text in _make_files(problem, name).items():
                file = folder / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="")
                if file.suffix == ".sh":
                    file.chmod(0o755)
        refuse_empty(FORMAT, counts["problems"], drops)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    written = counts["problems"] - drops.total()
    return ExportReport(
        out=str(out),
        format=FORMAT,
        traces=counts["problems"],
        written=written,
        without_solution=counts["without_solution"],
        dropped=dict(drops.most_common()),
        bytes=size,
        files=written,
    )


def _needs_test_library(test: str) -> bool:
    """Whether plain Python cannot judge a test as the sandbox does."""
    for node in ast.walk(ast.parse(test)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            if any(name.partition(".")[0] in ("pytest", "unittest") for name in names):
                return True
        elif (
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.name.startswith("test")
            and (isinstance(node, ast.AsyncFunctionDef) or ast.unparse(node.args))
        ):
            return True
    return False


def _make_name(id: str) -> str:
    """A name that Harbor accepts: letters, digits, `-`, `_` and single dots, beginning with a letter or digit."""
    name = re.sub(r"\.+", ".", make_file_name(id))
    return name if name[0].isalnum() else f"task-{name.lstrip('-_.')}"


def _make_files(problem: Problem, name: str) -> dict[str, str]:
    record = msgspec.json.encode(msgspec.structs.replace(problem, reference=None))
    license = problem.license or "unknown"
    facts = {"name": f"foretrace/{name}", "problem": problem.id, "license": license, "image": _IMAGE}
    files = {
        "task.toml": _CONFIG.format(**{key: _quote_toml(value) for key, value in facts.items()}),
        "instruction.md": _make_instruction(problem),
        "environment/Dockerfile": f"FROM {_IMAGE}\n",
        "tests/test.sh": _TEST,
        "tests/judge.py": _JUDGE.read_text(encoding="utf-8"),
        "tests/compare.py": inspect.getsource(compare),
        f"tests/{RECORD}": msgspec.json.format(record).decode(),
    }
    if problem.reference is not None:
        files |= {"solution/solve.sh": _SOLVE, f"solution/{ANSWER}": problem.reference}
    return files


def _quote_toml(text: str) -> str:
    """Quote a text for TOML, whose escapes are JSON's except for surrogate pairs, and for DEL, which JSON leaves as
    is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _make_instruction(problem: Problem) -> str:
    parts = [_quote(problem.statement)]
    if problem.prompt.strip() and problem.prompt.strip() not in problem.statement:
        parts += ["The answer continues or builds on this code:", _quote(problem.prompt)]
    text, code = f"{problem.statement}\n\n{problem.prompt}", problem.prompt or problem.reference or ""
    shown = extract_public_tests(text, problem.entry_point, code=code) if problem.entry_point else problem.public_tests
    if tests := [test.code.strip() for test in problem.public_tests if test not in shown]:
        parts += ["It must pass these tests, among others:", _fence("\n".join(tests))]
    what = "the program" if problem.entry_point is None else f"Python code that defines `{problem.entry_point}`"
    return "\n\n".join([*parts, f"Write {what} to `{_PATH}`.\n"])


def _quote(text: str) -> str:
    """Code in a fence; prose unchanged."""
    tree = try_parse(text)
    is_code = tree is not None and any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body)
    return _fence(text) if is_code else text.strip()


def _fence(text: str) -> str:
    """The code in a fence longer than any inside it."""
    marks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{marks}python\n{text.strip()}\n{marks}"
