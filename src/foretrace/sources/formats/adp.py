"""The Agent Data Protocol's standard rows: `{id, content: [{class_, ...}], details}`. Its ATIF rows are read as `atif`.

An action is an agent turn. An observation after a call is its result, whatever its role: in many data sets that were
converted to the protocol, the environment speaks as the user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.trace import Part, ToolSpec, Trace
from foretrace.rows.base import Drop
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import make_row_id
from foretrace.sources.conversation import Conversation, make_call
from foretrace.sources.file_traces import RecordFiles, finish_trace, make_task
from foretrace.sources.json_values import decode_quoted, get_dict, get_dicts, get_list, get_text, write_text
from foretrace.sources.openai_messages import find_unknown_fields, read_tool_specs

_ACTIONS = frozenset({"api_action", "code_action", "message_action"})
_OBSERVATIONS = frozenset({"text_observation", "web_observation", "image_observation", "json_observation"})
_ITEM = frozenset({
    "class_", "content", "description", "reasoning_content", "tool_call_id", "function", "kwargs", "language", "source",
    "name",
})  # fmt: skip
_ROW = frozenset({"id", "content"})
_SHELLS = frozenset({"bash", "sh", "shell", "zsh", "powershell"})
_DECLARED = re.compile(r"tool_declare<\|im_middle\|>(\[.*\])<\|im_end\|>", re.DOTALL)
"""Tools as Kimi's chat template writes them into a system message; the protocol keeps them as text."""


class Adp(RecordFiles):
    """One row is one trace."""

    name = "adp"

    def recognize(self, head: FileHead) -> str | None:
        """By `class_` of the first item of the first row."""
        first = next(iter(get_dicts(head.first, "content")), {})
        kind = get_text(first, "class_")
        return f"content[0].class_ is {kind}" if kind in _ACTIONS | _OBSERVATIONS else None

    def read_record(self, record: dict[str, Any], number: int, path: Path, account: Account) -> Iterable[Trace | Drop]:
        talk = Conversation(account)
        tools: tuple[ToolSpec, ...] = ()
        items = get_list(record, "content")
        said = get_dicts(record, "content")
        is_quoted = _are_encoded_twice(get_dict(item, "kwargs") for item in said)
        open_calls: list[str] = []
        for at, item in account.drop_unread(items):
            kind = str(item.get("class_"))[:80]
            talk.types[kind] += 1
            if kind in _ACTIONS:
                account.use()
                open_calls = _add_action(talk, item, kind, at, open_calls, is_quoted)
            elif kind in _OBSERVATIONS:
                account.use()
                if not talk.has_agent and item.get("name") == "system":
                    talk.add_system(_write_observation(item, kind), at)
                    declared = _DECLARED.search(get_text(item, "content"))
                    tools = tools or (read_tool_specs(declared[1]) if declared else ())
                else:
                    _add_observation(talk, item, kind, at, open_calls)
            else:
                account.meet_unknown(kind)
        own_id = get_text(record, "id") or make_row_id(record)
        # Ids may be row numbers, which many data sets have in common: the user's text tells the rows apart.
        asked = next((get_text(item, "content") for item in said if item.get("source") == "user"), "")
        key = f"adp@{own_id if len(own_id) <= 200 else digest(own_id)}:{digest(asked)}"
        details = get_dict(record, "details")
        instance = next((v for k in ("instance_id", "task_id") if isinstance(v := details.get(k), str) and v), "")
        yield finish_trace(
            talk,
            key=key,
            task=make_task(key, instance=instance),
            path=path,
            raw_row=number,
            raw_id=own_id,
            tools=tools,
            extra={k: v for k, v in find_unknown_fields(record, _ROW).items() if v != {}},
        )


def _are_encoded_twice(arguments: Iterable[dict[str, Any]]) -> bool:
    """Whether every text among the arguments of a row's calls is itself a JSON string, as some versions of the Agent
    Data Protocol wrote them: a single one may be intended."""
    texts = [value for each in arguments for value in each.values() if isinstance(value, str)]
    return bool(texts) and all(decode_quoted(text) != text for text in texts)


def _add_action(
    talk: Conversation, item: dict[str, Any], kind: str, at: int, open_calls: list[str], is_quoted: bool
) -> list[str]:
    """Add an action, and return the ids of the calls that wait for a result."""
    said = get_text(item, "description")
    reasoning = get_text(item, "reasoning_content") or None
    extra = find_unknown_fields(item, _ITEM)
    if kind == "message_action":
        text = "\n\n".join(piece for piece in (said, write_text(item.get("content"))) if piece)
        talk.add_agent(at, text=text, reasoning=reasoning, raw_role=kind, extra=extra)
        return []
    call_id = get_text(item, "tool_call_id") or f"call_{at}"
    if kind == "api_action":
        arguments = item.get("kwargs")
        if is_quoted and isinstance(arguments, dict):
            arguments = {k: decode_quoted(v) for k, v in arguments.items()}
        call = make_call(call_id, item.get("function"), arguments)
    else:
        language, code = get_text(item, "language") or "code", write_text(item.get("content"))
        call = make_call(call_id, language, {"command" if language in _SHELLS else "code": code})
    talk.add_agent(at, text=said, reasoning=reasoning, calls=[call], raw_role=kind, extra=extra)
    return [*open_calls, call_id]


def _add_observation(talk: Conversation, item: dict[str, Any], kind: str, at: int, open_calls: list[str]) -> None:
    text, source = _write_observation(item, kind), item.get("source")
    extra = find_unknown_fields(item, _ITEM)
    image = item if kind == "image_observation" else get_dict(item, "image_observation")
    parts = (Part(type="image", ref=get_text(image, "content") or None),) if image else ()
    more: dict[str, Any] = {"parts": parts, "raw_role": get_text(item, "source") or kind, "extra": extra}
    call_id = get_text(item, "tool_call_id")
    if not call_id and open_calls:
        call_id = open_calls.pop(0)
    elif call_id in open_calls:
        open_calls.remove(call_id)
    if call_id:
        talk.add_result(call_id, text, at, **more)
    else:
        talk.add_user(text, at, author="user" if source == "user" else "environment", **more)


def _write_observation(item: dict[str, Any], kind: str) -> str:
    if kind == "web_observation":
        shown = (get_text(item, "url"), get_text(item, "axtree"))
        return "\n\n".join(filter(None, shown)) or get_text(item, "html")
    return "" if kind == "image_observation" else write_text(item.get("content"))


PLUGIN = Adp
