"""Files whose records each hold whole conversations, and the Trace of a conversation from a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Outcome, Parent, Provenance, Task, ToolSpec, Trace, Usage
from foretrace.rows.base import Drop
from foretrace.rows.head import read_objects
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.conversation import Conversation
from foretrace.sources.json_values import as_count, get_value
from foretrace.sources.leftovers import keep_leftovers
from foretrace.sources.own_fields import restore_fields
from foretrace.sources.repositories import find_repository


class RecordFiles:
    """Base of a `FileSource` for files of JSON records (a document, a list, or lines) that are read one by one.

    A record that cannot be read is a Drop.
    """

    license: str | None = None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        for number, record in enumerate(read_objects(path)):
            if isinstance(record, Drop):
                account.drop(record.reason)
                yield record
                continue
            try:
                yield from self.read_record(record, number, path, account)
            except RowError as error:
                yield error.drop

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        """The conversations of one record, which has this position in the file."""
        raise NotImplementedError


def make_task(own_id: str, *, instance: str = "", repository: str = "", kind: str = "") -> Task:
    """The task of an attempt: the instance or, if there is none, one named by the session's id.

    Args:
        own_id: Key of the trace: each attempt without an instance is its own task.
        instance: Id of the instance, query or problem.
        repository: `owner/name`, if the format gives it separately from the instance.
    """
    task_id = instance or digest(own_id)
    return Task(id=task_id, group=repository or find_repository(task_id), kind=kind)


def make_child_task(parent: Task, own_id: str) -> Task:
    """The task of an agent started by another one: its own, in the parent's group."""
    return Task(id=digest(own_id), group=parent.group, kind=parent.kind)


def read_usage(
    held: Any, prompt: str = "prompt_tokens", completion: str = "completion_tokens", *cached: str
) -> Usage | None:
    """The token counts under two names; `None` if there is neither. Counts under `cached` are added to the prompt's."""
    prompt_tokens, completion_tokens = as_count(get_value(held, prompt)), as_count(get_value(held, completion))
    if prompt_tokens is None and completion_tokens is None:
        return None
    if prompt_tokens is not None:
        prompt_tokens += sum(as_count(get_value(held, name)) or 0 for name in cached)
    return Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def finish_trace(
    talk: Conversation,
    *,
    key: str,
    task: Task,
    path: Path,
    tools: tuple[ToolSpec, ...] = (),
    outcome: Outcome = Outcome(),  # noqa: B008 - frozen
    parent: Parent | None = None,
    extra: Mapping[str, Any] | None = None,
    facts: Any = None,
    **origin: Any,
) -> Trace | Drop:
    """The trace of a conversation; a Drop if the agent says nothing in it, which is never a trace.

    Args:
        key: `source@id`.
        task: A session's task gets its first request as the statement. What the program says after the last turn that
            anybody answered then goes to `extra`.
        facts: What else is known of the conversation, and need not be kept in `extra`; by default, its provenance.
        origin: Further fields of `Provenance`; empty texts are not set.
    """
    if not talk.has_agent:
        found = ", ".join(f"{many} {kind}" for kind, many in talk.types.most_common(8)) or "none at all"
        return Drop("no_agent_turn", f"{key}: no agent turn in {talk.types.total()} records ({found})")
    messages, kept = talk.finish(), dict(extra or {})
    if task.kind == "session":
        end = len(messages)
        while end and messages[end - 1].role == "user" and messages[end - 1].author == "environment":
            end -= 1
        if messages[end:]:
            kept["notices_at_the_end"] = [message.content for message in messages[end:]]
        messages = messages[:end]
        asked = (m.content for m in messages if m.role == "user" and m.author == "user" and m.content.strip())
        task = msgspec.structs.replace(task, statement=next(asked, None))
        origin["created_at"] = origin["created_at"] or next((m.started for m in messages if m.started), None)
    origin["tool_versions"] = {name: version for name, version in origin.get("tool_versions", {}).items() if version}
    known = {name: value for name, value in origin.items() if value not in ("", None)}
    provenance = Provenance(origin="imported", source=key.partition("@")[0], raw_file=path.name, **known)
    keep_leftovers(talk, messages, (facts or provenance, tools, outcome, kept), kept)
    trace = Trace(
        key=key, task=task, tools=tools, messages=messages, outcome=outcome, provenance=provenance, parent=parent,
        extra=kept,
    )  # fmt: skip
    return restore_fields(trace)
