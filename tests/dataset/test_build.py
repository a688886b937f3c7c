"""What a build writes, held against the traces by other means than the gates."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import msgspec
import pytest

from dataset.little import CONFIGS, attempt, corpus, files, rows, says, user
from foretrace.actions.taxonomy import ActionType
from foretrace.api.datasets import build
from foretrace.core.store import read_traces, write_traces
from foretrace.core.trace import Trace
from foretrace.dataset.plan import assign_splits

IDENTITY = {"key", "step", "task", "group", "source", "license"}
Prompt = tuple[tuple[str, str], ...]
Found = dict[str, list[dict[str, Any]]]
"""Rows by config."""


@pytest.fixture(scope="module")
def traces(sample_traces: Path) -> dict[str, Trace]:
    return {t.key: t for t in read_traces(sample_traces)}


@pytest.fixture(scope="module")
def manifest(sample_dataset: Path) -> dict[str, Any]:
    return json.loads((sample_dataset / "manifest.json").read_text())


@pytest.fixture(scope="module")
def found(sample_dataset: Path) -> Found:
    """All rows of the sample dataset by config."""
    return {config: list(rows(sample_dataset, config)) for config in CONFIGS}


def prompt_of(row: dict[str, Any]) -> Prompt:
    return tuple((m["role"], m["content"]) for m in row["prompt"])


def test_every_config_loads_as_the_library_loads_it(sample_dataset: Path, manifest: Any, tmp_path: Path) -> None:
    """`load_dataset(folder, config)` gives the splits and rows of the manifest, actions as a ClassLabel of nine."""
    assert datasets.get_dataset_config_names(str(sample_dataset)) == list(CONFIGS)
    for config in CONFIGS:
        loaded = datasets.load_dataset(str(sample_dataset), config, cache_dir=str(tmp_path))
        assert {s: d.num_rows for s, d in loaded.items()} == {
            s: about["rows"] for s, about in manifest["configs"][config].items()
        }
        for part in loaded.values():
            assert set(part.column_names) >= IDENTITY
            assert all(part[0][name] != "" for name in IDENTITY)
            assert part.features["step"] == datasets.Value("int32")
            if "action" in part.features:
                assert part.features["action"] == datasets.ClassLabel(names=[str(a) for a in ActionType])
    assert list(loaded) == ["train", "validation", "test"]


def test_no_group_trace_or_prompt_stands_in_two_splits(found: Found) -> None:
    splits: dict[tuple[str, Any], set[str]] = {}
    for config in CONFIGS:
        for row in found[config]:
            for name in ("group", "key", "task"):
                splits.setdefault((name, row[name]), set()).add(row["split"])
            if "prompt" in row:
                splits.setdefault(("prompt", prompt_of(row)), set()).add(row["split"])
    assert {s for where in splits.values() for s in where} == {"train", "validation", "test"}
    assert not [what for what, where in splits.items() if len(where) > 1]


def test_pairs_are_right_and_wrong_answers_to_a_prompt_of_the_proposer(found: Found) -> None:
    """Same prompt and completion as the proposer's row of that step, and never rejected what a success did there."""
    proposed = {(r["key"], r["step"]): r for r in found["proposer"]}
    right: dict[Prompt, set[str]] = {}
    for row in found["proposer"]:
        right.setdefault(prompt_of(row), set()).add(row["completion"][0]["content"])
    for row in found["verifier"]:
        chosen, rejected = row["chosen"][0]["content"], row["rejected"][0]["content"]
        assert chosen != rejected
        assert chosen in right[prompt_of(row)]
        assert rejected not in right[prompt_of(row)]
        if own := proposed.get((row["key"], row["step"])):
            assert (own["prompt"], own["completion"], own["action"]) == (row["prompt"], row["chosen"], row["action"])
    assert {r["family"] for r in found["verifier"]} >= {"sibling", "redundancy"}


def test_unpaired_rows_are_the_pairs_again(found: Found) -> None:
    def identify(row: dict[str, Any], side: str, right: bool) -> tuple[Any, ...]:
        return row["pair"], row["key"], row["step"], row[side][0]["content"], right

    pairs = Counter(identify(r, n, n == "chosen") for r in found["verifier"] for n in ("chosen", "rejected"))
    assert Counter(identify(r, "completion", r["label"]) for r in found["verifier_unpaired"]) == pairs


