"""The Atropos environment inside of the real Atropos: its server, a trainer over HTTP, groups, tools, and faults."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fakes.model_server import Asked, ModelServer
from fakes.model_server import serving as model_serving
from foretrace.core.store import TraceStore
from foretrace.core.trace import Trace

pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")

from atroposlib.envs.server_handling.server_manager import APIServerConfig
from pydantic import ValidationError

from foretrace.core.errors import Setting, UsageError
from foretrace.envs.atropos.config import CodeTraceEnvConfig, render_error
from foretrace.envs.atropos.environment import CodeTraceEnv
from foretrace.envs.train_sequence import make_sequence
from foretrace.models.demo_model import write_demo_model
from integrations.atropos_runs import BIN, END, Env, Trainer, check_group, rows, run_api, serving, toy
from integrations.llama_server import NAME, Running
from integrations.warm import OFFLINE

pytestmark = pytest.mark.integration


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model and its tokenizer as transformers loads them."""
    return Path(write_demo_model(tmp_path_factory.mktemp("tokenizer")))


# --- serve


def test_a_trainer_pulls_exact_batches_for_several_steps(api: Running, tmp_path: Path) -> None:
    trainer = Trainer(api)
    with serving(tmp_path, api, traces_dir="traces", protocol="interleaved_tools", include_messages=True) as env:
        seen = 0
        for _ in range(4):
            for group in trainer.batch(env):
                check_group(group)
                assert [m[0]["role"] for m in group["messages"]] == ["system"] * 4
                seen += len(group["tokens"])
        assert seen == 4 * 8
        assert env.stop() == 130
    traces = list(TraceStore(tmp_path / "traces").read())
    assert len(traces) >= seen and len({t.key for t in traces}) == len(traces)


# --- process and evaluate


def test_process_that_wrote_nothing_fails(tokenizer: Path, tmp_path: Path) -> None:
    with model_serving(ModelServer(say=lambda asked: "nothing")) as server:
        env = toy(server.url, tokenizer, tmp_path, total_steps=2, ensure_scores_are_not_same=True)
        assert env.wait() == 1
    assert (
        "no group was written: all scores of each group are the same" in env.errors() and "Traceback" not in env.said()
    )
    assert rows(tmp_path / "data" / "code_trace.jsonl") == []


