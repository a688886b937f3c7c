"""TRL's own `GRPOTrainer` takes steps on `EnvironmentFactory`: the tool loop is TRL's, the replies are written here."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from foretrace.core.store import read_traces
from foretrace.envs.trl import EnvironmentFactory, ToolCalls, prompt_dataset, write_demo_model
from foretrace.registry import load_problems
from foretrace.sandbox.base import SandboxSettings

pytestmark = pytest.mark.integration
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "rl"
STEPS, GROUP = 3, 2


@pytest.fixture
def tokenizer(offline: None, tmp_path: Path) -> Any:
    import trl
    from transformers import AutoTokenizer

    made = AutoTokenizer.from_pretrained(write_demo_model(tmp_path / "model"))
    made.chat_template = Path(trl.__file__).with_name("chat_templates").joinpath("qwen3.jinja").read_text()
    return made


def test_every_trained_token_was_sampled_and_the_reward_is_the_episodes(tokenizer: Any, tmp_path: Path) -> None:
    """Every second member of a group gives up after a wrong answer; the others correct and submit it."""
    from trl import GRPOConfig, GRPOTrainer

    problems = {problem.statement: problem for problem in load_problems("builtin", None, 3)}

    def call(name: str, **arguments: str) -> str:
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"

    class Scripted(GRPOTrainer):
        sampled: list[list[int]]
        trained: list[tuple[list[int], list[int]]]

        def _generate_single_turn(self, prompt_ids: Any, *given: Any, **named: Any) -> Any:
            replies = [self._reply(number, tokenizer.decode(ids)) for number, ids in enumerate(prompt_ids)]
            ids = [tokenizer.encode(reply + "<|im_end|>", add_special_tokens=False) for reply in replies]
            self.sampled += ids
            return ids, None

        def _reply(self, number: int, prompt: str) -> str:
            problem = next(problem for statement, problem in problems.items() if statement.strip() in prompt)
            turn = prompt.count("<tool_response>")
            if not turn:
                return call("run_tests", code=f"def {problem.entry_point}(*given): return None")
            if "gives up" in prompt or (turn == 1 and len(self.sampled) % 2):
                return "It gives up."
            right = call("run_tests", code=problem.reference)
            return [right, call("submit"), "It is done."][turn - 1]

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            output = super()._generate_and_score_completions(inputs)
            for row in range(len(inputs)):
                ids, mask = (output[name][row].tolist() for name in ("completion_ids", "tool_mask"))
                own = output["completion_mask"][row].tolist()
                self.trained.append((ids, [one * other for one, other in zip(mask, own, strict=True)]))
            return output

    environments = EnvironmentFactory(
        sandbox_settings=SandboxSettings(workers=1, allow_weak_isolation=True), traces_dir=str(tmp_path / "traces")
    )
    config = GRPOConfig(
        str(tmp_path / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        max_completion_length=900,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        seed=1,
    )
    trainer = Scripted(
        str(tmp_path / "model"),
        args=config,
        train_dataset=prompt_dataset("builtin", ToolCalls(), limit=3),
        processing_class=tokenizer,
        environment_factory=environments,
    )
    trainer.sampled, trainer.trained = [], []
    trainer.train()
    environments.close()
    traces = list(read_traces(tmp_path / "traces"))
    assert len(traces) == len(trainer.trained) == STEPS * GROUP
    assert all(trace.outcome.error is None and trace.outcome.metrics["turns"] >= 1 for trace in traces)
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    mean = sum(trace.outcome.reward or 0.0 for trace in traces) / len(traces)
    assert sum(rewards) / STEPS == pytest.approx(mean) and max(t.outcome.reward or 0.0 for t in traces) >= 1.0
    said = sorted(token for ids in trainer.sampled for token in ids)
    learned = [[i for i, on in zip(ids, mask, strict=True) if on] for ids, mask in trainer.trained]
    assert sorted(token for ids in learned for token in ids) == said
    masked = [tokenizer.decode([i for i, on in zip(ids, mask, strict=True) if not on]) for ids, mask in trainer.trained]
    assert all("<tool_response>" in text for text in masked)
    assert not any("<tool_response>" in tokenizer.decode(ids) for ids in learned)


@pytest.mark.parametrize("name", ["trl_environment.py", "trl_rollouts.py"])
def test_the_examples_run(offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = runpy.run_path(str(EXAMPLES / name))["trainer"]
    assert trainer.state.global_step == trainer.args.max_steps
    assert len((EXAMPLES / name).read_text().splitlines()) <= 30