def test_trajectories_are_whole_attempts_with_native_calls(found: Found, traces: dict[str, Trace]) -> None:
    """Arguments are objects, nothing is empty, and loss falls only on what the model itself wrote."""
    wanted = {k for k, t in traces.items() if t.outcome.success}
    assert {r["key"] for r in found["trajectories"]} == wanted
    for row in found["trajectories"]:
        trace = traces[row["key"]]
        assert len(row["messages"]) == len(trace.messages)
        named = {tool["function"]["name"] for tool in row["tools"]}
        trained = 0
        for message, original in zip(row["messages"], trace.messages, strict=True):
            assert message["role"] == original.role
            if message["trained"]:
                trained += 1
                assert original.role == "assistant" and original.author == "model" and original.train is not False
            assert all(value not in ("", None, []) for name, value in message.items() if name != "content")
            for call, own in zip(message.get("tool_calls", ()), original.tool_calls, strict=True):
                assert call["function"]["arguments"] == json.loads(own.arguments)
                assert call["function"]["name"] in named
        assert trained == row["steps"] > 0


def test_nothing_that_the_agent_did_not_write_is_a_target(sample_traces: Path, traces: Any, tmp_path: Path) -> None:
    """A turn that the source made up, or wrote when a limit was hit, is trained nowhere, even with all outcomes."""
    forbidden = {(k, i) for k, t in traces.items() for i, m in enumerate(t.messages) if m.train is False}
    assert any(t.outcome.fabricated for t in traces.values())
    assert any(t.outcome.status == "limit" for t in traces.values())
    assert forbidden
    build(sample_traces, out=tmp_path / "d", outcomes="all", statistical_gates=False)
    for config in ("proposer", "eval", "verifier"):
        assert not forbidden & {(r["key"], r["step"]) for r in rows(tmp_path / "d", config)}
    for row in rows(tmp_path / "d", "trajectories"):
        assert not any(m["trained"] for i, m in enumerate(row["messages"]) if (row["key"], i) in forbidden)


def test_eval_is_held_out(found: Found, traces: dict[str, Trace]) -> None:
    """Only test groups, with the call that was really made and the types of what came next."""
    test_groups = {r["group"] for c in CONFIGS if c != "eval" for r in found[c] if r["split"] == "test"}
    others = {r["group"] for c in CONFIGS for r in found[c] if r["split"] != "test"}
    steps = {(r["key"], r["step"]): r for r in found["proposer"]}
    assert found["eval"]
    for row in found["eval"]:
        assert row["split"] == "test" and row["group"] in test_groups - others
        assert row["natural"] or row["balanced"]
        assert row["next_actions"][0] == row["action"]
        native = traces[row["key"]].messages[row["step"]].tool_calls
        assert (row["tool"], row["arguments"]) == ((native[0].name, native[0].arguments) if native else ("", "{}"))
        if (row["key"], row["step"]) in steps:
            assert steps[row["key"], row["step"]]["completion"] == row["completion"]


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("little") / "traces"
    write_traces(corpus(12), folder)
    return folder


@pytest.mark.parametrize(("outcomes", "ends"), [("success", "0"), ("not_failed", "02"), ("all", "012")])
def test_outcomes_choose_whose_steps_are_targets(little: Path, tmp_path: Path, outcomes: str, ends: str) -> None:
    """Attempt 0 of each task was solved, 1 failed, 2 is unknown; sibling pairs need a success and a failure."""
    build(little, out=tmp_path / "d", outcomes=outcomes, statistical_gates=False)
    for config in ("proposer", "trajectories", "eval"):
        assert {r["key"][-1] for r in rows(tmp_path / "d", config)} == set(ends)


def test_failed_siblings_give_pairs_whatever_the_outcomes(tmp_path: Path) -> None:
    """An attempt that failed does not vouch for its own first step, even where its steps are targets too."""
    good, bad = (attempt(f"{success}", random.Random(1), name="one", success=success) for success in (True, False))
    bad = msgspec.structs.replace(bad, messages=(*bad.messages[:8], says("I give up.")))
    write_traces([good, bad], tmp_path / "t")
    for outcomes in ("success", "all"):
        report = build(tmp_path / "t", out=tmp_path / outcomes, outcomes=outcomes)
        assert report.manifest["families"]["sibling"] == 1


