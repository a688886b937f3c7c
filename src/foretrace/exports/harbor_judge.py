"""Judge an answer by a problem's tests inside a Harbor task: `python3 judge.py ANSWER` exits with 0 when all pass.

`harbor_tasks.py` copies this file into each task, beside `problem.json` and `compare.py`: only the standard library of
Python 3.10 may be used. Tests made of code run in a second process with the answer, which has passed only if that
process repeats a word at its very end, so an answer that exits early fails.
"""

import contextlib
import json
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
    problem = json.loads(Path(__file__).with_name("problem.json").read_text(encoding="utf-8"))
    tests = [*problem.get("public_tests", ()), *problem.get("hidden_tests", ())]
    if all("stdout" in test for test in tests):
        from compare import same_output  # type: ignore[import-not-found]

        printed = [_run([answer], test.get("stdin", "")) for test in tests]
        passed = [
            out is not None and same_output(out, test["stdout"], test.get("tolerance"))
            for out, test in zip(printed, tests, strict=True)
        ]
        print("passed", sum(passed), "of", len(passed))
        return all(passed)
    word = secrets.token_hex()
    return (_run([__file__, answer, "--run"], word) or "").endswith(word)


def _run(arguments: list[str], stdin: str) -> str | None:
    """What a Python process prints; `None` where it fails or takes too long."""
    try:
        command = [sys.executable, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=LIMIT_S)
    except (subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        print(error)
        return None
    print(done.stderr, end="")
    return done.stdout if done.returncode == 0 else None


def run_tests(problem: dict[str, Any], answer: str) -> None:
    """Run the answer, and then the tests made of code in the same namespace; raises what the first failure raises."""
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    space = module.__dict__
    prompt, setup = problem.get("prompt", ""), problem.get("setup", "")
    for code in (prompt, setup):
        with contextlib.suppress(Exception):  # a prompt may stop in mid-function, and a setup may need the answer
            exec(code, space)
    exec(compile(answer, "solution.py", "exec"), space)
    name, _, method = problem["entry_point"].partition("().")
    asked = space[name]
    exec(setup, space)
    candidate = (lambda *args, **kwargs: getattr(asked(), method)(*args, **kwargs)) if method else asked
    for test in [*problem.get("public_tests", ()), *problem.get("hidden_tests", ())]:
        space.update({name: asked, "candidate": candidate})
        space.pop("check", None)
        before = dict(space)
        exec(compile(test["code"], "test.py", "exec"), space)
        if "check" in space:
            space["check"](candidate)
        for key, function in [*space.items()]:
            if key.startswith("test") and before.get(key) is not function and isinstance(function, types.FunctionType):
                function()


if __name__ == "__main__":
    if sys.argv[2:] == ["--run"]:
        secret = sys.stdin.read()
        given = json.loads(Path(__file__).with_name("problem.json").read_text(encoding="utf-8"))
        run_tests(given, Path(sys.argv[1]).read_text(encoding="utf-8"))
        print(secret, end="")
    else:
        sys.exit(0 if main(sys.argv[1]) else 1)
