"""Let the author work in real episodes, and keep what a model would have read and written in them."""

from __future__ import annotations

import asyncio
import random
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from demo_model.author import AUTHORS, Author, Garbled, Lesson
from foretrace.core import plugins
from foretrace.core.completion import ChatMessage, Completion
from foretrace.core.problem import Problem
from foretrace.episodes.episode import Episode
from foretrace.problems.builtin import Builtin
from foretrace.sandbox.base import Sandbox, SandboxSettings
from foretrace.sandbox.local import LocalSandbox

LESSONS = Path(__file__).parent / "lessons.toml"


class Example(msgspec.Struct, frozen=True):
    """One episode, as a model read and wrote it."""

    protocol: str
    problem: str
    messages: tuple[ChatMessage, ...]
    reply: tuple[str, ...]
    """The last reply: what the author wrote, and what was injected, in turn."""
    passed: bool
    garbled: frozenset[int] = frozenset()
    """Which messages, and which parts of the last reply counted on from there, are not to be learned."""


def lessons() -> dict[str, Lesson]:
    """What the author knows, by problem."""
    return msgspec.convert(tomllib.loads(LESSONS.read_text(encoding="utf-8")), dict[str, Lesson])


async def write(each: Mapping[str, int], seed: int) -> list[Example]:
    """Episodes of every problem, as many of each protocol as `each` says; the same seed gives the same."""
    known = lessons()
    problems = [p for p in Builtin().load() if p.id.removeprefix("builtin/") in known]
    made: list[Example] = []
    async with LocalSandbox(SandboxSettings(workers=2)) as sandbox:
        for name, count in each.items():
            for problem in problems:
                lesson = known[problem.id.removeprefix("builtin/")]
                jobs = (
                    _attempt(name, problem, lesson, sandbox, f"{seed}/{name}/{problem.id}/{n}") for n in range(count)
                )
                made += [example for example in await asyncio.gather(*jobs) if example is not None]
    return made


async def _attempt(name: str, problem: Problem, lesson: Lesson, sandbox: Sandbox, seed: str) -> Example | None:
    author = AUTHORS[name](lesson, random.Random(seed))
    episode = Episode(problem, plugins.load_plugin("protocol", name)(), sandbox)
    async with episode:
        await episode.start()
        said = next(author)
        written: list[str] = []
        garbled: set[int] = set()
        while True:
            before = len(episode.prefill)
            messages = episode.messages
            await episode.step(_completion(said, episode.protocol.stop))
            if isinstance(said, Garbled):
                garbled.add(len(messages) + len(written))
            written.append(said)
            if episode.done:
                break
            added = episode.prefill[before:]
            if added:  # the answer stands in the same turn
                answer = added[len(said) :]
                assert added.startswith(said), f"{name}: the reply was not kept as it is"
                written.append(answer)
            else:
                answer = episode.messages[-1].content
                written.clear()
            reply = next_of(author, answer)
            if reply is None:
                return None  # the garbled code broke what stands behind it
            said = reply
        trace = episode.trace()
    assert not trace.outcome.error, trace.outcome.error
    return Example(name, problem.id, messages, tuple(written), bool(trace.outcome.success), frozenset(garbled))


def next_of(author: Author, answer: str) -> str | None:
    """What the author says next; null if it has nothing more to say."""
    try:
        return author.send(answer)
    except StopIteration:
        return None


def _completion(said: str, stops: tuple[str, ...]) -> Completion:
    found = [(said.find(stop), stop) for stop in stops if stop in said]
    if not found:
        return Completion(text=said)
    at, stop = min(found)
    assert at + len(stop) == len(said), "the author goes on behind a stop sequence"
    return Completion(text=said[:at], finish="stop_sequence", stop=stop)
