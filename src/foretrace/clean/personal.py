"""Find personal data: user names in home folders and, if asked for, e-mail and IP addresses."""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import functools
import ipaddress
import re
from collections.abc import Callable, Collection, Iterator

from foretrace.clean.values import Found, read_words
from foretrace.core.placeholders import USER_NAME

_SERVICE_NAMES = read_words(
    "user users username user_name user-name your-username yourusername yourname your_name you me name root admin "
    "administrator ubuntu debian centos fedora ec2-user runner runneradmin node vscode app appuser dev developer "
    "docker jovyan codespace gitpod circleci travis jenkins gitlab-runner builder build worker agent agents swe "
    "swe-agent sweagent openhands oh oai sandbox workspace project projects repo repos public shared default guest "
    "nobody test tester testuser demo example someone somebody anonymous linuxbrew brew conda mambauser nonroot "
    "non-root coder claude codex gemini pi vagrant git www www-data postgres mysql redis nginx service data model "
    "home all alluser allusers appveyor container containeruser buildbot xxx xxxx foo bar site index login "
    "dashboard page pages static api src lib bin tmp etc opt usr var scratch"
)
"""Names of accounts and folders that do not belong to a person."""

_NAME = r"(?P<name>[^\W\d_][\w.-]{1,40}(?(sep)(?:(?: [^\W\d_a-z][\w.-]{0,40}){1,3}(?=(?P=sep)))?))"
"""In a Windows path, a name may have spaces if the path continues after it."""
_HOME = re.compile(
    r"(?:(?<![A-Za-z0-9_.~-])(?:/(?:export|var|usr|mnt/[a-z]|[a-z]))?/(?:home|Users)/"
    r"|(?<=\\[nrt])/(?:home|Users)/|(?<![A-Za-z0-9])[A-Za-z]:[\\/]{1,8}(?:[Uu]sers|Documents and Settings)(?P<sep>[\\/]{1,8}))"
    + _NAME
)
_HOME_SIGN = re.compile(r"home/|Users[\\/]|users[\\/]|Documents and Settings[\\/]")
"""Every home folder contains this, with fewer than `_MARGIN` characters on each side."""
_MARGIN = 64
_PROJECT = re.compile(
    r"(?:(?<![\w.-])-|(?<=\b[A-Z]-)-|(?<![A-Za-z0-9_])__|%2F)(?:Users|home)(?P<sep>-|__|%2F)"
    r"(?!redacted-user-)(?P<name>[^\W\d_](?:(?!(?P=sep))\w){1,40})(?=(?P=sep)\w)"
)
"""A home folder in the name of another folder, as coding agents name a project's folder: `-Users-NAME-shop`,
`__Users__NAME__shop`."""
_SHELL = re.compile(r"(?:\bcd |HOME=|HOME: |pwd\s{1,3}|:)\Z")
_LINE_END = re.compile(r"\Z|\r?\n|\\{1,8}[nr]")
_FILE = re.compile(r"\.(?:html?|js|jsx|ts|tsx|py|txt|md|json|php|css|png|jpg|svg|xml|ya?ml)$")
_EMAIL = re.compile(
    r"(?:(?<![A-Za-z0-9._%+\\-])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4}))[A-Za-z0-9][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9-])"
)
"""In JSON a line break is `\\n`, whose letter is not part of the address after it."""
_HARMLESS_EMAIL = re.compile(
    r"(?i)^git@|@(?:[\w-]+\.)*(?:example|test|invalid|localhost)(?:\.\w+)?$|@users\.noreply\.github\.com$|^(?:noreply|no-reply)@"
)
_IP4 = re.compile(r"(?:(?<![\w.])|(?<=\\[nrtbf]))(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.]*[0-9A-Za-z])")
_IP6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")


def find_home_names(text: str) -> Iterator[str]:
    """Names of people whose home folders appear in a text."""
    for match in _find_homes(text):
        name = _trim(match["name"])
        after = text[match.start("name") + len(name) : match.start("name") + len(name) + 1]
        if not is_service_name(name) and (after == "/" or match[0][0] != "/" or _ends_path(text, match)):
            yield name
    for match in _PROJECT.finditer(text) if "Users" in text or "home" in text else ():
        if not is_service_name(match["name"]):
            yield match["name"]


