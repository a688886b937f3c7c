"""What TRL is given (prompts, rewards, rollouts), without TRL; by the demo model, in a real sandbox."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from episodes.generating import plus
from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ModelError, ProblemError, UsageError
from foretrace.core.problem import Problem
from foretrace.core.store import read_traces
from foretrace.core.trace import Message
from foretrace.envs.tokenizer import LocalTokens
from foretrace.envs.trl import RolloutFunc, prompt_dataset, reward_from_rollout, rollout_func, server_generate
from foretrace.envs.trl.rounds import Generated, completion_of
from foretrace.models.demo_network.text import Text
from foretrace.models.servers.demo import Demo
from foretrace.sandbox.base import SandboxSettings

FILE = resources.files("foretrace.models") / "demo_model" / "tokenizer.json"
BOX = SandboxSettings(workers=1, allow_weak_isolation=True)
END = 2
Said = dict[str, list[Any]]


class DemoTokenizer:
    """The demo model's tokenizer with the methods of transformers' that are used."""

    eos_token_id = END

    def __init__(self) -> None:
        text = FILE.read_text(encoding="utf-8")
        self.backend_tokenizer, self._text = Tokenizer.from_str(text), Text(text)

    def apply_chat_template(self, messages: Any, *, add_generation_prompt: bool, **_: Any) -> list[int]:
        ids = self._text.render([ChatMessage(**message) for message in messages])
        return ids if add_generation_prompt else ids[: -len(self._text.encode("<|im_start|>assistant\n", special=True))]


TOKENIZER = DemoTokenizer()
SERVED = server_generate(Demo())


def trainer(most: int = 700) -> Any:
    """What a rollout function sees of a trainer."""
    args = SimpleNamespace(temperature=1.0, top_p=1.0, top_k=0, max_completion_length=most)
    return SimpleNamespace(args=args, processing_class=TOKENIZER, model=None)


def prompts_of(problems: str | list[Problem], protocol: str, *, each: int = 1) -> list[Any]:
    rows = prompt_dataset(problems, protocol)["prompt"]
    return [row for row in rows for _ in range(each)]


@pytest.fixture
def rollouts() -> Iterator[Any]:
    made: list[RolloutFunc] = []

    def make(protocol: str = "tools", generate: Any = None, **given: Any) -> RolloutFunc:
        box = given.pop("box", BOX)
        given = {"problems": "builtin", "limit": 3} | given
        made.append(rollout_func(protocol, generate or SERVED, box=box, **given))
        return made[-1]

    yield make
    for one in made:
        one.close()


# Prompts


def test_a_prompt_says_its_task_and_no_hidden_test():
    rows = prompt_dataset([plus(3), plus(4)], "interleaved")
    assert rows.column_names == ["prompt", "task", "problem"]
    for row, problem in zip(rows, (plus(3), plus(4)), strict=True):
        assert msgspec.json.decode(row["problem"], type=Problem) == problem
        assert {message["task"] for message in row["prompt"]} == {row["task"]} == {problem.id}
        said = json.dumps(row["prompt"])
        assert problem.public_tests[0].code in said
        assert not any(test.code in said for test in problem.hidden_tests)


def test_sets_come_by_name_and_problems_must_be_usable():
    assert prompt_dataset("builtin", "tools", limit=4).num_rows == 4
    with pytest.raises(ProblemError, match="two problems have the id"):
        prompt_dataset([plus(3), plus(3)], "tools")
    with pytest.raises(ProblemError, match="no tests"):
        prompt_dataset([Problem(id="x", statement="x")], "tools")
    with pytest.raises(ProblemError, match="no problem"):
        prompt_dataset([], "tools")


# Rollouts


class Counting:
    """A generate that writes down how many prompts it was given."""

    def __init__(self, inner: Any, fails: Any = lambda call, prompt: False) -> None:
        self.inner, self.fails, self.sizes = inner, fails, list[int]()

    def __call__(self, prompts: list[list[int]], sampling: list[Sampling], stop: tuple[str, ...]) -> list[Any]:
        self.sizes.append(len(prompts))
        said = self.inner(prompts, sampling, stop)
        call = len(self.sizes)
        return [
            ModelError("it is gone", kind="refused", retryable=True) if self.fails(call, number) else one
            for number, one in enumerate(said)
        ]


def model_text(said: Said, row: int) -> str:
    ids = [i for i, mine in zip(said["completion_ids"][row], said["env_mask"][row], strict=True) if mine and i != END]
    return TOKENIZER.backend_tokenizer.decode(ids)


def sampled_text(message: Message) -> str:
    """What the model wrote of a message; a closing tag that was put back is no part of it."""
    if message.author != "model" or message.sampled is None:
        return ""
    ids = message.sampled.token_ids[: len(message.sampled.logprobs)]
    text = TOKENIZER.backend_tokenizer.decode([number for number in ids if number != END])
    assert text == message.content or (message.sampled.exact == "text" and message.content.startswith(text))
    return text


@pytest.mark.parametrize("protocol", ["tools", "interleaved_tools", "inline"])
def test_the_model_s_tokens_are_all_that_is_trained_on(rollouts: Any, protocol: str):
    count = Counting(SERVED)
    prompts = prompts_of("builtin", protocol)[:3] * 2
    said = rollouts(protocol, count)(prompts, trainer())
    tokens = LocalTokens(TOKENIZER)
    others = 0
    for row, trace in enumerate(said["trace"]):
        opening = [ChatMessage(m["role"], m["content"]) for m in prompts[row]]
        assert said["prompt_ids"][row] == tokens.rendered(opening)
        assert model_text(said, row) == "".join(map(sampled_text, trace.messages))
        mask, logprobs = said["env_mask"][row], said["logprobs"][row]
        assert len(said["completion_ids"][row]) == len(mask) == len(logprobs)
        assert all(logprob < 0 if mine else logprob == 0 for mine, logprob in zip(mask, logprobs, strict=True))
        assert said["reward"][row] == trace.outcome.reward
        assert said["metrics"][row] == trace.outcome.metrics
        others += mask.count(0)
    assert others > 100
    assert len(set(map(tuple, said["completion_ids"]))) > 3, "attempts at one problem differ by their seeds"
    turns = [trace.outcome.metrics["turns"] for trace in said["trace"]]
    running = [sum(turn > number for turn in turns) for number in range(int(max(turns)))]
    assert count.sizes == running and len(running) > 1, "one call a turn, for all that still run"


def test_rewards_and_metrics_are_read_from_the_rollout(rollouts: Any):
    said = rollouts()(prompts_of("builtin", "tools")[:3], trainer())
    logged: dict[str, Any] = {}
    rewards = reward_from_rollout([""] * 3, [""] * 3, **said, log_metric=logged.__setitem__)
    assert rewards == said["reward"]
    assert logged["mean_reward"] == pytest.approx(sum(rewards) / 3)
    with pytest.raises(UsageError, match="rollout_func"):
        reward_from_rollout([""], [""])


def test_one_that_fails_is_begun_again(rollouts: Any):
    generate = Counting(SERVED, lambda call, number: call == 1 and number == 1)
    said = rollouts("tools", generate)(prompts_of("builtin", "tools")[:2], trainer())
    assert None not in said["reward"]
    assert 1 in generate.sizes[1:]


def test_one_that_fails_for_good_bears_no_loss_and_has_no_reward(rollouts: Any, tmp_path: Path):
    prompts = prompts_of("builtin", "tools")[:2]
    lost = LocalTokens(TOKENIZER).rendered([ChatMessage(m["role"], m["content"]) for m in prompts[1]])
    inner = SERVED

    def generate(asked: Any, *rest: Any) -> list[Any]:
        told = zip(asked, inner(asked, *rest), strict=True)
        return [ModelError("it is gone", kind="refused") if ids[: len(lost)] == lost else one for ids, one in told]

    said = rollouts("tools", generate, tries=2)(prompts, trainer())
    assert said["reward"][0] is not None and said["reward"][1] is None
    assert (said["completion_ids"][1], said["env_mask"][1], said["logprobs"][1]) == ([END], [0], [0.0])
    assert reward_from_rollout(prompts, prompts, **said) == said["reward"]
    kept = tmp_path / "traces"
    run = rollouts("tools", generate, tries=2, traces_dir=str(kept))
    run(prompts, trainer())
    run.close()
    errors = [trace.outcome.error for trace in read_traces(kept)]
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

    box = msgspec.structs.replace(BOX, max_sessions=2)
    run = rollouts("interleaved_tools", generate, box=box, tries=1)
    prompts = prompts_of("builtin", "interleaved_tools")[:2]
    for _ in range(2):
        with pytest.raises(MemoryError):
            run(prompts, trainer())
    assert None not in run(prompts, trainer())["reward"]


def test_more_episodes_than_sessions_go_in_parts(rollouts: Any):
    generate = Counting(SERVED)
    box = msgspec.structs.replace(BOX, max_sessions=2)
    said = rollouts("interleaved_tools", generate, box=box)(prompts_of("builtin", "interleaved_tools")[:3], trainer())
    assert None not in said["reward"]
    assert max(generate.sizes) == 2


class Other(DemoTokenizer):
    """A tokenizer with another template."""

    def apply_chat_template(self, messages: Any, **given: Any) -> list[int]:
        return [*self._text.encode("Hello. "), *super().apply_chat_template(messages, **given)]


def test_another_trainer_s_tokenizer_is_its_own(rollouts: Any):
    run, prompts = rollouts(), prompts_of("builtin", "tools")[:1]
    other = trainer()
    other.processing_class = Other()
    begun = [run(prompts, one)["prompt_ids"][0] for one in (trainer(), other, trainer())]
    assert begun[0] == begun[2] != begun[1]
    assert begun[1] == [*TOKENIZER.backend_tokenizer.encode("Hello. ").ids, *begun[0]]


def test_it_runs_where_a_loop_is_running(rollouts: Any):
    async def cell() -> Said:
        return rollouts()(prompts_of("builtin", "tools")[:1], trainer())

    assert len(asyncio.run(cell())["reward"]) == 1


@pytest.mark.parametrize("most", [40, 200])
def test_an_episode_stays_within_the_trainer_s_length(rollouts: Any, most: int):
    said = rollouts()(prompts_of("builtin", "tools")[:3], trainer(most))
    assert all(0 < len(ids) <= most for ids in said["completion_ids"])
    cut = [ids[-1] != END for ids in said["completion_ids"]]
    assert any(cut) == (most == 40), "one that was cut does not look as if it had ended"


def test_prompts_that_are_not_its_own_are_refused(rollouts: Any):
    own = prompts_of("builtin", "tools")[:1]
    with pytest.raises(UsageError, match="not the one of interleaved"):
        rollouts("interleaved")(own, trainer())
    with pytest.raises(UsageError, match="was not given"):
        rollouts(problems=[plus(3)])(own, trainer())
    bare = [[{"role": m["role"], "content": m["content"]} for m in own[0]]]
    with pytest.raises(UsageError, match="prompt_dataset"):
        rollouts()(bare, trainer())


def test_a_server_s_logprobs_are_those_of_temperature_1(rollouts: Any):
    warm = trainer()
    warm.args.temperature = 0.7
    with pytest.raises(UsageError, match="temperature 1"):
        rollouts()(prompts_of("builtin", "tools")[:1], warm)


def test_what_is_used_again_is_closed_again():
    class Closing(Demo):
        closed = 0

        async def close(self) -> None:
            Closing.closed += 1
            await super().close()

    generate = server_generate(Closing())
    for times in (1, 2):
        (said,) = generate([[5]], [Sampling(temperature=1.0, max_tokens=3)], ())
        assert isinstance(said, Completion) and said.token_ids
        generate.close()
        generate.close()
        assert Closing.closed == times


@pytest.mark.parametrize(("answers", "why"), [(False, "start the server"), (True, "HTTP 501")])
def test_a_dead_or_foreign_server_is_the_last_that_is_said(tmp_path: Path, answers: bool, why: str):
    """Its connections are closed where the process ends with the error, after a `close` in between, too."""
    script = (
        "import sys\n"
        "from foretrace.core.completion import Sampling\n"
        "from foretrace.core.errors import ModelError\n"
        "from foretrace.envs.trl import server_generate\n"
        "from foretrace.models.base import Server\n"
        "from foretrace.models.servers.openai import OpenAI\n"
        "generate = server_generate(OpenAI('toy', Server(base_url=sys.argv[1], retries=0)))\n"
        "try:\n"
        "    generate([[5]], [Sampling(temperature=1.0)], ())\n"
        "except ModelError:\n"
        "    generate.close()\n"
        "generate([[5]], [Sampling(temperature=1.0)], ())\n"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as foreign:
        serving = threading.Thread(target=foreign.serve_forever)
        serving.start()
        if not answers:
            foreign.shutdown()
            foreign.server_close()
        url = f"http://127.0.0.1:{foreign.server_port}"
        done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=120)
        foreign.shutdown()
        serving.join()
    assert done.returncode == 1
    assert why in done.stderr.splitlines()[-1], done.stderr


def test_rollouts_are_kept_as_traces(rollouts: Any, tmp_path: Path):
    run = rollouts(traces_dir=str(tmp_path / "traces"))
    prompts = prompts_of("builtin", "tools")[:2] * 2
    keys = [trace.key for _ in range(2) for trace in run(prompts, trainer())["trace"]]
    run.close()
    assert Counter(trace.key for trace in read_traces(tmp_path / "traces")) == Counter(keys)
    assert len(set(keys)) == 8


# Ids to completions


def request(most: int = 100) -> Request:
    return Request(prompt_ids=(5,), stop=("</code>",), sampling=Sampling(max_tokens=most))


def read(text: str, most: int = 100) -> Any:
    tokens = LocalTokens(TOKENIZER)
    ids = tokens.encode(text, special=True)
    return completion_of(request(most), Generated(ids, [-0.5] * len(ids)), tokens), ids


def test_a_completion_ends_at_a_stop_sequence_an_end_or_its_limit():
    completion, ids = read("x = 1</code> and more")
    assert (completion.text, completion.finish, completion.stop) == ("x = 1", "stop_sequence", "</code>")
    assert completion.token_ids == tuple(ids[: ids.index(1007) + 1])
    completion, ids = read("done<|im_end|><|endoftext|><|endoftext|>")
    assert (completion.text, completion.finish, completion.token_ids) == ("done", "stop", tuple(ids[:-2]))
    completion, ids = read("one two three four", 2)
    assert (completion.finish, completion.token_ids) == ("length", tuple(ids[:2]))
    completion, ids = read("ended by an end of its own<|endoftext|>")
    assert (completion.finish, completion.token_ids) == ("stop", tuple(ids))
    with pytest.raises(UsageError, match="2 ids and 1 logprobs"):
        completion_of(request(), Generated([5, 6], [-1.0]), LocalTokens(TOKENIZER))
