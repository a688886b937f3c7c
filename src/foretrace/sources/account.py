"""What became of every record of a file: an import that cannot say it does not count as done."""

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
"""Rows that a report shows of each kind."""


class Counts(msgspec.Struct, kw_only=True):
    """Base of records of counts: numbers, counters by name, a few examples, or further counts."""

    def add(self, other: Self) -> None:
        """Take over the counts of another."""
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
        """What `to_dict` gave."""
        return cls(**{name: Counter(value) if isinstance(value, dict) else value for name, value in data.items()})


class Account(Counts, kw_only=True):
    """Records of one or more inputs by what became of each; `check` holds the sum.

    A record is what the format calls one: a line of a session, a span, an event, a row.
    """

    records: int = 0
    """Records that were read."""
    used: int = 0
    """Those that became a message, a part of one, or a fact of the trace."""
    extra: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Those that the trace keeps in `extra`, by type."""
    ignored: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Those of a type that is known to be no part of the conversation, by type: progress, copies, bookkeeping."""
    unknown: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Those of a type that the format's reader has never heard of, by type: the format has moved on."""
    dropped: Counter[str] = msgspec.field(default_factory=Counter[str])
    """Those that cannot be read, by reason."""
    waiting: int = 0
    """Last lines without their end: of a file that is still being written, and is read again when it has grown."""
    notes: Counter[str] = msgspec.field(default_factory=Counter[str])
    """What else a reader should know, as a phrase that follows a count: `results without a call`."""

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
        self.records += count
        self.ignored[kind] += count

    def meet_unknown(self, kind: object) -> None:
        """Count a record of a type that is not known; `kind` may be anything that the file holds."""
        self.records += 1
        self.unknown[str(kind)[:80]] += 1

    def drop(self, reason: str) -> None:
        """Count a record that cannot be read, or that waits for its end (`UNFINISHED_LINE`)."""
        self.records += 1
        if reason == UNFINISHED_LINE:
            self.waiting += 1
        else:
            self.dropped[reason] += 1

    def drop_unread(self, records: Iterable[dict[str, Any] | Drop]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The records of a file that could be read, with their places; the others are counted."""
        for number, record in enumerate(records):
            if isinstance(record, Drop):
                self.drop(record.reason)
            else:
                yield number, record

    def note(self, what: str, count: int = 1) -> None:
        """Count something that is not a record."""
        if count:
            self.notes[what] += count

    def rename(self, rename: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """Count types under other names; a type may be any text of the file."""
        counters = (self.extra, self.ignored, self.unknown, self.notes)
        types = list(dict.fromkeys(itertools.chain(*counters)))
        names = dict(zip(types, rename(types), strict=True))
        for counter in counters:
            for old in [each for each in counter if names[each] != each]:
                counter[names[old]] += counter.pop(old)

    def describe_records(self, limit: int = 8) -> str:
        """The types of records that were met, the most frequent first: `3 used, 2 of type progress`."""
        types = Counter(self.extra + self.ignored + self.unknown)
        shown = [f"{self.used:,} used"] if self.used else []
        shown += [f"{count:,} of type {kind}" for kind, count in types.most_common(limit)]
        shown += ["..."] if len(types) > limit else []
        shown += [f"{count:,} dropped for {reason}" for reason, count in sorted(self.dropped.items())]
        return ", ".join([*shown, *(["1 line without its end"] if self.waiting else [])]) or "none"

    def check(self) -> None:
        """Refuse counts that do not add up.

        Raises:
            ForetraceError: a record was counted twice, or not at all.
        """
        fates = sum(counter.total() for counter in (self.extra, self.ignored, self.unknown, self.dropped))
        fates += self.waiting
        if self.records != self.used + fates:
            raise ForetraceError(f"counts do not add up: {self.records} records, {self.used} used, {fates} others")
