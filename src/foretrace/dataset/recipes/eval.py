"""`eval`: held-out steps of test groups, with the gold action, call and the next few action types."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.dataset.recipes.base import IDENTITY, Config, Row, Target, TaskAttempts

MAX_NEXT_ACTIONS = 5
"""How many of the next action types a row carries, its own first."""


class Eval:
    """All candidate steps of test groups; the build keeps a natural and a class-balanced slice of them."""

    configs = (
        Config(
            "eval",
            {
                "prompt": "messages",
                "completion": "messages",
                "action": "action",
                "tool": "string",
                "arguments": "string",
                "next_actions": "actions",
                "effect": "string",
                "rule": "string",
                "state_version": "int",
                "natural": "bool",
                "balanced": "bool",
                **IDENTITY,
            },
            "Held-out steps with gold action and call; `natural` and `balanced` mark the two slices.",
            ("test",),
        ),
    )

    def rows(self, task: TaskAttempts) -> Iterator[Row]:
        """Candidates in the order of key and step."""
        if task.split != "test":
            return
        seen: set[tuple[bytes, str]] = set()
        for attempt in task.attempts:
            if not attempt.wanted:
                task.drops["attempt_not_wanted"] += len(attempt.labels)
                continue
            task.drops.update(attempt.drops)
            steps = [label for label in attempt.labels if label.action is not None]
            for act in attempt.targets:
                mark = (act.prompt_digest, act.text)
                if mark in seen:
                    task.drops["repeated_step"] += 1
                    continue
                seen.add(mark)
                following = [str(label.action) for label in steps if label.index >= act.index]
                yield _make_row(act, following[:MAX_NEXT_ACTIONS])


def _make_row(act: Target, following: list[str]) -> Row:
    call = act.message.tool_calls[0] if act.message.tool_calls else None
    values = {
        "prompt": act.prompt,
        "completion": [("assistant", act.text)],
        "action": act.label.action,
        "tool": call.name if call else "",
        "arguments": call.arguments if call else "{}",
        "next_actions": following,
        "effect": str(act.label.effect),
        "rule": act.label.rule,
        "state_version": act.label.state_version,
        "natural": False,
        "balanced": False,
        **act.attempt.make_identity(act.index),
    }
    return Row("eval", act.attempt.trace.key, act.index, "", values)


PLUGIN = Eval()
