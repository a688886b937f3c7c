"""Rules for messages without a call: which are not steps, and whether the others ask, answer or refuse.

Only here do words decide, and only the agent's own words: code and thinking are removed first.
"""

from __future__ import annotations

import itertools
import re
from typing import Literal

from foretrace.actions.taxonomy import ActionType
from foretrace.core.trace import Message

MIN_REPORT = 1500
"""A message of at least this many characters is a report: only its end can ask the user for something."""
MAX_REFUSAL = 600
"""In messages of up to this many characters a refusal counts anywhere. In longer ones it only counts at the start,
because explanations say `cannot` too."""

_ACKNOWLEDGEMENT = re.compile(
    r"\W*(?:ok(?:ay)?|sure|understood|got it|alright|yes|ready|I(?:'ve| have)?\s?(?:fully )?underst(?:an|oo)d"
    r"|I(?:'ll| will) follow)\b[^?`]{0,120}\Z",
    re.I,
)
_RUN_LIMIT = re.compile(r"\s*(?:Exit due to|Exited? \(|exit_(?:cost|context|format|error))[^\n]{0,160}\s*\Z")
_EMPTY = re.compile(r"\s*(?:None|null)?\s*\Z")

_THINK = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)|\A.*?</think(?:ing)?>", re.S)
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.S)
_SENTENCE = re.compile(r"(?<=[.!?:])(?:[\s*_\"”)]+)|\n+")
_COURTESY = re.compile(
    r"\b(?:anything|something|what) else\b|\banything I can (?:help|assist)\b|feel free to|let me know if\b|(?:happy"
    r"|glad|here) to (?:help|assist)(?! with)|^\W*(?:if|should|in case) (?:you|there)\b(?=.*(?:let me know|feel free"
    r"|happy to|glad to|just ask|reach out))|^\W*(?:and |so )?let me know\W*$|^just let me know\b|hope this helps"
    r"|don't hesitate|any other questions|^\W*how (?:can|may|else can) i (?:help|assist) you (?:today|further)",
    re.I,
)
_GREETING = re.compile(
    r"\A(?:(?:hi|hello|hey|welcome|good \w+|thanks for (?:calling|contacting))\b[^\n]{0,120}?|[^.\n]{0,60}?)"
    r"(?:[.!]\s*)?(?:how|what) (?:can|may) I (?:help|assist|do for) you\b[^?]{0,30}\?\W*\Z",
    re.I,
)
_DATA_REQUEST = re.compile(
    r"\bplease\b(?!,? (?:note|be aware|keep|remember|understand|allow|don't))[^.?!]{0,60}?\b(?:provide|confirm|specify"
    r"|share|verify|double-check|recheck|tell me|select|choose|clarify|supply|indicate|give me|send me|re-?enter"
    r"|upload)\b|\b(?:could|can|would|will) you\b(?! like)[^.?!]{0,40}\b(?:provide|confirm|specify|share|verify|tell"
    r"|clarify|give|check|choose|let me know|describe|explain|send|upload|elaborate)\b|\b(?:once|after"
    r"|as soon as) you(?:'ve| have)? (?:confirm|provide|share|verify|reply|choose|select|let me know|give)"
    r"|\blet me know (?:once|after) you\b|\btry rephrasing\b|^\W*(?:before\b[^.?!]{0,60}\b)?I need (?!to\b)"
    r"|\bI need to \w+[^.?!]{0,60}\byour?\b|\bI(?:'ll| will)?(?: still| first| also)? need (?:you to|your"
    r"|the following|to know|to confirm|to verify|some|more|additional|a few|the (?:specific |exact "
    r"|correct )?[\w* ]{0,30}\bids?\b)|\blet me know (?:which|what|whether|how many|how you|the|your|when you)\b"
    r"|\bmay I (?:have|know|ask)\b|\b(?:do you confirm|reply with|waiting for your|await your|to proceed,? (?:please"
    r"|I need))\b",
    re.I,
)
_QUESTION = re.compile(r"\?[\s*_\"”)\]]*$")
_YOU = re.compile(r"\byour?\b", re.I)
_OFFER = re.compile(
    r"\b(?:would you like|do you (?:want|have any)|is there any|shall I|should I|would you prefer"
    r"|are you (?:interested|okay)|want me to)\b",
    re.I,
)
_REFUSAL = re.compile(
    r"\b(?:I|we|system|policy|it|they|orders?|items?|this|that|request|which means it"
    r"|team)\b[^.!?\n]{0,60}?\b(?:can(?:no|')?t|can not|cannot|(?:am|'m|are|is) (?:\w+ly )?(?:unable"
    r"|not (?:\w+ly )?(?:able|allowed|permitted|authorized|capable)\b)|(?:does|do)(?:n't| not) (?:allow|permit|support"
    r"|have (?:the ability|access|a tool))|won't be able|will not be able|must (?:decline|terminate|end this)|(?:can't"
    r"|cannot|not) (?:help|assist) with)\b(?! (?:find|locate|determine|see any|tell|confirm|verify|guarantee|be found"
    r"|stress|emphasize|wait))|\bunable to (?!find|locate|determine|see|verify|confirm|retrieve)\w+"
    r"|\bis not possible\b|\bnot possible to\b|\b(?:against|violates?) (?:my|our|the)\b[^.]{0,40}\b(?:policy|policies"
    r"|guidelines|rules)\b|\boutside (?:of )?(?:my|our|the scope)\b|\bcannot and will not\b|\bI'd rather not\b"
    r"|\bI (?:won't|will not|would rather not|refuse to|must refuse)\b|\bunfortunately\b[^.!?\n]{0,80}?\b(?:can(?:no"
    r"|')?t|cannot|not (?:possible|allowed|permitted))\b(?! (?:find|locate))|\bno longer (?:possible|available to)\b"
    r"|\b(?:sorry|apologi[sz]e),? (?:but )?I (?:can't|cannot)\b",
    re.I,
)
_OWN_SCOPE = re.compile(
    r"^\W*I(?:'m| am) (?:only |just )?(?:here|able|designed|specialized) to (?:assist|help)(?: you)? with\b[^.]*\.",
    re.I,
)
_FAILED_LOOKUP = re.compile(
    r"\b(?:couldn't|could not|can't|cannot|unable to|not able to|wasn't able to|didn't) (?:find|locate|verify|match"
    r"|see)\b|\bno (?:user|account|record|match)\b",
    re.I,
)
_HANDOVER = re.compile(
    r"\b(?:you are|you're) being transferred\b|\btransferr(?:ed|ing) you to (?:a|an|the|our) (?:human|agent|live)", re.I
)
_NOT_DONE = re.compile(
    r"\A(?:\W*(?:I'm |I am |we're )?(?:so |very |really )?sorry\b(?! (?:for|about|to hear))|(?:unfortunately"
    r"|sorry)?\W*(?:I|we) (?:(?:do not|don't) (?:have|know)|have no)\b|(?:unfortunately|sorry)?\W*(?:I|we) (?:couldn't"
    r"|could not|was(?:n't| not) able to|was unable to) (?!find|locate|determine|see|tell|confirm|verify|match))",
    re.I,
)
"""The beginning of a message that apologizes, lacks something, or could not do what was asked."""
_DO_NOT_KNOW = re.compile(r"\A(?:\\boxed)?\W*\[?IDK\]?\W*\Z", re.I)
_DONE = re.compile(
    r"\bsuccessfully\b|\bhas been (?:updated|cancelled|canceled|processed|changed|submitted|created|booked)\b", re.I
)

