"""Whether a command that makes a request sends something: curl, wget, `gh api`.

Short options are read as curl reads them: several in one word, the value in the same word or the next (`-sXPOST`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_CURL_VALUES = "AbCDdEeFHhKmoPQrTtUuwXxYyz"
"""Short options of curl that have a value."""
_CURL_SENDS = re.compile(r"--(?:data|form|json|upload-file|quote|mail-|url-query-data|telnet-option)")
_WGET_SENDS = re.compile(r"--(?:post|body|method)\b")
_GH_SAFE = re.compile(
    r"(?:-[HqtipX]|--(?:paginate|include|silent|slurp|verbose|header|jq|template|hostname|preview|cache))(?:=|$)"
)
"""Options of `gh api` with which it only looks; fields make it a POST, and others may do so too."""


def sends_request(name: str, arguments: Sequence[str]) -> bool:
    """Whether a request of `curl` or `wget` may change something elsewhere; `arguments` follow the name."""
    return any(map(_WGET_SENDS.match, arguments)) if name == "wget" else _sends_curl(arguments)


def sends_api(arguments: Sequence[str]) -> bool:
    """Whether `gh api` may change something, by its method or another option."""
    options = [word for word in arguments if word.startswith("-")]
    methods = [after for word, after in itertools.pairwise([*arguments, ""]) if word == "-X"]
    return not all(map(_GH_SAFE.match, options)) or any(map(_is_changing, methods))


def _sends_curl(arguments: Sequence[str]) -> bool:
    methods = [value for word, value in _read_long(arguments) if "--request".startswith(word) and len(word) > 6]
    sends, query = any(_CURL_SENDS.match(word) for word in arguments), "--get" in arguments or "--head" in arguments
    for letter, value in _read_short(arguments, _CURL_VALUES):
        methods += [value] if letter == "X" else []
        if letter in "TQt":
            return True
        sends, query = sends or letter in "dF", query or letter in "GI"
    return any(_is_changing(method) for method in methods) or (sends and not query and not methods)


def _is_changing(method: str) -> bool:
    return method.strip("\"'= ").upper() not in _SAFE_METHODS


def _read_long(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, after in zip(arguments, [*arguments[1:], ""], strict=True):
        name, has_value, value = word.partition("=")
        if name.startswith("--"):
            yield name, value if has_value else after


def _read_short(arguments: Sequence[str], valued: str) -> Iterator[tuple[str, str]]:
    """Each short option with its value, or empty text."""
    position = 0
    while position < len(arguments):
        word, position = arguments[position], position + 1
        if not re.match(r"-[^-]", word):
            continue
        for i, letter in enumerate(word[1:], 2):
            if letter not in valued:
                yield letter, ""
                continue
            value = word[i:]
            if not value and position < len(arguments):
                value, position = arguments[position], position + 1
            yield letter, value
            break
