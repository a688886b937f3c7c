"""Shard jobs: what they keep merges to the same whatever the cut, and traces come once, siblings together."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dataset.little import corpus
from foretrace.actions.taxonomy import ActionType
from foretrace.core.message_columns import ChatText
from foretrace.core.store import TraceStore, write_traces
from foretrace.dataset.prompt_digests import digest_prompt, find_shared_prompts, merge_digests, pack_digests
from foretrace.dataset.recipes.base import Row
from foretrace.dataset.recipes.eval import EvalSlices
from foretrace.dataset.report import BuildCounts
from foretrace.dataset.settings import BuildSettings
from foretrace.dataset.shard_job import read_traces_once

ACTIONS = [str(a) for a in ActionType]


def eval_rows(count: int, rng: random.Random) -> list[Row]:
    """Candidates of classes that are common, rare, or absent."""
    weights = [2.0**-n for n in range(9)]
    names = rng.choices(ACTIONS, weights, k=count)
    return [Row("eval", f"k{n}", n % 7, "", {"action": name}) for n, name in enumerate(names)]


def chosen(slices: EvalSlices) -> list[tuple[str, int, bool, bool]]:
    return [(r.key, r.step, r.values["natural"], r.values["balanced"]) for r in slices.select(final=True)]


@given(st.integers(0, 400), st.integers(1, 5), st.sampled_from([0, 5, 9, 40, 250, 5000]), st.integers(0, 9))
def test_slices_of_parts_merge_to_the_slices_of_the_whole(count: int, parts: int, size: int, seed: int) -> None:
    """Rows dealt to any number of parts, in any order, end in the same two slices."""
    settings = BuildSettings(eval_size=size, seed=seed)
    rng = random.Random(count)
    rows = eval_rows(count, rng)
    whole, merged = EvalSlices(settings), EvalSlices(settings)
    for row in rows:
        whole.add(row)
    rng.shuffle(rows)
    for part in range(parts):
        own = EvalSlices(settings)
        for row in rows[part::parts]:
            own.add(row)
        for row in own.select(final=False):
            merged.add(row)
    assert chosen(merged) == chosen(whole)


def test_natural_slice_keeps_the_distribution_and_the_other_has_equal_classes() -> None:
    settings = BuildSettings(eval_size=900)
    slices = EvalSlices(settings)
    rows = eval_rows(6000, random.Random(1))
    for row in rows:
        slices.add(row)
    found = list(slices.select(final=True))
    natural = Counter(r.values["action"] for r in found if r.values["natural"])
    balanced = Counter(r.values["action"] for r in found if r.values["balanced"])
    whole = Counter(r.values["action"] for r in rows)
    assert natural.total() == 900
    assert all(abs(natural[a] / 900 - whole[a] / 6000) < 0.06 for a in ACTIONS)
    common = min(n for n in whole.values() if n >= 0.1 * 100)
    assert balanced == {a: min(n, common) for a, n in whole.items()}
    assert all(r.values["natural"] or r.values["balanced"] for r in found)


def test_traces_come_once_with_their_siblings_whatever_the_folder(tmp_path: Path) -> None:
    every = corpus(12)
    write_traces(every[::2], tmp_path / "a")
    write_traces([*every[1::2], *every[:8]], tmp_path / "b")
    shards = tuple(range(16))
    counted = BuildCounts()
    stores = [TraceStore(tmp_path / name) for name in ("a", "b")]
    merged = list(read_traces_once(stores, shards, counted))
    assert sorted(t.key for t in merged) == sorted(t.key for t in every)
    assert counted.duplicates == 4
    tasks = [t.task.id for t in merged]
    assert all(tasks[i] == tasks[i - 1] or tasks[i] not in tasks[:i] for i in range(1, len(tasks)))
    assert {t.key for s in stores[0].shards for t in read_traces_once(stores[:1], (s,))} == {t.key for t in every[::2]}


messages = st.lists(st.builds(ChatText, st.sampled_from(["user", "assistant"]), st.text(max_size=4)), max_size=4)


@given(messages, messages)
def test_prompts_have_one_digest_and_others_another(one: list[ChatText], other: list[ChatText]) -> None:
    assert (digest_prompt(one) == digest_prompt(other)) == (one == other)
    assert digest_prompt(one) == digest_prompt([ChatText(*m) for m in one])


@given(st.lists(st.sets(st.binary(min_size=8, max_size=8), max_size=6), min_size=3, max_size=3))
def test_a_prompt_of_two_splits_stays_in_the_most_held_out_one(sets: list[set[bytes]]) -> None:
    """Packed digests say the same as sets, whatever their bytes and however many jobs they came from."""
    train, validation, test = sets
    packed = [merge_digests([pack_digests(sorted(s)[::2]), pack_digests(sorted(s)[1::2])]) for s in sets]
    found = find_shared_prompts(dict(zip(("train", "validation", "test"), packed, strict=True)))
    both = dict.fromkeys(train & validation, "validation")
    assert found == both | dict.fromkeys((train | validation) & test, "test")
