"""R2E-Gym trajectories: one attempt per row, with the times of the model and the environment in each step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Outcome, Sampled, Status, Trace
from foretrace.encodings.parameter_tags import FUNCTION_XML
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.conversation import Conversation
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_task, read_usage
from foretrace.sources.json_values import as_dicts, as_number, get_dict, get_list, get_text, write_sorted, write_text
from foretrace.sources.openai_messages import find_unknown_fields

_STEP = frozenset({
    "step_idx", "thought", "action", "observation", "llm_exec_time", "env_exec_time", "token_usage_prompt",
    "token_usage_completion", "token_usage_total", "total_step_time", "total_time_traj", "step_count", "info", "done",
})  # fmt: skip
_ROW = frozenset({"trajectory_steps", "problem_statement", "agent_args", "ds", "reward", "exit_reason", "docker_image"})


class R2EGym(RecordFiles):
    """One row is one trace; its calls are read from the text of each step."""

    name = "r2e_gym"

    def recognize(self, head: FileHead) -> str | None:
        """By the first item of `trajectory_steps`."""
        step = next(iter(as_dicts(head.first.get("trajectory_steps"))), {})
        return "trajectory_steps[0] has action and observation" if {"action", "observation"} <= step.keys() else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        talk = Conversation(account, durations_from_stamps=False)
        agent, about = get_dict(record, "agent_args"), get_dict(record, "ds")
        if system := get_text(agent, "system_prompt"):
            talk.add_system(system, 0)
        statement = get_text(record, "problem_statement")
        talk.add_user(statement, 0)
        steps = get_list(record, "trajectory_steps")
        for index, step in account.drop_unread(steps):
            account.use()
            talk.types["steps"] += 1
            _add_step(talk, step, index)
        image = get_text(record, "docker_image")
        instance = get_text(about, "instance_id", "commit_hash") or image
        first = write_sorted(steps[:1])
        key = f"r2e_gym@{instance or 'unknown'}:{digest(image, get_text(record, 'exp_name'), first)}"
        yield finish_trace(
            talk,
            key=key,
            task=make_task(key, instance=instance, repository=_find_repository(about), kind="swe"),
            path=path,
            raw_row=number,
            raw_id=instance,
            agent=get_text(agent, "name") or "R2E-Gym",
            model=get_text(agent, "llm_name", "llm"),
            outcome=_read_outcome(record),
            extra=find_unknown_fields(record, _ROW),
        )


def _find_repository(about: dict[str, Any]) -> str:
    name = get_text(about, "repo", "repo_name")
    return name if "/" in name else ""


def _add_step(talk: Conversation, step: dict[str, Any], index: int) -> None:
    text = "\n\n".join(piece for name in ("thought", "action") if (piece := write_text(step.get(name))))
    calls = [
        call if call.id else msgspec.structs.replace(call, id=f"{index}.{n}")
        for n, call in enumerate(FUNCTION_XML.parse(text))
    ]
    usage = read_usage(step, "token_usage_prompt", "token_usage_completion")
    talk.add_agent(
        index, text=text, calls=calls, seconds=_read_seconds(step.get("llm_exec_time")),
        sampled=Sampled(usage=usage) if usage else None, extra=find_unknown_fields(step, _STEP),
    )  # fmt: skip
    observation = step.get("observation")
    if observation is not None and calls:
        seconds = _read_seconds(step.get("env_exec_time"))
        talk.add_result(calls[0].id, write_text(observation), index, seconds=seconds)
    elif observation is not None:
        talk.add_user(write_text(observation), index, author="environment")


def _read_seconds(value: Any) -> float | None:
    """The measured time; 0 means that nothing ran."""
    seconds = as_number(value)
    return seconds if seconds is not None and seconds > 0 else None


def _read_outcome(row: dict[str, Any]) -> Outcome:
    """The reward is 1 if all tests passed, else 0."""
    reward, ended = as_number(row.get("reward")), get_text(row, "exit_reason")
    is_limit = any(word in ended for word in ("limit", "max_", "timeout"))
    status: Status = "limit" if is_limit else "error" if "error" in ended else "done"
    success = {0.0: False, 1.0: True}.get(reward) if reward is not None else None
    return Outcome(status=status, success=success, reward=reward, exit_reason=ended or None)


PLUGIN = R2EGym
