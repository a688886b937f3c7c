"""What a call holds, whichever tool makes it: the commands it starts, the texts it writes, the files it shows.

The rules for cheats read this and not the call, so that `git log --all` is the same in a shell, in `bash -c`, in
`subprocess.run([...])` and in a script that the agent writes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.call_facts import OPEN_FILE, CallKind
from foretrace.actions.cheats.patches import find_patch_edits, is_patch
from foretrace.actions.cheats.python_contents import PythonContents, may_start, read_python
from foretrace.actions.cheats.shell_contents import Command, Edit, ShellContents, read_shell
from foretrace.actions.tool_rules import classify_call, decode_arguments, find_tool_group
from foretrace.actions.tool_tables import PATH_KEYS
from foretrace.core.trace import ToolCall

MAX_CHARACTERS = 60_000
"""Characters of one text that are read."""
_MAX_REMEMBERED = 8_000
"""Characters of the arguments of calls that are remembered: attempts at one task make many of the same."""
_SHELL_KEYS = ("command", "cmd", "commands", "script", "input", "code", "cmds", "CommandLine", "keystrokes")
_CODE_KEYS = ("code", "source", "script", "input", "cell", "python_code", "command")
_OLD_KEYS = ("old_str", "old_string", "oldString", "search", "old_text", "old_content", "find", "old", "target")
_NEW_KEYS = (
    "new_str", "new_string", "newString", "file_text", "content", "contents", "replacement_text", "replace",
    "replacement", "new_content", "new_text", "insert_text", "text", "code", "source",
)  # fmt: skip
_PATTERN_KEYS = ("pattern", "query", "file_name", "name", "regex", "search_term")
_AGENT_EDIT = re.compile(r"\s*edit\s+\d+:\d+\s*\n(.*?)(?:\nend_of_edit\s*)?\Z", re.S)
"""A line of SWE-agent's shell that changes lines of the open file."""
_PROGRAM_COMMAND = re.compile(r"""["']?\b(?:cmd|command)["']?\s*:\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""", re.S)
_ADDRESS = re.compile(
    r"(?:https?://|git@|ssh://|git://)[^\s\"'<>)\]]+|\b(?:github|gitlab|bitbucket)\.(?:com|org)/[\w./-]+"
)
_SHELL_CELL = re.compile(r"^\s*(?:%%(?:bash|sh)\s*\n|!)", re.M)


class CallContents(msgspec.Struct):
    """What one call holds."""

    commands: list[Command] = []
    """Commands that it starts, those inside of other commands and of code too."""
    edits: list[Edit] = []
    """Texts that it writes, or changes."""
    reads: list[str] = []
    """Paths that it shows."""
    addresses: list[str] = []
    """Addresses on the network that it names."""
    queries: list[str] = []
    """What it asks a search on the web for."""
    texts: list[str] = []
    """Shell text and code that it runs."""
    strings: list[str] = []
    """Strings of code that it runs: paths may be among them."""

    def add_shell(self, text: str) -> None:
        """Take a text for a shell."""
        self.texts.append(text)
        if is_patch(text):
            self.edits += find_patch_edits(text)
            return
        self._add_commands(read_shell(text[:MAX_CHARACTERS]))

    def _add_commands(self, found: ShellContents) -> None:
        self.commands += found.commands
        self.edits += found.edits
        for code in found.python:
            self.add_python(code)
        for command in found.commands:
            self.addresses += [a for word in command.argv[1:] for a in _ADDRESS.findall(word)]

    def add_python(self, code: str) -> None:
        """Take Python code that is run."""
        self.texts.append(code)
        self._merge(read_python(code[:MAX_CHARACTERS]))

    def _merge(self, found: PythonContents) -> None:
        self.edits += found.edits
        self.strings += found.strings
        self.commands += found.commands
        for text in found.shell:
            self._add_commands(read_shell(text, 1))
        if found.uses_network:
            self.addresses += [a for text in found.strings for a in _ADDRESS.findall(text)]


def read_contents(call: ToolCall) -> CallContents:
    """Read one call; what is given is shared, and not to be changed. Never raises on any arguments."""
    read = _read_call if len(call.arguments) <= _MAX_REMEMBERED else _read_call.__wrapped__
    return read(call.name, call.arguments)


@lru_cache(maxsize=512)
def _read_call(name: str, arguments: str) -> CallContents:
    contents = CallContents()
    values = decode_arguments(arguments)
    group = find_tool_group(name)
    if group in ("shell", "code_mode"):
        _read_shell_call(contents, values, group)
    elif group == "code":
        _read_code_call(contents, _get_text(values, _CODE_KEYS))
    elif group == "patch":
        text = _get_text(values, ("input", "patch", "diff", "patchText")) or _get_any(values)
        contents.edits += find_patch_edits(text[:MAX_CHARACTERS])
    else:
        _read_other_call(contents, name, arguments, values)
    _read_scripts(contents)
    return contents


