"""Benchmarks in traces: where a problem stands, what only looks so, and what is left out."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset.little import calls, corpus, examine, says, seen, system, trace, user
from foretrace.core.errors import UsageError
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace
from foretrace.dataset.build import build
from foretrace.dataset.filters.benchmark_sets import read_benchmarks, write_benchmarks
from foretrace.dataset.filters.benchmarks import BenchmarkFilter
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.trace_filters import TraceSelection, select_traces

STATEMENT = (
    "The gardener counts the trees along the avenue, and wants to know which of them are taller than both of "
    "their neighbors once the river has been moved to the east."
)
SOLUTION = (
    "tall = [h for before, h, behind in zip(trees, trees[1:], trees[2:]) if h > max(before, behind)]\nprint(tall)"
)
IDIOM = "if __name__ == '__main__':\n    import argparse\n    parser = argparse.ArgumentParser(description=__doc__)\n"


@pytest.fixture
def settings(tmp_path: Path) -> BuildSettings:
    rows = [{"id": "Garden/7", "statement": STATEMENT, "solution": SOLUTION}, {"id": "Garden/8", "solution": IDIOM}]
    (tmp_path / "garden.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return BuildSettings(decontaminate=(str(tmp_path / "garden.jsonl"),))


def select(settings: BuildSettings, *traces: Trace) -> TraceSelection:
    problems, _ = read_benchmarks(settings.decontaminate)
    with tempfile.TemporaryDirectory() as folder:
        filters = [BenchmarkFilter(settings, write_benchmarks(problems, Path(folder)))]
    return select_traces(filters, examine(traces, filters))


def list_copies(selection: TraceSelection) -> list[tuple[Any, ...]]:
    found = selection.filters["benchmarks"]["copies"]
    return [(c["trace"], c["problem"], c["field"], c["place"], c["message"]) for c in found]


def test_each_place_is_told(settings: BuildSettings) -> None:
    traces = [
        trace("a", system("Help."), user(f"Please: {STATEMENT}"), says("Yes.")),
        trace("b", user("Go."), calls("bash", {"command": "cat notes"}), seen(f"     1\t{SOLUTION}")),
        trace("c", user("Go."), calls("bash", {"command": f"python - <<E\n{SOLUTION}\nE"})),
        trace("d", user("Go."), says("Hm.", reasoning=STATEMENT)),
        trace("garden-7:sample", user("Go."), says("Done."), task="garden-7"),
        trace("f", user("Go."), says(f"{STATEMENT[:60]} {IDIOM[:40]}"), seen("Garden/7 and Garden/8")),
        trace("g", user("Solve Garden/8."), says("Done.")),
    ]
    selection = select(settings, *traces)
    assert list_copies(selection) == [
        ("a", "Garden/7", "statement", "prompt", 1),
        ("b", "Garden/7", "solution", "tool output", 2),
        ("c", "Garden/7", "solution", "agent", 1),
        ("d", "Garden/7", "statement", "agent", 1),
        ("g", "Garden/8", "id", "prompt", 0),
        ("garden-7:sample", "Garden/7", "id", "task", None),
    ]
    found = selection.filters["benchmarks"]
    assert set(selection.left_out) == {"a", "b", "c", "d", "g", "garden-7:sample"}
    assert found["by_source"] == {"little:train": {"garden": 6}}
    assert found["looked_for"]["garden"] | {"digest": ""} == {
        "problems": 2,
        "by": ["id", "statement", "solution"],
        "digest": "",
    }
    first = found["copies"][0]
    assert traces[0].messages[1].content[first["start"] : first["end"]] == STATEMENT[:-1]
    assert first["text"] == STATEMENT[:160].strip()


def test_reported_alone_where_that_is_asked_for(settings: BuildSettings) -> None:
    kept = msgspec.structs.replace(settings, keep_contaminated=True)
    selection = select(kept, trace("a", user(STATEMENT), says("Yes.")))
    assert not selection.left_out
    assert selection.filters["benchmarks"]["found_by_source"] == {"little:train": {"garden": 1}}
    with pytest.raises(UsageError, match="keep_contaminated is for decontaminate"):
        BuildSettings(keep_contaminated=True).check()


def test_without_a_setting_known_benchmarks_are_reported() -> None:
    ids = ("HumanEval/12", "mbpp/601", "django__django-11099", "django__django.1a2b.func_1", "HumanEval/164")
    selection = select(BuildSettings(), *(trace(n, user("Go."), says("Done."), task=n) for n in ids))
    found = selection.filters["benchmarks"]
    assert not selection.left_out
    assert {name: counts["traces"] for name, counts in found["found"].items()} == {"humaneval": 1, "mbpp": 1}
    assert "humaneval by id, statement, solution (164 problems); mbpp by id (974" in found["notes"][0]
    assert found["notes"][1] == "What is found of humaneval, mbpp is reported, and not left out."


def test_a_benchmark_that_no_trace_holds_is_named(settings: BuildSettings) -> None:
    notes = select(settings, trace("a", user("Go."), says("Done."))).filters["benchmarks"]["notes"]
    assert "garden by id, statement, solution (2 problems)" in notes[0]
    assert notes[2:] == ["garden: no trace holds a problem of it."]


def test_texts_of_humaneval_are_reported_by_every_build() -> None:
    rows = Path(__file__).parents[4] / "shared/data/problems/HumanEval.jsonl.gz"
    if not rows.is_file():
        pytest.skip("the rows of HumanEval are not at hand")
    problems = [each for each in read_benchmarks((f"humaneval={rows}",))[0] if int(each.id.partition("/")[2]) % 20 == 0]
    traces = [trace(f"{p.id}s", user(p.statement), says("Yes.")) for p in problems]
    traces += [trace(f"{p.id}c", user("Go."), calls("bash", {"command": p.solution})) for p in problems]
    selection = select(BuildSettings(), *traces)
    assert not selection.left_out
    found = {(trace, problem, field) for trace, problem, field, *_ in list_copies(selection)}
    assert {(f"{p.id}s", p.id, "statement") for p in problems} <= found
    long = [p for p in problems if len(p.solution.split()) >= 20]
    assert long and {(f"{p.id}c", p.id, "solution") for p in long} <= found


def test_what_many_tasks_share_is_no_copy(settings: BuildSettings) -> None:
    shared = STATEMENT[: len(STATEMENT) * 2 // 3]
    one = select(settings, trace("a", user(shared), says("Yes.")))
    assert set(one.left_out) == {"a"}
    many = [trace(f"k{n}", user(shared), says("Yes."), task=f"t{n}") for n in range(9)]
    selection = select(settings, *many)
    assert not selection.left_out
    assert set(select(settings, *many, trace("whole", user(STATEMENT), says("Yes."), task="u")).left_out) == {"whole"}


def test_the_best_of_many_hits_in_one_trace_are_kept(settings: BuildSettings, tmp_path: Path) -> None:
    texts = [" ".join(f"{noun}{n}" for noun in "abcdefghijklmnopqrstuvwxyz") for n in range(120)]
    (tmp_path / "many.jsonl").write_text("".join(json.dumps({"statement": text}) + "\n" for text in texts))
    both = msgspec.structs.replace(settings, decontaminate=(*settings.decontaminate, str(tmp_path / "many.jsonl")))
    weak = ". ".join(" ".join(text.split()[:13]) for text in texts)
    selection = select(both, trace("a", user("Go."), says(weak), says(STATEMENT)))
    assert ("a", "Garden/7", "statement", "agent", 2) in list_copies(selection)


def test_build_leaves_them_out_and_says_so(settings: BuildSettings, tmp_path: Path) -> None:
    traces = corpus(8)
    copied = msgspec.structs.replace(traces[0], messages=(user(STATEMENT), *traces[0].messages[2:]))
    write_traces([copied, *traces[1:]], tmp_path / "t")
    small = msgspec.structs.replace(settings, statistical_gates=False, outcomes="all", recipes=("trajectories",))
    manifest = build([tmp_path / "t"], tmp_path / "d", small).manifest
    assert manifest["filters"]["benchmarks"]["left_out"] == 1
    assert manifest["counts"]["traces"] == len(traces) - 1
    assert manifest["settings"]["decontaminate"] == ["garden"]
    assert str(tmp_path) not in (tmp_path / "d/manifest.json").read_text()
