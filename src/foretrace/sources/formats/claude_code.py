"""Sessions of Claude Code: ~/.claude/projects/*/*.jsonl, with their subagents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Author, Parent, Trace
from foretrace.rows.base import Drop
from foretrace.rows.files import read_document, read_records
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.content_blocks import read_blocks, split_anthropic_reply
from foretrace.sources.conversation import make_call, read_time
from foretrace.sources.json_values import decode_json, get_bool, get_dict, get_dicts, get_list, get_number, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import NO_TYPE, Session, find_main_line

_SPOKEN = frozenset({"user", "assistant"})
_BOOKKEEPING = frozenset({
    "progress", "permission-mode", "mode", "queue-operation", "file-history-snapshot", "agent-name", "agent-setting",
    "agent-color", "last-prompt", "frame-link", "pr-link", "started", "result", "relocated", "worktree-state",
    "bridge-session", "atis-latch", "tag", "content-replacement", "marble-origami-commit", "marble-origami-snapshot",
    "saved_hook_context", "speculation-accept", "attribution-snapshot", "context-collapse", "task-summary",
})  # fmt: skip
"""Types of records that are not part of the conversation."""
_PROMPT = "prompt_snapshot"
"""The attachment that holds the system prompt and the tools."""
_TITLES = {"summary": "summary", "custom-title": "customTitle", "ai-title": "aiTitle"}
_NOTICES = frozenset({"compact_boundary", "microcompact_boundary", "local_command", _PROMPT})
"""What the program adds to the conversation."""
_WAITS = frozenset({"AskUserQuestion", "ExitPlanMode", "EnterPlanMode"})
"""Tools that wait for a person."""
_EDITORS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_MAX_EDIT_S = 2.0
"""Seconds; an edit that took longer waited for a person to allow it, which no record says."""
_USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_DENIED = re.compile(r"\s*(?:The user doesn't want to |\[Request interrupted by user|User rejected )")
_HUMAN = frozenset({"", "human", "cli", "user", "keyboard"})

_Parents = dict[str, Parent]
"""The callers of subagents, by the subagent's id and by its prompt."""


