"""Find quickly which texts may hold a secret, with the RE2 library: nine texts in ten are ruled out here."""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from foretrace.clean.named_values import IN_QUERY, SIGNS, SPECIAL_WAYS, WAYS
from foretrace.clean.re2_patterns import compile_pattern, encode_text
from foretrace.clean.rules import CLEAR_WORDS, FOREIGN_WORDS, KEY_KINDS, OF_SERVICE, TOKENS, TYPE_NAME, VAGUE_WORDS
from foretrace.core.errors import ForetraceError

_LEFT = r"(?:^|[^A-Za-z]|\[K|\\[nrtu]|%[0-9A-Fa-f]{2}|[0-9]m)"
_SIGNS = [token.sign or token.head for token in TOKENS]
_ANYWHERE = [sign for sign in _SIGNS if sign[0] in "\\[:"]
_TOKEN = _LEFT + "(?:" + "|".join(dict.fromkeys(s for s in _SIGNS if s not in _ANYWHERE)) + ")|" + "|".join(_ANYWHERE)
_ROUGHLY_NAMED = (
    rf"(?i:passw|passp|passc|pwd|pswd|secret|token|credential|(?:{KEY_KINDS})[_ .-]?key|[a-z0-9][_-]key|[a-z_]key ?=|auth|{FOREIGN_WORDS}|bearer|cookie|session.?id|_pass|pass\b|[_-]pat)"
    r"|connect\.sid|\b(?i:sid|sig)\b|PRIVATE|PuTTY|\"kty\"|://[^\s@\"'<>]+@"
    r"|(?i:sshpass|mysql|mariadb|redis-cli|htpasswd|requirepass|identified\s|basic\s|login|\s-[ua]|--user|sudo\s+-S)"
    rf"|{IN_QUERY}|{SIGNS}|{OF_SERVICE}"
    r"|\s-b[ =]|(?:PAT|DSN|SALT|CERT|PASS)S? ?=|(?i:[a-z0-9][_-]pw) ?[\\\"'=:]"
)
"""Matches every text that `_NAMED` or one of `_OTHERS` matches, in half the time."""
_VALUE = r"(?:\*?[0-9!@#+?^][^\s\"'<>(){}\[\],;]{5}|\*?[^\s\"'<>(){}\[\],;:%*0-9][^\s\"'<>(){}\[\],;]*[0-9!@#%^*~?+]|[A-Za-z_/-]{12})"
_BETWEEN = (
    r"(?:\s(?i:for|of|on|in|at|from)\s[^\n:=\"'`]*)?"
    r"[\\\"'`)\]]*(?:(?:[\s#]|\\n)*(?:[:=,>|]|[\\\"', ]*value|(?i:is|was|are|to|as|reads|ist|lautet|est|es) )"
    rf"(?:[&\s]*(?:'\w+ )?{TYPE_NAME} *=)?(?:\\n|[>\s:='\"`\\*(|+-])*|[ \t][ \t'\"`]*)"
)
_TABLE = (
    rf"(?i:{CLEAR_WORDS})[\w \"'`*.#/()|│,;\t\r\\-]*(?:\n|\\n)(?:[|+:=~─━═│┼├┤╞╡╪ -]*[\\r]*(?:\n|\\n))?"
    r"(?:[^\n:=(){}<>]*[|│,;]|(?: *[0-9]+\t)?[^ \n:=(){}<>][^\n:=(){}<>]*(?:\t|\\t))"
)
"""The header of a table that names a secret, and a row."""
_NAMED = (
    rf"(?i:{CLEAR_WORDS})[\w.-]*{_BETWEEN}{_VALUE}"
    rf"|(?i:{VAGUE_WORDS})[\w.-]*[\\\"'`)\]]*\s*[:=,>]\s*[\"'`\\]*[A-Za-z0-9+/_.=-]*[0-9]"
    rf"|{_TABLE}"
)
"""Tables are included because they begin with the same words, which would otherwise be looked for twice."""
_OTHERS = (
    r"(?:KEY|TOKEN|PASS|SECRET|PWD|PAT|DSN|CREDENTIAL|SALT|CERT|[a-z_]key|token|pass|secret|pwd)S?s? ?= ?[^\s\"'`()\[\].]*[0-9]",
    rf"(?i:{CLEAR_WORDS})[\w.-]*[\\\"'\])]*\s*[:=,]\s*[\\\"']+[^\s\"'\\]{{40}}",
    *(way.sign for way in WAYS),
    *(sign for sign, _ in SPECIAL_WAYS),
)
_BLOB = r"(?:[CDI-Za-f](?:[A-Za-z0-9+/_-]|\\+(?:/|u002[bBfF])){3}){7}|PRIVATE|PuTTY|\"kty\\*\""
"""A private key, or text in base64: three bytes of text become four characters, the first of which holds the upper
bits. Few hashes look like that."""
_PERSONAL = r"/(?:home|Users)/|[A-Za-z]:[\\/]+(?i:Users|Documents and Settings)[\\/]|<SECRET:|redacted-user-|(?:-|__|%2F)(?:home|Users)(?:-|__|%2F)"
_ADDRESSES = r"[A-Za-z0-9_+-]@[A-Za-z0-9-]+\.|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]|[0-9A-Fa-f]+:[0-9A-Fa-f]*:"
_COLOR = re.compile(r"(?:\x1b|\\+(?:u001[bB]|x1[bB]))\[[0-9;]{0,12}[mK]")
_SHORT, _PART = 3 << 10, 1 << 10
"""Most characters of a text that is read as a whole, and of the parts into which a longer one is divided."""
_BEFORE, _BEHIND, _TOKEN_BEHIND = 1 << 8, 3 << 9, 1 << 14
"""Characters read before a part, after it, and after it if a token begins there."""
_WINDOW, _OVERLAP = 1 << 18, 1 << 15
"""Characters of a long text that are checked together, and how many of them are checked twice."""