def test_the_example_runs(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "rl" / "atropos.sh"
    path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run([script], cwd=tmp_path, env=os.environ | OFFLINE | path, check=True)
    for group in rows(tmp_path / "data" / "code_trace.jsonl"):
        check_group(group, differ=False)


def test_process_writes_groups_as_jsonl_and_html(tmp_path: Path) -> None:
    config = tmp_path / "env.yaml"
    config.write_text("env:\n  protocol: tools\n  total_steps: 3\n  seed: 5\n", encoding="utf-8")
    env = Env("process", tmp_path, config=config, traces_dir="traces", use_wandb=True)
    assert env.wait() == 0, env.said()
    groups = rows(tmp_path / "data" / "code_trace.jsonl")
    assert len(groups) == 3
    for group in groups:
        check_group(group, differ=False)
        assert [m["role"] for m in group["messages"][0]][:3] == ["system", "user", "assistant"]
    assert (tmp_path / "data" / "code_trace.html").stat().st_size > 1000
    assert not (tmp_path / "wandb").exists(), "which is only for serve"
    assert len(list(TraceStore(tmp_path / "traces").read())) >= 12


def test_evaluate_prints_its_metrics_and_writes_them(tmp_path: Path) -> None:
    env = Env("evaluate", tmp_path, data_dir_to_save_evals="evals", eval_fraction=0.3)
    assert env.wait() == 0, env.said()
    metrics = json.loads((tmp_path / "evals" / "metrics.json").read_text())["results"]["all"]
    names = ("accuracy", "pass_rate", "think_count", "verify_rate", "ideal_rate", "mean_reward", "problems")
    assert {f"eval/{name}" for name in names} <= set(metrics)
    assert 0 < metrics["eval/problems"] == len(rows(tmp_path / "evals" / "samples.jsonl"))
    said = dict(line.split() for line in env.said().splitlines() if line.startswith("eval/"))
    assert float(said["eval/accuracy"]) == pytest.approx(metrics["eval/accuracy"], abs=1e-3)


def test_an_evaluation_says_what_failed(tokenizer: Path, tmp_path: Path) -> None:
    server = ModelServer()

    def say(asked: Asked) -> str:
        if asked.number == 6:
            server.fault("/v1/chat/completions", status=503)
        return "```python\npass\n```"

    server.say = say
    with model_serving(server):
        more = {"limit": 6, "eval_fraction": 1.0, "max_eval_workers": 1, "model_retries": 0, "tries": 1}
        env = toy(server.url, tokenizer, tmp_path, "evaluate", **more)
        assert env.wait() == 0
    said = env.said()
    assert "eval/failed/" in said and "eval/accuracy" in said and "Traceback" not in said


# --- members that fail


class Flaky(ModelServer):
    """Refuses the second turn of some rollouts."""

    def __init__(self, *failing: int) -> None:
        super().__init__(say=self._say)
        self.rollouts = 0
        self._failing = failing

    def _say(self, asked: Asked) -> str:
        if "<code>" in asked.text and asked.turn == 0:  # else it is asked what it can do
            self.rollouts += 1
            if self.rollouts in self._failing:
                self.fault("/v1/chat/completions", status=503)
        return "<think>I do nothing.</think><code>\npass\n</code>"


def test_a_rollout_that_fails_is_made_again_or_costs_its_group_and_never_the_run(
    tokenizer: Path, tmp_path: Path
) -> None:
    """Of the first group a member fails once; of the second one twice; the third and fourth are whole."""
    with model_serving(Flaky(2, 6, 7)) as server:
        more = {"max_rollouts": 1, "model_retries": 0, "tries": 2, "traces_dir": "traces"}
        env = toy(server.url, tokenizer, tmp_path, total_steps=3, group_size=3, **more)
        assert env.wait() == 0, env.said()
        assert server.rollouts == 4 + 4 + 3 + 3
    groups = rows(tmp_path / "data" / "code_trace.jsonl")
    assert [len(group["tokens"]) for group in groups] == [3, 3, 3]
    assert all(len(group[name]) == 3 for group in groups for name in ("masks", "scores", "inference_logprobs"))
    assert env.said().count(" was dropped: ") == 1 and "was dropped: 1 x busy" in env.said()
    assert "Traceback" not in env.said()
    ends = Counter(trace.outcome.error is None for trace in TraceStore(tmp_path / "traces").read())
    assert ends[True] == 3 + 2 + 3 + 3


# --- limits of the trainer


MOST = 600
"""Longest sequence of a trainer; ours is 2048, and the prompts have 356 to 630 tokens."""


class Pulled(NamedTuple):
    """What a trainer got from one run."""

    groups: list[dict[str, Any]]
    traces: list[Trace]


@pytest.fixture(scope="module")
def pulled(tmp_path_factory: pytest.TempPathFactory) -> Pulled:
    folder = tmp_path_factory.mktemp("pulled")
    with run_api(folder / "api.log") as api:
        trainer = Trainer(api, batch_size=4, max_token_len=MOST)
        more = {"protocol": "tools", "eval_fraction": 0.0, "traces_dir": "traces"}
        with serving(folder, api, **more) as env:
            groups = [group for _ in range(2) for group in trainer.batch(env)]
            env.stop()
    return Pulled(groups, list(TraceStore(folder / "traces").read()))


def test_sequences_stay_below_a_trainers_own_limit(pulled: Pulled) -> None:
    """It is known only when the trainer is: no episode begins that cannot fit."""
    assert len(pulled.groups) == 2
    for group in pulled.groups:
        check_group(group)
    made = [make_sequence(trace, END, frozenset({END})) for trace in pulled.traces]
    assert len(made) >= 8 and all(sequence is not None and len(sequence.tokens) < MOST for sequence in made)


def test_a_group_that_is_larger_than_a_batch_ends_the_run(api: Running, tmp_path: Path) -> None:
    Trainer(api, batch_size=2)
    with serving(tmp_path, api, group_size=4) as env:
        assert env.wait() == 2, env.said()
    assert "choose a smaller --env.group_size or a larger batch" in env.errors() and "Traceback" not in env.said()


# --- evaluation in the middle


def test_an_evaluation_while_it_trains_is_written_and_batches_go_on(
    api: Running, tokenizer: Path, tmp_path: Path
) -> None:
    trainer, evals = Trainer(api, batch_size=4), tmp_path / "evals"
    more = {"steps_per_eval": 2, "eval_fraction": 0.2, "data_dir_to_save_evals": evals, "traces_dir": "traces"}
    more |= {"rollout_server_url": api.url, "max_num_workers": 2, "ensure_scores_are_not_same": False}
    with model_serving(ModelServer(say=lambda asked: "<code>\npass\n</code>")) as server:
        env = toy(server.url, tokenizer, tmp_path, "serve", **more)
        try:
            for _ in range(30):
                trainer.batch(env)
                if (evals / "metrics.json").exists():
                    break
            after = [group for _ in range(3) for group in trainer.batch(env)]
        finally:
            assert env.stop() == 130
    assert [len(group["tokens"]) for group in after] == [4, 4, 4]
    assert "Traceback" not in env.said() and " failed: " not in env.said()
    metrics = json.loads((evals / "metrics.json").read_text())["results"]["all"]
    held = {row["problem"] for row in rows(evals / "samples.jsonl")}
    assert metrics["eval/problems"] == len(held) > 1
    tried = Counter(trace.task.id in held for trace in TraceStore(tmp_path / "traces").read())
    assert tried[True] >= len(held) and tried[False] >= 4 * len(after)


# --- what a trainer needs


def test_the_example_trainer_takes_no_batch_without_logprobs(tokenizer: Path, pulled: Pulled) -> None:
    """With ours, its own logprobs of the same weights are those of the rollouts; without, it refuses to train."""
    torch = pytest.importorskip("torch", reason="the example trainer needs torch")
    from example_trainer.data import pad_data_to_good_offset
    from example_trainer.training import compute_grpo_loss
    from transformers import AutoModelForCausalLM

    weights = AutoModelForCausalLM.from_pretrained(tokenizer, dtype=torch.float32)

    def loss_of(groups: list[dict[str, Any]]) -> Any:
        batch = [deepcopy(group) | {"overrides": group.get("overrides")} for group in groups]  # it changes its input
        tokens, labels, advantages, temperatures, logprobs = pad_data_to_good_offset({"batch": batch}, 8)
        own = None if logprobs is None else logprobs[0]
        return compute_grpo_loss(weights, tokens[0], labels[0], advantages[0], temperatures[0], 1, own)

    loss, metrics = loss_of(pulled.groups)
    assert torch.isfinite(loss) and metrics["logprob_diff_max"] < 1e-3 and metrics["clipped_fraction"] == 0.0
    bare = [{name: value for name, value in group.items() if name != "inference_logprobs"} for group in pulled.groups]
    with pytest.raises(ValueError, match="requires inference_logprobs"):
        loss_of(bare)


# --- its tools


def test_a_data_generator_of_atropos_takes_it(api: Running, tmp_path: Path, tokenizer: Path) -> None:
    out = tmp_path / "sft.jsonl"
    command = [BIN / "atropos-sft-gen", out, "--api-url", api.url, "--group-size", "4", "--tokenizer", tokenizer]
    command += ["--num-seqs-to-save", "4", "--tasks-per-step", "2"]
    with serving(tmp_path, api, ensure_scores_are_not_same=False):
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, timeout=300, env={**OFFLINE, "PATH": "/usr/bin"}
        )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    written = rows(out)
    assert len(written) >= 4 and all(row["score"] > 0 for row in written)