_Decision = tuple[ActionType, Literal["text.blocked", "text.ask", "text.answer"]]
_BLOCKED: _Decision = (ActionType.BLOCKED, "text.blocked")
_ASK: _Decision = (ActionType.ASK_CLARIFICATION, "text.ask")
_ANSWER: _Decision = (ActionType.FINAL_ANSWER, "text.answer")


def find_nonstep_reason(messages: tuple[Message, ...], index: int) -> str:
    """Why the assistant message at `index`, which makes no call, is not a step; empty if it is one."""
    message = messages[index]
    content = message.content
    if message.author == "demo":
        return "demonstration"
    if _RUN_LIMIT.match(content[:400]):
        return "limit"
    following = messages[index + 1] if index + 1 < len(messages) else None
    empty = bool(_EMPTY.match(content[:40])) and len(content) < 40 and not message.parts
    if empty and message.reasoning is not None:
        return "reasoning"
    if following is not None and following.role == "assistant":  # its reply goes on
        return "preamble"
    if empty:
        return "lost"
    if following is not None and following.author == "environment":
        asked = following.role == "user" and not _is_answered_by_person(messages, index)
        if asked or following.injected:
            return "prompted"
    if not strip_code_and_thinking(content) and "```" not in content:
        return "reasoning"
    first = not any(m.role == "assistant" for m in messages[:index])
    if first and len(content) < 160 and following is not None and following.role == "user":
        acts = any(m.tool_calls for m in messages[index + 1 :])
        if acts and _ACKNOWLEDGEMENT.match(content):
            return "acknowledgement"
    return ""


