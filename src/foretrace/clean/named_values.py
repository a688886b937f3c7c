"""Find secrets by what comes before them: the name of a setting, a header, an option or place of a command, words of
prose, a URL.

`WAYS` is the table of all patterns but those that begin with the name of a setting. Each has a sign in RE2 syntax, by
which `gate` finds the texts to search, and without which they are not searched for the pattern.
"""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from foretrace.clean.re2_patterns import compile_pattern, encode_text, find_starts
from foretrace.clean.rules import (
    CLEAR_WORDS,
    HARMLESS_NAMES,
    OF_SERVICE,
    PASSWORD_WORDS,
    PLACEHOLDER_WORDS,
    SECRET_WORDS,
    SERVICES,
)
from foretrace.clean.values import (
    Found,
    has_random_run,
    is_placeholder,
    is_random,
    is_reference,
    is_secret,
    is_short_password,
    is_token,
    names_user_and_password,
    read_words,
)
from foretrace.core.placeholders import PLACEHOLDER, USER_PLACEHOLDER

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
    r"zip\b[^\n]*\s-P|\b7z|rar\b[^\n]*\s-h?p|mongo|cqlsh|sqlcmd|\bbcp |mosquitto_|\bldap[a-z]|\blftp|\bncftp|\bsmb|rpcclient|"
    r"etcdctl|openssl|keytool|jarsigner|apksigner|net user|rabbitmqctl|wpa_pass|\bsnmp|community |(?i:SecureString)|"
    r"add-mask|jwt\.|(?i:login|\bpw\b|user(?:name)?[ :=]+[^\s,;/]+ / )"
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

