"""Nothing that a session's file says is lost: it is in the trace, or its record or field is named in the account."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.formats.reading import SHARED, needs_shared

from foretrace.core import plugins
from foretrace.core.trace import Trace, encode_trace
from foretrace.sources.account import Account

_NAMES = {"type", "role", "kind", "subtype", "record_type", "item_type", "from"}
"""Fields whose values say what a record is: a record of an unknown type is named in the account as a whole."""
_SOURCES = {
    "claude_code": "claude_code", "codex": "codex", "cursor": "cursor", "gemini": "gemini_cli", "hermes": "hermes",
    "opencode": "opencode", "openhands_v1": "openhands", "pi": "pi",
}  # fmt: skip


class _File(NamedTuple):
    """An input with its records: a line, a document, or the files of a folder."""

    source: str
    path: Path


def _list_files() -> list[_File]:
    found: list[_File] = []
    for folder, source in _SOURCES.items():
        for place in (SHARED / "sessions" / folder, SHARED / "formats" / folder):
            inputs = (
                sorted(place.iterdir() if source == "opencode" else place.rglob("*.json*")) if place.is_dir() else []
            )
            found += [_File(source, path) for path in inputs if not path.name.endswith(".meta.json")]
    return found


FILES = _list_files()


class _Marks:
    """Makes every value of a record one that stands nowhere else, or leaves it as it is."""

    def __init__(self, random: Random, share: float) -> None:
        self._random = random
        self._share = share
        self.fields: list[dict[str, str]] = []
        """By mark: the name of its field, for each record."""
        self.kinds: list[set[str]] = []
        """What each record says that it is."""

    def mark_record(self, record: Any) -> Any:
        self.fields.append({})
        self.kinds.append({str(record[name]) for name in _NAMES & record.keys()} if isinstance(record, dict) else set())
        return self._mark(record, "")

    def _mark(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            marked = {key: self._mark(item, key) for key, item in value.items()}
            return marked if self._random.random() >= self._share else {**marked, "unheardOf": self._make("unheardOf")}
        if isinstance(value, list):
            return [self._mark(item, name) for item in value]
        if isinstance(value, str) and value and name not in _NAMES and self._random.random() < self._share:
            return value + self._make(name)
        if type(value) in (int, float) and self._random.random() < self._share:
            return int(self._make(name)[5:])
        return value

    def _make(self, name: str) -> str:
        mark = f"mark-{7_000_001 + sum(map(len, self.fields)):d}"
        self.fields[-1][mark] = name
        return mark


def _write(file: _File, out: Path, change: Callable[[Any], Any]) -> Path:
    """The input with every record changed."""
    if file.path.is_dir():
        for path in sorted(p for p in file.path.rglob("*") if p.is_file()):
            place = out / path.relative_to(file.path)
            place.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            place.write_text(json.dumps(change(json.loads(text))) if path.suffix == ".json" else text)
        return out
    out.mkdir(parents=True, exist_ok=True)
    place = out / file.path.name
    text = file.path.read_text()
    if file.path.suffix == ".json":
        document = json.loads(text)
        messages = [change(message) for message in document.pop("messages", [])]
        place.write_text(json.dumps({**change(document), "messages": messages}))
        return place
    lines: list[str] = []
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        lines.append(json.dumps(change(record)) if isinstance(record, dict) else line)
    place.write_text("\n".join(lines) + "\n")
    return place


def _read(file: _File, path: Path) -> tuple[str, Account, bool]:
    """All traces as one text, the account, and whether no conversation was dropped."""
    account = Account()
    found = list(plugins.load_plugin("source", file.source)().read_traces(path, account))
    account.check()
    traces = [each for each in found if isinstance(each, Trace)]
    return "".join(encode_trace(trace).decode() for trace in traces), account, len(traces) == len(found)


def _check(file: _File, out: Path, random: Random, share: float, change: Callable[[Any], Any] = lambda r: r) -> None:
    marks = _Marks(random, share)
    text, account, is_whole = _read(file, _write(file, out, lambda record: marks.mark_record(change(record))))
    if not is_whole:
        return
    named = {note.rpartition(": ")[2] for note in account.notes}
    lost = [
        {name for mark, name in fields.items() if mark[5:] not in text and name[:40] not in named}
        for fields in marks.fields
    ]
    # A record that is not used loses most of its fields, and a used one none of them. A trace may hold the id or the
    # time of a record that the account names as ignored.
    ignored = account.ignored.keys() | account.unknown.keys()
    few = [
        names
        for names, own, kinds in zip(lost, marks.fields, marks.kinds, strict=True)
        if 0 < len(names) < len(set(own.values())) / 2 and not kinds & ignored
    ]
    assert not few, (account.to_dict(), few)
    unused = account.records - account.used - account.extra.total()
    assert sum(map(bool, lost)) <= unused, (account.to_dict(), [names for names in lost if names])


@needs_shared
@pytest.mark.parametrize("file", FILES, ids=lambda f: f"{f.source}-{f.path.name}")
def test_every_value_is_in_the_trace_or_named_in_the_account(file: _File, tmp_path: Path) -> None:
    _check(file, tmp_path, Random(0), 1.0)


@pytest.mark.slow
@needs_shared
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 10_000), random=st.randoms(use_true_random=False))
def test_no_change_to_a_record_loses_a_value(
    number: int, random: Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Fields that are gone, have another name, or hold something else; types that nobody knows."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(item) for item in value]
        if not isinstance(value, dict):
            return value
        changed: dict[str, Any] = {}
        for name, item in value.items():
            what = random.random()
            if what < 0.94:
                changed[name] = change(item)
            elif what < 0.96:
                changed[name + "_new"] = item
            elif what < 0.98:
                changed[name] = random.choice([None, "text", 3, [], {}, [{"type": "new", "inner": item}], {"in": item}])
        return changed

    _check(FILES[number % len(FILES)], tmp_path_factory.mktemp("changed"), random, 0.5, change)
