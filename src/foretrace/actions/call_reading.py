"""Read the contents of one call of any tool: commands, edits, files that it shows, strings, addresses.

Nothing is parsed here: shell text is parsed by `shell`, Python by `python_rules`, the rest by `tool_rules`. All three
cache what they parsed for the labels.
"""

from __future__ import annotations

import itertools
import posixpath
import re
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.call_facts import OPEN_FILE, CallKind
from foretrace.actions.python_rules import collect_code_facts
from foretrace.actions.shell.command_rules import list_commands, split_script
from foretrace.actions.shell.parse import SimpleCommand
from foretrace.actions.shell.program_tables import PYTHON
from foretrace.actions.tool_rules import (
    CODE_KEYS,
    NEW_KEYS,
    classify_call,
    decode_arguments,
    find_command,
    find_shell_lines,
    find_tool_group,
    get_text,
    list_program_calls,
)
from foretrace.actions.tool_tables import PATH_KEYS
from foretrace.core.trace import ToolCall

MAX_CHARACTERS = 30_000
_MAX_REMEMBERED = 8_000
"""Most characters of the arguments of a call that is cached: attempts at one task make many of the same calls."""
_OLD_KEYS = ("old_str", "old_string", "oldString", "search", "old_text", "old_content", "find", "old", "target")
_PATTERN_KEYS = ("pattern", "query", "file_name", "name", "regex", "search_term")
_ADDRESS = re.compile(
    r"(?:https?://|git@|ssh://|git://)[^\s\"'<>)\]]+|\b(?:github|gitlab|bitbucket)\.(?:com|org)/[\w./-]+"
)
_AGENT_EDIT = re.compile(r"\s*edit\s+\d+:\d+\s*\n(.*?)(?:\nend_of_edit\s*)?\Z", re.S)
"""A line of SWE-agent's shell that changes the open file."""
_PATCH = re.compile(r"\*\*\* Begin Patch|^diff --git |^--- \S+.*\n\+\+\+ \S+", re.M)
_PATCHED_FILE = re.compile(
    r"\*\*\* (Add|Update|Delete) File: (.+)|\+\+\+ (?:b/)?([^\t\n]+)|--- (?:a/)?([^\t\n]+)|diff --git "
)
_SUBSTITUTION = re.compile(r"s([^\w\s\\])((?:[^\\\n]|\\.)*?)\1((?:[^\\\n]|\\.)*?)\1")


class Edit(msgspec.Struct, frozen=True):
    """What a call does to the content of one file."""

    path: str
    new: str = ""
    old: str | None = None
    """The text that the new one replaces; `None` if nothing is replaced or it is not known."""
    creates: bool = False
    """Whether the new text is the whole file."""
    removes: bool = False
    """Whether the file is removed or moved away."""
    moved_to: str = ""
    moved_from: str = ""
    script: str = ""
    """The script of `sed` or `perl` that makes the change, if nothing else is known."""


class CallReading(msgspec.Struct):
    """The contents of one call."""

    commands: list[SimpleCommand] = []
    """Commands that it starts, including those inside other commands and in code."""
    edits: list[Edit] = []
    reads: list[str] = []
    strings: list[str] = []
    """Strings in the code that it runs: paths may be among them."""
    addresses: list[str] = []


def read_call(call: ToolCall) -> CallReading:
    """Read one call; the result is shared and must not be changed. Never raises on any arguments."""
    read = _read_call if len(call.arguments) <= _MAX_REMEMBERED else _read_call.__wrapped__
    return read(call.name, call.arguments)


@lru_cache(maxsize=512)
def _read_call(name: str, arguments: str) -> CallReading:
    reading = CallReading()
    _add_call(reading, name, arguments)
    return reading


def _add_call(reading: CallReading, name: str, arguments: str) -> None:
    values = decode_arguments(arguments)
    group = find_tool_group(name)
    if group in ("shell", "code_mode"):
        text = find_command(values)[1]
        for tool, inner in list_program_calls(text, name) if group == "code_mode" else ():
            _add_call(reading, tool, inner)
        if match := _AGENT_EDIT.match(text):
            reading.edits.append(Edit(path=OPEN_FILE, new=match[1]))
        elif "tools." not in text or group == "shell":
            _add_shell(reading, text)
        elif _PATCH.search(text):
            reading.edits += find_patch_edits(text.replace("\\n", "\n"))
    elif group == "code":
        code = get_text(values, CODE_KEYS)
        if (lines := find_shell_lines(code)) is not None:
            _add_shell(reading, lines)
        else:
            _add_python(reading, code)
    elif group == "patch":
        reading.edits += find_patch_edits(next((each for each in values.values() if isinstance(each, str)), ""))
    else:
        _add_tool(reading, name, arguments, values)


