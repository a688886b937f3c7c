"""Short names of calls for tables, and patterns of their arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.actions.call_names import find_call_pattern, name_call
from foretrace.core.trace import ToolCall


@pytest.mark.parametrize(
    ("tool", "arguments", "name"),
    [
        ("Read", {"file_path": "a.py"}, "Read"),
        ("bash", {"command": "cd /src && grep -rn x . | head"}, "bash: grep"),
        ("bash", {"command": "sudo timeout 5 /usr/bin/find ."}, "bash: find"),
        ("bash", {"command": "cd /src"}, "bash: cd"), ("bash", {"command": ""}, "bash"),
        ("bash", {"command": 3}, "bash"), ("shell", {"command": ["bash", "-lc", "cd a && ls"]}, "shell: ls"),
        ("shell", {"command": ["ls", "-l"]}, "shell: ls"),
        ("str_replace_editor", {"command": "view", "path": "a"}, "str_replace_editor: view"),
        ("str_replace_editor", {"command": "no such command"}, "str_replace_editor"), ("", {}, "(no name)"),
    ],
)  # fmt: skip
def test_a_call_is_named_by_its_tool_and_what_it_runs(tool: str, arguments: dict[str, Any], name: str) -> None:
    assert name_call(ToolCall(name=tool, arguments=json.dumps(arguments))) == name


def find(tool: str, arguments: Any) -> dict[str, str]:
    return find_call_pattern(ToolCall(name=tool, arguments=json.dumps(arguments)))


@pytest.mark.parametrize(
    ("command", "pattern"),
    [
        ("ls", "ls"), ("cd /a && git diff --stat HEAD~1 -- x | head -n 5", "cd && git diff --stat | head -n"),
        ("git log --oneline", "git log --oneline"), ("git -C /x commit -am 'say --no'", "git commit -C -am"),
        ("sudo sed -i s/a/b/ f", "sed -i"), ("sed -n 1,5p f", "sed -n"),
        ("grep -rn 'x -y' . > out.txt", "grep -rn > FILE"),
        ("python -m pytest -q --maxfail=1", "python -m pytest --maxfail -q"),
        ("find . -name '*.py' -delete", "find -delete -name"), ("/usr/bin/cat f", "cat"),
        (" && ".join(["ls"] * 9), " && ".join(["ls"] * 9)), ("", ""),
    ],
)  # fmt: skip
def test_a_shell_line(command: str, pattern: str) -> None:
    found = find("bash", {"command": command})
    assert found == ({"command": pattern} if command else {})


def test_other_tools() -> None:
    assert find("mcp__local__execute_bash", {"cmd": ["bash", "-lc", "ls -a"]}) == {"cmd": "ls -a"}
    assert find("bash", {"command": ["grep", "-n", "cat f > g"]}) == {"command": "grep -n"}
    assert find("bash", {"text": "ls -a"}) == {"text": "ls -a"}
    assert find("str_replace_editor", {"command": "view", "path": "x"}) == {"command": "view"}
    assert find("sql", {"query": "select 1"}) == {"query": "SELECT"}
    assert find("read_file", {"path": "x"}) == find("python", {"code": "1"}) == {}
