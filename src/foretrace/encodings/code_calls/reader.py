"""Read calls that carry code from a reply: `<tool_call>{"name": .., "arguments": {"code": ..}}</tool_call>`.

A call is read as JSON, then with raw control characters allowed, then by repair; each repair is recorded. One that was
cut off, or that can be read in two ways, has `error` set and no code: it must not be executed.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator

import msgspec

from foretrace.core.trace import ToolCall
from foretrace.encodings.code_calls.code_candidates import CodeCandidate, CodeChoice, choose_code
from foretrace.encodings.code_calls.json_body import CODE_KEY, read_broken_json, read_json
from foretrace.encodings.json_arguments import encode_json, find_json_end
from foretrace.encodings.json_calls import TOOL_CALL_JSON

_TAG = re.compile(r"<(/?)tool_call>")
_CLOSING_TAG = "</tool_call>"
_BEFORE = re.compile(r"\s*(?:`{3,}\w*\s*)?")
_BODY_START = re.compile(r"""\s*(?:`{3,}\w*\s*)?(?:\[\s*)?["']?\{|\s*["'](?:name|arguments)["']\s*:""")
_AFTER = re.compile(r"[\s`}\],;]*+")
_SPACE = re.compile(r"\s*")
_ITEM_START = re.compile(r"\s*\{")
_MAX_ENDS = 8
"""Tags that are tried as the end of a call whose JSON is broken: strings in its code may hold tags."""


class CodeCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call in a text, and the code that it carries."""

    span: tuple[int, int]
    """Start and end character offsets into the text, tags included."""
    name: str = ""
    arguments: str = "{}"
    """JSON text of the arguments: verbatim where it was well formed, else with the repaired code."""
    repairs: tuple[str, ...] = ()
    """Kinds of repair that reading took, in no particular order; empty when the call was well formed."""
    error: str | None = None
    """Why the call was refused, in one line that can be shown to the model; `None` when it may be executed."""
    code: str | None = None
    """The code to execute, `None` when the call was refused."""

    @property
    def tool_call(self) -> ToolCall:
        """The call as a record of a trace."""
        return ToolCall(
            name=self.name, arguments=self.arguments, span=self.span, repairs=self.repairs, error=self.error
        )


class _Tags:
    """The opening and closing tags of a text."""

    def __init__(self, text: str) -> None:
        self.tags = [(m.start(), m.end(), m.group(1) == "/") for m in _TAG.finditer(text)]
        self._starts = [start for start, _, _ in self.tags]

    def iterate_from(self, at: int) -> Iterator[tuple[int, int, bool]]:
        """Iterate over the tags from offset `at` on: start, end, whether it closes."""
        index = bisect.bisect_left(self._starts, at)
        while index < len(self.tags):
            yield self.tags[index]
            index += 1


def read_calls(text: str, *, truncated: bool) -> list[CodeCall]:
    """Read all calls of a text, in order.

    Args:
        text: what the model wrote.
        truncated: whether the text was cut off at a limit; a last call without its closing tag is then refused. After
            a stop sequence it is not: the closing tag may be what stopped it.

    A tag that nothing like JSON follows is only mentioned, and no call. After a call whose end is unclear all calls are
    refused: what looks like the next call may be a string in the code of this one.
    """
    tags = _Tags(text)
    calls: list[CodeCall] = []
    at, unclear = 0, False
    for start, end, closes in tags.tags:
        if closes or start < at or not _is_call(text, start, end):
            continue
        if unclear:
            new = [
                CodeCall(
                    span=_make_span_to_next_tag(text, tags, start, end),
                    error="comes after a call that has no clear end",
                )
            ]
        else:
            new, unclear = _read_at_tag(text, tags, (start, end), truncated)
        calls += new
        at = new[-1].span[1]
    return calls


def _is_call(text: str, start: int, end: int) -> bool:
    return _BODY_START.match(text, end) is not None and text[max(0, start - 1) : start] not in {"`", '"', "'"}


def _make_span_to_next_tag(text: str, tags: _Tags, start: int, end: int) -> tuple[int, int]:
    for tag_start, tag_end, closes in tags.iterate_from(end):
        return (start, tag_end if closes else tag_start)
    return (start, len(text))


def _read_at_tag(text: str, tags: _Tags, opening: tuple[int, int], truncated: bool) -> tuple[list[CodeCall], bool]:
    """Read the call at a tag, or the calls of a list there.

    Returns:
        The calls, and whether their end is unclear.
    """
    start, body_start = opening
    before = _BEFORE.match(text, body_start)
    body_start = before.end() if before else body_start
    fence = ("fence",) if "```" in text[opening[1] : body_start] else ()
    end = find_json_end(text, body_start)
    if end is None or not text[body_start:end].endswith(("}", "]", '"')) or text[end : end + 1] == ":":
        call, unclear = _read_broken(text, tags, opening, body_start, truncated)
        return [call], unclear
    after = _AFTER.match(text, end)
    after_end = after.end() if after else end
    repairs: list[str] = list(fence)
    if text.startswith(_CLOSING_TAG, after_end):
        junk = set(text[end:after_end]) & set("}],;")
        repairs += ["extra_brace"] * bool(junk & set("}]")) + ["trailing_comma"] * bool(junk & set(",;"))
        span = (start, after_end + len(_CLOSING_TAG))
    else:
        following = next(tags.iterate_from(end), None)
        if following is not None and following[2]:
            span = _make_span_to_next_tag(text, tags, start, end)
            return [CodeCall(span=span, error="text between the call's JSON and its closing tag")], True
        if truncated and following is None:
            return [CodeCall(span=(start, len(text)), error="the call is cut off")], True
        repairs.append("missing_close_tag")
        span = (start, end)
    items = _list_items(text, body_start, end)
    if len(items) < 2:
        return [_read_whole(text[body_start:end], text[slice(*span)], span, tuple(repairs))], False
    ends = [start, *(item_end for _, item_end in items[:-1]), span[1]]
    kinds = (*repairs, "list")
    spans = itertools.pairwise(ends)
    return [_read_whole(text[a:b], "", s, kinds) for (a, b), s in zip(items, spans, strict=True)], False


def _list_items(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """List the spans of the objects in a JSON list that is whole; empty where it is not a list of objects."""
    items: list[tuple[int, int]] = []
    at = start
    while at < end and text[at] in "[," and (item := _ITEM_START.match(text, at + 1, end)) is not None:
        item_end = find_json_end(text, item.end() - 1)
        if item_end is None:
            return []
        items.append((item.end() - 1, item_end))
        space = _SPACE.match(text, item_end, end)
        at = space.end() if space else item_end
    return items if text[at:end] == "]" else []


def _read_whole(body: str, written: str, span: tuple[int, int], repairs: tuple[str, ...]) -> CodeCall:
    candidates = read_json(body)
    if isinstance(candidates, str):
        return CodeCall(span=span, error=candidates)
    call = _make_call(span, choose_code(candidates), repairs)
    if call.error is None and not call.repairs:
        return msgspec.structs.replace(call, arguments=TOOL_CALL_JSON.parse(written)[0].arguments)
    return call


def _make_call(span: tuple[int, int], choice: CodeChoice, repairs: tuple[str, ...]) -> CodeCall:
    candidate = choice.candidate
    if candidate is None:
        return CodeCall(span=span, error=choice.error)
    try:
        arguments = encode_json({CODE_KEY: candidate.code, **candidate.other_arguments})
        arguments.encode()
    except (ValueError, RecursionError):  # NaN or an infinity, or half a character
        return CodeCall(span=span, error="the arguments are not JSON")
    kinds = tuple(dict.fromkeys((*repairs, *candidate.repairs)))
    return CodeCall(span=span, name=candidate.tool, arguments=arguments, repairs=kinds, code=candidate.code)


def _read_broken(
    text: str, tags: _Tags, opening: tuple[int, int], body_start: int, truncated: bool
) -> tuple[CodeCall, bool]:
    """Read a call whose JSON is broken: every tag after it may be its end, and all that give Python must agree.

    Returns:
        The call, and whether its end is unclear.
    """
    start = opening[0]
    ends = list(itertools.islice(tags.iterate_from(opening[1]), _MAX_ENDS))
    if len(ends) < _MAX_ENDS and not truncated:
        ends.append((len(text), len(text), False))
    fence = ("fence",) if "```" in text[opening[1] : body_start] else ()
    candidates: list[CodeCandidate] = []
    for tag_start, tag_end, closes in ends:
        tag_repairs = fence if closes else (*fence, "missing_close_tag")
        for candidate in read_broken_json(text[body_start:tag_start]):
            end = tag_end if closes else tag_start
            candidates.append(msgspec.structs.replace(candidate, repairs=(*tag_repairs, *candidate.repairs), end=end))
    if not candidates:
        cut = not any(closes for _, _, closes in ends)
        span = _make_span_to_next_tag(text, tags, start, opening[1])
        return CodeCall(span=span, error="the call is cut off" if cut else "the call is not JSON"), True
    choice = choose_code(candidates)
    if choice.candidate is None:
        return CodeCall(span=_make_span_to_next_tag(text, tags, start, opening[1]), error=choice.error), True
    return _make_call((start, choice.candidate.end), choice, ()), False
