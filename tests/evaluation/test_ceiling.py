"""The ceiling on traces: sums, coverage, what is safe, rows, intervals, and laws over made-up traces."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.timed import DEPLOY, READ, RUN, WRITE, Timed, make, make_trace
from foretrace.api.evaluation import ceiling as measure_ceiling
from foretrace.core.trace import Message, ToolCall, Trace
from foretrace.evaluation.bootstrap import Resamples
from foretrace.evaluation.ceiling import Ceiling, CeilingReport

maybe = st.none() | st.floats(0.001, 1000)
steps = st.builds(Timed, maybe, maybe, st.sampled_from([READ, RUN, WRITE, DEPLOY, None]))
folders = st.lists(st.lists(steps, max_size=6), max_size=5).map(
    lambda made: [make_trace(each, key=f"k{n}", task=f"t{n // 2}", source=f"s{n % 2}") for n, each in enumerate(made)]
)


def test_constant_times_give_the_formula() -> None:
    report = measure_ceiling([make_trace([Timed(5.0, 2.0)] * 20, key=f"k{n}", task=f"t{n}") for n in range(3)])
    assert (report.wall_s, report.model_s, report.tool_s, report.eligible_s) == (420.0, 300.0, 120.0, 120.0)
    assert report.oracle.saved_s == pytest.approx(60 * (7.0 - max(0.2 + 2.0, 5.0)), abs=1e-9)
    assert report.oracle.share == report.oracle.low == report.oracle.high == pytest.approx(2 / 7, abs=1e-9)
    assert report.ahead["1"].saved_s == pytest.approx(report.oracle.saved_s, abs=1e-9)
    assert (report.coverage, report.verdict, report.steps, report.traces, report.tasks) == (1.0, "known", 60, 3, 3)
    slow = measure_ceiling([make_trace([Timed(2.0, 5.0)] * 20)], guess_latency=0.5)
    assert slow.oracle.saved_s == pytest.approx(20 * (7.0 - max(0.5 + 5.0, 2.0)), abs=1e-9)
    assert slow.oracle.low is None, "one task has no interval"


@pytest.mark.parametrize(("call", "saves", "allowed"), [(READ, 2, 2), (RUN, 0, 2), (WRITE, 0, 0), (DEPLOY, 0, 0)])
def test_only_what_is_safe_to_run_early_saves(call: Any, saves: int, allowed: int) -> None:
    trace = make_trace([Timed(5.0, 2.0, call)])
    report, wider = measure_ceiling([trace]), measure_ceiling([trace], allow=["sandbox_exec"])
    assert (report.oracle.saved_s, report.eligible_s, report.ahead["5"].saved_s) == (saves, saves, saves)
    assert (wider.oracle.saved_s, wider.eligible_s, wider.ahead["5"].saved_s) == (allowed, allowed, allowed)


def test_time_is_divided_by_what_can_take_the_calls_back() -> None:
    steps = [Timed(5.0, 2.0, READ), Timed(1.0, 3.0, RUN), Timed(2.0, 0.5, WRITE), Timed(4.0, 1.0, DEPLOY)]
    report = measure_ceiling([make_trace(steps)])
    assert [(each.name, each.steps, each.tool_s, each.saved_s) for each in report.held_by] == [
        ("pure", 1, 2.0, 2.0),
        ("forkable", 2, 3.5, pytest.approx(0.8 + 0.5)),
        ("none", 1, 1.0, 0.0),
    ]
    assert report.held_by[0].share == pytest.approx(2.0 / 18.5)
    wider = measure_ceiling([make_trace(steps[:2])], allow=["sandbox_exec"])
    pure, forkable, _ = wider.held_by
    assert (pure.saved_s or 0) + (forkable.saved_s or 0) == pytest.approx(wider.oracle.saved_s)


def test_nothing_is_read_ahead_over_a_person_or_over_an_unknown_time() -> None:
    steps = [Timed(4.0, 1.0, RUN), Timed(1.0, 6.0)]
    asked = list(make_trace(steps).messages)
    asked.insert(3, Message(role="user", author="user", content="Look at a.py, too."))
    between = make_trace([steps[0], Timed(None, 1.0), steps[1]])
    for trace in (make(asked), between):
        assert measure_ceiling([trace], guess_latency=0).ahead["5"].saved_s == 1.0


def test_nothing_known_is_unknown() -> None:
    report = measure_ceiling([make_trace([Timed(), Timed(None, 1.0), Timed(1.0)])])
    assert (report.verdict, report.coverage, report.known_steps, report.wall_s) == ("unknown", 0.0, 0, 0.0)
    assert report.oracle.saved_s is report.oracle.share is report.ahead["3"].saved_s is None
    assert report.unknown_steps == {"no_model_time": 2, "no_tool_time": 1}
    assert measure_ceiling([]).verdict == "unknown"
    for known, verdict in ((1, "unknown"), (2, "known")):
        report = measure_ceiling([make_trace([Timed(5.0, 2.0)] * known + [Timed()] * 2)])
        assert (report.verdict, report.coverage) == (verdict, known / (known + 2))


@given(folders, st.data())
def test_parts_make_the_whole(made: list[Trace], data: st.DataObject) -> None:
    """What workers took of parts of a folder gives the report of one that took all, in any order."""
    whole, parts = Ceiling(), [Ceiling() for _ in range(3)]
    whole.add_all(made)
    for trace in made:
        data.draw(st.sampled_from(parts)).add_all([trace])
    for part in parts[1:]:
        parts[0].merge(part)
    assert parts[0].make_report() == whole.make_report()


def test_rows_add_up() -> None:
    traces = [
        make_trace([Timed(5.0, 2.0), Timed(3.0, 1.0, RUN)], key="a", task="a", source="x", agent="one"),
        make_trace([Timed(5.0, 4.0), Timed(), Timed(1.0, call=None)], key="b", task="b", source="y"),
    ]
    report = measure_ceiling(traces)
    for rows in (report.sources, report.agents, report.tools):
        for name in ("steps", "wall_s", "model_s", "tool_s", "eligible_s"):
            assert sum(getattr(row, name) for row in rows) == pytest.approx(getattr(report, name)), name
        assert sum(row.oracle.saved_s or 0 for row in rows) == pytest.approx(report.oracle.saved_s or 0)
    assert {row.name for row in report.tools} == {"read_file", "bash: pytest", "(no call)"}
    assert [(row.name, row.coverage) for row in report.sources] == [("y", 2 / 3), ("x", 1.0)]
    assert [str(row.steps) for row in (*report.sources, report)] == ["3", "2", "5"], "a whole number without .0"


def test_parallel_calls_are_shared_between_their_tools() -> None:
    calls = (ToolCall(id="a", name="read_file"), ToolCall(id="b", name="grep"))
    results = [
        Message(role="tool", author="environment", tool_call_ids=(i,), tool_s=s) for i, s in (("a", 3.0), ("b", 1.0))
    ]
    agent = Message(role="assistant", author="model", tool_calls=calls, model_s=5.0)
    report = measure_ceiling([make([agent, *results])])
    assert report.oracle.saved_s == 3.0 and report.overlaps == {"longest": 1}
    assert {row.name: row.oracle.saved_s for row in report.tools} == {"read_file": 2.25, "grep": 0.75}


def test_times_from_stamps_may_hold_a_wait() -> None:
    """Their share stands apart, and the longest calls are named; what was measured is not part of it."""

    def answer(name: str, seconds: float, source: Any) -> list[Message]:
        call = ToolCall(id="c", name=name, arguments='{"path": "a.py"}')
        agent = Message(role="assistant", author="model", tool_calls=(call,), model_s=5.0)
        result = Message(role="tool", author="environment", tool_call_ids=("c",), tool_s=seconds, tool_s_source=source)
        return [agent, result]

    stamped = make(
        [*answer("read_file", 40.0, "stamps"), *answer("write_file", 30.0, "stamps"), *answer("grep", 30.0, "runner")]
    )
    report = measure_ceiling([stamped], guess_latency=0)
    assert (report.stamped_s, report.tool_s, report.oracle.saved_s) == (70.0, 100.0, 10.0)
    assert [(call.name, call.tool_s, call.key, call.step) for call in report.longest_stamped] == [
        ("read_file", 40.0, "k", 0),
        ("write_file", 30.0, "k", 2),
    ]
    assert {row.name: row.stamped_s for row in report.tools} == {"read_file": 40.0, "write_file": 30.0, "grep": 0.0}
    measured = measure_ceiling([make(answer("read_file", 40.0, "span"))])
    assert (measured.stamped_s, measured.longest_stamped) == (0.0, [])


def test_intervals_are_seeded_and_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(seed: int) -> Any:
        resamples = Resamples([f"{n:02}" for n in range(50)], seed)
        return resamples.find_ratio_intervals([([n % 3 for n in range(50)], [3.0] * 50)])

    first = measure(1)
    assert first == measure(1) != measure(2)
    monkeypatch.setattr("foretrace.evaluation.bootstrap._CELLS", 333)
    assert measure(1) == [pytest.approx(first[0], abs=1e-12)]


seconds = st.floats(0, 1000, allow_subnormal=False)


def check_laws(report: CeilingReport) -> None:
    oracle = report.oracle.saved_s or 0.0
    assert 0 <= oracle <= report.eligible_s + 1e-9 and report.eligible_s <= report.tool_s <= report.wall_s + 1e-9
    ahead = [saving.saved_s or 0.0 for saving in report.ahead.values()]
    assert all(more >= less - 1e-6 for less, more in zip([oracle, *ahead], ahead, strict=False))
    assert ahead[-1] <= report.eligible_s + 1e-6
    assert 0 <= report.stamped_s <= report.tool_s + 1e-6
    for rows in (report.sources, report.agents, report.tools):
        assert sum(row.ahead["5"].saved_s or 0.0 for row in rows) == pytest.approx(ahead[-1], abs=1e-6)
    assert 0 <= report.coverage <= 1 and report.known_steps + sum(report.unknown_steps.values()) == report.steps


@given(folders, st.randoms(use_true_random=False))
def test_laws_of_the_ceiling(traces: list[Trace], shuffle: random.Random) -> None:
    report = measure_ceiling(traces)
    check_laws(report)
    wider = measure_ceiling(traces, allow=["sandbox_exec"])
    check_laws(wider)
    for less, more in [(report.oracle, wider.oracle), *((report.ahead[k], wider.ahead[k]) for k in report.ahead)]:
        assert (more.saved_s or 0.0) >= (less.saved_s or 0.0) - 1e-6
    other = [*traces]
    shuffle.shuffle(other)
    assert msgspec.json.encode(measure_ceiling(other)) == msgspec.json.encode(report)
