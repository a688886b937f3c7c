"""TRL's own `GRPOTrainer` takes steps on foretrace's rollouts and environments, with the demo model's weights.

Rewards are judged again here from the text of the completions, without protocols and episodes: by the code in it and
the problem's hidden tests. Tokens are held against a forward pass of the model and against what the episodes recorded.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import runpy
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from foretrace.core.errors import SandboxError
from foretrace.core.problem import Problem
from foretrace.core.store import read_traces
from foretrace.envs.trl import (
    EnvironmentFactory,
    ToolCalls,
    prompt_dataset,
    reward_from_rollout,
    rollout_func,
    write_demo_model,
)
from foretrace.models.base import Server
from foretrace.models.servers.llamacpp import LlamaCpp
from foretrace.registry import load_problems
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from integrations.llama_server import Running
from integrations.tiny import QUIET_ON_CPU
from sandbox.boxes import skip_if_refused

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
GROUP, STEPS, MOST, KNOWN = 4, 2, 400, 10
"""The demo model knows ten problems."""
BOX = SandboxSettings(workers=2, allow_weak_isolation=True)
NEAR = 1e-3
Output = dict[str, list[Any]]


@pytest.fixture(scope="module")
def folder(offline: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model as transformers loads it: a Qwen3."""
    return Path(write_demo_model(tmp_path_factory.mktemp("demo-model")))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Callable[[Problem, str], float]]:
    """Judges code by the problem's hidden tests: the reward's formula, written here again."""
    with asyncio.Runner() as runner:
        box = LocalSandbox(BOX)

        def judge(problem: Problem, code: str) -> float:
            if not code.strip():
                return -1.0
            verdict = runner.run(
                box.judge(code, problem.hidden_tests, entry_point=problem.entry_point, setup=problem.setup)
            )
            return -1.0 + 2.0 * sum(test.passed for test in verdict.tests) / len(verdict.tests)

        yield judge
        runner.run(box.close())


def train(
    folder: Path, tokenizer: Any, protocol: str, reward: Any, out: Path, *, temperature: float = 1.0, **given: Any
) -> Any:
    """Two steps; returns the trainer."""
    trainer = made(folder, tokenizer, protocol, reward, out, temperature=temperature, **given)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert any((a != b).any() for a, b in zip(before, trainer.model.parameters(), strict=True)), "nothing was learned"
    return trainer


def made(
    folder: Path, tokenizer: Any, protocol: str, reward: Any, out: Path, *, temperature: float = 1.0, **given: Any
) -> Any:
    """A trainer that has not begun."""
    import torch
    from transformers import AutoModelForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=str(out),
        max_steps=STEPS,
        per_device_train_batch_size=2 * GROUP,
        num_generations=GROUP,
        max_completion_length=MOST,
        temperature=temperature,
        learning_rate=1e-4,
        seed=3,
        **QUIET_ON_CPU,
    )
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=reward,
        args=settings,
        train_dataset=prompt_dataset("builtin", protocol, limit=KNOWN),
        processing_class=tokenizer,
        **given,
    )


def logged(trainer: Any, name: str) -> list[float]:
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def check_rewards(trainer: Any, rewards: Sequence[float | None], again: Sequence[float]) -> None:
    """What was logged is the mean of what the sandbox says to the completions, judged again."""
    assert rewards == pytest.approx(again)
    assert len(set(rewards)) > 1, "no variance: nothing could be learned"
    size = 2 * GROUP
    means = [sum(again[at : at + size]) / size for at in range(0, len(again), size)]
    assert len(means) == STEPS
    assert logged(trainer, "reward") == pytest.approx(means)
    assert logged(trainer, "mean_reward") == pytest.approx(means)
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))


def final_of(protocol: str, text: str) -> str:
    """The code that counts: of tools, the last block with any; of inline, the one behind the thinking."""
    form, place = r"<code>\n?(.*?)</code>", text
    if protocol == "inline":
        form, place = r"```python\n(.*?)```", text.partition("</think>")[2]
    found = [code for code in re.findall(form, place, re.DOTALL) if code.strip()]
    return found[-1] if found else ""


def rescored(model: Any, output: Output, row: int, temperature: float) -> list[float]:
    """Logprobs of the completion's ids, from one forward pass."""
    import torch

    prompt, ids = output["prompt_ids"][row], output["completion_ids"][row]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float() / temperature
    return torch.log_softmax(logits, -1).gather(1, torch.tensor(ids)[:, None]).squeeze(1).tolist()


