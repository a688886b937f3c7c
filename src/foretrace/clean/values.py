"""Whether a value could be a secret, or is a placeholder, a piece of code or an ordinary word."""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import re
from collections import Counter
from typing import NamedTuple

from foretrace.clean.rules import PLACEHOLDER_WORDS
from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER


class Found(NamedTuple):
    """A secret in a text."""

    start: int
    end: int
    type: str
    value: str
    """The secret without escapes and line breaks, by which the same secret is recognized."""


def read_words(text: str) -> frozenset[str]:
    """The words of a text: tables are easier to read as text."""
    return frozenset(text.split())


_CUT = re.compile(r"(?i)\.{3}|…|\*{3}|x{4}|your|example")
"""Marks a placeholder even next to a random part."""
_RUN = re.compile(r"[A-Za-z0-9]{16,}")
_LETTERS, _DIGITS = re.compile(r"[A-Za-z]"), re.compile(r"[0-9]")
_SIGNS = re.compile(r"[!@#%^&*?]")
_GENERATED_SIGNS, _NOT_GENERATED = re.compile(r"[!@#$%^&*+=]"), re.compile(r"[\s{}<>\[\]]")
_LOWER, _UPPER, _OTHER = re.compile(r"[a-z]"), re.compile(r"[A-Z]"), re.compile(r"[^A-Za-z0-9]")
_VARIABLE = re.compile(
    r"\$\{[A-Za-z_(]|\{\{|\}\}|%\(|%[A-Z_]{3,}%|^%[A-Za-z_]+%$|%[sdr]\b|\$\(|<%|^\{[A-Za-z_.]*\}|\{[A-Za-z_][\w.\[\]\"']*\}[\]+*)]*$|^<[^<>]*>?$|^\[[^\]]*\]?$|^@[a-z]"
)
"""A variable to be filled in: `${VAR}`, `{{ var }}`, `<token>`, `%s`."""
_SHELL_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_CODE = re.compile(
    r"[A-Za-z_]\w*\(|^-?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$|\w\[(?:[\"'\w:\[-]|\Z)|^self\b|^(?:os|process|env|config|settings|request|args|kwargs)\b[.\[]|::|->|=>|==(?!\Z)"
)
_IDENTIFIER = re.compile(r"^[A-Za-z]+(?:[_.-][A-Za-z]+)*[0-9]{0,2}$")
_NAME = re.compile(r"^_*[A-Za-z]+[0-9]{0,2}(?:[_.-][A-Za-z]*[0-9]{0,2})*$")
_LONG_NAME = re.compile(r"^(?=(?:[^A-Za-z]*[A-Za-z]){12})(?!(?:[^0-9]*[0-9]){5})[A-Za-z_][\w.-]*:?$")
"""Names in a program, which may have more digits than the words of a password: `token_ids_0`, `Pkcs7PrivateKey`."""
_CAMEL = re.compile(r"^[a-z]+(?:[A-Z][a-z]+)+[0-9]{0,2}$|^(?:[A-Z][a-z]{2,})+[0-9]{0,2}$")
_PATH = re.compile(r"^(?:[~.]{0,2}/|[A-Za-z]:[\\/]|https?://|file:)|^[\w.-]+(?:/[\w.-]+)+\.[a-z]{1,5}$")
_STORE = re.compile(
    r"(?i)^(?:ref\+)?(?:vault|ssm|op|sops|gopass|keyvault|azkv|awssm|aws-?sm|gcp-?sm|awsssm|awssecrets|gcpsecrets|secretsmanager|"
    r"secretref|secretsref|env|file|doppler|infisical|bitwarden|conjur):/{0,2}[\w.-]+(?:/[\w.@-]+)+(?:[#:?][\w.=-]+)*$"
)
"""Where a secret is kept: `vault:kv/data/shop#password`, `op://team/shop/key`."""
SWITCHES = re.compile(r"[a-z](?=[0-9A-Z])|[0-9](?=[a-zA-Z])|[A-Z](?=[0-9])")
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}(?:[T ]|$)|^\d{1,2}:\d{2}(?::\d{2})?$|^\d+(?:\.\d+)+$|^v?\d+\.\d+")


def measure_entropy(text: str) -> float:
    """Shannon entropy in bits per character."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values()) if total else 0.0


def is_placeholder(value: str) -> bool:
    """Whether a value only stands for a secret: `your-api-key`, `xxxx`, `${VAR}`, `<SECRET:jwt:1>`."""
    if PLACEHOLDER.search(value) or USER_PLACEHOLDER.search(value) or _is_filled_in(value):
        return True
    return PLACEHOLDER_WORDS.search(value) is not None and (_CUT.search(value) is not None or not has_random_run(value))


def has_random_run(value: str) -> bool:
    """Whether part of a value is too mixed for a word, number or identifier: `key_test_xK8m2LpQr5nW0v`."""
    runs = (run for run in _RUN.findall(value) if _DIGITS.search(run) and not PLACEHOLDER_WORDS.search(run))
    return any(3 * len(SWITCHES.findall(run)) >= len(run) - 1 for run in runs)


def is_reference(value: str) -> bool:
    """Whether a value is a variable, code, a path or an address: `${VAR}`, `args.x`, `/etc/pw`."""
    return _is_filled_in(value) or any(pattern.search(value) is not None for pattern in (_CODE, _PATH, _STORE))


def _is_generated(value: str) -> bool:
    """Whether a value looks as random as Django's SECRET_KEY, in which `g(` or `$b` is not code."""
    return (
        len(value) >= 40
        and len(_GENERATED_SIGNS.findall(value)) >= 4
        and not _NOT_GENERATED.search(value)
        and measure_entropy(value) > 4.4
    )


