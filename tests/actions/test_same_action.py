"""The one definition of the same action: laws, and what the normalized level ignores."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.actions.same_action import Action, MatchLevel, canonicalize_json, make_call_key
from foretrace.actions.taxonomy import ActionType

MATCH_LEVELS = get_args(MatchLevel)


def is_same_action(a: Action, b: Action, level: Any = "normalized") -> bool:
    return make_call_key(a, level) == make_call_key(b, level)


def shell(command: str) -> Action:
    return Action(type=ActionType.TOOL_CALL, tool="bash", arguments=json.dumps({"command": command}))


def call(tool: str = "viewer", **arguments: object) -> Action:
    return Action(type=ActionType.FILE_READ, tool=tool, arguments=json.dumps(arguments))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (call(path="/r/a/"), call(path="/r/./a")),
        (call(path="/r/a", view_range="[1, 50]"), call(path="/r/a", view_range=[1, 50])),
        (call(path="/r/a", limit="20"), call(path="/r/a", limit=20.0)),
        (call(path="/r/a", limit=None), call(path="/r/a")), (call(flag="true"), call(flag=True)),
        (shell("grep -rn  foo   src/"), shell("grep -rn 'foo' src")),
        (shell("cd /r && python probe.py"), shell("python /r/probe.py")),
        (shell("cd /r; cd pkg && cat a.py"), shell("cat /r/pkg/a.py")), (shell("a;  b\n"), shell("a; b")),
        (shell("ls # all of it"), shell("ls")),
    ],
)  # fmt: skip
def test_normalized_but_not_exact(a: Action, b: Action) -> None:
    assert is_same_action(a, b, "normalized")
    assert not is_same_action(a, b, "exact")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (shell("cd a && make"), shell("cd b && make")), (shell("cd /r && python probe.py"), shell("python probe.py")),
        (shell("ls *.py"), shell("ls '*.py'")), (shell("echo 'a  b'"), shell("echo 'a b'")),
        (shell("cat > f <<EOF\na  b\nEOF"), shell("cat > f <<EOF\na b\nEOF")),
        (shell("pytest && ls"), shell("pytest || ls")), (call(file_text="1.0"), call(file_text="1")),
        (call(path="/r/a"), call(path="/r/b")), (call("viewer", path="/r/a"), call("opener", path="/r/a")),
        (shell("cat /r/a"), Action(type=ActionType.TOOL_CALL, tool="viewer", arguments='{"path":"/r/a"}')),
    ],
)  # fmt: skip
def test_not_the_same(a: Action, b: Action) -> None:
    assert not is_same_action(a, b, "normalized")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arguments = (
    st.dictionaries(st.sampled_from(["command", "path", "query", "file_text", "limit", "x"]), values, max_size=4).map(
        json.dumps
    )
    | st.sampled_from(["cd /r && ls", "ls  /r/", "ls '/r'", "a | b > c", "'"]).map(lambda c: json.dumps({"command": c}))
    | st.text(max_size=20)
)
some_actions = st.builds(
    Action,
    type=st.sampled_from([ActionType.FILE_READ, ActionType.REPAIR, None]),
    tool=st.sampled_from(["bash", "Bash", "view", ""]),
    arguments=arguments,
)


@given(some_actions, some_actions, st.sampled_from(MATCH_LEVELS))
def test_laws(a: Action, b: Action, level: str) -> None:
    assert is_same_action(a, a, level)  # type: ignore[arg-type]
    assert is_same_action(a, b, level) == is_same_action(b, a, level)  # type: ignore[arg-type]
    # Each level is coarser than the one before.
    exact, normalized, kind = (is_same_action(a, b, each) for each in MATCH_LEVELS)
    assert exact <= normalized <= kind


@given(st.text(max_size=30) | values.map(json.dumps))
def test_canonical_is_stable(text: str) -> None:
    assert canonicalize_json(canonicalize_json(text)) == canonicalize_json(text)
