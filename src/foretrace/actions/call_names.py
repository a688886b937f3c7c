"""Short names of calls for tables (`bash: grep`), and patterns of their arguments: what calls of one tool must have in
common to have the same effect."""

from __future__ import annotations

import re
from functools import lru_cache

from foretrace.actions.call_facts import CallKind, split_words
from foretrace.actions.shell.command_rules import classify_command, get_program_name, strip_wrappers
from foretrace.actions.shell.parse import SimpleCommand, split_commands
from foretrace.actions.shell.program_tables import PYTHON, SUBCOMMANDS
from foretrace.actions.tool_rules import decode_arguments, find_command, find_query, find_tool_group
from foretrace.actions.tool_tables import TOOL_GROUPS, to_snake_case
from foretrace.core.trace import ToolCall

_MAX_CHARACTERS = 2000
_WITH_VERBS = SUBCOMMANDS.keys() | split_words(
    "git svn pip pip3 uv apt apt-get apt-cache dpkg conda mamba brew gem systemctl kubectl helm terraform"
)
"""Programs whose first argument says what they do."""
_VERB = re.compile(r"[a-z][a-z-]{0,30}\Z")
_OPTION = re.compile(r"--?[A-Za-z][\w-]{0,30}")


def name_call(call: ToolCall) -> str:
    """The tool's name; for a shell, also the main program of the line (the first one other than `cd` and `echo`); for
    an editor with several commands, also the command. A call without a name is `(no name)`."""
    group = TOOL_GROUPS.get(to_snake_case(call.name))
    more = ""
    if group == "editor":
        more = _find_editor_command(call)
    elif group == "shell":
        more = _find_program(find_command(decode_arguments(call.arguments))[1][:_MAX_CHARACTERS])
    return f"{call.name}: {more}" if more else call.name or "(no name)"


def _find_editor_command(call: ToolCall) -> str:
    command = decode_arguments(call.arguments).get("command")
    return command if isinstance(command, str) and command.isidentifier() else ""


@lru_cache(maxsize=1024)
def _find_program(line: str) -> str:
    names: list[str] = []
    for each in split_commands(line):
        if argv := strip_wrappers(each.argv):
            names.append(get_program_name(argv[0]))
            facts = classify_command(each)
            if facts is not None and facts.kind > CallKind.SETUP:
                return names[-1]
    return names[0] if names else ""


def find_call_pattern(call: ToolCall) -> dict[str, str]:
    """The pattern of a call: name of an argument -> pattern of its value.

    For a shell, the programs of the line, each with its verb (`git log`), its options without their values, and whether
    it writes to a file: `{"command": "cd && git diff --stat | head -n"}`. For an editor with several commands, the
    command; for SQL, its first word. For any other tool nothing: one pattern, `{}`, covers all its calls.
    """
    group = find_tool_group(call.name)
    if group == "editor":
        command = _find_editor_command(call)
        return {"command": command} if command else {}
    if group == "shell":
        name, text = find_command(decode_arguments(call.arguments))
        return {name: _find_line_pattern(text)} if text else {}
    if group == "sql":
        name, query = find_query(decode_arguments(call.arguments))
        return {name: query.split(None, 1)[0].upper()[:20]} if query.split() else {}
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