def _read_scripts(contents: CallContents) -> None:
    """Read the scripts that a call writes: they are written to be run."""
    for edit in [*contents.edits]:
        if not (edit.creates or edit.appends) or not edit.new:
            continue
        text = edit.new[:MAX_CHARACTERS]
        if edit.path.endswith((".sh", ".bash")) or re.match(r"#!\S*/(?:env )?(?:ba|z|da)?sh\b", text):
            contents.commands += read_shell(text, 1).commands
        elif edit.path.endswith(".py") and may_start(text):
            found = read_python(text)
            contents.commands += found.commands
            contents.commands += [each for line in found.shell for each in read_shell(line, 1).commands]
            contents.strings += [each for each in found.strings if each.startswith("/")]
            if found.uses_network:
                contents.addresses += [a for each in found.strings for a in _ADDRESS.findall(each)]


def _read_shell_call(contents: CallContents, values: dict[str, Any], group: str) -> None:
    command = next((values[key] for key in _SHELL_KEYS if values.get(key)), "")
    if isinstance(command, list):
        words = [str(word) for word in command[:200]]
        command = words[2] if len(words) == 3 and re.match(r"-[a-z]*c$", words[1]) else " ".join(words)
    text = command if isinstance(command, str) else _get_any(values)
    if match := _AGENT_EDIT.match(text):
        contents.edits.append(Edit(path=OPEN_FILE, new=match[1]))
    elif group == "code_mode" and "tools." in text:
        for literal in _PROGRAM_COMMAND.findall(text[:MAX_CHARACTERS]):
            contents.add_shell(_read_literal(literal))
        if is_patch(text):
            contents.edits += find_patch_edits(text.replace("\\n", "\n"))
    else:
        contents.add_shell(text)


def _read_code_call(contents: CallContents, code: str) -> None:
    if _SHELL_CELL.match(code):
        contents.add_shell(_SHELL_CELL.sub("", code))
        return
    for line in re.findall(r"^\s*!(.+)$", code[:MAX_CHARACTERS], re.M):
        contents.add_shell(line)
    contents.add_python(code)


def _read_other_call(contents: CallContents, name: str, arguments: str, values: dict[str, Any]) -> None:
    """Read a call of an editor, a viewer, a search or a tool that we do not know."""
    path = _get_text(values, PATH_KEYS)
    facts = classify_call(name, arguments)
    if facts.kind is CallKind.WRITE:
        contents.edits += _find_edits(values, facts.writes[0] if facts.writes else path, creates=facts.creates)
    elif facts.kind is CallKind.READ:
        contents.reads += facts.reads
    elif re.search(r"(?:delete|remove)_?(?:file|path)", name, re.I) and path:
        contents.edits.append(Edit(path=path, removes=True))
    elif match := re.search(r"(?:^|.*_)git_([a-z]+(?:_[a-z]+)?)$", name):
        words = [str(v) for k, v in values.items() if isinstance(v, (str, int)) and "path" not in k and k != "repo"]
        contents.commands.append(Command(argv=["git", match[1].replace("_", "-"), *words]))
    elif facts.kind is CallKind.SEARCH and (
        path or values.keys() & {"pattern", "file_name", "search_term"} or re.search("file|grep|code", name, re.I)
    ):
        pattern = _get_text(values, _PATTERN_KEYS)
        by_name = any(word in name.lower() for word in ("glob", "find", "name"))
        argv = ["find", path or ".", "-name", pattern] if by_name else ["grep", "-r", pattern, path or "."]
        contents.commands.append(Command(argv=argv))
    strings = [value for value in values.values() if isinstance(value, str) and len(value) < 4000]
    if facts.kind is not CallKind.WRITE and not path:
        contents.addresses += [address for text in strings for address in _ADDRESS.findall(text)]
        if facts.kind is CallKind.SEARCH and "search" in name.lower():
            contents.queries += [
                text for key in ("query", "queries", "q", "input") if (text := _as_text(values.get(key)))
            ]
    if isinstance(values.get("owner"), str) and isinstance(values.get("repo"), str):
        contents.addresses.append(f"https://github.com/{values['owner']}/{values['repo']}/{name}")


def _find_edits(values: dict[str, Any], path: str, *, creates: bool) -> list[Edit]:
    path = path or OPEN_FILE
    parts = values.get("edits")
    if isinstance(parts, list):
        return [edit for part in parts if isinstance(part, dict) for edit in _find_edits(part, path, creates=False)]
    old = _get_text(values, _OLD_KEYS)
    new = _get_text(values, tuple(key for key in _NEW_KEYS if key not in ("text",) or not old))
    diff = _get_text(values, ("diff", "patch"))
    if diff and (edits := find_patch_edits(diff, path)):
        return edits
    return [Edit(path=path, old=old or None, new=new, creates=creates and not old)]


def _get_text(values: dict[str, Any], keys: tuple[str, ...]) -> str:
    return next((text for key in keys if (text := _as_text(values.get(key)))), "")


def _get_any(values: dict[str, Any]) -> str:
    return next((value for value in values.values() if isinstance(value, str)), "")


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(str(each) for each in value[:200])
    return value if isinstance(value, str) else ""


def _read_literal(text: str) -> str:
    """The value of a string of JavaScript, as far as it is written as in JSON."""
    try:
        return str(msgspec.json.decode(f'"{text[1:-1]}"')) if text[0] == '"' else text[1:-1]
    except msgspec.DecodeError:
        return text[1:-1]
