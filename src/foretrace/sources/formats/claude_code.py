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
from foretrace.sources.content_blocks import read_blocks, split_reply
from foretrace.sources.conversation import Conversation, make_call, read_time
from foretrace.sources.json_values import get_bool, get_dict, get_dicts, get_list, get_number, get_text
from foretrace.sources.openai_messages import read_tool_specs
from foretrace.sources.sessions import Session, add_user_content, count_abandoned, find_main_line

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
_SPOKEN_NOTICES = frozenset({"compact_boundary", "microcompact_boundary", "local_command"})
"""Program notices that belong to the conversation."""
_WAITS = frozenset({"AskUserQuestion", "ExitPlanMode", "EnterPlanMode"})
"""Tools that wait for a person."""
_EDITORS = frozenset({"Write", "Edit", "MultiEdit", "NotebookEdit"})
_MAX_EDIT_S = 2.0
"""Seconds; an edit that took longer waited for a person to allow it, which no record says."""
_USAGE = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_DENIED = re.compile(r"\s*(?:The user doesn't want to |\[Request interrupted by user|User rejected )")
_HUMAN = frozenset({"", "human", "cli", "user", "keyboard"})


class ClaudeCode:
    """A session is one trace. Each subagent, in its own file or inside the session, is another with a `parent`."""

    name = "claude_code"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By records with `uuid` and `sessionId` around a `message`; a file may begin with bookkeeping."""
        for number, record in enumerate(head.records or (head.first,), 1):
            kind = get_text(record, "type")
            if not _has_session(record):
                continue
            if "parts" in get_dict(record, "message"):  # Qwen Code has Gemini's messages in lines like these
                return None
            if kind in (*_SPOKEN, "system", "attachment", "progress") and get_text(record, "uuid"):
                return f"line {number}: type {kind} with sessionId and uuid"
            if kind in _BOOKKEEPING or kind in _TITLES:
                return f"line {number}: type {kind} of a Claude Code session"
        return None

    def list_companions(self, path: Path) -> Iterable[Path]:
        """The files of a session's subagents."""
        folder = path.parent / path.name.partition(".jsonl")[0] / "subagents"
        if ".jsonl" in path.name and folder.is_dir():
            yield from sorted(p for p in folder.rglob("agent-*") if p.is_file() and ".json" in p.name)

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The session, then its subagents."""
        lines = _Lines(path, account)
        parents: _Parents = {}
        companions = [p for p in self.list_companions(path) if ".meta.json" not in p.name]
        if lines.is_subagent:
            yield lines.read_subagent(parents, {})
            return
        session = lines.session_id
        yield from _read_session(lines, session, parents)
        found = [(_read_meta(p, account), p) for p in companions]
        for meta, file in sorted(found, key=lambda pair: (get_number(pair[0], "spawnDepth") or 0, pair[1].name)):
            yield _Lines(file, account, session).read_subagent(parents, meta)


def _has_session(record: dict[str, Any]) -> bool:
    if "projectHash" in record or "payload" in record:
        return False
    return any(get_text(record, key) for key in ("sessionId", "leafUuid", "messageId"))


_Parents = dict[str, Parent]
"""The callers of subagents, by the subagent's id and by its prompt."""


class _Line(msgspec.Struct):
    """A record of the conversation."""

    number: int
    kind: str
    uuid: str
    at: float | None
    record: dict[str, Any]
    is_side: bool
    message_id: str = ""
    results: list[dict[str, Any]] = msgspec.field(default_factory=list[dict[str, Any]])
    """The results of calls in a `user` record."""

    @property
    def is_prompt(self) -> bool:
        """Whether it holds the system prompt and the tools."""
        return self.kind == "attachment" and get_text(get_dict(self.record, "attachment"), "type") == _PROMPT

    def answers(self, calls: set[str]) -> bool:
        """Whether it holds results, and only of these calls."""
        return bool(self.results) and all(get_text(block, "tool_use_id") in calls for block in self.results)


