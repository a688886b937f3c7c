"""Find calls that were not read: messages without a call that are answered by the environment instead of a user, and
messages with a call in a second encoding.

A trace with such messages would become training data in which the agent only talks. Chats with a person are left alone:
a message counts only if the answer cannot be a person's, or if it looks like a call.
"""

from __future__ import annotations

import itertools
import re

from foretrace.core.trace import Message, Trace
from foretrace.encodings.calls_in_text import has_second_encoding

_LOST = re.compile(r"\s*(?:None|null)?\s*\Z")
_CALL_LIKE = re.compile(
    r"^[ \t]*(?:(?:Action|ACTION|Act|Command|Tool|Tool call|Function call|Execute|Invoke)(?: ?\d+)?:[ \t]*\n?[ \t]*\S"
    r"|<(?:execute\w*|action|invoke|tool_use|tool|function_calls?|tool_calls?|run|bash|python)\b[^>\n]*>"
    r"|(?:```\w*\n)?\{\s*\"(?:action|tool|tool_name|function|function_call|tool_calls|command)\"\s*:)",
    re.MULTILINE,
)
"""Text that calls something, in any form."""
_OUTPUT_LIKE = re.compile(
    r"\s*(?:(?:Observation|Tool (?:result|output|response)|Output|Command output|Result|Stdout|Return value)\b"
    r"[^\n:]{0,60}:"
    r"|<(?:observation|tool_result|tool_response|function_results?|result|output|information|returncode|stdout)\b"
    r"[^>\n]*>"
    r"|Traceback \(most recent call last\)|RootWebArea|\[\{\"|\{\"\w+\":)",
    re.IGNORECASE,
)
"""Typical beginnings of tool output."""
_PASTED = "Execution result:"
"""How a person in a chat about code reports its output."""
_END = 500
_OF_A_PERSON = re.compile(
    r"[?!]\s*\Z|\A\s*(?:hi|hello|hey|thanks?|thx|yes|yep|sorry|please|great|nice|perfect|cool|good|awesome|wow|sure|now"
    r"|but|and|so|also|instead|then|next|add|make|use|change|write|show|explain|give|try|do|let|what|how|why|when|where"
    r"|which|who|can|could|would|should|will|is|are|does|i|i'm|we|you|it|that|this|there|my)\b"
    r"|\b(?:i|you|your|my|me|please|thanks?)\b",
    re.IGNORECASE,
)
"""What people say and programs rarely print."""
_MIN_ALIKE = 3
"""Fewest messages with a similar line that are more than chance."""
_MARK = re.compile(r"[^\w\s].*\w|\w.*[^\w\s.,;!'’\")*]|^[A-Z]{2,}$|^```$")
"""A first word of a line that is neither a word of prose nor a bullet."""
_SYMBOL = re.compile(r"[^\w\s.,;'\"’!?()`-]|_|--|\n")
_MIN_SYMBOLS = 0.04
"""A share of symbols that prose rarely reaches."""


def find_unread_calls(trace: Trace) -> list[int]:
    """Indexes of the agent's messages with a call that was not read."""
    messages = trace.messages
    answered_by_machine = _find_answered_by_machine(messages)
    answered = {call.id for message in messages for call in message.tool_calls if call.id}
    unread: list[int] = []
    for index, message in enumerate(messages):
        if message.role != "assistant" or message.author != "model":
            continue
        is_open = index + 1 < len(messages) and _may_call(message)
        is_unread = is_open and (index in answered_by_machine or _is_answered(messages, index, answered))
        if is_unread or has_second_encoding(message):
            unread.append(index)
    return unread


def _may_call(message: Message) -> bool:
    if _LOST.match(message.content[:40]):
        return False
    return not any(call.name or not call.error for call in message.tool_calls)


def _is_answered(messages: tuple[Message, ...], index: int, answered: set[str]) -> bool:
    message, following = messages[index], messages[index + 1]
    if following.role == "tool":
        if answered.intersection(following.tool_call_ids) or _has_open_call(messages, index):
            return False
        return not (following.raw_role == "user" and following.prefix.startswith(_PASTED) and "```" in message.content)
    if following.role != "user" or following.author != "user":
        return False
    if _CALL_LIKE.search(message.content[-_END:]):
        return True
    return bool(_OUTPUT_LIKE.match(following.content[:200])) and "```" not in message.content


def _has_open_call(messages: tuple[Message, ...], index: int) -> bool:
    """Whether the agent made a call just before whose result is still to come."""
    before = (messages[at] for at in range(index - 1, -1, -1))
    own = itertools.takewhile(lambda message: message.role == "assistant", before)
    return any(message.tool_calls for message in own)


def _find_answered_by_machine(messages: tuple[Message, ...]) -> set[int]:
    """Indexes of the messages without a call that a program answers, in any form: nobody talks to the agent, and either
    each message has a line with the same beginning, or each ends in symbols and is answered by symbols."""
    turns = [
        (index, message.content.strip().splitlines() or [""], later.content[:_END])
        for index, (message, later) in enumerate(itertools.pairwise(messages))
        if message.role == "assistant" and later.role == "user" and later.author == "user" and _may_call(message)
    ]
    if not turns or any(_OF_A_PERSON.search(answer) or lines[-1].endswith("?") for _, lines, answer in turns):
        return set()
    begins = set[str].intersection(*({line.split()[0] for line in lines if line.strip()} for _, lines, _ in turns))
    are_alike = len(turns) >= _MIN_ALIKE and any(map(_MARK.search, begins))
    if are_alike or all(_has_symbols(lines[-1]) and _has_symbols(answer) for _, lines, answer in turns):
        return {index for index, _, _ in turns}
    return set()


def _has_symbols(text: str) -> bool:
    symbols = len(_SYMBOL.findall(text.strip()))
    return symbols > 1 and symbols > _MIN_SYMBOLS * len(text)
