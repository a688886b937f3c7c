"""The first rows of a file, for the sources of rows to recognise."""

from __future__ import annotations

from typing import Any

import jiter

from foretrace.rows.files import list_rows, remove_packing
from foretrace.rows.head import MAX_HEAD, FileHead

MAX_LOOKED_AT = 5
"""Rows that recognition looks at: a file may begin with a bad one."""


def list_first_rows(head: FileHead) -> list[dict[str, Any]]:
    """The first rows that a file of rows gives; of a document that is cut, what is there of them."""
    # A document may stand on one line, as a record does: its name says which, as it does when rows are read.
    is_alone = len(head.records) == 1 or not head.records
    is_document = is_alone and remove_packing(head.path.name).endswith(".json")
    if head.records and not is_document:
        return list(head.records[:MAX_LOOKED_AT])
    rows = list_rows(head.first) if head.first else []
    return [row for row in rows[:MAX_LOOKED_AT] if isinstance(row, dict)]


def read_list(value: Any) -> list[Any]:
    """A list, or one that is written as JSON text and may be cut; empty for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = jiter.from_json(value[:MAX_HEAD].encode(), partial_mode="trailing-strings", cache_mode="none")
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else []
