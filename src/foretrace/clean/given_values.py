"""Find secrets given to commands and calls as unnamed arguments, such as `mysql -pSECRET`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretrace.clean.re2_patterns import compile_pattern, encode_text
from foretrace.clean.values import is_secret

_PLACES = (
    r"\b(?:un)?zip\b…\s-P ?",
    r"\b(?:7z[ar]?|(?:un)?rar)\b…\s-h?p",
    r"\b(?:mongo(?:sh|dump|restore|import|export)?|cqlsh)\b…\s-p ?",
    r"\b(?:sqlcmd|bcp|mosquitto_[ps]ub)\b…\s-P ?",
    r"\bldap(?:search|add|modify|delete|passwd|whoami|compare)\b…\s-w ?",
    r"\b(?:lftp|ncftp\w*)\b…\s-u ?[^\s,]+,",
    r"\b(?:smbclient|smbget|smbmap|rpcclient)\b…\s-U ?[\"']?[^\s%]+%",
    r"\betcdctl\b…--user[ =][^\s:]+:",
    r"\bopenssl\b…\s-[kK] ",
    r"\b(?:keytool|jarsigner|apksigner)\b…\s-(?:src|dest|new|ks)?(?:store|key|-)?pass(?:word)? (?:pass:)?",
    r"\bnet user \S+ ",
    r"\brabbitmqctl …(?:add_user|change_password) \S+ ",
    r"\bwpa_passphrase \S+ ",
    r"\bsnmp\w+\b…\s-[AX] ",
    r"\br[ow]community ",
    r"(?i:ConvertTo-SecureString) (?:-String )?",
    r"(?i:password|passphrase)[^\n;]*;\s*send (?:-- )?\\*[\"']",
    r"::add-mask::",
    r"\bauth ?= ?\([bru]?\\*[\"'][^\"'\n]+[\"'], ?[bru]?\\*[\"']",
    r"\bHTTP(?:Basic|Digest)Auth\([bru]?\\*[\"'][^\"'\n]+[\"'], ?[bru]?\\*[\"']",
    r"\bjwt\.(?:sign|encode|verify|decode)\([^,\n]+, ?[bru]?\\*[\"'`]",
    r"\b(?i:login|user|username)[ :=]+[^\s,;/]+(?:[ ,;/]+(?i:pass|pw)[ :=]+| / )",
)
"""What comes before them, in RE2 syntax; `…` stands for other arguments of the same command. To add a place, add one
line here and one of its words to `SIGNS`."""
REST = r"(?:[^\n|;&]|&[^&\s])"
"""A character of the same command, also for RE2: an `&` only counts inside an address."""
SIGNS = (
    r"zip [^\n]*-P|\b7z|rar [^\n]*-h?p|mongo|cqlsh|sqlcmd|\bbcp |mosquitto_|\bldap[a-z]|\blftp|\bncftp|\bsmb|rpcclient|"
    r"etcdctl|openssl|keytool|jarsigner|apksigner|net user|rabbitmqctl|wpa_pass|\bsnmp|community |SecureString|"
    r"add-mask|jwt\.|(?i:login|\bpw\b)"
)
"""Every text with such a place contains one of these, or one of the names in `gate._ROUGHLY_NAMED`."""
PLACES = "(?:" + "|".join(_PLACES).replace("…", f"(?:{REST}*)") + r")[\\\"'`]*[^\s\"'`|;<>(),\\]{4}"
"""For RE2: such a place, followed by the beginning of a value."""
_ENDLESS = re.compile(r"(\]|\\[Sws])([*+])")
"""An unbounded repetition."""
_GIVEN = re.compile(
    "(?:"
    + _ENDLESS.sub(lambda m: f"{m[1]}{{{'0' if m[2] == '*' else '1'},80}}", "|".join(_PLACES)).replace(
        "…", f"{REST}{{0,200}}?"
    )
    + r")[\\\"'`]{0,8}(?P<bare>[^\s\"'`|;<>(),\\]{4,256})"
)
"""With bounded repetitions, since Python's `re` tries every length of each."""


def find_given_values(text: str) -> Iterator[tuple[int, int, str, str]]:
    """Start, end, type and value of each password given to a command or call."""
    if not compile_pattern(PLACES)(encode_text(text)):
        return
    for match in _GIVEN.finditer(text):
        if is_secret(match["bare"], quoted=True, password=True):
            yield match.start("bare"), match.end("bare"), "password", match["bare"]
