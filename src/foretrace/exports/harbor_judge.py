"""Judge an answer by a problem's tests inside a Harbor task: `python3 -I judge.py ANSWER` exits with 0 when all pass.

`harbor_tasks.py` copies this file into each task, next to `problem.json` and `compare.py`: only the standard library of
Python 3.10 may be used. Tests made of code run in a second process with the answer, which passes only if that process
sends back a random word after the last test. So an answer cannot pass by exiting early or by printing something; but
since answer and tests share a container and a process, one written against this file can pass.
"""

import ast
import builtins
import contextlib
import json
import os
import secrets
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

LIMIT_S = 60
"""Wall-clock seconds for the tests made of code, or for one case of a program."""


def main(answer: str) -> bool:
    """Whether the answer passes all tests; prints what failed."""
    tests = _all_tests(_read_problem())
    if all("stdout" in test for test in tests):
        sys.path.append(str(Path(__file__).parent))  # last, so that nothing there replaces the standard library
        from compare import same_output  # type: ignore[import-not-found]

        printed = [_run([answer], test.get("stdin", "").encode()) for test in tests]
        passed = [
            out is not None and same_output(out.decode(errors="replace"), test["stdout"], test.get("tolerance"))
            for out, test in zip(printed, tests, strict=True)
        ]
        print("passed", sum(passed), "of", len(passed))
        return all(passed)
    word = secrets.token_bytes()
    read, write = os.pipe()
    _run([__file__, answer, str(write)], word, pass_fds=[write])
    os.close(write)
    os.set_blocking(read, False)  # a process left behind by the answer may hold the other end
    with contextlib.suppress(BlockingIOError):
        return os.read(read, 2 * len(word)) == word
    return False


def _run(arguments: list[str], stdin: bytes, pass_fds: Any = ()) -> "bytes | None":
    """The output of a Python process; `None` if it fails or takes too long."""
    command = [sys.executable, "-I", "-X", "utf8", *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=LIMIT_S, pass_fds=pass_fds)
    except subprocess.TimeoutExpired as error:
        print(error)
        return None
    print(done.stderr.decode(errors="replace"), end="")
    return done.stdout if done.returncode == 0 else None


def run_tests(problem: dict[str, Any], answer: str) -> None:
    """Run the answer, and then the tests made of code; raises the exception of the first failure.

    Setup and tests have their own namespace, in which the answer's names have the lowest priority, like builtins.
    """
    module = types.ModuleType("solution")
    name, _, method = problem["entry_point"].partition("().")
    with contextlib.suppress(Exception):  # a prompt may end in the middle of a function
        exec(problem.get("prompt", ""), module.__dict__)
    module.__dict__.pop(name, None)  # a function without a body
    behind = {**module.__dict__, **vars(builtins)}
    space: dict[str, Any] = {"__name__": "tests", "__builtins__": behind}
    later: list[ast.stmt] = []
    for statement in ast.parse(problem.get("setup", "")).body:
        try:
            _execute(statement, space)
        except Exception:  # it may need the answer
            later.append(statement)
    module.__dict__.update({key: value for key, value in space.items() if not key.startswith("__")})
    sys.modules["solution"] = module
    exec(compile(answer, "solution.py", "exec"), module.__dict__)
    asked = module.__dict__[name]
    behind.update({key: value for key, value in module.__dict__.items() if not hasattr(builtins, key)})
    given = {
        name: asked,
        "candidate": (lambda *args, **kwargs: getattr(asked(), method)(*args, **kwargs)) if method else asked,
    }
    space.update(given)
    for statement in later:
        _execute(statement, space)
    for test in _all_tests(problem):
        space.update(given)
        exec(compile(test["code"], "test.py", "exec"), space)
        defined = [node.name for node in ast.parse(test["code"]).body if isinstance(node, ast.FunctionDef)]
        if "check" in defined:
            space["check"](given["candidate"])
        for key in dict.fromkeys(defined):
            if key.startswith("test"):
                space[key]()


def _execute(statement: ast.stmt, space: dict[str, Any]) -> None:
    exec(compile(ast.Module([statement], []), "setup.py", "exec"), space)


def _read_problem() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("problem.json").read_text(encoding="utf-8"))


def _all_tests(problem: dict[str, Any]) -> list[dict[str, Any]]:
    return [*problem.get("public_tests", ()), *problem.get("hidden_tests", ())]


def _judge_beside(answer: str, verdict: int) -> None:
    """The second process. The word is a local variable, which tests and answer do not see by accident."""
    word = sys.stdin.buffer.read()
    run_tests(_read_problem(), Path(answer).read_text(encoding="utf-8"))
    os.write(verdict, word)


if __name__ == "__main__":
    if sys.argv[2:]:
        _judge_beside(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(0 if main(sys.argv[1]) else 1)