class _Lines:
    """Reads the records of one file, counts each of them, and keeps those that belong to the conversation."""

    def __init__(self, path: Path, account: Account, session: str = "") -> None:
        self.path = path
        self.account = account
        self.lines: list[_Line] = []
        self.parents: dict[str, str | None] = {}
        self.types: Counter[str] = Counter()
        self.titles: list[dict[str, Any]] = []
        self.sessions: Counter[str] = Counter()
        self._given = session
        seen: set[str] = set()
        gone: set[str] = set()
        for number, record in account.drop_unread(read_records(path)):
            self._take(number, record, seen, gone)
        if gone:
            taken_back = [line for line in self.lines if line.uuid in gone]
            self.lines = [line for line in self.lines if line.uuid not in gone]
            account.ignore("message taken back", len(taken_back))

    @property
    def session_id(self) -> str:
        stem = self.path.name.partition(".jsonl")[0]
        own = stem if stem in self.sessions else next(iter(self.sessions), "")
        return self._given or own or stem

    @property
    def is_subagent(self) -> bool:
        named = self.path.name.startswith("agent-") or any("agentId" in line.record for line in self.lines)
        return named and bool(self.lines) and all(line.is_side for line in self.lines)

    def _take(self, number: int, record: dict[str, Any], seen: set[str], gone: set[str]) -> None:
        kind = get_text(record, "type")
        self.types[kind or "(no type)"] += 1
        uuid = get_text(record, "uuid")
        if uuid:
            self.parents.setdefault(uuid, get_text(record, "parentUuid", "logicalParentUuid") or None)
        for name in ("retractedMessageUuids", "supersedesUuids"):
            if name in record:
                gone.update(one for one in get_list(record, name) if isinstance(one, str))
        if session := get_text(record, "sessionId"):
            self.sessions[session] += 1
        if self._count_other(record, kind, uuid in seen):
            return
        if uuid:
            seen.add(uuid)
        self.lines.append(
            _Line(
                number, kind, uuid or f"line {number}", read_time(record.get("timestamp")), record,
                is_side=record.get("isSidechain") is True, message_id=get_text(get_dict(record, "message"), "id"),
                results=_list_results(record),
            )
        )  # fmt: skip

    def find_root(self, uuid: str, known: dict[str, str]) -> str:
        """The first record of the chain that a record is in; added to `known` for the whole chain."""
        way = {uuid: None}
        node = uuid
        while node not in known:
            parent = self.parents.get(node)
            if parent is None or parent in way:
                known[node] = node
            else:
                node = parent
                way[node] = None
        known.update(dict.fromkeys(way, known[node]))
        return known[node]

    def _count_other(self, record: dict[str, Any], kind: str, again: bool) -> bool:
        """Count a record if it is not a line of the conversation, and return whether it is not."""
        account = self.account
        if kind in ("tool_use", "tool_result"):  # in early versions: blocks as records
            return False
        if kind in _SPOKEN:
            content = get_dict(record, "message").get("content")
            if again:
                account.ignore("repeated record")
            elif not isinstance(content, (str, list)):
                account.drop("no_content")
            return again or not isinstance(content, (str, list))
        if kind in ("system", "attachment"):
            return self._count_notice(record, kind, again)
        if kind in _TITLES:
            self.titles.append(record)
        elif kind in _BOOKKEEPING:
            account.ignore(kind)
        else:
            account.meet_unknown(kind or "(no type)")
        return True

    def _count_notice(self, record: dict[str, Any], kind: str, again: bool) -> bool:
        attachment = get_dict(record, "attachment")
        what = get_text(record, "subtype") if kind == "system" else get_text(attachment, "type")
        self.account.note("errors of the model's API", what in ("api_error", "error", "api_refusal"))
        is_prompt = what == "queued_command" and bool(attachment.get("prompt"))
        if (is_prompt or what in _SPOKEN_NOTICES or what == _PROMPT) and not again:
            return False
        self.account.ignore(f"{kind} {what}")
        return True

    def read_subagent(self, parents: _Parents, meta: dict[str, Any]) -> Trace | Drop:
        """The trace of a subagent's own file."""
        agent = next((a for line in self.lines if (a := get_text(line.record, "agentId"))), "")
        agent = agent or self.path.name.partition(".jsonl")[0].removeprefix("agent-")
        folder = self.path.parent
        session = self._given or (folder.parent.name if folder.name == "subagents" else self.session_id)
        if call := get_text(meta, "toolUseId"):
            parents.setdefault(agent, Parent(key=f"{ClaudeCode.name}@{session}", call_id=call))
        return _read_subagent(self, self.lines, session, agent, parents, meta)


def _read_session(lines: _Lines, session: str, parents: _Parents) -> Iterator[Trace | Drop]:
    yield _Talk(lines, [line for line in lines.lines if not line.is_side], session, parents).make_trace()
    chains: dict[str, list[_Line]] = {}
    roots: dict[str, str] = {}
    for line in lines.lines:
        if line.is_side:
            agent = get_text(line.record, "agentId") or lines.find_root(line.uuid, roots)
            chains.setdefault(agent, []).append(line)
    for agent, chain in chains.items():
        yield _read_subagent(lines, chain, session, agent, parents)


def _read_subagent(
    lines: _Lines, own: list[_Line], session: str, agent: str, parents: _Parents, meta: dict[str, Any] | None = None
) -> Trace | Drop:
    asked = next((line for line in own if line.kind == "user"), None)
    prompt = "" if asked is None else read_blocks(get_dict(asked.record, "message").get("content"))[0]
    parent = parents.get(agent) or parents.get(prompt.strip()) or Parent(key=f"{ClaudeCode.name}@{session}")
    return _Talk(lines, own, f"{session}/{agent}", parents, parent, meta).make_trace()


