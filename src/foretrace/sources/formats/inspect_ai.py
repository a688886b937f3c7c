"""inspect_ai logs (`.eval` and `.json`): each sample of each epoch is an attempt.

The messages of a sample are its conversation. Its events show how long each model and tool call took, without the time
spent waiting for others. Model calls that are not among the messages (by graders, by other agents) are counted, but do
not become turns.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from foretrace.core.digest import digest
from foretrace.core.errors import SourceError
from foretrace.core.trace import Failure, Outcome, Sampled, ToolCall, ToolSpec, Trace, Usage
from foretrace.rows.base import Drop
from foretrace.rows.files import MAX_LINE, read_bytes
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, measure, read_time
from foretrace.sources.file_traces import finish_trace, make_task, read_usage
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_dicts,
    as_list,
    as_number,
    get_dict,
    get_dicts,
    get_list,
    get_text,
    write_text,
)
from foretrace.sources.openai_messages import find_unknown_fields, read_tool_specs
from foretrace.sources.repositories import find_repository

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "seed")
_MESSAGE = frozenset({
    "id", "role", "content", "source", "tool_calls", "tool_call_id", "function", "error", "model", "internal",
})  # fmt: skip
_STATUSES = frozenset({"started", "success", "cancelled", "error"})
_SAMPLE = re.compile(r"samples/.+_epoch_\d+\.json")
"""The member of a whole sample, whose id may have slashes (`HumanEval/0`); pieces are below `samples/ID_epoch_N/`."""
_ZSTD = 93
"""The compression method that `zipfile` does not know before Python 3.14."""
_ATTACHMENT = "attachment://"


class InspectAI:
    """One trace for each sample and epoch."""

    name = "inspect_ai"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By the members of the archive, or by `status` and the fields of `eval`."""
        if _is_archive(head):
            return "a zip with the members of an inspect_ai log"
        about = get_dict(head.first, "eval")
        is_log = get_text(head.first, "status") in _STATUSES and {"task", "model"} <= about.keys()
        return "status and eval.task are those of an inspect_ai log" if is_log else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        if _is_archive(read_head(path)):
            header, samples = _read_archive(path)
        else:
            data = read_bytes(path)
            log = data if isinstance(data, Drop) else _decode(data)
            header, samples = as_dict(log), [log] if isinstance(log, Drop) else get_list(log, "samples")
        found = 0
        for sample in samples:
            found += 1
            if isinstance(sample, dict):
                yield _read_sample(sample, header, path, account)
            else:
                drop = sample if isinstance(sample, Drop) else Drop("not_an_object", "a sample that is not an object")
                account.drop(drop.reason)
                yield drop
        if not found:
            yield Drop("no_agent_turn", f"{path.name}: a log without samples, of status {header.get('status')!r}")


def _read_sample(raw: dict[str, Any], header: dict[str, Any], path: Path, account: Account) -> Trace | Drop:
    talk = Conversation(account)
    messages = as_list(_resolve_attachments(raw.get("messages"), get_dict(raw, "attachments")))
    talk.types.update(f"{as_dict(message).get('role')} messages" for message in messages)
    events, tools = _read_events(raw, {get_text(message, "id") for message in messages}, account)
    for index, message in account.drop_unread(messages):
        _add_message(talk, message, index, events)
    about = get_dict(header, "eval")
    sample_id, task = write_text(raw.get("id")), get_text(about, "task")
    own_id = get_text(raw, "uuid") or f"{get_text(about, 'eval_id', 'run_id')}/{task}:{sample_id}:{raw.get('epoch')}"
    key = f"inspect_ai@{own_id if len(own_id) <= 200 else digest(own_id)}"
    is_named = find_repository(sample_id) != sample_id
    config = get_dict(about, "model_generate_config")
    return finish_trace(
        talk,
        key=key,
        task=make_task(key, instance=sample_id if is_named else f"{task}:{sample_id}", kind="swe" if is_named else ""),
        path=path,
        raw_id=own_id,
        agent=get_text(about, "solver"),
        model=get_text(about, "model"),
        sampling={name: config[name] for name in _SAMPLING if as_number(config.get(name)) is not None},
        sample=as_count(raw.get("epoch")),
        created_at=get_text(raw, "started_at") or get_text(about, "created"),
        tools=tools,
        outcome=_read_outcome(raw),
        extra={name: raw[name] for name in ("target", "metadata") if raw.get(name)},
    )


