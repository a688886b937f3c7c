"""The statistical gates of a build: families whose answers can be guessed without the prompt are removed and named."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

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
    standing: tuple[int | float | None, ...] = ()
    """Where both are guesses of a proposer: rank and confidence of the chosen one, then of the other."""


class HasPlace(Protocol):
    """A pair that a sample may take."""

    @property
    def place(self) -> str:
        """A hash that orders all pairs of the family: the first ones are the sample."""
        ...


_PairT = TypeVar("_PairT", bound=HasPlace)


class PairSample(Generic[_PairT]):
    """The first pairs of each family, in the order of their places."""

    def __init__(self, most: int = MAX_SAMPLED_PAIRS) -> None:
        self._most = most
        self._families: dict[str, list[tuple[str, int, _PairT]]] = {}
        """Pairs, each with its place and the number of its job."""
        self._last: dict[str, str] = {}
        """Of families that were cut: the place behind which no pair can be in the sample."""

    def wants(self, family: str, place: str) -> bool:
        """Whether a pair of this place may still be in the sample."""
        return family not in self._last or place <= self._last[family]

    def add(self, family: str, *pairs: _PairT, job: int = 0) -> None:
        """Take pairs of a shard job. Jobs may come in any order: where two pairs have the same place, the job with the
        lower number is first. The pairs of one job must come in the same order in every build."""
        sample = self._families.setdefault(family, [])
        sample.extend((pair.place, job, pair) for pair in pairs)
        if len(sample) > 1.25 * self._most:
            self._cut(family)

    def take(self) -> dict[str, list[_PairT]]:
        """The sample, by family."""
        for family in self._families:
            self._cut(family)
        return {family: [pair for *_, pair in sample] for family, sample in self._families.items()}

    def _cut(self, family: str) -> None:
        sample = self._families[family]
        sample.sort(key=itemgetter(0, 1))
        del sample[self._most :]
        if len(sample) == self._most:
            self._last[family] = sample[-1][0]


def make_statistical_gates(sample: Mapping[str, list[SampledPair]], seed: int) -> tuple[list[Gate], list[str]]:
    """One gate for each family and blind guesser, and the families that must go.

    A family with a shortcut does not fail the build: it is removed, and the gate says so.
    """
    families = {
        family: [Pair(*msgspec.structs.astuple(p)[1:]) for p in pairs] for family, pairs in sorted(sample.items())
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
    with TableWriter(path, config, seed) as writer:
        for values in read_rows(path, config):
            if values["family"] not in families:
                writer.add(config.make_row(values))
        rows = writer.close()
    if not rows:
        path.unlink()
    return rows
