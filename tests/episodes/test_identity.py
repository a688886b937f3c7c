"""The key of an attempt: the same in each version, so that an old traces folder can be gone on with."""

from __future__ import annotations

import pytest

from foretrace.core.problem import Problem, Test
from foretrace.episodes.identity import Identity, make_key, make_run_name
from foretrace.episodes.settings import EpisodeSettings
from foretrace.registry import make_protocol

PROBLEM = Problem(
    id="sum",
    source="handmade",
    statement="Add two numbers.",
    entry_point="add",
    public_tests=(Test(code="assert add(1, 2) == 3"),),
)
IDENTITY = Identity(model="demo", sampling={"temperature": 0.7}, seed=7, sample=2)
SMALL_STEPS = EpisodeSettings(max_turns=4, hints=True, feedback="counts")


@pytest.mark.parametrize(
    ("protocol", "settings", "key"),
    [
        ("tools", EpisodeSettings(), "generated/handmade/sum/087a5dddc1bc9211/2"),
        ("tools", EpisodeSettings(structure_bonus=True), "generated/handmade/sum/0d5059446b561bfc/2"),
        ("interleaved_forced", SMALL_STEPS, "generated/handmade/sum/0cccf6b6aa57a956/2"),
    ],
)
def test_a_key_is_what_it_was_in_earlier_versions(protocol: str, settings: EpisodeSettings, key: str) -> None:
    """Keys of traces that were stored before `structure_bonus` and `interleaved_forced` had these names."""
    assert make_key(PROBLEM, make_protocol(protocol), IDENTITY, settings) == key


def test_the_name_of_a_run_is_what_it_was_in_earlier_versions() -> None:
    assert make_run_name(make_protocol("tools"), IDENTITY, EpisodeSettings(structure_bonus=True)) == "302c9076092b0c77"