_QUOTED = r"[bfru]{0,2}(?P<q>[\"'`])(?P<quoted>(?:(?!(?P=q))[^\n\\]|\\.){1,4096}?)(?P=q)"
_BARE = r"(?P<bare>[^\s\"'`,;<>(){}|&\\]{4,4096})"
_ASSIGNMENT = re.compile(r"[A-Za-z_]+=[^=]")
_BACKSLASH = r"\\++(?![nrt\s\"'`]|\Z)"
"""Backslashes in a value: in JSON text, a line break or quote after it is not part of the value."""
_NAMED = re.compile(
    rf"(?i)(?P<name>(?:{SECRET_WORDS})[\w.-]{{0,40}})"
    r"(?:[\"'`]?\s{0,4},?\s{0,40}[\"'`]?value[\"'`]?\s{0,4}[:=]\s{0,4}|[\"'`]?[\])]{0,2}(?P<sep>\s{0,12}(?:#? ?=>|:=|\?=|=|:\*{0,2}(?!:)|\|)\s{0,12}|[\"'`]\s{0,4},\s{0,12}(?=[bfru]?[\"'`]))"
    r"(?:&?[ ]?(?:str|string|optional\[str\]|str \| none)\s{0,4}=\s{0,4}|&?(?:'\w{1,20} )?[a-z][\w.<>\[\]|]{0,40} = |!!str\s+|!\w+\s+|[>|][+-]?[ ]*\r?\n\s{0,40}(?!\S{1,80}:\s))?"
    r"|[\"'`]?\s{0,4}>\s{0,12})"
    rf"(?:os\.(?:getenv|environ\.get)\([^,()]{{1,60}},\s{{0,4}})?(?:{_QUOTED}|{_BARE})"
)
_VARIABLE = re.compile(
    rf"(?P<name>KEY|TOKEN|SECRET|PASS|PASSWORD|PASSWD|PWD|PAT|DSN|CREDENTIALS?|AUTH|SALT|COOKIE|CERT) ?= ?(?P<bare>(?:[^\s\"'`\\]|{_BACKSLASH}){{6,4096}})"
)
_OPTION_NAME = re.compile(r"(?:\s|^|[\"'`(\[])--?[\w-]{0,30}\Z")
_OPTION = re.compile(
    rf"(?i)(?P<name>(?:{SECRET_WORDS})[\w-]{{0,20}})[ =]+(?:{_QUOTED}|(?P<bare>(?:[^\s\"'`|;&<>\\]|{_BACKSLASH}){{4,4096}}))"
)
_COMMANDS = re.compile(
    (
        r"(?i)(?:\b(?:curl|http|https|wget)\b…{0,400}?\s(?:-u|--user|-a|--auth)[ =]?[\"']?[^\s:\"']{1,80}:|sshpass\s+-p\s*|"
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b…{0,200}?\s-p|redis-cli\b…{0,100}?\s-a\s+|"
        r"\blogin\b…{0,200}?\s-p\s+|\bhtpasswd\s+-\w*b\w*\s+\S+\s+\S+\s+|-pass(?:in|out)?\s+pass:|"
        r"\bidentified\s+by\s+|\bpassword\s*\(|\bset_password\(|\bchpasswd\s*<<<\s*[\"']?\w+:|\becho\s+[\"']?\w{1,32}:(?=\S+\s*\|\s*(?:sudo\s+)?chpasswd))"
        r"[\"']?(?P<bare>(?:[^\s\"'`|;<>()\\]|" + _BACKSLASH + "){4,256})"
    ).replace("…", REST)
)
_PIPED = re.compile(
    rf"(?:echo|printf)\s+(?:-n\s+)?[\"']?(?P<bare>(?:[^\s\"'`|\\]|{_BACKSLASH}){{6,512}})\\*[\"']?\s*\|[^\n|]{{0,200}}?(?:--password-stdin|--with-token|sudo\s+-S|chpasswd|login)"
)
_OF = r"\s+(?:for|of|on|in|at|from)\s+[^\s\"':=]{1,40}(?:\s+[^\s\"':=]{1,30}){0,2}?"
_IS = r"\s+(?:is|was|are|to|as|reads|ist|lautet|est|es|equals|set to|will be|should be|named)|\s*[=:]"
_SPACED = re.compile(
    rf"(?i)(?P<name>(?:{SECRET_WORDS})[\w-]{{0,20}})(?:{_OF}(?:{_IS})|(?:{_OF})?(?:{_IS}|))"
    rf"\s*:?\s+[\"'`“*(\[]{{0,3}}(?P<bare>(?:[^\s\"'`”,;<>\\]|{_BACKSLASH}){{6,4096}})(?<!:)(?![\w:])"
)
_OF_SERVICE = re.compile(
    rf"(?<![A-Za-z])(?i:{SERVICES})(?:(?!\b(?:commit|rev|revision|sha\d*|digest)\b)[\w .-]){{0,24}}[\"'`\])]{{0,2}}[\s:=>,(|?]{{1,5}}[\"'`]{{0,2}}(?P<bare>[A-Za-z0-9_+/=.-]{{20,512}})"
)
_HEADER = re.compile(
    r"(?i)(?:proxy-)?authorization[\"'`]?\]?\s{0,4}[:=,]\s{0,4}[bfru]?[\"'`]?(?:token token=[\"']?|[a-z][\w-]{1,20}\s+)?(?P<bare>[^\s\"'`,;<>{}()\\]{8,8192})"
)
_BEARER = re.compile(r"(?i)\b(?:bearer|basic)\s+(?P<bare>[A-Za-z0-9_.+/~=-]{12,8192})")
_COOKIES = re.compile(
    r"(?i)(?:(?:\bset-)?\bcookie2?[\"'`]?\]?\s{0,4}[:=,]\s{0,4}|\bcurl\b[^\n]{0,300}?\s(?:-b|--cookie)[ =])[bfru]?[\"'`]?(?P<list>[^\n\"'`{}\\]{8,8192})"
)
_COOKIE = re.compile(r"(?:^|;)\s*(?P<name>[^=;\s]{1,128})=(?P<bare>[^;\s]{8,4096})")
_COOKIE_ATTRIBUTES = read_words(
    "path expires domain max-age samesite secure httponly version priority lang locale theme tz timezone"
)
_USER_INFO = re.compile(
    r"(?i)\b[a-z][a-z0-9+.-]{1,30}://(?P<user>[^\s/:@\"'`<>\\]{0,200}):(?P<bare>[^\s@\"'`<>\\]{3,512})@(?=[\w\[%$-])"
)
_USER_ALONE = re.compile(r"(?i)\b(?:https?|git|ssh|ftp)://(?P<bare>[A-Za-z0-9_-]{20,512}):?@(?=[\w\[-])")
IN_QUERY = r"[?&;](?:key|sig|signature|code|apikey|appid|hapikey|auth|access_token|X-Amz-(?:Signature|Security-Token)|X-Goog-Signature|Signature|token)="
"""A parameter of a URL, also for RE2."""
_QUERY = re.compile(rf"{IN_QUERY}(?P<bare>[A-Za-z0-9%+/_.~=-]{{16,4096}})")
_NETRC = re.compile(r"\blogin\s+\S{1,100}\s+password\s+(?P<bare>[^\s\"'\\]{4,256})")
_WEAK_KEY = re.compile(r"(?i)^[a-z0-9][_-]key|^[_-]pat|^sig$|^sid$|^\bauth|^cookie|^credential|^session")
_BEFORE = re.compile(r"[\w.-]{0,60}\Z")

