"""The command as a process: start, endings, signals, pipes, terminals; and the package's public names."""

from __future__ import annotations

import inspect
import os
import pty
import resource
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

import foretrace.__main__
from cli.conftest import Run, write_rows
from foretrace.cli.main import app
from foretrace.cli.options import FLAGS, write_flag
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


def command(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command as a process."""
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys; from foretrace.cli.main import main;"
        "codes = [main(words) for words in ([], ['-h'], ['--help'], ['import', '--help'], ['--version'])];"
        "heavy = {'rich', 'pyarrow', 'datasets', 'numpy', 'sklearn', 'huggingface_hub'} & set(sys.modules);"
        "sys.exit(f'{codes}, loaded {heavy}' if any(codes) or heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: foretrace") == 4


def test_an_option_is_described_by_the_command_that_has_it(run: Run) -> None:
    assert "--workers INTEGER               Processes, or tasks of the cluster" in run("build", "--help").out
    assert "Runs of code at one time" in run("problems", "check", "--help").out


def test_interrupt_is_130_and_progress_comes_in_time(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SLOW)
    file = write_rows(tmp_path / "rows.jsonl", [{"seconds": 120}])
    arguments = ["import", "mine:Slow", str(file), "--out", str(tmp_path / "t")]
    begun = time.monotonic()
    with subprocess.Popen(
        [*COMMAND, *arguments], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "mine:Slow" in line or "rows.jsonl" in line
        assert time.monotonic() - begun < 60  # long before the row is done
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    said = [text for text in err.splitlines() if text.startswith("foretrace: ")]
    assert said == [err.splitlines()[-1]]
    assert "nothing is kept" in said[0]
    assert "Traceback" not in err


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
    done = command("import", "swe_smith", "--out", tmp_path / "t", "--quiet", env=environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot reach the Hugging Face Hub" in done.stderr
    assert done.stderr.count("\n") == 1
    assert time.monotonic() - begun < 60
    environment["HF_HUB_OFFLINE"] = "1"
    offline = command("import", "swe_smith", "--out", tmp_path / "t", env=environment)
    assert offline.returncode == 2
    assert "name local files" in offline.stderr


def test_closed_pipe_is_quiet(traces: Path) -> None:
    line = [*COMMAND, "show", str(traces), "--quiet"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_full_disk_leaves_what_was_there(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.jsonl"
    out.write_text("before")

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    # The limit would cut compiled modules short too, for whoever imports them next.
    more: dict[str, Any] = {"preexec_fn": small_files, "env": os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}}
    done = command("export", traces, "--format", "jsonl", "--out", out, **more)
    assert done.returncode == 1
    assert "cannot write" in done.stderr
    assert out.read_text() == "before"
    assert {p.name for p in tmp_path.iterdir()} == {"e.jsonl", "swe.jsonl", "traces"}


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


def test_unexpected_errors_are_one_line_without_debug(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SLOW.replace(
        "def to_trace", "def scan(self, rows):\n        raise RuntimeError('bo\\x1bom')\n\n    def to_trace"
    )
    (tmp_path / "bad_scan.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    file = write_rows(tmp_path / "rows.jsonl", [{"seconds": 0}])
    arguments = ["import", "bad_scan:Slow", file, "--out", tmp_path / "t"]
    said = "foretrace: unexpected RuntimeError: bo\\x1bom; run again with --debug to see where\n"
    assert run(*arguments) == (1, "", said)
    assert "Traceback" in run(*arguments, "--debug").err


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


@pytest.mark.parametrize(
    ("setting", "written"),
    [
        (Setting("sandbox", "local"), "--sandbox local"),
        (Setting("allow_weak_isolation", True), "--allow-weak-isolation"),
        (Setting("statistical_gates", False), "--no-statistical-gates"),
        (Setting("max_tokens"), "--max-tokens"),
        (Setting("columns"), "--map"),
        (Setting("columns", {"messages": "log", "id": "n"}), "--map messages=log --map id=n"),
    ],
)
def test_errors_name_options(setting: Setting, written: str) -> None:
    assert UsageError("give ", setting).render(write_flag) == f"give {written}"


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
        (lambda t: foretrace.build(t, out="d", seed="x"), UsageError, "seed: Expected `int`, got `str`"),
        (
            lambda t: foretrace.build(t, out="d", target="word"),
            UsageError,
            "target: 'word' is not one of call, mes",
        ),
        (lambda t: foretrace.build(t, out="d", sed=1), TypeError, "sed"),
        (
            lambda t: foretrace.export(t, format="csv", out="e.jsonl"),
            UsageError,
            "unknown format 'csv': choose one of jsonl",
        ),
        (lambda t: foretrace.import_source("auto", t, out="x", split="s"), UsageError, "split is for rows on the Hub"),
    ],
)
def test_wrong_use_from_python_is_one_clear_line(
    call: Callable[[Path], object], error: type[Exception], text: str, traces: Path, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        call(traces)
    assert text in str(caught.value) and "\n" not in str(caught.value)