def _read_events(
    raw: dict[str, Any], ids: set[str], account: Account
) -> tuple[dict[tuple[str, str], dict[str, Any]], tuple[ToolSpec, ...]]:
    """Events of model calls by the id of the reply, events of tools by the id of the call; and the tools offered."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    tools: tuple[ToolSpec, ...] = ()
    for event in get_dicts(raw, "events"):
        kind = get_text(event, "event")
        if kind == "model":
            name = get_text(_find_choice(event).get("message"), "id")
            if not name or name not in ids:
                account.ignore("model call that is not a message of the sample")
                continue
            found["assistant", name] = event
            tools = read_tool_specs(event.get("tools")) or tools
        elif kind == "tool":
            found["tool", get_text(event, "id")] = event
        else:
            account.ignore(f"{kind or 'unnamed'} event"[:80])
            continue
        account.use()
    return found, tools


def _find_choice(event: dict[str, Any]) -> dict[str, Any]:
    return next(iter(get_dicts(get_dict(event, "output"), "choices")), {})


def _add_message(
    talk: Conversation, message: dict[str, Any], index: int, events: dict[tuple[str, str], dict[str, Any]]
) -> None:
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "user", "assistant", "tool"):
        talk.account.meet_unknown(f"message of {role!r}")
        return
    talk.account.use()
    thoughts = [part for part in as_dicts(content) if part.get("type") == "reasoning"]
    if isinstance(content, list):
        content = [part for part in content if part not in thoughts]
    text, parts = read_any_content(content)
    call_id, error = get_text(message, "tool_call_id"), get_dict(message, "error")
    event = events.get((role, call_id if role == "tool" else get_text(message, "id")), {})
    is_given = message.get("source") == "input" and not event  # an example in the prompt
    talk.add(
        role,
        text or get_text(error, "message"),
        index,
        reasoning="\n\n".join(filter(None, (get_text(part, "reasoning", "summary") for part in thoughts))) or None,
        calls=[_make_call(call) for call in get_dicts(message, "tool_calls")],
        call_id=call_id,
        is_error=True if error else None,
        author="demo" if is_given and role == "assistant" else None,
        at=read_time(event.get("timestamp")),
        seconds=None if event.get("cache") == "read" else _read_seconds(event),
        parts=parts,
        extra=find_unknown_fields(message, _MESSAGE) | ({"error": error} if error else {}),
        **({"sampled": _read_sampled(event)} if role == "assistant" else {}),
    )


def _make_call(call: dict[str, Any]) -> ToolCall:
    extra = {"parse_error": call["parse_error"]} if get_text(call, "parse_error") else {}
    return make_call(call.get("id"), call.get("function"), call.get("arguments"), **extra)


def _read_seconds(event: dict[str, Any]) -> float | None:
    """Working time, which excludes waiting for others; if there is none, the time from start to end."""
    seconds = as_number(event.get("working_time"))
    if seconds is None:
        return measure(event.get("timestamp"), event.get("completed"))
    return seconds if seconds > 0 else None


def _read_sampled(event: dict[str, Any]) -> Sampled | None:
    usage = get_dict(get_dict(event, "output"), "usage")
    reason = get_text(_find_choice(event), "stop_reason") or None
    if not usage:
        return None if reason is None else Sampled(finish_reason=reason)
    cached = ("input_tokens_cache_read", "input_tokens_cache_write")
    counts = read_usage(usage, "input_tokens", "output_tokens", *cached)
    return Sampled(finish_reason=reason, usage=counts or Usage())


def _read_outcome(raw: dict[str, Any]) -> Outcome:
    """Grades are 1 (correct), 0.5 (partly) and 0. Reward and success are known only if all scorers agree."""
    scores = {name: _read_score(score) for name, score in get_dict(raw, "scores").items()}
    metrics = {name: value for name, value in scores.items() if value is not None}
    values = set(metrics.values())
    reward = values.pop() if len(values) == 1 else None
    error, limit = get_dict(raw, "error"), get_dict(raw, "limit")
    return Outcome(
        status="error" if error else "limit" if limit else "done",
        success={0.0: False, 1.0: True}.get(reward) if reward is not None else None,
        reward=reward,
        exit_reason=get_text(limit, "type") or None,
        error=Failure(kind="sample", message=get_text(error, "message")) if error else None,
        metrics=metrics,
    )


def _read_score(score: Any) -> float | None:
    value = as_dict(score).get("value")
    if isinstance(value, bool):
        return float(value)
    return _GRADES.get(value) if isinstance(value, str) else as_number(value)


def _is_archive(head: FileHead) -> bool:
    start = head.start
    return start.startswith(b"PK\x03\x04") and (b"_journal/start.json" in start or b"_epoch_" in start[:4096])


def _read_archive(path: Path) -> tuple[dict[str, Any], Iterable[Any]]:
    """The header of a log (`eval`, `status`), and its samples, read one at a time."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"{path}: cannot read the archive: {error}; is the log still being written?") from error
    names = dict.fromkeys(archive.namelist())  # if a member was written twice, the last counts
    headers = [as_dict(_read_member(archive, name)) for name in ("header.json", "_journal/start.json") if name in names]
    samples = (_read_member(archive, name) for name in names if name.startswith("samples/"))
    return next(filter(None, headers), {}), samples


def _resolve_attachments(value: Any, attachments: dict[str, Any]) -> Any:
    """The value with the text in place of each `attachment://DIGEST`: a log keeps long texts once."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list):
        return [_resolve_attachments(item, attachments) for item in value]
    if isinstance(value, dict):
        return {key: _resolve_attachments(item, attachments) for key, item in value.items()}
    return value


def _read_member(archive: zipfile.ZipFile, name: str) -> Any:
    """The JSON value of a member; a Drop if it cannot be read."""
    info = archive.getinfo(name)
    if not _SAMPLE.fullmatch(name) and name.startswith("samples/"):
        return Drop("sample_in_pieces", f"{name}: a sample that is written in pieces; convert the log first")
    if info.file_size > MAX_LINE:
        return Drop("line_too_long", f"{name}: more than {MAX_LINE:,} bytes")
    try:
        return _decode(_unpack_zstd(archive, info) if info.compress_type == _ZSTD else archive.read(info))
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError, EOFError) as error:
        return Drop("truncated_file", f"{name}: {error}")


def _unpack_zstd(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    import zstandard

    assert archive.fp is not None
    archive.fp.seek(info.header_offset + 26)
    lengths = archive.fp.read(4)
    archive.fp.seek(int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little"), 1)
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(archive.fp.read(info.compress_size))
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from None


def _decode(data: bytes) -> Any:
    try:
        return json.loads(data)  # reads NaN, and half a character
    except (ValueError, RecursionError) as error:
        return Drop("bad_json", str(error)[:200])


PLUGIN = InspectAI