# Passwords that are plain words (`DB_PASSWORD=monkey7`). Elsewhere a word followed by a number is an identifier. Here the
# name leaves no doubt, and the line belongs to a shell, an env file or YAML rather than to code.
_LINE_QUOTED = r"(?P<q>[\"'])(?P<quoted>[^\s\"'\\`]{4,256})(?P=q)"
_END = r"[^\s\"'`,;<>(){}|&\\\[\]]"
_LINE_VALUE = rf"(?:{_LINE_QUOTED}|(?P<bare>{_END}{{4,256}}))"
_WHOLE = rf"(?:{_LINE_QUOTED}|(?P<bare>{_END}[^\s\"'`\\]{{2,254}}{_END}))"
"""A value that ends with the line, and so may contain commas and brackets."""
_ENV = re.compile(
    r"(?<![A-Za-z0-9_.$@{(/-])(?P<name>[A-Z0-9_]{0,60}(?:PASSWORD|PASSWD|PASSPHRASE|[A-Z0-9]_PWD|[A-Z0-9]_PW))"
    rf"(?:=|[ ]=[ ](?=[\"'])|[\"']?:[ \t]+){_LINE_VALUE}(?=[\s;&|\"'`\\]|\Z)(?![ \t]+=)"
)
"""A variable in an env file, a shell or a compose file."""
_WORD = r"(?:[\w.-]{0,60}[_.-])?(?:password|passwd|passphrase)|[\w.-]{0,60}[A-Za-z0-9][_-](?:pwd|pw)"
_LINE = re.compile(
    rf"(?im)^(?:[+>-]?[ \t]*(?:-[ ])?[\"']?(?P<name>{_WORD})[\"']?:[ \t]+|(?P<plain>{_WORD})=){_WHOLE}[ \t\r]*(?:\#.*)?$"
)
"""A line of a YAML or properties file."""
_NO_PASSWORDS = read_words(
    "str string text bytes int integer bool boolean any object char varchar secretstr incomplete type password passwd "
    "pass pwd secret token guest root admin administrator postgres mysql user username redis rabbitmq mongo minio "
    "true false yes no on off none null nil undefined empty optional required hidden prompt ask unset disabled enabled "
    "self cls args kwargs config settings options env"
)
"""Types, truth values, and well-known defaults of services."""
_WEAK_PASSWORDS = read_words("guest root admin postgres mysql secret password pass user pwd token")
_OWN_WORDS = re.compile(r"(?i)passw|passphrase|pwd|secret|token|credential|vault|env")


def _is_plain_password(match: re.Match[str]) -> bool:
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


def _is_given(match: re.Match[str]) -> bool:
    return is_secret(match["bare"], quoted=True, password=True)


