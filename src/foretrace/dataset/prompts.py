"""Prompts: the only renderer of what a proposer or verifier sees, for training and evaluation alike.

A prompt is one system message (the fixed instruction, then the agent's own system text and tools under headings) and
the history, as alternating turns of user and assistant that begin and end with the user: strict chat templates accept
nothing else. It depends only on the messages before the reply that is predicted.

A tool's result is enclosed in `<tool_response>` and `</tool_response>`, an agent's call in `<tool_call>` and
`</tool_call>`. In text that the agent did not write, a backslash is put after the `<` of such a tag. So a tag without
one is real, and removing one backslash restores the text.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from foretrace.actions.taxonomy import ActionType
from foretrace.core.digest import digest
from foretrace.core.errors import BuildError, Setting, UsageError
from foretrace.core.message_columns import ChatText
from foretrace.core.predictions import CallValue, Target
from foretrace.core.trace import Message, Provenance, Task, ToolSpec, Trace
from foretrace.dataset.prompt_digests import digest_prompt
from foretrace.dataset.settings import TargetFormat, Window
from foretrace.encodings.json_arguments import encode_json, try_decode
from foretrace.encodings.json_calls import TOOL_CALL_JSON

_encode = msgspec.json.Encoder(order="deterministic").encode
_MARKED = re.compile(r'\{\s*\\*"action\\*"\s*:\s*\\*"(?:' + "|".join(ActionType) + r')\\*"|\[Next Action Prediction\]')
"""The beginning of a target, with any JSON spacing, also inside a JSON string; and a marker of older such datasets."""


def has_target(text: str) -> bool:
    """Whether a text contains something that looks like a target: in a prompt it would be a label."""
    return ('"action' in text or "[Next Action" in text) and _MARKED.search(text) is not None


def make_target_text(message: Message, action: ActionType, form: TargetFormat) -> str:
    """The text that a proposer should produce for this step.

    `type`: `{"action":A}`. `call`: `{"action":A,"tool":T,"arguments":{..}}`, with further calls of the step as
    `"more":[{"tool":T,"arguments":{..}},..]`; a step without a call has tool null. `message`: the agent's message with
    native calls written out.
    """
    if form == "message":
        return make_message_text(message)
    if form == "type":
        return f'{{"action":"{action}"}}'
    calls = [CallValue(call.name, msgspec.json.decode(call.arguments)) for call in message.tool_calls]
    first, *more = calls or [CallValue(None, {})]
    return _encode(Target(action, first.tool, first.arguments, more)).decode()


def make_message_text(message: Message) -> str:
    """The message as plain text: verbatim, followed by its native calls written out."""
    text = message.prefix + message.content
    calls = [TOOL_CALL_JSON.render(c) for c in message.tool_calls if c.span is None and c.error is None]
    return "\n".join([text, *calls] if text else calls) if calls else text


_TOOL_TAG = re.compile(r"<(?=/?tool_(?:call|response))", re.IGNORECASE)


@lru_cache(maxsize=4096)
def encode_tool(tool: ToolSpec) -> str:
    """The tool as `{"name":N,"description":D,"parameters":{...}}`; a schema that is not JSON becomes a string.

    A tag of a call or result in a description is written with a JSON escape: it decodes to the same text, but is not a
    tag.
    """
    held = f',"parameters":{_squeeze(tool.parameters)}' if tool.parameters.strip() else ""
    text = f'{{"name":{encode_json(tool.name)},"description":{encode_json(tool.description)}{held}}}'
    return _TOOL_TAG.sub(r"\\u003c", text)


def is_described(tool: ToolSpec, text: str) -> bool:
    """Whether a text names the tool and each of its arguments, as a system text that explains the tool does."""
    return all(name in text for name in _list_names(tool))


@lru_cache(maxsize=1024)
def _list_names(tool: ToolSpec) -> tuple[str, ...]:
    schema = try_decode(tool.parameters)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return (tool.name, *(properties if isinstance(properties, dict) else ()))


def _squeeze(parameters: str) -> str:
    """JSON text without white space between its parts. A text that is not JSON becomes a JSON string."""
    return encode_json(parameters) if try_decode(parameters) is None else msgspec.json.format(parameters, indent=-1)


RESULT_START = "<tool_response>\n"
RESULT_END = "\n</tool_response>"
JOIN = "\n\n"
"""Between messages of one turn."""
AGENT_BEGINS = "[the agent begins]"
"""The user's turn if the agent's first message follows no other."""
AGENT_GOES_ON = "[the agent goes on]"
"""The user's turn if the agent's message follows another one of its own."""

_TAG = re.compile(r"<(?=\\*/?tool_(?:call|response))", re.IGNORECASE)


def escape_tags(text: str) -> str:
    """The text with a backslash after the `<` of every call or result tag, including tags with backslashes."""
    return _TAG.sub(r"<\\", text)


def make_shown_text(message: Message) -> str:
    """The message's text as prompts show it, before it is framed or cut."""
    text = make_message_text(message)
    return text if message.role == "assistant" else escape_tags(text)


