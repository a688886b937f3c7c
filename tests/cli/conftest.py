"""Tiny rows in the raw formats, and the command line run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from foretrace.cli.main import main
from foretrace.sandbox.forkserver import sandbox


class Result(NamedTuple):
    """How one run of the command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


Run = Callable[..., Result]


@pytest.fixture(scope="module", autouse=True)
def _one_core() -> Iterator[None]:
    """What is not told how many runs it is for starts one fork server, however many cores there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox, "usable_cores", lambda: 1)
        yield


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is in a folder of its own."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line: words, and then arguments that may hold blanks, or be paths."""

    def call(words: str, *arguments: object) -> Result:
        capfd.readouterr()
        code = main([*words.split(), *map(str, arguments)])
        return Result(code, *capfd.readouterr())

    return call


def call(name: str, arguments: dict[str, Any], own: str = "c1") -> dict[str, Any]:
    """One OpenAI-style tool call."""
    return {"id": own, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def swe_row(instance: str, attempt: str, *, resolved: bool | None = True) -> dict[str, Any]:
    """One SWE-smith row of the tool split: look, edit, submit."""
    change = {"command": "str_replace", "path": "/a.py", "old_str": "x = 1\n", "new_str": "x = 2\ny = 3\n"}
    said = [
        ("Let me look.", call("bash", {"command": "cat a.py"}, "c1"), "OBSERVATION:\nx = 1"),
        ("Now change it.", call("str_replace_editor", change, "c2"), "OBSERVATION:\nThe file has been edited."),
    ]
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Fix the bug in /testbed."},
    ]
    for text, made, seen in said:
        messages.append({"role": "assistant", "content": text, "tool_calls": [made]})
        messages.append({"role": "tool", "content": seen, "tool_call_ids": [made["id"]]})
    messages.append({"role": "assistant", "content": "Done.", "tool_calls": [call("submit", {}, "c3")]})
    ids = {"instance_id": instance, "traj_id": f"{instance}.{attempt}"}
    return {"messages": json.dumps(messages), "resolved": resolved, "model": "m", "patch": "", **ids}


def chat_row(number: int, **more: Any) -> dict[str, Any]:
    """One OpenAI-style row."""
    messages = [
        {"role": "user", "content": f"What is the weather in town {number}?"},
        {"role": "assistant", "content": None, "tool_calls": [call("get_weather", {"town": number})]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
    ]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    return {"messages": messages, "tools": tools, **more}


def write_rows(path: Path, rows: list[Any]) -> Path:
    """JSON lines; a string is written as it is."""
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows))
    return path


@pytest.fixture
def swe_file(tmp_path: Path) -> Path:
    """Four attempts at two instances, one of which failed."""
    rows = [
        swe_row("owner__one.0123abcd.func__aaa", "a"),
        swe_row("owner__one.0123abcd.func__aaa", "b", resolved=False),
        swe_row("owner__two.0123abcd.func__bbb", "c"),
        swe_row("other__three.0123abcd.func__ccc", "d"),
    ]
    return write_rows(tmp_path / "swe.jsonl", rows)


@pytest.fixture
def traces(tmp_path: Path, swe_file: Path, run: Run) -> Path:
    """A traces folder with four traces."""
    assert run("import swe_smith", swe_file, "--out", tmp_path / "traces").code == 0
    return tmp_path / "traces"
