"""The command as a process (start, endings, signals, pipes, terminals, warnings), and the package's public names."""

from __future__ import annotations

import contextlib
import inspect
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import pytest

import foretrace
import foretrace.__main__
from cli.conftest import Run, chat_row, write_rows
from foretrace.cli.main import app
from foretrace.cli.options import FLAGS, Command, write_flag
from foretrace.cli.output import Output
from foretrace.core.completion import Sampling
from foretrace.core.errors import Setting, UsageError
from foretrace.dataset.settings import BuildSettings
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.episodes.settings import EpisodeSettings

COMMAND = [sys.executable, "-m", "foretrace"]
SLOW = """
import time
from foretrace.core.trace import Message, Provenance, Task, Trace


class Slow:
    name, license, hub = "slow", None, None

    def to_trace(self, row, at):
        time.sleep(row["seconds"])
        return Trace(
            key=f"slow:{at.row}",
            task=Task(id="t", group="t"),
            messages=(Message(role="assistant", author="model", content="x"),),
            provenance=Provenance(origin="imported", source="slow"),
        )
"""


def command(words: str = "", *arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a process."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*COMMAND, *words.split(), *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys; from foretrace.cli.main import main;"
        "codes = [main(words) for words in ([], ['-h'], ['--help'], ['import', '--help'], ['--version'])];"
        "heavy = {'rich', 'pyarrow', 'datasets', 'numpy', 'sklearn', 'huggingface_hub'} & set(sys.modules);"
        "sys.exit(f'{codes}, loaded {heavy}' if any(codes) or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout.count("Usage: foretrace")) == (0, "", 4)


def test_an_option_is_described_by_the_command_that_has_it(run: Run) -> None:
    assert "--workers INTEGER               Processes, or tasks of the cluster" in run("build", "--help").out
    assert "Runs of code at one time" in run("problems", "check", "--help").out


def test_interrupt_is_130_and_progress_comes_in_time() -> None:
    Path("mine.py").write_text(SLOW)
    write_rows(Path("rows.jsonl"), [{"seconds": 120}])
    begun, words = time.monotonic(), [*COMMAND, "import", "mine:Slow", "rows.jsonl", "--out", "t"]
    with subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "mine:Slow" in line or "rows.jsonl" in line
        assert time.monotonic() - begun < 60  # long before the row is done
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    said = [text for text in err.splitlines() if text.startswith("foretrace: ")]
    assert said == [err.splitlines()[-1]] and "nothing is kept" in said[0] and "Traceback" not in err


def test_an_interrupt_while_the_library_loads_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("foretrace.cli.main.main", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit, match="130"):
        foretrace.__main__.main()
    assert capsys.readouterr().err == "foretrace: interrupted\n"


def test_hub_out_of_reach_is_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    environment.pop("HF_HUB_OFFLINE", None)
    begun = time.monotonic()
    done = command("import swe_smith --out t --quiet", env=environment)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "cannot reach the Hugging Face Hub" in done.stderr
    assert time.monotonic() - begun < 60
    offline = command("import swe_smith --out t", env={**environment, "HF_HUB_OFFLINE": "1"})
    assert offline.returncode == 2 and "name local files" in offline.stderr


def test_closed_pipe_is_quiet(traces: Path) -> None:
    line = [*COMMAND, "show", str(traces), "--quiet"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize("no_color", ["", "1"])
def test_colors_are_for_terminals(traces: Path, no_color: str) -> None:
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm-256color", "COLUMNS": "100"}
    ours, its = pty.openpty()
    with subprocess.Popen([*COMMAND, "show", str(traces), "swe_smith@local/tool:other"], stdout=its, env=environment):
        text = b""
        while b"three" not in text or b"submit" not in text:
            text += os.read(ours, 4096)
    assert (b"\x1b[" in text) == (not no_color)
    os.close(its)
    os.close(ours)


def test_unexpected_errors_are_one_line_without_debug(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    raises = "def scan(self, rows):\n        raise RuntimeError('bo\\x1bom')\n\n    def to_trace"
    Path("bad_scan.py").write_text(SLOW.replace("def to_trace", raises))
    monkeypatch.syspath_prepend(".")
    write_rows(Path("rows.jsonl"), [{"seconds": 0}])
    line = "import bad_scan:Slow rows.jsonl --out t"
    said = "foretrace: unexpected RuntimeError: bo\\x1bom; run again with --debug to see where\n"
    assert run(line) == (1, "", said)
    assert "Traceback" in run(line, "--debug").err


def test_public_names() -> None:
    for name in {*foretrace.__all__} - {"__version__"}:
        assert getattr(foretrace, name).__module__.startswith("foretrace.")
    assert set(foretrace.__all__) == set(dir(foretrace))
    with pytest.raises(AttributeError):
        foretrace.nothing  # noqa: B018


def test_shells_can_complete() -> None:
    shown = command(env={**os.environ, "_FORETRACE_COMPLETE": "bash_source"})
    assert shown.returncode == 0 and "_FORETRACE_COMPLETE" in shown.stdout
    asked = {"_FORETRACE_COMPLETE": "bash_complete", "COMP_WORDS": "foretrace sc", "COMP_CWORD": "1"}
    done = command(env={**os.environ, **asked})
    assert (done.returncode, sorted(done.stdout.split())) == (0, ["plain,schema", "plain,score", "plain,scrub"])


def test_errors_name_options() -> None:
    for setting, written in {
        Setting("allow_weak_isolation", True): "--allow-weak-isolation",
        Setting("statistical_gates", False): "--no-statistical-gates",
    }.items():
        assert UsageError("give ", setting).render(write_flag) == f"give {written}"
    assert write_flag(Setting("columns", {"messages": "log", "id": "n"})) == "--map messages=log --map id=n"


def test_flags_of_the_table_are_those_of_options() -> None:
    """An option that is renamed must be renamed there."""
    flags = {
        f for c in app.commands.values() for p in c.get_params(click.Context(c, **app.context_settings)) for f in p.opts
    }
    assert {*FLAGS.values()} <= flags


def test_keyword_arguments_have_the_defaults_of_the_settings() -> None:
    for function, kind in ((foretrace.build, BuildSettings), (foretrace.generate, GenerateSettings)):
        parameters = inspect.signature(function).parameters
        kinds = [kind, Sampling, EpisodeSettings] if kind is GenerateSettings else [kind]
        fields = {f.name: f.default for each in reversed(kinds) for f in msgspec.structs.fields(each)}
        tables = {"sampling", "episode", "budget", "extra"}  # whose fields are arguments of their own
        assert {n: parameters[n].default for n in fields.keys() - tables} == {
            n: fields[n] for n in fields.keys() - tables
        }


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: foretrace.build("traces", out="d", seed="x"), UsageError, "seed: Expected `int`, got `str`"),
        (lambda: foretrace.build("traces", out="d", target="word"), UsageError, "'word' is not one of call, mes"),
        (lambda: foretrace.build("traces", out="d", sed=1), TypeError, "sed"),
        (lambda: foretrace.export("traces", format="csv", out="e.jsonl"), UsageError, "unknown format 'csv': choose"),
        (lambda: foretrace.import_source("auto", "traces", out="x", split="s"), UsageError, "split is for rows on the"),
        (lambda: foretrace.label("traces"), UsageError, "label takes a Trace, not a str; for a traces folder call"),
        (lambda: foretrace.read_trace("traces", "x"), foretrace.ForetraceError, "no trace with key"),
    ],
)
@pytest.mark.usefixtures("traces")
def test_wrong_use_from_python_is_one_clear_line(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_one_plain_line_once_and_none_under_quiet(tmp_path: Path) -> None:
    """What an installed package that brings a source of the name of ours is told."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[foretrace.source]\nchat = stranger:Chat\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    write_rows(Path("rows.jsonl"), [chat_row(1)])
    line, environment = "import chat rows.jsonl --out t", {**os.environ, "PYTHONPATH": path}
    done = command(line, env=environment)
    said = [text for text in done.stderr.splitlines() if "ours is used" in text]
    assert done.returncode == 0 and len(said) == 1
    assert said[0].startswith("foretrace: warning: stranger brings a source 'chat', which is the name of foretrace's")
    assert "ForetraceWarning" not in done.stderr and "plugins.py" not in done.stderr
    quiet = command(line, "--quiet", env=environment)
    assert (quiet.returncode, quiet.stderr) == (0, "")


@pytest.mark.slow
def test_an_import_shows_a_share_and_the_time_left() -> None:
    """On a terminal with a bar, elsewhere in plain lines."""
    Path("mine.py").write_text(SLOW)
    write_rows(Path("rows.jsonl"), [{"seconds": 0.025}] * 400)  # over the 4 s between two lines
    arguments = [*COMMAND, "import", "mine:Slow", "rows.jsonl", "--out"]
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "env": environment}
    with subprocess.Popen([*arguments, "t"], stderr=its, **options):
        os.close(its)
        plain = subprocess.run([*arguments, "u"], stderr=subprocess.PIPE, text=True, check=True, **options).stderr
        drawn = b""
        with contextlib.suppress(OSError):  # Linux says so when the other side is closed
            while piece := os.read(ours, 4096):
                drawn += piece
    os.close(ours)
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn.decode()))
    assert any("%" in line and "s left" in line and "━" in line for line in lines), lines
    assert re.search(r"rows\.jsonl: \d+ of 400, \d+%, [\d.,]+/(?:s|min), \d+ s left \(\d+ s\)\n", plain), plain
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


@pytest.mark.parametrize(
    ("line", "function", "more"),
    [
        ("ceiling traces", foretrace.ceiling, {}),
        ("view traces --out v", foretrace.view, {"out": "v"}),
        ("label traces --out l.csv", foretrace.label_folder, {"out": "l.csv"}),
        ("export traces --format chat --out e.jsonl", foretrace.export, {"format": "chat", "out": "e.jsonl"}),
        ("scrub traces --out s", foretrace.scrub, {"out": "s"}),
    ],
)
@pytest.mark.usefixtures("traces")
def test_reports_print_as_the_command_prints_them(
    run: Run, line: str, function: Callable[..., object], more: dict[str, str]
) -> None:
    report = function("traces", **more)
    for name in more.values():
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)
    assert run(line).out == f"{report}\n"
    assert repr(report).startswith(f"{type(report).__name__}(")


@pytest.mark.parametrize("name", foretrace.__all__)
def test_what_takes_a_path_takes_text_too(name: str) -> None:
    function = getattr(foretrace, name)
    if not inspect.isfunction(function):
        pytest.skip("is not a function")
    for parameter in inspect.signature(function).parameters.values():
        words = re.findall(r"\w+", str(parameter.annotation))
        assert "Path" not in words or "str" in words, parameter


@pytest.mark.parametrize("command", sorted(app.commands))
def test_every_option_has_help_and_a_default_without_two_brackets(run: Run, command: str) -> None:
    assert "[default: (" not in run(command, "--help").out
    found = app.commands[command]
    if isinstance(found, Command):
        found.get_params(click.Context(found, **app.context_settings))
        assert all(found.about.get(each.name or "") for each in found.own), command