def _is_answered_by_person(messages: tuple[Message, ...], index: int) -> bool:
    others = itertools.takewhile(lambda message: message.role != "assistant", messages[index + 1 :])
    return any(message.role == "user" and message.author == "user" for message in others)


def strip_code_and_thinking(content: str) -> str:
    text = _THINK.sub("", content, count=1) if "think" in content[:20] or "</think" in content else content
    return _FENCE.sub(" ", text).strip() if "```" in text else text.strip()


def classify_text(content: str) -> _Decision:
    text = strip_code_and_thinking(content).replace("’", "'")
    if _DO_NOT_KNOW.match(text[:40]):
        return _BLOCKED
    if len(text) < 160 and _GREETING.match(text):
        return _ASK
    if len(text) < 600 and _HANDOVER.search(text):
        return _BLOCKED
    end = text[-MIN_REPORT:] if len(text) > MIN_REPORT else text
    said = [s for part in _SENTENCE.split(end) if (s := part.strip(" *_#>-"))]
    sentences = [s for s in said if not _COURTESY.search(s)]
    asks_data, asks = _find_questions(sentences, long=len(text) > MIN_REPORT)
    if _OWN_SCOPE.match(text) and len(text) < 400:
        return _BLOCKED
    if asks and _FAILED_LOOKUP.search(text[:600]) and asks_data:
        return _ASK
    if _refuses(text, said):
        return _ASK if asks_data else _BLOCKED
    return _ASK if asks else _ANSWER


def _find_questions(sentences: list[str], *, long: bool) -> tuple[bool, bool]:
    """Whether the sentences ask for data or confirmation, and whether they ask anything at all."""
    # Questions count near the end, where the turn goes to the user. Requests for data count anywhere.
    ending = sentences[-2:]
    data = any(_DATA_REQUEST.search(s) for s in (sentences[-6:] if long else sentences))
    # A question in the last sentence but one must address the user: a rhetorical one is answered by the last.
    questions = [s for s in ending if _QUESTION.search(s) and (s is sentences[-1] or _YOU.search(s))]
    only_offers = all(_OFFER.search(s) for s in questions)
    return data or not only_offers, data or bool(questions)


def _refuses(text: str, sentences: list[str]) -> bool:
    if _DONE.search(text[:300]):
        return False
    if len(text) > MAX_REFUSAL:
        start = " ".join(s for s in _SENTENCE.split(text[:400])[:3])
        return bool(re.search(r"\b(?:I|we)\b", start) and _REFUSAL.search(start))
    failed = _NOT_DONE.match(text) and not _FAILED_LOOKUP.search(text)
    return bool(failed) or any(_REFUSAL.search(s) for s in sentences)
