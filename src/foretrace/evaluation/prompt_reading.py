"""Parse a prompt of a dataset back into the task and the turns with their calls and results, and find the working
directory and the files that it names.

Only this module knows what prompts look like. It relies on structure and handles both renderers: tool results as user
messages, or in `<tool_response>` tags inside them, with consecutive turns of one side in one message.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from foretrace.actions.call_facts import CallKind
from foretrace.actions.label_steps import label_trace
from foretrace.actions.taxonomy import StepLabel
from foretrace.actions.tool_rules import classify_call
from foretrace.core.trace import Message, Provenance, Task, ToolCall, Trace
from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.encodings.calls_in_text import find_calls
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_calls import JSON_ACTION, REACT
from foretrace.encodings.text_bodies import CODE_FENCE, TAGGED_CODE
from foretrace.encodings.web_actions import WEB_CALL, WEB_FENCE

_RESPONSE = re.compile(r"<tool_response>\n?(.*?)\n?</tool_response>", re.DOTALL)
_OMISSION = re.compile(r"^\[\d+ earlier messages? left out\]\n*", re.MULTILINE)
_CACHED_TEXTS = 4096
"""Rows of one trace lie near each other, so more are hardly asked for twice; each takes about 5 KB."""
_WITHOUT_TAGS = (REACT, JSON_ACTION, ACTION_LINE, FENCE, CODE_FENCE, TAGGED_CODE, WEB_CALL, WEB_FENCE)
"""Encodings whose calls look like other text: they count only if they name a known tool."""
_TASK = Task(id="prompt", group="prompt")
_PROVENANCE = Provenance(origin="imported", source="prompt")


class PastTurn(NamedTuple):
    """One turn of the agent that a prompt shows."""

    text: str
    calls: tuple[ToolCall, ...]
    result: str
    """The answer to it: tool results or a user message; empty if there was none."""
    label: StepLabel


class PromptView(NamedTuple):
    """The contents of a prompt."""

    system: str
    task: str
    """What the user asked for before the agent did anything."""
    turns: tuple[PastTurn, ...]
    """The turns that the prompt still shows, oldest first."""

    @property
    def last_result(self) -> str:
        """What the agent saw last: the last result, or the task if there are no turns."""
        return self.turns[-1].result if self.turns else self.task


def read_prompt(prompt: Sequence[tuple[str, str]], tools: Collection[str] = ()) -> PromptView:
    """Read a prompt, a list of (role, content). Parsed messages are cached, since the prompts of one trace share them.
    Calls in encodings without tags are found only for the named `tools`."""
    names = frozenset(tools)
    system = "\n\n".join(content for role, content in prompt if role == "system")
    head: list[str] = []
    messages: list[Message] = []
    for role, content in prompt:
        if role == "assistant":
            calls = _find_calls(content, names)
            messages.append(Message(role="assistant", author="model", content=content, tool_calls=calls))
        elif role != "system" and messages:
            messages.append(Message(role="user", author="environment", content=_unwrap_results(content)))
        elif role != "system":
            head.append(_OMISSION.sub("", content))
    return PromptView(system, "\n\n".join(filter(None, head)), _make_turns(messages))


@lru_cache(_CACHED_TEXTS)
def _find_calls(text: str, tools: frozenset[str]) -> tuple[ToolCall, ...]:
    if calls := tuple(call for call in find_calls(text) if call.error is None):
        return calls
    for encoding in _WITHOUT_TAGS:
        calls = tuple(encoding.parse(text))
        if calls and all(call.error is None and call.name in tools for call in calls):
            return calls
    return ()


@lru_cache(_CACHED_TEXTS)
def _unwrap_results(content: str) -> str:
    """The results without their tags, along with what the user said next to them."""
    if "<tool_response>" not in content:
        return _OMISSION.sub("", content)
    return _OMISSION.sub("", _RESPONSE.sub(lambda match: match[1], content)).strip("\n")


def _make_turns(messages: list[Message]) -> tuple[PastTurn, ...]:
    labels = label_trace(Trace(key="prompt", task=_TASK, messages=tuple(messages), provenance=_PROVENANCE))
    turns: list[PastTurn] = []
    starts = [label.index for label in labels]
    for label, end in zip(labels, [*starts, len(messages)][1:], strict=True):
        message = messages[label.index]
        result = "\n".join(each.content for each in messages[label.index + 1 : end])
        turns.append(PastTurn(message.content, message.tool_calls, result, label))
    return tuple(turns)


_FOLDER = r"/[A-Za-z_][\w.@+-]*(?:/[\w.@+-]+){0,3}"
_ROOT_LINE = re.compile(rf"^({_FOLDER})/?$", re.MULTILINE)
_CD = re.compile(rf"\bcd ({_FOLDER})/? *(?:&&|;)")
_ROOT = re.compile(rf"(?<![\w./~<:-]){_FOLDER}(?=[\s`'\"<,)]|$)", re.MULTILINE)
_NO_ROOTS = ("/usr", "/bin", "/etc", "/tmp", "/dev", "/proc")
_ENDINGS = (
    r"bat|bib|bin|c|cc|cfg|cjs|conf|cpp|cs|css|csv|cts|cxx|dart|db|env|ex|exs|gif|go|gradle|groovy|h|hpp|"
    r"html|hs|ini|ipynb|java|jpg|js|json|jsonl|jsx|kt|lock|log|lua|md|mjs|ml|mts|out|parquet|patch|pdf|php|"
    r"pkl|pl|png|proto|ps1|py|pyi|pyx|r|rb|rs|rst|scala|sh|sql|svg|svelte|swift|tex|toml|ts|tsv|tsx|txt|"
    r"vue|xml|yaml|yml|zig|zip"
)
"""Extensions by which a name without a folder is recognized as a file."""
FILE = re.compile(
    r"(?:(?<![\w/.@+<*-])|(?<=\*/)|(?<=://))(?:(?:~?/|\.{1,2}/)?(?:[\w.@+-]+/)+[\w@+-][\w.@+-]*\.[A-Za-z][A-Za-z0-9]{0,7}"
    rf"|(?:~?/|\.{{1,2}}/)?[\w+-][\w.+-]*\.(?:{_ENDINGS}))(?![\w/])"
)
"""A path with any extension, or a bare name with a known one."""
_FOREIGN = re.compile(r"(?:^|/)(?:site-packages|node_modules|build|dist|\.\w+)/")
_IN_A_DIFF = re.compile(r"^[ab]/")
_READ_CHARS = 6000
"""Characters of a text that are searched, half at its beginning and half at its end."""
_LISTED_FILES = 60
"""Most files of one text that are considered."""
_CALL_MARK = re.compile(r"<tool_call|<function|```")


class NamedFile(NamedTuple):
    """A file that a prompt names, and where it is named."""

    path: str
    """Relative to the working directory if it is in it."""
    in_result: int
    """Its position among the files of the last result, from 0; -1 if it is not there."""
    calls: int
    """Number of past calls that named it."""
    turns_ago: int
    """Turns since it was last named by a call or listed in a result; 0 is the last turn."""


def find_root(view: PromptView) -> str:
    """The working directory: one on a line of its own in the task, else one that a command changed to, else the first
    absolute folder in the task or the system text; empty if there is none."""
    if match := _ROOT_LINE.search(view.task[:_READ_CHARS]):
        return match[1]
    for turn in view.turns:
        for call in turn.calls:
            if match := _CD.search(call.arguments):
                return match[1]
    for text in (view.task, view.system):
        if found := _find_folder(text[:20_000]):
            return found
    return ""


@lru_cache(maxsize=4096)
def _find_folder(text: str) -> str:
    for match in _ROOT.finditer(text):
        if "." not in posixpath.basename(match[0]) and not match[0].startswith(_NO_ROOTS):
            return match[0]
    return ""


def list_created(view: PromptView, root: str) -> list[str]:
    """Files that the agent created, in the order they were first named. Files of the working directory that it ran
    count too, since the calls that created them may be left out of the prompt."""
    found: dict[str, None] = {}
    for call in (call for turn in view.turns for call in turn.calls):
        facts = classify_call(call.name, call.arguments)
        if facts.creates:
            found.update(dict.fromkeys(make_relative(path, root) for path in facts.writes))
        elif facts.kind is CallKind.VERIFY:
            found.update((path, None) for path in find_files(call.arguments, root) if "/" not in path)
    return [*found]


def list_files(view: PromptView, root: str, limit: int) -> list[NamedFile]:
    """At most `limit` files that a prompt names, those most likely to be used first.

    Files last created, written or read, or just named, come first; tests and installed, built or hidden files last.
    """
    named: dict[str, tuple[int, int]] = {}
    """Path -> (turns ago, calls)."""
    created = edited = viewed = ""
    for ago, turn in reversed([*enumerate(reversed(view.turns))]):
        for call in turn.calls:
            facts = classify_call(call.name, call.arguments)
            for path in find_files(call.arguments, root):
                named[path] = ago, named.get(path, (0, 0))[1] + 1
            if facts.writes:
                edited = make_relative(facts.writes[-1], root)
                created = edited if facts.creates else created
            if facts.kind is CallKind.READ and facts.reads:
                viewed = make_relative(facts.reads[-1], root)
        for path in find_files(turn.result, root):
            named[path] = ago, named.get(path, (0, 0))[1]
    in_task, in_text = ({*find_files(text, root)} for text in (view.task, find_text(view)))
    in_result = {path: place for place, path in reversed([*enumerate(find_files(view.last_result, root))])}
    for path in [*sorted(in_task | in_text), *in_result]:
        named.setdefault(path, (0 if path in in_result else len(view.turns), 0))

    def weigh(file: NamedFile) -> tuple[float, str]:
        path = file.path
        special = 3.0 * (path in (created, edited, viewed)) + 2.0 * (path in in_task) + 3.0 * (path in in_text)
        last = ("test" in path) + 2.0 * (_FOREIGN.search(path) is not None)
        place = 0.2 * min(file.turns_ago, 20) + 0.1 * min(max(file.in_result, 0), 20)
        return special + 2.0 * min(file.calls, 2) - last - place, path

    found = [NamedFile(path, in_result.get(path, -1), calls, ago) for path, (ago, calls) in named.items()]
    return sorted(found, key=weigh, reverse=True)[:limit]


def find_text(view: PromptView) -> str:
    """The agent's last message up to its call."""
    text = view.turns[-1].text if view.turns else ""
    mark = _CALL_MARK.search(text)
    return text[: mark.start()] if mark else text