def test_target_settings(little: Path, tmp_path: Path) -> None:
    """type: only the type; call: type, tool and arguments; message: the agent's own words."""
    for target in ("type", "call", "message"):
        build(little, out=tmp_path / target, target=target, recipes=["proposer", "verifier"], statistical_gates=False)
        assert files(tmp_path / target, "verifier")
        found = {r["step"]: r for r in rows(tmp_path / target, "proposer") if r["key"] == "little/000/0"}
        first, last = (found[step]["completion"][0]["content"] for step in (2, 12))
        if target == "type":
            assert first == '{"action":"file_read"}'
        elif target == "call":
            assert first == '{"action":"file_read","tool":"bash","arguments":{"command":"ls src"}}'
            assert last == '{"action":"final_answer","tool":null,"arguments":{}}'
        else:
            assert first.startswith("Let me look.\n") and '"ls src"' in first and last.startswith("Fixed src/")


def test_a_prompt_of_two_groups_stays_in_the_held_out_split(tmp_path: Path) -> None:
    """Two repositories with the very same attempt: the copy in train is dropped and counted, and gates pass."""
    solved = [t for t in corpus(16) if t.outcome.success]
    probe = attempt("x", random.Random(3), name="twin")
    messages = tuple(user("Fix it.") if m.role == "user" else m for m in probe.messages)  # else they were copies
    probe = msgspec.structs.replace(probe, messages=messages)
    split, _ = assign_splits({t.task.group for t in solved}, (0.8, 0.1, 0.1), 0)
    in_test, in_train = (next(g for g in sorted(split) if split[g] == name) for name in ("test", "train"))
    for group in (in_test, in_train):
        task = msgspec.structs.replace(probe.task, id=f"twin of {group}", group=group)
        solved.append(msgspec.structs.replace(probe, key=f"twin of {group}", task=task))
    write_traces(solved, tmp_path / "t")
    report = build(tmp_path / "t", out=tmp_path / "d", statistical_gates=False)
    keys = {config: {r["key"] for r in rows(tmp_path / "d", config)} for config in CONFIGS}
    assert all(f"twin of {in_test}" in keys[config] for config in CONFIGS)
    assert not any(f"twin of {in_train}" in keys[config] for config in CONFIGS)
    assert report.manifest["drops"]["proposer"] == {"prompt_in_two_splits": 6}
    assert report.manifest["drops"]["trajectories"] == {"no_step": 1}
    assert all(gate["verdict"] == "pass" for gate in report.manifest["gates"] if gate["name"] != "shortcut")


def test_every_step_and_attempt_is_a_row_or_a_counted_drop(found: Found, manifest: Any, traces: Any) -> None:
    steps = sum(m.role == "assistant" for t in traces.values() for m in t.messages)
    drops = {config: sum(reasons.values()) for config, reasons in manifest["drops"].items()}
    assert manifest["counts"]["assistant_messages"] == steps == len(found["proposer"]) + drops["proposer"]
    assert manifest["counts"]["traces"] == len(traces) == len(found["trajectories"]) + drops["trajectories"]
    assert sum(manifest["families"].values()) == len(found["verifier"]) == len(found["verifier_unpaired"]) / 2
    split, _ = assign_splits({t.task.group for t in traces.values()}, (0.8, 0.1, 0.1), 0)
    test_groups = {group for group, name in split.items() if name == "test"}
    held_out = sum(m.role == "assistant" for t in traces.values() if t.task.group in test_groups for m in t.messages)
    assert len(found["eval"]) + drops["eval"] == held_out


def test_eval_size_limits_both_slices_and_a_split_with_few_groups_is_named(little: Path, tmp_path: Path) -> None:
    report = build(little, out=tmp_path / "d", eval_size=18, split=(0.2, 0.2, 0.6), statistical_gates=False)
    found = list(rows(tmp_path / "d", "eval"))
    assert sum(r["natural"] for r in found) == 18
    classes = Counter(r["action"] for r in found if r["balanced"])
    assert set(classes.values()) == {2} and len(classes) == 4
    left_out = report.manifest["drops"]["eval"]["in_no_slice"]
    assert left_out + len(found) == len(list(rows(tmp_path / "d", "proposer", "test")))
    (warning,) = (text for text in report.manifest["warnings"] if "figures on so few say little" in text)
    few = list(rows(tmp_path / "d", "proposer", "validation"))
    groups = len({row["group"] for row in few})
    assert f"validation has {len(few)} proposer rows of {groups} groups and test has " in warning
