"""Tool calls: the kind, effect and paths that follow from a name and its JSON arguments."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.actions.call_facts import CallKind, changes_state, merge_facts
from foretrace.actions.call_names import find_call_pattern, name_call
from foretrace.actions.call_reading import read_call
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_rules import classify_call
from foretrace.core.trace import ToolCall

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