class Suspect(NamedTuple):
    """A part of a text that may hold something."""

    text: int
    """Index of the text."""
    start: int
    end: int
    has_name: bool = False
    """Whether a name, a header or a command may point to a secret."""
    tokens_end: int = 0
    """The offset before which a known kind of token may begin; 0 if none does."""
    has_blob: bool = False
    """Whether it may hold a private key or base64. A suspect with none of the three is only searched for user names and
    placeholders."""


class Gate:
    """Finds suspects. The constructor checks that it works.

    Raises:
        ForetraceError: google-re2 does not work here.
    """

    def __init__(self, *, addresses: bool = False) -> None:
        try:
            # several patterns, since the states of a single one would not fit into its memory
            personal = "|".join([_PERSONAL, *([_ADDRESSES] if addresses else [])])
            self._may_hold_anything_else = compile_pattern("|".join([_ROUGHLY_NAMED, _TOKEN, personal]))
            self._has_token, self._has_blob, self._is_personal = map(compile_pattern, (_TOKEN, _BLOB, personal))
            self._exact_names = [compile_pattern(_NAMED), *(compile_pattern("|".join(_OTHERS[n::3])) for n in range(3))]
            works = [s.text for s in self.find_suspects(["nothing", "my password = Xy7!kk2p", "/home/ann/x"])] == [1, 2]
        except Exception as error:
            raise ForetraceError(
                f"the scanner for secrets cannot start ({type(error).__name__}): nothing was written; install foretrace "
                "again, with google-re2"
            ) from error
        if not works:
            raise ForetraceError("the scanner for secrets does not work with this google-re2: nothing was written")

    def find_suspects(self, texts: Sequence[str]) -> list[Suspect]:
        """The parts of texts that must be searched, in order; the parts of a text do not overlap."""
        found: list[Suspect] = []
        for number, text in enumerate(texts):
            for start, end in [(0, len(text))] if len(text) <= _WINDOW + _OVERLAP else _cut(len(text)):
                data = _encode(text[start:end])
                if not self._may_hold_anything_else(data) and not self._has_blob(data):
                    continue
                named, token, blob = self._is_named(data), self._has_token(data), self._has_blob(data)
                if named or token or blob or self._is_personal(data):
                    found.append(Suspect(number, start, end, named, end if token else 0, blob))
        return self._narrow(found, texts)

    def _is_named(self, data: bytes) -> bool:
        return any(matches(data) for matches in self._exact_names)

    def _narrow(self, suspects: list[Suspect], texts: Sequence[str]) -> list[Suspect]:
        """The same suspects, with long ones cut down to the surroundings of their names and heads of tokens."""
        found = [suspect for suspect in suspects if suspect.end - suspect.start <= _SHORT]
        for suspect in suspects:
            if suspect.end - suspect.start > _SHORT:
                found.append(suspect._replace(has_name=False, tokens_end=0))
                if not _is_part(suspect):
                    continue
                for start in range(suspect.start, suspect.end, _PART):
                    stop = min(start + _PART + _BEFORE, suspect.end)
                    data = _encode(texts[suspect.text][start:stop])
                    named = suspect.has_name and self._is_named(data)
                    token = suspect.tokens_end > 0 and self._has_token(data)
                    if named or token:
                        end = min(len(texts[suspect.text]), stop + (_TOKEN_BEHIND if token else _BEHIND))
                        begin = max(0, start - _BEFORE)
                        found.append(Suspect(suspect.text, begin, end, named, stop if token else 0))
        return _merge(sorted(found, key=lambda suspect: (suspect.text, _is_part(suspect), suspect)))


def _encode(text: str) -> bytes:
    """A text in UTF-8, without the terminal colors that may separate a name from its value."""
    has_color = "\x1b[" in text or "1b[" in text or "1B[" in text  # ten times faster than the pattern
    return encode_text(_COLOR.sub("", text) if has_color else text)


def _cut(length: int) -> Iterator[tuple[int, int]]:
    """The overlapping windows in which a very long text is checked."""
    for at in range(0, length, _WINDOW):
        yield max(0, at - _OVERLAP), min(length, at + _WINDOW)


def _is_part(suspect: Suspect) -> bool:
    return suspect.has_name or suspect.tokens_end > 0


def _merge(windows: list[Suspect]) -> list[Suspect]:
    merged: list[Suspect] = []
    for window in windows:
        near = merged and merged[-1].text == window.text and window.start <= merged[-1].end
        if near and _is_part(merged[-1]) == _is_part(window) and window.end - merged[-1].start <= _WINDOW:
            last = merged[-1]
            merged[-1] = last._replace(
                end=max(last.end, window.end),
                has_name=last.has_name or window.has_name,
                tokens_end=max(last.tokens_end, window.tokens_end),
                has_blob=last.has_blob or window.has_blob,
            )
        else:
            merged.append(window)
    return merged
