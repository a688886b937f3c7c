"""What TRL's reward functions are given and give, without TRL, in a real sandbox."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.tokenizer import HubTokenizer
from episodes.generating import plus
from foretrace.core.errors import SandboxError, UsageError
from foretrace.core.problem import Problem, Verdict
from foretrace.envs.trl import prompt_dataset, reward_fn
from foretrace.episodes.settings import EpisodeSettings
from foretrace.protocols.interleaved import Interleaved
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox
from sandbox.boxes import skip_if_refused

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "rl.md").read_text(encoding="utf-8")
BOX = SandboxSettings(workers=1, allow_weak_isolation=True)
RIGHT = "<think>I add.</think><code>\ndef plus(x):\n    return x + 3\n</code>"
HALF = "<think>Hm.</think><code>\ndef plus(x):\n    return 4\n</code>"
BROKEN = "<code>\ndef plus(x:\n</code>"
TOKENIZER = HubTokenizer()


def make_prompts(
    problems: Sequence[Problem | None], protocol: Any = "interleaved"
) -> tuple[list[Any], list[str | None]]:
    """Prompts and the column `problem`, as a trainer hands them over; null is a row of another dataset."""
    rows = [prompt_dataset([one], protocol)[0] if one else {"prompt": "Hello.", "problem": None} for one in problems]
    return [row["prompt"] for row in rows], [row["problem"] for row in rows]


def reward(completions: Sequence[Any], problems: Sequence[Problem | None] | None = None, **given: Any) -> Any:
    """The rewards, and what was logged."""
    settings = {} if isinstance(given.get("sandbox", ""), LocalSandbox) else {"sandbox_settings": BOX}
    function = reward_fn(given.pop("protocol", "interleaved"), **settings, **given)
    prompts, texts = make_prompts(problems or [plus(3)] * len(completions))
    logged: dict[str, Any] = {}
    try:
        work = function(prompts, completions, None, texts, logged.__setitem__, logged.__setitem__)
        return asyncio.run(work), logged
    finally:
        function.close()


def test_the_reward_is_the_share_of_hidden_tests():
    replies = [RIGHT, [{"role": "assistant", "content": HALF}], BROKEN, ""]
    rewards, logged = reward(replies)
    assert rewards == [1.0, 0.0, -1.0, -1.0]
    assert (logged["accuracy"], logged["mean_reward"], logged["rollouts"]) == (0.25, -0.25, 4)
    assert logged["task"] == ["plus/3"] * 4
    assert logged["tests"] == ["3/3", "1/3", "0/3", "0/3"]


def test_a_row_without_a_problem_has_no_reward():
    assert reward([RIGHT, RIGHT], [None, plus(3)])[0] == [None, 1.0]


def test_thinking_that_trl_took_apart_counts():
    message = {"role": "assistant", "reasoning_content": "I add, and add.", "content": RIGHT.partition("</think>")[2]}
    assert reward([[message]])[1]["think_count"] == 1.0


class Failing(LocalSandbox):
    """A sandbox that fails at every second judging."""

    count = 0

    async def judge(self, *given: Any, **named: Any) -> Verdict:
        self.count += 1
        if self.count % 2:
            raise SandboxError("the worker is gone")
        return await super().judge(*given, **named)


def test_a_sandbox_that_fails_gives_no_reward_and_never_0():
    rewards, logged = reward([HALF] * 3, settings=EpisodeSettings(structure_bonus=True), sandbox=Failing(BOX))
    assert None in rewards and 0.0 in rewards
    assert logged["failed/sandbox"] == rewards.count(None)


def test_no_sandbox_at_all_ends_the_training():
    weak = LocalSandbox(SandboxSettings(workers=1, min_level=3, level=0))
    with pytest.raises((SandboxError, UsageError)):
        reward([RIGHT], sandbox=weak)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"protocol": "inline"}, "rollout_func"),
        ({"protocol": "tools", "settings": EpisodeSettings(max_turns=2)}, "one turn"),
        ({"protocol": "nothing"}, "nothing"),
        ({"protocol": "tools", "sandbox": " "}, "sandbox"),
    ],
)
def test_what_one_turn_cannot_serve_is_refused(given: dict[str, Any], why: str):
    with pytest.raises(UsageError, match=why):
        reward_fn(**given)


@pytest.mark.parametrize(("ended", "worth"), [(True, 1.0), (False, -1.0)])
def test_a_block_that_the_limit_cut_is_not_run(ended: bool, worth: float):
    open_block = RIGHT.removesuffix("</code>")
    function = reward_fn("interleaved", sandbox_settings=BOX, tokenizer=TOKENIZER)
    ids = [[5, 6, TOKENIZER.eos_token_id] if ended else [5, 6, 7]]
    prompts, texts = make_prompts([plus(3)])
    try:
        assert asyncio.run(function(prompts, [open_block], ids, texts)) == [worth]
    finally:
        function.close()


def test_a_dataset_of_another_making_is_refused():
    function = reward_fn("interleaved", sandbox_settings=BOX)
    with pytest.raises(UsageError, match="prompt_dataset"):
        asyncio.run(function([""], [RIGHT]))
    with pytest.raises(UsageError, match="prompt_dataset"):
        asyncio.run(function([""], [RIGHT], None, ["{}"]))
    function.close()


# Prompts that are not the protocol's


def judge(prompts: Sequence[Any], texts: Sequence[str | None], protocol: Any = "interleaved") -> Any:
    """The rewards of right answers to prompts."""
    function = reward_fn(protocol, sandbox_settings=BOX)
    try:
        return asyncio.run(function(prompts, [RIGHT] * len(prompts), problem=texts))
    finally:
        function.close()


@pytest.mark.parametrize("protocol", ["tools", "structured", "interleaved_tools"])
def test_a_prompt_of_another_protocol_ends_the_training(protocol: str):
    with pytest.raises(UsageError, match="'plus/3' is not the one of interleaved; give both the same protocol"):
        judge(*make_prompts([plus(3)], protocol))
    assert judge(*make_prompts([plus(3)], protocol), protocol) == [1.0]


def test_a_prompt_of_another_problem_ends_the_training():
    prompts, texts = make_prompts([plus(3), plus(4)])
    with pytest.raises(UsageError, match="not the one"):
        judge(prompts, texts[::-1])
    with pytest.raises(UsageError, match="not the one"):
        judge(["", prompts[1]], texts)


def test_a_prompt_may_be_the_text_of_its_messages():
    """The chat template was applied before the trainer saw it."""
    prompts, texts = make_prompts([plus(3)])
    text = "".join(f"[{m['role']}] {m['content']} [end]" for m in prompts[0])
    assert judge([text], texts) == [1.0]
    with pytest.raises(UsageError, match="not the one"):
        judge([text], texts, "tools")


# What docs/rl.md shows


def find_example(part: str) -> tuple[str, str]:
    """The Python of the page that holds this, and the text right behind it."""
    found = re.findall(r"```python\n((?:(?!```).)*)```\n(?:\n<!-- output -->\n```text\n(.*?)```)?", PAGE, re.DOTALL)
    (one,) = (pair for pair in found if part in pair[0])
    return one


def test_a_reward_by_hand(capsys: pytest.CaptureFixture[str]):

    async def default() -> None:
        async with LocalSandbox(SandboxSettings(workers=1)) as sandbox:
            await sandbox.start()

    try:
        asyncio.run(default())
    except SandboxError as error:
        skip_if_refused(error)
        raise
    code, output = find_example("asyncio.run")
    exec(code, {})
    assert capsys.readouterr().out == output == "[-0.6]\n"


def test_words_of_one_s_own_are_a_protocol_s():
    names: dict[str, Any] = {}
    exec(find_example("class Brief")[0], names)
    brief: Interleaved = names["Brief"]()
    prompts, texts = make_prompts([plus(3)], brief)
    assert prompts[0][0]["content"].startswith("Think in one sentence.\n\nYou solve")
    assert judge(prompts, texts, brief) == [1.0]
    with pytest.raises(UsageError) as refused:
        judge(prompts, texts)
    assert "own opening: docs/rl.md" in str(refused.value)


def test_the_refusal_on_the_page_is_the_one_that_is_printed():
    rows = prompt_dataset("builtin", "interleaved", limit=1)
    with pytest.raises(UsageError) as refused:
        judge(rows["prompt"], rows["problem"], "tools")
    assert f"\nUsageError: {refused.value}\n" in PAGE


def test_the_sandbox_ends_with_the_process():
    script = (
        "import asyncio, msgspec\n"
        "from foretrace.envs.trl import reward_fn, prompt_dataset\n"
        "from foretrace.sandbox.base import SandboxSettings\n"
        "rows = prompt_dataset('builtin', 'interleaved', limit=1)\n"
        "judge = reward_fn('interleaved', sandbox_settings=SandboxSettings(workers=1, allow_weak_isolation=True))\n"
        "print(asyncio.run(judge(rows['prompt'], ['no code'], None, rows['problem'])))\n"
        "import psutil\n"
        "print(*(child.pid for child in psutil.Process().children(recursive=True)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    rewards, children = done.stdout.splitlines()
    assert (done.returncode, rewards) == (0, "[-1.0]"), done.stderr
    import psutil

    assert children and not any(psutil.pid_exists(int(child)) for child in children.split())
