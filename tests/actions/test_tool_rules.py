"""Tool calls and code: the kind, effect and paths that follow from a name and its arguments."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.actions.call_facts import CallKind, changes_state, merge_facts
from foretrace.actions.call_names import find_call_pattern, name_call
from foretrace.actions.call_reading import read_call
from foretrace.actions.python_rules import classify_inline_python
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_rules import classify_call
from foretrace.core.trace import ToolCall

CALLS = {
    CallKind.READ: [
        ("str_replace_editor", {"command": "view", "path": "/a"}),
        ("Bash", {"command": "ls", "description": "run the tests"}), ("bash", {"command": "open pkg/mod.py 120"}),
        ("open", {"input": "pkg/mod.py 120"}), ("Read", {"file_path": "/a"}),
        ("filesystem_read_text_file", {"path": "/a"}), ("github__get_file_contents", {"path": "/a"}),
        ("mcp__files__read_text_file", {"path": "/a"}), ("read_and_summarize", {"path": "a.py"}),
        ("developer__shell", {"command": "cat a.py"}),
        ("developer__text_editor", {"command": "view", "path": "a.py"}),
    ],
    CallKind.SEARCH: [
        ("search_dir", {"input": "Cart src"}), ("Grep", {"pattern": "x"}),
        ("WebFetch", {"url": "https://example.org"}), ("get_order", {"id": 1}), ("crm_search_leads", {}),
        ("tracks_for_music_box", {}), ("functions.web_search", {"query": "x"}), ("search", {"input": "red shoes"}),
        ("sql", {"query": "-- all\nSELECT * FROM t"}), ("get_neighbors", {"input": "x"}), ("browser_snapshot", {}),
        ("exec_command", {"cmd": "rg '*** Begin Patch'"}), ("read_inbox", {}),
        ("grep_and_open", {"pattern": "def f"}), ("git_log", {"repo_path": "."}),
        ("visit_webpage", {"url": "https://x.org"}),
    ],
    CallKind.COMPARE: [
        ("mcp__git__git_diff_unstaged", {"repo_path": "."}),
    ],
    CallKind.OTHER: [
        ("execute_bash", {"command": "n", "is_input": "true"}), ("execute_bash", {"command": "C-c"}),
        ("TodoWrite", {"todos": []}), ("think", {"thought": "run pytest, then submit"}),
        ("transfer_funds", {"amount": 3}), ("check_in_guest", {}), ("quiz_submit_answer", {"answer": "b"}),
        ("python", {"code": "stop(motor)"}), ("calculate", {"expression": "1+1"}), ("delete_user_for_user_box", {}),
        ("click", {"input": "[12]"}), ("sql", {"query": "INSERT INTO t VALUES (1)"}),
        ("browser_navigate", {"url": "https://example.org"}), ("frobnicate", {"x": 1}), ("", {}),
        ("replace_order_item", {"order_id": 3, "item": "x"}), ("git_commit", {"message": "x"}),
        ("create_comment", {"path": "a.py", "body": "x"}), ("create_route", {"path": "/users", "body": "x"}),
    ],
    CallKind.WRITE: [
        ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}),
        ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": "3", "new_str": "x"}),
        ("bash", {"command": "edit 3:4\nif ok:\n    pytest()\nend_of_edit"}), ("create", {"filename": "probe.py"}),
        ("MultiEdit", {"file_path": "/a", "edits": []}),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n"}),
        ("shell", {"command": ["apply_patch", "*** Begin Patch\n*** Update File: a.py\n"]}),
        ("shell", {"command": ["bash", "-lc", "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\nEOF"]}),
        ("exec_command", {"cmd": "cd x && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: a\nEOF"}),
        ("find_and_replace", {"path": "a.py", "find": "a", "replace": "b"}),
        ("copilot_replaceString", {"filePath": "a.py", "oldString": "a", "newString": "b"}),
        ("serena__replace_symbol_body", {"relative_path": "a.py", "body": "x"}),
        ("fs/write_text_file", {"path": "a.py", "content": "x"}),
    ],
    CallKind.UNDO: [
        ("str_replace_editor", {"command": "undo_edit", "path": "/a"}),
    ],
    CallKind.VERIFY: [
        ("execute_bash", {"command": "pytest"}), ("shell", {"command": ["bash", "-lc", "cd a && make"]}),
        ("sandbox_execute_command", {"command": "pytest"}), ("ReadLints", {"paths": ["/a"]}),
        ("exec", {"command": "pytest -q"}), ("copilot_getErrors", {"filePaths": ["a.py"]}),
        ("bash_command", {"keystrokes": "pytest -q\n"}),
    ],
    CallKind.ASK: [
        ("AskQuestion", {"title": "x"}), ("message_ask_user", {"text": "Which?"}),
    ],
    CallKind.SAY: [
        ("talk_to_user", {"query": "Hello."}),
    ],
    CallKind.HANDOVER: [
        ("transfer_to_human_agents", {"summary": "refund"}),
    ],
    CallKind.GIVE_UP: [
        ("Finish", {"return_type": "give_up_and_restart"}), ("answer", {"answer": "[IDK]"}),
        ("answer", {"answer": ""}), ("terminate", {"status": "failure"}),
    ],
    CallKind.TERMINAL: [
        ("submit", {}), ("finish", {}), ("Finish", {"return_type": "give_answer", "final_answer": "42"}),
        ("python", {"code": "final_answer('x')"}), ("StructuredOutput", {"answer": 1}), ("mark_task_complete", {}),
        ("terminate", {"status": "success"}),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind"), [(call, kind) for kind, calls in CALLS.items() for call in calls])
def test_call(call: tuple[str, dict[str, object]], kind: CallKind) -> None:
    assert classify_call(call[0], json.dumps(call[1])).kind is kind


@pytest.mark.parametrize(
    ("name", "arguments", "effect"),
    [
        ("calculator__add", '{"a": 3, "b": 4}', Effect.UNKNOWN), ("add", '{"x": 1, "y": 2}', Effect.UNKNOWN),
        ("cart__add", '{"item_id": 3, "quantity": 4}', Effect.EXTERNAL_WRITE), ("add", "{}", Effect.EXTERNAL_WRITE),
    ],
)  # fmt: skip
def test_to_add_numbers_changes_nothing(name: str, arguments: str, effect: Effect) -> None:
    assert classify_call(name, arguments).effect is effect


CELLS = [
    ("x = 3\nprint(x ** 2)", CallKind.OTHER),
    ("from sympy import solve, symbols\nsolve(symbols('x') - 1)", CallKind.OTHER),
    ("print(wikipedia_search('Mercury'))", CallKind.SEARCH),
    ("rows = conn.execute('SELECT a FROM t').fetchall()", CallKind.SEARCH),
    ("conn.execute('PRAGMA table_info(t)')", CallKind.SEARCH),
    ("conn.execute('DELETE FROM t WHERE a = 1')", CallKind.OTHER),
    ("open('out.txt', 'a').write('x')", CallKind.WRITE),
    ("import pandas as pd\npd.DataFrame().to_csv('o.csv')", CallKind.WRITE),
    ("print(open('in.txt').read())", CallKind.READ),
    ("assert f(3) == 4", CallKind.VERIFY),
    ("def search_tree(x):\n    return x\nsearch_tree(3)", CallKind.OTHER),
    ("this is not python", CallKind.OTHER),
    ("!pytest -q", CallKind.VERIFY),
    ("!ls\n!pytest -q", CallKind.VERIFY),
    ("%%bash\ncat a.py", CallKind.READ),
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
        *((name, '{"todos": [{"content": "a"}]}') for name in ("TodoWrite", "todowrite", "write_todos", "todo")),
        *((name, "{}") for name in ("TaskUpdate", "TaskCreate", "update_plan", "ExitPlanMode", "switch_mode", "plan")),
        ("task_tracker", '{"command": "plan", "task_list": []}'),
        ("manage_todo_list", '{"operation": "write", "todoList": []}'), ("todo", '{"todos": []}'),
        ("goose__todo__todo_write", '{"content": "- a"}'), ("sequentialthinking", '{"thought": "so"}'),
    ],
)  # fmt: skip
def test_the_agents_own_plan_is_written_but_changes_no_state(name: str, arguments: str) -> None:
    facts = classify_call(name, arguments)
    assert (facts.kind, facts.effect, facts.own_state) == (CallKind.OTHER, Effect.LOCAL_WRITE, True)
    assert not changes_state(facts)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *(("todo_read", "{}"),("TodoRead", "{}"),("task_tracker", '{"command": "view"}'),("todo", '{"todos": null}')),
        *(("manage_todo_list", '{"operation": "read"}'), ("wait_agent", "{}"), ("think", '{"thought": "so"}')),
    ],
)  # fmt: skip
def test_to_show_the_list_changes_nothing(name: str, arguments: str) -> None:
    facts = classify_call(name, arguments)
    assert (facts.kind, facts.effect, facts.own_state) == (CallKind.OTHER, Effect.PURE_READ, False)


def test_a_step_that_also_writes_a_file_changes_the_state() -> None:
    plan = classify_call("TodoWrite", '{"todos": []}')
    read, write = classify_call("Read", '{"file_path": "a"}'), classify_call("Write", '{"file_path": "a"}')
    for others, own, changes in (([read], True, False), ([write], False, True), ([read, write], False, True)):
        merged = merge_facts([plan, *others])
        assert merged is not None and merged.effect is Effect.LOCAL_WRITE
        assert (merged.own_state, changes_state(merged)) == (own, changes)


NAMES = [name for calls in CALLS.values() for name, _ in calls]


SHAPES = st.dictionaries(
    st.sampled_from(["command", "path", "code", "input", "query", "answer", "is_input", "edits"]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.integers(), max_size=3),
)


@given(
    st.sampled_from(NAMES),
    st.text(max_size=60) | st.sampled_from(["[" * 90_000, "!" + "\n" * 90_000]) | SHAPES.map(json.dumps),
)
def test_no_arguments_break_the_reader(name: str, arguments: str) -> None:
    assert classify_call(name, arguments).rule


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("p = 'a.py'\nopen(p, 'w').write('x')", ("a.py",)),
        ("from pathlib import Path\np = Path('a.py')\np.write_text(p.read_text())", ("a.py",)),
        ("Path('b.py').write_text('x')", ("b.py",)), ("open(find(), 'w').write('x')", ()),
    ],
)  # fmt: skip
def test_files_that_a_script_in_the_shell_rewrites(code: str, writes: tuple[str, ...]) -> None:
    """A later rewrite of the same file after a failure is a repair, so the path behind a variable counts."""
    facts = classify_call("bash", json.dumps({"command": f"python3 - <<'EOF'\n{code}\nEOF"}))
    assert (facts.kind, facts.writes) == (CallKind.WRITE, writes)


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["rm", "src", "ls"], "rm src ls"), (["grep", "-n", "a > b; pytest", "f"], "grep -n 'a > b; pytest' f"),
        (["bash", "-lc", "cd x && pytest"], "cd x && pytest"), (["/bin/sh", "-c", "ls"], "ls"),
        (["python", "-c", "print(1)"], "python -c 'print(1)'"), (["git", "-c", "status"], "git -c status"),
    ],
)  # fmt: skip
def test_a_list_is_the_words_of_one_command(words: list[str], same: str) -> None:
    listed, line = (ToolCall(name="shell", arguments=json.dumps({"command": command})) for command in (words, same))
    assert classify_call(listed.name, listed.arguments) == classify_call(line.name, line.arguments)
    assert name_call(listed) == name_call(line)
    assert find_call_pattern(listed) == find_call_pattern(line)
    assert read_call(listed) == read_call(line)


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
