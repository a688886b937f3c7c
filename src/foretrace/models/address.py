"""The address of a model server, and the API key that is sent there."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, urlsplit

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.models.base import Server

_KEY_PART_CHARS = 8
"""Characters of a key, in a row, that are never shown."""
_SHORT_KEY_CHARS = 6
"""A key of fewer characters (mostly a placeholder) is hidden as a whole word only: it may stand in any other word."""


class Address(msgspec.Struct, frozen=True):
    """A base URL in its parts."""

    scheme: str
    host: str
    origin: str
    """Scheme, host and port."""
    base: str
    """Origin and path, without a slash at the end."""


def parse_address(url: str) -> Address:
    """Read a base URL; without a scheme it is http.

    Raises:
        UsageError: it is not a base URL, or holds a password, a query or a fragment.
    """
    whole = url.strip() if "://" in url else f"http://{url.strip()}"
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.username is not None or parts.password is not None:
        cause = "the base URL holds a user name or password: give the key by "
        raise UsageError(cause, Setting("api_key_env"), " instead")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or not whole.isprintable():
        raise UsageError(f"{url!r} is not a base URL: give it like http://127.0.0.1:8080 or https://host/path")
    shown = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{shown}" + (f":{port}" if port else "")
    return Address(parts.scheme, host, origin, origin + parts.path.rstrip("/"))


def read_key(variable: str) -> str:
    """The key that an environment variable holds.

    Raises:
        UsageError: there is none of that name, or it is empty.
    """
    key = os.environ.get(variable)
    if not key:
        raise UsageError(Setting("api_key_env", variable), ": there is no such environment variable, or it is empty")
    return key


class ApiKey:
    """A secret for one host; only `header` shows it."""

    __slots__ = ("_part_chars", "_parts", "_value", "_word")

    def __init__(self, value: str) -> None:
        self._value = value
        self._part_chars = size = min(_KEY_PART_CHARS, len(value))
        forms = {value, quote(value), quoted := quote(value, safe=""), re.sub("%..", lambda m: m[0].lower(), quoted)}
        self._parts = frozenset(form[at : at + size] for form in forms for at in range(len(form) - size + 1))
        whole = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._word = re.compile(rf"(?<!\w)(?:{whole})(?!\w)") if len(value) < _SHORT_KEY_CHARS else None

    def __repr__(self) -> str:
        return "***"

    def header(self) -> str:
        """Value of the Authorization header."""
        return f"Bearer {self._value}"

    def hide(self, text: str) -> str:
        """The text with `***` for the key, and for any part of it of 8 characters or more: a text may have been cut in
        the middle of a key."""
        if self._word is not None:
            return self._word.sub("***", text)
        shown: list[str] = []
        hidden_to = 0
        for at, char in enumerate(text):
            if text[at : at + self._part_chars] in self._parts:
                if at > hidden_to or not at:
                    shown.append("***")
                hidden_to = at + self._part_chars
            elif at >= hidden_to:
                shown.append(char)
        return "".join(shown)


def find_api_key(server: Server, address: Address, variable: str, home: str) -> ApiKey | None:
    """The key that is given; else the environment variable of the adapter, if this is the host that it belongs to.

    Args:
        variable: name of the environment variable; empty where the adapter has none.
        home: the host that its key belongs to.

    Raises:
        UsageError: the key holds characters that no key holds.
    """
    value = server.api_key
    if value is None and variable and address.host == home and address.scheme == "https":
        value = os.environ.get(variable)
    value = (value or "").strip()
    if not value:
        return None
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError("the API key holds blanks, line ends or other signs that no key holds: copy it again")
    return ApiKey(value)