def check_tokens(output: Output, scores: Sequence[list[float]], tokenizer: Any) -> int:
    """The mask is 1 on what the model wrote and 0 on all that the environment said; logprobs are the model's own.

    Returns the number of tokens that the environment put in.
    """
    masked = 0
    for row, trace in enumerate(output["trace"]):
        ids, mask, logprobs = (output[name][row] for name in ("completion_ids", "env_mask", "logprobs"))
        assert len(ids) == len(mask) == len(logprobs) <= MOST
        for mine, logprob, score in zip(mask, logprobs, scores[row], strict=True):
            assert abs(logprob - score) < NEAR if mine else logprob == 0.0
        last = max(n for n, message in enumerate(trace.messages) if message.author == "model")
        told = trace.messages[: last + 1]
        written = "".join(m.content for m in told if m.author == "model")
        answers = [m.content for m in told if m.author == "environment"]
        parts = ("".join(tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m == own])) for own in (0, 1))
        theirs, ours = (re.sub(r"<\|(im_end|im_start|endoftext)\|>", "", part) for part in parts)
        inexact = any(m.sampled is not None and m.sampled.exact != "token" for m in told if m.author == "model")
        assert ours == written or (inexact and len(ours) < len(written))
        at = 0
        for answer in answers:
            at = theirs.index(answer.strip(), at) + len(answer.strip())
        assert not any(answer.strip() in ours for answer in answers)
        masked += mask.count(0)
    return masked


@pytest.mark.parametrize(("protocol", "temperature"), [("tools", 1.2), ("inline", 1.0)])
def test_rollouts(
    folder: Path,
    tokenizer: Any,
    sandbox: Callable[[Problem, str], float],
    tmp_path: Path,
    protocol: str,
    temperature: float,
) -> None:
    run = rollout_func(protocol, problems="builtin", sandbox_settings=BOX)
    problems = {
        row["task"]: msgspec.json.decode(row["problem"], type=Problem) for row in prompt_dataset("builtin", protocol)
    }
    steps: list[tuple[Output, list[list[float]]]] = []

    def watched(prompts: Any, trainer: Any) -> Output:
        output = run(prompts, trainer)
        scores = [rescored(trainer.model, output, row, temperature) for row in range(len(prompts))]
        steps.append((dict(output), scores))
        return output

    trainer = train(
        folder, tokenizer, protocol, reward_from_rollout, tmp_path, temperature=temperature, rollout_func=watched
    )
    run.close()
    assert len(steps) == STEPS
    traces = [trace for output, _ in steps for trace in output["trace"]]
    written = ["".join(m.content for m in trace.messages if m.author == "model") for trace in traces]
    again = [
        sandbox(problems[trace.task.id], final_of(protocol, text)) for trace, text in zip(traces, written, strict=True)
    ]
    check_rewards(trainer, [reward for output, _ in steps for reward in output["reward"]], again)
    assert sum(check_tokens(*step, tokenizer) for step in steps) > 100
    assert any(trace.outcome.metrics["turns"] > 1 for trace in traces)
    lengths = [sum(map(sum, output["env_mask"])) / (2 * GROUP) for output, _ in steps]
    assert logged(trainer, "completions/mean_length") == pytest.approx(lengths), "TRL takes the mask"
    output, scores = steps[0]
    for name, wrong in (("env_mask", _all_ones), ("logprobs", _one_too_far)):  # controls
        with pytest.raises(AssertionError):
            check_tokens(output | {name: [wrong(row) for row in output[name]]}, scores, tokenizer)


def _all_ones(mask: list[int]) -> list[int]:
    return [1] * len(mask)


def _one_too_far(logprobs: list[float]) -> list[float]:
    return [0.0, *logprobs[:-1]]


