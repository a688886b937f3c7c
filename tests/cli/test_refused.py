"""What the command refuses: a temperature that the model does not take, and objects that are no plugin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Run
from fakes.model_server import ModelServer, serving
from foretrace.core.store import read_traces
from models.servers.test_openai_probe import picky

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
    assert result.code == 2 and f"--temperature {value!r}: choose a number that is not negative, or none" in result.err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["build", "{traces}", "--recipes", "os:path"], "'os:path' is no recipe: it has no 'configs', 'rows'"),
        (["import", "os:path", "{rows}"], "'os:path' is no source: it has no 'name'"),
        (["generate", "--problems", "os:path", "--protocol", "tools", "--model", "demo"], "is no problem set: "),
        (["generate", "--problems", "builtin", "--protocol", "os:path", "--model", "demo"], "is no protocol: "),
        (["generate", "--problems", "builtin", "--protocol", "tools", "--model", "os:PathLike:x"], "is no model: "),
    ],
)
def test_an_object_that_is_no_plugin(run: Run, traces: Path, swe_file: Path, asked: list[str], said: str) -> None:
    out = traces.parent / "out"
    done = run(*(a.format(traces=traces, rows=swe_file) for a in asked), "--out", out, "--quiet")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err and not out.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--private"], "--private is for --push ORG"),
        (["--allow-undecided"], "--allow-undecided is for --push ORG"),
        (["--allow-demo", "--push", "org"], "leave out it or --push"),
        (["--split", "half"], "--split 'half': write three shares, e.g. 0.8/0.1/0.1"),
        (["--limit", "3"], "--limit is for sources that are imported"),
    ],
)
def test_options_of_build_that_do_not_fit(run: Run, traces: Path, options: list[str], said: str) -> None:
    out = traces.parent / "out"
    done = run("build", traces, "--out", out, "--quiet", *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert said in done.err and not out.exists()


def test_a_folder_that_holds_something_is_not_replaced(run: Run, traces: Path) -> None:
    done = run("build", traces, "--out", traces, "--quiet")
    assert done.code == 1 and done.err.endswith("is there already; give --overwrite or another --out\n")
