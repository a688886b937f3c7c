"""Rules for SQL: whether a text is a query or changes data. Used for shell clients, SQL tools and Python code."""

from __future__ import annotations

import re

from foretrace.actions.call_facts import split_words

_FIRST_COMMENTS = re.compile(r"\A(?:\s*(?:--[^\n]*\n|/\*.*?\*/))*+", re.S)
_NO_CODE = re.compile(r"""'[^']*(?:'|\Z)|"[^"]*(?:"|\Z)|`[^`]*(?:`|\Z)|--[^\n]*|/\*(?:.*?\*/|.*)""", re.S)
"""Literals, quoted names and comments: their contents are not statements."""
_READS = re.compile(r"\s*\(*\s*(?:SELECT|PRAGMA|SHOW|DESCRIBE|DESC|EXPLAIN|WITH|VALUES|\.(?:tables|schema))\b", re.I)
_CHANGES = re.compile(
    r"\s*(?:INSERT\s+(?:INTO|OR)|UPDATE\s+\S+\s+SET|DELETE\s+FROM|(?:CREATE|DROP|ALTER|TRUNCATE)\s+(?:TEMP\w*\s+"
    r"|UNIQUE\s+|OR\s+REPLACE\s+)*(?:TABLE|INDEX|VIEW|DATABASE|TRIGGER|SCHEMA|USER)|REPLACE\s+INTO|MERGE\s+INTO"
    r"|GRANT\s|REVOKE\s)",
    re.I,
)
_CHANGES_INSIDE = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE\s+(?:ONLY\s+)?\S+\s+(?:AS\s+)?(?:\w+\s+)?SET|DELETE\s+FROM|REPLACE\s+INTO|MERGE\s+INTO"
    r"|INTO\s+(?:OUTFILE|DUMPFILE|TEMP\w*|TABLE)\b)|\A\s*PRAGMA\s+[\w.]+\s*="
    r"|\A[^\w]*(?:SELECT|WITH)\b[\s\S]*?\bINTO\s+(?!@)[\w\"'`\[#]"
    r"|\A\s*PRAGMA\s+(?:\w+\.)?(?:wal_checkpoint|optimize|incremental_vacuum)\b"
    r"|\A\s*PRAGMA\s+(?:\w+\.)?(?!(?:table_\w+|index_\w+|foreign_key_\w+|\w+_check|\w+_list)\b)\w+\s*\(",
    re.I,
)
"""What changes data in a statement that begins like a query, after WITH or EXPLAIN ANALYZE."""
_CHANGES_NEXT = re.compile(
    r"\s*(?:INSERT|UPDATE|DELETE|REPLACE|MERGE|CREATE|DROP|ALTER|TRUNCATE|RENAME|GRANT|REVOKE|CALL|DO|EXEC|EXECUTE"
    r"|VACUUM|REINDEX|ATTACH|COPY|LOAD|LOCK|KILL|FLUSH|OPTIMIZE|REFRESH|COMMENT|NOTIFY|CLUSTER|IMPORT|EXPORT|INSTALL"
    r"|SET\s+GLOBAL|SET\s+PERSIST|SHUTDOWN|CHECKPOINT|REASSIGN)\s|\s*(?:VACUUM|REINDEX)\s*\Z",
    re.I,
)
"""The beginning of a statement after a query that changes something."""
_CALLED = re.compile(
    r"(\)\s*(?:AS\s+)?|\bAS\s+|\bINDEX\s+)?((?<![\w$])(?<![\w$.]\.)[^\W\d][\w$.]*|'')\s*\(", re.IGNORECASE
)
"""A whole name before a bracket; after another bracket, or AS, it names columns."""
_NAMED = re.compile(r"\b([A-Za-z_]\w*)\s*\([\w\s,]{0,500}\)\s+AS\s*(?:(?:NOT\s+)?MATERIALIZED\s*)?\(", re.IGNORECASE)
"""A query with a name, and names for its columns."""
_WORDS = split_words(
    "in values and or not exists over as any all some from join using on where by case when then else select distinct"
    " union except intersect limit offset like ilike filter group within partition rows range groups between lateral"
    " having with recursive order interval end unnest table is is_null set grouping sets rollup cube if escape top"
    " explain analyze verbose costs buffers timing format describe show pragma materialized"
    # Types.
    " varchar nvarchar char nchar character varying numeric decimal float double timestamp timestamptz time bit varbit"
    " binary varbinary number int integer bigint datetime array struct map row vector"
)
"""Words of the language before a bracket."""
_FUNCTIONS = split_words(
    "count sum avg min max total group_concat string_agg array_agg row_number rank dense_rank lag lead first_value"
    " last_value coalesce nullif ifnull isnull cast try_cast convert typeof to_char to_date lower upper len length"
    " char_length substr substring left right trim ltrim rtrim replace concat concat_ws instr position split_part"
    " regexp_replace printf format hex quote abs ceil ceiling floor round mod sqrt power random now date time datetime"
    " julianday strftime unixepoch current_date current_timestamp getdate date_trunc date_part datediff date_format"
    " extract age year month day hour json_extract json_each json_array_length unnest generate_series version database"
)
"""Functions of the usual databases that change nothing. A user-defined function may change anything."""
_ESCAPED = re.compile(r"\\['\"`\\]")
_PRAGMA = re.compile(r"\s*PRAGMA\b", re.IGNORECASE)
_MAX_LOOKED_AT = 100_000
_FULL_QUERY = re.compile(
    r"\s*\(*\s*(?:SELECT\b[\s\S]*?\bFROM\b|SELECT\s+[\w(*]|PRAGMA\s+\w+|SHOW\s+\w+|DESCRIBE\s+\w+|WITH\s+\w+\s+AS)",
    re.I,
)


def is_read_only_sql(text: str) -> bool | None:
    """True for a query, false for a statement that changes data, `None` for text that is not SQL."""
    head = _FIRST_COMMENTS.sub("", text)
    if _CHANGES.match(head):
        return False
    if not _READS.match(head):
        return None
    return not any(map(_may_change, _list_readings(head)))


def may_call_more(text: str) -> bool:
    if len(text) > _MAX_LOOKED_AT:
        return True
    statements = [each for reading in _list_readings(text) for each in reading.split(";")]
    return any(_calls_unknown_function(each) for each in statements if not _PRAGMA.match(each))


def _list_readings(text: str) -> list[str]:
    """The text without literals, quoted names and comments; two readings if a backslash may escape a quotation mark."""
    escaped = _ESCAPED.sub("", text)
    return [_NO_CODE.sub("''", each) for each in ([text] if escaped == text else [text, escaped])]


def _may_change(code: str) -> bool:
    statements = code.split(";")
    changes = any(_CHANGES.match(each) or _CHANGES_INSIDE.search(each) for each in statements)
    return changes or any(map(_CHANGES_NEXT.match, statements[1:]))


def is_sql_query(text: str) -> bool:
    """Whether a string constant in code is certainly an SQL query (`select` by itself is an English word)."""
    return bool(_FULL_QUERY.match(text[:2000]))


def _calls_unknown_function(code: str) -> bool:
    named = {match[1].lower() for match in _NAMED.finditer(code)}
    return any(
        not match[1] and match[2].lower().rpartition(".")[2] not in named | _WORDS | _FUNCTIONS
        for match in _CALLED.finditer(code)
    )
