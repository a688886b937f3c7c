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
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jiter

from foretrace.core.digest import digest
from foretrace.core.errors import SourceError
from foretrace.core.trace import Failure, Outcome, Sampled, Status, ToolCall, ToolSpec, Trace, Usage
from foretrace.rows.base import Drop
from foretrace.rows.files import MAX_LINE, read_document
from foretrace.rows.head import FileHead, read_head
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_any_content
from foretrace.sources.conversation import Conversation, make_call, measure, read_time
from foretrace.sources.file_traces import finish_trace, make_task
from foretrace.sources.json_values import (
    as_count,
    as_dict,
    as_dicts,
    as_list,
    as_number,
    as_text,
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
_MAX_DEPTH = 60


class InspectAI:
    """One trace for each sample and epoch."""

    name = "inspect_ai"
    license: str | None = None

    def recognize(self, head: FileHead) -> str | None:
        """By the members of the archive, or by `status` and the fields of `eval`."""
        if is_eval_archive(head):
            return "a zip with the members of an inspect_ai log"
        about = as_dict(head.first.get("eval"))
        is_log = as_text(head.first.get("status")) in _STATUSES and {"task", "model"} <= about.keys()
        return "status and eval.task are those of an inspect_ai log" if is_log else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """A trace for every sample of the log."""
        header, samples = _read_archive(path) if is_eval_archive(read_head(path)) else _read_log(path)
        found = 0
        for sample in samples:
            found += 1
            if isinstance(sample, dict):
                yield _Sample(sample, header, account).read(path)
            else:
                drop = sample if isinstance(sample, Drop) else Drop("not_an_object", "a sample that is not an object")
                account.drop(drop.reason)
                yield drop
        if not found:
            yield Drop("no_agent_turn", f"{path.name}: a log without samples, of status {header.get('status')!r}")


class _Sample:
    def __init__(self, raw: dict[str, Any], header: dict[str, Any], account: Account) -> None:
        attachments = as_dict(raw.get("attachments"))
        self._raw = raw
        self._header = header
        self._account = account
        self._talk = Conversation(account)
        self._messages = as_list(resolve_attachments(raw.get("messages"), attachments))
        self._events = as_dicts(raw.get("events"))
        self._replies: dict[str, dict[str, Any]] = {}
        """Events of model calls, by the id of the reply."""
        self._runs: dict[str, dict[str, Any]] = {}
        """Events of tools, by the id of the call."""
        self._tools: tuple[ToolSpec, ...] = ()

    def read(self, path: Path) -> Trace | Drop:
        self._read_events()
        for index, message in enumerate(self._messages):
            if isinstance(message, dict):
                self._add(message, index)
            else:
                self._account.drop("not_an_object")
        raw, about = self._raw, as_dict(self._header.get("eval"))
        sample_id, task = write_text(raw.get("id")), as_text(about.get("task"))
        run = as_text(about.get("eval_id")) or as_text(about.get("run_id"))
        own_id = as_text(raw.get("uuid")) or f"{run}/{task}:{sample_id}:{raw.get('epoch')}"
        key = f"inspect_ai@{own_id if len(own_id) <= 200 else digest(own_id)}"
        is_named = find_repository(sample_id) != sample_id
        config = as_dict(about.get("model_generate_config"))
        return finish_trace(
            self._talk,
            key=key,
            task=make_task(
                key, instance=sample_id if is_named else f"{task}:{sample_id}", kind="swe" if is_named else ""
            ),
            path=path,
            raw_id=own_id,
            agent=as_text(about.get("solver")),
            model=as_text(about.get("model")),
            sampling={name: config[name] for name in _SAMPLING if as_number(config.get(name)) is not None},
            sample=as_count(raw.get("epoch")),
            created_at=as_text(raw.get("started_at")) or as_text(about.get("created")),
            met=Counter(f"{as_dict(message).get('role')} messages" for message in self._messages),
            tools=self._tools,
            outcome=_read_outcome(raw),
            extra={name: raw[name] for name in ("target", "metadata") if raw.get(name)},
        )

    def _read_events(self) -> None:
        ids = {as_text(as_dict(message).get("id")) for message in self._messages}
        for event in self._events:
            kind = as_text(event.get("event"))
            if kind == "model":
                choice = next(iter(as_dicts(as_dict(event.get("output")).get("choices"))), {})
                name = as_text(as_dict(choice.get("message")).get("id"))
                if name and name in ids:
                    self._replies[name] = event
                    self._tools = read_tool_specs(event.get("tools")) or self._tools
                    self._account.use()
                else:
                    self._account.ignore("model call that is not a message of the sample")
            elif kind == "tool":
                self._runs[as_text(event.get("id"))] = event
                self._account.use()
            else:
                self._account.ignore(f"{kind or 'unnamed'} event"[:80])

    def _add(self, message: dict[str, Any], index: int) -> None:
        role = message.get("role")
        if role not in ("system", "user", "assistant", "tool"):
            self._account.meet_unknown(f"message of {role!r}")
            return
        self._account.use()
        reasoning = _read_reasoning(message.get("content"))
        content = message.get("content")
        if isinstance(content, list):
            content = [part for part in content if as_dict(part).get("type") != "reasoning"]
        text, parts = read_any_content(content)
        call_id, error = as_text(message.get("tool_call_id")), as_dict(message.get("error"))
        event = (self._runs if role == "tool" else self._replies).get(
            call_id if role == "tool" else as_text(message.get("id")), {}
        )
        is_given = message.get("source") == "input" and not event  # an example in the prompt
        sampled = {"sampled": _read_sampled(event)} if role == "assistant" else {}
        self._talk.add(
            role, text or as_text(error.get("message")), index, reasoning=reasoning,
            calls=[_make_call(call) for call in as_dicts(message.get("tool_calls"))],
            call_id=call_id, is_error=True if error else None,
            author="demo" if is_given and role == "assistant" else None, at=read_time(event.get("timestamp")),
            seconds=None if event.get("cache") == "read" else _read_seconds(event), parts=parts,
            extra=find_unknown_fields(message, _MESSAGE) | ({"error": error} if error else {}), **sampled,
        )  # fmt: skip


def _read_reasoning(content: Any) -> str | None:
    parts = [part for part in as_dicts(content) if part.get("type") == "reasoning"]
    texts = (as_text(part.get("reasoning")) or as_text(part.get("summary")) for part in parts)
    return "\n\n".join(filter(None, texts)) or None


def _make_call(call: dict[str, Any]) -> ToolCall:
    extra = {"parse_error": call["parse_error"]} if as_text(call.get("parse_error")) else {}
    return make_call(call.get("id"), call.get("function"), call.get("arguments"), **extra)


def _read_seconds(event: dict[str, Any]) -> float | None:
    """Working time, which excludes waiting for others; if there is none, the time from start to end."""
    seconds = as_number(event.get("working_time"))
    if seconds is None:
        return measure(event.get("timestamp"), event.get("completed"))
    return seconds if seconds > 0 else None


def _read_sampled(event: dict[str, Any]) -> Sampled | None:
    output = as_dict(event.get("output"))
    usage = as_dict(output.get("usage"))
    reason = as_text(next(iter(as_dicts(output.get("choices"))), {}).get("stop_reason")) or None
    if not usage and reason is None:
        return None
    cached = (as_count(usage.get("input_tokens_cache_read")) or 0) + (
        as_count(usage.get("input_tokens_cache_write")) or 0
    )
    prompt = as_count(usage.get("input_tokens"))
    counts = Usage(
        prompt_tokens=None if prompt is None else prompt + cached,
        completion_tokens=as_count(usage.get("output_tokens")),
    )
    return Sampled(finish_reason=reason, usage=counts if usage else None)


def _read_outcome(raw: dict[str, Any]) -> Outcome:
    """Grades are 1 (correct), 0.5 (partly) and 0. Reward and success are known only if all scorers agree."""
    metrics = {
        name: value for name, score in as_dict(raw.get("scores")).items() if (value := _read_score(score)) is not None
    }
    values = set(metrics.values())
    reward = values.pop() if len(values) == 1 else None
    error, limit = as_dict(raw.get("error")), as_dict(raw.get("limit"))
    status: Status = "error" if error else "limit" if limit else "done"
    return Outcome(
        status=status,
        success={0.0: False, 1.0: True}.get(reward) if reward is not None else None,
        reward=reward,
        exit_reason=as_text(limit.get("type")) or None,
        error=Failure(kind="sample", message=as_text(error.get("message"))) if error else None,
        metrics=metrics,
    )


def _read_score(score: Any) -> float | None:
    value = as_dict(score).get("value")
    if isinstance(value, bool):
        return float(value)
    return _GRADES.get(value) if isinstance(value, str) else as_number(value)


def is_eval_archive(head: FileHead) -> bool:
    """Whether a file is a zip with the members of an inspect_ai log."""
    start = head.start
    return start.startswith(b"PK\x03\x04") and (b"_journal/start.json" in start or b"_epoch_" in start[:4096])


def _read_archive(path: Path) -> tuple[dict[str, Any], Iterator[Any]]:
    """The header of a log (`eval`, `status`), and its samples, read one at a time."""
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise SourceError(f"{path}: cannot read the archive: {error}; is the log still being written?") from error
    headers = (as_dict(_read_member(archive, name)) for name in ("header.json", "_journal/start.json"))
    return next(filter(None, headers), {}), _read_samples(archive)


def _read_samples(archive: zipfile.ZipFile) -> Iterator[Any]:
    """The samples of an archive. If one was written twice, the last counts."""
    with archive:
        for name in dict.fromkeys(archive.namelist()):
            if _SAMPLE.fullmatch(name):
                yield _read_member(archive, name)
            elif name.startswith("samples/"):
                yield Drop("sample_in_pieces", f"{name}: a sample that is written in pieces; convert the log first")


def _read_log(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Header and samples of a log that is one document, in which NaN may appear as a number."""
    value = read_document(path)
    if isinstance(value, Drop) and value.reason == "bad_json":
        value = _decode(path.read_bytes())
    if isinstance(value, Drop):
        return {}, [value]
    log = as_dict(value)
    return log, as_list(log.get("samples"))


def resolve_attachments(value: Any, attachments: dict[str, Any], depth: int = 0) -> Any:
    """The value with the text in place of each `attachment://DIGEST`: a log keeps long texts once."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, list) and depth <= _MAX_DEPTH:
        return [resolve_attachments(item, attachments, depth + 1) for item in value]
    if isinstance(value, dict) and depth <= _MAX_DEPTH:
        return {key: resolve_attachments(item, attachments, depth + 1) for key, item in value.items()}
    return value


def _read_member(archive: zipfile.ZipFile, name: str) -> Any:
    """The JSON value of a member; None if it is missing, a Drop if it cannot be read."""
    info = archive.NameToInfo.get(name)
    if info is None:
        return None
    if info.file_size > MAX_LINE:
        return Drop("line_too_long", f"{name}: more than {MAX_LINE:,} bytes")
    try:
        data = _unpack_zstd(archive, info) if info.compress_type == _ZSTD else archive.read(info)
    except (zipfile.BadZipFile, zlib.error, OSError, NotImplementedError, RuntimeError, EOFError) as error:
        return Drop("truncated_file", f"{name}: {error}")
    return _decode(data)


def _unpack_zstd(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    import zstandard

    assert archive.fp is not None
    archive.fp.seek(info.header_offset + 26)
    lengths = archive.fp.read(4)
    names = int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    archive.fp.seek(names, 1)
    packed = archive.fp.read(info.compress_size)
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except zstandard.ZstdError as error:
        raise zipfile.BadZipFile(str(error)) from None


def _decode(data: bytes) -> Any:
    try:
        return jiter.from_json(data, cache_mode="none")  # reads NaN, too
    except ValueError:
        pass
    try:
        return json.loads(data)  # slower, but reads half a character (a lone surrogate)
    except ValueError as error:
        return Drop("bad_json", str(error)[:200])


PLUGIN = InspectAI
