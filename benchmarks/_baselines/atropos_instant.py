"""A model that answers at once and sandboxes that do little, named by settings of `python -m foretrace.envs.atropos`.

Each episode has two turns: code, which is run, and a verify block. Every second attempt is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import cycle
from typing import Any

from _baselines.canned_server import REPLIES
from _baselines.generating import NullSandbox
from foretrace.core.completion import Completion, Request
from foretrace.core.problem import RunResult, Test, TestResult, Verdict
from foretrace.core.trace import Isolation
from foretrace.models.base import Server
from foretrace.models.servers.demo import Demo, load_checkpoint
from foretrace.sandbox.base import SandboxSettings
from foretrace.sandbox.local import LocalSandbox

TURNS = 2
_RIGHT, _WRONG, _DONE = f"{REPLIES[2]}</code>", f"{REPLIES[0]}</code>", f"{REPLIES[3]}</verify>"
_SLIP = "    rest = left[len(right):]\n"
"""What only the wrong code says."""


class Instant(Demo):
    """The demo model's tokens, and replies that were made beforehand: ids, their texts, logprobs of full length."""

    def __init__(self, name: str = "", server: Server | None = None) -> None:
        super().__init__(name, server)
        text, _ = load_checkpoint()
        lots = random.Random(0)

        def made(reply: str) -> Completion:
            ids = (*text.encode(reply), text.end_id)
            pieces = tuple(text.token_bytes[number].decode() for number in ids)
            logprobs = tuple(-lots.expovariate(4) for _ in ids)
            return Completion(text=reply, token_ids=ids, pieces=pieces, logprobs=logprobs, exact="token")

        self._codes, self._done = cycle([made(_RIGHT), made(_WRONG)]), made(_DONE)

    async def complete(self, request: Request) -> Completion:
        """The next code at the first turn, and at the second the end."""
        return self._done if any(m.role == "assistant" for m in request.messages) else next(self._codes)


class Nothing(NullSandbox):
    """Runs nothing, and says that the wrong code fails one test."""

    def __init__(self, settings: SandboxSettings) -> None:
        del settings

    async def judge(self, code: str, tests: Sequence[Test], **_: Any) -> Verdict:
        passed = tuple(TestResult(name=str(n), passed=n > 0 or _SLIP not in code) for n in range(len(tests)))
        return Verdict(tests=passed, integrity="values", isolation=self._isolation)


class OneRun(LocalSandbox):
    """The local sandbox; all but the judging is left out: one real run a rollout."""

    async def run(self, code: str, **_: Any) -> RunResult:
        return RunResult(ending="ok", isolation=Isolation(level=0, sandbox=self.name))