def _add_shell(reading: CallReading, text: str) -> None:
    if _PATCH.search(text[:MAX_CHARACTERS]) and re.search(r"patch|git apply", text):
        reading.edits += find_patch_edits(text)
        return
    for command in list_commands(text):
        reading.edits += _find_redirections(command)
        reading.addresses += [found for word in command.argv[1:] for found in _ADDRESS.findall(word)]
        if command.argv:
            reading.commands.append(command)
            reading.edits += _find_command_edits(command)
            if PYTHON.match(command.argv[0]) and (code := _find_code(command)):
                _add_python(reading, code)


def _find_code(command: SimpleCommand) -> str | None:
    inline = (word for before, word in itertools.pairwise(command.argv) if re.match(r"-[A-Za-z]*c$", before))
    runs_file = any(not word.startswith("-") for word in command.argv[1:])
    return next(inline, None if runs_file else command.stdin)


def _add_python(reading: CallReading, code: str) -> None:
    facts = collect_code_facts(code)
    if facts is None:
        return
    reading.strings += facts.strings
    for words in facts.started:
        if len(words) == 1:
            _add_shell(reading, words[0])
        else:
            reading.commands.append(SimpleCommand(argv=[posixpath.basename(words[0]), *words[1:]], writes=[]))
    reading.addresses += [found for text in facts.strings for found in _ADDRESS.findall(text)]
    new = "\n".join(facts.written)
    for path in filter(None, facts.writes):
        if facts.replaced:
            reading.edits += [Edit(path=path, old=old, new=new) for old, new in facts.replaced]
        else:
            reading.edits.append(Edit(path=path, new=new, creates=not facts.appends))
    for path, target in facts.removed:
        reading.edits += _find_moves([path], target) if target else [Edit(path=path, removes=True)]


def _add_tool(reading: CallReading, name: str, arguments: str, values: dict[str, Any]) -> None:
    path = get_text(values, PATH_KEYS)
    facts = classify_call(name, arguments)
    if facts.kind is CallKind.WRITE:
        written = facts.writes[0] if facts.writes else path
        reading.edits += _find_tool_edits(values, written or OPEN_FILE, creates=facts.creates)
        return
    if facts.kind is CallKind.READ:
        reading.reads += facts.reads
    elif re.search(r"(?:delete|remove)_?(?:file|path)", name, re.I) and path:
        reading.edits.append(Edit(path=path, removes=True))
    elif match := re.search(r"(?:^|_)git_([a-z]+)$", name):
        words = [str(v) for k, v in values.items() if isinstance(v, (str, int)) and "path" not in k and k != "repo"]
        reading.commands.append(SimpleCommand(argv=["git", match[1], *words], writes=[]))
    elif facts.kind is CallKind.SEARCH and (path or "pattern" in values):
        argv = ["grep" if path else "find", get_text(values, _PATTERN_KEYS), path or "."]
        reading.commands.append(SimpleCommand(argv=argv, writes=[]))
    if not path:
        texts = [value for value in values.values() if isinstance(value, str) and len(value) < 4000]
        reading.addresses += [address for text in texts for address in _ADDRESS.findall(text)]
    if isinstance(values.get("owner"), str) and isinstance(values.get("repo"), str):
        reading.addresses.append(f"https://github.com/{values['owner']}/{values['repo']}/{name}")


def _find_tool_edits(values: dict[str, Any], path: str, *, creates: bool) -> list[Edit]:
    parts = values.get("edits")
    if isinstance(parts, list):
        edits = (_find_tool_edits(part, path, creates=False) for part in parts if isinstance(part, dict))
        return [*itertools.chain(*edits)]
    diff = get_text(values, ("diff", "patch"))
    if diff and (edits := find_patch_edits(diff, path)):
        return edits
    old = get_text(values, _OLD_KEYS)
    new = get_text(values, tuple(key for key in NEW_KEYS if not (old and key == "text")))
    return [Edit(path=path, old=old or None, new=new, creates=creates and not old)]


