"""Tools and programs that other agents use: servers' names in front, PowerShell, clients of clouds, runners."""

from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.actions.call_facts import CallKind
from foretrace.actions.label_steps import label_trace
from foretrace.actions.shell.command_rules import classify_shell
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_rules import classify_call
from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolCall, Trace

PATH = {"path": "a.py"}


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        ("find_and_replace", {**PATH, "find": "a", "replace": "b"}, CallKind.WRITE),
        ("copilot_replaceString", {"filePath": "a.py", "oldString": "a", "newString": "b"}, CallKind.WRITE),
        ("serena__replace_symbol_body", {"relative_path": "a.py", "body": "x"}, CallKind.WRITE),
        ("fs/write_text_file", {**PATH, "content": "x"}, CallKind.WRITE),
        ("replace_order_item", {"order_id": 3, "item": "x"}, CallKind.OTHER),
        ("read_and_summarize", PATH, CallKind.READ),
        ("read_inbox", {}, CallKind.SEARCH),
        ("grep_and_open", {"pattern": "def f"}, CallKind.SEARCH),
        ("developer__shell", {"command": "cat a.py"}, CallKind.READ),
        ("developer__text_editor", {"command": "view", **PATH}, CallKind.READ),
        ("copilot_getErrors", {"filePaths": ["a.py"]}, CallKind.VERIFY),
        ("bash_command", {"keystrokes": "pytest -q\n"}, CallKind.VERIFY),
        ("mark_task_complete", {}, CallKind.TERMINAL),
        ("terminate", {"status": "success"}, CallKind.TERMINAL),
        ("terminate", {"status": "failure"}, CallKind.GIVE_UP),
        ("git_log", {"repo_path": "."}, CallKind.SEARCH),
        ("mcp__git__git_diff_unstaged", {"repo_path": "."}, CallKind.COMPARE),
        ("git_commit", {"message": "x"}, CallKind.OTHER),
        ("visit_webpage", {"url": "https://x.org"}, CallKind.SEARCH),
        ("talk_to_user", {"query": "Hello."}, CallKind.SAY),
        ("message_ask_user", {"text": "Which?"}, CallKind.ASK),
    ],
)
def test_names_of_tools(name: str, arguments: dict[str, Any], kind: CallKind) -> None:
    assert classify_call(name, json.dumps(arguments)).kind is kind


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Get-Content a.py -Tail 5", CallKind.READ),
        ("get-childitem -Recurse src | Select-Object -First 5", CallKind.READ),
        ("type src\\a.py", CallKind.READ),
        ("type python3", CallKind.OTHER),
        ("Select-String -Path *.py -Pattern foo", CallKind.SEARCH),
        ("findstr /s foo *.py", CallKind.SEARCH),
        ("Set-Content -Path a.py -Value 'x = 1'", CallKind.WRITE),
        ("(Get-Content a.py) -replace 'a','b' | Set-Content a.py", CallKind.WRITE),
        ("New-Item -ItemType Directory out; Write-Host done", CallKind.OTHER),
        ("Get-Process", CallKind.OTHER),
        ("Set-Location src; Invoke-Pester", CallKind.VERIFY),
        ('powershell -Command "Get-Content a.py"', CallKind.READ),
        ("iwr https://x.org", CallKind.SEARCH),
        ("irm https://x.org -Method Post -Body $b", CallKind.OTHER),
        ("uvx ruff check .", CallKind.VERIFY),
        ("bunx vitest run", CallKind.VERIFY),
        ("bazel test //a", CallKind.VERIFY),
        ("zig build test", CallKind.VERIFY),
        ("terraform validate", CallKind.VERIFY),
        ("terraform apply -auto-approve", CallKind.OTHER),
        ("kubectl get pods -A", CallKind.SEARCH),
        ("kubectl delete pod get", CallKind.OTHER),
        ("aws ec2 describe-instances", CallKind.SEARCH),
        ("aws s3 cp a b", CallKind.OTHER),
        ("docker compose logs api | tail -50", CallKind.SEARCH),
        ("docker compose build", CallKind.VERIFY),
        ("yq -i '.a = 1' c.yaml", CallKind.WRITE),
        ("yq '.a' c.yaml", CallKind.READ),
        ("gh api repos/o/r/issues", CallKind.SEARCH),
        ("gh api -X POST repos/o/r/issues", CallKind.OTHER),
        ("xcodebuild test -scheme A", CallKind.VERIFY),
    ],
)
def test_programs(line: str, kind: CallKind) -> None:
    assert classify_shell(line).kind is kind


@pytest.mark.parametrize(
    "line",
    [
        "gh api --method=DELETE repos/o/r", "gh api repos/o/r/issues -f title=x", "kubectl apply -f k.yaml",
        "irm https://x.org -Method Delete", "aws s3 rm s3://b/k",
    ],
)  # fmt: skip
def test_what_changes_something_elsewhere_is_no_read(line: str) -> None:
    """Such a call is never run on a guess."""
    assert classify_shell(line).effect is Effect.EXTERNAL_WRITE


def test_a_script_of_powershell_is_repaired() -> None:
    steps = [
        ("Set-Content a.ps1 'x'", ""),
        ("pwsh a.ps1", "x: The term 'x' is not recognized as a name of a cmdlet, function, script file"),
        ("Set-Content a.ps1 'Get-Date'", ""),
        ("pwsh a.ps1", "Monday"),
    ]
    messages = [Message(role="user", author="user", content="Go.")]
    for number, (line, output) in enumerate(steps):
        call = ToolCall(id=str(number), name="powershell", arguments=json.dumps({"command": line}))
        messages.append(Message(role="assistant", author="model", tool_calls=(call,), turn=len(messages)))
        result = Message(role="tool", author="environment", content=output, tool_call_ids=(call.id,))
        messages.append(result)
    trace = Trace(
        key="k", task=Task(id="t", group="g"), messages=tuple(messages), outcome=Outcome(),
        provenance=Provenance(origin="imported", source="s"),
    )  # fmt: skip
    actions = [str(label.action) for label in label_trace(trace)]
    assert actions == ["file_write", "verifier", "repair", "verifier"]
