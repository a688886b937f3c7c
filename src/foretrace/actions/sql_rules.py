"""Rules for SQL: whether a text is a query or changes data.

Shell clients, SQL tools and Python code all ask here.
"""

from __future__ import annotations

import re

_COMMENT = re.compile(r"\s*(?:--[^\n]*\n|/\*.*?\*/)", re.S)
_READS = re.compile(r"\s*\(*\s*(?:SELECT|PRAGMA|SHOW|DESCRIBE|DESC|EXPLAIN|WITH|VALUES|\.(?:tables|schema))\b", re.I)
_CHANGES = re.compile(
    r"\s*(?:INSERT\s+(?:INTO|OR)|UPDATE\s+\S+\s+SET|DELETE\s+FROM|(?:CREATE|DROP|ALTER|TRUNCATE)\s+"
    r"(?:TEMP\w*\s+|UNIQUE\s+|OR\s+REPLACE\s+)*(?:TABLE|INDEX|VIEW|DATABASE|TRIGGER|SCHEMA|USER)"
    r"|REPLACE\s+INTO|"
    r"MERGE\s+INTO|GRANT\s|REVOKE\s)",
    re.I,
)
_FULL_QUERY = re.compile(
    r"\s*\(*\s*(?:SELECT\b[\s\S]*?\bFROM\b|SELECT\s+[\w(*]|PRAGMA\s+\w+|SHOW\s+\w+|DESCRIBE\s+\w+"
    r"|WITH\s+\w+\s+AS)",
    re.I,
)


def is_read_only_sql(text: str) -> bool | None:
    """True for a query, false for a statement that changes data, `None` for what is no SQL."""
    head = text[:4000]
    while comment := _COMMENT.match(head):
        head = head[comment.end() :]
    if _CHANGES.match(head):
        return False
    return True if _READS.match(head) else None


def is_sql_query(text: str) -> bool:
    """Whether a string constant in code is surely an SQL query (`select` alone is an English word)."""
    return bool(_FULL_QUERY.match(text[:2000]))