def _find_homes(text: str) -> Iterator[re.Match[str]]:
    """The matches of `_HOME`, found several times as fast."""
    at = end = 0
    while (sign := _HOME_SIGN.search(text, at)) is not None:
        match = _HOME.search(text, max(end, sign.start() - _MARGIN), sign.end() + _MARGIN)
        at = sign.end()
        if match is not None and match.start() <= sign.start():  # one after the sign may be cut off
            yield match
            at = end = match.end()


def is_service_name(name: str) -> bool:
    """Whether a name in a path does not belong to a person."""
    return (
        name.lower().partition(" ")[0] in _SERVICE_NAMES
        or name.startswith("redacted-")  # a placeholder, or the beginning of one that was cut
        or _FILE.search(name) is not None
    )


def find_user_names(text: str, names: Collection[str], check: Callable[[], None] = lambda: None) -> Iterator[Found]:
    """Where these names mean a person: in home folders, prompts, addresses of machines, lists of files, settings.
    `check` is called for each name; it raises if the search takes too long."""
    present = [name for name in names if name in text]
    if not present:
        return
    for match in _find_homes(text):
        if (name := _trim(match["name"])) in names:
            yield Found(match.start("name"), match.start("name") + len(name), USER_NAME, name)
    for name in present:
        check()
        word, listing = _compile_places(name)
        for match in word.finditer(text):
            yield from _find_name(text, name, match)
        for match in listing.finditer(text) if f" {name} " in text else ():
            yield from _find_name(text, name, match)


@functools.lru_cache(maxsize=64)
def _compile_places(name: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Where a name means a person outside of home folders (as all that `whoami` prints, or before the number of a
    process), and in a list of files. Patterns that begin with the name are fast."""
    word = re.escape(name)
    before = (
        "home/", "Users/", "home-", "Users-", "home%2F", "Users%2F", "~", "USER=", "USERNAME=", "LOGNAME=", "User ", "-u ", "su - ", r"\d\(",
        "/media/", "/mail/", "/crontabs/", "/sudoers.d/", "/run/user/", "Author: ", "author: ", "Committer: ", "-authored-by: ",
        "login ", "user=", "username=", "user: ", "username: ",
        *(f"{key}{quote}:{gap}{quote}" for key in ("user", "username", "login") for quote in ('"', r'\\"') for gap in ("", " ")),
    )  # fmt: skip
    behind = "|".join(f"(?<={each}{word})" for each in before)
    place = re.compile(
        rf"{word}(?:(?:{behind})(?!\w)|(?<![\s\S]{word})\s*\Z|(?<=\n{word})(?= +\d+ )|(?<![\w.-]{word})(?=@[\w.-]+)|(?:(?<=home__{word})|(?<=Users__{word}))(?=__)"
        rf"|(?:(?<=chown {word})|(?<=chown -R {word}))(?::{word})?)"
    )
    return place, re.compile(rf"(?<=[r-][w-][xsS-]) +\d+ +{word}(?: +{word})?(?= )")


def _find_name(text: str, name: str, match: re.Match[str]) -> Iterator[Found]:
    at = match.start()
    while (at := text.find(name, at, match.end())) >= 0:
        yield Found(at, at + len(name), USER_NAME, name)
        at += len(name)


def find_addresses(text: str, *, emails: bool, addresses: bool) -> Iterator[Found]:
    """E-mail addresses, and IP addresses other than the machine's own."""
    if emails:
        for match in _EMAIL.finditer(text):
            if not _HARMLESS_EMAIL.search(match[0]):
                yield Found(match.start(), match.end(), "email", match[0])
    if addresses:
        for pattern in (_IP4, _IP6):
            for match in pattern.finditer(text):
                if _is_public_or_private(match[0]):
                    yield Found(match.start(), match.end(), "ip_address", match[0])


def _is_public_or_private(text: str) -> bool:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified or address.is_multicast) and text != "255.255.255.255"


def _trim(name: str) -> str:
    return name.rstrip(".-_") if not _FILE.search(name) else name


def _ends_path(text: str, match: re.Match[str]) -> bool:
    """Whether a path that ends with the name is a home folder, as in a shell, a list of users or on a line of its own.
    The same in text and in JSON, where a line break is `\\n`."""
    before, after = text[max(0, match.start() - 12) : match.start()], text[match.end() : match.end() + 9]
    is_line = not before or before[-1] in '\n"' or before.endswith("\\n")
    return (is_line and _LINE_END.match(after) is not None) or (
        _SHELL.search(before) is not None and (not after or after[0] in " \n:;\"'`&|)\\")
    )
