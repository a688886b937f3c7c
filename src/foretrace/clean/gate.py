"""Tell fast which texts may hold a secret at all: one pass over many texts, with the RE2 library inside pyarrow.

RE2 takes time in proportion to the text, whatever stands in it. Nine texts in ten end here.
"""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from foretrace.clean.rules import CLEAR_WORDS, TOKENS, VAGUE_WORDS, cut_heads
from foretrace.core.errors import ForetraceError

_LEFT = r"(?:^|[^A-Za-z]|\[K|\\[nrtu]|%[0-9A-Fa-f]{2}|[0-9]m)"
_SIGNS = [token.sign or token.head for token in TOKENS]
_ANYWHERE = [sign for sign in _SIGNS if sign[0] in "\\[:"]
_WHOLE = _LEFT + "(?:" + "|".join(dict.fromkeys(s for s in _SIGNS if s not in _ANYWHERE)) + ")|" + "|".join(_ANYWHERE)
_LINE_BREAK = r"[ \t\"'\\\r]*(?:\n|\\n)[ \t\"'\\+>|-]*"
_CUT = "|".join(
    f"(?:{'|'.join(lefts)}){_LINE_BREAK}(?:{'|'.join(rights)})"
    for lefts, rights in cut_heads(token.head for token in TOKENS)
)
_TOKEN = rf"{_WHOLE}|{_LEFT}(?:{_CUT})[A-Za-z0-9_.-]{{4}}"
"""The beginning of a token, which a line break may have cut in two: then more of it must follow."""
_ROUGHLY_NAMED = (
    r"(?i:passw|passp|passc|pwd|pswd|secret|token|credential|[a-z0-9][_ .-]?key|auth|bearer|cookie|session.?id|_pass|pass\b|[_-]pat)"
    r"|connect\.sid|\b(?i:sid|sig)\b|PRIVATE|PuTTY|\"kty\"|://[^\s/@\"'<>]+@|sshpass|mysql|mariadb|redis-cli|htpasswd|requirepass"
    r"|(?i:identified by|basic )|login| -u|--user|[?&;](?:key|sig|signature|code|appid|hapikey|X-Amz-[A-Z]|X-Goog-S|Signature)="
    r"|oracle:|sqlplus|:[0-9*]+:[\w*-]+:[\w.-]+:|\s-b[ =]|(?:PAT|DSN|SALT|CERT|PASS)S? ?=|(?i:[a-z0-9][_-]pw)[\\\"'=:]"
)
"""What stands in every text that `_NAMED` or one of `_OTHERS` matches, and is found in half the time."""
_VALUE = r"(?:[0-9!@#*+?^][^\s\"'<>(){}\[\],;]{5}|[^\s\"'<>(){}\[\],;:%0-9][^\s\"'<>(){}\[\],;]*[0-9!@#%^*~?+]|[A-Za-z_/-]{12})"
_BETWEEN = (
    r"(?:\s(?i:for|of|on|in|at|from)\s[^\n:=\"'`]*)?"
    r"[\\\"'`)\]]*(?:(?:\s|\\n)*(?:[:=,>|]|[\\\"', ]*value|(?i:is|was|are|to|as|reads) )[>\s:='\"`\\*(]*|[ \t][ \t'\"`]*)"
)
_TABLE = (
    rf"(?i:{CLEAR_WORDS})[\w \"'`*.#/()|│,;\t\r\\-]*(?:\n|\\n)(?:[|+:=~─━═│┼├┤╞╡╪ -]*[\\r]*(?:\n|\\n))?"
    r"[^\n:=(){}<>]*(?:[|│,;\t]|\\t)"
)
"""The line of a table that names a secret, and a row of it."""
_NAMED = (
    rf"(?i:{CLEAR_WORDS})[\w.-]*{_BETWEEN}{_VALUE}"
    rf"|(?i:{VAGUE_WORDS})[\w.-]*[\\\"'`)\]]*\s*[:=,>]\s*[\"'`\\]*[A-Za-z0-9+/_.=-]*[0-9]"
    rf"|{_TABLE}"
)
"""The tables stand here since they begin with the same words: apart, the words would be looked for twice."""
_OTHERS = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE|SSH2 ENCRYPTED PRIVATE|PuTTY-User-Key-File|\"kty\"",
    r"[a-z0-9+]://[^\s/@\"'<>]+@",
    r"(?i:authorization|bearer [\w.+/~=-]*[0-9]|basic [\w.+/~=-]*[0-9]|cookie2?[\"'`\]]*[ :=])",
    r"(?i:sshpass|mysql[^\n]* -p|mariadb[^\n]* -p|redis-cli|htpasswd|chpasswd|identified by|-passin|docker login|password-stdin|with-token)",
    r"\s-u[ =]?[\"']?[^\s:]+:|\s--user[ =]|\s-b[ =][\"']|\s--cookie",
    r"[?&;](?:key|sig|signature|code|appid|apikey|hapikey|X-Amz-[A-Z]|X-Goog-S|Signature)=",
    r"(?:KEY|TOKEN|PASS|SECRET|PWD|PAT|DSN|CREDENTIAL|SALT|CERT|[a-z_]key|token|pass|secret|pwd)S?s? ?= ?[^\s\"'`()\[\].]*[0-9]",
    r"[0-9][A-Za-z0-9+/_=.-]*[\"'`]?\s(?:is|was|as|for)\s(?:the|my|our|your|a|their|its)\s(?:[\w-]+ )*(?i:[a-z]*key|token|password|secret)",
    r":(?:[0-9]{4,5}|\*):[^\s:]+:[^\s:]+:\S{6}",
    r"(?:PASSWORD|PASSWD|PASSPHRASE|_PWD|_PW)(?:=| = |[\\\"']*:[ \t])[\\\"']*[^\s\"'`$<({%]{4}",
    r"(?i:passw(?:or)?d|passphrase|[_-]pwd?)(?:[\\\"']*:[ \t]+|=)[\\\"']*[^\s\"'`$<({%]{4,}[\\\"']*[ \t\r]*(?:\n|\\+[nr]|#|$)",
    r"(?:oracle:|sqlplus)[^\n]*/[^\s/@]+@",
)
_BLOB = r"(?:[CDI-Za-f](?:[A-Za-z0-9+/_-]|\\+(?:/|u002[bBfF])){3}){7}|PRIVATE|PuTTY|\"kty\\*\""
"""A private key, or text in base64: each three bytes of text are four characters, of which the first has the upper
bits. Few hashes look like that."""
_PERSONAL = (
    r"/(?:home|Users)/|[A-Za-z]:[\\/]+(?i:Users|Documents and Settings)[\\/]|<SECRET:|redacted-user-|-(?:home|Users)-"
)
_ADDRESSES = r"[A-Za-z0-9_+-]@[A-Za-z0-9-]+\.|[0-9]+\.[0-9]+\.[0-9]+\.[0-9]|[0-9A-Fa-f]+:[0-9A-Fa-f]*:"
_SHORT, _PART = 3 << 10, 1 << 10
"""Characters of a text up to which it is read as a whole, and of the parts in which a longer one is looked at again."""
_BEFORE, _BEHIND, _TOKEN_BEHIND = 1 << 8, 3 << 9, 1 << 14
"""Characters that are read with a part in front of it, behind it, and behind it where a token begins there."""
_WINDOW, _OVERLAP = 1 << 18, 1 << 15
"""Characters of a long text that are looked at together, and how many of them are looked at twice."""


