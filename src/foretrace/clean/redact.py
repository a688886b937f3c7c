"""Take secrets out of traces: `Redactor.apply` is a transform from Trace to Trace."""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from foretrace.clean.gate import Gate, Suspect
from foretrace.clean.numbering import Numbering, list_placeholders
from foretrace.clean.personal import find_addresses, find_home_names, find_user_names
from foretrace.clean.scanner import Deadline, Found, TooSlowError, find_secrets, merge
from foretrace.clean.trace_texts import Rewriter, list_texts, rewrite_trace
from foretrace.core.digest import digest
from foretrace.core.errors import Setting, UsageError
from foretrace.core.internal_errors import INTERNAL_ERROR, contain_errors
from foretrace.core.placeholders import PLACEHOLDER, USER_NAME, USER_PLACEHOLDER
from foretrace.core.redactions import FIELD, NAME
from foretrace.core.trace import Failure, Message, Outcome, Trace, add_trace_id
from foretrace.rows.base import Drop

VERSION = 1
"""Version of the rules: another one may find other secrets."""
TRANSFORM = f"{NAME}@{VERSION}"
TIMEOUT = "redaction_timeout"
"""Reason for dropping a trace with a text that takes too long."""
_SHORT_TEXT, _MAX_KEPT = 200, 1 << 12
"""Most characters of a text whose result is cached, and most texts in that cache."""
_MAX_KNOWN = 1 << 15
"""Most texts whose findings are cached."""
_SHORT_KEY = 64
"""Most characters of a text that is its own cache key; longer ones are keyed by a digest."""
_TextKey = str | bytes
_LEAST_KNOWN = 8
"""Fewest characters of a secret that is taken out everywhere in its trace once found."""


class RedactSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken out besides secrets, and how long it may take."""

    emails: bool = False
    addresses: bool = False
    """IP addresses."""
    text_seconds: float = 60.0
    """Limit for one text; a trace with a text that takes longer is dropped."""

    @property
    def transform(self) -> str:
        """Its entry in `Provenance.transforms`."""
        options = [name for name in ("emails", "addresses") if getattr(self, name)]
        return "+".join([TRANSFORM, *options])


class _Findings(NamedTuple):
    """What was found in a text."""

    secrets: list[Found]
    home_names: frozenset[str]


class Redactor:
    """Takes secrets and user names out of traces. It is sent to worker processes as its settings.

    Raises:
        ForetraceError: the scanner cannot start here.
    """

    def __init__(self, settings: RedactSettings = RedactSettings()) -> None:  # noqa: B008 - frozen
        self.settings = settings
        self._gate = Gate(addresses=settings.emails or settings.addresses)
        self._redacted: dict[str, str] = {}
        """Results for short texts: every session file repeats the same types of records."""
        self._seen: dict[_TextKey, Sequence[Suspect]] = {}
        """Suspects in the texts of recent traces: attempts at one task share much, and logs of calls repeat the
        conversation with every call."""
        self._findings: dict[_TextKey, _Findings] = {}
        """Findings in those texts."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_redactor, (self.settings,)

    def apply(self, traces: Sequence[Trace]) -> list[Trace | Drop]:
        """Each trace without its secrets; a Drop for one that could not be searched. Many at once are faster."""
        of_traces = [list(list_texts(trace)) for trace in traces]
        suspects = self._find_suspects(dict.fromkeys(itertools.chain.from_iterable(of_traces)))
        find = functools.cache(lambda text: self._find_all(text, suspects[text]))  # traces share many texts
        return [
            self._redact(trace, own, list(dict.fromkeys(filter(suspects.__contains__, own))), find)
            for trace, own in zip(traces, of_traces, strict=True)
        ]

    def redact_attempt(self, trace: Trace) -> Trace:
        """A generated attempt without its secrets; without all its messages if it could not be searched."""
        result = self.apply([trace])[0]
        if isinstance(result, Drop):
            task = msgspec.structs.replace(trace.task, statement=None, extra={})
            outcome = Outcome(status="error", error=Failure(kind=result.reason, message=result.detail))
            result = msgspec.structs.replace(trace, task=task, messages=(), outcome=outcome, extra={})
        return add_trace_id(result)

    def _find_suspects(self, texts: Iterable[str]) -> dict[str, list[Suspect]]:
        keys = {text: _make_key(text) for text in texts}
        _forget_oldest(self._seen)
        new = [text for text, key in keys.items() if key not in self._seen]
        found: dict[str, list[Suspect]] = {}
        for suspect in self._gate.find_suspects(new):
            found.setdefault(new[suspect.text], []).append(suspect)
        self._seen |= {keys[text]: found.get(text, ()) for text in new}
        return {text: [*parts] for text, key in keys.items() if (parts := self._seen[key])}

    def redact_text(self, text: str) -> str:
        """A single text, such as an error message, with placeholders."""
        return self.redact_texts([text])[0]

    def redact_texts(self, texts: Sequence[str]) -> list[str]:
        """Independent texts with placeholders. Many at once are faster."""
        new = [text for text in dict.fromkeys(texts) if text not in self._redacted]
        suspects = self._find_suspects(new)
        clean = {text: self._redact_text(text, suspects.get(text, [])) for text in new}
        result = [clean[text] if text in clean else self._redacted[text] for text in texts]
        if len(self._redacted) + len(new) > _MAX_KEPT:
            self._redacted.clear()
        self._redacted |= {text: made for text, made in clean.items() if len(text) <= _SHORT_TEXT}
        return result

    def _redact_text(self, text: str, hits: Sequence[Suspect]) -> str:
        if not hits:
            return text
        try:
            found = self._find(text, hits)
        except TooSlowError:
            return "(not shown: it could not be looked through for secrets)"
        names = [*find_user_names(text, set(find_home_names(text)))]
        return _replace(text, merge(text, [*found, *names]), Numbering())[0]

    def count_types(self, texts: Sequence[str]) -> dict[int, Counter[str]]:
        """What would be taken out of texts: counts by type, by the index of the text; texts without any are left out.

        Raises:
            TooSlowError: a text takes too long.
        """
        hits: dict[int, list[Suspect]] = {}
        for suspect in self._gate.find_suspects(texts):
            hits.setdefault(suspect.text, []).append(suspect)
        counts: dict[int, Counter[str]] = {}
        for number, parts in hits.items():
            text = texts[number]
            found = [f for f in self._find(text, parts) if not _is_placeholder(f.value)]
            types = Counter(each.type for each in found) + Counter(USER_NAME for _ in find_home_names(text))
            if types:
                counts[number] = types
        return counts

    def _redact(
        self, trace: Trace, texts: Sequence[str], suspects: Sequence[str], find: Callable[[str], _Findings]
    ) -> Trace | Drop:
        with contain_errors("redact", trace.key, quote=False):
            try:
                found = {text: find(text).secrets for text in suspects}
                names = {name for text in suspects for name in find(text).home_names}
                known = _list_known(found.values())
                if names or known or any(found.values()):
                    plans = {t: plan for t in texts if (plan := self._plan(t, found.get(t, []), names, known))}
                    trace = _rewrite(trace, texts, plans) if plans else trace
            except TooSlowError:
                return Drop(
                    TIMEOUT, f"a text took longer than {self.settings.text_seconds:g} s to look through for secrets"
                )
            return add_transform(trace, self.settings.transform)
        return Drop(
            INTERNAL_ERROR, "its secrets could not be taken out"
        )  # a trace that could not be searched is not written

    def _find_all(self, text: str, parts: Sequence[Suspect]) -> _Findings:
        key = _make_key(text)
        if (known := self._findings.get(key)) is not None:
            return known
        _forget_oldest(self._findings)
        found = self._findings[key] = _Findings(self._find(text, parts), frozenset(find_home_names(text)))
        return found

    def _find(self, text: str, parts: Sequence[Suspect]) -> list[Found]:
        deadline = Deadline(self.settings.text_seconds)
        found: list[Found] = []
        for part in parts:
            if not (part.has_name or part.tokens_end or part.has_blob):
                continue
            piece = text[part.start : part.end]
            tokens_end = max(0, part.tokens_end - part.start)
            own = find_secrets(piece, deadline, named=part.has_name, tokens_end=tokens_end)
            found += (f._replace(start=f.start + part.start, end=f.end + part.start) for f in own)
        if self.settings.emails or self.settings.addresses:
            found += find_addresses(text, emails=self.settings.emails, addresses=self.settings.addresses)
            deadline.check()
        placeholders = [Found(*each) for each in list_placeholders(text)]
        if placeholders:  # the words in a placeholder look like the name of a secret
            whole = ("private_key", "base64_secret")
            found = [
                f
                for f in found
                if f.type in whole or not any(p.start < f.end and f.start < p.end for p in placeholders)
            ]
        return merge(text, [*found, *placeholders])

    def _plan(self, text: str, found: Sequence[Found], names: set[str], known: dict[str, str]) -> list[Found]:
        """All that is replaced in a text: what was found in it, and what was found elsewhere in its trace."""
        deadline = Deadline(self.settings.text_seconds)
        more = [*find_user_names(text, names, deadline.check)]
        for value, type in known.items():
            deadline.check()
            at = text.find(value)
            while at >= 0:
                more.append(Found(at, at + len(value), type, value))
                at = text.find(value, at + len(value))
        return merge(text, [*found, *more]) if more else list(found)