def list_names(view: PromptView) -> set[str]:
    texts = [view.task, *(turn.result for turn in view.turns)]
    texts += [call.arguments for turn in view.turns for call in turn.calls]
    return {name for text in texts for name in _find_names(text)}


@lru_cache(maxsize=16_384)
def _find_names(text: str) -> frozenset[str]:
    return frozenset(map(posixpath.basename, _find_paths(text)))


def find_files(text: str, root: str) -> list[str]:
    """Distinct files in a text, in order; relative to the working directory if they are in it."""
    return [*dict.fromkeys(make_relative(path, root) for path in _find_paths(text))]


@lru_cache(maxsize=16_384)
def _find_paths(text: str) -> Sequence[str]:
    text = clip(text, _READ_CHARS // 2)
    # File names have a dot and no blanks; leaving out the many words without a dot is faster than searching them.
    paths = dict.fromkeys(FILE.findall(" ".join(word for word in text.split() if "." in word)))
    if "diff --git" in text:
        paths = dict.fromkeys(_IN_A_DIFF.sub("", path) for path in paths)
    return tuple(paths)[:_LISTED_FILES]


def make_relative(path: str, root: str) -> str:
    """A path without the working directory if it is in it."""
    path = path.removeprefix("./")
    return path[len(root) + 1 :] if root and path.startswith(root + "/") else path


def clip(text: str, characters: int) -> str:
    """A text, or this many characters at each of its ends if it is longer than both."""
    return text if len(text) <= 2 * characters else f"{text[:characters]}\n{text[-characters:]}"
