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
_MAX_SHOWN = 200
"""Characters of the line that shows a result."""
_TRACEBACK = "Traceback (most recent call last)"


class ObservedResult(Enum):
    """What the observation of a step shows."""

    FAILED = "failed"
    UNCLEAR = "unclear"
    """It ran, with no sign of success or failure."""
    PASSED = "passed"


_FAIL_HINTS = (
    "rror", "RROR", "ail", "AIL", "raceback", "✗", "✘", "❌", "odule named", "not found", "fault",
    "dumped", "imed out",
    "IMED OUT", "panic", "such file", "atal:", "xception", "E  ", "t recognized as",
)  # fmt: skip
_PASS_HINTS = (
    "ucce",
    "UCCE",
    "pass",
    "PASS",
    "Pass",
    "OK",
    "ork",
    "✓",
    "✔",
    "✅",
    "orrect",
    "xpected",
    "no issues",
    "good",
)
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
    """Cut an observation down to the part that is searched."""
    return text if len(text) <= MAX_HEAD + MAX_TAIL else f"{text[:MAX_HEAD]}\n{text[-MAX_TAIL:]}"


def classify_observation(kind: CallKind, message: Message) -> tuple[ObservedResult, str]:
    """What one observation of a step of this kind shows, and the line that shows it.

    The line is empty if nothing is shown, and if the source itself says that the call failed.
    """
    if message.is_error:
        return ObservedResult.FAILED, ""
    text = clip_observation(message.content)
    if kind is CallKind.VERIFY:
        return _classify_check(text)
    head = text[:400]
    if kind in (CallKind.READ, CallKind.SEARCH, CallKind.COMPARE):
        # Errors in the content of files and search results prove nothing; only the text around it counts.
        # A search that finds nothing exits with 1, and that is an answer.
        shown = _find_call_error(head) or (_find_nonzero_exit(text) if kind is CallKind.READ else "")
    elif kind is CallKind.WRITE:
        # After the first lines comes a snippet of the edited file.
        shown = _find_nonzero_exit(text) or _find_refusal(head)
    else:
        shown = _find_nonzero_exit(text) or _find_call_error(head) or _find_exception(text)
    return (ObservedResult.FAILED, shown) if shown else (ObservedResult.UNCLEAR, "")


def _read_line(match: re.Match[str] | None) -> str:
    """The line in which a match begins; empty if nothing was found."""
    if match is None:
        return ""
    text = match.string
    # A match may begin with the end of the previous line.
    at = match.end() - len(match[0].lstrip())
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return text[max(start, at - 60) : end if end >= 0 else None][:_MAX_SHOWN].strip() or match[0]


def _find_nonzero_exit(text: str) -> str:
    """Find the line at the start or the end of an output that reports an exit code other than 0."""
    ends = (text[:200], text[-600:]) if len(text) > 800 else (text,)
    for end in ends:
        if any(hint in end for hint in _EXIT_HINTS) and (shown := _read_line(_NONZERO_EXIT.search(end))):
            return shown
    return ""


def _find_call_error(head: str) -> str:
    """Find the line that says that the call was refused or failed, in the beginning of an observation."""
    hints = ("rror", "ERROR", "nvalid", "nknown", "issing", "ot found", "xecuting", "our ", "rong")
    if not any(hint in head for hint in hints):
        return ""
    return _read_line(
        _CALL_ERROR.match(head) or _JSON_ERROR.match(head) or _CODE_ERROR.search(head) or _WRONG_ANSWER.search(head)
    )


def _find_refusal(head: str) -> str:
    """Find the line that says that an edit was not made, in the beginning of an observation."""
    if not any(hint in head for hint in _REFUSED_HINTS):
        return ""
    return _read_line(_REFUSED.search(head))


def _find_exception(text: str) -> str:
    """Find the line that shows that the code raised an exception."""
    if _TRACEBACK in text:
        return _TRACEBACK
    if any(h in text for h in ("Error", "Exception")):
        return _read_line(_STDERR.search(text) or _CODE_ERROR.search(text))
    return ""


def _classify_check(text: str) -> tuple[ObservedResult, str]:
    """Find the result of a check: clear signs of failure always count, error lines unless a success follows them."""
    if shown := _find_nonzero_exit(text):
        return ObservedResult.FAILED, shown
    suspicious = find_lines_with(text, _FAIL_HINTS)
    for _, line in suspicious:
        if _FAILURE.search(line):
            return ObservedResult.FAILED, line.strip()[:_MAX_SHOWN]
    none = (-1, "")
    error = next((each for each in reversed(suspicious) if _ERROR_LINE.search(each[1])), none)
    promising = find_lines_with(text, _PASS_HINTS)
    success = next((each for each in reversed(promising) if _SUCCESS.search(each[1])), none)
    if error[0] > success[0]:
        return ObservedResult.FAILED, error[1].strip()[:_MAX_SHOWN]
    return (ObservedResult.PASSED, success[1].strip()[:_MAX_SHOWN]) if success[0] >= 0 else (ObservedResult.UNCLEAR, "")


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
    """Whether a message that reports the output of code shows an exception."""
    part = clip_observation(text)
    return _TRACEBACK in part or bool(_EXCEPTION_LINE.search(part))
