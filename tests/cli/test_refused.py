"""A model that takes no temperature: `generate` says so, `--temperature none` sends none, and `doctor` manages."""

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
