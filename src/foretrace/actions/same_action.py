"""The one definition of "the same action", used wherever a prediction is compared with what was done."""

from __future__ import annotations

import json
import posixpath
import re
from functools import lru_cache
from typing import Any, Literal

import msgspec

from foretrace.actions.call_facts import split_words
from foretrace.actions.shell.parse import tokenize
from foretrace.actions.taxonomy import ActionType
from foretrace.actions.tool_tables import PATH_KEYS, TOOL_GROUPS, to_snake_case

MatchLevel = Literal["exact", "normalized", "type"]
"""From the strictest to the loosest: actions that are the same at one level are the same at all later ones."""

_VERBATIM = split_words(
    "file_text old_str new_str old_string new_string oldString newString content contents text code source message"
    " thought replacement_text insert_text patch diff query pattern answer final_answer regex"
)
"""Arguments that are compared as text, so that `1` and `1.0` differ."""
_COMMAND_KEYS = ("command", "cmd", "script", "commands", "keystrokes")
_LITERAL = re.compile(r"\s*(?:-?\d[\d.eE+-]*|true|false|null|True|False|None|\[[\s\S]*\]|\{[\s\S]*\})\s*\Z")
_PATH_LIKE = re.compile(r"[\w.@%+=:,-]*(?:/[\w.@%+=:,-]*)+\Z|[\w-]+(?:\.[A-Za-z]\w{0,5})+\Z|\.{1,2}\Z")
_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One action: what was done, or what a model predicts."""

    type: ActionType | None
    tool: str = ""
    """Name of the tool, empty for a message without a call."""
    arguments: str = ""
    """Arguments as JSON text, or the text of a message without a call."""


def make_call_key(action: Action, level: MatchLevel = "normalized") -> tuple[str, ...]:
    """Make a hashable value that is equal for actions that are the same.

    Args:
        action: what was done, or is predicted.
        level: `exact` compares type, tool and arguments (as JSON: order of keys and spaces do not count);
            `normalized` ignores how they are written: paths, numbers as text, spaces and quotes of shell
            commands, a leading `cd`; `type` compares only the action type.
    """
    kind = action.type.value if action.type is not None else ""
    if level == "type":
        return (kind,)
    if level == "exact":
        return kind, action.tool, canonicalize_json(action.arguments)
    tool = to_snake_case(action.tool) or action.tool
    return kind, tool, _normalize_arguments(action.tool, action.arguments)


def canonicalize_json(arguments_json: str) -> str:
    """Write JSON text with sorted keys and without spaces; text that is not JSON is returned as it is."""
    try:
        return _dump(json.loads(arguments_json))
    except (ValueError, RecursionError):
        return arguments_json


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=512)
def _normalize_arguments(tool: str, arguments_json: str) -> str:
    try:
        value = json.loads(arguments_json) if arguments_json.strip() else {}
        if not isinstance(value, dict):
            return _dump(value) if not isinstance(value, str) else _dump(value.strip())
        is_shell = TOOL_GROUPS.get(to_snake_case(tool)) == "shell"
        return _dump(
            {name: _normalize_argument(name, each, is_shell) for name, each in value.items() if each is not None}
        )
    except (ValueError, RecursionError):
        return arguments_json.strip()


def _normalize_argument(name: str, value: Any, is_shell: bool) -> Any:
    if not isinstance(value, str):
        return _normalize_numbers(value)
    if is_shell and name in _COMMAND_KEYS:
        return _normalize_command(value)
    if name in PATH_KEYS:
        return _normalize_path(value.strip())
    return value if name in _VERBATIM else _normalize_numbers(_parse_untyped(value))


def _parse_untyped(text: str) -> Any:
    """Parse a text that stands for a value: `[1, 50]`, `3`, `true`; any other comes back without outer spaces."""
    if len(text) <= 400 and _LITERAL.match(text):
        try:
            return json.loads(_PYTHON_WORDS.get(text.strip(), text))
        except (ValueError, RecursionError):
            pass
    return text.strip()


def _normalize_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_normalize_numbers(_parse_untyped(v) if isinstance(v, str) else v) for v in value]
    if isinstance(value, dict):
        return {k: _normalize_numbers(v) for k, v in value.items()}
    return value


def _normalize_path(path: str, folder: str = "") -> str:
    if not path or "://" in path:
        return path
    joined = posixpath.join(folder, path) if folder and not path.startswith(("~", "$")) else path
    normal = posixpath.normpath(joined)
    # POSIX keeps a leading `//` apart; no tool does.
    return normal[1:] if normal.startswith("//") else normal


def _normalize_command(command: str) -> str:
    """Write a shell command in one way for all that do the same; for comparison only.

    Spaces outside quotes and the way of quoting do not count. A leading `cd DIR &&` is joined to the operands when all
    of them are plainly paths; otherwise it stays, because `cd a && make` and `cd b && make` are not the same.
    """
    tokens = tokenize(command)
    if tokens is None:
        return command.strip()
    cwd, rest = _split_leading_cd(tokens)
    resolved = _resolve_operands(rest, cwd)
    if resolved is None:
        resolved = [("mark", f"cd {cwd} &&"), *rest] if cwd else rest
    return " ".join(text for _, text in resolved)


def _split_leading_cd(tokens: list[tuple[str, str]]) -> tuple[str, list[tuple[str, str]]]:
    """Split off the leading `cd`s: the directory that they lead to, and the other tokens."""
    cwd = ""
    ends = (("mark", "&&"), ("mark", ";"))
    while len(tokens) > 3 and tokens[0] == ("word", "cd") and tokens[1][0] == "word" and tokens[2] in ends:
        cwd = posixpath.join(cwd, tokens[1][1].strip("'"))
        tokens = tokens[3:]
    return _normalize_path(cwd), tokens


def _resolve_operands(tokens: list[tuple[str, str]], cwd: str) -> list[tuple[str, str]] | None:
    """Resolve every operand against `cwd`; `None` when one of them is not plainly a path."""
    resolved: list[tuple[str, str]] = []
    at_start = True
    for kind, text in tokens:
        if kind != "word" or at_start or text.startswith("-"):
            if kind in ("raw", "body") and cwd:
                return None
            at_start = kind == "mark" and text not in (">", ">>", "<", "&>", "2>", ">&")
            resolved.append((kind, text))
        elif _PATH_LIKE.match(text) and "//" not in text:
            resolved.append((kind, _normalize_path(text, cwd)))
        elif cwd:
            return None
        else:
            resolved.append((kind, text))
    if cwd and not any(kind == "word" and text.startswith("/") for kind, text in resolved):
        return None
    return resolved