# --- model servers


def test_a_trainer_pulls_exact_batches_that_llama_server_sampled(
    llama: Running, tokenizer: Path, tmp_path: Path
) -> None:
    """run-api, `serve`, and a trainer that registers and pulls."""
    told = {"openai.base_url": llama.url, "openai.model_name": NAME, "model": "llamacpp", "tokenizer_name": tokenizer}
    with run_api(tmp_path / "api.log") as api:
        trainer = Trainer(api, batch_size=4)
        more = {"protocol": "tools", "ensure_scores_are_not_same": False, "traces_dir": "traces"}
        with serving(tmp_path, api, **(told | more)) as env:
            for _ in range(3):
                (group,) = trainer.batch(env)
                check_group(group, differ=False)
            assert env.stop() == 130
    traces = list(TraceStore(tmp_path / "traces").read())
    assert len(traces) >= 12 and {trace.provenance.model for trace in traces} == {f"llamacpp:{NAME}"}
    assert any(trace.outcome.metrics["turns"] > 1 for trace in traces)


def test_logprobs_that_fit_no_ids_are_dropped_and_said_and_the_run_gives_up(tokenizer: Path, tmp_path: Path) -> None:
    with model_serving(ModelServer(say=lambda asked: "return x1 + y22")) as server:
        env = toy(server.url, tokenizer, tmp_path, on_mismatch="drop", group_size=2, give_up_after=2)
        assert env.wait() == 1
    assert env.said().count("was dropped: ") == 2 and "x mismatch" in env.errors() and "gave up" in env.errors()
    assert rows(tmp_path / "data" / "code_trace.jsonl") == []


