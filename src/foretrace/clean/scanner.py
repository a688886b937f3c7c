"""Find the secrets in a text: tokens by their shape, values by the names before them, and encoded ones.

No pattern has a repetition inside a repetition, so that none takes long on any text.
"""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections.abc import Callable, Iterator

from foretrace.clean.named_values import find_named_values
from foretrace.clean.re2_patterns import compile_pattern, encode_text, find_starts
from foretrace.clean.rules import TOKENS, Token
from foretrace.clean.values import Found, decode_base64, is_token, may_be_base64, measure_entropy

_LEFT = r"(?:(?<![A-Za-z0-9])|(?<=\[K)|(?<=%[0-9A-Fa-f]{2})|(?<=\[[0-9]m)|(?<=\[[0-9]{2}m)|(?<=;[0-9]{2}m))"
_AWS_SECRET = re.compile(
    r"[^A-Za-z0-9+/]{1,60}?(?:[\w ]{0,40}[=:,\"' ]{1,6})?(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])"
)
"""An AWS secret right after its key id."""
_KEY_BEGIN = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----"
)
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|---- END SSH2 ENCRYPTED PRIVATE KEY ----")
_KEY_LINES = re.compile(
    r"(?:[\s\"'`>|\\,+-]|[A-Za-z0-9+/=]{12,}|(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset)[:][^\n]{0,200})*"
)
_PUTTY = re.compile(r"PuTTY-User-Key-File-\d:[^\n]{0,100}\n(?:[^\n]{0,300}\n){1,200}?Private-MAC: [a-f0-9]{32,80}")
_JWK = re.compile(r"\"(?:d|p|q|dp|dq|qi|k)\"\s*:\s*\"([A-Za-z0-9_-]{40,1400})\"")
_RUN_BEGIN = r"[A-Za-z0-9+/_-]{24,}"
_RUN = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
"""Characters of base64 in a row."""
_LINE = re.compile(r"\r?\n[ \t]*(?:[+>|-][ \t]?)?([A-Za-z0-9+/_-]{1,200}={0,2})(?=[ \t]*(?:[\"'`\\|<>;&)]|\r|\n|\Z))")
_LONGEST_HEAD = 1 << 10
"""Most characters in the head of a token: for a JWT, everything before its first dot."""
_MAX_KEY = 1 << 16
_MAX_BASE64_DEPTH = 2
_LEAST_WIDTH = 28
"""Fewest characters of a line of base64 that may continue on the next line."""
_LINES_AGAIN = 8
"""Lines read from a start that was already searched as part of a longer text."""


_ESCAPE = re.compile(r"(\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf\"'/\\`$]))")
_PERCENT = re.compile(r"(%(?:2[0-9A-Fa-f]|3[0-9A-Fa-f]|40|5[BbDd]|7[BbDd]))")
_COLOR = re.compile(r"(\x1b\[[0-9;]{0,12}[mK])")
"""A terminal color, which `grep` puts around each match."""
_PLAIN = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_MAX_ESCAPES = 3
"""Most levels of escaping that are decoded."""


class View:
    """One reading of a text, with the way back to offsets in the original."""

    def __init__(self, text: str, before: View | None = None, pattern: re.Pattern[str] | None = None) -> None:
        self.text = text
        self._before = before
        """The reading that this one was made from by replacing each match of the pattern; None for the original."""
        self._pattern = pattern

    def replace(self, pattern: re.Pattern[str], read: Callable[[str], str]) -> View | None:
        """The text with each match of a pattern, which is a single group, replaced by one character, or by none; `None`
        if there is no match."""
        parts = pattern.split(self.text)  # half the time of `sub`, which makes a match object for each
        parts[1::2] = map(read, parts[1::2])
        return View("".join(parts), self, pattern) if len(parts) > 1 else None

    def find_span(self, start: int, end: int) -> tuple[int, int]:
        """Start and end in the original of the characters from `start` to `end`; `end` is above `start`."""
        return (start, end) if self._before is None else (self._spans[start][0], self._spans[end - 1][1])

    @functools.cached_property
    def _spans(self) -> list[tuple[int, int]]:
        """Start and end in the original of each character. Computed only if a secret was found, which is rare."""
        if self._before is None or self._pattern is None:
            return [(place, place + 1) for place in range(len(self.text))]
        before = self._before._spans
        matches = [match.span() for match in self._pattern.finditer(self._before.text)]
        has_characters = len(self.text) > len(before) - sum(end - start for start, end in matches)
        spans: list[tuple[int, int]] = []
        at = 0
        for start, end in matches:
            spans += before[at:start]
            if has_characters:
                spans.append((before[start][0], before[end - 1][1]))
            at = end
        return spans + before[at:]


