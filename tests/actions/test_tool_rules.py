"""Tool calls and code: the kind, effect and paths that follow from a name and its arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.actions.call_facts import CallKind, changes_state, merge_facts
from foretrace.actions.call_names import find_call_pattern, name_call
from foretrace.actions.call_reading import read_call
from foretrace.actions.label_steps import label_trace
from foretrace.actions.python_rules import classify_inline_python
from foretrace.actions.shell.command_rules import classify_shell
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_rules import classify_call
from foretrace.core.trace import Message, Outcome, Provenance, Task, ToolCall, Trace

CALLS = [
    ("str_replace_editor", {"command": "view", "path": "/a"}, CallKind.READ),
    ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}, CallKind.WRITE),
    ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": "3", "new_str": "x"}, CallKind.WRITE),
    ("str_replace_editor", {"command": "undo_edit", "path": "/a"}, CallKind.UNDO),
    ("execute_bash", {"command": "pytest"}, CallKind.VERIFY),
    ("execute_bash", {"command": "n", "is_input": "true"}, CallKind.OTHER),
    ("execute_bash", {"command": "C-c"}, CallKind.OTHER),
    ("Bash", {"command": "ls", "description": "run the tests"}, CallKind.READ),
    ("shell", {"command": ["bash", "-lc", "cd a && make"]}, CallKind.VERIFY),
    ("bash", {"command": "open pkg/mod.py 120"}, CallKind.READ),
    ("bash", {"command": "edit 3:4\nif ok:\n    pytest()\nend_of_edit"}, CallKind.WRITE),
    ("open", {"input": "pkg/mod.py 120"}, CallKind.READ),
    ("goto", {"input": "40"}, CallKind.READ),
    ("scroll_down", {}, CallKind.READ),
    ("find_file", {"input": "mod.py"}, CallKind.SEARCH),
    ("search_dir", {"input": "Cart src"}, CallKind.SEARCH),
    ("create", {"filename": "probe.py"}, CallKind.WRITE),
    ("Read", {"file_path": "/a"}, CallKind.READ),
    ("Grep", {"pattern": "x"}, CallKind.SEARCH),
    ("WebFetch", {"url": "https://example.org"}, CallKind.SEARCH),
    ("MultiEdit", {"file_path": "/a", "edits": []}, CallKind.WRITE),
    ("TodoWrite", {"todos": []}, CallKind.OTHER),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n"}, CallKind.WRITE),
    ("think", {"thought": "run pytest, then submit"}, CallKind.OTHER),
    ("submit", {}, CallKind.TERMINAL),
    ("finish", {}, CallKind.TERMINAL),
    ("Finish", {"return_type": "give_answer", "final_answer": "42"}, CallKind.TERMINAL),
    ("Finish", {"return_type": "give_up_and_restart"}, CallKind.GIVE_UP),
    ("answer", {"answer": "[IDK]"}, CallKind.GIVE_UP),
    ("answer", {"answer": ""}, CallKind.GIVE_UP),
    ("transfer_to_human_agents", {"summary": "refund"}, CallKind.HANDOVER),
    ("transfer_funds", {"amount": 3}, CallKind.OTHER),
    ("get_order", {"id": 1}, CallKind.SEARCH),
    ("lookup_customer", {}, CallKind.SEARCH),
    ("check_seat_availability", {}, CallKind.SEARCH),
    ("check_in_guest", {}, CallKind.OTHER),
    ("crm_search_leads", {}, CallKind.SEARCH),
    ("calendar_delete_event", {}, CallKind.OTHER),
    ("filesystem_read_text_file", {"path": "/a"}, CallKind.READ),
    ("github__get_file_contents", {"path": "/a"}, CallKind.READ),
    ("desktop.write_file", {"path": "/a", "content": "x"}, CallKind.WRITE),
    ("sandbox_execute_command", {"command": "pytest"}, CallKind.VERIFY),
    ("quiz_submit_answer", {"answer": "b"}, CallKind.OTHER),
    ("python", {"code": "final_answer('x')"}, CallKind.TERMINAL),
    ("python", {"code": "stop(motor)"}, CallKind.OTHER),
    ("coin_details", {}, CallKind.SEARCH),
    ("book_table", {}, CallKind.OTHER),
    ("register_for_course", {}, CallKind.OTHER),
    ("authenticate_member", {}, CallKind.OTHER),
    ("calculate", {"expression": "1+1"}, CallKind.OTHER),
    ("tracks_for_music_box", {}, CallKind.SEARCH),
    ("get_latest_scores_for_sports_box", {}, CallKind.SEARCH),
    ("delete_user_for_user_box", {}, CallKind.OTHER),
    ("mcp__files__read_text_file", {"path": "/a"}, CallKind.READ),
    ("functions.web_search", {"query": "x"}, CallKind.SEARCH),
    ("click", {"input": "[12]"}, CallKind.OTHER),
    ("search", {"input": "red shoes"}, CallKind.SEARCH),
    ("sql", {"query": "-- all\nSELECT * FROM t"}, CallKind.SEARCH),
    ("sql", {"query": "INSERT INTO t VALUES (1)"}, CallKind.OTHER),
    ("get_neighbors", {"input": "x"}, CallKind.SEARCH),
    ("multiedit", {"filePath": "/a"}, CallKind.WRITE),
    ("codesearch", {"query": "x"}, CallKind.SEARCH),
    ("grep_files", {"pattern": "x"}, CallKind.SEARCH),
    ("AskQuestion", {"title": "x"}, CallKind.ASK),
    ("ReadLints", {"paths": ["/a"]}, CallKind.VERIFY),
    ("StructuredOutput", {"answer": 1}, CallKind.TERMINAL),
    ("browser_snapshot", {}, CallKind.SEARCH),
    ("browser_navigate", {"url": "https://example.org"}, CallKind.OTHER),
    ("unified_exec", {"input": ["ls"]}, CallKind.READ),
    ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.py\n"]}, CallKind.WRITE),
    (
        "shell",
        {"command": ["bash", "-lc", "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\nEOF"]},
        CallKind.WRITE,
    ),
    ("exec_command", {"cmd": "cd x && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\nEOF"}, CallKind.WRITE),
    ("exec_command", {"cmd": "rg '*** Begin Patch'"}, CallKind.SEARCH),
    ("exec", {"command": "pytest -q"}, CallKind.VERIFY),
    ("frobnicate", {"x": 1}, CallKind.OTHER),
    ("", {}, CallKind.OTHER),
]


@pytest.mark.parametrize(("name", "arguments", "kind"), CALLS)
def test_call(name: str, arguments: dict[str, object], kind: CallKind) -> None:
    assert classify_call(name, json.dumps(arguments)).kind is kind


@pytest.mark.parametrize(
    ("name", "arguments", "effect"),
    [
        ("calculator__add", '{"a": 3, "b": 4}', Effect.UNKNOWN),
        ("add", '{"x": 1, "y": 2}', Effect.UNKNOWN),
        ("cart__add", '{"item_id": 3, "quantity": 4}', Effect.EXTERNAL_WRITE),
        ("add", "{}", Effect.EXTERNAL_WRITE),
    ],
)
def test_to_add_numbers_changes_nothing(name: str, arguments: str, effect: Effect) -> None:
    assert classify_call(name, arguments).effect is effect


CELLS = [
    ("x = 3\nprint(x ** 2)", CallKind.OTHER),
    ("from sympy import solve, symbols\nsolve(symbols('x') - 1)", CallKind.OTHER),
    ("print(wikipedia_search('Mercury'))", CallKind.SEARCH),
    ("rows = conn.execute('SELECT a FROM t').fetchall()", CallKind.SEARCH),
    ("conn.execute('PRAGMA table_info(t)')", CallKind.SEARCH),
    ("conn.execute('DELETE FROM t WHERE a = 1')", CallKind.OTHER),
    ("open('out.txt', 'w').write('x')", CallKind.WRITE),
    ("import pandas as pd\npd.DataFrame().to_csv('o.csv')", CallKind.WRITE),
    ("print(open('in.txt').read())", CallKind.READ),
    ("assert f(3) == 4", CallKind.VERIFY),
    ("def search_tree(x):\n    return x\nsearch_tree(3)", CallKind.OTHER),
    ("this is not python", CallKind.OTHER),
    ("!pytest -q", CallKind.VERIFY),
]


@pytest.mark.parametrize(("code", "kind"), CELLS)
def test_code_cell(code: str, kind: CallKind) -> None:
    assert classify_call("execute_python", json.dumps({"code": code})).kind is kind


PROGRAMS = [
    ("const r = await tools.exec_command({cmd: \"sed -n '1,20p' a.py\"}); text(r);", CallKind.READ, "shell.read"),
    ("await tools.exec_command({ 'cmd': 'echo \\'x\\' > a.py' })", CallKind.WRITE, "shell.redirect"),
    ("tools.exec_command({cmd: `ls`}); tools.exec_command({cmd: `pytest -q`})", CallKind.VERIFY, "shell.test"),
    ('await tools.apply_patch("*** Begin Patch\\n*** Update File: a.py\\n@@")', CallKind.WRITE, "tool.patch"),
    ("tools.update_plan({plan})", CallKind.OTHER, "tool.update_plan"),
    ("text(1 + 1)", CallKind.OTHER, "tool.exec"),
    ("tools.exec({})", CallKind.OTHER, "tool.exec"),
]


@pytest.mark.parametrize(("program", "kind", "rule"), PROGRAMS)
def test_a_program_of_code_mode_does_what_its_calls_do(program: str, kind: CallKind, rule: str) -> None:
    facts = classify_call("exec", json.dumps({"input": program}))
    assert (facts.kind, facts.rule) == (kind, rule)
    assert kind is not CallKind.WRITE or facts.writes == ("a.py",)


@pytest.mark.parametrize("chars", ["", "y\n", "rm -rf x\n"])
def test_input_of_a_process_is_no_command(chars: str) -> None:
    facts = classify_call("write_stdin", json.dumps({"session_id": 7, "chars": chars}))
    assert (facts.kind, facts.rule, facts.effect) == (CallKind.OTHER, "shell.input", Effect.SANDBOX_EXEC)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(
            (name, '{"todos": [{"content": "a"}]}')
            for name in ("TodoWrite", "todowrite", "write_todos", "todo", "todos")
        ),
        *((name, "{}") for name in ("TaskUpdate", "TaskCreate", "update_plan", "ExitPlanMode", "switch_mode", "plan")),
        ("task_tracker", '{"command": "plan", "task_list": []}'),
        ("manage_todo_list", '{"operation": "write", "todoList": []}'),
        ("todo", '{"todos": []}'),
        ("goose__todo__todo_write", '{"content": "- a"}'),
        ("sequentialthinking", '{"thought": "so"}'),
    ],
)
def test_the_agents_own_plan_is_written_but_changes_no_state(name: str, arguments: str) -> None:
    facts = classify_call(name, arguments)
    assert (facts.kind, facts.effect, facts.own_state) == (CallKind.OTHER, Effect.LOCAL_WRITE, True)
    assert not changes_state(facts)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(
            ("todo_read", "{}"),
            ("TodoRead", "{}"),
            ("task_tracker", '{"command": "view"}'),
            ("todo", '{"todos": null}'),
        ),
        *(("manage_todo_list", '{"operation": "read"}'), ("wait_agent", "{}"), ("think", '{"thought": "so"}')),
    ],
)
def test_to_show_the_list_changes_nothing(name: str, arguments: str) -> None:
    facts = classify_call(name, arguments)
    assert (facts.kind, facts.effect, facts.own_state) == (CallKind.OTHER, Effect.PURE_READ, False)


@pytest.mark.parametrize(
    "name",
    ["spawn_agent", "Task", "Agent", "delegate_task", "Skill", "activate_skill", "save_memory", "add_memory", "memory"],
)
def test_subagents_and_memories_are_not_safe_to_run_early(name: str) -> None:
    assert classify_call(name, "{}").effect is not Effect.PURE_READ


def test_a_step_that_also_writes_a_file_changes_the_state() -> None:
    plan = classify_call("TodoWrite", '{"todos": []}')
    read, write = classify_call("Read", '{"file_path": "a"}'), classify_call("Write", '{"file_path": "a"}')
    for others, own, changes in (([read], True, False), ([write], False, True), ([read, write], False, True)):
        merged = merge_facts([plan, *others])
        assert merged is not None and merged.effect is Effect.LOCAL_WRITE
        assert (merged.own_state, changes_state(merged)) == (own, changes)


def test_unknown_tools_have_an_unknown_effect() -> None:
    assert classify_call("frobnicate", "{}").effect is Effect.UNKNOWN
    assert classify_call("tracks_for_music_box", "{}").effect is Effect.UNKNOWN
    assert classify_call("get_tracks_for_music_box", "{}").effect is Effect.PURE_READ


@given(st.sampled_from([name for name, _, _ in CALLS]), st.text(max_size=60) | st.just("[" * 90_000))
def test_no_arguments_break_the_reader(name: str, arguments: str) -> None:
    assert classify_call(name, arguments).rule


@given(
    st.sampled_from([name for name, _, _ in CALLS]),
    st.dictionaries(
        st.sampled_from(["command", "path", "code", "input", "query", "answer", "is_input", "edits"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.integers(), max_size=3),
    ),
)
def test_no_shape_of_arguments_breaks_the_reader(name: str, arguments: dict[str, object]) -> None:
    assert classify_call(name, json.dumps(arguments)).rule


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("p = 'a.py'\nopen(p, 'w').write('x')", ("a.py",)),
        ("from pathlib import Path\np = Path('a.py')\np.write_text(p.read_text())", ("a.py",)),
        ("Path('b.py').write_text('x')", ("b.py",)),
        ("open(find(), 'w').write('x')", ()),
    ],
)
def test_files_that_a_script_in_the_shell_rewrites(code: str, writes: tuple[str, ...]) -> None:
    """A later rewrite of the same file after a failure is a repair, so the path behind a variable counts."""
    facts = classify_call("bash", json.dumps({"command": f"python3 - <<'EOF'\n{code}\nEOF"}))
    assert (facts.kind, facts.writes) == (CallKind.WRITE, writes)


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["rm", "src", "ls"], "rm src ls"),
        (["grep", "-n", "a > b; pytest", "f"], "grep -n 'a > b; pytest' f"),
        (["bash", "-lc", "cd x && pytest"], "cd x && pytest"),
        (["/bin/sh", "-c", "ls"], "ls"),
        (["python", "-c", "print(1)"], "python -c 'print(1)'"),
        (["git", "-c", "status"], "git -c status"),
    ],
)
def test_a_list_is_the_words_of_one_command(words: list[str], same: str) -> None:
    listed, line = (ToolCall(name="shell", arguments=json.dumps({"command": command})) for command in (words, same))
    assert classify_call(listed.name, listed.arguments) == classify_call(line.name, line.arguments)
    assert name_call(listed) == name_call(line)
    assert find_call_pattern(listed) == find_call_pattern(line)
    assert read_call(listed) == read_call(line)


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
def test_programs_of_other_shells_and_services(line: str, kind: CallKind) -> None:
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


READ, VERIFY = CallKind.READ, CallKind.VERIFY


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import json\nd = json.load(open('a.json'))\nprint(d['x'], list(d)[:3])", READ),
        ("from pathlib import Path\nfor p in Path('.').glob('*.py'):\n    print(p, p.read_text()[:5])", READ),
        ("import json\njson.load(open('a.json'))", VERIFY),  # tells only whether it parses
        ("import json\nd = json.load(open('a.json'))\nassert d\nprint(d)", VERIFY),
        ("import json\nprint(json.load(open('a.json')) == {})", VERIFY),
        ("import json\ntry:\n    print(json.load(open('a')))\nexcept ValueError as e:\n    print(e)", VERIFY),
        ("import shop\nprint(open('a').read(), shop.price())", VERIFY),
        ("import subprocess\nprint(open('a').read())\nsubprocess.check_call(['rm', 'a'])", VERIFY),
    ],
)
def test_code_that_reads_a_file(code: str, kind: CallKind) -> None:
    facts = classify_inline_python(code)
    assert (facts.kind, facts.effect) == (kind, Effect.SANDBOX_EXEC)
