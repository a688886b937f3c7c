"""`foretrace doctor`: what it finds on this machine, and what it says where nothing serves."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cli.conftest import Run

HERE = "--allow-weak-isolation"  # whatever this machine offers


@pytest.mark.usefixtures("short_measuring")
def test_what_serves_here(run: Run) -> None:
    done = run("doctor", HERE, "--json", "--workers", 1)
    assert done.code == 0
    assert (done.json["ok"], done.json["error"]) == (True, None)
    found = done.json["sandbox"]
    assert found["name"] == "local"
    assert found["level"] in (0, 1, 2, 3)
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["runs_per_s"] > 10
    assert 0 < found["ms_per_run"] < 1000
    assert found["workers"] == 1
    if sys.platform == "linux":
        assert found["limits"]["memory_mb"] == 512
    guards = {guard["name"]: guard for guard in found["guards"]}
    assert guards["limits"]["on"]
    assert sorted(found["missing"]) == sorted(name for name, guard in guards.items() if not guard["on"])


@pytest.mark.usefixtures("short_measuring")
def test_as_text(run: Run) -> None:
    done = run("doctor", HERE)
    assert done.code == 0
    for wanted in ("isolation", "level ", "runs/s", "limits of a run", "filesystem_read", "network", "python"):
        assert wanted in done.out
    assert "warning" not in done.err.lower()


@pytest.mark.usefixtures("short_measuring")
def test_an_ordered_list_says_why_the_first_does_not_serve(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("doctor", HERE, "--quiet", "--json", "--sandbox", "docker,local")
    assert done.code == 0
    assert done.json["sandbox"]["name"] == "local"
    assert "no container engine here" in done.json["sandbox"]["refused"]["docker"]
    assert done.err == ""  # it is in the report
    assert "not docker" in run("doctor", HERE, "--sandbox", "docker,local").out


def test_no_sandbox_serves(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = run("doctor", "--quiet", "--sandbox", "docker")
    assert (done.code, done.out) == (1, "")
    assert done.err == ("foretrace: no container engine here: install Docker or Podman, or give --sandbox local\n")
    told = run("doctor", "--sandbox", "docker", "--json")
    assert told.code == 1
    assert (told.json["ok"], told.json["sandbox"]) == (False, None)
    assert "no container engine" in told.json["error"]


@pytest.mark.usefixtures("short_measuring")
def test_below_the_level_that_must_be_had_the_guards_are_shown_all_the_same(run: Run) -> None:
    done = run("doctor", "--quiet", "--min-level", 4)
    assert done.code == 1
    assert "the local sandbox reaches level 3, and 4 was asked for" in done.err
    assert done.err.count("\n") == 1
    assert "filesystem_read" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sandbox", "lokal"], "unknown sandbox 'lokal', did you mean local?: choose one of"),
        (["--sandbox", "local,lokal"], "unknown sandbox 'lokal'"),
        (["--sandbox", ","], "--sandbox names nothing"),
        (["--min-level", "0"], "give --allow-weak-isolation if that is meant"),
        (["--preload", "a b"], "preload 'a b'"),
    ],
)
def test_wrong_use(run: Run, arguments: list[str], said: str) -> None:
    done = run("doctor", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.out == ""