class Suspect(NamedTuple):
    """A part of a text in which there may be something."""

    text: int
    """Index of the text."""
    start: int
    end: int
    has_name: bool = False
    """Whether a name, a header or a command may tell a secret."""
    tokens_end: int = 0
    """Before which place a known kind of token may begin; 0 where none does."""
    has_blob: bool = False
    """Whether a private key or something in base64 may stand in it. A suspect without any of the three is looked through
    for user names and placeholders alone."""


class Gate:
    """Finds suspects. Making one tries it out.

    Raises:
        ForetraceError: it does not work here.
    """

    def __init__(self, *, addresses: bool = False) -> None:
        # several patterns, since the automaton of all in one would not fit into the memory that RE2 allows itself
        self._personal = "|".join([_PERSONAL, *([_ADDRESSES] if addresses else [])])
        try:
            works = [s.text for s in self.find_suspects(["nothing", "my password = Xy7!kk2p", "/home/ann/x"])] == [1, 2]
        except Exception as error:
            raise ForetraceError(
                f"the scanner for secrets cannot start ({type(error).__name__}): nothing was written"
            ) from error
        if not works:
            raise ForetraceError("the scanner for secrets does not work with this pyarrow: nothing was written")

    def find_suspects(self, texts: Sequence[str]) -> list[Suspect]:
        """The parts of texts that must be looked at, in order; those of one text do not overlap."""
        windows = list(_cut(texts))
        if not windows:
            return []
        values = _make_array([texts[w.text][w.start : w.end] for w in windows])
        names = _ask_again(values, _match(values, _ROUGHLY_NAMED), _find_exactly)
        tokens = _match(values, _TOKEN)
        others = _match(values, f"{_BLOB}|{self._personal}")
        blobs = _ask_again(values, others, lambda hits: _match(hits, _BLOB))
        found = [
            window._replace(has_name=name, tokens_end=window.end if token else 0, has_blob=blob)
            for window, name, token, other, blob in zip(windows, names, tokens, others, blobs, strict=True)
            if name or token or other
        ]
        return self._narrow(found, texts)

    def _narrow(self, suspects: list[Suspect], texts: Sequence[str]) -> list[Suspect]:
        """The same, of which long ones are cut down to what stands around the names and heads of tokens in them."""
        found = [suspect for suspect in suspects if suspect.end - suspect.start <= _SHORT]
        parts: list[Suspect] = []
        for suspect in suspects:
            if suspect.end - suspect.start > _SHORT:
                found.append(suspect._replace(has_name=False, tokens_end=0))
                if not _is_part(suspect):
                    continue
                cuts = range(suspect.start, suspect.end, _PART)
                parts += (suspect._replace(start=at, end=min(at + _PART + _BEFORE, suspect.end)) for at in cuts)
        if parts:
            values = _make_array([texts[part.text][part.start : part.end] for part in parts])
            names = _ask_again(values, [part.has_name for part in parts], _find_exactly)
            tokens = _ask_again(values, [part.tokens_end > 0 for part in parts], lambda hits: _match(hits, _TOKEN))
            for part, named, token in zip(parts, names, tokens, strict=True):
                if named or token:
                    end = min(len(texts[part.text]), part.end + (_TOKEN_BEHIND if token else _BEHIND))
                    tokens_end = part.end if token else 0
                    found.append(Suspect(part.text, max(0, part.start - _BEFORE), end, named, tokens_end))
        return _merge(sorted(found, key=lambda suspect: (suspect.text, _is_part(suspect), suspect)))


