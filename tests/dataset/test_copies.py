"""Copies in a build: they share a split, the best of copied trajectories is kept, and a gate reads it from the rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import attempt, build, corpus, examine, rows, runs, trace, user
from foretrace.core.errors import GateError
from foretrace.core.trace import Message, Outcome, Trace
from foretrace.dataset.filters.base import Decision, sort_examined
from foretrace.dataset.filters.copies import CopyFilter, read_statement
from foretrace.dataset.trace_filters import examine_trace, select_traces

_ISSUE = (
    "The parser loses the last line of a file that has no line break at its end, and the report that is printed "
    "afterwards counts one entry too few. It happens with every version since the rewrite of the reader, on all "
    "systems that I tried, and nothing of it stands in the log. (report {})"
)
_LONG = [f"sed -n {n},{n + 9}p src/reader_{n}.py | grep -n buffer_{n} | sort -u | head" for n in range(10, 90, 10)]


def decide(traces: list[Trace], **more: Any) -> tuple[Decision, dict[str, Any]]:
    each = CopyFilter(**more)
    decision = each.decide(sorted((examine_trace(t, [each], ()) for t in traces), key=lambda found: found.key))
    return decision, decision.figures


def reworded(text: str, seed: int) -> str:
    rng = random.Random(seed)
    words = text.split()
    for place in rng.sample(range(len(words)), len(words) // 20):
        words[place] = rng.choice(["perhaps", "window", "broken", "simply"])
    return " ".join(words)


def issue(key: str, text: str, *actions: Message, success: bool | None = True, **more: Any) -> Trace:
    made = trace(key, user(text), *(actions or [runs(f"cat {key}.py")]), success=success, **more)
    return msgspec.structs.replace(made, outcome=Outcome(success=success))


def test_reworded_statements_merge_their_groups() -> None:
    traces = [issue("a", _ISSUE.format("A"), task="a", group="one")]
    traces += [issue("b", reworded(_ISSUE.format("A"), 1), task="b", group="two")]
    traces += [issue("c", "Write a poem about the sea and the wind", task="c", group="three")]
    decision, figures = decide(traces)
    assert decision.merged_groups == [("one", "two")]
    assert decision.kept_together == [("a", "b")]
    assert not decision.left_out
    assert figures["tasks"] | {"compared": 0} == {
        "tasks": 3, "copies": 2, "clusters": 1, "largest": 2, "chained": 0, "compared": 0, "examples": [["a", "b"]],
    }  # fmt: skip
    assert figures["signatures"].startswith("rensa 0.")


def test_attempts_at_one_task_are_siblings_and_no_copies_of_tasks() -> None:
    traces = [issue(key, _ISSUE.format("A"), task="a", group="one") for key in "abc"]
    decision, figures = decide(traces)
    assert not decision.merged_groups and not decision.kept_together
    assert figures["tasks"]["copies"] == 0
    assert figures["attempts"]["copies"] == 0


def test_short_requests_of_sessions_are_no_tasks_to_compare() -> None:
    said = issue("a", "fix the failing tests please")
    assert read_statement(said) is not None
    session = msgspec.structs.replace(said, task=msgspec.structs.replace(said.task, kind="session"))
    assert read_statement(session) is None
    assert read_statement(issue("b", "hello")) is None


def test_the_best_of_copied_trajectories_is_kept() -> None:
    long = [runs(command) for command in _LONG]
    again = [*long, runs("echo done")]
    other = [runs(command.replace("reader", "writer").replace("grep", "rg")) for command in reversed(_LONG)]
    traces = [
        issue("fails", "Repair it", *long, success=False),
        issue("longer", "Repair it", *again),
        issue("best", "Repair it", *long),
        issue("elsewhere", "Do something else", *long, task="u", group="h"),
        issue("another", "Repair it", *other, success=False),
        issue("short", "Repair it", runs("ls")),
        issue("short too", "Repair it", runs("ls"), success=None),
        issue("short elsewhere", "Do something else", runs("ls"), task="u", group="h"),
    ]
    decision, figures = decide(traces, keeps_best=True)
    assert sorted(decision.left_out) == ["elsewhere", "fails", "longer", "short too"]
    assert decision.merged_groups == [("g", "h")]  # a copied trajectory, though the tasks are two
    assert figures["attempts"]["copies"] == 6
    assert not decide(traces)[0].left_out


def test_what_is_left_out_is_a_copy_of_what_is_kept_and_not_of_its_copy() -> None:
    """A chain: each trajectory differs from the next in four words, the first and the last in 28."""
    commands = list(_LONG)
    traces = []
    for n in range(8):
        traces.append(issue(f"t{n}", "Repair it", *(runs(command) for command in commands)))
        for word in ("sed", "grep", "sort", "head"):
            commands[n] = commands[n].replace(word, f"{word}_{n}")
    decision, figures = decide(traces, keeps_best=True)
    assert figures["attempts"]["clusters"] == 1 and figures["attempts"]["chained"] > 0
    kept = [t.key for t in traces if t.key not in decision.left_out]
    assert len(kept) > 1


def test_the_decision_does_not_depend_on_the_order_or_the_workers() -> None:
    rng = random.Random(4)
    traces = corpus(12) + [
        issue(f"x{n}", reworded(_ISSUE.format(n // 3), n), task=f"x{n}", group=f"g{n}") for n in range(9)
    ]
    expected, _ = decide(traces, keeps_best=True)
    filters = [CopyFilter(keeps_best=True)]
    mixed = rng.sample(traces, len(traces))
    with sort_examined(examine(mixed, filters)) as found:
        assert filters[0].decide(found) == expected
    whole = select_traces([CopyFilter()], [])
    assert whole.filters["copies"]["tasks"]["copies"] == 0


def test_a_built_dataset_keeps_copies_in_one_split(tmp_path: Path) -> None:
    traces = corpus(30)
    for n in range(8):
        name = f"copy_{n}"
        made = attempt(name, random.Random(n), name=name, task=name, group=name)
        messages = tuple(user(reworded(_ISSUE.format("A"), n)) if m.role == "user" else m for m in made.messages)
        traces.append(msgspec.structs.replace(made, messages=messages))
    manifest = build(tmp_path, *traces, split=(0.4, 0.3, 0.3))
    found = [row for row in rows(tmp_path / "d", "proposer") if row["key"].startswith("copy_")]
    assert len({row["key"] for row in found}) == 8
    assert len({row["split"] for row in found}) == len({row["group"] for row in found}) == 1
    gate = next(gate for gate in manifest["gates"] if gate["name"] == "copies_disjoint")
    assert gate["verdict"] == "pass" and gate["figure"]["clusters"] >= 1
    assert "dedup" in manifest["settings"]


def test_the_gate_fails_where_copies_stand_in_two_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups are not merged as it was decided."""
    traces = corpus(30)
    for n in range(12):
        made = attempt(f"copy_{n}", random.Random(n), name="x", task=f"copy_{n}", group=f"copy_{n}")
        messages = tuple(user(_ISSUE.format("A")) if m.role == "user" else m for m in made.messages)
        traces.append(msgspec.structs.replace(made, messages=messages))
    monkeypatch.setattr("foretrace.dataset.trace_filters.merge_groups", lambda merges: {})
    with pytest.raises(GateError, match=r"copies_disjoint \(clusters \d, parted [1-9].*\), e.g. copy_"):
        build(tmp_path, *traces, split=(0.4, 0.3, 0.3))
    assert not (tmp_path / "d").exists()
