"""The Atropos environment inside of the real Atropos: its server, a trainer over HTTP, its tools, and what can fail."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fakes.model_server import Asked, ModelServer
from fakes.model_server import serving as model_serving
from foretrace.core.store import TraceStore

pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")

from foretrace.models.demo_model import write_demo_model
from integrations.atropos_runs import BIN, Env, Trainer, check_group, environment, rows, run_api, serving, toy
from integrations.llama_server import NAME, Running

pytestmark = pytest.mark.integration


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
        env = toy(server.url, tokenizer, tmp_path, total_steps=2, ensure_scores_are_not_same=True).start()
        assert env.wait() == 1
    assert (
        "no group was written: all scores of each group are the same" in env.errors() and "Traceback" not in env.said()
    )
    assert rows(tmp_path / "data" / "code_trace.jsonl") == []


def test_the_example_runs(tmp_path: Path) -> None:
    script = Path(__file__).resolve().parents[2] / "examples" / "rl" / "atropos.sh"
    path = {"PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run([script], cwd=tmp_path, env=os.environ | environment() | path, check=True)
    for group in rows(tmp_path / "data" / "code_trace.jsonl"):
        check_group(group, differ=False)


def test_process_writes_groups_as_jsonl_and_html(tmp_path: Path) -> None:
    config = tmp_path / "env.yaml"
    config.write_text("env:\n  protocol: tools\n  total_steps: 3\n  seed: 5\n", encoding="utf-8")
    env = Env("process", tmp_path, "--config", str(config), traces_dir="traces", use_wandb=True).start()
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
    env = Env("evaluate", tmp_path, data_dir_to_save_evals="evals", eval_fraction=0.3).start()
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
        env = toy(server.url, tokenizer, tmp_path, "evaluate", **more).start()
        assert env.wait() == 0
    said = env.said()
    assert "eval/failed/" in said and "eval/accuracy" in said and "Traceback" not in said


# --- its tools


def test_a_data_generator_of_atropos_takes_it(api: Running, tmp_path: Path, tokenizer: Path) -> None:
    out = tmp_path / "sft.jsonl"
    command = [BIN / "atropos-sft-gen", out, "--api-url", api.url, "--group-size", "4", "--tokenizer", tokenizer]
    command += ["--num-seqs-to-save", "4", "--tasks-per-step", "2"]
    with serving(tmp_path, api, ensure_scores_are_not_same=False):
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, timeout=300, env={**environment(), "PATH": "/usr/bin"}
        )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    written = rows(out)
    assert len(written) >= 4 and all(row["score"] > 0 for row in written)


def test_the_example_trainer_collates_it(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example trainer needs torch")
    from example_trainer.data import pad_data_to_good_offset

    env = Env("process", tmp_path, total_steps=2).start()
    assert env.wait() == 0, env.said()
    groups = [group | {"overrides": group.get("overrides")} for group in rows(tmp_path / "data" / "code_trace.jsonl")]
    tokens, labels, advantages, _, logprobs = pad_data_to_good_offset({"batch": groups}, 4)
    assert logprobs is not None and len(tokens) == len(labels) == len(advantages) == len(logprobs) == 2
    for label, logprob in zip(labels, logprobs, strict=True):
        assert ((label == -100) == (logprob == 1.0)).all()


# --- model servers


def test_a_trainer_pulls_exact_batches_that_llama_server_sampled(
    llama: Running, tokenizer: Path, tmp_path: Path
) -> None:
    """run-api, `serve`, and a trainer that registers and pulls."""
    told = {"openai.base_url": llama.url, "openai.model_name": NAME, "model": "llamacpp", "tokenizer_name": tokenizer}
    api = run_api(tmp_path / "api.log").start()
    try:
        trainer = Trainer(api, batch_size=4)
        more = {"protocol": "tools", "ensure_scores_are_not_same": False, "traces_dir": "traces"}
        with serving(tmp_path, api, **(told | more)) as env:
            for _ in range(3):
                (group,) = trainer.batch(env)
                check_group(group, differ=False)
            assert env.stop() == 130
    finally:
        api.stop()
    traces = list(TraceStore(tmp_path / "traces").read())
    assert len(traces) >= 12 and {trace.provenance.model for trace in traces} == {f"llamacpp:{NAME}"}
    assert any(trace.outcome.metrics["turns"] > 1 for trace in traces)


def test_a_server_without_logprobs_is_refused_at_the_start(tokenizer: Path, tmp_path: Path) -> None:
    with model_serving(ModelServer(logprobs=False)) as server:
        env = toy(server.url, tokenizer, tmp_path, on_mismatch="drop").start()
        assert env.wait() == 2
    assert "gives no logprobs" in env.errors() and "Traceback" not in env.said()


def test_logprobs_that_fit_no_ids_are_dropped_and_said_and_the_run_gives_up(tokenizer: Path, tmp_path: Path) -> None:
    with model_serving(ModelServer(say=lambda asked: "return x1 + y22")) as server:
        env = toy(server.url, tokenizer, tmp_path, on_mismatch="drop", group_size=2, give_up_after=2).start()
        assert env.wait() == 1
    assert env.said().count("was dropped: ") == 2 and "x mismatch" in env.errors() and "gave up" in env.errors()
    assert rows(tmp_path / "data" / "code_trace.jsonl") == []


# --- bad input and faults


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"tokenizer_name": "nowhere/at-all/here"}, 2, "the tokenizer nowhere/at-all/here cannot be loaded"),
        ({"max_token_length": 50}, 2, "max_token_length 50 is too small: the shortest prompt has"),
        ({"traces_dir": "file/traces"}, 1, "cannot write"),
        ({"data_path_to_save_groups": "file/x.jsonl"}, 1, "File exists: 'file'"),
        ({"protocol": "nonsense"}, 2, "unknown protocol 'nonsense'"),
        ({"problems": "jsonl:missing.jsonl"}, 1, "missing.jsonl"),
        ({"group_size": 0}, 2, "group_size: Input should be greater"),
        ({"model_options": "think", "model": "ollama:toy", "tokenizer_name": "t"}, 2, "NAME=VALUE"),
    ],
)
def test_a_bad_setting_is_one_line_and_the_right_code(
    settings: dict[str, Any], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    env = Env("process", tmp_path, total_steps=1, **settings).start()
    assert env.wait() == code, env.said()
    assert said in env.errors() and "Traceback" not in env.said()


def test_an_evaluation_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "evals" / "metrics.json").mkdir(parents=True)
    env = Env("evaluate", tmp_path, data_dir_to_save_evals="evals").start()
    assert env.wait() == 1, env.said()
    assert "evals/metrics.json" in env.errors() and "Traceback" not in env.said()


def test_an_unknown_setting_in_yaml_is_refused(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("env:\n  protokol: tools\n", encoding="utf-8")
    env = Env("process", tmp_path, "--config", "env.yaml").start()
    assert env.wait() == 2
    assert "protokol" in env.errors() and "Traceback" not in env.said()


def test_a_run_api_that_is_not_there_ends_the_run(tmp_path: Path) -> None:
    env = Env("serve", tmp_path, rollout_server_url="http://127.0.0.1:9").start()
    assert env.wait() == 1
    assert "run-api does not answer" in env.errors() and "Traceback" not in env.said()
