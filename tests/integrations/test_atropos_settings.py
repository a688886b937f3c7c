"""Settings of the Atropos environment: those that cannot be honoured are refused, each with one line."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")

from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import ValidationError

from foretrace.core.errors import Setting, UsageError
from foretrace.envs.atropos.config import CodeTraceEnvConfig, render_error
from foretrace.envs.atropos.environment import CodeTraceEnv

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thinking_mode", True),
        ("reasoning_effort", "high"),
        ("max_reasoning_tokens", 2048),
        ("custom_thinking_prompt", "Think."),
        ("temperature", 0.0),
        ("top_p", 1.5),
        ("group_size", 0),
        ("limit", 0),
        ("nonsense", 1),
    ],
)
def test_what_cannot_be_honoured_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        CodeTraceEnvConfig(**{name: value})


@pytest.mark.parametrize(
    ("settings", "servers", "testing", "said"),
    [
        ({"model": "demo"}, {}, True, "give model='demo'"),
        ({"model": "dmo"}, {}, False, r"unknown model 'dmo'.*ollama"),
        ({"model": "openai:toy"}, {}, False, "tokenizer_name is missing"),
        ({"model": "demo"}, {"num_max_requests_at_once": 0}, False, "concurrency=0: choose 1 or more"),
    ],
)
def test_an_environment_that_cannot_run_is_refused(
    settings: dict[str, Any], servers: dict[str, Any], testing: bool, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        CodeTraceEnv(CodeTraceEnvConfig(**settings), [APIServerConfig(**servers)], testing=testing)


def test_no_verb_is_answered_with_the_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["atropos"])
    with pytest.raises(SystemExit) as ended:
        CodeTraceEnv.cli()
    assert ended.value.code == 2 and "serve|process|evaluate" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        *("allow_weak_isolation", "api_key", "api_key_env", "base_url", "concurrency", "context_length", "max_tokens"),
        *("max_turns", "options", "path", "retries", "sandbox", "temperature", "timeout_s", "top_p", "workers"),
    ],
)
def test_an_error_names_an_option_that_there_is(name: str) -> None:
    option = render_error(UsageError("give ", Setting(name))).removeprefix("give --").split()[0]
    part, _, field = option.partition(".")
    assert field in {"env": CodeTraceEnvConfig, "openai": APIServerConfig}[part].model_fields
