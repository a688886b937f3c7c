"""`proposer`: predict the next action from what was before it (prompt, completion)."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.dataset.recipes.base import IDENTITY, Config, Row, Target, TaskAttempts


class Proposer:
    """One row for each step of a wanted attempt; a step that a sibling took at the same prompt is not repeated."""

    configs = (
        Config(
            "proposer",
            {
                "prompt": "messages",
                "completion": "messages",
                "action": "action",
                "tool": "string",
                "effect": "string",
                "rule": "string",
                "state_version": "int",
                **IDENTITY,
            },
            "Predict the next action: prompt and completion, for supervised fine-tuning.",
        ),
    )

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Rows in the order of key and step."""
        seen: set[tuple[bytes, str]] = set()
        for attempt in task.attempts:
            if not attempt.wanted:
                task.drops["attempt_not_wanted"] += len(attempt.labels)
                continue
            task.drops.update(attempt.drops)
            for act in attempt.targets:
                mark = (act.prompt_digest, act.text)
                if len(task.attempts) > 1 and mark in seen:
                    task.drops["repeated_step"] += 1
                    continue
                seen.add(mark)
                yield _make_row(act)


def _make_row(act: Target) -> Row:
    values = {
        "prompt": act.prompt,
        "completion": [("assistant", act.text)],
        "action": act.label.action,
        "tool": act.message.tool_calls[0].name if act.message.tool_calls else "",
        "effect": str(act.label.effect),
        "rule": act.label.rule,
        "state_version": act.label.state_version,
        **act.attempt.make_identity(act.index),
    }
    return Row("proposer", act.attempt.trace.key, act.index, "", values)


PLUGIN = Proposer()