def _make_key(text: str) -> _TextKey:
    """The cache key of a text: itself if short, else a digest of 16 bytes."""
    if len(text) <= _SHORT_KEY:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _forget_oldest(known: dict[_TextKey, Any]) -> None:
    """Drop the older half of a cache that has grown too large."""
    if len(known) > _MAX_KNOWN:
        for key in [*itertools.islice(known, len(known) - _MAX_KNOWN // 2)]:
            del known[key]


@functools.lru_cache(maxsize=4)
def _make_redactor(settings: RedactSettings) -> Redactor:
    return Redactor(settings)


def make_redactor(redact: bool = True, *, emails: bool = False, addresses: bool = False) -> Redactor | None:
    """The Redactor for these options; `None` if secrets are to stay.

    Raises:
        UsageError: options ask for more to be taken out, with redaction switched off.
        ForetraceError: the scanner cannot start here.
    """
    if redact:
        return Redactor(RedactSettings(emails=emails, addresses=addresses))
    for name, wanted in (("redact_emails", emails), ("redact_addresses", addresses)):
        if wanted:
            raise UsageError(Setting(name, True), " takes out more than secrets; leave out ", Setting("redact", False))
    return None


def add_transform(trace: Trace, name: str) -> Trace:
    """The trace with this transform added to its provenance."""
    origin = trace.provenance
    if name in origin.transforms:
        return trace
    return msgspec.structs.replace(
        trace, provenance=msgspec.structs.replace(origin, transforms=(*origin.transforms, name))
    )


def _list_known(found: Iterable[Sequence[Found]]) -> dict[str, str]:
    """Secrets that are recognizable anywhere (long, with letters and digits), and their types."""
    known: dict[str, str] = {}
    for own in found:
        for each in own:
            if each.type == USER_NAME or PLACEHOLDER.fullmatch(each.value):
                continue
            has_both = re.search(r"[0-9]", each.value) and re.search(r"[A-Za-z]", each.value)
            if len(each.value) >= _LEAST_KNOWN and (has_both or len(each.value) >= 16):
                known.setdefault(each.value, each.type)
    return known


def _replace(text: str, plan: Sequence[Found], numbering: Numbering) -> tuple[str, list[tuple[int, int, int, int]]]:
    """The text with placeholders, and the old and new start and end of each."""
    parts: list[str] = []
    moves: list[tuple[int, int, int, int]] = []
    at = length = 0
    for found in plan:
        parts.append(text[at : found.start])
        length += found.start - at
        mark = numbering.replace(found.type, found.value)
        parts.append(mark)
        moves.append((found.start, found.end, length, length + len(mark)))
        length += len(mark)
        at = found.end
    parts.append(text[at:])
    return "".join(parts), moves


def _rewrite(trace: Trace, texts: Sequence[str], plans: dict[str, list[Found]]) -> Trace:
    numbering = Numbering()
    replaced = {text: _replace(text, plans[text], numbering) for text in dict.fromkeys(texts) if text in plans}
    counts: Counter[str] = Counter()
    total: Counter[str] = Counter()

    def replace_text(text: str) -> str:
        if text not in replaced:
            return text
        counts.update(f.type for f in plans[text] if not _is_placeholder(f.value))
        return replaced[text][0]

    def move(text: str, offset: int, is_end: bool) -> int:
        return _move(replaced[text][1], offset, is_end=is_end) if text in replaced else offset

    def mark(_: Message) -> dict[str, int]:
        found = dict(sorted(counts.items()))
        total.update(counts)
        counts.clear()
        return found

    rewriter = Rewriter(replace_text, lambda text: redact_identity(text, plans.get(text, ())), move, mark)
    clean = rewrite_trace(trace, rewriter)
    total.update(counts)
    _check_arguments(trace, clean)
    if not total:
        return clean
    # the ids of a prompt spell everything before it
    messages = tuple(_forget_prompt_ids(message) for message in clean.messages)
    return msgspec.structs.replace(clean, messages=messages, extra={**clean.extra, FIELD: dict(sorted(total.items()))})


def redact_identity(text: str, plan: Sequence[Found]) -> str:
    """A key or id with a digest in place of each secret, so that it stays the same everywhere."""
    parts: list[str] = []
    at = 0
    for found in plan:
        if _is_placeholder(found.value) or found.type == USER_NAME:
            continue
        parts += [text[at : found.start], f"{found.type}-{digest(found.value)}"]
        at = found.end
    return "".join([*parts, text[at:]])


def _is_placeholder(value: str) -> bool:
    return PLACEHOLDER.fullmatch(value) is not None or USER_PLACEHOLDER.fullmatch(value) is not None


def _move(moves: Sequence[tuple[int, int, int, int]], offset: int, *, is_end: bool) -> int:
    index = bisect.bisect_right(moves, offset, key=lambda move: move[0]) - 1
    if index < 0:
        return offset
    start, end, new_start, new_end = moves[index]
    if offset >= end:
        return offset - end + new_end
    return new_end if is_end and offset > start else new_start


def _forget_prompt_ids(message: Message) -> Message:
    sampled = message.sampled
    if sampled is None or sampled.prompt_token_ids is None:
        return message
    return msgspec.structs.replace(message, sampled=msgspec.structs.replace(sampled, prompt_token_ids=None))


def _check_arguments(before: Trace, after: Trace) -> None:
    """Refuse a change that breaks arguments that were JSON.

    Raises:
        ValueError: they are no longer JSON.
    """
    for old, new in zip(before.messages, after.messages, strict=True):
        for old_call, new_call in zip(old.tool_calls, new.tool_calls, strict=True):
            if (
                old_call.arguments != new_call.arguments
                and _is_json(old_call.arguments)
                and not _is_json(new_call.arguments)
            ):
                raise ValueError("arguments are not JSON any more")


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
