"""Problems as rows of a prompt dataset, and back: a prompt never holds a hidden test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.problem import Problem
from foretrace.envs.problems import load as load_problems
from foretrace.episodes.episode import make_view
from foretrace.episodes.identity import make_task
from foretrace.protocols.base import InteractionProtocol
from foretrace.protocols.registry import make_protocol

TASK = "task"
"""Key, in each message of a prompt, of the task's id: a rollout function is given prompts alone."""


def problems_from(
    problems: str | Iterable[Problem], path: str | None = None, limit: int | None = None
) -> list[Problem]:
    """The problems of a set by its name, or as they are given.

    Raises:
        UsageError: no such set.
        ProblemError: there is none, one has no tests, or two have one id.
    """
    found = load_problems(problems, path, limit) if isinstance(problems, str) else list(problems)[:limit]
    if not found:
        raise ProblemError("there is no problem to attempt")
    by_id: dict[str, Problem] = {}
    for problem in found:
        if not (problem.public_tests or problem.hidden_tests):
            raise ProblemError(f"{problem.id} has no tests: an answer to it could not be judged")
        if by_id.setdefault(make_task(problem).id, problem) is not problem:
            raise ProblemError(f"two problems have the id {make_task(problem).id!r}; ids must differ")
    return found


def protocol_from(protocol: str | InteractionProtocol) -> InteractionProtocol:
    """The protocol of a name, or as it is given."""
    return make_protocol(protocol) if isinstance(protocol, str) else protocol


def row_of(problem: Problem, protocol: InteractionProtocol) -> dict[str, Any]:
    """One row: `prompt` (messages), `task` (the id), `problem` (JSON, with all tests)."""
    task = make_task(problem).id
    opening = protocol.opening(make_view(problem))
    return {
        "prompt": [{"role": m.role, "content": m.content, TASK: task} for m in opening],
        TASK: task,
        "problem": msgspec.json.encode(problem).decode(),
    }


def problem_in(text: str) -> Problem:
    """The problem of a column.

    Raises:
        UsageError: the text is none.
    """
    try:
        return msgspec.json.decode(text, type=Problem)
    except (msgspec.MsgspecError, TypeError) as error:
        raise UsageError(f"the column problem holds no problem ({error}); make the dataset by prompt_dataset") from None


def asked_in(
    prompt: Sequence[Mapping[str, Any]] | str, problems: Mapping[str, Problem], protocol: InteractionProtocol
) -> Problem:
    """The problem that a prompt asks for.

    Raises:
        UsageError: it says none, one that is not known, or is written for another protocol.
    """
    task = None if isinstance(prompt, str) or not prompt else prompt[0].get(TASK)
    if task is None:
        raise UsageError(f"a prompt without the key {TASK!r} in its messages; make the dataset by prompt_dataset")
    if task not in problems:
        raise UsageError(f"the prompt asks for {task!r}, and that problem was not given to rollout_func")
    check_prompt(prompt, problems[task], protocol)
    return problems[task]


def check_prompt(prompt: Sequence[Mapping[str, Any]] | str, problem: Problem, protocol: InteractionProtocol) -> None:
    """Refuse a prompt that does not ask for the problem in the words of the protocol: what is answered to it would be
    read by other rules than it was written by.

    Args:
        prompt: messages; or a text, in which the messages stand as some template puts them.

    Raises:
        UsageError: it is not that prompt.
    """
    opening = protocol.opening(make_view(problem))
    if isinstance(prompt, str):
        same = all(message.content.strip() in prompt for message in opening)
    else:
        same = [(m.get("role"), m.get("content")) for m in prompt] == [(m.role, m.content) for m in opening]
    if not same:
        raise UsageError(
            f"the prompt of {make_task(problem).id!r} is not the one of {protocol.name}; give both the same protocol "
            "(for words of your own, one with its own opening: docs/trl.md)"
        )
