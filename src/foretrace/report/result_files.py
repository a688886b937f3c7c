"""What `score` and `replay` wrote as JSON, for the page of a dataset: figures, reliability, and the frontier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.errors import Setting, StoreError
from foretrace.evaluation.replay_report import ReplayReport
from foretrace.evaluation.score_report import ScoreReport

_MAX_BYTES = 64_000_000
_KINDS: dict[str, type[ScoreReport] | type[ReplayReport]] = {"score": ScoreReport, "replay": ReplayReport}


def is_result_file(path: Path) -> bool:
    """Whether a file is meant as one of these: one JSON document, where predictions are lines."""
    return path.suffix.lower() == ".json" and path.is_file()


def read_result_file(path: Path) -> dict[str, Any]:
    """The result in a file with its name and kind: `score` or `replay`.

    Raises:
        StoreError: it cannot be read, or is not a result.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise StoreError(f"{path}: is too large for a result of `score` or `replay`")
        value = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: is not JSON: {error}") from error
    for kind, record in _KINDS.items():
        try:
            found = msgspec.convert(value, record)
        except msgspec.ValidationError:
            continue
        return {"name": path.name, "kind": kind, "found": msgspec.to_builtins(found)}
    raise StoreError(
        f"{path}: is not a result of `score` or `replay`: have them write one with ", Setting("out", "FILE.json")
    )
