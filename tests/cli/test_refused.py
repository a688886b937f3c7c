"""What the command refuses: a temperature that the model does not take, and objects that are not plugins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models.servers.test_openai_probe import picky

from cli.conftest import Run
from fakes.model_server import ModelServer, serving
from foretrace.core.store import read_traces

CODE = "<code>\ndef two_sum(nums, target):\n    return None\n</code>"


@pytest.fixture
def server() -> ModelServer:
    return picky("temperature", say=lambda asked: CODE)


def test_none_sends_none_and_is_recorded(
    run: Run, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(server):
        asked = ["generate", "--problems", "builtin", "--limit", "1", "--protocol", "tools", "--model", "openai:toy"]
        asked += ["--base-url", server.url, "--max-turns", "1", "--out", "t", "--json", "-q"]
        refused = run(*asked)
        assert (
            refused.code == 2 and "takes no temperature: let the server choose it (--temperature none)" in refused.err
        )
        done = run(*asked, "--temperature", "none")
        assert done.code == 0, done.err
        assert "temperature" not in server.sent("/v1/chat/completions")[-1]
        (trace,) = read_traces("t")
        assert trace.provenance.sampling["temperature"] is None
        assert trace.provenance.capabilities["reasons"]["temperature"].startswith("refused, so it is not sent")
        told = run("doctor", "--model", "openai:toy", "--base-url", server.url, "--json", "-q")
        assert json.loads(told.out)["capabilities"]["logprobs"]["yes"] and "temperature" not in told.err


@pytest.mark.parametrize("value", ["warm", "-1", "inf", "nan", ""])
def test_other_words_are_no_temperature(run: Run, value: str) -> None:
    asked = ["--problems", "builtin", "--protocol", "tools", "--model", "demo", "--out", "t"]
    result = run("generate", *asked, "--temperature", value)
    assert result.code == 2
    assert f"'--temperature': {value!r}: choose a number that is not negative, or none (see " in result.err


@pytest.mark.parametrize("asked", ["import chat {rows}", "build {traces}", "demo", "export {traces} --format jsonl"])
def test_an_empty_name_is_not_the_current_folder(
    run: Run, traces: Path, swe_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    done = run(*asked.format(traces=traces, rows=swe_file).split(), "--out", "", "--quiet")
    assert (done.code, done.out) == (2, "") and "'--out': name a file or a folder (see " in done.err
    assert not list(here.iterdir())


@pytest.mark.parametrize("value", ["0.8", "0.8/0.2", "a/b/c", ""])
def test_other_words_are_no_shares(run: Run, traces: Path, tmp_path: Path, value: str) -> None:
    done = run("build", traces, "--out", tmp_path / "d", "--split", value)
    assert done.code == 2 and f"'--split': {value!r}: write three shares, e.g. 0.8/0.1/0.1 (see " in done.err


def test_what_a_build_would_refuse_is_refused_before_an_import(run: Run, swe_file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    for out, given, said in (
        (tmp_path / "mine", [], "exists; choose another folder, or overwrite it with --overwrite"),
        (tmp_path / "mine", ["--overwrite"], "is not a foretrace dataset, so it will not be overwritten"),
        (tmp_path / "mine/notes.txt", [], "is a file; name a folder"),
        (tmp_path / "new", ["--pairs", 1], "mirrored pairs come in twos"),
    ):
        done = run("build", f"swe_smith={swe_file}", "--out", out, *given)
        assert done.code in (1, 2) and said in done.err, done.err
        assert not out.with_name(f"{out.name}-traces").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--private"], "--private is for --push ORG"),
        (["--allow-undecided"], "--allow-undecided is for --push ORG"),
        (["--allow-demo", "--push", "org"], "leave out it or --push"),
        (["--limit", "3"], "--limit is for sources that are imported"),
    ],
)
def test_options_of_build_that_do_not_fit(run: Run, traces: Path, options: list[str], said: str) -> None:
    out = traces.parent / "out"
    done = run("build", traces, "--out", out, "--quiet", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err and not out.exists()
