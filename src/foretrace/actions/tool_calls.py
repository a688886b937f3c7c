"""What a tool call means: by the tool's name and its arguments, never by the words around the call."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.meaning import OPEN_FILE, TESTED, Kind, Meaning, meaning, words
from foretrace.actions.python_code import read_cell
from foretrace.actions.shell.commands import read_shell
from foretrace.actions.sql import sql_reads
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_names import (
    CHANGE_VERBS,
    COMPUTE_VERBS,
    DATA_NOUNS,
    PATH_KEYS,
    READ_VERBS,
    SPECIAL,
    TOOLS,
    words_of,
)

Arguments = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_PREFIX = re.compile(r"^(?:functions?|tools?|default_api)[.:/]|^mcp__.+?__")
_PATCH_PATH = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)([^\n\t]+)", re.M)
_FIRST_PATH = re.compile(r"\s*([\"']?)([^\s\"']+)\1")
_URL = re.compile(r"https?://|www\.")
_NO_ANSWER = re.compile(r"\W*(?:idk|none)?\W*\Z", re.I)
_OLD_KEYS = ("old_str", "old_string", "oldString", "search", "to_replace", "old_text")
_NEW_KEYS = (
    "new_str", "new_string", "newString", "file_text", "content", "replacement_text", "replace",
    "new_content", "text",
    "markdown", "patch", "diff", "input", "code", "contents", "insert_text", "new_text", "edits",
)  # fmt: skip
_SHELL_KEYS = ("command", "cmd", "commands", "script", "input", "code", "cmds", "CommandLine")
_CODE_KEYS = ("code", "source", "script", "input", "cell", "python_code", "command")
_QUERY_KEYS = ("query", "sql", "statement", "input", "command", "code")
_AGENT_LINE = re.compile(
    r"\s*(?:(open|create|goto|scroll_up|scroll_down|search_dir|search_file|find_file)\b([^\n&|;]*)\s*\Z"
    r"|(edit)\s+(\d+:\d+\s*\n.*))",
    re.S,
)
"""A command of SWE-agent's own, sent as a line of its shell."""
_HANDOVER_TO = words("human agent agents representative operator support person staff specialist")
_HANDOVER = words("transfer escalate handoff handover forward connect")
_FILE_WORDS = words("file files docx document notebook xlsx pptx markdown csv json")


def read_call(name: str, arguments: str) -> Meaning:
    """What one tool call means.

    Args:
        name: the tool's name; prefixes such as `functions.` and `mcp__server__` are ignored.
        arguments: its arguments as JSON text; text that is no JSON object counts as one positional argument.
    """
    # Long arguments would only fill the cache: they hardly ever repeat.
    return (_read_call if len(arguments) < 2000 else _read_call.__wrapped__)(name, arguments)


@lru_cache(maxsize=512)
def _read_call(name: str, arguments: str) -> Meaning:
    plain = _PREFIX.sub("", name.strip())
    snake = _snake(plain)
    values = arguments_of(arguments)
    reader = _READERS.get(SPECIAL.get(snake, ""))
    if reader is not None:
        return reader(snake, values)
    known = TOOLS.get(snake)
    if known is not None:
        return _known(snake, known, values)
    return _by_words(plain, values)


@lru_cache(maxsize=512)
def _snake(name: str) -> str:
    return "_".join(words_of(name))


