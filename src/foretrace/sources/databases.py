"""Databases of SQLite in which programs keep their sessions, opened read-only."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from foretrace.core.errors import SourceError
from foretrace.sources.account import Account

MAGIC = b"SQLite format 3\x00"
"""The beginning of every database."""
BUSY_S = 5.0
"""Seconds to wait for the program to finish writing."""


def list_database_files(path: Path) -> Iterable[Path]:
    """The files that SQLite keeps next to a database."""
    return [p for suffix in ("-wal", "-shm", "-journal") if (p := path.with_name(path.name + suffix)).is_file()]


@contextmanager
def open_database(path: Path, account: Account, program: str) -> Generator[sqlite3.Connection]:
    """Open a program's database; one that is locked, damaged, or holds other tables is a SourceError."""
    try:
        with closing(_connect(f"file:{quote(str(path.absolute()))}", account)) as database:
            database.text_factory = lambda data: data.decode(errors="replace")
            yield database
    except sqlite3.OperationalError as error:
        if "locked" in str(error) or "busy" in str(error):
            raise SourceError(f"{path}: the database is locked: close {program}, or import a copy of it") from error
        raise SourceError(f"{path}: cannot read as a database of {program}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise SourceError(f"{path}: the database is damaged: {error}") from error


def _connect(address: str, account: Account) -> sqlite3.Connection:
    database = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_S)
    try:
        database.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        database.close()
        if "unable to open" not in str(error):
            raise
        # In a read-only folder, SQLite cannot open the write-ahead log of a database.
        account.note("databases that were read without their latest changes")
        return sqlite3.connect(f"{address}?immutable=1", uri=True)
    return database