def _is_filled_in(value: str) -> bool:
    """Whether part of a value is a variable; a dollar sign in the middle of random letters is not."""
    if _is_generated(value):
        return False
    if _VARIABLE.search(value) is not None:
        return True
    if "$" not in value or (variable := _SHELL_VARIABLE.search(value)) is None:
        return False
    name, before = variable[1], value[: variable.start()]
    kinds = (_LOWER, _UPPER, _DIGITS, _SIGNS)
    is_mixed = not name.isupper() and sum(kind.search(before) is not None for kind in kinds) >= 3
    return not before or not (is_mixed or len(SWITCHES.findall(name)) >= 2)


def is_token(body: str) -> bool:
    """Whether the body of a known kind of token is random enough."""
    if len(set(body)) < min(10, max(5, len(body) // 4)) or re.search(
        r"(?i)x{5}|\*|\.{3}|0{10}|example|placeholder|redacted|your[_-]", body
    ):
        return False
    if re.search(r"(?i)0123456789|1234567890|abcdefghij", body):
        return False
    return _DIGITS.search(body) is not None or measure_entropy(body) > (3.4 if len(body) > 20 else 2.8)


def is_secret(value: str, *, quoted: bool, password: bool) -> bool:
    """Whether the value of a setting with a secret name looks like a secret.

    Args:
        quoted: Whether it was in quotes, and so is not an expression of a program.
        password: Whether a person may have made it up: six characters are enough then.
    """
    least = 6 if password else 8
    if not least <= len(value) <= 8192 or is_placeholder(value) or _DATE.search(value) or _STORE.match(value):
        return False
    if re.fullmatch(r"[-+0-9.,_eE:/ ]+", value):
        return False
    if (
        _CODE.search(value)
        and not (has_random_run(value) or _is_generated(value))
        and not (quoted and password and measure_entropy(value) > 3 and not re.search(r"\.[a-z]+\b|\(\)", value))
    ):
        return False
    if _PATH.search(value) and len(SWITCHES.findall(value)) < len(value) / 4:
        return False
    patterns = (_IDENTIFIER, _CAMEL) if quoted and password else (_NAME, _CAMEL, _LONG_NAME)
    if any(pattern.match(value) for pattern in patterns) and not has_random_run(value):
        return is_gibberish(value)
    kinds = sum(kind.search(value) is not None for kind in (_LOWER, _UPPER, _DIGITS, _OTHER))
    has_both = _LETTERS.search(value) is not None and (_DIGITS.search(value) or _OTHER.search(value)) is not None
    if password:
        return has_both and kinds >= 2 and len(set(value)) >= 5
    return (
        has_both
        and kinds >= 2
        and len(set(value)) >= 6
        and measure_entropy(value) >= (3.0 if len(value) >= 16 else 2.7)
    )


def is_random(value: str, least: int = 16) -> bool:
    """Whether a text mixes letters and digits more than any word or number."""
    if len(value) < least or is_placeholder(value):
        return False
    has_both = re.search(r"[0-9]", value) is not None and re.search(r"[A-Za-z]", value) is not None
    return has_both and len(set(value)) >= 6 and measure_entropy(value) >= (2.9 if len(value) >= 12 else 2.2)


def is_short_password(value: str) -> bool:
    """Whether four or five characters are so mixed that they can only be a password."""
    kinds = sum(kind.search(value) is not None for kind in (_LOWER, _UPPER, _DIGITS, _OTHER))
    return len(value) in (4, 5) and kinds >= 3 and not is_placeholder(value) and not _CODE.search(value)


def is_gibberish(value: str) -> bool:
    """Whether the letters of a text are not those of words: they change between cases, or few of them are vowels."""
    letters = "".join(_LETTERS.findall(value))
    changes = sum(a.islower() != b.islower() for a, b in itertools.pairwise(letters))
    vowels = len(re.findall("(?i)[aeiou]", letters))
    return len(letters) >= 9 and (changes >= 0.4 * len(letters) or vowels <= 0.2 * len(letters))


_PLAIN_BYTES = bytes([9, 10, 13, *range(32, 127)])
_PLAIN_TEXT = re.compile("[\n\r\t -~]+")


def decode_base64(text: str) -> str | None:
    """The decoded text; None if it decodes to bytes that are not text."""
    body = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    if len(body) % 4 == 1:
        body = body[:-1]
    try:
        head = base64.b64decode(body[: min(64, len(body) // 4 * 4)])
        if len(head) - len(head.translate(None, _PLAIN_BYTES)) < 0.9 * len(head):
            return None
        decoded = base64.b64decode(body + "=" * (-len(body) % 4)).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError):
        return None
    rest = _PLAIN_TEXT.sub("", decoded)
    odd = sum(not c.isprintable() or c == "\ufffd" for c in rest)
    return decoded if odd <= 0.05 * len(decoded) else None


_LOW = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"
"""Base64 digits without the upper bit, like the first of the four digits for any three bytes of ASCII."""


def may_be_base64(line: str) -> bool:
    """Whether the beginning of a line decodes to text."""
    digits = line[:64].rstrip("=").encode()
    fours = len(digits) // 4
    if 10 * len(digits[: fours * 4 : 4].translate(None, _LOW)) > 3 * fours:  # too many bytes are not ASCII
        return False
    return decode_base64(line[:64]) is not None


def names_user_and_password(text: str) -> bool:
    """Whether a base64 text holds `user:password`, as in a Basic header."""
    decoded = decode_base64(text)
    if decoded is None or "\n" in decoded:
        return False
    user, colon, word = decoded.partition(":")
    return bool(colon and user and len(word) >= 3 and not is_placeholder(word))