class _Talk:
    """Builds one conversation from the lines that belong to it."""

    def __init__(
        self,
        lines: _Lines,
        own: list[_Line],
        session: str,
        parents: _Parents,
        parent: Parent | None = None,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.session = Session(
            source=ClaudeCode.name, agent="claude-code", id=session, types=lines.types, parent=parent
        )
        self._lines = lines
        self._parents = parents
        self._account = lines.account
        self._talk = Conversation(lines.account)
        self._usage: dict[str, dict[str, Any]] = {}
        self._calls: dict[str, tuple[str, float | None]] = {}
        """Name and stamp of each call, by id."""
        self._answered: set[str] = set()
        self._prompt = ""
        self._gather_facts(own, meta)
        main = list(self._keep_main_line(own))
        begin = next((index for index, line in enumerate(main) if line.kind == "assistant"), len(main))
        prompts = [line for line in main[:begin] if line.is_prompt]  # the last one is what was sent
        for line in (*reversed(prompts), *(line for line in main if line not in prompts)):
            self._add(line)

    def make_trace(self) -> Trace | Drop:
        return self.session.make_trace(self._talk, self._lines.path)

    def _keep_main_line(self, own: list[_Line]) -> Iterator[_Line]:
        """The lines of the main branch, in file order. The calls of one reply and their results fork as well, but are
        not branches."""
        main = find_main_line(self._lines.parents, [line.uuid for line in own])
        replies = {line.message_id for line in own if line.uuid in main and line.message_id}
        calls = {
            get_text(block, "id")
            for line in own
            if line.kind == "assistant" and (line.uuid in main or line.message_id in replies)
            for block in _list_calls(line.record)
        }
        left: set[str] = set()
        for line in own:
            if line.uuid in main or line.message_id in replies or line.answers(calls):
                yield line
            else:
                count_abandoned(self._account, line.uuid, self._lines.parents.get(line.uuid), left)

    def _gather_facts(self, own: list[_Line], meta: dict[str, Any] | None) -> None:
        session = self.session
        for line in own:
            session.folder = session.folder or get_text(line.record, "cwd")
            session.version = get_text(line.record, "version") or session.version
            if branch := get_text(line.record, "gitBranch"):
                session.extra.setdefault("git_branch", branch)
        if meta:
            self._talk.use(meta)
            session.extra["agent_type"] = get_text(meta, "agentType")
        for record in self._lines.titles:
            self._talk.use(record)
            session.extra["title"] = get_text(record, _TITLES[get_text(record, "type")])
        self._lines.titles = []

    def _add(self, line: _Line) -> None:
        if line.kind == "assistant":
            self._add_reply(line)
            return
        self._talk.use(line.record, "attachment" if line.kind == "attachment" else "message")
        if line.kind == "user":
            self._add_user(line)
        elif line.kind == "tool_use":
            call = make_call("", line.record.get("name"), line.record.get("input"))
            self._talk.add_agent(line.number, calls=[call], at=line.at)
        elif line.kind == "tool_result":
            text, parts = read_blocks(line.record.get("output"))
            self._talk.add_result("", text, line.number, at=line.at, parts=parts)
        elif line.is_prompt:
            self._add_prompt(line)
        elif line.kind == "attachment":
            self._add_queued_command(line)
        else:
            text, _ = read_blocks(line.record.get("content"))
            boundary = {"kind": get_text(line.record, "subtype")}
            self._talk.add_user(text, line.number, author="environment", at=line.at, extra=boundary)

    def _add_prompt(self, line: _Line) -> None:
        """Add a system prompt; it is repeated when the session is resumed or compacted."""
        attachment = get_dict(line.record, "attachment")
        text, _ = read_blocks(attachment.get("systemPrompt", attachment.get("system")))
        if text and text != self._prompt and (not self._prompt or self._talk.has_agent):
            self._talk.add_system(text, line.number, at=line.at)
            self._prompt = text
        self.session.tools = self.session.tools or read_tool_specs(attachment.get("tools"))

    def _add_reply(self, line: _Line) -> None:
        message = get_dict(line.record, "message")
        model = get_text(message, "model")
        if line.record.get("isApiErrorMessage") is True:
            self._account.ignore("api error message")
            self._account.note("errors of the model's API")
            return
        if model == "<synthetic>":
            self._account.ignore("synthetic message")
            return
        self._talk.use(line.record, "message")
        content = message["content"]
        pieces = split_reply(content, self._account)
        reply = line.message_id or None
        usage = self._find_fullest_usage(line.message_id, get_dict(message, "usage"))
        extra: dict[str, Any] = {"usage": usage} if usage else {}
        if model and (not reply or reply not in self._usage):
            self.session.models[model] += 1
        if reply:
            self._usage[reply] = usage
        inherited = bool(line.record.get("forkedFrom"))  # copied from the session that this one was forked from
        calls = [make_call(get_text(b, "id"), get_text(b, "name"), b.get("input")) for b in pieces.calls]
        self._calls.update((call.id, (call.name, line.at)) for call in calls)
        self._talk.add_agent(
            line.number,
            text=pieces.text,
            reasoning=pieces.reasoning,
            calls=calls,
            reply=reply,
            at=line.at,
            waits_for_person=[call.id for call in calls if call.name in _WAITS],
            parts=pieces.parts,
            train=False if inherited else None,
            extra={**extra, "inherited": True} if inherited else extra,
        )
        for block in pieces.results:
            self._add_result(block, line, {})
        for block in pieces.calls:
            if prompt := get_text(get_dict(block, "input"), "prompt"):
                parent = Parent(key=self.session.key, call_id=get_text(block, "id") or None)
                self._parents.setdefault(prompt.strip(), parent)

    def _find_fullest_usage(self, message_id: str, usage: dict[str, Any]) -> dict[str, Any]:
        """The most complete usage of a reply so far: every line has one, and at least the last one is complete."""
        known = self._usage.get(message_id, {}) if message_id else {}
        counts = {name: usage[name] for name in _USAGE if isinstance(usage.get(name), int)}
        return counts if counts.get("output_tokens", 0) >= known.get("output_tokens", 0) else known

    def _add_user(self, line: _Line) -> None:
        record = line.record
        content = get_dict(record, "message")["content"]
        results = line.results
        facts = get_dict(record, "toolUseResult") if len(results) == 1 else {}
        for block in results:
            self._add_result(block, line, facts)
        rest = content if isinstance(content, str) else [b for b in content if b not in results]
        if not rest:
            return
        author: Author | None = None
        origin = get_text(get_dict(record, "origin"), "kind")
        if record.get("isMeta") is True or record.get("isCompactSummary") is True or "notification" in origin:
            author = "environment"
        extra = {"kind": "compact_summary"} if record.get("isCompactSummary") is True else {}
        add_user_content(self._talk, rest, line.number, at=line.at, author=author, extra=extra)

    def _add_result(self, block: dict[str, Any], line: _Line, facts: dict[str, Any]) -> None:
        call = get_text(block, "tool_use_id")
        text, parts = read_blocks(block.get("content", block.get("text")))
        failed = block.get("is_error")
        milliseconds = get_number(facts, "durationMs", "totalDurationMs")
        seconds = get_number(facts, "durationSeconds") if milliseconds is None else milliseconds / 1000
        if line.record.get("toolDenialKind") or (failed and _DENIED.match(text)):
            self._talk.wait_for_person(call)
        elif seconds is None and self._waited(call, line.at):
            self._talk.wait_for_person(call)
            self._account.note("edits that waited for a person")
        if agent := get_text(facts, "agentId"):
            self._parents.setdefault(agent, Parent(key=self.session.key, call_id=call or None))
        if call and call in self._answered:
            self._account.note("second results of a call")
        self._answered.add(call)
        self._talk.add_result(
            call, text, line.number, is_error=get_bool(block, "is_error"), at=line.at,
            seconds=seconds, parts=parts,
        )  # fmt: skip

    def _waited(self, call: str, at: float | None) -> bool:
        name, asked_at = self._calls.get(call, ("", None))
        return name in _EDITORS and at is not None and asked_at is not None and at - asked_at > _MAX_EDIT_S

    def _add_queued_command(self, line: _Line) -> None:
        """Add what a person typed while the agent worked, or a notice that a task ended."""
        attachment = get_dict(line.record, "attachment")
        human = get_text(attachment, "commandMode") != "task-notification" and attachment.get("isMeta") is not True
        human = human and get_text(get_dict(attachment, "origin"), "kind") in _HUMAN
        author: Author | None = None if human else "environment"
        add_user_content(self._talk, attachment["prompt"], line.number, at=line.at, author=author)


def _list_results(record: dict[str, Any]) -> list[dict[str, Any]]:
    if record.get("type") != "user":
        return []
    return [b for b in get_dicts(get_dict(record, "message"), "content") if b.get("type") == "tool_result"]


def _list_calls(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for b in get_dicts(get_dict(record, "message"), "content") if get_text(b, "type").endswith("tool_use")]


def _read_meta(path: Path, account: Account) -> dict[str, Any]:
    file = path.with_name(path.name.partition(".jsonl")[0] + ".meta.json")
    if not file.is_file():
        return {}
    meta = read_document(file, limit=1 << 20)
    if isinstance(meta, dict):
        return meta
    account.drop(meta.reason if isinstance(meta, Drop) else "not_an_object")
    return {}


PLUGIN = ClaudeCode