class ClaudeCode:
    """A session is one trace. Each subagent, in its own file or inside the session, is another with a `parent`."""

    name = "claude_code"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By records with `uuid` and `sessionId` around a `message`; a file may begin with bookkeeping."""
        for number, record in enumerate(head.records or (head.first,), 1):
            kind = get_text(record, "type")
            is_other = "projectHash" in record or "payload" in record
            if is_other or not get_text(record, "sessionId", "leafUuid", "messageId"):
                continue
            if "parts" in get_dict(record, "message"):  # Qwen Code has Gemini's messages in lines like these
                return None
            if kind in (*_SPOKEN, "system", "attachment", "progress") and get_text(record, "uuid"):
                return f"line {number}: type {kind} with sessionId and uuid"
            if kind in _BOOKKEEPING or kind in _TITLES:
                return f"line {number}: type {kind} of a Claude Code session"
        return None

    def list_companions(self, path: Path) -> Iterable[Path]:
        folder = path.parent / path.name.partition(".jsonl")[0] / "subagents"
        if ".jsonl" in path.name and folder.is_dir():
            yield from sorted(p for p in folder.rglob("agent-*") if p.is_file() and ".json" in p.name)

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        file, parents = _File(path, account), _Parents()
        if file.is_subagent:
            folder = path.parent
            own = folder.parent.name if folder.name == "subagents" else file.session_id
            yield _read_subagent(file, file.lines, own, file.find_agent(), parents)
            return
        own = file.session_id
        yield _Talk(file, [line for line in file.lines if not line.is_side], own, parents).make_trace(path)
        chains: dict[str, list[_Line]] = {}
        for line in file.lines:
            if line.is_side:
                agent = get_text(line.record, "agentId") or file.roots.get(line.uuid, line.uuid)
                chains.setdefault(agent, []).append(line)
        for agent, chain in chains.items():
            yield _read_subagent(file, chain, own, agent, parents)
        found = [(_read_meta(p, account), p) for p in self.list_companions(path) if ".meta.json" not in p.name]
        for meta, place in sorted(found, key=lambda pair: (get_number(pair[0], "spawnDepth") or 0, pair[1].name)):
            file = _File(place, account)
            agent = file.find_agent()
            if call := get_text(meta, "toolUseId"):
                parents.setdefault(agent, Parent(key=f"{self.name}@{own}", call_id=call))
            yield _read_subagent(file, file.lines, own, agent, parents, meta)


class _Line(msgspec.Struct):
    number: int
    kind: str
    """Type of the record, or of the attachment."""
    uuid: str
    at: float | None
    record: dict[str, Any]
    is_side: bool
    message_id: str
    blocks: list[dict[str, Any]]

    def list_ids(self, kind: str, name: str) -> set[str]:
        return {get_text(block, name) for block in self.blocks if get_text(block, "type").endswith(kind)}


class _File:
    """Reads the records of one file, counts each of them, and keeps those that belong to the conversation."""

    def __init__(self, path: Path, account: Account) -> None:
        self.path = path
        self.account = account
        self.lines: list[_Line] = []
        self.parents: dict[str, str | None] = {}
        self.roots: dict[str, str] = {}
        """The first record of the chain that each record is in."""
        self.types: Counter[str] = Counter()
        self.titles: list[dict[str, Any]] = []
        self._stem = path.name.partition(".jsonl")[0]
        self._sessions: Counter[str] = Counter()
        seen: set[str] = set()
        gone: set[str] = set()
        for number, record in account.drop_unread(read_records(path)):
            uuid = get_text(record, "uuid")
            self.types[get_text(record, "type") or NO_TYPE] += 1
            self._sessions[get_text(record, "sessionId")] += 1
            if uuid:
                parent = get_text(record, "parentUuid", "logicalParentUuid") or None
                self.parents.setdefault(uuid, parent)
                self.roots.setdefault(uuid, self.roots.get(parent or "", uuid))
            for name in ("retractedMessageUuids", "supersedesUuids"):
                gone.update(one for one in get_list(record, name) if isinstance(one, str))
            if (kind := self._find_kind(record, uuid in seen)) is None:
                continue
            seen.update([uuid] if uuid else [])
            message = get_dict(record, "message")
            self.lines.append(
                _Line(
                    number, kind, uuid or f"line {number}", read_time(record.get("timestamp")), record,
                    is_side=record.get("isSidechain") is True, message_id=get_text(message, "id"),
                    blocks=get_dicts(message, "content"),
                )
            )  # fmt: skip
        if gone:
            before = len(self.lines)
            self.lines = [line for line in self.lines if line.uuid not in gone]
            account.ignore("message taken back", before - len(self.lines))

    @property
    def session_id(self) -> str:
        named = [one for one in self._sessions if one]
        return named[0] if named and self._stem not in named else self._stem

    @property
    def is_subagent(self) -> bool:
        named = self.path.name.startswith("agent-") or any("agentId" in line.record for line in self.lines)
        return named and bool(self.lines) and all(line.is_side for line in self.lines)

    def find_agent(self) -> str:
        ids = (get_text(line.record, "agentId") for line in self.lines)
        return next(filter(None, ids), self._stem.removeprefix("agent-"))

    def _find_kind(self, record: dict[str, Any], again: bool) -> str | None:
        """What a record of the conversation is; others are counted here."""
        account, kind = self.account, get_text(record, "type")
        if kind in _SPOKEN:
            is_said = isinstance(get_dict(record, "message").get("content"), (str, list))
            if again:
                account.ignore("repeated record")
            elif not is_said:
                account.drop("no_content")
            return None if again or not is_said else kind
        if kind in ("tool_use", "tool_result"):  # in early versions: blocks as records
            return kind
        if kind in ("system", "attachment"):
            attachment = get_dict(record, "attachment")
            what = get_text(record, "subtype") if kind == "system" else get_text(attachment, "type")
            account.note("errors of the model's API", what in ("api_error", "error", "api_refusal"))
            if not again and (what in _NOTICES or (what == "queued_command" and attachment.get("prompt"))):
                return what
            account.ignore(f"{kind} {what}")
        elif kind in _TITLES:
            self.titles.append(record)
        elif kind in _BOOKKEEPING:
            account.ignore(kind)
        else:
            account.meet_unknown(kind or NO_TYPE)
        return None


def _read_subagent(
    file: _File, own: list[_Line], session: str, agent: str, parents: _Parents, meta: dict[str, Any] | None = None
) -> Trace | Drop:
    asked = next((line for line in own if line.kind == "user"), None)
    prompt = "" if asked is None else read_blocks(get_dict(asked.record, "message").get("content"))[0]
    talk = _Talk(file, own, f"{session}/{agent}", parents, meta or {})
    default = Parent(key=f"{ClaudeCode.name}@{session}")
    talk.parent = parents.get(agent) or parents.get(prompt.strip()) or default
    return talk.make_trace(file.path)


class _Talk(Session):
    def __init__(
        self, file: _File, own: list[_Line], session: str, parents: _Parents, meta: dict[str, Any] | None = None
    ) -> None:
        super().__init__(file.account, ClaudeCode.name, "claude-code", session, person_tools=_WAITS)
        self.types = file.types
        self._parents = parents
        self._usage: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, tuple[str, float | None]] = {}
        """Name and stamp of each call, by id."""
        self._answered: set[str] = set()
        self._prompt = ""
        for line in own:
            self.folder = self.folder or get_text(line.record, "cwd")
            self.version = get_text(line.record, "version") or self.version
            if branch := get_text(line.record, "gitBranch"):
                self.extra.setdefault("git_branch", branch)
        if meta:
            self.use(meta)
            self.extra["agent_type"] = get_text(meta, "agentType")
        for record in file.titles:
            self.use(record)
            self.extra["title"] = get_text(record, _TITLES[get_text(record, "type")])
        file.titles = []
        main = list(self._keep_main_line(own, file.parents))
        begin = next((index for index, line in enumerate(main) if line.kind == "assistant"), len(main))
        prompts = [line for line in main[:begin] if line.kind == _PROMPT]  # the last one is what was sent
        for line in (*reversed(prompts), *(line for line in main if line not in prompts)):
            self._add_line(line)

    def _keep_main_line(self, own: list[_Line], parents: dict[str, str | None]) -> Iterator[_Line]:
        """The lines of the main branch, in file order. The calls of one reply and their results fork as well, but are
        not branches."""
        main = find_main_line(parents, [line.uuid for line in own])
        replies = {line.message_id for line in own if line.uuid in main and line.message_id}
        calls = set[str]()
        for line in own:
            if line.kind == "assistant" and (line.uuid in main or line.message_id in replies):
                calls |= line.list_ids("tool_use", "id")
        for line in own:
            answers = line.list_ids("tool_result", "tool_use_id") if line.kind == "user" else set[str]()
            if line.uuid in main or line.message_id in replies or (answers and answers <= calls):
                yield line
            else:
                self.skip_abandoned(line.uuid, parents.get(line.uuid))

    def _add_line(self, line: _Line) -> None:
        record, attachment = line.record, get_dict(line.record, "attachment")
        if line.kind == "assistant":
            self._add_assistant(line)
            return
        self.use(record, "attachment" if line.kind in (_PROMPT, "queued_command") else "message")
        if line.kind == "user":
            self._add_user(line)
        elif line.kind == "tool_use":
            self.add_agent(line.number, calls=[make_call("", record.get("name"), record.get("input"))], at=line.at)
        elif line.kind == "tool_result":
            text, parts = read_blocks(record.get("output"))
            self.add_result("", text, line.number, at=line.at, parts=parts)
        elif line.kind == _PROMPT:  # it is repeated when the session is resumed or compacted
            text, _ = read_blocks(attachment.get("systemPrompt", attachment.get("system")))
            if text and text != self._prompt and (not self._prompt or self.has_agent):
                self.add_system(text, line.number, at=line.at)
                self._prompt = text
            self.tools = self.tools or read_tool_specs(attachment.get("tools"))
        elif line.kind == "queued_command":  # typed while the agent worked, or a notice that a task ended
            human = get_text(attachment, "commandMode") != "task-notification" and attachment.get("isMeta") is not True
            human = human and get_text(get_dict(attachment, "origin"), "kind") in _HUMAN
            author: Author | None = None if human else "environment"
            self.add_content(attachment["prompt"], line.number, at=line.at, author=author)
        else:
            text, _ = read_blocks(record.get("content"))
            self.add_user(text, line.number, author="environment", at=line.at, extra={"kind": line.kind})

    def _add_assistant(self, line: _Line) -> None:
        message = get_dict(line.record, "message")
        model, reply = get_text(message, "model"), line.message_id or None
        if line.record.get("isApiErrorMessage") is True:
            self.account.ignore("api error message")
            self.account.note("errors of the model's API")
            return
        if model == "<synthetic>":
            self.account.ignore("synthetic message")
            return
        self.use(line.record, "message")
        said = split_anthropic_reply(message["content"], self.account)
        # Every line of a reply has the usage so far, and at least the last one is complete.
        known = self._usage.get(line.message_id, {})
        usage = {name: n for name in _USAGE if isinstance(n := get_dict(message, "usage").get(name), int)}
        usage = usage if usage.get("output_tokens", 0) >= known.get("output_tokens", 0) else known
        if not reply or reply not in self._usage:
            self.note_model(model)
        if reply:
            self._usage[reply] = usage
        extra: dict[str, Any] = {"usage": usage} if usage else {}
        inherited = bool(line.record.get("forkedFrom"))  # copied from the session that this one was forked from
        if inherited:
            extra["inherited"] = True
        train = False if inherited else None
        self.add_reply(said, line.number, reply=reply, at=line.at, train=train, extra=extra)
        for block in said.results:
            self._add_answer(block, line, {})
        for call in said.calls:
            self._calls[call.id] = call.name, line.at
            if '"prompt"' in call.arguments and (prompt := get_text(decode_json(call.arguments), "prompt")):
                self._parents.setdefault(prompt.strip(), Parent(key=self.key, call_id=call.id or None))

    def _add_user(self, line: _Line) -> None:
        record = line.record
        content = get_dict(record, "message")["content"]
        results = [block for block in line.blocks if block.get("type") == "tool_result"]
        for block in results:
            self._add_answer(block, line, get_dict(record, "toolUseResult") if len(results) == 1 else {})
        rest = content if isinstance(content, str) else [b for b in content if b not in results]
        if rest:
            is_summary = record.get("isCompactSummary") is True
            is_notice = "notification" in get_text(get_dict(record, "origin"), "kind")
            author: Author | None = "environment" if record.get("isMeta") is True or is_summary or is_notice else None
            extra = {"kind": "compact_summary"} if is_summary else {}
            self.add_content(rest, line.number, at=line.at, author=author, extra=extra)

    def _add_answer(self, block: dict[str, Any], line: _Line, facts: dict[str, Any]) -> None:
        call = get_text(block, "tool_use_id")
        text, parts = read_blocks(block.get("content", block.get("text")))
        milliseconds = get_number(facts, "durationMs", "totalDurationMs")
        seconds = get_number(facts, "durationSeconds") if milliseconds is None else milliseconds / 1000
        name, asked_at = self._calls.get(call, ("", None))
        waited = line.at is not None and asked_at is not None and line.at - asked_at > _MAX_EDIT_S
        if line.record.get("toolDenialKind") or (block.get("is_error") and _DENIED.match(text)):
            self.wait_for_person(call)
        elif seconds is None and name in _EDITORS and waited:
            self.wait_for_person(call)
            self.account.note("edits that waited for a person")
        if agent := get_text(facts, "agentId"):
            self._parents.setdefault(agent, Parent(key=self.key, call_id=call or None))
        self.account.note("second results of a call", bool(call) and call in self._answered)
        self._answered.add(call)
        failed = get_bool(block, "is_error")
        self.add_result(call, text, line.number, is_error=failed, at=line.at, seconds=seconds, parts=parts)


def _read_meta(path: Path, account: Account) -> dict[str, Any]:
    file = path.with_name(path.name.partition(".jsonl")[0] + ".meta.json")
    metas = [read_document(file, limit=1 << 20)] if file.is_file() else []
    return next((meta for _, meta in account.drop_unread(metas)), {})


PLUGIN = ClaudeCode
