"""`proposer`: predict the next action from what came before it (prompt, completion)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from foretrace.dataset.recipes.attempts import Target, TaskAttempts
from foretrace.dataset.recipes.base import COMMON_COLUMNS, Config, Row

CONFIG = Config(
    name="proposer",
    columns={
        "prompt": "messages",
        "completion": "messages",
        "action": "action",
        "tool": "string",
        "effect": "string",
        "rule": "string",
        "state_version": "int",
        **COMMON_COLUMNS,
    },
    about="Predict the next action: prompt and completion, for supervised fine-tuning.",
    repository="proposer-sft",
    accounts_for="assistant_messages",
)


class Proposer:
    """One row for each step of a wanted attempt, without repeats of what a sibling did at the same prompt."""

    configs = (CONFIG,)

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        for target in iterate_steps(task):
            yield CONFIG.make_row(make_values(target))


def iterate_steps(task: TaskAttempts) -> Iterator[Target]:
    """The targets of wanted attempts, each answer once per prompt; omitted ones are counted as drops."""
    seen: set[tuple[bytes, str]] = set()
    for attempt in task.attempts:
        if not attempt.wanted:
            task.drops["attempt_not_wanted"] += len(attempt.labels)
            continue
        task.drops.update(attempt.drops)
        for target in attempt.targets:
            prompt_and_answer = (target.prompt_digest, target.text)
            if prompt_and_answer in seen:
                task.drops["repeated_step"] += 1
                continue
            seen.add(prompt_and_answer)
            yield target


def make_values(target: Target) -> dict[str, Any]:
    """The values of the columns that identify a step, its prompt and its completion."""
    calls = target.message.tool_calls
    return {
        "prompt": target.prompt,
        "completion": [("assistant", target.text)],
        "action": target.label.action,
        "tool": calls[0].name if calls else "",
        "effect": str(target.label.effect),
        "rule": target.label.rule,
        "state_version": target.label.state_version,
        **target.attempt.make_common_values(target.index),
    }


PLUGIN = Proposer()
