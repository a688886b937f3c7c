"""Every exact gate fails for real when what it guards is broken, names rows, and leaves what was there untouched."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dataset import little
from dataset.little import corpus, edit, files, runs, says, seen, system, trace, tree, user
from foretrace.api.datasets import build
from foretrace.core.errors import BuildError, GateError
from foretrace.core.message_columns import ChatText
from foretrace.core.store import write_traces
from foretrace.core.trace import ToolSpec
from foretrace.dataset import build as module
from foretrace.dataset import plan
from foretrace.dataset.exact_gates import check_shards
from foretrace.dataset.parquet import write_selected
from foretrace.dataset.prompts import Prompts
from foretrace.dataset.recipes import mirrored_pairs

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gates") / "traces"
    write_traces(corpus(10), folder)
    return folder


@pytest.fixture(scope="module")
def good(traces: Path) -> Path:
    """A dataset that passed."""
    build(traces, out=traces.parent / "good", statistical_gates=False)
    return traces.parent / "good"


@pytest.fixture
def fails(
    traces: Path, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Callable[[Path], None] | None], str]:
    """Build with `spoil` done to the files after they were written; the gate must fail, and nothing be left of it."""

    def check(gate: str, spoil: Callable[[Path], None] | None = None) -> str:
        out = tmp_path / "dataset"
        good_tree = tree(good)
        for path in good_tree:
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_bytes((good / path).read_bytes())

        def spoilt(job: Any, *built: Any) -> Any:
            if spoil is not None:
                spoil(Path(job.folder))
            return check_shards(job, *built)

        monkeypatch.setattr(module, "check_shards", spoilt)
        with pytest.raises(GateError) as caught:
            build(traces, out=out, overwrite=True, statistical_gates=False)
        assert caught.value.exit_code == 3
        assert f" {gate} " in str(caught.value)
        assert tree(out) == good_tree
        assert [p.name for p in tmp_path.iterdir()] == ["dataset"]
        return str(caught.value)

    return check


def test_good_dataset_passes_all_gates(good: Path) -> None:
    gates = json.loads((good / "manifest.json").read_text())["gates"]
    assert {g["name"]: g["verdict"] for g in gates if g["name"] != "shortcut"} == dict.fromkeys(
        ["groups_disjoint", "traces_disjoint", "prompts_disjoint", "copies_disjoint", "causality",
         "no_target_in_prompt", "context_length", "counts", "shortcut/redundancy", "repeats",
         "inputs_unchanged", "eval_checked", "unread_calls"], "pass",
    )  # fmt: skip


def test_large_builds_render_a_sample_again(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a row shows is still checked for every row."""
    assert [plan.find_rechecked_share(traces) for traces in (10, 1024, 100_000)] == [1.0, 0.25, 1 / 16]
    monkeypatch.setattr(plan, "RECHECKED_TRACES", 4)
    build(traces, out=tmp_path / "dataset", statistical_gates=False)
    figures = {g["name"]: g["figure"] for g in json.loads((tmp_path / "dataset/manifest.json").read_text())["gates"]}
    causality, shown = figures["causality"], figures["no_target_in_prompt"]
    assert 0 < causality["checked"] < causality["rows"] == shown["checked"]
    assert causality["broken"] == shown["broken"] == 0


def change_prompts(change: Callable[[Prompts, int, list[ChatText]], list[ChatText]]) -> Callable[[Any], None]:
    honest = Prompts.render
    return lambda patch: patch.setattr(Prompts, "render", lambda self, i: change(self, i, honest(self, i)))


def change_head(change: Callable[[Prompts, Any], None]) -> Callable[[Any], None]:
    """Something of the whole trace gets into what all of its prompts begin with."""
    honest = Prompts.__init__

    def peeks(self: Prompts, trace: Any, *arguments: Any) -> None:
        honest(self, trace, *arguments)
        change(self, trace)

    return lambda patch: patch.setattr(Prompts, "__init__", peeks)


def tell_outcome(self: Prompts, trace: Any) -> None:
    if trace.outcome.success:
        head = self._whole.head
        self._whole.head = head._replace(task=[head.task[0] + " ", *head.task[1:]])


RENDERERS: dict[str, Callable[[Any], None]] = {
    "reads the next message": change_prompts(
        lambda self, i, prompt: [*prompt, ChatText("user", self._messages[i].content[:3] or "(a call)")]
    ),
    "knows the outcome": change_head(tell_outcome),
    "knows how long the trace is": change_prompts(
        lambda self, i, prompt: [*prompt, ChatText("user", f"{len(self._messages)} messages")]
    ),
}


