"""The outcome of every record of a file: an import that cannot account for a record fails."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import msgspec

from foretrace.core.errors import ForetraceError
from foretrace.rows.base import Drop
from foretrace.rows.files import UNFINISHED_LINE

MAX_EXAMPLES = 3
"""Most rows of each kind that a report shows."""


class Counts(msgspec.Struct, kw_only=True):
    """Base of the classes that hold counts: numbers, counters by name, a few examples, or nested counts."""

    def add(self, other: Self) -> None:
        for name in self.__struct_fields__:
            own, more = getattr(self, name), getattr(other, name)
            if isinstance(own, Counts):
                own.add(more)
            elif isinstance(own, Counter):
                own.update(more)
            else:
                setattr(self, name, [*own, *more][:MAX_EXAMPLES] if isinstance(own, list) else own + more)

    def to_dict(self) -> dict[str, Any]:
        """The counts that are not zero, as plain data."""
        found = {name: value for name in self.__struct_fields__ if (value := getattr(self, name))}
        return {name: dict(sorted(v.items())) if isinstance(v, Counter) else v for name, v in found.items()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The counts from what `to_dict` returned."""
        return cls(**{name: Counter(value) if isinstance(value, dict) else value for name, value in data.items()})


class Account(Counts, kw_only=True):
    """Records of one or more inputs by outcome; `check` verifies the sum.

    A record is whatever the format calls one: a line of a session, a span, an event, a row.
    """

    records: int = 0
    """Records that were read."""
    used: int = 0
    """Records that became a message, a part of one, or a fact of the trace."""
    extra: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Records that the trace keeps in `extra`, by type."""
    ignored: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Records of a type that is known not to be part of the conversation, by type: progress, copies, bookkeeping."""
    unknown: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Records of a type that the reader does not know, by type: the format has changed."""
    dropped: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Records that cannot be read, by reason."""
    waiting: int = 0
    """Unfinished last lines of files that are still being written; they are read again when the file has grown."""
    notes: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Anything else a reader should know, as a phrase that follows a count: `results without a call`."""

    def use(self, count: int = 1) -> None:
        """Count records that the conversation needs."""
        self.records += count
        self.used += count

    def keep(self, kind: str) -> None:
        """Count a record that goes to `extra`."""
        self.records += 1
        self.extra[kind] += 1

    def ignore(self, kind: str, count: int = 1) -> None:
        """Count a record that is not part of the conversation."""
        if count:
            self.records += count
            self.ignored[kind] += count

    def meet_unknown(self, kind: object) -> None:
        """Count a record of an unknown type; `kind` may be anything that the file contains."""
        self.records += 1
        self.unknown[str(kind)[:80]] += 1

    def drop(self, reason: str) -> None:
        """Count a record that cannot be read, or a line that is not finished yet (`UNFINISHED_LINE`)."""
        self.records += 1
        if reason == UNFINISHED_LINE:
            self.waiting += 1
        else:
            self.dropped[reason] += 1

    def drop_unread(self, records: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The readable records of a file or list, with their positions; the others are counted."""
        for number, record in enumerate(records):
            if isinstance(record, dict):
                yield number, record
            else:
                self.drop(record.reason if isinstance(record, Drop) else "not_an_object")

    def note(self, what: str, count: int = 1) -> None:
        """Count something that is not a record."""
        if count:
            self.notes[what] += count

    def rename(self, rename: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """Rename the counted types and notes; a type may be any text of the file."""
        counters = (self.extra, self.ignored, self.unknown, self.notes)
        types = list(dict.fromkeys(itertools.chain(*counters)))
        names = dict(zip(types, rename(types), strict=True))
        for counter in counters:
            for old in [each for each in counter if names[each] != each]:
                counter[names[old]] += counter.pop(old)

    def describe_records(self, limit: int = 8) -> str:
        """The types of the records, most frequent first: `3 used, 2 of type progress`."""
        types = Counter(self.extra + self.ignored + self.unknown)
        shown = [f"{self.used:,} used"] if self.used else []
        shown += [f"{count:,} of type {kind}" for kind, count in types.most_common(limit)]
        shown += ["..."] if len(types) > limit else []
        shown += [f"{count:,} dropped for {reason}" for reason, count in sorted(self.dropped.items())]
        return ", ".join([*shown, *(["1 line without its end"] if self.waiting else [])]) or "none"

    def check(self) -> None:
        """Raise a ForetraceError if a record was counted twice, or not at all."""
        fates = sum(counter.total() for counter in (self.extra, self.ignored, self.unknown, self.dropped))
        fates += self.waiting
        if self.records != self.used + fates:
            raise ForetraceError(f"counts do not add up: {self.records} records, {self.used} used, {fates} others")
