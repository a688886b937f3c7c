"""Rules for observations: whether they show that a step passed, failed or was refused.

Observations can be large: only their first and last characters are searched, and only lines that contain one of a few
short texts are matched against patterns.
"""

from __future__ import annotations

import re
from enum import Enum

from foretrace.actions.call_facts import CallKind
from foretrace.core.trace import Message

MAX_HEAD, MAX_TAIL = 3000, 4000
"""Characters of an observation that are searched, at its start and at its end."""
MAX_LINES = 200
"""Lines of an observation that are matched against patterns."""
_TRACEBACK = "Traceback (most recent call last)"


class ObservedResult(Enum):
    """What the observation of a step shows."""

    FAILED = "failed"
    UNCLEAR = "unclear"
    """It ran, with no sign of success or failure."""
    PASSED = "passed"


_FAIL_HINTS = (
    "rror", "RROR", "ail", "AIL", "raceback", "✗", "✘", "❌", "odule named", "not found", "fault",
    "dumped", "imed out", "IMED OUT", "panic", "such file", "atal:", "xception", "E  ", "t recognized as",
)  # fmt: skip
_PASS_HINTS = (
    "ucce", "UCCE", "pass", "PASS", "Pass", "OK", "ork", "✓", "✔", "✅", "orrect", "xpected", "no issues", "good",
)  # fmt: skip
_EXIT_HINTS = ("xit", "returncode", "CommandExec")

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
    r"[^:\n]{0,60}(?::|$)|^\S[^\n]{0,60}: (?:Error|Exception):? "
)
_SUCCESS = re.compile(
    r"\bsuccess(?:ful(?:ly)?)?\b(?!\s*[:=]?\s*[Ff]alse)|\bpass(?:ed|es|ing)?\b|^OK\b|\bOK$|\bno (?:issues"
    r"|errors|problems)\b"
    r"|[✓✔✅]|\bworks?\b|\bworking\b|\b(?:all|is|as) (?:correct|expected|good)\b|\bcorrectly\b",
    re.I,
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
_REFUSED_HINTS = (
    "rror", "ERROR", "ot found", "o replacement", "not been", "NOT been", "atches", "ccurrences", "ould not", "did not",
    "nvalid", "already", "sed: ", "atch: ", "atch failed", "not apply", "FAILED", "raceback", "issing", "denied",
    "such file", "annot create",
)  # fmt: skip
"""Everything that `_REFUSED` matches contains one of these."""
_CALL_ERROR = re.compile(
    r"\s*(?:<tool_use_error>|error\b\s*(?:executing|:|\d)|\{?\W{0,3}error\W{1,4}(?!\W*(?:null|none|\"\"|''))\w"
    r"|missing required param|invalid |unknown (?:tool|function|command)|function executing from)",
    re.I,
)
_JSON_ERROR = re.compile(
    r'\s*\{\s*"error":\s*"(?!"|Message error\.\.\.)|\s*\{"(?:detail|message)":\s*"[^"]{0,60}(?:not found|error)', re.I
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
        failed = _shows_nonzero_exit(text) or _shows_refusal(head)
    else:
        failed = _shows_nonzero_exit(text) or _shows_call_error(head) or _shows_exception(text)
    return ObservedResult.FAILED if failed else ObservedResult.UNCLEAR


def _shows_nonzero_exit(text: str) -> bool:
    ends = (text[:200], text[-600:]) if len(text) > 800 else (text,)
    return any(any(hint in end for hint in _EXIT_HINTS) and _NONZERO_EXIT.search(end) for end in ends)


def _shows_call_error(head: str) -> bool:
    hints = ("rror", "ERROR", "nvalid", "nknown", "issing", "ot found", "xecuting", "our ", "rong")
    return any(hint in head for hint in hints) and bool(
        _CALL_ERROR.match(head) or _JSON_ERROR.match(head) or _CODE_ERROR.search(head) or _WRONG_ANSWER.search(head)
    )


def _shows_refusal(head: str) -> bool:
    return any(hint in head for hint in _REFUSED_HINTS) and bool(_REFUSED.search(head))


def _shows_exception(text: str) -> bool:
    return _TRACEBACK in text or (
        any(h in text for h in ("Error", "Exception")) and bool(_STDERR.search(text) or _CODE_ERROR.search(text))
    )


def _classify_check(text: str) -> ObservedResult:
    """The result of a check: clear signs of failure always count, error lines unless a success follows them."""
    suspicious = find_lines_with(text, _FAIL_HINTS)
    if _shows_nonzero_exit(text) or any(_FAILURE.search(line) for _, line in suspicious):
        return ObservedResult.FAILED
    error = next((at for at, line in reversed(suspicious) if _ERROR_LINE.search(line)), -1)
    success = next((at for at, line in reversed(find_lines_with(text, _PASS_HINTS)) if _SUCCESS.search(line)), -1)
    if error > success:
        return ObservedResult.FAILED
    return ObservedResult.PASSED if success >= 0 else ObservedResult.UNCLEAR


def find_lines_with(text: str, hints: tuple[str, ...]) -> list[tuple[int, str]]:
    """Find the lines that contain one of the hints: (start offset, text), in order.

    Searching for short texts is ten times as fast as a pattern with alternatives.
    """
    starts: set[int] = set()
    for hint in hints:
        at = text.find(hint)
        while at >= 0 and len(starts) < MAX_LINES:
            starts.add(text.rfind("\n", 0, at) + 1)
            end = text.find("\n", at)
            at = text.find(hint, end) if end >= 0 else -1
    lines: list[tuple[int, str]] = []
    for start in sorted(starts):
        end = text.find("\n", start)
        line = text[start : min(end, start + 500) if end >= 0 else start + 500]
        lines.append((start, line.rstrip("\r")))
    return lines


def reports_exception(text: str) -> bool:
    part = clip_observation(text)
    return _TRACEBACK in part or bool(_EXCEPTION_LINE.search(part))
