"""Take secrets out of traces: `Redactor.apply` is a transform from Trace to Trace."""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from foretrace.clean.gate import Gate, Suspect
from foretrace.clean.personal import find_addresses, find_home_names, find_user_names
from foretrace.clean.scanner import Deadline, TooSlowError, find_secrets, merge
from foretrace.clean.trace_texts import Rewriter, list_texts, rewrite_trace
from foretrace.clean.values import Found
from foretrace.core.digest import digest
from foretrace.core.errors import Setting, UsageError
from foretrace.core.internal_errors import INTERNAL_ERROR, contain_errors
from foretrace.core.placeholders import PLACEHOLDER, USER_NAME, USER_PLACEHOLDER, make_placeholder
from foretrace.core.redactions import FIELD, NAME
from foretrace.core.trace import Failure, Message, Outcome, Trace, add_trace_id
from foretrace.rows.base import Drop

VERSION = 1
"""Version of the rules: another one may find other secrets."""
TRANSFORM = f"{NAME}@{VERSION}"
TIMEOUT = "redaction_timeout"
"""Reason for dropping a trace with a text that takes too long."""
_MAX_KNOWN = 1 << 15
"""Most texts whose findings are cached."""
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


class Numbering:
    """Numbers the secrets of a trace within their type, in order of appearance: each has its own placeholder.

    A text that already has the form of a placeholder counts as a secret too: it stays as it is if no other secret has
    it yet, so that no two secrets share a placeholder.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], str] = {}
        self._taken: set[str] = set()
        self._numbers: dict[str, itertools.count[int]] = defaultdict(functools.partial(itertools.count, 1))

    def replace(self, type: str, value: str) -> str:
        """The placeholder of a secret."""
        mark = self._given.get((type, value))
        if mark is None:
            is_own = _is_placeholder(value) and value not in self._taken
            marks = (make_placeholder(type, number) for number in self._numbers[type])
            mark = value if is_own else next(mark for mark in marks if mark not in self._taken)
            self._given[type, value] = mark
            self._taken.add(mark)
        return mark


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
        self._known: dict[bytes, list[Suspect] | _Findings] = {}
        """By digest of a text: the parts that must be searched, or what was found in them. Attempts at one task share
        much, and logs of calls repeat the conversation with every call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_redactor, (self.settings,)

    def apply(self, traces: Sequence[Trace]) -> list[Trace | Drop]:
        """Each trace without its secrets; a Drop for one that could not be searched. Many at once are faster."""
        of_traces = [_list_texts(trace) for trace in traces]
        suspects = self._find_suspects(itertools.chain.from_iterable(own or () for own in of_traces))
        return [self._redact(trace, own, suspects) for trace, own in zip(traces, of_traces, strict=True)]

    def redact_attempt(self, trace: Trace) -> Trace:
        """A generated attempt without its secrets; without all its messages if it could not be searched."""
        result = self.apply([trace])[0]
        if isinstance(result, Drop):
            task = msgspec.structs.replace(trace.task, statement=None, extra={})
            outcome = Outcome(status="error", error=Failure(kind=result.reason, message=result.detail))
            result = msgspec.structs.replace(trace, task=task, messages=(), outcome=outcome, extra={})
        return add_trace_id(result)

    def redact_text(self, text: str) -> str:
        """A single text, such as an error message, with placeholders."""
        return self.redact_texts([text])[0]

    def redact_texts(self, texts: Sequence[str]) -> list[str]:
        """Independent texts with placeholders. Many at once are faster."""
        suspects = self._find_suspects(texts)
        clean = {text: self._redact_text(text, key) for text, key in suspects.items()}
        return [clean.get(text, text) for text in texts]

    def _redact_text(self, text: str, key: bytes) -> str:
        try:
            found = self._find(text, key)
        except TooSlowError:
            return "(not shown: it could not be looked through for secrets)"
        plan = merge(text, [*found.secrets, *find_user_names(text, found.home_names)])
        return _replace(text, plan, Numbering().replace)[0]

    def count_types(self, texts: Sequence[str]) -> dict[int, Counter[str]]:
        """What would be taken out of texts: counts by type, by the index of the text; texts without any are left out.

        Raises:
            TooSlowError: a text takes too long.
        """
        suspects = self._find_suspects(texts)
        counts: dict[int, Counter[str]] = {}
        for number, text in enumerate(texts):
            if text in suspects:
                found = self._find(text, suspects[text])
                types = Counter(each.type for each in found.secrets if not _is_placeholder(each.value))
                types.update(USER_NAME for _ in find_home_names(text))
                if types:
                    counts[number] = types
        return counts

    def _find_suspects(self, texts: Iterable[str]) -> dict[str, bytes]:
        """The texts that may hold something, with the keys under which they are known."""
        if len(self._known) > _MAX_KNOWN:
            for key in [*itertools.islice(self._known, len(self._known) - _MAX_KNOWN // 2)]:
                del self._known[key]
        keys = {text: _digest(text) for text in dict.fromkeys(texts)}
        new = [text for text, key in keys.items() if key not in self._known]
        parts: list[list[Suspect]] = [[] for _ in new]
        for suspect in self._gate.find_suspects(new):
            parts[suspect.text].append(suspect)
        self._known |= {keys[text]: own for text, own in zip(new, parts, strict=True)}
        return {text: key for text, key in keys.items() if self._known[key]}

    def _redact(self, trace: Trace, texts: Sequence[str] | None, suspects: dict[str, bytes]) -> Trace | Drop:
        if texts is None:
            return Drop(INTERNAL_ERROR, "it has a value that its field or JSON cannot hold")
        with contain_errors("redact", trace.key, quote=False):
            try:
                texts = list(dict.fromkeys(texts))
                found = {text: self._find(text, suspects[text]) for text in texts if text in suspects}
                names = frozenset[str]().union(*(each.home_names for each in found.values()))
                known = _list_known(each for own in found.values() for each in own.secrets)
                plans: dict[str, list[Found]] = {}
                if names or known or any(own.secrets for own in found.values()):
                    for text in texts:
                        own = found[text].secrets if text in found else []
                        if plan := self._plan(text, own, names, known):
                            plans[text] = plan
                if plans:
                    trace = _rewrite(trace, plans)
            except TooSlowError:
                return Drop(
                    TIMEOUT, f"a text took longer than {self.settings.text_seconds:g} s to look through for secrets"
                )
            return _add_transform(trace, self.settings.transform)
        # a trace that could not be searched is not written
        return Drop(INTERNAL_ERROR, "its secrets could not be taken out")

    def _find(self, text: str, key: bytes) -> _Findings:
        parts = self._known[key]
        if isinstance(parts, _Findings):
            return parts
        deadline = Deadline(self.settings.text_seconds)
        found: list[Found] = []
        for part in parts:
            if part.has_name or part.tokens_end or part.has_blob:
                piece = text[part.start : part.end]
                tokens_end = max(0, part.tokens_end - part.start)
                own = find_secrets(piece, deadline, named=part.has_name, tokens_end=tokens_end)
                found += (f._replace(start=f.start + part.start, end=f.end + part.start) for f in own)
        if self.settings.emails or self.settings.addresses:
            found += find_addresses(text, emails=self.settings.emails, addresses=self.settings.addresses)
            deadline.check()
        placeholders = _list_placeholders(text)
        if placeholders:  # the words in a placeholder look like the name of a secret
            found = [
                f
                for f in found
                if f.type in ("private_key", "base64_secret")
                or not any(p.start < f.end and f.start < p.end for p in placeholders)
            ]
        made = _Findings(merge(text, [*found, *placeholders]), frozenset(find_home_names(text)))
        self._known[key] = made
        return made

    def _plan(self, text: str, found: Sequence[Found], names: frozenset[str], known: dict[str, str]) -> list[Found]:
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


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


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


def _is_placeholder(text: str) -> bool:
    return PLACEHOLDER.fullmatch(text) is not None or USER_PLACEHOLDER.fullmatch(text) is not None


def _list_placeholders(text: str) -> list[Found]:
    found = (
        [Found(m.start(), m.end(), m["type"], m[0]) for m in PLACEHOLDER.finditer(text)] if "<SECRET:" in text else []
    )
    if "redacted-user-" in text:
        found += [Found(m.start(), m.end(), USER_NAME, m[0]) for m in USER_PLACEHOLDER.finditer(text)]
    return found


def _add_transform(trace: Trace, name: str) -> Trace:
    origin = trace.provenance
    if name in origin.transforms:
        return trace
    return msgspec.structs.replace(
        trace, provenance=msgspec.structs.replace(origin, transforms=(*origin.transforms, name))
    )


def _list_texts(trace: Trace) -> list[str] | None:
    """The texts of a trace; None for one whose source put something into it that no file can hold."""
    with contain_errors("redact", trace.key, quote=False):
        texts = list_texts(trace)
        "".join(texts)  # a source may give numbers in place of texts
        return texts
    return None


def _list_known(found: Iterable[Found]) -> dict[str, str]:
    """Secrets that are recognizable anywhere (long, with letters and digits), and their types."""
    known: dict[str, str] = {}
    for _, _, type, value in found:
        if type == USER_NAME or PLACEHOLDER.fullmatch(value):
            continue
        has_both = re.search(r"[0-9]", value) and re.search(r"[A-Za-z]", value)
        if len(value) >= _LEAST_KNOWN and (has_both or len(value) >= 16):
            known.setdefault(value, type)
    return known


def _replace(
    text: str, plan: Sequence[Found], make_mark: Callable[[str, str], str]
) -> tuple[str, list[tuple[int, int, int, int]]]:
    """The text with the mark of each type and value in its place, and the old and new start and end of each."""
    parts: list[str] = []
    moves: list[tuple[int, int, int, int]] = []
    at = length = 0
    for found in plan:
        parts.append(text[at : found.start])
        length += found.start - at
        mark = make_mark(found.type, found.value)
        parts.append(mark)
        moves.append((found.start, found.end, length, length + len(mark)))
        length += len(mark)
        at = found.end
    parts.append(text[at:])
    return "".join(parts), moves


def _rewrite(trace: Trace, plans: dict[str, list[Found]]) -> Trace:
    numbering = Numbering()
    replaced = {text: _replace(text, plan, numbering.replace) for text, plan in plans.items()}
    counts: Counter[str] = Counter()
    total: Counter[str] = Counter()

    def replace_text(text: str) -> str:
        if text not in replaced:
            return text
        counts.update(f.type for f in plans[text] if not _is_placeholder(f.value))
        return replaced[text][0]

    def move(text: str, offset: int, is_end: bool) -> int:
        return _move(replaced[text][1], offset, is_end=is_end) if text in replaced else offset

    def take_counts() -> dict[str, int]:
        total.update(counts)
        found = dict(sorted(counts.items()))
        counts.clear()
        return found

    clean = rewrite_trace(
        trace, Rewriter(replace_text, lambda text: _redact_identity(text, plans.get(text, ())), move, take_counts)
    )
    take_counts()
    if not total:
        return clean
    # the ids of a prompt spell everything before it
    messages = tuple(_forget_prompt_ids(message) for message in clean.messages)
    return msgspec.structs.replace(clean, messages=messages, extra={**clean.extra, FIELD: dict(sorted(total.items()))})


def _redact_identity(text: str, plan: Sequence[Found]) -> str:
    """A key or id with a digest in place of each secret, so that it stays the same everywhere."""
    secrets = [found for found in plan if not _is_placeholder(found.value) and found.type != USER_NAME]
    return _replace(text, secrets, lambda type, value: f"{type}-{digest(value)}")[0]


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
