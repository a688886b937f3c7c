"""Copy a traces folder without its secrets, for traces written without redaction."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from foretrace.clean.redact import Redactor
from foretrace.core.errors import UsageError
from foretrace.core.manifest import Cursor
from foretrace.core.progress import ProgressFunc, ignore_progress
from foretrace.core.redactions import read_redactions
from foretrace.core.report import Report
from foretrace.core.store import TraceStore, TraceWriter
from foretrace.rows.base import Drop

_AT_ONCE = 32
"""Traces that are searched together."""
_CHECKPOINT_BYTES = 24 << 20


class ScrubReport(Report, msgspec.Struct, frozen=True, kw_only=True):
    """What `scrub` did: `traces == written + already_there + sum(drops)`."""

    traces: int
    written: int
    changed: int
    """Written traces that something was taken out of."""
    already_there: int
    redacted: dict[str, int]
    """What was taken out, by type."""
    drops: dict[str, int]
    out: str


def scrub(traces: Path, out: Path, redactor: Redactor, progress: ProgressFunc = ignore_progress) -> ScrubReport:
    """Write the traces of a folder without their secrets into the folder `out`; the same call again continues.

    Raises:
        UsageError: `out` is the folder itself.
        StoreError: one of the folders cannot be read or written.
    """
    if out.resolve() == traces.resolve():
        raise UsageError(f"{out}: is the input folder; choose another one for the output")
    store = TraceStore(traces)
    total = len(store.read_columns("key"))
    counts: Counter[str] = Counter()
    redacted: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    drops: Counter[str] = Counter()
    with TraceWriter(out, shards=None if out.exists() else store.manifest.shards) as writer:
        stream = store.read()
        while group := list(itertools.islice(stream, _AT_ONCE)):
            for before, after in zip(group, redactor.apply(group), strict=True):
                counts["traces"] += 1
                if isinstance(after, Drop):
                    drops[after.reason] += 1
                elif writer.add(after, replace=True) == "present":
                    counts["present"] += 1
                    stored.update(read_redactions(after))
                else:
                    stored.update(read_redactions(after))
                    found = Counter(read_redactions(after))
                    found.subtract(read_redactions(before))
                    redacted.update(+found)
                    counts["changed"] += bool(+found)
            if writer.waiting_bytes >= _CHECKPOINT_BYTES:
                writer.checkpoint()
            progress(f"scrubbing {traces}", counts["traces"], total)
        _take_over_facts(store, writer, drops, redactor)
        writer.manifest.redacted = dict(sorted(stored.items()))
        writer.checkpoint()
        writer.compact()
    return ScrubReport(
        traces=counts["traces"],
        written=counts["traces"] - counts["present"] - drops.total(),
        changed=counts["changed"],
        already_there=counts["present"],
        redacted=dict(sorted(redacted.items())),
        drops=dict(sorted(drops.items())),
        out=str(out),
    )


def _take_over_facts(store: TraceStore, writer: TraceWriter, drops: Counter[str], redactor: Redactor) -> None:
    """Copy to the new folder where its traces come from, and how far its inputs were read."""
    old, new = store.manifest, writer.manifest
    new.sources, new.counts, new.left_out = old.sources, old.counts, old.left_out
    # accounts quote types of records and ends of messages
    facts = redactor.redact_text(msgspec.json.encode((old.inputs, old.accounts)).decode())
    new.inputs, new.accounts = msgspec.json.decode(facts, type=tuple[dict[str, Cursor], dict[str, dict[str, Any]]])
    new.inputs = {name: msgspec.structs.replace(c, counts=_forget(c.counts)) for name, c in new.inputs.items()}
    new.accounts = {name: _forget(account) for name, account in new.accounts.items()}
    new.drops = dict(sorted((Counter(old.drops) + drops).items()))


def _forget(counts: dict[str, Any]) -> dict[str, Any]:
    """The counts without the number of unredacted traces."""
    return {name: value for name, value in counts.items() if name != "unredacted"}
