"""What a person sees on a terminal: progress and notes apart, and a bar where the end is known."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import write_rows
from fakes.model_server import ModelServer, serving
from foretrace.cli.output import Output

COMMAND = [sys.executable, "-m", "foretrace"]
_CONTROL = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\r|\n|.", re.DOTALL)
SLOW_SOURCE = '''
import sys, time
from pathlib import Path
from foretrace.core.trace import Message, Provenance, Task, Trace


class Slow:
    """Reads 200 rows a second at most, until there is a file OUT.enough."""

    name, license, hub = "slow", None, None
    enough = sys.argv[-1] + ".enough"

    def to_trace(self, row, at):
        if not Path(self.enough).exists():
            time.sleep(0.005)
        return Trace(
            key=f"slow:{at.row}",
            task=Task(id="t", group="t"),
            messages=(Message(role="assistant", author="model", content="x"),),
            provenance=Provenance(origin="imported", source="slow"),
        )
'''


def run_on_terminal(*arguments: object, heard: Callable[[bytes], object] = bool, **options: Any) -> str:
    """Run the command with a terminal of 100 columns as its stderr; returns the bytes that came there, as text. `heard`
    is called with each piece of them."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    pieces: list[bytes] = []
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=its, env=environment, **options
    ) as process:
        os.close(its)
        try:
            while piece := os.read(ours, 4096):
                pieces.append(piece)
                heard(piece)
        except OSError:  # Linux says so when the other side is closed
            pass
        finally:
            os.close(ours)
        assert process.wait() == 0
    return b"".join(pieces).decode()


def screens(text: str) -> list[list[str]]:
    """The lines of the screen after each piece of text that ended a line or was drawn over."""
    lines, row, column = [""], 0, 0
    found: list[list[str]] = []
    for match in _CONTROL.finditer(text):
        number, letter = match[1], match[2]
        if letter == "A":
            row = max(0, row - int(number or 1))
        elif letter == "K":
            found.append([*lines])
            lines[row] = "" if number == "2" else lines[row][:column]
        elif match[0] == "\r":
            column = 0
        elif match[0] == "\n":
            found.append([*lines])
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif letter is None:
            lines[row] = lines[row].ljust(column)[:column] + match[0] + lines[row][column + 1 :]
            column += 1
    return [*found, lines]


def test_notes_of_generate_do_not_run_into_its_progress(tmp_path: Path) -> None:
    """The notes of the probe come while the line of progress stands."""
    rows = [{"id": "p", "statement": "Add 1.", "entry_point": "f", "tests": ["assert f(1) == 2"]}]
    file = write_rows(tmp_path / "p.jsonl", rows)
    reply: Callable[..., str] = lambda asked: "<think>It is so.</think><code>\ndef f(x):\n    return x + 1\n</code>"  # noqa: E731
    with serving(ModelServer(say=reply, latency_s=lambda n: 0.15)) as server:
        server_options = ["--model", "openai:toy", "--base-url", server.url]
        text = run_on_terminal(
            *("generate", "--problems", f"jsonl:{file}", "--protocol", "tools", *server_options),
            *("--max-turns", 2, "--out", tmp_path / "t"),
        )
    shown = {line.rstrip() for screen in screens(text) for line in screen}
    notes = [line for line in shown if "the model server does" in line or "isolation level" in line]
    assert notes and all(line.startswith(("the model server does: ", "sandbox: ")) for line in notes), shown
    assert any(re.search(r"reading|probing|starting|of 1 done", line) for line in shown), shown
    left = [line for line in screens(text)[-1] if line.strip()]
    assert all(re.match(r"the model server does|not \w+:|sandbox:|[\w/ ]", line) for line in left)
    assert not any(re.search(r"\(\d+ s\)\s*$", line) for line in left), left


@pytest.mark.slow
def test_an_import_shows_a_share_and_the_time_left(tmp_path: Path) -> None:
    """Each of the two imports is quick from when it has said so."""
    (tmp_path / "slow_source.py").write_text(SLOW_SOURCE)
    file = write_rows(tmp_path / "rows.jsonl", [{"n": n} for n in range(2000)])
    arguments = ["import", "slow_source:Slow", str(file), "--out"]

    def heard(piece: bytes) -> None:
        if b"s left" in piece:
            (tmp_path / "t.enough").touch()

    with subprocess.Popen(
        [*COMMAND, *arguments, "u"], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as beside:
        text = run_on_terminal(*arguments, "t", cwd=tmp_path, heard=heard)
        shown = {line for screen in screens(text) for line in screen}
        assert beside.stderr is not None
        plain = ""
        while "s left" not in plain and (line := beside.stderr.readline()):
            plain += line
        (tmp_path / "u.enough").touch()
        plain += beside.communicate()[1]
    assert any("%" in line and "s left" in line and "━" in line for line in shown), shown
    assert re.search(r"rows\.jsonl: \d+ of 2,000, \d+%, [\d.,]+/(?:s|min), \d+ s left \(\d+ s\)\n", plain), plain
    assert "\x1b" not in plain


def test_lines_of_progress_count_only_what_is_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("foretrace.cli.output._FIRST_LINE_S", 0.05)
    for total in (1, 3):
        with Output().progress("opening") as progress:
            progress("building", 0, total)
            time.sleep(0.3)
    assert capsys.readouterr().err == "building (0 s)\nbuilding: 0 of 3, 0% (0 s)\n"
