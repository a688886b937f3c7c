"""What the command says: results on stdout (text or one JSON object), progress and notes on stderr."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Generator, Sequence
from typing import Any, TextIO

Cell = str | int | float | bool | None
Segment = str | tuple[str, str]
"""Text, or text with the name of a style."""

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_FIRST_S, _PLAIN_S, _TERMINAL_S = 1.0, 4.0, 0.25
"""Seconds before the first line of progress, and between lines without and with a terminal."""


class ReaderGoneError(Exception):
    """Whoever read our stdout has closed it (`foretrace ... | head`)."""


def clean(text: str) -> str:
    """The text with control and direction characters made visible: text of a trace may not steer a terminal."""
    return _HARMFUL.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """The text on one line."""
    return clean(" ".join(text.split()))


class Output:
    """Everything that one run of the command says."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet
        self.kept = ""
        """What is kept when the user interrupts now."""
        self.own_process = False
        """Whether this process is the command's alone, not that of somebody who called `main`."""

    def stay_small(self) -> None:
        """Do without pandas from here on, where the process is ours: only the `datasets` library needs it."""
        if self.own_process:
            from foretrace.engines.processes import limit_memory

            limit_memory()

    def emit(self, data: Any) -> bool:
        """Under `--json`: write the one object, and return true."""
        if not self.json:
            return False
        import msgspec

        self._write(msgspec.json.encode(data, enc_hook=str).decode("utf-8", "backslashreplace") + "\n")
        return True

    def line(self, *segments: Segment) -> None:
        """One line of the result."""
        self._write(_paint(segments, sys.stdout) + "\n")

    def raw(self, text: str) -> None:
        """Text of the result as it is."""
        self._write(text)

    def facts(self, rows: Sequence[tuple[str, Cell]]) -> None:
        """Names and values, one a line."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.line((name.ljust(width), "dim"), f"  {_text(value)}")

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """A table: fitted to a terminal, never cut where there is none."""
        numeric = [
            any(r[i] is not None for r in rows)
            and all(isinstance(r[i], (int, float, type(None))) and not isinstance(r[i], bool) for r in rows)
            for i in range(len(headers))
        ]
        cells = [[clean(_text(cell)) for cell in row] for row in rows]
        if sys.stdout.isatty():
            self._write(_rich_table(headers, cells, numeric))
            return
        widths = [max(len(h), *(len(c[i]) for c in cells)) if cells else len(h) for i, h in enumerate(headers)]
        for row in [list(headers), *cells]:
            padded = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True)]
            self._write("  ".join(padded).rstrip() + "\n")

    def note(self, text: str) -> None:
        """A line beside the result, left out under `--quiet`."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str, style: str = "") -> None:
        """A line on stderr."""
        _to_stderr(_paint([(text, style)], sys.stderr) + "\n")

    @contextlib.contextmanager
    def progress(self, doing: str) -> Generator[Progress, None, None]:
        """Say what is going on while the block runs, even when nothing is reported for a while."""
        watch = Progress(doing, silent=self.quiet)
        try:
            yield watch
        finally:
            watch.stop()

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
        except BrokenPipeError:
            raise ReaderGoneError from None


class Progress:
    """Called with what is going on and how many are done; speaks by itself from a thread."""

    def __init__(self, doing: str, *, silent: bool = False) -> None:
        self._now = (doing, 0)
        self._begun = time.monotonic()
        self._ended = threading.Event()
        self._terminal = sys.stderr.isatty()
        self._said = False
        self._thread = None if silent else threading.Thread(target=self._speak, daemon=True)
        if self._thread is not None:
            self._thread.start()

    def __call__(self, doing: str, count: int = 0) -> None:
        self._now = (doing, count)

    def stop(self) -> None:
        """Say no more, and take the line off a terminal."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._terminal and self._said:
            _to_stderr("\r\x1b[K")

    def _speak(self) -> None:
        wait = _FIRST_S
        while not self._ended.wait(wait):
            doing, count = self._now
            seconds = time.monotonic() - self._begun
            text = f"{one_line(doing)}{f': {count:,}' if count else ''} ({seconds:.0f} s)"
            if self._terminal:
                width = max(20, _terminal_width() - 1)
                _to_stderr(f"\r\x1b[K{text[:width]}")
            else:
                _to_stderr(text + "\n")
            self._said = True
            wait = _TERMINAL_S if self._terminal else _PLAIN_S


def _to_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _terminal_width() -> int:
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    return 80


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4f}" if isinstance(cell, float) else cell


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _paint(segments: Sequence[Segment], stream: TextIO) -> str:
    colours = _colours(stream)
    painted: list[str] = []
    for segment in segments:
        text, style = (segment, "") if isinstance(segment, str) else segment
        codes = ";".join(_STYLES[s] for s in style.split())
        painted.append(f"\x1b[{codes}m{clean(text)}\x1b[0m" if codes and colours else clean(text))
    return "".join(painted)


def _rich_table(headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header, number in zip(headers, numeric, strict=True):
        table.add_column(Text(header), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in cells:
        table.add_row(*(Text(c) for c in row))
    colours: Any = {} if _colours(sys.stdout) else {"color_system": None}
    console = Console(file=sys.stdout, highlight=False, **colours)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
