"""The command's output: results on stdout (text or one JSON object), progress and notes on stderr."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from foretrace.core.places import find_address, write_place

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

T = TypeVar("T")
Cell = str | int | float | bool | None
StyledText = str | tuple[str, str]

_CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_FIRST_LINE_S, _LINES_S = 1.0, 4.0
"""Seconds before the first line of progress, and between lines, if stderr is not a terminal."""


class ReaderGoneError(Exception):
    """The reader of our stdout has closed it (`foretrace ... | head`)."""


def escape_control(text: str) -> str:
    """The text with control and direction characters escaped, so that text of a trace cannot control the terminal."""
    return _CONTROL_CHARACTERS.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    return escape_control(" ".join(text.split()))


def name_folder(out: Path | str) -> list[tuple[str, Cell]]:
    """The lines that say where a traces folder is, and how to look at it."""
    view = [] if find_address(out) else [("in a browser", f"foretrace view {shlex.quote(str(out))}")]
    return [("traces folder", write_place(out)), *view]


class Output:
    """All output of one run of the command.

    Args:
        stream: Receives the result and warnings instead of stdout and stderr; notes are left out.
        own_process: Whether this process only runs the command, rather than a program that called `main`.
    """

    def __init__(self, *, stream: TextIO | None = None, own_process: bool = False) -> None:
        self.json, self.quiet, self.debug = False, stream is not None, False
        self._stream = stream
        self.interrupt_message = "interrupted"
        self.own_process = own_process

    def stay_small(self) -> None:
        """Save memory, if the process is ours, by ruling out pandas, which only the `datasets` library needs."""
        if self.own_process:
            from foretrace.engines.processes import limit_memory

            limit_memory()

    def warn_unsealed(self, folder: Path) -> None:
        """Warn about finished traces that are only in a journal, or about a journal that cannot be read."""
        from foretrace.core.errors import StoreError
        from foretrace.core.journal import count_unsealed

        try:
            count = count_unsealed(folder)
        except (StoreError, OSError) as error:
            self.warn(f"warning: {error}", "yellow")
            return
        if count:
            traces, are = ("trace", "is") if count == 1 else ("traces", "are")
            self.warn(
                f"warning: {folder}: {count:,} finished {traces} of an interrupted generate (or of one that still "
                f"runs) {are} not sealed yet and not read; run the same generate command again",
                "yellow",
            )

    def work(self, doing: str, function: Callable[..., T], *inputs: Any, **settings: Any) -> T:
        """Call a function with a `progress` callback that shows its progress, and return its result."""
        with self.progress(doing) as progress:
            return function(*inputs, **settings, progress=progress)

    def write_json(self, data: Any) -> bool:
        """Under `--json`, write the data as one object and return True."""
        if not self.json:
            return False
        import msgspec

        try:
            text = msgspec.json.encode(data, enc_hook=str).decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # lone surrogates, e.g. in a path that is not UTF-8, can be escaped in JSON
            text = json.dumps(msgspec.to_builtins(data, enc_hook=str))
        self.write(text + "\n")
        return True

    def write(self, text: str) -> None:
        try:
            self._out.write(text)
        except BrokenPipeError:
            raise ReaderGoneError from None

    def print(self, *segments: StyledText) -> None:
        """Write one line of the result."""
        self.write(_styled(segments, self._out) + "\n")

    @property
    def _out(self) -> TextIO:
        return self._stream or sys.stdout

    def print_fields(self, fields: Sequence[tuple[str, Cell]]) -> None:
        width = max(len(name) for name, _ in fields)
        for name, value in fields:
            self.print((name.ljust(width), "dim"), f"  {_cell_text(value)}")

    def print_table(self, headers: Sequence[str], rows: Sequence[Sequence[Cell]], *, whole: bool = False) -> None:
        """Print a table: fitted to the width of a terminal, and otherwise never cut.

        With `whole`, the first column is to be copied: in a terminal that is too narrow for the table, each row is that
        cell unbroken, and the others by name below it. Without a terminal it is padded here: `rich`, which measures and
        wraps each cell, takes a minute for the 100,000 rows of `show --all`.
        """
        numeric = [_is_numeric([row[i] for row in rows]) for i in range(len(headers))]
        cells = [[escape_control(_cell_text(cell)) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in [headers, *cells]) for i in range(len(headers))]
        if self._out.isatty():
            if whole and sum(widths) + 2 * len(widths) > _console(sys.stdout).width:
                for first, *rest in cells:
                    named = [f"{name} {cell}" for name, cell in zip(headers[1:], rest, strict=True) if cell != "-"]
                    self.print((first, "bold"))
                    self.print((f"  {', '.join(named)}", "dim"))
            else:
                self.write(_render_table(headers, cells, numeric))
            return
        for row in [headers, *cells]:
            padded = [c.rjust(w) if n else c.ljust(w) for c, w, n in zip(row, widths, numeric, strict=True)]
            self.write("  ".join(padded).rstrip() + "\n")

    def note(self, text: str) -> None:
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str, style: str = "") -> None:
        if self._stream is not None:
            self.print((text, style))
        else:
            _write_stderr(_styled([(text, style)], sys.stderr) + "\n")

    @contextlib.contextmanager
    def progress(self, doing: str) -> Generator[ProgressDisplay, None, None]:
        """Show progress while the block runs, even if nothing is reported for a while."""
        progress = ProgressDisplay(doing, silent=self.quiet)
        try:
            yield progress
        finally:
            progress.stop()


class ProgressDisplay:
    """Shows the current activity, how much of it is done, and the time left; call it to report progress.

    On a terminal `rich` draws it, below any lines written to stderr meanwhile. Elsewhere `rich` would draw nothing
    until the end, so a thread writes a plain line every few seconds.
    """

    def __init__(self, doing: str, *, silent: bool = False) -> None:
        self._state: tuple[str, int, int | None] = (doing, 0, None)
        self._phase = (0, time.monotonic())
        """Amount done at the start of this phase, and the time of it; the time left is estimated per phase."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: tuple[Bar, TaskID] | None = None
        if silent:
            return
        if sys.stderr.isatty():
            self._bar = _start_bar(doing)
        else:
            self._thread = threading.Thread(target=self._write_lines, daemon=True)
            self._thread.start()

    def __call__(self, doing: str, done: int = 0, total: int | None = None) -> None:
        """Report that `done` of `total` (`None`: unknown) are done. One of one says nothing, so it is not shown."""
        if total == 1:
            done, total = 0, None
        if total != self._state[2] or done < self._state[1]:
            self._phase = (done, time.monotonic())
        self._state = (doing, done, total)
        if self._bar is not None:
            bar, task = self._bar
            bar.update(task, description=one_line(doing), figures=self._write_figures(), completed=done, total=total)

    def stop(self) -> None:
        """Stop showing progress, and remove its line from a terminal."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._bar is not None:
            self._bar[0].stop()

    def _write_figures(self) -> str:
        _, done, total = self._state
        (before, since), now = self._phase, time.monotonic()
        text = f"{done:,}" if done or total is not None else ""
        if total:
            text += f" of {total:,}, {done / total:.0%}"
            if done > before and now > since:
                rate = (done - before) / (now - since)
                text += f", {format_rate(rate)}, {format_seconds((total - done) / rate)} left"
        return text

    def _write_lines(self) -> None:
        begun, wait = time.monotonic(), _FIRST_LINE_S
        while not self._ended.wait(wait):
            text = ": ".join(filter(None, (one_line(self._state[0]), self._write_figures())))
            _write_stderr(f"{text} ({time.monotonic() - begun:.0f} s)\n")
            wait = _LINES_S


def format_seconds(seconds: float) -> str:
    """A duration as people write it: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_rate(per_second: float) -> str:
    """A rate as people write it: `120/s`, `3.5/s`, `12/min`."""
    if per_second < 1:
        return f"{per_second * 60:.2g}/min"
    return f"{per_second:,.0f}/s" if per_second >= 10 else f"{per_second:.1f}/s"


