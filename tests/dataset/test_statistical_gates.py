"""End to end: a pair family whose answers can be guessed without the prompt is removed and named; a clean one stays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from dataset.little import build, corpus, files, rows, runs, says, seen, trace, tree, user
from foretrace.core.trace import Trace
from foretrace.dataset import statistical_gates
from foretrace.dataset.report import BuildReport
from foretrace.dataset.statistical_gates import Pair, PairSample

GROUPS = 480
WORDS = ["alpha", "config", "parser", "index", "cache", "token", "stream", "buffer", "query", "schema", "model"]


def command(rng: random.Random) -> str:
    first, second, third = (rng.choice(WORDS) for _ in range(3))
    return rng.choice(
        [f"cat src/{first}/{second}.py", f"grep -n {first} src/{second}.py", f"sed -n {rng.randrange(99)}p {third}.c"]
    )


def test_a_sample_does_not_depend_on_which_job_ends_first() -> None:
    jobs = {n: [Pair(str(place), f"{n}.{place}", "g", "yes", "no") for place in range(4)] for n in range(5)}

    def take(order: Iterable[int]) -> dict[str, list[Pair]]:
        sample = PairSample[Pair](7)
        for number in order:
            sample.add("a", jobs[number])
        return sample.take()

    assert take(range(5)) == take(reversed(range(5))) == take([3, 0, 4, 1, 2])
    assert [pair.id for pair in take(range(5))["a"]] == ["0.0", "1.0", "2.0", "3.0", "4.0", "0.1", "1.1"]


def siblings(groups: int = GROUPS) -> list[Trace]:
    """A solved and a failed attempt a group that part at the first step, which is always longer in the failed one."""
    traces: list[Trace] = []
    for number in range(groups):
        rng = random.Random(f"siblings {number}")
        for success in (True, False):
            first = command(rng) + (" --verbose | tail" if not success else "")
            said = [user(f"Fix issue {number}."), runs(first), seen(f"{rng.random()}"), runs(command(rng)), seen("ok")]
            key = f"{number:04d}/{success}"
            traces.append(trace(key, *said, says("Done."), task=key[:4], group=key[:4], success=success))
    return traces


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    build(folder, *siblings(), recipes=["verifier"], statistical_gates=True)
    return folder / "d"


def test_a_family_with_a_planted_shortcut_is_removed_and_named(planted: Path) -> None:
    """No row of it is left; manifest and card say so, with the figure that told; its pairs are counted as drops."""
    manifest = json.loads((planted / "manifest.json").read_text())
    card = (planted / "README.md").read_text()
    found = {g["name"]: g for g in manifest["gates"] if g["name"].startswith("shortcut/sibling/")}
    assert set(found) >= {"shortcut/sibling/length", "shortcut/sibling/completion"}
    assert all(gate["verdict"] == "removed" and gate["figure"]["low"] > 0.9 for gate in found.values())
    told = "pair family sibling was removed: its answers can be guessed without the prompt"
    assert manifest["warnings"] == [told] and f"- {told}" in card
    assert "| shortcut/sibling/length | REMOVED |" in card and "sibling" not in manifest["families"]
    assert manifest["drops"]["verifier"]["sibling_family_removed"] > 450


def test_other_families_are_as_they_would_have_been(planted: Path) -> None:
    """What stays adds up in rows, files, gates and balance: the gates saw the files that were kept."""
    manifest = json.loads((planted / "manifest.json").read_text())
    pairs, single = (list(rows(planted, config)) for config in ("verifier", "verifier_unpaired"))
    assert {r["family"] for r in pairs} == {r["family"] for r in single} == set(manifest["families"])
    assert "sibling" not in manifest["families"] and len(single) == 2 * len(pairs) > 100
    assert sum(manifest["families"].values()) == sum(manifest["strengths"].values()) == len(pairs)
    assert sum(manifest["prompt_tokens"]["verifier"]) == len(pairs)
    gates = {g["name"]: g for g in manifest["gates"]}
    assert gates["counts"]["figure"]["rows"] == len(pairs) + len(single)
    assert sum(gates[f"shortcut/{family}"]["figure"]["pairs"] for family in manifest["families"]) == len(pairs)
    listed = {f for config in manifest["configs"].values() for about in config.values() for f in about["files"]}
    assert listed == {name for name in tree(planted) if name.endswith(".parquet")}
    assert listed == {p.relative_to(planted).as_posix() for c in manifest["configs"] for p in files(planted, c)}
    for config, about in manifest["configs"].items():
        for split, held in about.items():
            assert held["rows"] == len(list(rows(planted, config, split)))


def test_a_mirrored_family_is_proved_and_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pairs or many, its gate passes by its balance: no guesser is asked, and nothing is left to allow."""
    monkeypatch.setattr(statistical_gates, "_measure_guesser", lambda *_: pytest.fail("a guesser was fitted"))
    manifest = build(tmp_path, *corpus(6), statistical_gates=True)
    (gate,) = [g for g in manifest["gates"] if g["name"].startswith("shortcut")]
    pairs = manifest["families"]["redundancy"]
    assert (gate["name"], gate["verdict"]) == ("shortcut/redundancy", "pass")
    assert gate["figure"] == {"accuracy": 0.5, "pairs": pairs, "without_mirror": 0}
    assert BuildReport(manifest).undecided == []
    told = f"| shortcut/redundancy | PASS | .500 exactly, n={pairs}, each in both orders |"
    assert told in (tmp_path / "d" / "README.md").read_text()


def test_too_few_pairs_are_undecided_and_reported(tmp_path: Path) -> None:
    manifest = build(tmp_path, *siblings(10), recipes=["verifier"], statistical_gates=True)
    assert "shortcut/sibling/length" in BuildReport(manifest).undecided
    assert manifest["families"]["sibling"] == 10
    assert "UNDECIDED at n=10" in (tmp_path / "d" / "README.md").read_text()


def test_gates_can_be_left_out_but_not_unsaid(tmp_path: Path) -> None:
    """Nothing was measured, so nothing was decided; what needs no measuring is proved all the same."""
    manifest = build(tmp_path, *siblings(10), recipes=["verifier"])
    assert BuildReport(manifest).undecided == ["shortcut"]
    assert [g["name"] for g in manifest["gates"] if g["name"].startswith("shortcut/")] == ["shortcut/redundancy"]
    assert manifest["difficulty"] == {}
