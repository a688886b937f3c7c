"""Find passwords that are plain words in lines of settings: `DB_PASSWORD=monkey7`, `password: trustno1`.

Elsewhere a word followed by a number is an identifier. Here the name leaves no doubt, and the line belongs to a shell, an
env file or YAML rather than to code.
"""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import re
from collections.abc import Iterator

from foretrace.clean.rules import HARMLESS_NAMES, PLACEHOLDER_WORDS
from foretrace.clean.values import is_reference, read_words
from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER

_QUOTED = r"(?P<q>[\"'])(?P<quoted>[^\s\"'\\`]{4,256})(?P=q)"
_END = r"[^\s\"'`,;<>(){}|&\\\[\]]"
_VALUE = rf"(?:{_QUOTED}|(?P<bare>{_END}{{4,256}}))"
_WHOLE = rf"(?:{_QUOTED}|(?P<bare>{_END}[^\s\"'`\\]{{2,254}}{_END}))"
"""A value that ends with the line, and so may contain commas and brackets."""
_ENV = re.compile(
    r"(?<![A-Za-z0-9_.$@{(/-])(?P<name>[A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|PASSPHRASE|[A-Z0-9]_PWD|[A-Z0-9]_PW))"
    rf"(?:=|[ ]=[ ](?=[\"'])|[\"']?:[ \t]+){_VALUE}(?=[\s;&|\"'`\\]|\Z)(?![ \t]+=)"
)
"""A variable in an env file, a shell or a compose file."""
_WORD = r"(?:[\w.-]{0,60}[_.-])?(?:password|passwd|passphrase)|[\w.-]{0,60}[A-Za-z0-9][_-](?:pwd|pw)"
_LINE = re.compile(
    rf"(?im)^(?:[+>-]?(?P<indent>[ \t]*)(?:-[ ])?[\"']?(?P<name>{_WORD})[\"']?:[ \t]+|(?P<plain>{_WORD})=){_WHOLE}[ \t\r]*(?:\#.*)?$"
)
"""A line of a YAML or properties file."""
_NEIGHBOUR = re.compile(
    r"[+>-]?(?P<indent>[ \t]*)(?:-[ ])?(?:\w+_)?(?:user|username|login|host|hostname|port|database|dbname|adapter):[ \t]+[\"']?(?P<value>[^\s\"',;]+)[\"']?[ \t\r]*"
)
"""A line of YAML above or below a password."""
_NO_PASSWORDS = read_words(
    "str string text bytes int integer bool boolean any object char varchar secretstr incomplete type password passwd "
    "pass pwd secret token guest root admin administrator postgres mysql user username redis rabbitmq mongo minio "
    "true false yes no on off none null nil undefined empty optional required hidden prompt ask unset disabled enabled "
    "self cls args kwargs config settings options env"
)
"""Types, truth values, and well-known defaults of services."""
_OWN_WORDS = re.compile(r"(?i)passw|passphrase|pwd|secret|token|credential|vault|env")


def find_password_lines(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Start, end, type and value of each password in lines of settings."""
    for match in _ENV.finditer(text):
        if not HARMLESS_NAMES.search(match["name"]) and _is_password(match):
            yield _make_span(match)
    for match in _LINE.finditer(text):
        name = match["name"] or match["plain"]
        if HARMLESS_NAMES.search(name) or not _is_password(match):
            continue
        value = match["quoted"] or match["bare"]
        has_number = re.search(r"[0-9]", value) is not None
        if has_number or (match["name"] is not None and _stands_in_yaml(text, match)):
            yield _make_span(match)


def _is_password(match: re.Match[str]) -> bool:
    value = match["quoted"] or match["bare"]
    plain = value.lower()
    if PLACEHOLDER.search(value) or USER_PLACEHOLDER.search(value) or is_reference(value):
        return False
    if plain in _NO_PASSWORDS or PLACEHOLDER_WORDS.search(re.sub("^qwerty(?=.)", "", plain)) or "xxx" in plain:
        return False
    if not re.search("[A-Za-z]", value) and len(value) < 6:
        return False  # a number, or symbols
    is_constant = re.fullmatch(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+", value) is not None
    return not is_constant and (re.search("[0-9]", value) is not None or not _OWN_WORDS.search(value))


def _stands_in_yaml(text: str, match: re.Match[str]) -> bool:
    """Whether the line above or below, with the same indentation, names a user, host or port."""
    above = text[max(0, match.start() - 200) : max(0, match.start() - 1)].rpartition("\n")[2]
    below = text[match.end() + 1 : match.end() + 200].partition("\n")[0]
    for line in (above, below):
        found = _NEIGHBOUR.fullmatch(line)
        if (
            found
            and found["indent"] == match["indent"]
            and found["value"].lower()
            not in _NO_PASSWORDS - {"root", "admin", "postgres", "mysql", "user", "redis", "guest"}
        ):
            return True
    return False


def _make_span(match: re.Match[str]) -> tuple[int, int, str, str]:
    group = "bare" if match["quoted"] is None else "quoted"
    return match.start(group), match.end(group), "password", match[group]