def _start_bar(doing: str) -> tuple[Bar, TaskID]:
    from rich import progress
    from rich.table import Column

    one_row = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    bar = progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}", markup=False, table_column=one_row),
        progress.BarColumn(bar_width=20),
        progress.TextColumn("{task.fields[figures]}", markup=False, table_column=Column(no_wrap=True)),
        progress.TextColumn("({task.elapsed:.0f} s)", markup=False),
        console=_console(sys.stderr),
        transient=True,
        redirect_stdout=False,
        refresh_per_second=4,
        expand=True,
    )
    bar.start()
    return bar, bar.add_task(one_line(doing), total=None, figures="")


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    # Use the width of this stream's own terminal; `rich` would ask stdin first.
    width = None
    if not os.environ.get("COLUMNS"):
        with contextlib.suppress(OSError, ValueError):
            width = os.get_terminal_size(stream.fileno()).columns or None
    colors: Any = {} if _has_colors(stream) else {"color_system": None}
    return Console(file=stream, width=width, highlight=False, **colors)


def _write_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def _cell_text(cell: Cell) -> str:
    if cell is None or isinstance(cell, bool):
        return {None: "-", True: "yes", False: "no"}[cell]
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4f}" if isinstance(cell, float) else cell


def _is_numeric(column: Sequence[Cell]) -> bool:
    numbers = [isinstance(cell, (int, float)) and not isinstance(cell, bool) for cell in column if cell is not None]
    return bool(numbers) and all(numbers)


def _has_colors(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _styled(segments: Sequence[StyledText], stream: TextIO) -> str:
    parts = [(escape_control(text), style) for text, style in ((s, "") if isinstance(s, str) else s for s in segments)]
    if not _has_colors(stream):
        return "".join(text for text, _ in parts)
    from rich.style import Style

    return "".join(Style.parse(style).render(text) if style else text for text, style in parts)


def _render_table(headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> str:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header, number in zip(headers, numeric, strict=True):
        table.add_column(Text(header), justify="right" if number else "left", overflow="fold", no_wrap=number)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console = _console(sys.stdout)
    with console.capture() as capture:
        console.print(table)
    return capture.get()