def find_patch_edits(text: str, path: str = "") -> list[Edit]:
    """What a unified diff, or a patch of `apply_patch`, does to each file, with context in the old and the new text.
    `path` is the file it is for, if the patch does not say."""
    edits: list[Edit] = []
    before, action = "", ""
    old: list[str] = []
    new: list[str] = []
    for line in [*text[:MAX_CHARACTERS].split("\n"), "diff --git "]:  # a header ends the file before it
        if match := _PATCHED_FILE.match(line):
            if path and (old or new or action == "Delete"):
                was = "\n".join(old) or None
                creates, removes = action == "Add", action == "Delete"
                edits.append(Edit(path=path, old=was, new="\n".join(new), creates=creates, removes=removes))
            old, new = [], []
            if match[1]:
                action, path = match[1], match[2].strip()
            elif match[4]:
                before = match[4].strip()
            elif match[3]:
                after = match[3].strip()
                action = "Delete" if after == "/dev/null" else "Add" if before == "/dev/null" else "Update"
                path = before if action == "Delete" else after
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith((" ", "@@")) and not line.startswith("@@ -"):
            kept = line.removeprefix("@@").removeprefix(" ")
            old.append(kept)
            new.append(kept)
    return edits


def _find_redirections(command: SimpleCommand) -> list[Edit]:
    text = command.stdin or ""
    prints = command.argv[:1] in (["echo"], ["printf"])
    if not text and prints:
        text = " ".join(word for word in command.argv[1:] if word not in ("-e", "-n")).replace("\\n", "\n")
    # Emptying an existing file removes it.
    is_empty = (prints or command.argv[:1] in ([], [":"])) and not text.strip("'\" \n")
    return [
        Edit(path=command.resolve_path(name), new=text, creates=name not in command.appends, removes=is_empty)
        for name in command.writes
        if not name.startswith("/dev/")
    ]


def _find_command_edits(command: SimpleCommand) -> list[Edit]:
    name, words = command.argv[0], [word for word in command.argv[1:] if not word.startswith("-")]
    if name == "git" and words[:1] in (["mv"], ["rm"]) and "--cached" not in command.argv:
        name, words = words[0], words[1:]
    paths = [command.resolve_path(word) for word in words]
    if name in ("sed", "gsed", "perl") and any(re.match(r"-[a-zA-Z0-9]*i|--in-place", w) for w in command.argv[1:]):
        return _find_sed_edits(command)
    if name == "tee":
        return [Edit(path=path, new=command.stdin or "", creates="-a" not in command.argv) for path in paths]
    if name in ("rm", "unlink", "rmdir"):
        return [Edit(path=path, removes=True) for path in paths]
    if name == "mv" and len(paths) > 1:
        return _find_moves(paths[:-1], paths[-1])
    if name in ("cp", "ln", "touch") and paths:
        return [Edit(path=paths[-1], creates=name != "touch")]
    if name == "find" and "-delete" in command.argv and paths:
        return [Edit(path=posixpath.join(paths[0], words[-1]), removes=True)]
    return []


def _find_moves(sources: list[str], target: str) -> list[Edit]:
    """The edits made by moving files; a target without a suffix is taken to be a folder."""
    is_folder = len(sources) > 1 or "." not in posixpath.basename(target.rstrip("/."))
    found: list[Edit] = []
    for source in sources:
        path = posixpath.join(target, posixpath.basename(source)) if is_folder else target
        found += [Edit(path=source, removes=True, moved_to=path), Edit(path=path, creates=True, moved_from=source)]
    return found


def _find_sed_edits(command: SimpleCommand) -> list[Edit]:
    scripts, files = split_script(command.argv)
    script = "\n".join(scripts)
    sides = [(old.replace("\\", ""), new.replace("\\", "")) for _, old, new in _SUBSTITUTION.findall(script)]
    old = "\n".join(old for old, _ in sides) or None
    new = "\n".join(new for _, new in sides)
    return [Edit(path=command.resolve_path(name), old=old, new=new, script=script) for name in files]
