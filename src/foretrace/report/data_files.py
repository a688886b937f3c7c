"""Values as texts that a page can hold: whatever they contain, a browser reads them as data and never as markup."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_IN_SCRIPT = {"\\": "\\\\", "'": "\\'", "<": "\\x3c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_IN_MARKUP = {"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"}
"""`<` for `</script` and `<!--`; the two line separators end a line in old readers of scripts."""


def encode_json(value: Any) -> str:
    """JSON of a value; what is not a number (NaN) becomes null, and lone surrogates stay as their escapes."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value))


def make_data_script(name: str, value: Any) -> str:
    """A script that hands `value` to the page under `name`.

    The JSON is one string, which the page parses: keys such as `__proto__` mean nothing there, and parsing is faster
    than that of a script.
    """
    return f"foretrace.take('{name}', '{_replace(encode_json(value), _IN_SCRIPT)}');\n"


def make_data_block(name: str, value: Any) -> str:
    """The same as an element inside a page: a browser does not run it."""
    return f'<script type="application/json" data-name="{name}">{_replace(encode_json(value), _IN_MARKUP)}</script>\n'


def measure_block(value: Any) -> int:
    """Bytes of the JSON of a value inside such an element."""
    return len(_replace(encode_json(value), _IN_MARKUP).encode())


def _replace(text: str, escapes: dict[str, str]) -> str:
    for character, escape in escapes.items():
        if character in text:
            text = text.replace(character, escape)
    return text