def test_another_trainer_samples_with_its_own_model(folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    """One rollout function, handed to a second trainer: the logprobs are those of the second one's weights."""
    import torch

    run = rollout_func("tools", problems="builtin", limit=2, sandbox_settings=BOX)
    first, second = (
        made(folder, tokenizer, "tools", reward_from_rollout, tmp_path, rollout_func=run) for _ in range(2)
    )
    with torch.no_grad():
        for weights in second.model.parameters():
            weights.mul_(1.05)
    prompts = prompt_dataset("builtin", "tools", limit=2)["prompt"]
    for trainer, other in ((first, second), (second, first)):
        output = run(prompts, trainer)
        own = [rescored(trainer.model, output, row, 1.0) for row in range(2)]
        check_tokens(output, own, tokenizer)
        with pytest.raises(AssertionError):  # control
            check_tokens(output, [rescored(other.model, output, row, 1.0) for row in range(2)], tokenizer)
    run.close()


def test_the_first_try_of_the_docs_runs(
    offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it stands; what the page shows of its output is printed, in that order."""
    try:
        asyncio.run(_started())
    except SandboxError as error:
        skip_if_refused(error)
        raise
    page = (ROOT / "docs" / "rl.md").read_text(encoding="utf-8")
    (code, _, output), *_ = re.findall(r"```python\n(from trl.*?)```(.*?)```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    trainer = names["trainer"]
    figure = r"('[\w/]+'): '[^']*'"
    printed = [re.findall(figure, line) for line in capsys.readouterr().out.splitlines()]
    shown = [re.findall(figure, line) for line in output.splitlines()]
    assert len(shown) == STEPS and all(len(step) > 6 for step in shown)
    for step, line in zip(shown, printed, strict=False):
        assert step == [name for name in line if name in step]
    assert max(logged(trainer, "reward")) > -1.0, "the model solves something"


async def _started() -> None:
    async with LocalSandbox(SandboxSettings()) as box:
        await box.start()


@pytest.mark.parametrize("protocol", ["tools", "inline"])
def test_rollouts_by_a_server(folder: Path, tokenizer: Any, llama: Running, protocol: str) -> None:
    """llama-server samples: its ids and logprobs are those of the model that transformers loads."""
    import torch
    from transformers import AutoModelForCausalLM

    served = LlamaCpp("demo-model", Server(base_url=llama.url))
    run = rollout_func(protocol, served, problems="builtin", limit=4, sandbox_settings=BOX)
    args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=MOST)
    trainer = SimpleNamespace(args=args, processing_class=tokenizer, model=None)
    output = run(prompt_dataset("builtin", protocol, limit=4)["prompt"], trainer)
    run.close()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert None not in output["reward"]
    assert check_tokens(output, [rescored(model, output, row, 1.0) for row in range(4)], tokenizer) > 0


def test_every_trained_token_was_sampled_and_the_reward_is_the_episodes(folder: Path, tmp_path: Path) -> None:
    """The tool loop is TRL's, the replies are written here: every second member of a group gives up after a wrong
    answer; the others correct and submit it."""
    import trl
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    steps, group = 3, 2
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = Path(trl.__file__).with_name("chat_templates").joinpath("qwen3.jinja").read_text()
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

    environments = EnvironmentFactory(sandbox_settings=BOX, traces_dir=str(tmp_path / "traces"))
    config = GRPOConfig(
        str(tmp_path / "out"),
        max_steps=steps,
        per_device_train_batch_size=group,
        num_generations=group,
        max_completion_length=900,
        seed=1,
        **QUIET_ON_CPU,
    )
    trainer = Scripted(
        str(folder),
        args=config,
        train_dataset=prompt_dataset("builtin", ToolCalls(), limit=3),
        processing_class=tokenizer,
        environment_factory=environments,
    )
    trainer.sampled, trainer.trained = [], []
    trainer.train()
    environments.close()
    traces = list(read_traces(tmp_path / "traces"))
    assert len(traces) == len(trainer.trained) == steps * group
    assert all(trace.outcome.error is None and trace.outcome.metrics["turns"] >= 1 for trace in traces)
    rewards = logged(trainer, "reward")
    mean = sum(trace.outcome.reward or 0.0 for trace in traces) / len(traces)
    assert sum(rewards) / steps == pytest.approx(mean) and max(t.outcome.reward or 0.0 for t in traces) >= 1.0
    said = sorted(token for ids in trainer.sampled for token in ids)
    learned = [[i for i, on in zip(ids, mask, strict=True) if on] for ids, mask in trainer.trained]
    assert sorted(token for ids in learned for token in ids) == said
    masked = [tokenizer.decode([i for i, on in zip(ids, mask, strict=True) if not on]) for ids, mask in trainer.trained]
    assert all("<tool_response>" in text for text in masked)
    assert not any("<tool_response>" in tokenizer.decode(ids) for ids in learned)


@pytest.mark.parametrize("name", ["trl_environment.py", "trl_rollouts.py"])
def test_the_examples_run(offline: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = runpy.run_path(str(ROOT / "examples" / "rl" / name))["trainer"]
    assert trainer.state.global_step == trainer.args.max_steps
    assert len((ROOT / "examples" / "rl" / name).read_text().splitlines()) <= 30
