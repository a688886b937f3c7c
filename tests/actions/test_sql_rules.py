"""What is a query and what changes data: a query that is run early must change nothing."""

from __future__ import annotations

import time

import pytest

from foretrace.actions.sql_rules import is_read_only_sql

QUERIES = [
    "SELECT 1",
    "select * from t where name = 'x; DROP TABLE t'",
    "-- first\n/* then */ SELECT a FROM b; SELECT c FROM d;",
    "WITH a AS (SELECT 1) SELECT * FROM a",
    "SELECT 'insert into t' AS words FROM notes",
    'SELECT "delete from" FROM `update x set`',
    "EXPLAIN SELECT * FROM t",
    "PRAGMA table_info(t)",
    "SHOW TABLES",
    "(SELECT 1) UNION (SELECT 2)",
]


@pytest.mark.parametrize("text", QUERIES)
def test_queries(text: str) -> None:
    assert is_read_only_sql(text) is True


@pytest.mark.parametrize(
    "text", ["SELECT " + "'" * 200_001, "SELECT " + "/* " * 100_000, "--\n" * 100_000 + "SELECT 1"]
)
def test_hostile_text_takes_no_time(text: str) -> None:
    began = time.process_time()
    is_read_only_sql(text)
    assert time.process_time() - began < 2
