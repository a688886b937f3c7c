"""The address of a model server, and the API key that is sent there."""

from __future__ import annotations

import os
import re
from urllib.parse import quote, urlsplit

import msgspec

from foretrace.core.errors import Setting, UsageError
from foretrace.models.base import Server

_KEY_PART_CHARS = 8
"""This many consecutive characters of a key are never shown."""
_SHORT_KEY_CHARS = 6
"""A key with fewer characters (usually a placeholder) is only hidden as a whole word: it may occur inside others."""


class Address(msgspec.Struct, frozen=True):
    """The parts of a base URL."""

    scheme: str
    host: str
    origin: str
    """Scheme, host and port."""
    base: str
    """Origin and path, without a trailing slash."""


def parse_address(url: str) -> Address:
    """Parse a base URL; the default scheme is http."""
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
    """The key in an environment variable."""
    key = os.environ.get(variable)
    if not key:
        raise UsageError(Setting("api_key_env", variable), ": there is no such environment variable, or it is empty")
    return key


class ApiKey:
    """A secret for one host; only `header` reveals it."""

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
        return f"Bearer {self._value}"

    def hide(self, text: str) -> str:
        """The text with `***` for the key, and for any part of it of at least 8 characters: a text may have been cut in
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
    """The given key, else that of the adapter's environment variable if this is its `home`, the host it belongs to."""
    value = server.api_key
    if value is None and variable and address.host == home and address.scheme == "https":
        value = os.environ.get(variable)
    value = (value or "").strip()
    if not value:
        return None
    if not value.isascii() or not value.isprintable() or " " in value:
        raise UsageError("the API key holds blanks, line ends or other signs that no key holds: copy it again")
    return ApiKey(value)
