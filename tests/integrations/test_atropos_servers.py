"""Model servers behind the Atropos environment: real and faulty ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("atroposlib", reason="atroposlib is not installed (make test-integrations installs it)")


from fakes.model_server import ModelServer
from fakes.model_server import serving as model_serving
from foretrace.core.store import TraceStore
from foretrace.models.demo_model import write_demo_model
from integrations.atropos_runs import Env, Trainer, check_group, rows, run_api, serving
from integrations.atropos_runs import toy as start_toy
from integrations.llama_server import NAME, Running

pytestmark = pytest.mark.integration


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_demo_model(tmp_path_factory.mktemp("tokenizer")))


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
        env = toy(server.url, tokenizer, tmp_path).start()
        assert env.wait() == 2
    assert "gives no logprobs" in env.errors() and "Traceback" not in env.said()


def test_logprobs_that_fit_no_ids_are_dropped_and_said_and_the_run_gives_up(tokenizer: Path, tmp_path: Path) -> None:
    with model_serving(ModelServer(say=lambda asked: "return x1 + y22")) as server:
        env = toy(server.url, tokenizer, tmp_path, give_up_after=2).start()
        assert env.wait() == 1
    assert env.said().count("was dropped: ") == 2 and "x mismatch" in env.errors() and "gave up" in env.errors()
    assert rows(tmp_path / "data" / "code_trace.jsonl") == []


def test_a_tokenizer_of_another_model_is_refused(tokenizer: Path, tmp_path: Path) -> None:
    with model_serving(ModelServer()) as server:
        env = toy(server.url, tokenizer, tmp_path, check_tokenizer=True).start()
        assert env.wait() == 2
    assert "is not the one of" in env.errors() and "Traceback" not in env.said()


def toy(url: str, tokenizer: Path, folder: Path, verb: str = "process", **more: Any) -> Env:
    """A run against a fake server, which is not trusted with the ids of its words."""
    return start_toy(
        url, tokenizer, folder, verb, **({"on_mismatch": "drop", "total_steps": 3, "group_size": 2} | more)
    )
