"""Patterns of arguments: what calls of one tool must have in common to have the same effect."""

from __future__ import annotations

import re
from functools import lru_cache

from foretrace.actions.call_facts import split_words
from foretrace.actions.shell.command_rules import get_program_name, strip_wrappers
from foretrace.actions.shell.parse import SimpleCommand, split_commands
from foretrace.actions.shell.program_tables import PYTHON, SUBCOMMANDS
from foretrace.actions.tool_rules import decode_arguments, find_command, find_query, find_tool_group
from foretrace.core.trace import ToolCall

_WITH_VERBS = {
    *SUBCOMMANDS,
    *split_words("git svn pip pip3 apt apt-get apt-cache dpkg conda mamba brew gem systemctl kubectl helm terraform"),
}
"""Programs whose first argument says what they do."""
_VERB = re.compile(r"[a-z][a-z-]{0,30}\Z")
_OPTION = re.compile(r"--?[A-Za-z][\w-]{0,30}")


def find_call_pattern(call: ToolCall) -> dict[str, str]:
    """The pattern of a call: name of an argument -> pattern of its value.

    For a shell, the programs of the line, each with its verb (`git log`), its options without their values, and
    whether it writes to a file: `{"command": "cd && git diff --stat | head -n"}`. For an editor with several commands,
    the command; for SQL, its first word. For any other tool nothing: one pattern, `{}`, covers all its calls.
    """
    group = find_tool_group(call.name)
    values = decode_arguments(call.arguments)
    if group == "shell":
        name, line = find_command(values)
        return {name: _find_line_pattern(line)} if line else {}
    if group == "editor":
        command = values.get("command")
        return {"command": command} if isinstance(command, str) and command.isidentifier() else {}
    if group == "sql":
        name, query = find_query(values)
        words = query.split(None, 1)
        return {name: words[0].upper()[:20]} if words else {}
    return {}


@lru_cache(maxsize=4096)
def _find_line_pattern(line: str) -> str:
    """The programs of a shell line, joined by `|` where one reads the output of the previous one, else by `&&`."""
    parts: list[str] = []
    for command in split_commands(line):
        parts += [" | " if command.piped else " && "] * bool(parts) + [_find_command_pattern(command)]
    return "".join(parts)


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
