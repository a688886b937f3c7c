"""What the environment says: results, errors and hints, in the same words for every protocol."""

from __future__ import annotations

import re

from foretrace.core.problem import RunError, RunResult, TestResult, Verdict
from foretrace.protocols.base import Result, View

MOST_SHOWN = 2000
"""Characters of an output that a model is shown: its start and its end."""
_MOST_FAILURES = 5
_MOST_FRAMES = 600
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{6,16}\b")
_TAG = re.compile(r"<(?=/?(?:result|error|hint|tool_response|tool_call|think)\b)", re.IGNORECASE)


def task(view: View) -> str:
    """The problem in words: its statement, the code it begins with, and its public tests by number."""
    parts = [f"Task:\n{view.statement.strip()}"]
    if view.prompt.strip() and view.prompt.strip() not in view.statement:
        parts.append(f"The code begins with:\n```python\n{view.prompt.strip()}\n```")
    if view.entry_point is not None:
        parts.append(f"Your code must define `{view.entry_point}`.")
    else:
        parts.append("Your code is a whole program: it reads its input and prints its output.")
    if view.public_tests:
        tests = "\n".join(f"{number}. {test.strip()}" for number, test in enumerate(view.public_tests, 1))
        parts.append(f"Tests:\n{tests}")
    return "\n\n".join(parts)


def response(result: Result, *, hints: bool, good: str = "result", bad: str = "error") -> str:
    """The answer to one act: what it gave, or how it failed; then a hint, where hints are wanted.

    Args:
        good: tag around what code gave.
        bad: tag around an error.
    """
    text = _error(result)
    told = f"<{bad}>\n{text}\n</{bad}>" if text else f"<{good}>\n{_given(result)}\n</{good}>"
    return f"{told}\n<hint>\n{hint(result)}\n</hint>" if hints and result.failed else told


def hint(result: Result) -> str:
    """Advice after a failure, which gives nothing away."""
    if result.error is not None:
        return "Write one whole block, and close it."
    error = result.run.error if result.run is not None else result.public.error if result.public is not None else None
    if error is not None and error.kind in ("Timeout", "MemoryLimit"):
        return "Look for a loop that does not end, or for a way that does less work."
    if error is not None and error.kind in ("SyntaxError", "IndentationError", "TabError"):
        return "Look at the line that is named and the one before it: brackets, quotes, colons, indentation."
    if error is not None:
        return "Find out which value was not what you expected on the line that is named, then change that."
    return "Follow the code by hand on the first test that fails, and compare it with the statement."


def _error(result: Result) -> str:
    """Why code did not run or did not come to its end; empty where it did."""
    if result.error is not None or not result.broken:
        return result.error or ""
    failed = result.run if result.run is not None and not result.run.ok else result.public
    if failed is None:
        return ""
    printed = clip(failed.stdout)
    told = _raised(failed.error, failed.ending, result.act.code)
    return f"{told}\nprinted before that:\n{printed}" if printed else told


def _raised(error: RunError | None, ending: str, code: str) -> str:
    if error is None:
        return f"the run ended: {ending}"
    frames = error.traceback.strip("\n")
    head = f"{error.kind}: {plain(error.message)}" if error.message else error.kind
    if "\n" in frames or error.line is None:
        return f"{head}\n{plain(frames[-_MOST_FRAMES:])}" if frames else head
    # One frame says no more than its line does.
    lines = code.split("\n")
    source = lines[error.line - 1].strip() if error.line <= len(lines) else ""
    return f"{head}\nline {error.line}: {plain(source)}" if source else f"{head} (line {error.line})"


def _given(result: Result) -> str:
    """What code printed, and how the answer so far does on the tests."""
    lines: list[str] = []
    run: RunResult | None = result.run
    output = "" if run is None else run.stdout
    if result.public is not None and result.act.way == "test":
        output = result.public.stdout
    printed = clip(output)
    if printed:
        lines.append(printed)
    elif run is not None and result.public is None:
        lines.append("(no output)")
    if result.public is not None:
        lines += _tests(result.public)
    elif result.act.way == "check":
        lines.append("The checks passed." if run is not None else "There are no public tests to run.")
    elif result.act.way == "keep":
        lines.append("(added)")
    if result.hidden is not None:
        lines.append(f"Hidden tests: {result.hidden[0]} of {result.hidden[1]} pass.")
    return "\n".join(lines)


def _tests(verdict: Verdict) -> list[str]:
    counts = verdict.counts
    if verdict.passed:
        return [f"All {counts.total} public tests passed." if counts.total > 1 else "The public test passed."]
    lines = [f"{counts.passed} of {counts.total} public tests passed."]
    failing = [test for test in verdict.tests if not test.passed]
    lines += [_failure(test) for test in failing[:_MOST_FAILURES]]
    if len(failing) > _MOST_FAILURES:
        lines.append(f"({len(failing) - _MOST_FAILURES} more fail)")
    return lines


def _failure(test: TestResult) -> str:
    number, _, line = test.name.partition(":")
    name = f"test {int(number) + 1 if number.isdigit() else number}" + (f", line {line}" if line else "")
    if test.error is not None:
        return f"{name}: {plain(test.error)}"
    if test.expected is None:
        return f"{name}: fails" + (f", got {plain(test.actual)}" if test.actual is not None else "")
    return f"{name}: got {plain(test.actual or 'nothing')}, expected {plain(test.expected)}"


def clip(text: str) -> str:
    """An output as it is shown: its start and its end where it is long."""
    text = plain(text.strip("\n"))
    if len(text) <= MOST_SHOWN:
        return text
    half = MOST_SHOWN // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half:,} characters left out) ...\n{text[-half:]}"


def plain(text: str) -> str:
    """Text of untrusted code: addresses, which differ from run to run, left out, and tags of ours made harmless."""
    return _TAG.sub("&lt;", _ADDRESS.sub("0x...", text))
