"""The environment's texts: task, results, errors and hints, worded the same for every protocol."""

from __future__ import annotations

import re

from foretrace.core.entry_points import EntryPoint, read_entry_point
from foretrace.core.problem import RunError, RunResult, TestResult, Verdict
from foretrace.protocols.base import ProblemView, Result

MAX_OUTPUT = 2000
"""The most characters of an output that a model is shown, half from its start and half from its end."""
_MAX_FAILURES = 5
_MAX_TRACEBACK = 600
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{6,16}\b")
_TAG = re.compile(r"<(?=/?(?:result|error|hint|tool_response|tool_call|think)\b)", re.IGNORECASE)


def describe_task(view: ProblemView) -> str:
    """The task as the model sees it: the statement, the code to start from, and the numbered public tests."""
    parts = [f"Task:\n{view.statement.strip()}"]
    if view.prompt.strip() and view.prompt.strip() not in view.statement:
        parts.append(f"The code begins with:\n```python\n{view.prompt.strip()}\n```")
    if view.entry_point is not None:
        name, method = read_entry_point(view.entry_point) or EntryPoint(view.entry_point)
        what = f"`{name}`" if method is None else f"the class `{name}` with the method `{method}`"
        parts.append(f"Your code must define {what}.")
    else:
        parts.append("Your code is a whole program: it reads its input and prints its output.")
    if view.public_tests:
        tests = "\n".join(f"{number}. {test.strip()}" for number, test in enumerate(view.public_tests, 1))
        parts.append(f"Tests:\n{tests}")
    return "\n\n".join(parts)


def format_result(result: Result, *, hints: bool, good: str = "result", bad: str = "error") -> str:
    """A result in its tags: the output and the tests, or the error; then a hint if hints are wanted."""
    text = _format_error(result)
    message = f"<{bad}>\n{text}\n</{bad}>" if text else f"<{good}>\n{_format_output(result)}\n</{good}>"
    return f"{message}\n<hint>\n{choose_hint(result)}\n</hint>" if hints and result.failed else message


def choose_hint(result: Result) -> str:
    """General advice after a failure; it reveals nothing about the tests."""
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


def _format_error(result: Result) -> str:
    if result.error is not None or not result.broken:
        return result.error or ""
    failed = result.run if result.run is not None and not result.run.ok else result.public
    if failed is None:
        return ""
    printed = clip(failed.stdout)
    text = _format_exception(failed.error, failed.ending, result.act.code)
    return f"{text}\nprinted before that:\n{printed}" if printed else text


def _format_exception(error: RunError | None, ending: str, code: str) -> str:
    if error is None:
        return f"the run ended: {ending}"
    frames = error.traceback.strip("\n")
    head = f"{error.kind}: {sanitize(error.message)}" if error.message else error.kind
    if "\n" in frames or error.line is None:
        return f"{head}\n{sanitize(frames[-_MAX_TRACEBACK:])}" if frames else head
    # One frame says no more than its source line does.
    lines = code.split("\n")
    source = lines[error.line - 1].strip() if error.line <= len(lines) else ""
    return f"{head}\nline {error.line}: {sanitize(source)}" if source else f"{head} (line {error.line})"


def _format_output(result: Result) -> str:
    lines: list[str] = []
    run: RunResult | None = result.run
    output = "" if run is None else run.stdout
    if result.public is not None and result.act.handling == "test":
        output = result.public.stdout
    printed = clip(output)
    if printed:
        lines.append(printed)
    elif run is not None and result.public is None:
        lines.append("(no output)")
    if result.public is not None:
        lines += _format_tests(result.public)
    elif result.act.handling == "check":
        lines.append("The checks passed." if run is not None else "There are no public tests to run.")
    elif result.act.handling == "append":
        lines.append("(added)")
    if result.hidden is not None:
        lines.append(f"Hidden tests: {result.hidden[0]} of {result.hidden[1]} pass.")
    return "\n".join(lines)


def _format_tests(verdict: Verdict) -> list[str]:
    counts = verdict.counts
    if verdict.passed:
        return [f"All {counts.total} public tests passed." if counts.total > 1 else "The public test passed."]
    lines = [f"{counts.passed} of {counts.total} public tests passed."]
    failing = [test for test in verdict.tests if not test.passed]
    lines += [_format_failure(test) for test in failing[:_MAX_FAILURES]]
    if len(failing) > _MAX_FAILURES:
        lines.append(f"({len(failing) - _MAX_FAILURES} more fail)")
    return lines


def _format_failure(test: TestResult) -> str:
    number, _, line = test.name.partition(":")
    name = f"test {int(number) + 1 if number.isdigit() else number}" + (f", line {line}" if line else "")
    if test.error is not None:
        return f"{name}: {sanitize(test.error)}"
    if test.expected is None:
        return f"{name}: fails" + (f", got {sanitize(test.actual)}" if test.actual is not None else "")
    return f"{name}: got {sanitize(test.actual or 'nothing')}, expected {sanitize(test.expected)}"


def clip(text: str) -> str:
    """The sanitized output, with its middle left out if it is longer than `MAX_OUTPUT`."""
    text = sanitize(text.strip("\n"))
    if len(text) <= MAX_OUTPUT:
        return text
    half = MAX_OUTPUT // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half:,} characters left out) ...\n{text[-half:]}"


def sanitize(text: str) -> str:
    """Output of untrusted code without memory addresses, which differ between runs, and with our own tags escaped."""
    return _TAG.sub("&lt;", _ADDRESS.sub("0x...", text))
