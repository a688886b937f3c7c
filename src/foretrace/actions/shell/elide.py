"""Take the data out of a long shell command, so that only its structure is parsed.

The time to parse hostile text grows with the square of its length. Honest commands are long because of data: bodies of
heredocs and quoted scripts. They are replaced by short placeholders and put back afterwards.
"""

from __future__ import annotations

import re

_QUOTE_OR_HEREDOC = re.compile(
    r"\\."  # an escaped character
    r"|'(?P<single>[^']*)'"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|<<-?[ \t]*(?P<quote>['\"]?)(?P<end_word>\w+)(?P=quote)(?!<)"
    r"|(?P<line>\n)",
    re.S,
)
_PLACEHOLDER = re.compile(r"ForetraceData(\d+)Here")
MAX_QUOTED = 200
"""Most characters of a quoted text that stays in place."""


def elide(text: str) -> tuple[str, list[str]]:
    """Replace long data by placeholders, in one pass over the text. Never raises.

    Returns:
        The shorter text, and the data for `restore`.
    """
    parts: list[str] = []
    data: list[str] = []
    end_words: list[str] = []
    """Words that end the heredocs opened on this line."""
    done = position = 0
    while match := _QUOTE_OR_HEREDOC.search(text, position):
        position = match.end()
        if match["end_word"]:
            end_words.append(match["end_word"])
        elif match["line"] and end_words:
            for word in end_words:
                end = re.compile(rf"^[ \t]*{word}[ \t]*$", re.M).search(text, position)
                stop = end.start() if end else len(text)
                parts += [text[done:position], _add_placeholder(data, text[position:stop].removesuffix("\n")), "\n"]
                done = position = stop
                # Continue after the end word: the next body or command follows it.
                position = end.end() if end else len(text)
            end_words.clear()
        else:
            quoted = match["single"] if match["single"] is not None else match["double"]
            if quoted is not None and len(quoted) > MAX_QUOTED:
                parts += [text[done : match.start() + 1], _add_placeholder(data, quoted), text[position - 1]]
                done = position
    parts.append(text[done:])
    return "".join(parts), data


def _add_placeholder(data: list[str], text: str) -> str:
    data.append(text)
    return f"ForetraceData{len(data) - 1}Here"


def restore(text: str, data: list[str]) -> str:
    """Put the data of `elide` back into a text or a word."""
    if "ForetraceData" not in text:
        return text
    return _PLACEHOLDER.sub(lambda m: data[int(m[1])] if int(m[1]) < len(data) else m[0], text)
