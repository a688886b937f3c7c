"""Groups of scored attempts that Atropos environments save: one group per line, with messages, scores and tokens.

Every attempt is a trace, and the attempts of a group are siblings. If a group has only tokens and no messages, each of
its attempts is a Drop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.digest import digest
from foretrace.core.trace import Outcome, Sampled, ToolCall, Trace
from foretrace.encodings.calls_in_text import find_calls
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import RowError
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_task
from foretrace.sources.json_values import (
    as_dicts,
    as_list,
    as_number,
    as_numbers,
    as_text,
    as_token_ids,
    write_text,
)
from foretrace.sources.openai_messages import find_unknown_fields, read_answered_ids, read_native_calls

_MASKED = -100
"""In `masks`, marks a token that is not trained on; all other entries repeat the token."""
_GROUP_EXTRA = ("group_overrides", "generation_params", "env_id")
_MESSAGE = frozenset({"role", "content", "tool_calls", "tool_call_id", "tool_call_ids", "reasoning_content"})


class AtroposGroups(RecordFiles):
    """One trace for each attempt of each group."""

    name = "atropos_groups"

    def recognize(self, head: FileHead) -> str | None:
        """By the lists `tokens`, `masks` and `scores`; the first two are lists of lists."""
        first = head.first
        lists = [first.get(name) for name in ("tokens", "masks", "scores")]
        if not all(isinstance(value, list) and value for value in lists):
            return None
        is_group = isinstance(as_list(lists[0])[0], list) and isinstance(as_list(lists[1])[0], list)
        return "line 1 has tokens, masks and scores of a group" if is_group else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        """The attempts of a group."""
        attempts = max(len(as_list(record.get(name))) for name in ("tokens", "messages", "scores"))
        for index in range(attempts):
            try:
                yield _read_attempt(record, index, number, path, account)
            except RowError as error:
                account.drop(error.drop.reason)
                yield error.drop


def _get(group: dict[str, Any], name: str, index: int) -> Any:
    items = as_list(group.get(name))
    return items[index] if index < len(items) else None


def _read_attempt(group: dict[str, Any], index: int, row: int, path: Path, account: Account) -> Trace | Drop:
    messages = as_dicts(_get(group, "messages", index))
    where = f"row {row}, attempt {index}"
    if not messages:
        raise RowError("no_messages", f"{where}: only tokens; have the environment keep its messages")
    calls = [list(read_native_calls(message.get("tool_calls"), n)) for n, message in enumerate(messages)]
    account.use()
    talk = Conversation(account)
    tokens = _split_tokens(group, index, messages)
    if not tokens and _get(group, "tokens", index):
        account.note("attempts whose tokens do not match their messages")
    for number, message in enumerate(messages):
        _add_message(talk, message, number, calls[number], tokens.get(number), account)
    start = next((n for n, m in enumerate(messages) if m.get("role") == "assistant"), len(messages))
    prompt = digest(write_text(messages[:start]))
    own = digest(write_text([messages, _get(group, "tokens", index), _get(group, "scores", index)]))
    score = as_number(_get(group, "scores", index))
    return finish_trace(
        talk,
        key=f"atropos_groups@{own}:{index}",
        task=make_task("", instance=prompt),
        path=path,
        raw_row=row,
        met=Counter(f"{message.get('role')} messages" for message in messages),
        outcome=Outcome(reward=score),
        extra={name: group[name] for name in _GROUP_EXTRA if group.get(name) is not None},
    )


def _add_message(
    talk: Conversation, message: dict[str, Any], index: int, calls: list[ToolCall], sampled: Sampled | None,
    account: Account,
) -> None:  # fmt: skip
    role = message.get("role")
    text, parts = read_any_content(message.get("content"))
    more: dict[str, Any] = {"parts": parts, "extra": find_unknown_fields(message, _MESSAGE), "sampled": sampled}
    if role not in ("system", "user", "assistant", "tool"):
        account.note(f"messages of an unknown role: {str(role)[:40]}")
        return
    found = (calls or find_calls(text)) if role == "assistant" else []
    talk.add(
        role, text, index, reasoning=as_text(message.get("reasoning_content")) or None,
        calls=[c if c.id else msgspec.structs.replace(c, id=f"{index}.{n}") for n, c in enumerate(found)],
        call_id=next(iter(read_answered_ids(message)), ""), **more,
    )  # fmt: skip


def _split_tokens(group: dict[str, Any], index: int, messages: list[dict[str, Any]]) -> dict[int, Sampled]:
    """The tokens of messages by index; empty if the trained tokens do not form as many runs as there are replies. The
    tokens between two runs belong to the message before the second run."""
    replies = [number for number, message in enumerate(messages) if message.get("role") == "assistant"]
    ids = as_token_ids(_get(group, "tokens", index))
    masks = as_list(_get(group, "masks", index))
    logprobs = as_numbers(_get(group, "inference_logprobs", index))
    runs: list[tuple[int, int]] = []
    for at, mask in enumerate(masks):
        if mask == _MASKED:
            continue
        if runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    if not ids or len(masks) != len(ids) or len(runs) != len(replies):
        return {}
    is_measured = len(logprobs) == len(ids)
    found: dict[int, Sampled] = {}
    for number, (reply, (start, end)) in enumerate(zip(replies, runs, strict=True)):
        if number:
            found.setdefault(reply - 1, Sampled(token_ids=ids[runs[number - 1][1] : start], exact="token"))
        found[reply] = Sampled(
            token_ids=ids[start:end],
            logprobs=logprobs[start:end] if is_measured else (),
            prompt_token_ids=None if number else ids[:start],
            exact="token" if is_measured else "text",
        )
    return found


PLUGIN = AtroposGroups