def read_in_other_ways(text: str) -> Iterator[View]:
    """The text itself, with each level of escapes decoded, and without terminal colors."""
    views = [View(text)]
    while len(views) <= _MAX_ESCAPES and "\\" in views[-1].text:
        if (decoded := views[-1].replace(_ESCAPE, _read_escape)) is None:
            break
        views.append(decoded)
    yield from views
    if "%" in text and (plain := views[0].replace(_PERCENT, lambda found: chr(int(found[1:], 16)))) is not None:
        yield plain
    for view in views:
        if "\x1b[" in view.text and (plain := view.replace(_COLOR, lambda _: "")) is not None:
            yield plain


@functools.lru_cache(maxsize=1 << 10)
def _read_escape(found: str) -> str:
    return chr(int(found[2:], 16)) if found[1] in "ux" else _PLAIN.get(found[1], found[1])


@functools.cache
def _compile_heads() -> re.Pattern[str]:
    return re.compile(_LEFT + "(?:" + "|".join(f"(?:{token.head})" for token in TOKENS) + ")")


@functools.cache
def _compile_tokens() -> list[tuple[Token, re.Pattern[str]]]:
    return [(token, re.compile(rf"({token.head})({token.body})(?![A-Za-z0-9])")) for token in TOKENS]


_QUICK_LOOK = "|".join(dict.fromkeys(token.sign or token.head for token in TOKENS))
"""For RE2: the beginnings of tokens, without what takes long to look for."""


class TooSlowError(Exception):
    """A text took longer than it may."""


class Deadline:
    """A limit on this thread's CPU time for a text, so that a busy machine changes nothing."""

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    def check(self) -> None:
        """Raises:
        TooSlowError: it is over.
        """
        if time.thread_time() > self._end:
            raise TooSlowError


def find_secrets(
    text: str, deadline: Deadline, *, named: bool = True, tokens_end: int | None = None, depth: int = 0
) -> list[Found]:
    """The secrets in a text, in order and without overlaps.

    Args:
        named: Whether to include those recognizable only by a name, a header or a command before them.
        tokens_end: The offset before which tokens of known kinds are looked for; `None` looks everywhere.
        depth: How many layers of base64 this text was decoded from.

    Raises:
        TooSlowError: the deadline is over.
    """
    if tokens_end is None:
        tokens_end = len(text)
    found: list[Found] = []
    for number, view in enumerate(read_in_other_ways(text)):
        deadline.check()
        ways = (
            _find_tokens(view.text, tokens_end)
            if tokens_end > 0 and compile_pattern(_QUICK_LOOK)(encode_text(view.text))
            else (),
            _find_keys(view.text),
            find_named_values(view.text, deadline.check) if named else (),
            _find_encoded(view.text, deadline, depth) if number < 2 and depth < _MAX_BASE64_DEPTH else (),
        )
        for way in ways:
            for each in way:
                start, end = view.find_span(each.start, each.end)
                found.append(each._replace(start=start, end=end))
            deadline.check()
    return merge(text, found)


def merge(text: str, found: list[Found]) -> list[Found]:
    """The same in order, with overlapping ones merged."""
    merged: list[Found] = []
    for each in sorted(found, key=lambda f: (f.start, -f.end)):
        if merged and each.start < merged[-1].end:
            last = merged[-1]
            if each.end > last.end:
                merged[-1] = Found(last.start, each.end, last.type, text[last.start : each.end])
        elif each.end > each.start:
            merged.append(each)
    return merged