def _is_user_info(match: re.Match[str]) -> bool:
    value = match["bare"]
    is_weak = value.lower() == match["user"].lower() or value.lower() in _WEAK_PASSWORDS
    return not (is_weak or is_placeholder(value) or len(set(value)) <= 2 or value[0] == "/" or "//" in value)


def _is_authorization(match: re.Match[str]) -> bool:
    value = match["bare"]
    is_key = len(value) >= 12 and is_token(value) and is_secret(value, quoted=False, password=False)
    return is_key or names_user_and_password(value)


def _is_bearer(match: re.Match[str]) -> bool:
    is_basic = match[0][:5].lower() == "basic"
    return names_user_and_password(match["bare"]) if is_basic else is_random(match["bare"])


class Way(NamedTuple):
    """A way in which a secret is written."""

    type: str
    pattern: re.Pattern[str]
    """Has the secret in its group `bare` or `quoted`."""
    is_secret: Callable[[re.Match[str]], bool]
    sign: str
    """A pattern for RE2, which is found much faster, in each text that has such a secret."""


WAYS = (
    Way("password", _ENV, _is_plain_password, r"(?:PASSWORD|PASSWD|PASSPHRASE|_PWD|_PW)(?:=| = |[\\\"']*:[ \t]+)[\\\"']*[^\s\"'`]{4}"),
    Way("password", _LINE, lambda m: _is_plain_password(m) and re.search("[0-9]", m["quoted"] or m["bare"]) is not None, r"(?i:passw(?:or)?d|passphrase|[_-]pwd?)(?:[\\\"']*:[ \t]+|=)[\\\"']*[^\s\"'`]{4,}[\\\"']*[ \t\r]*(?:\n|\\+[nr]|#|$)"),
    Way(
        "password",
        _COMMANDS,
        lambda match: _is_given(match) or is_short_password(match["bare"]),
        r"(?i:(?:curl|http|https|wget)\b[^\n]*\s(?:-u|-a|--user|--auth)[ =]?[\\\"']*[^\s:\"']+:|sshpass|(?:mysql|mariadb|login)[^\n]*\s-p|"
        r"redis-cli|htpasswd|chpasswd|identified\s+by\s|-pass(?:in|out)?\s+pass:|password\s*\([\\\"']*[^\s\"'`|;<>()]{4})",
    ),
    Way("password", _PIPED, _is_given, r"(?:echo|printf)\b[^|]*\|[^\n|]*(?:-stdin|-token|sudo|chpasswd|login)"),
    Way("password", _NETRC, _is_given, r"\blogin\s+\S+\s+password\s"),
    Way("authorization", _HEADER, _is_authorization, r"(?i:authorization)"),
    Way("authorization", _BEARER, _is_bearer, r"(?i:bearer\s+[\w.+/~=-]*[0-9]|basic\s+[\w.+/~=-]{12})"),
    Way("password", _USER_INFO, _is_user_info, r"(?i:[a-z0-9+.-]://[^\s/:@\"'<>]*:[^\s@\"'<>]+@)"),
    Way("token", _USER_ALONE, lambda m: is_token(m["bare"]) and is_random(m["bare"]), r"(?i:[a-z]://[a-z0-9_-]{20}[a-z0-9_-]*:?@)"),
    Way("token", _QUERY, lambda m: is_random(m["bare"]), IN_QUERY),
    Way("password", _GIVEN, _is_given, PLACES),
)  # fmt: skip
"""To add a way, add a line here."""


_BARS = ("|", "│", "\t", ",", ";")
"""Separators of cells; the first of these found in a line counts."""
_MARKS = " \"'`*\t\r"
"""Characters stripped from around a cell."""
_NAME = re.compile(r"[\w .#/()-]{0,40}")
_CLEAR_NAME = re.compile(f"(?i)(?:{CLEAR_WORDS})")
_RULE = re.compile(r"[\s|+:=~─━═│┃┆┌┐└┘├┤┬┴┼╞╡╪╭╮╰╯-]*")
"""A line between the header of a table and its rows."""
_END_OF_JSON = re.compile(r"\"[\]},\s]+\Z")
_LONGEST_HEAD = 400
_MAX_ROWS = 500
_LONGEST_ROW = 4096


