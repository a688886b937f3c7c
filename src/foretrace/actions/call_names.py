"""Short names of calls for tables: `Read`, `bash: grep` for a shell line, `str_replace_editor: view` for an editor."""

from __future__ import annotations

from functools import lru_cache

from foretrace.actions.call_facts import CallKind
from foretrace.actions.shell.command_rules import classify_command, get_program_name, strip_wrappers
from foretrace.actions.shell.parse import split_commands
from foretrace.actions.tool_rules import decode_arguments, find_command
from foretrace.actions.tool_tables import TOOL_GROUPS, split_words_of_name
from foretrace.core.trace import ToolCall

_MAX_CHARACTERS = 2000
"""Most characters of a command that are read for its name."""


def name_call(call: ToolCall) -> str:
    """The tool's name; for a shell, also the main program of the line (the first one other than `cd` and `echo`); for
    an editor with several commands, also the command. A call without a name is `(no name)`."""
    group = TOOL_GROUPS.get("_".join(split_words_of_name(call.name)))
    if group not in ("shell", "editor"):
        return call.name or "(no name)"
    values = decode_arguments(call.arguments)
    if group == "editor":
        command = values.get("command")
        return f"{call.name}: {command}" if isinstance(command, str) and command.isidentifier() else call.name
    program = _find_program(find_command(values)[1][:_MAX_CHARACTERS])
    return f"{call.name}: {program}" if program else call.name


@lru_cache(maxsize=1024)
def _find_program(command: str) -> str:
    """The main program of a shell line; empty if it starts none."""
    names: list[str] = []
    for each in split_commands(command):
        argv = strip_wrappers(each.argv)
        if not argv:
            continue
        facts = classify_command(each)
        if facts is not None and facts.kind > CallKind.SETUP:
            return get_program_name(argv[0])
        names.append(get_program_name(argv[0]))
    return names[0] if names else ""
