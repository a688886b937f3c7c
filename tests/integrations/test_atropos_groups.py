"""Groups on their way to a trainer: members that fail, limits of the trainer, an evaluation in the middle, and what a
trainer needs of them."""

from __future__ import annotations

import json
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

from foretrace.envs.train_sequence import make_sequence
from foretrace.models.demo_model import write_demo_model
from integrations.atropos_runs import END, Trainer, check_group, rows, run_api, serving, toy
from integrations.llama_server import Running

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model and its tokenizer as transformers loads them."""
    return Path(write_demo_model(tmp_path_factory.mktemp("demo-model")))


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


def test_a_rollout_that_fails_is_made_again_or_costs_its_group_and_never_the_run(model: Path, tmp_path: Path) -> None:
    """Of the first group a member fails once; of the second one twice; the third and fourth are whole."""
    with model_serving(Flaky(2, 6, 7)) as server:
        more = {"max_rollouts": 1, "model_retries": 0, "tries": 2, "traces_dir": "traces"}
        env = toy(server.url, model, tmp_path, total_steps=3, group_size=3, **more)
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


def test_an_evaluation_while_it_trains_is_written_and_batches_go_on(api: Running, model: Path, tmp_path: Path) -> None:
    trainer, evals = Trainer(api, batch_size=4), tmp_path / "evals"
    more = {"steps_per_eval": 2, "eval_fraction": 0.2, "data_dir_to_save_evals": evals, "traces_dir": "traces"}
    more |= {"rollout_server_url": api.url, "max_num_workers": 2, "ensure_scores_are_not_same": False}
    with model_serving(ModelServer(say=lambda asked: "<code>\npass\n</code>")) as server:
        env = toy(server.url, model, tmp_path, "serve", **more)
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


def test_the_example_trainer_takes_no_batch_without_logprobs(model: Path, pulled: Pulled) -> None:
    """With ours, its own logprobs of the same weights are those of the rollouts; without, it refuses to train."""
    torch = pytest.importorskip("torch", reason="the example trainer needs torch")
    from example_trainer.data import pad_data_to_good_offset
    from example_trainer.training import compute_grpo_loss
    from transformers import AutoModelForCausalLM

    weights = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)

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