def frame_text(message: Message, text: str) -> str:
    """The shown text, whole or cut, marked as a result if it is one."""
    return f"{RESULT_START}{text}{RESULT_END}" if message.role == "tool" else text


def find_side(message: Message) -> str:
    """The role whose turn the message is in: `assistant`, or `user` for everything the agent did not write."""
    return "assistant" if message.role == "assistant" else "user"


def make_omission_mark(count: int) -> str:
    return f"[{count} earlier message{'s' if count > 1 else ''} left out]"


def make_cut_mark(count: int) -> str:
    return f"\n[{count} characters left out]\n"


KEPT_SHARE = 0.5
"""Share of the history's room that a cut keeps, at most."""


class HistoryWindow:
    """The start of the shown history at each step of a trace. Indexes count the messages of the history from 0."""

    def __init__(self, window: Window, room: int) -> None:
        """`room`: most tokens of all shown messages together."""
        self._window: Window = window
        self.room = room
        self._is_agent: list[bool] = []
        self._sums = [0]
        """`_sums[n]`: tokens of the first n messages."""
        self._starts = [0]
        """With `blocks`, `_starts[n]`: start of the history after the steps among the first n messages."""

    def add(self, role: str, tokens: int) -> None:
        """Add the next message: the role of its turn, and its tokens."""
        self._is_agent.append(role == "assistant")
        self._sums.append(self._sums[-1] + tokens)

    def count_tokens(self, start: int, end: int) -> int:
        """Tokens of the messages from `start` to before `end`."""
        return self._sums[end] - self._sums[start]

    def find_start(self, end: int) -> int:
        """Index of the first message shown to the agent's message at `end`. If messages are left out, it is an agent
        message, so that no result appears without its call; unless no agent message fits with what follows it."""
        if self._window == "sliding":
            return self._find_latest(end, self.room)
        # Follow the cuts of all earlier steps, whether or not their prompts were asked for.
        for at in range(len(self._starts) - 1, end):
            self._starts.append(self._find_block_start(at) if self._is_agent[at] else self._starts[at])
        return self._find_block_start(end)

    def _find_block_start(self, end: int) -> int:
        start = self._starts[end]
        if self.count_tokens(start, end) <= self.room:
            return self._find_agent(start, end)
        after_cut = self._find_latest(end, int(self.room * KEPT_SHARE))
        if after_cut < end and self._is_agent[after_cut]:
            return after_cut
        start = self._find_latest(end, self.room)
        return next((at for at in range(end - 1, start, -1) if self._is_agent[at]), start)

    def _find_latest(self, end: int, room: int) -> int:
        """Start of the longest ending that fits into `room` tokens."""
        start = end
        while start > 0 and self.count_tokens(start - 1, end) <= room:
            start -= 1
        return self._find_agent(start, end)

    def _find_agent(self, start: int, end: int) -> int:
        """The first index from `start` on with an agent message; `start` if there is none, or nothing is left out."""
        return start if start == 0 else next((at for at in range(start, end) if self._is_agent[at]), start)


