"""Look once more for secrets in what is about to leave: the files of a built dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from foretrace.clean.redact import Redactor
from foretrace.core.digest import digest

_BATCH_ROWS = 64
_MAX_KNOWN = 1 << 18
"""Digests of texts that were seen to be clean: prompts are shared by many rows."""
MAX_PLACES = 3


class SecretsLeft(NamedTuple):
    """What was found."""

    counts: Counter[str]
    """By type."""
    places: list[str]
    """The first places: file, key and step, never the secret."""

    def __str__(self) -> str:
        found = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return f"{found}; first in {'; '.join(self.places)}"


def find_secrets_left(files: Iterable[tuple[str, Path | bytes]], redactor: Redactor) -> SecretsLeft:
    """The secrets in files: Parquet files whose rows have a key and a step, files of lines, and texts.

    Raises:
        TooSlowError: a text takes too long to look through.
    """
    left = SecretsLeft(Counter(), [])
    known: set[str] = set()
    for name, content in files:
        for group in _read_groups(name, content):
            places: list[str] = []
            texts: list[str] = []
            for place, text in group:
                mark = digest(text, size=16)
                if mark not in known:
                    places.append(place)
                    texts.append(text)
                    if len(known) < _MAX_KNOWN:
                        known.add(mark)
            for number, types in redactor.count_types(texts).items():
                left.counts.update(types)
                if places[number] not in left.places and len(left.places) < MAX_PLACES:
                    left.places.append(places[number])
    return left


def _read_groups(name: str, content: Path | bytes) -> Iterator[list[tuple[str, str]]]:
    """Places and texts of a file, some at a time."""
    if isinstance(content, bytes):
        yield [(name, content.decode("utf-8", "replace"))]
        return
    if content.suffix != ".parquet":
        with content.open(encoding="utf-8", errors="replace") as lines:
            while batch := list(islice(lines, _BATCH_ROWS)):
                yield [(name, line) for line in batch]
        return
    import pyarrow.parquet as pq

    with pq.ParquetFile(content) as file:
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
            rows: list[dict[str, Any]] = batch.to_pylist()
            yield [(_name_place(name, row), text) for row in rows for text in _list_texts(row)]


def _name_place(name: str, row: dict[str, Any]) -> str:
    return f"{name} key {row.get('key')} step {row.get('step')}"


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _list_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _list_texts(each)