@pytest.mark.parametrize("how", RENDERERS)
def test_a_renderer_that_is_wrong(fails: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Causality fails and names rows by config, split, key and step."""
    RENDERERS[how](monkeypatch)
    told = fails("causality")
    assert "/train little/" in told or "/test little/" in told


def change_first(**values: Any) -> Callable[[Rows], Rows]:
    return lambda rows: [rows[0] | values, *rows[1:]]


def change_turn(at: int, name: str, make: Callable[[dict[str, Any]], str]) -> Callable[[Rows], Rows]:
    def change(rows: Rows) -> Rows:
        rows[0]["prompt"][at][name] = make(rows[0])
        return rows

    return change


def turn_round(rows: Rows) -> Rows:
    """Rows add up as before, and yet a completion is now rejected twice."""
    row = next(r for r in rows if r["family"] == "redundancy")
    row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    return rows


def lose_mirror(rows: Rows) -> Rows:
    lost = next(r for r in rows if r["family"] == "redundancy")
    return [r for r in rows if r is not lost]


FILES: dict[str, tuple[str, str, Callable[[Rows], Rows], str]] = {
    "another history": (
        "causality", "proposer", change_turn(-1, "content", lambda r: r["prompt"][-1]["content"] + "!"),
        "proposer/train little/",
    ),
    "a trace that is not there": ("causality", "proposer", change_first(key="invented"), "proposer/train invented"),
    "a second system message": ("causality", "proposer", change_turn(1, "role", lambda _: "system"), ""),
    "target text in a prompt": (
        "causality", "proposer",
        change_turn(1, "content", lambda r: r["prompt"][1]["content"] + r["completion"][0]["content"]), "",
    ),
    **{
        f"a lost row of {config}": ("counts", config, lambda rows: rows[1:], f"{config}: ")
        for config in ("proposer", "verifier", "verifier_unpaired", "trajectories", "eval")
    },
    "a lost mirror": ("shortcut/redundancy", "verifier", lose_mirror, "1 pairs have no mirror"),
    "a pair turned round": ("shortcut/redundancy", "verifier", turn_round, ""),
}  # fmt: skip
"""Gate, config, what is done to the rows of a file, and what is told."""


@pytest.mark.parametrize("how", FILES)
def test_a_file_that_is_wrong(fails: Any, how: str) -> None:
    gate, config, change, told = FILES[how]
    split = "candidates" if config == "eval" else "train"
    assert told in fails(gate, lambda folder: edit(files(folder, config, split)[0], change))


MARKER = '{"action":"file_read","tool":"bash"}'
LEAKY = {
    "in the history": trace("a", user("x"), runs("ls"), seen(f"see {MARKER}"), says("done")),
    "in the task": trace("a", user(f"answer like {MARKER}"), says("done")),
    "in the system text": trace("a", system(f"answer like {MARKER}"), user("x"), says("done")),
    "in a tool": trace("a", user("x"), says("done"), tools=(ToolSpec(name="t", description=MARKER),)),
}


@pytest.mark.parametrize("where", LEAKY)
def test_target_text_that_the_agent_worked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Such steps are dropped and counted; were they not, the gate would fail the build."""
    clean = trace("b", user("x"), runs("ls"), seen("y"), says("done"), task="other")
    manifest = little.build(tmp_path, LEAKY[where], clean)
    assert manifest["drops"]["proposer"] == {"target_text_in_prompt": 1}
    monkeypatch.setattr(Prompts, "has_target_before", lambda *_: False)
    with pytest.raises(GateError, match=r"no_target_in_prompt .*/train a"):
        build(tmp_path / "t", out=tmp_path / "e")


def test_a_prompt_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of too many messages is dropped and counted; were it not, the gate would fail the build."""
    short = trace("b", user("x"), runs("ls"), seen("y"), says("done"), task="other")
    long = trace("a", *[user("word " * 9)] * 600, runs("ls"), seen("y"), says("done"))
    manifest = little.build(tmp_path, long, short, max_context_tokens=2048)
    assert manifest["drops"]["proposer"] == {"prompt_too_long": 2}
    monkeypatch.setattr(Prompts, "has_room", lambda *_: True)
    with pytest.raises(GateError, match=r"context_length .*/train a"):
        build(tmp_path / "t", out=tmp_path / "e", max_context_tokens=2048)


def test_pairs_that_what_was_done_gives_away(fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs taken as they come: the later prompt shows its wrong answer as done."""
    monkeypatch.setattr(mirrored_pairs, "find_repeat_rule_sign", lambda at, wrong: 0)
    monkeypatch.setattr(mirrored_pairs, "_wait_for_other_order", lambda waiting, pair, quota: [pair])
    assert "type_swap 0." in fails("repeats")


@pytest.mark.parametrize("gate", ["groups_disjoint", "traces_disjoint", "prompts_disjoint"])
def test_rows_that_moved_to_another_split(fails: Any, gate: str) -> None:
    def move(folder: Path) -> None:
        moved: Rows = []

        def take(rows: Rows) -> Rows:
            moved.extend(r for r in rows if r["group"] == rows[0]["group"])
            return rows

        edit(files(folder, "proposer", "train")[0], take)
        edit(files(folder, "proposer", "test")[0], lambda rows: rows + moved)

    told = fails(gate, move)
    assert ("shared 6" if gate == "prompts_disjoint" else "shared 1") in told


def test_eval_rows_that_were_never_checked(fails: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the merge of the slices writes must be among the prompts that the gates read."""

    def change(rows: Rows) -> Rows:
        rows[0]["prompt"][-1]["content"] += "?"
        return rows

    def spoilt(config: Any, candidates: list[Path], *rest: Any) -> Any:
        honest = candidates[0].read_bytes()
        edit(candidates[0], change)
        try:
            return write_selected(config, candidates, *rest)
        finally:
            candidates[0].write_bytes(honest)

    monkeypatch.setattr(module, "write_selected", spoilt)
    fails("eval_checked")


@pytest.mark.parametrize("how", ["new group", "known group", "replaced"])
def test_traces_that_change_during_the_build(tmp_path: Path, how: str) -> None:
    """Added or replaced traces: the build fails, whatever part of it saw them."""
    every = corpus(6)
    write_traces(every, tmp_path / "t")
    group = "repo-999" if how == "new group" else every[0].task.group
    late = trace("late", user("x"), runs("ls"), seen("y"), says("z"), task=every[0].task.id, group=group)
    if how == "replaced":
        late = msgspec.structs.replace(late, key=every[0].key)

    def progress(doing: str, done: int, total: int | None) -> None:
        if doing.startswith("building") and not done:
            write_traces([late], tmp_path / "t", replace=True)

    with pytest.raises(BuildError, match=r"inputs_unchanged|came while building"):
        build(tmp_path / "t", out=tmp_path / "d", progress=progress)
    assert not (tmp_path / "d").exists()