def _find_table_cells(text: str, places: Iterable[int]) -> Iterator[Found]:
    """The secrets in tables, given the offsets of words that may name a secret, ascending."""
    seen = -1
    for at in places:
        if at < seen:
            continue
        start = text.rfind("\n", max(0, at - _LONGEST_HEAD), at) + 1
        end = text.find("\n", at, at + _LONGEST_HEAD)
        if (start == 0 and at > _LONGEST_HEAD) or (end < 0 and len(text) > at + _LONGEST_HEAD):
            continue  # no header is that long
        seen = end = len(text) if end < 0 else end
        line = text[start:end]
        bar = next((bar for bar in _BARS if bar in line), None)
        if bar is None:
            continue
        cells = line.split(bar)
        if columns := _find_columns(cells, bar):
            yield from _find_below(text, end + 1, columns, bar, len(cells))


def _find_columns(cells: list[str], bar: str) -> dict[int, str]:
    """The columns whose names say that they hold secrets; none if the line is not a header."""
    names = [cell.strip(_MARKS) for cell in cells]
    if not _NAME.fullmatch(names[0]):
        names[0] = cells[0].rpartition('"')[2].strip()  # a table inside JSON text
    if sum(map(bool, names)) < 2 or not all(_NAME.fullmatch(name) for name in names):
        return {}
    if bar in ",;" and any(cell[:1].isspace() for cell in cells[1:]):
        return {}  # a sentence, or a list in code
    return {number: name for number, name in enumerate(names) if _names_secret(name)}


def _find_below(text: str, at: int, columns: dict[int, str], bar: str, n_cells: int) -> Iterator[Found]:
    for _ in range(_MAX_ROWS):
        end = text.find("\n", at, at + _LONGEST_ROW)
        if end < 0:
            if len(text) - at > _LONGEST_ROW or at >= len(text):
                return
            end = len(text)
        line = text[at:end]
        cells = line.split(bar)
        if len(cells) == n_cells:
            starts = [at]
            for cell in cells:
                starts.append(starts[-1] + len(cell) + len(bar))
            for number, name in columns.items():
                yield from _judge_cell(starts[number], cells[number], name)
        elif not _RULE.fullmatch(line):
            return
        at = end + 1


def _names_secret(name: str) -> bool:
    return _CLEAR_NAME.search(name) is not None and HARMLESS_NAMES.search(name) is None


def _judge_cell(start: int, cell: str, name: str) -> Iterator[Found]:
    value = _END_OF_JSON.sub("", cell).strip(_MARKS)
    is_password = PASSWORD_WORDS.search(name) is not None
    if is_secret(value, quoted=False, password=is_password) and is_random(value, 6 if is_password else 16):
        first = start + cell.index(value)
        yield Found(first, first + len(value), name_type(name), value)


def find_named_values(text: str, check: Callable[[], None]) -> Iterator[Found]:
    """Find secrets by what comes before them; they may overlap. `check` is called for each name, since each may have a
    long value; it raises if the search takes too long."""
    words = [*find_starts(f"(?i:{SECRET_WORDS})", text)]
    yield from _find_settings(text, words, check)
    yield from _find_table_cells(text, words) if "\n" in text else ()
    data = encode_text(text)
    for way in WAYS:
        for match in way.pattern.finditer(text) if compile_pattern(way.sign)(data) else ():
            if way.is_secret(match):
                yield _make_found(match, way.type)
    for sign, find in SPECIAL_WAYS:
        if compile_pattern(sign)(data):
            yield from find(text)


def _make_found(match: re.Match[str], type: str) -> Found:
    group = "quoted" if match.groupdict().get("quoted") is not None else "bare"
    return Found(match.start(group), match.end(group), type, match[group])


