"""The prompt dataset: problems as rows, and back. Prompts never contain hidden tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from foretrace.core.errors import UsageError
from foretrace.core.problem import Problem
from foretrace.envs.problems import load_problems
from foretrace.episodes.episode import make_view
from foretrace.episodes.identity import make_task
from foretrace.problems.base import check_problems
from foretrace.protocols.base import InteractionProtocol
from foretrace.registry import make_protocol

TASK_KEY = "task"
"""Key in each message of a prompt for the task's id, since a rollout function is only given prompts."""


def prompt_dataset(
    problems: str | Iterable[Problem],
    protocol: str | InteractionProtocol,
    *,
    path: str | None = None,
    limit: int | None = None,
) -> Any:
    """A `datasets.Dataset` with one row per problem: `prompt` (the first messages of an episode), `task` (the id), and
    `problem` (JSON with all tests, for `EnvironmentFactory`).

    Prompts contain no hidden tests. Each message of a prompt also has the id, as `task`, for `rollout_func`.

    Args:
        problems: a set by its name (`builtin`, `jsonl:FILE`), or problems.
        path: read the named set from this file or folder.
        limit: only this many, the first ones.

    Raises:
        UsageError: no such set or protocol.
        ProblemError: the set cannot be read, or a problem has no tests.
    """
    from datasets import Dataset

    chosen = resolve_protocol(protocol)
    rows: list[dict[str, Any]] = []
    for problem in resolve_problems(problems, path, limit):
        task = make_task(problem).id
        prompt = [{"role": m.role, "content": m.content, TASK_KEY: task} for m in chosen.opening(make_view(problem))]
        rows.append({"prompt": prompt, TASK_KEY: task, "problem": msgspec.json.encode(problem).decode()})
    return Dataset.from_list(rows)


def resolve_problems(
    problems: str | Iterable[Problem], path: str | None = None, limit: int | None = None
) -> list[Problem]:
    """The problems of a named set, or the given ones (see `prompt_dataset`)."""
    if isinstance(problems, str):
        return load_problems(problems, path, limit)
    return check_problems(list(problems)[:limit])


def resolve_protocol(protocol: str | InteractionProtocol) -> InteractionProtocol:
    """The protocol of this name, or the given one."""
    return make_protocol(protocol) if isinstance(protocol, str) else protocol


def read_problem(text: str) -> Problem:
    """The problem in a row's column `problem`; a UsageError if there is none."""
    try:
        return msgspec.json.decode(text, type=Problem)
    except (msgspec.MsgspecError, TypeError) as error:
        raise UsageError(f"the column problem holds no problem ({error}); make the dataset by prompt_dataset") from None


def find_problem(
    prompt: Sequence[Mapping[str, Any]], problems: Mapping[str, Problem], protocol: InteractionProtocol
) -> Problem:
    """The problem that a prompt asks for. `problems` has them by task id.

    Raises:
        UsageError: the prompt names no problem or an unknown one, or is written for another protocol.
    """
    task = prompt[0].get(TASK_KEY) if isinstance(prompt, list) and prompt else None
    if task is None:
        raise UsageError(f"a prompt without the key {TASK_KEY!r} in its messages; make the dataset by prompt_dataset")
    if task not in problems:
        raise UsageError(f"the prompt asks for {task!r}, and that problem was not given to rollout_func")
    check_prompt(prompt, problems[task], protocol)
    return problems[task]


def check_prompt(prompt: Sequence[Mapping[str, Any]], problem: Problem, protocol: InteractionProtocol) -> None:
    """Refuse a prompt that is not the protocol's prompt for this problem: the answer would not follow the rules by
    which it is read.

    Raises:
        UsageError: it is not that prompt.
    """
    opening = protocol.opening(make_view(problem))
    if [(m.get("role"), m.get("content")) for m in prompt] != [(m.role, m.content) for m in opening]:
        raise UsageError(
            f"the prompt of {make_task(problem).id!r} is not the one of {protocol.name}; give both the same protocol "
            "(for words of your own, one with its own opening: docs/rl.md)"
        )
