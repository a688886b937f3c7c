"""What a rollout function of TRL gives, without TRL; by the demo model, in a real sandbox."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envs.demo_generate import generate as SERVED  # noqa: N812
from envs.tokenizer import HubTokenizer
from episodes.generating import plus
from foretrace.core.completion import ChatMessage, Sampling
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.problem import Problem
from foretrace.core.store import read_traces
from foretrace.core.trace import Message
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trl import RolloutFunc, prompt_dataset, reward_from_rollout, rollout_func
from foretrace.models.servers.demo import Demo
from foretrace.sandbox.base import SandboxSettings

BOX = SandboxSettings(workers=1, allow_weak_isolation=True)
Output = dict[str, list[Any]]


TOKENIZER = HubTokenizer()
END = TOKENIZER.eos_token_id


def trainer(longest: int = 700) -> Any:
    """What a rollout function sees of a trainer."""
    args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=longest)
    return SimpleNamespace(args=args, processing_class=TOKENIZER, model=None)


def prompts_of(problems: str | list[Problem], protocol: str, *, each: int = 1) -> list[Any]:
    rows = prompt_dataset(problems, protocol)["prompt"]
    return [row for row in rows for _ in range(each)]


@pytest.fixture
def rollouts() -> Iterator[Any]:
    made: list[RolloutFunc] = []

    def make(protocol: str = "tools", generate: Any = None, **arguments: Any) -> RolloutFunc:
        arguments = {"problems": "builtin", "limit": 3, "sandbox_settings": BOX} | arguments
        made.append(rollout_func(protocol, generate or SERVED, **arguments))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Counting:
    """A generate that writes down how many prompts it was given."""

    def __init__(self, inner: Any, fails: Any = lambda call, prompt: False) -> None:
        self.inner, self.fails, self.sizes = inner, fails, list[int]()

    def __call__(self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]) -> list[Any]:
        self.sizes.append(len(prompts))
        output = self.inner(prompts, sampling, stop)
        call = len(self.sizes)
        return [
            ModelError("it is gone", kind="refused", retryable=True) if self.fails(call, number) else one
            for number, one in enumerate(output)
        ]


def model_text(output: Output, row: int) -> str:
    ids = [
        i for i, mine in zip(output["completion_ids"][row], output["env_mask"][row], strict=True) if mine and i != END
    ]
    return TOKENIZER.backend_tokenizer.decode(ids)


def sampled_text(message: Message) -> str:
    """What the model wrote of a message; a closing tag that was put back is not part of it."""
    if message.author != "model" or message.sampled is None:
        return ""
    ids = message.sampled.token_ids[: len(message.sampled.logprobs)]
    text = TOKENIZER.backend_tokenizer.decode([number for number in ids if number != END])
    assert text == message.content or (message.sampled.exact == "text" and message.content.startswith(text))
    return text


@pytest.mark.parametrize(
    "protocol", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("tools", "interleaved_tools")), "inline"]
)
def test_the_model_s_tokens_are_all_that_is_trained_on(rollouts: Any, protocol: str):
    count = Counting(SERVED)
    prompts = prompts_of("builtin", protocol)[:3] * 2
    output = rollouts(protocol, count)(prompts, trainer())
    tokenizer = LocalTokenizer(TOKENIZER)
    others = 0
    for row, trace in enumerate(output["trace"]):
        opening = [ChatMessage(m["role"], m["content"]) for m in prompts[row]]
        assert output["prompt_ids"][row] == tokenizer.apply_template(opening)
        assert model_text(output, row) == "".join(map(sampled_text, trace.messages))
        mask, logprobs = output["env_mask"][row], output["logprobs"][row]
        assert len(output["completion_ids"][row]) == len(mask) == len(logprobs)
        assert all(logprob < 0 if mine else logprob == 0 for mine, logprob in zip(mask, logprobs, strict=True))
        assert output["reward"][row] == trace.outcome.reward
        assert output["metrics"][row] == trace.outcome.metrics
        others += mask.count(0)
    assert others > 100
    assert len(set(map(tuple, output["completion_ids"]))) > 3, "attempts at one problem differ by their seeds"
    turns = [trace.outcome.metrics["turns"] for trace in output["trace"]]
    running = [sum(turn > number for turn in turns) for number in range(int(max(turns)))]
    assert count.sizes == running and len(running) > 1, "one call a turn, for all that still run"


def test_rewards_and_metrics_are_read_from_the_rollout(rollouts: Any):
    output = rollouts()(prompts_of("builtin", "tools")[:3], trainer())
    logged: dict[str, Any] = {}
    rewards = reward_from_rollout([""] * 3, [""] * 3, **output, log_metric=logged.__setitem__)
    assert rewards == output["reward"]
    assert logged["mean_reward"] == pytest.approx(sum(rewards) / 3)
    with pytest.raises(UsageError, match="rollout_func"):
        reward_from_rollout([""], [""])


def test_one_that_fails_is_begun_again(rollouts: Any):
    generate = Counting(SERVED, lambda call, number: call == 1 and number == 1)
    output = rollouts("tools", generate)(prompts_of("builtin", "tools")[:2], trainer())
    assert None not in output["reward"]
    assert generate.sizes[:2] == [2, 2], "beside the next turn of the other"


def test_one_that_fails_for_good_bears_no_loss_and_has_no_reward(rollouts: Any, tmp_path: Path):
    prompts = prompts_of("builtin", "tools")[:2]
    lost = LocalTokenizer(TOKENIZER).apply_template([ChatMessage(m["role"], m["content"]) for m in prompts[1]])
    inner = SERVED

    def generate(asked: Any, *rest: Any) -> list[Any]:
        answers = zip(asked, inner(asked, *rest), strict=True)
        return [ModelError("it is gone", kind="refused") if ids[: len(lost)] == lost else one for ids, one in answers]

    output = rollouts("tools", generate, tries=2)(prompts, trainer())
    assert output["reward"][0] is not None and output["reward"][1] is None
    assert (output["completion_ids"][1], output["env_mask"][1], output["logprobs"][1]) == ([END], [0], [0.0])
    assert reward_from_rollout(prompts, prompts, **output) == output["reward"]
    folder = tmp_path / "traces"
    run = rollouts("tools", generate, tries=2, traces_dir=str(folder))
    run(prompts, trainer())
    run.close()
    errors = [trace.outcome.error for trace in read_traces(folder)]
    assert errors.count(None) == 1
    assert [error.message for error in errors if error] == ["it is gone"] * 2, "each try"
    with pytest.raises(ModelError, match=r"none of 1 episodes.*it is gone"):
        rollouts("tools", generate, tries=1)(prompts[1:], trainer())


def test_what_generate_raises_reaches_the_trainer_and_the_next_step_works(rollouts: Any):
    """The episodes that it leaves behind are ended: their sessions are free again."""
    calls: list[int] = []

    def generate(*asked: Any) -> Any:
        calls.append(len(asked[0]))
        if len(calls) in (2, 4):
            raise MemoryError("too much")
        return SERVED(*asked)

    run = rollouts("interleaved_tools", generate, max_concurrency=2, tries=1)
    prompts = prompts_of("builtin", "interleaved_tools")[:2]
    for _ in range(2):
        with pytest.raises(MemoryError):
            run(prompts, trainer())
    assert None not in run(prompts, trainer())["reward"]


def test_more_episodes_than_sessions_go_in_parts(rollouts: Any):
    generate = Counting(SERVED)
    output = rollouts("interleaved_tools", generate, max_concurrency=2)(
        prompts_of("builtin", "interleaved_tools")[:3], trainer()
    )
    assert None not in output["reward"]
    assert max(generate.sizes) == 2


class Other(HubTokenizer):
    """A tokenizer with another template."""

    def apply_chat_template(self, messages: Any, **arguments: Any) -> list[int]:
        return [*self._text.encode("Hello. "), *super().apply_chat_template(messages, **arguments)]


def test_another_trainer_s_tokenizer_is_its_own(rollouts: Any):
    run, prompts = rollouts(), prompts_of("builtin", "tools")[:1]
    other = trainer()
    other.processing_class = Other()
    begun = [run(prompts, one)["prompt_ids"][0] for one in (trainer(), other, trainer())]
    assert begun[0] == begun[2] != begun[1]
    assert begun[1] == [*TOKENIZER.backend_tokenizer.encode("Hello. ").ids, *begun[0]]


def test_it_runs_where_a_loop_is_running(rollouts: Any):
    async def cell() -> Output:
        return rollouts(generate=Demo())(prompts_of("builtin", "tools")[:1], trainer())

    assert len(asyncio.run(cell())["reward"]) == 1


@pytest.mark.parametrize("longest", [40, 200])
def test_an_episode_stays_within_the_trainer_s_length(rollouts: Any, longest: int):
    output = rollouts()(prompts_of("builtin", "tools")[:3], trainer(longest))
    assert all(0 < len(ids) <= longest for ids in output["completion_ids"])
    cut = [ids[-1] != END for ids in output["completion_ids"]]
    assert any(cut) == (longest == 40), "one that was cut does not look as if it had ended"


def test_prompts_that_are_not_its_own_are_refused(rollouts: Any):
    own = prompts_of("builtin", "tools")[:1]
    with pytest.raises(UsageError, match="not the one of interleaved"):
        rollouts("interleaved")(own, trainer())
    with pytest.raises(UsageError, match="was not given"):
        rollouts(problems=[plus(3)])(own, trainer())
    bare = [[{"role": m["role"], "content": m["content"]} for m in own[0]]]
    with pytest.raises(UsageError, match="prompt_dataset"):
        rollouts()(bare, trainer())


def test_a_server_samples_as_the_function_does(rollouts: Any):
    prompts = prompts_of("builtin", "tools")[:2]
    by_function, by_server = (rollouts(generate=one)(prompts, trainer()) for one in (SERVED, Demo()))
    assert by_function["completion_ids"] == by_server["completion_ids"]
    assert by_function["env_mask"] == by_server["env_mask"]


def test_a_server_s_logprobs_are_those_of_temperature_1(rollouts: Any):
    warm = trainer()
    warm.args.temperature = 0.7
    with pytest.raises(UsageError, match="temperature 1"):
        rollouts(generate=Demo())(prompts_of("builtin", "tools")[:1], warm)


def test_rollouts_are_stored_as_traces(rollouts: Any, tmp_path: Path):
    run = rollouts(traces_dir=str(tmp_path / "traces"))
    prompts = prompts_of("builtin", "tools")[:2] * 2
    keys = [trace.key for _ in range(2) for trace in run(prompts, trainer())["trace"]]
    run.close()
    assert Counter(trace.key for trace in read_traces(tmp_path / "traces")) == Counter(keys)
    assert len(set(keys)) == 8