def _find_settings(text: str, words: Sequence[int], check: Callable[[], None]) -> Iterator[Found]:
    for at in words:
        check()
        matches = [_NAMED.match(text, at)]
        if _OPTION_NAME.search(text, max(0, at - 33), at) is not None:
            matches.append(_OPTION.match(text, at))
        yield from (found for match in matches if match is not None and (found := _judge(text, match)) is not None)
        if (match := _SPACED.match(text, at)) is not None:
            yield from _judge_prose(text, match)
    for match in _VARIABLE.finditer(text):
        check()
        if (found := _judge(text, match)) is not None:
            yield found


def _judge(text: str, match: re.Match[str]) -> Found | None:
    name = _read_name(text, match)
    if not name:
        return None
    groups = match.groupdict()
    is_quoted = groups.get("quoted") is not None
    value: str = match["quoted" if is_quoted else "bare"]
    password = PASSWORD_WORDS.search(name) is not None
    if not is_quoted and text[match.end() : match.end() + 1] == "(":
        value += "("  # a call
    if not is_secret(value, quoted=is_quoted, password=password) or (" " in value and not password):
        return None
    if "|" in (groups.get("sep") or "") and not is_random(value.strip("*"), 10):
        return None  # a cell of a table
    is_weak = _WEAK_KEY.search(match["name"]) is not None
    if is_weak and not (names_user_and_password(value) or (is_random(value, 16) and "[" not in value)):
        return None
    return _make_found(match, name_type(name))


def _judge_prose(text: str, match: re.Match[str]) -> Iterator[Found]:
    value = match["bare"].rstrip(".,;:!?)]*\"'")
    password = PASSWORD_WORDS.search(match["name"]) is not None
    if _ASSIGNMENT.match(value) is not None or not _read_name(text, match):
        return  # the argument of a call
    if is_secret(value, quoted=False, password=password) and is_random(value, 6 if password else 12):
        yield Found(match.start("bare"), match.start("bare") + len(value), name_type(match["name"]), value)


def _find_cookies(text: str) -> Iterator[Found]:
    for cookies in _COOKIES.finditer(text):
        for match in _COOKIE.finditer(cookies["list"]):
            value = match["bare"]
            if match["name"].lower() not in _COOKIE_ATTRIBUTES and not is_placeholder(value) and is_random(value, 8):
                start = cookies.start("list") + match.start("bare")
                yield Found(start, start + len(value), "cookie", value)


def _find_keys_of_services(text: str) -> Iterator[Found]:
    for start in find_starts(OF_SERVICE, text):
        if (match := _OF_SERVICE.match(text, start)) and has_random_run(match["bare"]) and is_random(match["bare"], 20):
            yield _make_found(match, "api_key")


SPECIAL_WAYS: tuple[tuple[str, Callable[[str], Iterator[Found]]], ...] = (
    (OF_SERVICE, _find_keys_of_services),
    (r"(?i:cookie2?[\\\"'`\]]*[\s:=,]|\bcurl\b[^\n]*\s(?:-b|--cookie)[ =])", _find_cookies),
)  # fmt: skip
"""Signs of what needs more than one pattern, and what finds it."""


def _read_name(text: str, match: re.Match[str]) -> str:
    """The whole name of a setting, whose end the match has; empty if it does not name a secret."""
    start = match.start("name")
    before = _BEFORE.search(text, max(0, start - 60), start)
    name = (before[0] if before else "") + match["name"]
    lower = match["name"].lower()
    if lower.startswith(("author", "authent")) and "token" not in lower and "key" not in lower:
        return ""
    return "" if HARMLESS_NAMES.search(name) else name


def name_type(name: str) -> str:
    """The type of a secret by the name of its setting."""
    lower = name.lower()
    if PASSWORD_WORDS.search(lower):
        return "password"
    for word in ("cookie", "token", "secret", "key", "session"):
        if word in lower:
            return {"key": "api_key", "session": "cookie"}.get(word, word)
    return "credential"
