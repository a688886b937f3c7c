"""What one simple command means: what wraps it is cut off, then tables and readers decide."""

from __future__ import annotations

import re

import msgspec

from foretrace.actions.meaning import Kind, Meaning, meaning, worst
from foretrace.actions.programs import (
    FILTERS,
    INTERPRETERS,
    PROGRAMS,
    PYTHON,
    RUN_WRAPPERS,
    SHELLS,
    VALUE_FLAGS,
    WRAPPERS,
)
from foretrace.actions.readers import READERS, VERSION_FLAGS, read_interpreter, read_reading, read_writing
from foretrace.actions.shell import MAX_DEPTH, Command, read_shell
from foretrace.actions.taxonomy import Effect

FINAL_MARKERS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
"""Printing one of these ends the attempt (mini-swe-agent)."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_XARGS_FLAGS = frozenset(("-I", "-n", "-P", "-d", "-L", "-s", "-a", "-j"))
_EXECUTABLE = re.compile(r"\.(?:sh|bash|py|rb|pl|js|out|exe|bin|run)$")


def read_command(command: Command, depth: int = 0) -> Meaning | None:
    """What one command of a compound means; null when nothing is left of it."""
    argv = peel(command.argv)
    if not argv:
        return None if not command.writes else _redirected(meaning(Kind.SETUP, "shell.setup"), command)
    found = _nested(command, argv, depth) or read_program(command, argv)
    if command.background and found.kind is Kind.VERIFY:
        found = meaning(Kind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    return _redirected(found, command) if command.writes else found


def peel(argv: list[str]) -> list[str]:
    """Cut off what only wraps a command: assignments, sudo, env, timeout N, `poetry run`, ..."""
    position, count = 0, len(argv)
    while position < count:
        word = argv[position]
        name, after = _name(word), position + 1
        if _ASSIGNMENT.match(word) or name in ("!", "{"):
            position = after
        elif name in WRAPPERS:
            after = _skip_flags(argv, after) + (name in ("timeout", "gtimeout"))
            if after >= count or (name == "command" and argv[position + 1] in ("-v", "-V")):
                return argv[position:]
            position = after
        elif name in RUN_WRAPPERS and argv[after : after + 1] in (["run"], ["exec"]):
            # `docker run IMAGE`: the image stands before the command.
            after = _skip_flags(argv, after + 1) + (name == "docker")
            if after >= count:
                return argv[position:]
            position = after
        elif name in ("coverage", "kernprof", "scalene") and argv[after : after + 1] == ["run"]:
            return ["python", *argv[after + 1 :]]
        else:
            return argv[position:]
    return []


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1] if len(word) < 300 else "?"


def _skip_flags(argv: list[str], position: int, with_value: frozenset[str] = VALUE_FLAGS) -> int:
    while position < len(argv) and (argv[position].startswith("-") or _ASSIGNMENT.match(argv[position])):
        position += 2 if argv[position] in with_value else 1
    return position


def _nested(command: Command, argv: list[str], depth: int) -> Meaning | None:
    """The meaning of a command that starts others given in its arguments, else null."""
    name = _name(argv[0])
    if depth >= MAX_DEPTH:
        return None
    if name in SHELLS:
        return _nested_shell(command, argv, depth)
    if name == "eval":
        return read_shell(" ".join(argv[1:]), depth + 1)
    if name in ("xargs", "parallel", "watch"):
        rest = argv[_skip_flags(argv, 1, _XARGS_FLAGS) :]
        return _started(command, rest, depth) or meaning(Kind.SETUP, "shell.filter")
    if name in ("find", "fd", "fdfind"):
        starts = [i for i, word in enumerate(argv) if word in ("-exec", "-execdir", "-ok", "-x", "-X")]
        inner = _started(command, argv[starts[0] + 1 :], depth) if starts else None
        if inner is not None and inner.kind > Kind.SEARCH:
            return inner
        if "-delete" in argv:
            return meaning(Kind.OTHER, "shell.move", Effect.LOCAL_WRITE)
    return None


def _nested_shell(command: Command, argv: list[str], depth: int) -> Meaning | None:
    """`bash -c "..."`, `bash <<EOF`; null for `bash script.sh`."""
    for position, word in enumerate(argv[1:], 1):
        if re.match(r"-[a-z]*c$", word):
            return read_shell(argv[position + 1], depth + 1) if position + 1 < len(argv) else None
        if word == "-n":
            return meaning(Kind.VERIFY, "shell.lint")
        if not word.startswith(("-", "+")):
            return None
    return read_shell(command.stdin, depth + 1) if command.stdin is not None else None


def _started(command: Command, argv: list[str], depth: int) -> Meaning | None:
    """The meaning of a command that another one starts at the same place."""
    return read_command(Command(argv=argv, writes=[], cwd=command.cwd), depth + 1) if argv else None


def read_program(command: Command, argv: list[str]) -> Meaning:
    """One command that starts no others, without its redirections."""
    name = _name(argv[0])
    if name in ("echo", "printf"):
        if any(marker in word for marker in FINAL_MARKERS for word in argv[1:]):
            return meaning(Kind.TERMINAL, "shell.final_marker")
        return meaning(Kind.SETUP, "shell.print")
    if command.piped and name in FILTERS and name not in READERS:
        return meaning(Kind.SETUP, "shell.filter")
    reader = READERS["python"] if PYTHON.match(name) else READERS.get(name)
    if reader is not None:
        return reader(command, argv)
    if name in INTERPRETERS:
        return read_interpreter(command, argv)
    if name in PROGRAMS and ("/" not in argv[0] or argv[0].startswith("/") or PROGRAMS[name][0] is Kind.VERIFY):
        kind, effect, rule = PROGRAMS[name]
        if kind is Kind.READ:
            return read_reading(command, argv)
        if kind is Kind.WRITE:
            return read_writing(command, argv)
        if kind is Kind.VERIFY and len(argv) == 2 and argv[1] in VERSION_FLAGS:
            return meaning(Kind.OTHER, "shell.version", Effect.PURE_READ)
        return meaning(kind, f"shell.{rule}", effect)
    if "/" in argv[0] or _EXECUTABLE.search(name):
        return meaning(Kind.VERIFY, "shell.run", runs=(command.path(argv[0]),))
    return meaning(Kind.OTHER, "shell.other", Effect.SANDBOX_EXEC)


def _redirected(found: Meaning, command: Command) -> Meaning:
    """Add what the output of a command is redirected into."""
    if found.kind >= Kind.VERIFY:
        # The log of a run is a by-product, not something that the agent wrote.
        return msgspec.structs.replace(found, effect=worst((found.effect, Effect.LOCAL_WRITE)))
    paths = tuple(command.path(name) for name in command.writes)
    content = command.stdin if command.stdin is not None else " ".join(command.argv[1:])
    return meaning(Kind.WRITE, "shell.redirect", writes=paths, reads=found.reads, payload=content[:4000], creates=True)
