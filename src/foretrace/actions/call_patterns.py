"""Patterns of arguments: what calls of one tool must have in common for one word on their effect to fit them all."""

from __future__ import annotations

import re
from functools import lru_cache

from foretrace.actions.call_facts import split_words
from foretrace.actions.shell.command_rules import strip_wrappers
from foretrace.actions.shell.parse import SimpleCommand, split_commands
from foretrace.actions.shell.program_rules import get_program_name
from foretrace.actions.shell.program_tables import INTERPRETERS, PYTHON, SHELLS, SUBCOMMANDS
from foretrace.actions.tool_rules import decode_arguments, find_tool_group
from foretrace.core.trace import ToolCall

_SHELL_KEYS = ("command", "cmd", "commands", "script", "input", "code", "cmds", "CommandLine", "keystrokes")
_QUERY_KEYS = ("query", "sql", "statement", "input", "command", "code")
_WITH_VERBS = {
    *SUBCOMMANDS,
    *split_words("git svn pip pip3 apt apt-get apt-cache dpkg conda mamba brew gem systemctl kubectl helm terraform"),
}
"""Programs whose first word says what they do."""
_OPEN_PROGRAMS = {
    *SHELLS,
    *INTERPRETERS,
    *split_words("xargs eval source ssh watch parallel awk gawk mawk perl sqlite3 mysql psql mariadb duckdb"),
}
"""Programs whose arguments are programs themselves."""
_OPEN_OPTIONS = {"-exec", "-execdir", "-ok"}
_VERB = re.compile(r"[a-z][a-z-]{0,30}\Z")
_OPTION = re.compile(r"--?[A-Za-z][\w-]{0,30}")
_MAX_CHARACTERS = 2000
"""Characters of a command that are read for its pattern."""
_MAX_COMMANDS = 6
"""Commands of a line that are named in its pattern."""
_LONGER = " ..."


def find_call_pattern(call: ToolCall) -> dict[str, str]:
    """By the name of an argument: what it is like.

    Of a shell the programs of the line, each with its verb (`git log`), its options without their values, and whether
    it writes to a file: `{"command": "cd && git diff --stat | head -n"}`. Of an editor with several commands the
    command, of SQL its first word. Of any other tool nothing: one pattern, `{}`, for all its calls.
    """
    group = find_tool_group(call.name)
    values = decode_arguments(call.arguments)
    if group == "shell":
        name = next((key for key in _SHELL_KEYS if values.get(key)), "")
        value = values.get(name, "")
        if isinstance(value, list):
            words = [str(word) for word in value[:200]]
            # ["bash", "-lc", "cd x && make"] names the shell itself.
            value = words[2] if len(words) == 3 and words[1].endswith("c") else " ".join(words)
        return {name: _find_line_pattern(value[:_MAX_CHARACTERS])} if isinstance(value, str) and name else {}
    if group == "editor":
        command = values.get("command")
        return {"command": command} if isinstance(command, str) and command.isidentifier() else {}
    if group == "sql":
        name = next((key for key in _QUERY_KEYS if isinstance(values.get(key), str)), "")
        words = values[name].split(None, 1) if name else []
        return {name: words[0].upper()[:20]} if words else {}
    return {}


def is_open_ended(tool: str, pattern: dict[str, str]) -> bool:
    """Whether calls of a pattern may do anything at all, whatever the calls that were seen did: a shell, a database or
    an interpreter of code with any arguments, or a line that gives a program to another one to run."""
    group = find_tool_group(tool)
    if group is None:
        return False
    if not pattern:
        return True
    words = {word for value in pattern.values() for word in value.split()}
    programs = words & _OPEN_PROGRAMS or any(PYTHON.match(word) for word in words)
    return group == "shell" and bool(programs or words & _OPEN_OPTIONS or _LONGER.strip() in words)


@lru_cache(maxsize=4096)
def _find_line_pattern(line: str) -> str:
    """The programs of a shell line: `|` stands before one that reads the output of the one before, else `&&`."""
    parts: list[str] = []
    commands = split_commands(line)
    for command in commands[:_MAX_COMMANDS]:
        joint = " | " if command.piped else " && "
        parts += [joint] * bool(parts) + [_find_command_pattern(command)]
    return "".join(parts) + _LONGER * (len(commands) > _MAX_COMMANDS)


def _find_command_pattern(command: SimpleCommand) -> str:
    argv = strip_wrappers(command.argv) or command.argv[:1]
    program = get_program_name(argv[0]) if argv else ""
    words = [program]
    rest = argv[1:]
    if program in _WITH_VERBS:
        words += [word for word in rest if _VERB.match(word)][:1]
    elif PYTHON.match(program) and rest[:1] == ["-m"]:
        words, rest = [program, "-m", *rest[1:2]], rest[2:]
    words += sorted({match[0] for word in rest if (match := _OPTION.match(word))})
    return " ".join(words) + " > FILE" * bool(command.writes)
