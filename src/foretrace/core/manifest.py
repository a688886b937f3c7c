"""The manifest of a traces folder: which segments belong to it, and how far each input was read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import StoreError
from foretrace.core.segments import Segment
from foretrace.core.trace import SCHEMA_VERSION

SHARDS = 16
_SEGMENT = re.compile(r"shard-\d{2,4}/\d{6,}\.parquet")


class Cursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far one input was read."""

    label: str
    source: str
    rows: int
    """Rows (or conversations of a session file) accounted for: traces, drops, and those that were already there."""
    drops: dict[str, int] = {}
    done: bool = False
    limit: int | None = None
    """Number of rows that a source scanned before it converted the first; `None` for all rows, or for a source that
    does not scan."""
    fingerprint: str = ""
    """For a file or folder of conversations: its state when it was read. Empty for rows, whose key contains it."""
    since: str = ""
    """The date before which conversations were left out; empty if none was set."""
    account: dict[str, Any] = {}
    """For a file or folder of conversations: what happened to its records (`sources.account`)."""
    counts: dict[str, Any] = {}
    """Turns, calls, results and times of its traces (`sources.report.TraceCounts`)."""


class Manifest(msgspec.Struct, kw_only=True):
    """The content of a traces folder."""

    schema_version: int = SCHEMA_VERSION
    shards: int = SHARDS
    segments: list[Segment] = []
    inputs: dict[str, Cursor] = {}
    sources: dict[str, dict[str, str | None]] = {}
    """Revision, split and license, by `source@revision/split`."""
    counts: dict[str, int] = {}
    drops: dict[str, int] = {}
    accounts: dict[str, dict[str, Any]] = {}
    """The inputs' accounts and counts, added up by source."""
    redacted: dict[str, int] = {}
    """Secrets removed from a generated or scrubbed folder, counted by type. For imports, see `accounts`."""
    left_out: dict[str, dict[str, list[int]]] = {}
    """Keys of generated attempts that finished but were not kept, by reason (see `journal.group_keys`)."""


def read_manifest(folder: Path) -> Manifest:
    path = folder / "manifest.json"
    if not folder.exists():
        raise StoreError(f"{folder}: no such folder; import or generate traces into it first")
    if folder.is_file():
        raise StoreError(f"{folder}: is a file; give the traces folder")
    try:
        data = path.read_bytes()
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if {"configs", "gates"} <= fields.keys():
            raise StoreError(f"{folder}: is a dataset, not a traces folder")
        manifest = msgspec.json.decode(data, type=Manifest)
    except FileNotFoundError:
        raise StoreError(f"{folder}: is not a traces folder (it has no manifest.json)") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot read: {error.strerror or error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{path}: is damaged or is not the manifest of a traces folder: {error}") from error
    if manifest.schema_version != SCHEMA_VERSION:
        raise StoreError(f"{path}: schema version {manifest.schema_version}, this foretrace reads {SCHEMA_VERSION}")
    if strange := [s.path for s in manifest.segments if not _SEGMENT.fullmatch(s.path)]:
        raise StoreError(f"{path}: damaged: lists {strange[0]!r}, which is not a segment")
    return manifest