# --- bad input and faults


@pytest.mark.parametrize(
    ("verb", "settings", "code", "said"),
    [
        ("process", {"tokenizer_name": "nowhere/at-all/here"}, 2, "the tokenizer nowhere/at-all/here cannot be loaded"),
        ("process", {"max_token_length": 50}, 2, "max_token_length 50 is too small: the shortest prompt has"),
        ("process", {"traces_dir": "file/traces"}, 1, "cannot write"),
        ("process", {"data_path_to_save_groups": "file/x.jsonl"}, 1, "File exists: 'file'"),
        ("process", {"protocol": "nonsense"}, 2, "unknown protocol 'nonsense'"),
        ("process", {"problems": "jsonl:missing.jsonl"}, 1, "missing.jsonl"),
        ("process", {"group_size": 0}, 2, "group_size: Input should be greater"),
        ("process", {"model_options": "think", "model": "ollama:toy", "tokenizer_name": "t"}, 2, "NAME=VALUE"),
        ("process", {"config": "env.yaml"}, 2, "protokol"),
        ("evaluate", {"data_dir_to_save_evals": "evals"}, 1, "evals/metrics.json"),
        ("serve", {"group_size": 1}, 2, "group_size 1: Atropos drops groups"),
        ("serve", {}, 1, "run-api does not answer"),
    ],
)
def test_a_bad_setting_or_place_is_one_line_and_the_right_code(
    verb: str, settings: dict[str, Any], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "env.yaml").write_text("env:\n  protokol: tools\n", encoding="utf-8")
    (tmp_path / "evals" / "metrics.json").mkdir(parents=True)
    place = {"rollout_server_url": "http://127.0.0.1:9"} if verb == "serve" else {}
    env = Env(verb, tmp_path, **(place | settings))
    assert env.wait() == code, env.said()
    assert said in env.errors() and "Traceback" not in env.said()
    assert ("run-api" in env.errors()) == ("run-api" in said)


# --- settings that cannot be honoured


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
