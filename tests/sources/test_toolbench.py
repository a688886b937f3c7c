"""ToolBench rows: growing prefixes of the branches of one search."""

from __future__ import annotations

import json
import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.errors import UsageError
from foretrace.core.store import read_traces
from foretrace.core.trace import Trace
from foretrace.rows.base import Drop, RawRow, RowRef
from foretrace.rows.files import FileRows
from foretrace.sources.base import RowError
from foretrace.sources.importing import import_rows
from foretrace.sources.toolbench import ToolBench
from sources.raw_rows import FINISH, GIVE_UP, act, answer, bench_prefixes, bench_row, write_jsonl

RETRY = ("user", "\nThis is not the first time you try this task, all previous trails failed.\n")


def convert(rows: list[dict[str, Any]], **settings: Any) -> list[Trace | Drop]:
    source = ToolBench(**settings)
    raw = [RawRow(RowRef(n, "rows.jsonl"), row) for n, row in enumerate(rows)]
    source.scan(raw)
    results: list[Trace | Drop] = []
    for at, row in raw:
        try:
            results.append(source.to_trace(row, at))  # type: ignore[arg-type]
        except RowError as error:
            results.append(error.drop)
    return results


def kept(results: list[Trace | Drop]) -> list[Trace]:
    return [r for r in results if isinstance(r, Trace)]


def trained(trace: Trace) -> list[str]:
    return [m.content for m in trace.messages if m.role == "assistant" and m.train is not False]


LONG = [act("find_for_maps", {"q": 1}), answer("a"), act("find_for_maps", {"q": 2}), answer("b"), FINISH]
OTHER = [*LONG[:2], act("find_for_maps", {"q": 3}), answer("c"), GIVE_UP]
THIRD = [*LONG[:2], act("find_for_maps", {"q": 3}), answer("c"), act("find_for_maps", {"q": 4}), answer("d"), FINISH]


def test_the_longest_row_of_a_branch_is_kept() -> None:
    results = convert(bench_prefixes(LONG))
    assert [getattr(r, "reason", "kept") for r in results] == ["prefix_row", "prefix_row", "kept"]
    (trace,) = kept(results)
    assert trained(trace) == [text for role, text in LONG if role == "assistant"]
    assert trace.task.statement == "Where is the well?" and trace.task.id == trace.task.group
    assert trace.outcome.success is True and trace.outcome.exit_reason == "give_answer"
    assert trace.provenance.raw_id == "Step 6: Where is the well?"


@given(st.randoms(use_true_random=False))
def test_any_order_of_rows_gives_the_same_traces(rng: random.Random) -> None:
    rows = bench_prefixes(LONG) + bench_prefixes(OTHER) + bench_prefixes(THIRD) + bench_prefixes(LONG, "Other query?")
    expected = {t.key: (trained(t), t.outcome) for t in kept(convert(rows))}
    shuffled = list(rows)
    rng.shuffle(shuffled)
    results = convert(shuffled)
    found = {t.key: (trained(t), t.outcome) for t in kept(results)}
    assert found == expected and len(found) == 4
    # Every assistant turn of every branch is trained in exactly one trace of its query.
    for query in {t.task.id for t in kept(results)}:
        turns = [text for t in kept(results) if t.task.id == query for text in prefixes(t)]
        assert len(turns) == len(set(turns))
        everything = {p for t in kept(results) if t.task.id == query for p in prefixes(t, every=True)}
        assert set(turns) == everything


def prefixes(trace: Trace, every: bool = False) -> list[str]:
    """Each trained assistant turn with all that precedes it."""
    texts = [m.content for m in trace.messages]
    wanted = [i for i, m in enumerate(trace.messages) if m.role == "assistant" and (every or m.train is not False)]
    return [json.dumps(texts[: i + 1]) for i in wanted]


def test_what_branches_share_is_trained_in_the_one_that_answered() -> None:
    for rows in ([bench_row(OTHER), bench_row(LONG)], [bench_row(LONG), bench_row(OTHER)]):
        by_success = {t.outcome.success: t for t in kept(convert(rows))}
        assert len(trained(by_success[True])) == 3
        assert len(trained(by_success[False])) == 2
        assert by_success[False].messages[2].extra == {"shared_with_sibling": True}


def test_rows_that_differ_in_retry_turns_only_are_kept_once() -> None:
    rows = [bench_row(LONG), bench_row([*LONG[:2], RETRY, *LONG[2:]])]
    first, second = kept(convert(rows)), kept(convert(rows[::-1]))
    assert len(first) == len(second) == 1 and first[0].key == second[0].key