def _find_tokens(text: str, tokens_end: int) -> Iterator[Found]:
    at, limit = 0, tokens_end + _LONGEST_HEAD
    heads = _compile_heads()
    while at < tokens_end and (head := heads.search(text, at, limit)) is not None:
        at = head.start() + 1
        for token, pattern in _compile_tokens():
            if (match := pattern.match(text, head.start())) is None or not _is_token(token, match):
                continue
            yield Found(match.start(), match.end(), token.type, match[0])
            at = match.end()
            if token.type == "aws_key_id" and (pair := _AWS_SECRET.match(text, at)) and measure_entropy(pair[1]) > 4:
                yield Found(pair.start(1), pair.end(1), "aws_secret_key", pair[1])
            break


def _is_token(token: Token, match: re.Match[str]) -> bool:
    return token.least == 0 or (len(match[2]) >= token.least and is_token(match[2]))


def _find_keys(text: str) -> Iterator[Found]:
    if "PRIVATE KEY" in text:
        begins = list(_KEY_BEGIN.finditer(text))
        for begin, after in itertools.zip_longest(begins, begins[1:]):
            limit = min(begin.end() + _MAX_KEY, after.start() if after is not None else len(text))
            end = _KEY_END.search(text, begin.end(), limit)
            body, stop = (text[begin.end() : end.start()], end.end()) if end else ("", 0)
            if not _is_key_body(body):
                lines = _KEY_LINES.match(text, begin.end(), limit)
                body, stop = (lines[0], lines.end()) if lines else ("", 0)
            if _is_key_body(body):
                yield Found(begin.start(), stop, "private_key", "".join(text[begin.start() : stop].split()))
    if "PuTTY-User-Key-File" in text:
        for match in _PUTTY.finditer(text):
            yield Found(match.start(), match.end(), "private_key", match[0])
    if '"kty"' in text:
        for match in _JWK.finditer(text):
            yield Found(match.start(1), match.end(1), "private_key", match[1])


def _is_key_body(body: str) -> bool:
    """Whether there is a key between the markers, rather than code or prose about one."""
    runs = re.findall(r"[A-Za-z0-9+/=]{16,}", body)
    inside = sum(map(len, runs))
    other = len(
        re.sub(
            r"[A-Za-z0-9+/=]{16,}|[\s\"'`>|\\,+-]|(?:Proc-Type|DEK-Info|Version|Comment|Hash)[:][^\n]*|[A-Za-z0-9+/=]",
            "",
            body,
        )
    )
    return inside >= 40 and other < 0.1 * inside and len(set("".join(runs[:4]))) > 12


def _find_encoded(text: str, deadline: Deadline, depth: int) -> Iterator[Found]:
    """Base64 texts that hold a secret, each as a whole.

    If nothing was found in one, each of its lines may begin another, of which only a few lines are read: reading all
    the rest from each line would take quadratic time.
    """
    at = looked_through = 0
    for start in find_starts(_RUN_BEGIN, text):
        run = _RUN.match(text, start)
        if start < at or run is None or not may_be_base64(run[0]):
            continue
        lines = _list_lines(text, run, _LINES_AGAIN if start < looked_through else None)
        looked_through = max(looked_through, lines[-1][1])
        if (blob := _read_blob(lines)) is None:
            continue
        end, decoded = blob
        deadline.check()
        if find_secrets(decoded, deadline, depth=depth + 1):
            yield Found(start, end, "base64_secret", "".join(text[start:end].split()))
            at = end


def _list_lines(text: str, run: re.Match[str], most: int | None) -> list[tuple[str, int]]:
    """The lines of a base64 text that begins with this run, each with its end: at most `most`, all as wide as the first
    except for the last."""
    width, end = len(run[0]), run.end()
    lines = [(run[0], end)]
    while width >= _LEAST_WIDTH and len(lines) != most and len(lines[-1][0]) == width:
        if (line := _LINE.match(text, end)) is None or len(line[1]) > width:
            break
        end = line.end(1)
        lines.append((line[1], end))
    return lines


def _read_blob(lines: list[tuple[str, int]]) -> tuple[int, str] | None:
    """The end of the base64 text in these lines, and the decoded text: of all of them, all but the last, or only the
    first."""
    for count in sorted({len(lines), max(1, len(lines) - 1), 1}, reverse=True):
        if (decoded := decode_base64("".join(line for line, _ in lines[:count]))) is not None:
            return lines[count - 1][1], decoded
    return None
