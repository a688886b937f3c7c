"""Rules for observations: whether they show that a step passed, failed or was refused.

Observations can be large: only their first and last characters are searched.
"""

from __future__ import annotations

import re
from enum import Enum

from foretrace.actions.call_facts import CallKind
from foretrace.core.trace import Message

MAX_HEAD, MAX_TAIL = 3000, 4000
"""Characters of an observation that are searched, at its start and at its end."""
_TRACEBACK = "Traceback (most recent call last)"


class ObservedResult(Enum):
    """What the observation of a step shows."""

    FAILED = "failed"
    UNCLEAR = "unclear"
    """It ran, with no sign of success or failure."""
    PASSED = "passed"


_NONZERO_EXIT = re.compile(
    r"<returncode>-?[1-9]|\b[Ee]xit(?:ed with)?(?: code| status)?:?\s+-?[1-9]\d*\b"
    r"|[Ee]xit[_ ]?[Cc]ode\W+-?[1-9]"
    r"|CommandExecError"
)
_FAILURE = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^\s*(?:FAILED|FAIL|ERRORS?)\b(?!\s*[:=]\s*0)(?!: (?:None|no)\b)"
    r"|\b[1-9]\d* (?:tests? |checks? |type )?(?:failed|failures?|failing|errors?)\b"
    r"|(?:failures|errors|failed)=[1-9]"
    r"|[✗✘❌]|\bFAIL(?:ED|URE)?\b(?!\s*[:=]\s*0)"
    r"|No module named |command not found|[Ss]egmentation fault|core dumped|EXECUTION TIMED OUT|timed out after"
    r"|^(?:E\s+)?(?:\w+\.)*(?:Syntax|Indentation|Import|ModuleNotFound|Assertion|Name)Error\b"
    r"|^(?:npm ERR!|make(?:\[\d+\])?: \*\*\*|panic:|fatal:|thread '.*' panicked)|error\[E\d+\]|BUILD FAILED"
    r"|^\S+:\d+(?::\d+)?: (?:fatal )?error:|: No such file or directory$|: can't open file|^E   \S"
    r"|^error: |\bis not recognized as (?:a name of a cmdlet|the name of a cmdlet|an internal or external command)"
    r"|FullyQualifiedErrorId",
    re.M,
)
_ERROR_LINE = re.compile(
    r"^[^\S\n]*(?:[-*•]\s*)?(?:[A-Z]\w*(?:Error|Exception)\b|(?:Unexpected )?[Ee]rror\b|Exception\b"
    r"|Failed to\b)"
    r"[^:\n]{0,60}(?::|$)|^\S[^\n]{0,60}: (?:Error|Exception):? ",
    re.M,
)
_SUCCESS = re.compile(
    r"\bsuccess(?:ful(?:ly)?)?\b(?!\s*[:=]?\s*[Ff]alse)|\bpass(?:ed|es|ing)?\b|^OK\b|\bOK$|\bno (?:issues"
    r"|errors|problems)\b"
    r"|[✓✔✅]|\bworks?\b|\bworking\b|\b(?:all|is|as) (?:correct|expected|good)\b|\bcorrectly\b",
    re.I | re.M,
)
_REFUSED = re.compile(
    r"No replacement was performed|has introduced new syntax error|changes have NOT been applied|tool_use_error"
    r"|has not been read yet|(?:oldString|old_string|old_str|String to replace|[Tt]ext to replace"
    r"|search string)\b[^\n]{0,20}not found"
    r"|Found \d+ matches|[Mm]ultiple (?:occurrences|matches)|Could not find|did not match"
    r"|did not appear verbatim"
    r"|^\s*(?:ERROR|Error|error)\b[:\s]|Invalid `\w+` parameter|already exists|^sed: |^patch: "
    r"|patch failed|does not apply"
    r"|[Hh]unk.{0,20}FAILED|Traceback \(most recent|Missing required param|Permission denied|No such file"
    r"|cannot create",
    re.M,
)
_CALL_ERROR = re.compile(
    r"\s*(?:<tool_use_error>|error\b\s*(?:executing|:|\d)|\{?\W{0,3}error\W{1,4}(?!\W*(?:null|none|\"\"|''))\w"
    r"|missing required param|invalid |unknown (?:tool|function|command)|function executing from)",
    re.I,
)
_JSON_ERROR = re.compile(
    r'\s*\{\s*"error":\s*"(?!"|Message error\.\.\.)|\s*\{"(?:detail|message)":\s*"[^"]{0,60}(?:not found|(?i:error))'
)
_STDERR = re.compile(r'"stderr":\s*"[^"]*(?:Error|Traceback)')
_CODE_ERROR = re.compile(r"^-{20,}\n\w*(?:Error|Exception)\b|^\w+(?:Error|Exception)\b\s*(?::|Traceback)", re.M)
_WRONG_ANSWER = re.compile(
    r"\bYour (?:answer|solution|output|submission) (?:is|was) (?:wrong|incorrect)|^\s*(?:Wrong"
    r"|Incorrect) (?:flag|answer)",
    re.M,
)
_EXCEPTION_LINE = re.compile(r"^\s*(?:\w+\.)*\w*(?:Error|Exception)\b\s*(?::|$)|^Error\b", re.M)


def clip_observation(text: str) -> str:
    return text if len(text) <= MAX_HEAD + MAX_TAIL else f"{text[:MAX_HEAD]}\n{text[-MAX_TAIL:]}"


def classify_observation(kind: CallKind, message: Message) -> ObservedResult:
    if message.is_error:
        return ObservedResult.FAILED
    text = clip_observation(message.content)
    if kind is CallKind.VERIFY:
        return _classify_check(text)
    head = text[:400]
    if kind in (CallKind.READ, CallKind.SEARCH, CallKind.COMPARE):
        # Errors in the content of files and search results prove nothing; only the text around it counts.
        # A search that finds nothing exits with 1, and that is an answer.
        failed = _shows_call_error(head) or (kind is CallKind.READ and _shows_nonzero_exit(text))
    elif kind is CallKind.WRITE:
        # After the first lines comes a snippet of the edited file.
        failed = _shows_nonzero_exit(text) or bool(_REFUSED.search(head))
    else:
        failed = _shows_nonzero_exit(text) or _shows_call_error(head) or _shows_exception(text)
    return ObservedResult.FAILED if failed else ObservedResult.UNCLEAR


def _shows_nonzero_exit(text: str) -> bool:
    ends = (text[:200], text[-600:]) if len(text) > 800 else (text,)
    return any(map(_NONZERO_EXIT.search, ends))


def _shows_call_error(head: str) -> bool:
    return bool(
        _CALL_ERROR.match(head) or _JSON_ERROR.match(head) or _CODE_ERROR.search(head) or _WRONG_ANSWER.search(head)
    )


def _shows_exception(text: str) -> bool:
    return _TRACEBACK in text or bool(_STDERR.search(text) or _CODE_ERROR.search(text))


def _classify_check(text: str) -> ObservedResult:
    """The result of a check: clear signs of failure always count, error lines unless a success follows them."""
    if _shows_nonzero_exit(text) or _FAILURE.search(text):
        return ObservedResult.FAILED
    error, success = (
        max((match.start() for match in pattern.finditer(text)), default=-1) for pattern in (_ERROR_LINE, _SUCCESS)
    )
    if error > success:
        return ObservedResult.FAILED
    return ObservedResult.PASSED if success >= 0 else ObservedResult.UNCLEAR


def reports_exception(text: str) -> bool:
    part = clip_observation(text)
    return _TRACEBACK in part or bool(_EXCEPTION_LINE.search(part))
