"""Settings of the Atropos environment: those that cannot be honoured are refused, each with one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")

from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import ValidationError

from foretrace.core.errors import Setting, StoreError, UsageError
from foretrace.envs.atropos.config import CodeTraceEnvConfig, check_servers, render_error
from foretrace.envs.atropos.environment import CodeTraceEnv

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("thinking_mode", True),
        ("reasoning_effort", "high"),
        ("max_reasoning_tokens", 2048),
        ("custom_thinking_prompt", "Think."),
    ],
)
def test_how_atropos_lets_models_think_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"^{name} is not for this environment: leave it out; think"):
        CodeTraceEnvConfig(**{name: value}).check()


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", 0.0), ("top_p", 0.0), ("top_p", 1.5), ("group_size", 0), ("limit", 0)]
)
def test_a_number_that_cannot_be_is_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        CodeTraceEnvConfig(**{name: value})


@pytest.mark.parametrize("name", ["num_max_requests_at_once", "num_requests_for_eval"])
def test_no_slots_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"^{name}=0: choose 1 or more"):
        check_servers([APIServerConfig(), APIServerConfig(**{name: 0})])


def test_what_has_nothing_to_refuse_is_taken() -> None:
    check_servers([APIServerConfig(), APIServerConfig(health_check=False, n_kwarg_is_ignored=True)])
    CodeTraceEnvConfig().check()
    CodeTraceEnvConfig(model="openai", model_timeout=9.0, model_retries=0).check()


def test_mock_servers_of_atropos_are_refused() -> None:
    with pytest.raises(UsageError, match="give model='demo'"):
        CodeTraceEnv(CodeTraceEnvConfig(model="demo"), [APIServerConfig()], testing=True)


@pytest.mark.parametrize(
    ("think", "told"), [(False, "false"), (True, "true"), ("low", "low"), ("false", "false"), (None, None)]
)
def test_think_may_be_a_truth_as_yaml_reads_it(think: Any, told: str | None) -> None:
    assert CodeTraceEnvConfig(think=think).server().options.get("think") == told


def test_a_folder_for_evaluations_is_tried_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"^data_dir_to_save_evals: .*file/evals: cannot write: .*; give a folder"):
        CodeTraceEnvConfig(data_dir_to_save_evals=str(tmp_path / "file" / "evals"))
    CodeTraceEnvConfig(data_dir_to_save_evals=str(tmp_path / "evals"))
    assert list((tmp_path / "evals").iterdir()) == []


def test_a_misspelt_model_is_named_before_a_missing_tokenizer() -> None:
    with pytest.raises(UsageError, match=r"unknown model 'dmo'.*ollama"):
        CodeTraceEnv(CodeTraceEnvConfig(model="dmo"), [APIServerConfig()])


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
        *("max_turns", "num_max_requests_at_once", "num_requests_for_eval", "options", "path", "retries", "sandbox"),
        *("temperature", "timeout_s", "top_p", "workers"),
    ],
)
def test_an_error_names_an_option_that_there_is(name: str) -> None:
    option = render_error(UsageError("give ", Setting(name))).removeprefix("give --").split()[0]
    part, _, field = option.partition(".")
    assert field in {"env": CodeTraceEnvConfig, "openai": APIServerConfig}[part].model_fields
