"""Takes the data out of a long shell command, so that only its structure is parsed.

The time to parse hostile text grows with the square of its length; what makes honest commands long is data:
bodies of heredocs and quoted scripts. They are replaced by short stand-ins and put back afterwards.
"""

from __future__ import annotations

import re

_POINT = re.compile(
    r"\\."  # an escaped character
    r"|'(?P<single>[^']*)'"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|<<-?[ \t]*(?P<quote>['\"]?)(?P<mark>\w+)(?P=quote)(?!<)"
    r"|(?P<line>\n)",
    re.S,
)
_PLACEHOLDER = re.compile(r"ForetraceData(\d+)Here")
MAX_QUOTED = 200
"""Quoted texts up to this length stay where they are."""


def elide(text: str) -> tuple[str, list[str]]:
    """The text with long data replaced by stand-ins, and the data. One linear pass; never raises."""
    parts: list[str] = []
    data: list[str] = []
    pending: list[str] = []
    done = position = 0
    while found := _POINT.search(text, position):
        position = found.end()
        if found["mark"]:
            pending.append(found["mark"])
        elif found["line"] and pending:
            for mark in pending:
                end = re.compile(rf"^[ \t]*{mark}[ \t]*$", re.M).search(text, position)
                stop = end.start() if end else len(text)
                parts += [text[done:position], _add_placeholder(data, text[position:stop].removesuffix("\n")), "\n"]
                done = position = stop
                # Go on behind the end mark: the next body, or the next command, follows it.
                position = end.end() if end else len(text)
            pending.clear()
        else:
            quoted = found["single"] if found["single"] is not None else found["double"]
            if quoted is not None and len(quoted) > MAX_QUOTED:
                parts += [text[done : found.start() + 1], _add_placeholder(data, quoted), text[position - 1]]
                done = position
    parts.append(text[done:])
    return "".join(parts), data


def _add_placeholder(data: list[str], text: str) -> str:
    data.append(text)
    return f"ForetraceData{len(data) - 1}Here"


def restore(text: str, data: list[str]) -> str:
    """Put the data back."""
    if "ForetraceData" not in text:
        return text
    return _PLACEHOLDER.sub(lambda m: data[int(m[1])] if int(m[1]) < len(data) else m[0], text)