RENDERER_VERSION = "5"
BYTES_PER_TOKEN = 3.5
_PER_MESSAGE = 4
"""Approximate tokens that a chat template adds around a message."""

_MEANINGS = {
    ActionType.TOOL_CALL: "any other call: changes state elsewhere, installs, computes, moves",
    ActionType.RETRIEVAL: "looks for something by query or key",
    ActionType.FILE_READ: "shows a known file or directory",
    ActionType.FILE_WRITE: "creates or changes a file",
    ActionType.REPAIR: "redoes its own write or call after seeing it fail",
    ActionType.VERIFIER: "runs something to learn whether the state is right",
    ActionType.ASK_CLARIFICATION: "asks the user for something that it needs",
    ActionType.FINAL_ANSWER: "answers, or hands in the result",
    ActionType.BLOCKED: "declines, gives up, or hands over",
}
_ANSWERS: dict[TargetFormat, str] = {
    "type": 'one JSON object, {"action": TYPE}',
    "call": 'one JSON object, {"action": TYPE, "tool": NAME or null, "arguments": {...}}',
    "message": "the agent's next message, calls included",
}
OWN_HEADING = "\n\n# The agent's own instructions\n\n"
TOOLS_HEADING = "\n\n# The agent's tools\n\n"


class TokenCounter(msgspec.Struct, frozen=True):
    method: str
    """What it counts, for the manifest."""
    count: Callable[[str], int]

    def count_message(self, text: str) -> int:
        return self.count(text) + _PER_MESSAGE


