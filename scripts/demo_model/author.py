"""A scripted author, which solves problems that it knows in each protocol, with mistakes, and mends what fails."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator
from typing import Any

import msgspec

Author = Generator[str, str, None]
"""Gives a reply, and is sent what the environment answers."""


class Garbled(str):
    """A reply that the model is not to learn: only how it goes on from there."""


class Wrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Code that the public tests turn away."""

    code: str
    fix: str


class Lesson(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the author knows of one problem."""

    think: list[str]
    explore: tuple[str, str]
    """A thought, and a line of code."""
    call: str
    checks: list[str]
    sure: list[str]
    right: list[str]
    trap: str
    wrong: list[Wrong]


class Attempt(msgspec.Struct, frozen=True):
    """One piece of code that is handed in, and what is said once it has failed."""

    code: str
    """Empty where only a thought is said."""
    fix: str
    garbled: bool = False


_ANEW = "I write it anew."
_MISSES = (
    ("A colon is missing.", re.compile(r":\n(?=    )")),
    ("I misspelt a name.", re.compile(r"(?<=return )[a-z]{4,}(?=[\n\[ .])")),
    ("A bracket is missing.", re.compile(r"\)\n")),
    ("I forgot to return the value.", re.compile(r"return (?=[a-z\[]+[^\n]*\n$)")),
)


def plan(lesson: Lesson, rng: random.Random) -> list[Attempt]:
    """What is handed in, one after the other, until the public tests pass."""
    right = rng.choice(lesson.right).strip()
    attempts = [Attempt(right, _ANEW)]
    if rng.random() < 0.4:
        code = "" if rng.random() < 0.2 else _garbled(rng.choice([right, lesson.wrong[0].code.strip()]), rng)
        attempts.insert(0, Attempt(code, _ANEW, garbled=True))
    lot = rng.random()
    if lot < 0.1:
        return [Attempt(lesson.trap.strip(), _ANEW), *attempts]
    if lot < 0.55:
        attempts.insert(0, _mistake(lesson, right, rng))
    if lot < 0.18:
        attempts.insert(0, _mistake(lesson, right, rng))
    return attempts


def _mistake(lesson: Lesson, right: str, rng: random.Random) -> Attempt:
    if rng.random() < 0.7:
        wrong = rng.choice(lesson.wrong)
        return Attempt(wrong.code.strip(), wrong.fix)
    return _miss(right, rng)


def _garbled(text: str, rng: random.Random) -> str:
    """A text in which some spans are copied over others."""
    for _ in range(rng.randint(1, 4)):
        at, source = rng.randrange(len(text) - 3), rng.randrange(len(text))
        text = text[:at] + text[source : source + rng.randint(0, 20)] + text[at + rng.randint(2, 20) :]
        text += "\npass" * (len(text) < 8)
    return text.strip()


def _reply(said: str, rest: str, attempt: Attempt) -> str:
    """Words and what follows; of a garbled attempt, the words alone where it has no code."""
    if not attempt.garbled:
        return said + rest
    return Garbled(said + rest if attempt.code else said)


def _miss(code: str, rng: random.Random) -> Attempt:
    """A slip in right code."""
    text = code + "\n"
    found = [(words, hit) for words, pattern in _MISSES for hit in pattern.finditer(text)]
    words, hit = rng.choice(found)
    old = hit.group()
    new = {":\n": "\n", ")\n": "\n", "return ": ""}.get(old, old[:-1])
    return Attempt((text[: hit.start()] + new + text[hit.end() :]).strip(), words)


def tools(lesson: Lesson, rng: random.Random) -> Author:
    """Whole answers, each of them tested."""
    said = _thought(rng.choice(lesson.think))
    for attempt in plan(lesson, rng):
        answer = yield _reply(said, f"\n<code>\n{attempt.code}\n</code>", attempt)
        if _fine(answer):
            break
        said = _thought(_noticed(answer, attempt.fix, rng))
    yield f"<verify>{rng.choice(lesson.sure)}</verify>"


def interleaved_tools(lesson: Lesson, rng: random.Random) -> Author:
    """Small blocks in a session, then checks."""
    if rng.random() < 0.6:
        words, line = lesson.explore
        yield f"{_thought(words)}\n<code>\n{line}\n</code>"
    said = _thought(rng.choice(lesson.think))
    for attempt in plan(lesson, rng):
        shown = f"\nprint({lesson.call})" if rng.random() < 0.5 else ""
        answer = yield _reply(said, f"\n<code>\n{attempt.code}{shown}\n</code>", attempt)
        if "<result>" in answer:
            check = rng.choice(lesson.checks) if rng.random() < 0.3 else ""
            answer = yield f"<verify>\n{check}\n</verify>" if check else "<verify></verify>"
            if _fine(answer):
                return
        said = _thought(_noticed(answer, attempt.fix, rng))


def structured(lesson: Lesson, rng: random.Random) -> Author:
    """Rounds: a plan, an action, a reflection, each of them asked for."""
    words = rng.choice(lesson.think)
    for attempt in plan(lesson, rng):
        yield f"<plan>{words}</plan>"
        code = f"<code>\n{attempt.code or 'pass'}\n</code>"
        answer = yield Garbled(code) if attempt.garbled else code
        words = rng.choice(lesson.sure) if _fine(answer) else _noticed(answer, attempt.fix, rng)
        yield f"<reflect>{words}</reflect>"


def interleaved(lesson: Lesson, rng: random.Random) -> Author:
    """All in one reply: a mistake is either caught, or stays."""
    attempts = [attempt for attempt in plan(lesson, rng) if not attempt.garbled]
    if len(attempts) > 1 and (attempts[0].code == lesson.trap.strip() or rng.random() < 0.3):
        attempts = attempts[:1]
    parts = [_thought(rng.choice(lesson.think))]
    for number, attempt in enumerate(attempts):
        parts.append(f"<code>\n{attempt.code}\n</code>")
        if number + 1 < len(attempts):
            parts.append(f"<wait>{attempt.fix}</wait>")
    parts.append(f"<verify>\n{rng.choice(lesson.checks)}\n</verify>")
    yield "\n".join(parts)


def inline(lesson: Lesson, rng: random.Random) -> Author:
    """Calls inside of the thinking, then the answer."""
    said = f"<think>\n{rng.choice(lesson.think)}"
    if rng.random() < 0.3:
        words, line = lesson.explore
        yield f"<think>\n{words}\n{_call(line)}"
        said = said.removeprefix("<think>\n")
    expected: str | None = None
    for attempt in plan(lesson, rng):
        tried = f"{attempt.code}\nprint({lesson.call})"
        answer = yield _reply(said, f"\n{_call(tried)}", attempt)
        expected = expected or _shown(lesson)
        if answer.strip().split("\n")[1:-1] == [expected]:
            yield f"That is right.\n</think>\n```python\n{attempt.code}\n```"
            return
        said = _noticed(answer, attempt.fix, rng)


def _call(code: str) -> str:
    call = json.dumps({"name": "python", "arguments": {"code": code}})
    return f"<tool_call>{call}</tool_call>"


def _shown(lesson: Lesson) -> str:
    """What the call prints when the answer is right: the code here is the author's own."""
    names: dict[str, Any] = {}
    exec(lesson.right[0], names)
    return str(eval(lesson.call, names))


def _thought(words: str) -> str:
    return f"<think>{words}</think>"


def _fine(answer: str) -> bool:
    passed = re.search(r"(public tests?|checks) passed", answer)
    return passed is not None and re.search(r"\d of \d", answer) is None


def _noticed(answer: str, fix: str, rng: random.Random) -> str:
    """What the author says of a failure: at times it names what it has seen."""
    error = re.search(r"^(\w+Error)\b", answer, re.MULTILINE) or re.search(r": (\w+Error)\b", answer)
    if fix == _ANEW or rng.random() < 0.5:
        return fix
    return f"A {error.group(1)}. {fix}" if error else f"The result is not what I expected. {fix}"


AUTHORS: dict[str, Callable[[Lesson, random.Random], Author]] = {
    "tools": tools,
    "interleaved_tools": interleaved_tools,
    "structured": structured,
    "interleaved": interleaved,
    "inline": inline,
}
"""By the name of the protocol."""