def arguments_of(arguments: str) -> Arguments:
    """The arguments as a mapping; anything that is no JSON object is `{"input": text}`."""
    try:
        value = _decode(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return {"input": arguments}
    return value if isinstance(value, dict) else {"input": value}


def _first(values: Arguments, keys: tuple[str, ...]) -> str:
    """The first of `keys` that has text; lists of text are joined."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return "\n".join(v if isinstance(v, str) else str(v) for v in value[:200])
    return ""


def _any_text(values: Arguments, keys: tuple[str, ...]) -> str:
    return _first(values, keys) or next((v for v in values.values() if isinstance(v, str)), "")


def _path(values: Arguments) -> str:
    return _first(values, PATH_KEYS)


def _shell(name: str, values: Arguments) -> Meaning:
    given = next((values[key] for key in _SHELL_KEYS if values.get(key)), None)
    if str(values.get("is_input", "")).lower() == "true":
        return meaning(Kind.OTHER, "shell.input", Effect.SANDBOX_EXEC)
    if isinstance(given, list):
        words = [str(word) for word in given[:200]]
        # ["bash", "-lc", "cd x && make"] names the shell itself.
        joined = words[2] if len(words) == 3 and re.match(r"-[a-z]*c$", words[1]) else " ".join(words)
        return read_shell(joined)
    text = given if isinstance(given, str) else _any_text(values, _SHELL_KEYS)
    if re.fullmatch(r"\s*(?:[Cc]trl\+[a-z]|C-[a-z])?\s*", text):
        return meaning(Kind.OTHER, "shell.input", Effect.SANDBOX_EXEC)
    if line := _AGENT_LINE.match(text):
        tool, rest = line[1] or line[3], line[2] if line[1] else line[4]
        return _known(tool, TOOLS[tool], {"input": rest.strip()})
    return read_shell(text)


def _code(name: str, values: Arguments) -> Meaning:
    code = _any_text(values, _CODE_KEYS)
    stripped = code.lstrip()
    if stripped.startswith(("!", "%%bash", "%bash", "%%sh")):
        found = read_shell(re.sub(r"^\s*(?:!|%%?(?:bash|sh)\n?)", "", code))
        return msgspec.structs.replace(found, redo=found.redo or "code", payload=found.payload or code[:4000])
    return read_cell(code, _kind_by_name)


def _kind_by_name(name: str) -> Kind | None:
    """The kind of a function that a code cell calls, where its name is one of a tool that reads or writes."""
    if name in ("open", "view", "type", "count", "input", "look", "use", "act", "go", "move", "put", "take", "edit"):
        return None
    snake = _snake(name)
    known = TOOLS.get(snake)
    if known is not None:
        return known[0]
    words = snake.split("_")
    return Kind.SEARCH if (words[0] in READ_VERBS and len(words) > 1) or words[-1] == "search" else None


def _editor(name: str, values: Arguments) -> Meaning:
    command = str(values.get("command", "")).strip()
    path = _path(values)
    if command == "view":
        return meaning(Kind.READ, "tool.view", reads=(path,))
    if command == "undo_edit":
        return meaning(Kind.UNDO, "tool.undo", writes=(path,))
    if command in ("create", "str_replace", "insert", "write", "edit", "append", "replace"):
        return _write(f"tool.{command}", values, creates=command in ("create", "write"))
    return meaning(Kind.OTHER, "tool.editor", Effect.UNKNOWN)


def _write(rule: str, values: Arguments, *, creates: bool) -> Meaning:
    path = _path(values)
    if not path and creates:
        # SWE-agent's `create FILE`: the only argument is the path.
        found = _FIRST_PATH.match(_first(values, ("input",)))
        path = found.group(2) if found else ""
    return meaning(
        Kind.WRITE,
        rule,
        writes=(path or OPEN_FILE,),
        payload=_first(values, _NEW_KEYS)[:4000],
        replaced=_first(values, _OLD_KEYS)[:4000],
        creates=creates,
    )


def _patch(name: str, values: Arguments) -> Meaning:
    text = _any_text(values, ("input", "patch", "diff", "patchText"))
    paths = [path.strip() for path in _PATCH_PATH.findall(text[:200_000])]
    path = _path(values)
    writes = tuple(dict.fromkeys(p for p in [*paths, path] if p and p != "/dev/null"))
    creates = "*** Update File" not in text and "*** Add File" in text
    return meaning(Kind.WRITE, "tool.patch", writes=writes or (OPEN_FILE,), payload=text[:4000], creates=creates)


def _sql(name: str, values: Arguments) -> Meaning:
    text = _any_text(values, _QUERY_KEYS)
    if sql_reads(text):
        return meaning(Kind.SEARCH, "tool.sql", redo="sql", payload=text[:4000])
    return meaning(Kind.OTHER, "tool.sql_change", Effect.EXTERNAL_WRITE, redo="sql", payload=text[:4000])


def _terminal(name: str, values: Arguments) -> Meaning:
    if str(values.get("return_type", "")).startswith("give_up"):
        return meaning(Kind.GIVE_UP, "terminal_give_up")
    given = next((values[key] for key in ("answer", "final_answer", "input") if key in values), None)
    if isinstance(given, str) and name != "stop" and _NO_ANSWER.match(given[:40]) and (given or name == "answer"):
        return meaning(Kind.GIVE_UP, "terminal_no_answer")
    return meaning(Kind.TERMINAL, "terminal_call")


def _ask(name: str, values: Arguments) -> Meaning:
    return meaning(Kind.ASK, "ask_call")


def _say(name: str, values: Arguments) -> Meaning:
    if name == "report_infeasible":
        return meaning(Kind.GIVE_UP, "terminal_give_up")
    return meaning(Kind.SAY, "say_call", payload=_any_text(values, ("text", "message", "content", "input"))[:8000])


def _give_up(name: str, values: Arguments) -> Meaning:
    return meaning(Kind.GIVE_UP, "terminal_give_up")


_READERS: dict[str, Callable[[str, Arguments], Meaning]] = {
    "shell": _shell,
    "code": _code,
    "editor": _editor,
    "sql": _sql,
    "patch": _patch,
    "terminal": _terminal,
    "give_up": _give_up,
    "ask": _ask,
    "say": _say,
}
"""How the tools of `SPECIAL` are read."""


def _known(name: str, known: tuple[Kind, Effect | None], values: Arguments) -> Meaning:
    kind, effect = known
    if kind is Kind.WRITE:
        return _write(f"tool.{name}", values, creates=name.startswith(("create", "write", "save", "overwrite")))
    if kind in (Kind.READ, Kind.UNDO):
        path = _path(values)
        if not path:
            found = _FIRST_PATH.match(_first(values, ("input",)))
            path = found.group(2) if found else ""
        if name in ("open", "goto", "view") and (_URL.match(path) or values.get("url") or values.get("id")):
            return meaning(Kind.OTHER, "tool.navigate", Effect.EXTERNAL_WRITE)
        paths = (path,) if path else ()
        return meaning(
            kind, f"tool.{name}", reads=paths if kind is Kind.READ else (), writes=() if kind is Kind.READ else paths
        )
    if kind is Kind.VERIFY and isinstance(code := values.get("code"), str) and code:
        # The call brings the code that it tests: sent again with other code, it does that over.
        return meaning(kind, f"tool.{name}", effect, redo=TESTED, payload=code)
    return meaning(kind, f"tool.{name}", effect)


def _by_words(name: str, values: Arguments) -> Meaning:
    """A tool that no table names: by the words that its name is made of."""
    # ToolBench writes `api_for_tool`: only the api says what is done.
    api, marker, _ = name.rpartition("_for_")
    words = [word for word in words_of(api or name) if not re.fullmatch(r"v?\d*", word)]
    if not words:
        return meaning(Kind.OTHER, "tool.unknown", Effect.UNKNOWN)
    first, last = words[0], words[-1]
    if _HANDOVER & set(words) and _HANDOVER_TO & set(words_of(name)) and first not in READ_VERBS:
        return meaning(Kind.HANDOVER, "hand_over")
    redo = {"redo": name, "payload": msgspec.json.encode(values).decode()[:4000]}
    if first in READ_VERBS and words[1:2] not in (["in"], ["out"]):
        if (_FILE_WORDS & set(words) and first in ("read", "view", "show")) or words[1:] == ["directory"]:
            return meaning(Kind.READ, "tool.read_words", reads=tuple(filter(None, (_path(values),))))
        return meaning(Kind.SEARCH, "tool.read_verb")
    if first in ("write", "edit", "append", "insert", "patch", "replace", "create", "update", "overwrite") and (
        _FILE_WORDS & set(words) and _path(values)
    ):
        return _write("tool.write_words", values, creates=first in ("write", "create", "overwrite"))
    if first in COMPUTE_VERBS:
        return meaning(Kind.OTHER, "tool.compute_verb", Effect.UNKNOWN)
    if first in CHANGE_VERBS and not (marker and last in DATA_NOUNS):
        return meaning(Kind.OTHER, "tool.change_verb", Effect.EXTERNAL_WRITE, **redo)
    return _by_inner_words(words, bool(marker), redo)


def _by_inner_words(words: list[str], is_api: bool, redo: dict[str, str]) -> Meaning:
    """The first word is no verb (`crm_search_customers`, `chain_details`, `tracks_for_spotify`)."""
    if not is_api:
        verb = next((w for w in words[1:] if w in READ_VERBS or w in CHANGE_VERBS or w in COMPUTE_VERBS), "")
        if verb in COMPUTE_VERBS:
            return meaning(Kind.OTHER, "tool.compute_verb", Effect.UNKNOWN)
        if verb in CHANGE_VERBS and words[-1] not in DATA_NOUNS:
            return meaning(Kind.OTHER, "tool.change_verb", Effect.EXTERNAL_WRITE, **redo)
    if words[:2] in (["check", "in"], ["check", "out"]):
        return meaning(Kind.OTHER, "tool.change_verb", Effect.EXTERNAL_WRITE, **redo)
    if set(words) & READ_VERBS or words[-1] in DATA_NOUNS or "by" in words[1:-1]:
        return meaning(Kind.SEARCH, "tool.read_word")
    if is_api:
        # Nearly every API of a data marketplace fetches data, but the name does not promise it.
        return meaning(Kind.SEARCH, "tool.api", Effect.UNKNOWN)
    return meaning(Kind.OTHER, "tool.unknown", Effect.UNKNOWN, **redo)


@lru_cache(maxsize=512)
def read_description(description: str) -> Kind | None:
    """What the description in a tool's specification says that it does, by its first verb; null when unclear."""
    for word in words_of(description[:200])[:8]:
        stems = {word, word.removesuffix("s"), word.removesuffix("es")}
        if stems & (READ_VERBS | {"return", "provide"}):
            return Kind.SEARCH
        if stems & (CHANGE_VERBS | COMPUTE_VERBS):
            return Kind.OTHER
    return None
