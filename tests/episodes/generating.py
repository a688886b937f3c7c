"""Little problems, a model that is a function, and `generate` run on a real sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fakes.model_server import Asked
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.problem import Problem, Test
from foretrace.core.store import read_traces
from foretrace.core.trace import Trace
from foretrace.episodes.generate.engine import GenerateReport, generate
from foretrace.episodes.generate.settings import GenerateSettings
from foretrace.models.base import ChatModel
from foretrace.models.servers.scripted import Scripted
from foretrace.protocols.tools import Tools
from foretrace.sandbox.local import LocalSandbox

Say = Callable[[Request], str | Completion]


def plus(number: int) -> Problem:
    """A problem that is told from the others by its number."""
    return Problem(
        id=f"plus/{number}",
        source="plus",
        statement=f"Return x plus {number}.",
        entry_point="plus",
        public_tests=(Test(code=f"assert plus(0) == {number}"),),
        hidden_tests=(Test(code=f"assert plus(1) == {number + 1}"), Test(code=f"assert plus(-1) == {number - 1}")),
    )


PROBLEMS = tuple(map(plus, range(6)))
SETTINGS = GenerateSettings(sampling=Sampling(max_tokens=100))


def number_in(request: Request) -> int:
    """The number of the problem that is asked about."""
    asked = next(m.content for m in request.messages if m.role == "user")
    return int(asked.split("Return x plus ")[1].split(".")[0])


def turn_of(request: Request) -> int:
    """Replies so far."""
    return sum(m.role == "assistant" for m in request.messages)


def right(request: Request) -> str:
    """Solves it at once; which samples also err on the way goes by the seed."""
    errs = (request.sampling.seed or 0) % 2
    code = f"<code>\ndef plus(x):\n    return x + {number_in(request)}\n</code>"
    wrong = "<think>A first try of mine.</think><code>\ndef plus(x):\n    return x - 1\n</code>"
    turns = [wrong] * errs + [f"<think>Now I add.</think>{code}", "<verify>It adds, as asked.</verify>"]
    return turns[min(turn_of(request), len(turns) - 1)]


def wrong(request: Request) -> str:
    """Hands in what is wrong."""
    return "<code>\ndef plus(x):\n    return 7000\n</code>" if not turn_of(request) else "<verify>I am done.</verify>"


def half(request: Request) -> str:
    """Solves the even ones."""
    return wrong(request) if number_in(request) % 2 else right(request)


def saying(say: Say) -> Scripted:
    """A model that says what the function says."""
    return Scripted("test", scripts=say)


def answering(complete: Callable[[Request], Awaitable[Completion]]) -> Scripted:
    """A model that answers by an async function."""
    model = saying(right)
    model.complete = complete  # type: ignore[method-assign]
    return model


class OneReply(Tools):
    """Ends with the first reply: one request an attempt."""

    def is_done(self, reply: Any, results: Any) -> bool:
        return True


def adds(asked: Asked) -> str:
    """What a server says: the answer to the problem that is asked about."""
    number = asked.text.split("Return x plus ")[1].split(".")[0] if "Return x plus" in asked.text else "0"
    return f"<code>\ndef plus(x):\n    return x + {number}\n</code>"


class Ground:
    """One loop and one sandbox."""

    def __init__(self, runner: asyncio.Runner, sandbox: LocalSandbox) -> None:
        self.runner, self.sandbox = runner, sandbox

    def generate(
        self,
        out: Path,
        model: ChatModel | Say = right,
        problems: Sequence[Problem] = PROBLEMS,
        protocol: Any = None,
        **settings: Any,
    ) -> GenerateReport:
        """Run `generate`; settings as in `GenerateSettings`."""
        asked = saying(model) if callable(model) else model
        chosen = msgspec.structs.replace(SETTINGS, **settings)
        report = self.runner.run(generate(problems, protocol or Tools(), asked, self.sandbox, out, chosen))
        counts = report.counts
        assert counts.asked == counts.already_done + counts.filtered + counts.done + counts.remaining
        assert counts.done == counts.stored + sum(counts.left_out.values()) + counts.failed
        return report


def stored(out: Path) -> dict[str, Trace]:
    """The traces of a folder, by key."""
    return {trace.key: trace for trace in read_traces(out)}


def ids(out: Path) -> dict[str, str]:
    """Ids by key."""
    return {key: trace.id for key, trace in stored(out).items()}
