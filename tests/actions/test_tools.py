"""Tool calls: what a name and its JSON arguments mean."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.actions.meaning import OPEN_FILE, Kind
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_calls import read_call

CALLS = [
    ("str_replace_editor", {"command": "view", "path": "/a"}, Kind.READ),
    ("str_replace_editor", {"command": "create", "path": "/a", "file_text": "x"}, Kind.WRITE),
    ("str_replace_editor", {"command": "insert", "path": "/a", "insert_line": "3", "new_str": "x"}, Kind.WRITE),
    ("str_replace_editor", {"command": "undo_edit", "path": "/a"}, Kind.UNDO),
    ("execute_bash", {"command": "pytest"}, Kind.VERIFY),
    ("execute_bash", {"command": "n", "is_input": "true"}, Kind.OTHER),
    ("execute_bash", {"command": "C-c"}, Kind.OTHER),
    ("Bash", {"command": "ls", "description": "run the tests"}, Kind.READ),
    ("shell", {"command": ["bash", "-lc", "cd a && make"]}, Kind.VERIFY),
    ("bash", {"command": "open pkg/mod.py 120"}, Kind.READ),
    ("bash", {"command": "edit 3:4\nif ok:\n    pytest()\nend_of_edit"}, Kind.WRITE),
    ("open", {"input": "pkg/mod.py 120"}, Kind.READ),
    ("goto", {"input": "40"}, Kind.READ),
    ("scroll_down", {}, Kind.READ),
    ("find_file", {"input": "mod.py"}, Kind.SEARCH),
    ("search_dir", {"input": "Cart src"}, Kind.SEARCH),
    ("create", {"filename": "probe.py"}, Kind.WRITE),
    ("Read", {"file_path": "/a"}, Kind.READ),
    ("Grep", {"pattern": "x"}, Kind.SEARCH),
    ("WebFetch", {"url": "https://example.org"}, Kind.SEARCH),
    ("MultiEdit", {"file_path": "/a", "edits": []}, Kind.WRITE),
    ("TodoWrite", {"todos": []}, Kind.OTHER),
    ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n"}, Kind.WRITE),
    ("think", {"thought": "run pytest, then submit"}, Kind.OTHER),
    ("submit", {}, Kind.TERMINAL),
    ("finish", {}, Kind.TERMINAL),
    ("Finish", {"return_type": "give_answer", "final_answer": "42"}, Kind.TERMINAL),
    ("Finish", {"return_type": "give_up_and_restart"}, Kind.GIVE_UP),
    ("answer", {"answer": "[IDK]"}, Kind.GIVE_UP),
    ("answer", {"answer": ""}, Kind.GIVE_UP),
    ("transfer_to_human_agents", {"summary": "refund"}, Kind.HANDOVER),
    ("transfer_funds", {"amount": 3}, Kind.OTHER),
    ("get_order", {"id": 1}, Kind.SEARCH),
    ("lookup_customer", {}, Kind.SEARCH),
    ("check_seat_availability", {}, Kind.SEARCH),
    ("check_in_guest", {}, Kind.OTHER),
    ("crm_search_leads", {}, Kind.SEARCH),
    ("calendar_delete_event", {}, Kind.OTHER),
    ("coin_details", {}, Kind.SEARCH),
    ("book_table", {}, Kind.OTHER),
    ("register_for_course", {}, Kind.OTHER),
    ("authenticate_member", {}, Kind.OTHER),
    ("calculate", {"expression": "1+1"}, Kind.OTHER),
    ("tracks_for_music_box", {}, Kind.SEARCH),
    ("get_latest_scores_for_sports_box", {}, Kind.SEARCH),
    ("delete_user_for_user_box", {}, Kind.OTHER),
    ("mcp__files__read_text_file", {"path": "/a"}, Kind.READ),
    ("functions.web_search", {"query": "x"}, Kind.SEARCH),
    ("click", {"input": "[12]"}, Kind.OTHER),
    ("search", {"input": "red shoes"}, Kind.SEARCH),
    ("sql", {"query": "-- all\nSELECT * FROM t"}, Kind.SEARCH),
    ("sql", {"query": "INSERT INTO t VALUES (1)"}, Kind.OTHER),
    ("get_neighbors", {"input": "x"}, Kind.SEARCH),
    ("frobnicate", {"x": 1}, Kind.OTHER),
    ("", {}, Kind.OTHER),
]


@pytest.mark.parametrize(("name", "arguments", "kind"), CALLS)
def test_call(name: str, arguments: dict[str, object], kind: Kind) -> None:
    assert read_call(name, json.dumps(arguments)).kind is kind


CELLS = [
    ("x = 3\nprint(x ** 2)", Kind.OTHER),
    ("from sympy import solve, symbols\nsolve(symbols('x') - 1)", Kind.OTHER),
    ("print(wikipedia_search('Mercury'))", Kind.SEARCH),
    ("rows = conn.execute('SELECT a FROM t').fetchall()", Kind.SEARCH),
    ("conn.execute('PRAGMA table_info(t)')", Kind.SEARCH),
    ("conn.execute('DELETE FROM t WHERE a = 1')", Kind.OTHER),
    ("open('out.txt', 'w').write('x')", Kind.WRITE),
    ("import pandas as pd\npd.DataFrame().to_csv('o.csv')", Kind.WRITE),
    ("print(open('in.txt').read())", Kind.READ),
    ("assert f(3) == 4", Kind.VERIFY),
    ("def search_tree(x):\n    return x\nsearch_tree(3)", Kind.OTHER),
    ("this is no python", Kind.OTHER),
    ("!pytest -q", Kind.VERIFY),
]


@pytest.mark.parametrize(("code", "kind"), CELLS)
def test_code_cell(code: str, kind: Kind) -> None:
    assert read_call("execute_python", json.dumps({"code": code})).kind is kind


def test_unknown_tools_have_an_unknown_effect() -> None:
    assert read_call("frobnicate", "{}").effect is Effect.UNKNOWN
    assert read_call("tracks_for_music_box", "{}").effect is Effect.UNKNOWN
    assert read_call("get_tracks_for_music_box", "{}").effect is Effect.PURE_READ


def test_an_edit_without_a_file_is_of_the_open_file() -> None:
    assert read_call("edit", '{"line": "1:1", "replacement_text": "x"}').writes == (OPEN_FILE,)
    assert read_call("create", '{"input": "probe.py"}').writes == ("probe.py",)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from([name for name, _, _ in CALLS]), st.text(max_size=60) | st.just("[" * 90_000))
def test_no_arguments_break_the_reader(name: str, arguments: str) -> None:
    assert read_call(name, arguments).rule


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([name for name, _, _ in CALLS]),
    st.dictionaries(
        st.sampled_from(["command", "path", "code", "input", "query", "answer", "is_input", "edits"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.lists(st.integers(), max_size=3),
    ),
)
def test_no_shape_of_arguments_breaks_the_reader(name: str, arguments: dict[str, object]) -> None:
    assert read_call(name, json.dumps(arguments)).rule
