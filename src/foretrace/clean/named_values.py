"""Find secrets by what comes before them: the name of a setting, a header, an option, words of prose, a URL."""

from __future__ import annotations

# ruff: noqa: E501 - a pattern is easier to read in one piece
import re
from collections.abc import Callable, Iterable, Iterator

from foretrace.clean.given_values import REST, find_given_values
from foretrace.clean.password_lines import find_password_lines
from foretrace.clean.re2_patterns import find_starts
from foretrace.clean.rules import FOREIGN_WORDS, HARMLESS_NAMES, OF_SERVICE, PASSWORD_WORDS, SECRET_WORDS, SERVICES
from foretrace.clean.table_cells import find_inserted_values, find_table_cells
from foretrace.clean.values import (
    has_random_run,
    is_placeholder,
    is_random,
    is_secret,
    is_short_password,
    is_token,
    names_user_and_password,
    read_words,
)

Span = tuple[int, int, str, str]
"""Start, end, type and value."""

_QUOTED = r"[bfru]{0,2}(?P<q>[\"'`])(?P<quoted>(?:(?!(?P=q))[^\n\\]|\\.){1,4096}?)(?P=q)"
_BARE = r"(?P<bare>[^\s\"'`,;<>(){}|&\\]{4,4096})"
_ASSIGNMENT = re.compile(r"[A-Za-z_]+=[^=]")
_BACKSLASH = r"\\++(?![nrt\s\"'`]|\Z)"
"""Backslashes in a value: in JSON text, a line break or quote after it is not part of the value."""
_WORDS = re.compile(SECRET_WORDS)
_STEMS = re.compile(
    f"{FOREIGN_WORDS}|pw|key|token|secret|pass|pswd|credential|session|auth|bearer|cookie|sid|sig|_pat|-pat"
)
"""Each of those words contains one of these, with fewer than `_MARGIN` characters on each side."""
_MARGIN = 20
_NAMED = re.compile(
    rf"(?i)(?P<name>(?:{SECRET_WORDS})[\w.-]{{0,40}})"
    r"(?:[\"'`]?\s{0,4},?\s{0,40}[\"'`]?value[\"'`]?\s{0,4}[:=]\s{0,4}|[\"'`]?[\])]{0,2}(?P<sep>\s{0,12}(?:#? ?=>|:=|\?=|=|:\*{0,2}(?!:)|\|)\s{0,12}|[\"'`]\s{0,4},\s{0,12}(?=[bfru]?[\"'`]))"
    r"(?:&?[ ]?(?:str|string|optional\[str\]|str \| none)\s{0,4}=\s{0,4}|&?(?:'\w{1,20} )?[a-z][\w.<>\[\]|]{0,40} = |!!str\s+|!\w+\s+|[>|][+-]?[ ]*\r?\n\s{0,40}(?!\S{1,80}:\s))?"
    r"|[\"'`]?\s{0,4}>\s{0,12})"
    rf"(?:os\.(?:getenv|environ\.get)\([^,()]{{1,60}},\s{{0,4}})?(?:{_QUOTED}|{_BARE})"
)
_DEFAULT = re.compile(
    rf"(?i)(?P<name>(?:{SECRET_WORDS})[\w.-]{{0,40}})\"\s{{0,4}}\{{[^}}]{{0,300}}?\bdefault\s{{0,8}}=\s{{0,4}}{_QUOTED}"
)
"""A Terraform variable."""
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
_TRAILING = re.compile(
    rf"(?<![\w/.-])(?P<bare>[A-Za-z0-9+/_=.-]{{16,512}})[\"'`]?\s+(?:is|was|as|for)\s+(?:the|my|our|your|a|their|its)\s+(?:[\w-]+\s+){{0,4}}?(?i:{SECRET_WORDS})"
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
_ORACLE = re.compile(
    r"(?:\boracle:\w{1,8}:|\bsqlplus\s(?:-\w{1,20}\s){0,4})[\"']?\w{1,60}/[\"']?(?P<bare>[^\s@\"'`/\\]{3,128})[\"']?@"
)
_QUERY = re.compile(
    r"[?&;](?:key|sig|signature|code|apikey|appid|hapikey|auth|access_token|X-Amz-(?:Signature|Security-Token)|X-Goog-Signature|Signature|token)=(?P<bare>[A-Za-z0-9%+/_.~=-]{16,4096})"
)
_PGPASS = re.compile(
    r"(?:^|(?<=[\s\"']))[\w.*-]{1,100}:(?:\d{4,5}|\*):[\w*-]{1,60}:[\w.-]{1,60}:(?P<bare>[^\s\"'\\]{6,256})(?=[\s\"'\\]|\Z)"
)
_NETRC = re.compile(r"\blogin\s+\S{1,100}\s+password\s+(?P<bare>[^\s\"'\\]{4,256})")
_PASSWORD_SIGNS = re.compile("passw|passphrase|[_-]pwd?[\"']?[ :=]")
_COMMAND_SIGNS = (
    ("sshpass",), ("mysql", "-p"), ("mariadb", "-p"), ("login", "-p"), ("redis-cli",), ("htpasswd",), ("pass:",),
    ("identified",), ("chpasswd",),
)  # fmt: skip
"""A text that `_COMMANDS` matches contains all words of one of these in lower case, or matches one of the next two."""
_PASSWORD_CALL = re.compile(r"password\s*\(")
_USER_OPTION = re.compile(r"\s-(?:u|a|-user|-auth)[ =]?[\"']?[^\s:\"']{1,80}:")
_PIPED_SIGNS = tuple((a, b) for a in ("echo", "printf") for b in ("-stdin", "-token", "sudo", "chpasswd", "login"))
_PGPASS_SIGNS = (
    "curl", "http", "wget", "sshpass", "mysql", "mariadb", "redis-cli", "login", "htpasswd", "-pass", "identified",
    "password", "chpasswd", "echo", "printf", ":5432:", "machine",
)  # fmt: skip
"""A text with lines of a password file contains one of these; others are the output of a search."""
_PORT = re.compile(r":(?:\d{4,5}|\*):")
_BEFORE_AT = re.compile(r"://[^\s@\"'`<>\\]{1,720}@")
_VERB = re.compile(r"\s(?:is|was|as|for)\s+(?:the|my|our|your|a|their|its)\s")
_WEAK_KEY = re.compile(r"(?i)^[a-z0-9][_-]key|^[_-]pat|^sig$|^sid$|^\bauth|^cookie|^credential|^session")
_BEFORE = re.compile(r"[\w.-]{0,60}\Z")


def find_named_values(text: str, check: Callable[[], None]) -> Iterator[Span]:
    """Find secrets by what comes before them; they may overlap.

    Args:
        text: The text to search.
        check: Called for each name, since each may have a long value; it raises if the search takes too long.
    """
    lower = text.lower()
    if len(lower) != len(text):  # a few letters of other scripts become two characters
        lower = "".join(c.lower() if c.isascii() else c for c in text)
    words = [*_find_words(lower)]
    yield from _find_settings(text, words, check)
    if "\n" in text:
        cells = find_table_cells(text, words)
        yield from ((start, end, name_type(name), value) for start, end, name, value in cells)
    if "insert" in lower:
        inserted = find_inserted_values(text)
        yield from ((start, end, name_type(name), value) for start, end, name, value in inserted)
    if _PASSWORD_SIGNS.search(lower) is not None:
        yield from find_password_lines(text)
    yield from _find_in_commands(text, lower)
    yield from find_given_values(text)
    for start in find_starts(OF_SERVICE, text):
        if (match := _OF_SERVICE.match(text, start)) and has_random_run(match["bare"]) and is_random(match["bare"], 20):
            yield _span(match, "bare", "api_key")
    yield from _find_in_headers(text, lower)
    yield from _find_in_urls(text)
    if _VERB.search(text) is not None:
        yield from _find_before_names(text)


def _find_words(lower: str) -> Iterator[int]:
    """Where words begin that may name a secret: the matches of `_WORDS`, found ten times as fast."""
    start = end = 0
    for stem in _STEMS.finditer(lower):
        if stem.start() - _MARGIN > end:
            yield from (word.start() for word in _WORDS.finditer(lower, start, end))
            start = stem.start() - _MARGIN
        end = stem.end() + _MARGIN
    yield from (word.start() for word in _WORDS.finditer(lower, start, end))


def _find_settings(text: str, words: Iterable[int], check: Callable[[], None]) -> Iterator[Span]:
    for at in words:
        check()
        if (match := _NAMED.match(text, at)) is not None:
            name = _read_name(text, match)
            if name and (span := _judge(match, name)) is not None:
                yield span
        match = _DEFAULT.match(text, at) if text.find("default", at, at + 400) >= 0 else None
        if match is not None and (name := _read_name(text, match)) and (span := _judge(match, name)) is not None:
            yield span
        if (match := _SPACED.match(text, at)) is not None:
            yield from _judge_prose(text, match)
        if _OPTION_NAME.search(text, max(0, at - 33), at) is not None:
            match = _OPTION.match(text, at)
            if match is not None and (name := _read_name(text, match)) and (span := _judge(match, name)) is not None:
                yield span
    for match in _VARIABLE.finditer(text):
        check()
        if (name := _read_name(text, match)) and (span := _judge(match, name)) is not None:
            yield span


def _judge_prose(text: str, match: re.Match[str]) -> Iterator[Span]:
    name = _read_name(text, match)
    value = match["bare"].rstrip(".,;:!?)]*\"'")
    password = PASSWORD_WORDS.search(match["name"]) is not None
    if _ASSIGNMENT.match(value) is not None:
        return  # the argument of a call
    if name and is_secret(value, quoted=False, password=password) and is_random(value, 6 if password else 12):
        start = match.start("bare")
        yield start, start + len(value), name_type(match["name"]), value


def _holds(lower: str, signs: Iterable[tuple[str, ...]]) -> bool:
    """Whether a text contains all words of one sign."""
    return any(all(word in lower for word in sign) for sign in signs)


def _find_in_commands(text: str, lower: str) -> Iterator[Span]:
    has_command = _holds(lower, _COMMAND_SIGNS) or any(p.search(lower) for p in (_PASSWORD_CALL, _USER_OPTION))
    patterns = (
        (_COMMANDS, has_command),
        (_PIPED, _holds(lower, _PIPED_SIGNS)),
        (_PGPASS, _PORT.search(text) is not None and any(word in lower for word in _PGPASS_SIGNS)),
        (_NETRC, "login" in lower and "password" in lower),
    )
    for pattern, may_match in patterns:
        for match in pattern.finditer(text) if may_match else ():
            value = match["bare"]
            if is_secret(value, quoted=True, password=True) or (pattern is _COMMANDS and is_short_password(value)):
                yield _span(match, "bare", "password")


def _find_in_headers(text: str, lower: str) -> Iterator[Span]:
    for match in _HEADER.finditer(text) if "authorization" in lower else ():
        value = match["bare"]
        if names_user_and_password(value) or (
            len(value) >= 12 and is_token(value) and is_secret(value, quoted=False, password=False)
        ):
            yield _span(match, "bare", "authorization")
    for match in _BEARER.finditer(text) if "bearer" in lower or "basic" in lower else ():
        value = match["bare"]
        basic = match[0][:5].lower() == "basic"
        if names_user_and_password(value) if basic else is_random(value):
            yield _span(match, "bare", "authorization")
    if not _holds(lower, (("cookie",), ("curl", "-b"))):
        return
    for cookies in _COOKIES.finditer(text):
        for match in _COOKIE.finditer(cookies["list"]):
            value = match["bare"]
            if match["name"].lower() in _COOKIE_ATTRIBUTES or is_placeholder(value) or not is_random(value, 8):
                continue
            start = cookies.start("list") + match.start("bare")
            yield start, start + len(value), "cookie", value


def _find_in_urls(text: str) -> Iterator[Span]:
    has_user = "@" in text and _BEFORE_AT.search(text) is not None
    for match in _USER_INFO.finditer(text) if has_user else ():
        user, value = match["user"], match["bare"]
        weak = value.lower() in (
            user.lower(),
            "guest",
            "root",
            "admin",
            "postgres",
            "mysql",
            "secret",
            "password",
            "pass",
            "user",
            "pwd",
            "token",
        )
        if (
            not weak
            and not is_placeholder(value)
            and len(set(value)) > 2
            and "/" not in value[:1]
            and "//" not in value
        ):
            yield _span(match, "bare", "password")
    for match in _ORACLE.finditer(text) if "oracle" in text or "sqlplus" in text else ():
        if not is_placeholder(match["bare"]) and match["bare"].lower() not in ("tiger", "oracle"):
            yield _span(match, "bare", "password")
    for match in _USER_ALONE.finditer(text) if has_user else ():
        if is_token(match["bare"]) and is_random(match["bare"]):
            yield _span(match, "bare", "token")
    for match in _QUERY.finditer(text):
        if is_random(match["bare"]):
            yield _span(match, "bare", "token")


def _find_before_names(text: str) -> Iterator[Span]:
    for match in _TRAILING.finditer(text):
        value = match["bare"].rstrip(".,;:")
        if is_random(value, 16) and is_secret(value, quoted=False, password=False):
            start = match.start("bare")
            yield start, start + len(value), "token", value


def _read_name(text: str, match: re.Match[str]) -> str:
    """The whole name of a setting, whose end the match has; empty if it does not name a secret."""
    start = match.start("name")
    before = _BEFORE.search(text, max(0, start - 60), start)
    name = (before[0] if before else "") + match["name"]
    lower = match["name"].lower()
    if lower.startswith(("author", "authent")) and "token" not in lower and "key" not in lower:
        return ""
    return "" if HARMLESS_NAMES.search(name) else name


def _judge(match: re.Match[str], name: str) -> Span | None:
    groups = match.groupdict()
    kind = "quoted" if groups.get("quoted") is not None else "bare"
    value: str = match[kind]
    password = PASSWORD_WORDS.search(name) is not None
    if kind == "bare" and match.string[match.end() : match.end() + 1] == "(":
        value += "("  # a call
    if not is_secret(value, quoted=kind == "quoted", password=password):
        return None
    if " " in value and not password:
        return None
    if "|" in (groups.get("sep") or "") and not is_random(value.strip("*"), 10):
        return None  # a cell of a table
    is_weak = _WEAK_KEY.search(match["name"]) is not None
    if is_weak and not (names_user_and_password(value) or (is_random(value, 16) and "[" not in value)):
        return None
    return _span(match, kind, name_type(name))


def name_type(name: str) -> str:
    """The type of a secret by the name of its setting."""
    lower = name.lower()
    if PASSWORD_WORDS.search(lower):
        return "password"
    for word in ("cookie", "token", "secret", "key", "session"):
        if word in lower:
            return {"key": "api_key", "session": "cookie"}.get(word, word)
    return "credential"


def _span(match: re.Match[str], group: str, type: str) -> Span:
    return match.start(group), match.end(group), type, match[group]