@pytest.mark.parametrize(
    ("last", "success", "status", "reason"),
    [
        (FINISH, True, "done", "give_answer"),
        (GIVE_UP, False, "done", "give_up_and_restart"),
        (act("Finish", {}), False, "done", "Finish"),
        (act("Finish", '{"return_type": "give_ans'), None, "limit", "unreadable_finish"),
        (act("find_for_maps", {}), None, "limit", "no_finish"),
        (("assistant", "\nThought: I stop."), None, "limit", "no_finish"),
    ],
)
def test_outcomes(last: tuple[str, str], success: bool | None, status: str, reason: str) -> None:
    (trace,) = kept(convert([bench_row([*LONG[:2], last])]))
    assert (trace.outcome.success, trace.outcome.status, trace.outcome.exit_reason) == (success, status, reason)


@pytest.mark.parametrize(
    ("literal", "names"),
    [
        ("[{'name': 'a', 'parameters': {'x': None, 'y': True, 'z': (1, 2)}}]", ["a"]),
        ("[{'name': 'a', 'parameters': {1, 2}}, {'name': 'b', 'parameters': {'s': b'x'}}]", ["a", "b"]),
        ("[{'name': 'a', 'parameters': {'x': 1e999}}]", ["a"]),
        ("[{'name': 'a', \"description\": 'it\\'s'}, 'noise', {'no': 'name'}]", ["a"]),
        ("[{'name': 'a', 'description': '\\d'}]", ["a"]),
        ("[{'name': nan}]", []),
        ("[{'name': 'a'}", []),
        ("[" * 5000, []),
        ("__import__('os').system('true')", []),
        ("", []),
    ],
)
def test_the_tool_list_is_a_python_literal(literal: str, names: list[str]) -> None:
    row = bench_row(LONG)
    head = row["conversations"]["value"][0].split("[{")[0]
    row["conversations"]["value"][0] = head + literal
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (trace,) = kept(convert([row]))
    assert [t.name for t in trace.tools] == names
    assert all(json.loads(t.parameters) is not None for t in trace.tools)
    assert trace.messages[0].content == head + literal


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "missing_column"),
        ({"id": "no step"}, "missing_column"),
        ({"conversations": None}, "null_messages"),
        ({"conversations": []}, "empty_trace"),
        ({"conversations": {"from": ["user"], "value": []}}, "wrong_column_type"),
        ({"conversations": [["user", "x"]]}, "wrong_column_type"),
        ({"conversations": [{"from": "wizard", "value": "x"}]}, "unknown_role"),
        ({"conversations": [{"from": "user", "value": 5}]}, "wrong_column_type"),
        ({"conversations": [{"from": "user", "value": "x"}]}, "empty_trace"),
        ({"conversations": "[{"}, "bad_json"),
    ],
)
def test_rows_that_are_refused(change: dict[str, Any], reason: str) -> None:
    (result,) = convert([{**bench_row(LONG), **change}])
    assert isinstance(result, Drop) and result.reason == reason


def test_branches_over_several_files(tmp_path: Path) -> None:
    """Two files of one name: rows of one may go on in the other, and their row numbers are the same."""
    rows = [bench_prefixes(LONG)[0], bench_row(OTHER)], [bench_row(LONG), bench_row(THIRD)]
    files = []
    for name, some in zip("ab", rows, strict=True):
        (tmp_path / name).mkdir()
        files.append(FileRows(write_jsonl(tmp_path / name / "rows.jsonl", some)))
    report = import_rows(ToolBench(), files, tmp_path / "out")
    assert (report.rows, report.traces, dict(report.drops)) == (4, 3, {"prefix_row": 1})
    turns = [text for t in read_traces(tmp_path / "out") for text in prefixes(t)]
    assert len(turns) == len(set(turns)) == 7


def test_another_limit_needs_another_scan(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", bench_prefixes(LONG))
    report = import_rows(ToolBench(), [FileRows(path)], tmp_path / "out", limit=2)
    assert (report.rows, report.traces) == (2, 1)
    assert import_rows(ToolBench(), [FileRows(path)], tmp_path / "out", limit=2).already_done == 2
    with pytest.raises(UsageError, match="limit=2"):
        import_rows(ToolBench(), [FileRows(path)], tmp_path / "out")