def _ask_again(values: Any, hits: list[bool], match: Callable[[Any], list[bool]]) -> list[bool]:
    """Which of the values that are hits are hits of a stricter question too."""
    if not any(hits):
        return hits
    again = iter(match(_take(values, [number for number, hit in enumerate(hits) if hit])))
    return [hit and next(again) for hit in hits]


def _find_exactly(values: Any) -> list[bool]:
    """Which values hold what a name, a header or a command tells."""
    named, told_otherwise = _match(values, _NAMED), _match(values, "|".join(_OTHERS))
    return [any(pair) for pair in zip(named, told_otherwise, strict=True)]


def _take(values: Any, numbers: list[int]) -> Any:
    import pyarrow as pa
    from pyarrow._compute import call_function  # type: ignore[attr-defined]

    places = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(array("i", numbers))])
    return call_function("take", [values, places])


def _match(values: Any, pattern: str) -> list[bool]:
    # Not `pyarrow.compute`: it makes a Python function for each of its 300 when it is imported, which takes 0.1 s.
    from pyarrow._compute import MatchSubstringOptions, call_function  # type: ignore[attr-defined]

    return call_function("match_substring_regex", [values], MatchSubstringOptions(pattern)).to_pylist()


def _cut(texts: Sequence[str]) -> Iterator[Suspect]:
    """What is looked at together of each text: all of it, where it is not very long."""
    for number, text in enumerate(texts):
        length = len(text)
        if length > _WINDOW + _OVERLAP:
            for at in range(0, length, _WINDOW):
                yield Suspect(number, max(0, at - _OVERLAP), min(length, at + _WINDOW))
        elif length >= 6:
            yield Suspect(number, 0, length)


def _is_part(suspect: Suspect) -> bool:
    return suspect.has_name or suspect.tokens_end > 0


def _merge(windows: list[Suspect]) -> list[Suspect]:
    merged: list[Suspect] = []
    for window in windows:
        near = merged and merged[-1].text == window.text and window.start <= merged[-1].end
        if near and _is_part(merged[-1]) == _is_part(window) and window.end - merged[-1].start <= _WINDOW:
            last = merged[-1]
            merged[-1] = Suspect(
                window.text,
                last.start,
                max(last.end, window.end),
                last.has_name or window.has_name,
                max(last.tokens_end, window.tokens_end),
                last.has_blob or window.has_blob,
            )
        else:
            merged.append(window)
    return merged


def _make_array(texts: Sequence[str]) -> Any:
    """An Arrow array of texts, without the look at pandas that `pa.array` takes."""
    import pyarrow as pa

    encoded = [text.encode("utf-8", "replace") for text in texts]
    offsets = array("q", [0])
    offsets.extend(itertools.accumulate(map(len, encoded)))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)
