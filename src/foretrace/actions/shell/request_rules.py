"""Whether a command that makes a request sends something: curl, wget, HTTPie, `gh api`.

Short options are read as the programs read them: several in one word, the value in the same word or the next
(`curl -sXPOST`, `gh api -iX DELETE`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_CURL_VALUES = "AbCDdEeFHhKmoPQrTtUuwXxYyz"
"""Short options of curl that have a value."""
_CURL_SENDS = re.compile(r"--(?:data|form|json|upload-file|quote|mail-|url-query-data|telnet-option)")
_GH_VALUES = "XfFHqtp"
_GH_PLAIN = re.compile(
    r"--(?:paginate|include|silent|slurp|verbose|(?:header|jq|template|hostname|preview|cache)(?:=.*)?)$"
)
_HTTPIE_SENDS = re.compile(r"[\w.\[\]-]+(?::?=(?!=)|@).*|--form|-f$|--raw|--multipart")
_METHOD = re.compile(r"[A-Za-z]{2,20}$")


def sends_request(name: str, arguments: Sequence[str]) -> bool:
    """Whether a request may change something elsewhere.

    Args:
        name: `curl`, `wget`, `http` or `httpie`.
        arguments: What follows it.
    """
    if name == "curl":
        return _sends_curl(arguments)
    if name == "wget":
        methods = [value for word, value in _read_long(arguments) if word == "--method"]
        sends = any(word.startswith(("--post-", "--body-")) for word in arguments)
        return _is_changing(methods[-1]) if methods else sends
    words = [word for word in arguments if not word.startswith("-")]
    if words and _METHOD.match(words[0]) and words[0].isupper():
        return _is_changing(words[0])
    return any(_HTTPIE_SENDS.match(word) and "://" not in word.split("=")[0] for word in arguments)


def sends_api(arguments: Sequence[str]) -> bool:
    """Whether `gh api` changes something: by its method, or by fields, which make it a POST. An option that is not
    known may do so too."""
    methods = [value for word, value in _read_long(arguments) if word == "--method"]
    fields = any(re.match(r"--(?:raw-field|field|input)\b", word) for word in arguments)
    unknown = False
    for letter, value in _read_short(arguments, _GH_VALUES):
        methods += [value] if letter == "X" else []
        fields = fields or letter in "fF"
        unknown = unknown or letter not in "XfFHqtpi"
    for word in arguments:
        if word.startswith("--") and not _GH_PLAIN.match(word):
            unknown = unknown or not re.match(r"--(?:method|raw-field|field|input)(?:=|$)", word)
    return unknown or any(_is_changing(method) for method in methods) or (fields and not methods)


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
