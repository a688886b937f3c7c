"""Pairs: which wrong answers are taken, of which prompt, how many, and how sure."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dataset.little import build, calls, corpus, rows, runs, says, seen, trace, user
from foretrace.core.message_columns import ChatText
from foretrace.core.trace import Message, Task, Trace
from foretrace.dataset.recipes.base import Gate, RowGroup
from foretrace.dataset.recipes.verifier import MirrorCheck
from foretrace.dataset.settings import BuildSettings

Row = dict[str, Any]


def pairs(folder: Path, *traces: Trace, family: str, **settings: Any) -> list[Row]:
    build(folder, *traces, **settings)
    return [r for r in rows(folder / "d", "verifier") if r["family"] == family]


def said(row: Row, side: str) -> str:
    return row[side][0]["content"]


def attempt(key: str, *steps: Message, success: bool | None = True) -> Trace:
    """Each step is answered by the same words, so that histories differ by the steps alone."""
    answered = [m for step in steps for m in (step, seen("ok"))]
    return trace(key, user("Do it."), *answered, says("Done."), success=success)


def test_siblings_pair_what_a_success_and_a_failure_did_at_one_prompt(tmp_path: Path) -> None:
    found = pairs(
        tmp_path,
        attempt("good", runs("cat a.py"), runs("pytest")),
        attempt("bad", runs("cat a.py"), runs("rm a.py"), success=False),
        family="sibling",
    )
    assert [("pytest" in said(r, "chosen"), "rm a.py" in said(r, "rejected")) for r in found] == [(True, True)]
    assert (found[0]["key"], found[0]["step"], found[0]["strength"]) == ("good", 3, "weak")


def test_what_another_success_did_at_the_prompt_is_not_wrong_there(tmp_path: Path) -> None:
    """Two ways led to the end: a failed attempt that began in one of them gives no pair against the other."""
    found = pairs(
        tmp_path,
        attempt("good-1", runs("cat a.py")),
        attempt("good-2", runs("ls src")),
        attempt("bad-1", runs("ls  src"), runs("rm x"), success=False),
        attempt("bad-2", runs("rm y"), success=False),
        family="sibling",
    )
    assert {said(r, "rejected").split('"command":')[1] for r in found} >= {'"rm y"}}'}
    assert not [r for r in found if "ls " in said(r, "rejected") and r["step"] == 1]


def test_mirrored_pairs_leave_out_what_another_success_did(tmp_path: Path) -> None:
    """One attempt looks and then edits, another edits at once: neither is wrong first."""
    edit = runs("sed -i s/1/2/ a.py")

    def of_task(n: int, key: str, *steps: Message) -> Trace:
        return structs.replace(attempt(f"{key}-{n}", *steps), task=Task(id=f"t{n}", group="g"))

    looks = [of_task(n, "looks", runs("cat a.py"), edit) for n in range(8)]
    alone = pairs(tmp_path / "1", *looks, family="redundancy", recipes=["verifier"])
    both = pairs(tmp_path / "2", *looks, *(of_task(n, "edits", edit) for n in range(8)), family="redundancy")

    def first_prompt(found: list[Row]) -> set[str]:
        return {said(r, "rejected") for r in found if r["step"] == 1}

    assert any("sed" in text for text in first_prompt(alone))
    assert not any("sed" in text for text in first_prompt(both))


def test_reads_that_follow_one_another_may_come_in_any_order(tmp_path: Path) -> None:
    """No argument pair of two reads without anything but reads between them."""
    reads = (calls("view", {"path": "src/a.py"}), calls("view", {"path": "src/b.py"}))
    one = trace("a", user("See src/a.py and src/b.py."), reads[0], seen("1"), reads[1], seen("2"), says("Done."))
    assert not pairs(tmp_path / "1", one, family="argument")
    edits = (runs("sed -i s/1/2/ src/a.py"), runs("sed -i s/1/2/ src/b.py"))
    two = trace("a", user("Fix src/a.py and src/b.py."), edits[0], seen("1"), edits[1], seen("2"), says("Done."))
    assert not pairs(tmp_path / "2", two, family="argument")  # the second would be told by the first, which was made
    again = (edits[0], seen("1"), edits[1], seen("2"), edits[1], seen("3"))
    three = trace("a", user("Fix src/a.py and src/b.py."), *again, says("Done."))
    found = pairs(tmp_path / "3", three, family="argument")
    assert sorted(r["step"] for r in found) == [1, 5]


def reruns() -> list[Trace]:
    """Attempts that run and edit again and again, so that what was done before is as often right as wrong."""
    a, b, edit = runs("python a.py"), runs("python b.py"), runs("sed -i s/1/2/ a.py")
    steps = (a, edit, b, edit, b, edit, b)
    told = user("Run a.py and b.py.")
    return [
        trace(f"x{n}", told, *(m for step in steps for m in (step, seen(f"ok {n}"))), says("Done."), task=f"t{n}")
        for n in range(6)
    ]


def test_each_two_types_come_in_both_orders(tmp_path: Path) -> None:
    """Neither a type nor its place in the trace tells which answer is right."""
    found = pairs(tmp_path, *reruns(), family="type_swap")
    sides: dict[str, list[Row]] = {}
    for row in found:
        sides.setdefault(row["pair"], []).append(row)
    orders = Counter(tuple(r["action"] for r in sorted(rows, key=lambda r: r["step"])) for rows in sides.values())
    assert orders and all(orders[b, a] == n for (a, b), n in orders.items())


def test_argument_values_must_be_visible_in_the_prompt(tmp_path: Path) -> None:
    """A path that was never seen would be a wild guess: no pair."""
    edits = (runs("sed -i s/1/2/ src/a.py"), runs("sed -i s/1/2/ src/secret.py"))
    one = trace("a", user("Fix src/a.py."), edits[0], seen("1"), edits[1], seen("2"), says("Done."))
    assert not pairs(tmp_path, one, family="argument")


def test_pairs_limit_what_one_trace_gives(tmp_path: Path) -> None:
    """At most `pairs` rows of each family a trace; none at all with 0."""
    for most in (0, 2, 6):
        build(tmp_path / str(most), *corpus(6), pairs=most)
        counts = Counter((r["key"], r["family"]) for r in rows(tmp_path / str(most) / "d", "verifier"))
        assert max(counts.values(), default=0) <= most
        assert bool(counts) == bool(most)


def test_a_finish_before_the_last_change_is_strongly_wrong(tmp_path: Path) -> None:
    found = pairs(tmp_path, attempt("one", runs("sed -i s/1/2/ a.py"), runs("pytest")), family="redundancy", pairs=8)
    early = [r for r in found if "final_answer" in said(r, "rejected") and r["step"] == 1]
    assert all(r["strength"] == "strong" for r in early)
    assert all(r["strength"] == "weak" for r in found if "final_answer" in said(r, "chosen"))


def test_a_finish_before_code_that_is_run_again_may_be_right(tmp_path: Path) -> None:
    """Code that repairs its predecessor changes no file: the answer was perhaps known without it."""
    failed = seen("Traceback (most recent call last):\nZeroDivisionError: division by zero")
    cells = [calls("python", {"code": code}) for code in ("print(1 / 0)", "print(1 / 1)")]
    steps = (cells[0], failed, cells[1], seen("1.0"))
    found = pairs(tmp_path, trace("one", user("1 / 1?"), *steps, says("1")), family="redundancy", pairs=8)
    (early,) = [r for r in found if '"repair"' in said(r, "chosen")]
    assert "final_answer" in said(early, "rejected") and early["strength"] == "weak"


def test_pairs_of_types(tmp_path: Path) -> None:
    """Right and wrong type at a prompt; a type that any success took there is not wrong."""
    manifest = build(tmp_path, *corpus(), target="type")
    found = list(rows(tmp_path / "d", "verifier"))
    assert len(found) > 20 and "no_pairs_of_types" not in manifest["drops"].get("verifier", {})
    assert "repeats" not in [gate["name"] for gate in manifest["gates"]]
    right: dict[str, set[str]] = {}
    for row in rows(tmp_path / "d", "proposer"):
        right.setdefault(json.dumps(row["prompt"]), set()).add(said(row, "completion"))
    for row in found:
        assert said(row, "chosen") != said(row, "rejected") and row["strength"] == "weak"
        assert all(json.loads(said(row, side)).keys() == {"action"} for side in ("chosen", "rejected"))
        assert said(row, "rejected") not in right[json.dumps(row["prompt"])]
    mirrored = Counter((said(r, "chosen"), said(r, "rejected")) for r in found if r["family"] != "sibling")
    assert all(mirrored[wrong, chosen] == count for (chosen, wrong), count in mirrored.items())


MIRRORED = [("g", "a", "b"), ("g", "b", "a")]


def check(*jobs: list[tuple[str, str, str]], family: str = "argument", split: str = "train") -> dict[str, Gate]:
    """The gates over rows (group, chosen, rejected) of each job."""
    checks = []
    for job in jobs:
        one = MirrorCheck(BuildSettings())
        plain: dict[str, list[Any]] = {"family": [family] * len(job), "group": [row[0] for row in job]}
        sides = {
            name: [[ChatText("assistant", row[at])] for row in job] for at, name in ((1, "chosen"), (2, "rejected"))
        }
        one.add_rows(split, RowGroup({**plain, **sides}.__getitem__, lambda name: []))
        one.finish()
        checks.append(one)
    return {gate.name: gate for gate in MirrorCheck.make_gates(checks)}


def test_pairs_in_both_orders_pass_with_their_number() -> None:
    gates = check(MIRRORED * 2, [("h", "c", "a"), ("h", "a", "c")])
    assert {name: gate.verdict for name, gate in gates.items()} == {"shortcut/argument": "pass"}
    assert gates["shortcut/argument"].figure == {"accuracy": 0.5, "pairs": 6, "without_mirror": 0}


@pytest.mark.parametrize(
    ("rows", "alone"),
    [
        ([("g", "a", "b"), ("g", "b", "c"), ("g", "c", "a")], 3),
        ([("g", "a", "b"), ("h", "b", "a")], 2),
        ([*MIRRORED, *MIRRORED, ("g", "a", "b"), ("h", "b", "a")], 2),
    ],
    ids=["cycle", "other group", "beside mirrors"],
)
def test_balanced_completions_are_no_proof(rows: list[tuple[str, str, str]], alone: int) -> None:
    """A guesser with a fixed order of a, b and c is right in two of the three pairs of a cycle, though each is chosen
    as often as rejected; and one that knows the group wins where the mirror stands in another."""
    gates = check(rows)
    assert gates["shortcut/argument"].verdict == "fail"
    assert gates["shortcut/argument"].figure["without_mirror"] == alone
    assert gates["shortcut/argument"].rows[0].startswith("train g a")


def test_families_without_mirror_are_left_to_the_guessers() -> None:
    assert {*check([("g", "a", "b")], family="sibling")} == set()
