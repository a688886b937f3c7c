"""The statistical gates of a build: families whose answers can be guessed without the prompt are removed and named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import attrgetter
from pathlib import Path

import msgspec

from foretrace.core.files import make_partial_name
from foretrace.dataset.blind_guessers import Pair, describe_shortcut, find_shortcuts
from foretrace.dataset.gate import Gate
from foretrace.dataset.parquet import TableWriter, read_rows
from foretrace.dataset.recipes.base import Config

MAX_SAMPLED_PAIRS = 1000
"""Pairs of each family that the statistical gates look at."""


class SampledPair(msgspec.Struct, frozen=True, array_like=True):
    """One pair as the statistical gates see it."""

    place: str
    """A hash that orders all pairs of the family: the first ones are the sample."""
    pair: str
    group: str
    chosen: str
    rejected: str


class PairSample:
    """The first `MAX_SAMPLED_PAIRS` pairs of each family, in the order of their places."""

    def __init__(self) -> None:
        self._families: dict[str, list[SampledPair]] = {}

    def add(self, family: str, *pairs: SampledPair) -> None:
        """Take pairs. Pairs with the same place must come in the same order in every build."""
        sample = self._families.setdefault(family, [])
        sample.extend(pairs)
        if len(sample) > 2 * MAX_SAMPLED_PAIRS:
            self._cut(sample)

    def take(self) -> dict[str, list[SampledPair]]:
        """The sample, by family."""
        for sample in self._families.values():
            self._cut(sample)
        return self._families

    def _cut(self, sample: list[SampledPair]) -> None:
        sample.sort(key=attrgetter("place"))
        del sample[MAX_SAMPLED_PAIRS:]


def make_statistical_gates(sample: Mapping[str, list[SampledPair]], seed: int) -> tuple[list[Gate], list[str]]:
    """One gate for each family and blind guesser, and the families that must go.

    A family with a shortcut does not fail the build: it is removed, and the gate says so.
    """
    families = {
        family: [Pair(p.pair, p.group, p.chosen, p.rejected) for p in pairs] for family, pairs in sorted(sample.items())
    }
    gates: list[Gate] = []
    removed: set[str] = set()
    for shortcut in find_shortcuts(families, seed=seed):
        figure = {
            "accuracy": shortcut.accuracy,
            "low": shortcut.low,
            "high": shortcut.high,
            "n": shortcut.n_test,
            "pairs": shortcut.n_pairs,
            "groups": shortcut.groups,
        }
        if shortcut.verdict == "fail":
            removed.add(shortcut.family)
        gates.append(
            Gate(
                name=f"shortcut/{shortcut.family}/{shortcut.guesser}",
                verdict="removed" if shortcut.verdict == "fail" else shortcut.verdict,
                figure=figure,
                detail=describe_shortcut(shortcut),
            )
        )
    return [g for g in gates if g.verdict != "undecided" or g.name.split("/")[1] not in removed], sorted(removed)


def remove_families(path: Path, config: Config, families: Collection[str], seed: int) -> int:
    """Rewrite a file of pairs without some families, and return how many rows stay; where none stays, the file is
    removed."""
    partial = make_partial_name(path)
    with TableWriter(partial, config, seed) as writer:
        for values in read_rows(path, config):
            if values["family"] not in families:
                writer.add(config.make_row(values))
        rows = writer.close()
    path.unlink()
    if rows:
        partial.rename(path)
    return rows