def _count_bytes(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -int(-size // BYTES_PER_TOKEN)


@lru_cache(maxsize=4)
def make_token_counter(tokenizer: str | None) -> TokenCounter:
    """The counter of a Hugging Face `tokenizer.json`, or of the folder that contains it, without special tokens; with
    `None`, UTF-8 bytes / 3.5, which is close for English and code."""
    if tokenizer is None:
        return TokenCounter(f"utf-8 bytes / {BYTES_PER_TOKEN}", _count_bytes)
    from tokenizers import Tokenizer

    file = Path(tokenizer) / "tokenizer.json" if Path(tokenizer).is_dir() else Path(tokenizer)
    try:
        read = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise UsageError(f"{file}: is not a tokenizer.json: {error}") from None
    method = f"tokenizer {digest(read.to_str())}"
    return TokenCounter(method, lambda text: len(read.encode(text, add_special_tokens=False).ids))


TOKENS_PER_BIN = 256
"""The lengths of prompts are counted in steps of this many tokens."""


def count_lengths(tokens: Iterable[int]) -> Counter[int]:
    """Number of prompts by length in steps of `TOKENS_PER_BIN`."""
    return Counter(n // TOKENS_PER_BIN for n in tokens)


@lru_cache(maxsize=8)
def make_instruction(target: TargetFormat) -> str:
    """The fixed instruction: the only text in a prompt that is not from the trace."""
    task = f"You watch an agent at work and predict its next action.\nAnswer with {_ANSWERS[target]}."
    types = "\n".join(f"- {action}: {_MEANINGS[action]}" for action in ActionType)
    return task if target == "message" else f"{task}\n\nTYPE is one of:\n{types}"


_SEAM = 1000
"""Characters at the end of a turn that may be the beginning of a target, which the next message completes."""
_Given = tuple[tuple[Message, ...], tuple[ToolSpec, ...]]


class _Head(NamedTuple):
    system: ChatText
    task: list[str]
    cost: int
    """Tokens of the part of every prompt that is not history, including marks."""


class _History:
    """The messages of the history one by one, as prompts show them below a head, and which of them have room there."""

    def __init__(self, head: _Head, window: HistoryWindow) -> None:
        self.head = head
        self.window = window
        self.messages: list[ChatText] = []
        self.cut: list[bool] = []
        self._joined: dict[tuple[int, int], ChatText] = {}

    def add(self, message: ChatText, tokens: int, *, is_cut: bool) -> None:
        self.messages.append(message)
        self.cut.append(is_cut)
        self.window.add(message.role, tokens)

    def render(self, start: int, end: int) -> list[ChatText]:
        """The prompt with the messages from `start` to before `end`."""
        messages = self.messages
        at = start if start == end or messages[start].role == "assistant" else self._find_turn_end(start, end)
        prompt = [self.head.system, self._make_opening(start, at)]
        while at < end:
            begin, at = at, self._find_turn_end(at, end)
            prompt.append(messages[begin] if at - begin == 1 else self._join_turn(begin, at))
        if prompt[-1].role == "assistant":
            prompt.append(ChatText("user", AGENT_GOES_ON))
        return prompt

    def _find_turn_end(self, begin: int, end: int) -> int:
        """End of the turn that begins at a place: before the first message of the other side."""
        role, at = self.messages[begin].role, begin + 1
        while at < end and self.messages[at].role == role:
            at += 1
        return at

    def _make_opening(self, start: int, end: int) -> ChatText:
        """The first turn: the task, a mark for omitted messages, and messages before the agent's first."""
        mark = [make_omission_mark(start)] if start else []
        texts = [*self.head.task, *mark, *(message.content for message in self.messages[start:end])]
        return ChatText("user", JOIN.join(texts) if texts else AGENT_BEGINS)

    def _join_turn(self, begin: int, end: int) -> ChatText:
        if (begin, end) not in self._joined:
            texts = [message.content for message in self.messages[begin:end]]
            self._joined[begin, end] = ChatText(self.messages[begin].role, JOIN.join(texts))
        return self._joined[begin, end]


class Prompts:
    """The prompts of one trace. Nothing is cut as long as everything before a step has room; from the first step at
    which it has not, long messages are cut and the history is a window."""

    def __init__(
        self,
        trace: Trace,
        target: TargetFormat,
        max_tokens: int,
        counter: TokenCounter,
        window: Window,
        earlier: Prompts | None = None,
    ) -> None:
        """`earlier` are prompts of a trace that begins with the same messages; their rendered texts are reused."""
        messages = trace.messages
        self._counter, self._max, self._target = counter, max_tokens, target
        self._window: Window = window
        start = 0
        while start < len(messages) and messages[start].role == "system":
            start += 1
        first = start
        while first < len(messages) and messages[first].role not in ("assistant", "tool"):
            first += 1
        self._start, self._first = start, first
        """Indexes of the first messages of the task and of the history."""
        self._messages = messages
        self._given: _Given = (messages[:first], trace.tools)
        """What the head is made of."""
        if earlier is not None and earlier._given == self._given:
            self._whole, self._short = earlier._whole, earlier._short
        else:
            self._whole = _History(self._make_head(sys.maxsize), HistoryWindow(window, sys.maxsize))
            self._short: _History | None = None
            """With long messages cut; made when it is first needed."""
        self._rendered: dict[int, list[ChatText]] = {}
        self._digests: dict[int, bytes] = {}
        self._chosen: dict[int, tuple[_History, int, int]] = {}
        self._head_has_target: bool | None = None
        self._clean = 0
        """Number of messages at the beginning of the history that contain no target text."""
        self._clean_turn = ChatText("user", JOIN.join(self._whole.head.task))
        """The last turn of these messages, or its end."""

    def _make_head(self, limit: int) -> _Head:
        """The agent's own part and the task may have `limit` tokens each."""
        messages, tools = self._given
        own_part = self._render_own_part(self._read_own_text(), tools, limit)
        system = ChatText("system", make_instruction(self._target) + own_part)
        share = limit // max(1, self._first - self._start)
        task = [self._clip(make_shown_text(m), share) for m in messages[self._start :]]
        marks = [make_omission_mark(10**6), AGENT_GOES_ON, *([] if task else [AGENT_BEGINS])]
        return _Head(system, task, sum(map(self._counter.count_message, [system.content, *task, *marks])))

    def _read_own_text(self) -> str:
        return "\n\n".join(make_message_text(message) for message in self._messages[: self._start])

    def render(self, index: int) -> list[ChatText]:
        """The prompt for the assistant message at `index`. It depends only on what comes before its reply."""
        if index not in self._rendered:
            history, start, end = self._choose(index)
            self._rendered[index] = history.render(start, end)
        return self._rendered[index]

    def find_digest(self, index: int) -> bytes:
        if index not in self._digests:
            self._digests[index] = digest_prompt(self.render(index))
        return self._digests[index]

    def find_shown(self, index: int) -> range:
        """Indexes of the messages of the history that the prompt at `index` shows."""
        _, start, end = self._choose(index)
        return range(self._first + start, self._first + end)

    def shows_whole(self, index: int, shown: int) -> bool:
        """Whether the prompt at `index` shows the step at `shown` and its results, up to the agent's next reply,
        without a cut."""
        history, start, end = self._choose(index)
        at = shown - self._first
        if not start <= at < end:
            return False
        roles = [message.role for message in history.messages[at:end]]
        # further calls of the same reply may stand before the results
        after = (i for i in range(1, len(roles)) if roles[i] == "assistant" != roles[i - 1])
        return not any(history.cut[at : at + next(after, len(roles))])

    def has_room(self, index: int) -> bool:
        """Whether the prompt for the message at `index` has room for system, task and latest message."""
        history, _, end = self._choose(index)
        latest = history.window.count_tokens(end - 1, end) if end > 0 else 0
        return history.head.cost + latest <= self._max

    def has_target_before(self, index: int) -> bool:
        """Whether text that looks like a target appears before the message at `index`, for example because the agent
        worked on a dataset like this. Text that only appears when messages of a turn are joined counts too."""
        before = self._render_to(index)
        if self._head_has_target is None:
            head = (self._read_own_text(), self._whole.head.system.content, self._clean_turn.content)
            self._head_has_target = any(map(has_target, head))
        while self._clean < before:
            role, text = self._whole.messages[self._clean]
            before_it = self._clean_turn.content[-_SEAM:] + JOIN if role == self._clean_turn.role else ""
            turn = ChatText(role, before_it + text)
            if has_target(turn.content):
                break
            self._clean_turn = turn
            self._clean += 1
        return self._head_has_target or self._clean < before

    def _render_to(self, index: int) -> int:
        """Render the messages before the reply at `index`; returns how many of the history there are. The agent's words
        directly before a step begin its reply, which some sources keep apart: whoever guesses has not seen them yet."""
        messages = self._messages
        while index > self._first and messages[index - 1].role == "assistant" and not messages[index - 1].tool_calls:
            index -= 1
        for at in range(self._first + len(self._whole.messages), index):
            message = messages[at]
            text = frame_text(message, make_shown_text(message))
            self._whole.add(ChatText(find_side(message), text), self._counter.count_message(text), is_cut=False)
        return max(0, index - self._first)

    def _choose(self, index: int) -> tuple[_History, int, int]:
        if index not in self._chosen:
            self._chosen[index] = self._find_history(index)
        return self._chosen[index]

    def _find_history(self, index: int) -> tuple[_History, int, int]:
        end = self._render_to(index)
        if self._whole.head.cost + self._whole.window.count_tokens(0, end) <= self._max:
            return self._whole, 0, end
        if self._short is None:
            head = self._make_head(self._max // 4)
            self._short = _History(head, HistoryWindow(self._window, self._max - head.cost))
        short = self._short
        for at in range(len(short.messages), end):
            shown, tokens = self._whole.messages[at], self._whole.window.count_tokens(at, at + 1)
            message, limit = self._messages[self._first + at], self._max // 5
            is_cut = tokens - _PER_MESSAGE > limit
            if is_cut:
                room = limit - self._counter.count(frame_text(message, ""))
                shown = ChatText(shown.role, frame_text(message, self._clip(make_shown_text(message), room)))
                tokens = self._counter.count_message(shown.content)
            short.add(shown, tokens, is_cut=is_cut)
        return short, short.window.find_start(end), end

    def _render_own_part(self, own: str, tools: tuple[ToolSpec, ...], limit: int) -> str:
        """The agent's own system text and its tools in `limit` tokens. Tools that the system text explains are not
        repeated."""
        count = self._counter.count
        part = OWN_HEADING + own if own else ""
        if all(is_described(tool, own) for tool in tools):
            return self._clip(part, limit)
        room = max(limit // 2, limit - count(part))
        lines = [encode_tool(tool) for tool in tools]
        if count(TOOLS_HEADING + "\n".join(lines)) > room:
            lines = self._clip_evenly(lines, room - count(TOOLS_HEADING))
        listed = TOOLS_HEADING + "\n".join(lines)
        return self._clip(self._clip(part, max(0, limit - count(listed))) + listed, limit)

    def _clip_evenly(self, lines: list[str], limit: int) -> list[str]:
        """The lines in about `limit` tokens: short ones whole, and the rest of the room shared by the long ones."""
        sizes = [self._counter.count(line) + 1 for line in lines]
        clipped = [*lines]
        for place, index in enumerate(sorted(range(len(lines)), key=sizes.__getitem__)):
            share = max(0, limit // (len(lines) - place) - 1)
            clipped[index] = self._clip(lines[index], share)
            limit -= min(sizes[index], share)
        return clipped

    def _clip(self, text: str, limit: int) -> str:
        """The text, or its beginning and end if it is longer than `limit` tokens; the same at every step."""
        size = self._counter.count(text)
        if size <= limit:
            return text
        keep = len(text) * max(0, limit) // size
        while True:
            keep = max(0, keep * 9 // 10 - 16)
            head, tail = keep * 2 // 3, keep - keep * 2 // 3
            clipped = text[:head] + make_cut_mark(len(text) - keep) + (text[-tail:] if tail else "")
            if keep == 0 or self._counter.count(clipped) <= limit:
                return clipped


_TASK = Task(id="agent", group="agent")
_PROVENANCE = Provenance(origin="imported", source="agent")


class PromptRenderer:
    """Renders prompts like those of a dataset for other messages."""

    def __init__(self, dataset: str | Path, *, tokenizer: str | Path | None = None) -> None:
        """
        Args:
            dataset: The dataset that the proposer was trained on; only its manifest is read.
            tokenizer: The tokenizer that the dataset was built with.

        Raises:
            BuildError: `dataset` was not built by foretrace, or its prompts differ from those of this version.
            UsageError: the dataset was built with another tokenizer.
        """
        try:
            manifest = msgspec.json.decode((Path(dataset) / "manifest.json").read_bytes())
            version, counted_by = manifest["versions"]["renderer"], manifest["token_counter"]
            self._settings: dict[str, Any] = manifest["settings"]
        except (OSError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise BuildError(f"{dataset}: is not a foretrace dataset: {error}") from None
        if version != RENDERER_VERSION:
            raise BuildError(
                f"{dataset}: its prompts are of version {version} of the renderer, and this is version "
                f"{RENDERER_VERSION}: build and train again, or use the foretrace that built it"
            )
        file = None if tokenizer is None else str(tokenizer)
        self._counter = make_token_counter(file)
        if self._counter.method != counted_by:
            why = f": the dataset's prompts are counted by {counted_by}, and not by {self._counter.method}"
            raise UsageError(Setting("tokenizer", file), why)

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> list[dict[str, str]]:
        """The prompt for the agent's next message: `{"role", "content"}` messages for a chat server.

        Args:
            messages: The conversation so far, from its beginning.
            tools: The tools the agent is offered.
        """
        trace = Trace(key="", task=_TASK, messages=tuple(messages), tools=tuple(tools), provenance=_PROVENANCE)
        target, most, window = (self._settings[name] for name in ("target", "max_context_tokens", "window"))
        prompts = Prompts(trace, target, most, self._counter, window)
        return [message._asdict() for message in prompts.render(len(messages))]
