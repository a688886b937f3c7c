"""Rules for shell commands: wrappers such as `sudo` are cut off, and commands inside of commands are followed.

What a single program does is in `program_rules`.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

import msgspec

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts, merge_facts, pick_worst_effect
from foretrace.actions.shell.cmdlet_rules import may_run_more
from foretrace.actions.shell.parse import MAX_DEPTH, RUNS_BY_NAME, SimpleCommand, split_commands
from foretrace.actions.shell.program_rules import classify_program, get_program_name
from foretrace.actions.shell.program_tables import DIRECT_RUNNERS, RUN_WRAPPERS, SHELLS, VALUE_FLAGS, WRAPPERS
from foretrace.actions.taxonomy import Effect

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_STARTS = re.compile(r"(?:-exec|-execdir|-ok|-okdir|-x|-X|--exec(?:-batch)?(?:=.*)?)\Z", re.DOTALL)
"""Options of `find` and `fd` that start a command."""
_MAX_STARTED = 20
_XARGS_FLAGS = frozenset(("-I", "-n", "-P", "-d", "-L", "-s", "-a", "-j"))


@lru_cache(maxsize=1024)
def classify_shell(command: str, depth: int = 0) -> CallFacts:
    """Classify a line or script of a shell. Never raises on any text.

    Args:
        command: the text.
        depth: how many shells around it started it (`bash -c`).
    """
    commands = split_commands(command)
    found = (classify_command(each, depth) for each in commands)
    facts = merge_facts(each for each in found if each is not None)
    if facts is None:
        return make_facts(CallKind.OTHER, "shell.empty", Effect.PURE_READ)
    if facts.effect is Effect.PURE_READ and may_run_more(command, (each.argv[0] for each in commands if each.argv)):
        facts = msgspec.structs.replace(facts, effect=Effect.SANDBOX_EXEC)
    if facts.kind is CallKind.SETUP:
        # Nothing but cd, export, echo: it is no read and no search.
        return msgspec.structs.replace(facts, kind=CallKind.OTHER, rule="shell.setup")
    return facts


def classify_command(command: SimpleCommand, depth: int = 0) -> CallFacts | None:
    """Classify one command of a line; `None` where nothing is left of it without its wrappers."""
    argv = strip_wrappers(command.argv)
    if not argv:
        return None if not command.writes else _add_redirection(make_facts(CallKind.SETUP, "shell.setup"), command)
    facts = _classify_nested(command, argv, depth) or classify_program(command, argv)
    if facts.effect is Effect.PURE_READ and _starts_more(command.argv[: len(command.argv) - len(argv)]):
        facts = msgspec.structs.replace(facts, effect=Effect.SANDBOX_EXEC)
    if command.background and facts.kind is CallKind.VERIFY:
        facts = make_facts(CallKind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    return _add_redirection(facts, command) if command.writes else facts


def strip_wrappers(argv: list[str]) -> list[str]:
    """Cut off the words in front that only wrap a command: assignments, sudo, env, timeout N, `poetry run`, ..."""
    position, count = 0, len(argv)
    while position < count:
        word = argv[position]
        name, after = get_program_name(word), position + 1
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
        elif name in DIRECT_RUNNERS and _skip_flags(argv, after) < count:
            position = _skip_flags(argv, after)
        elif name in ("coverage", "kernprof", "scalene") and argv[after : after + 1] == ["run"]:
            return ["python", *argv[after + 1 :]]
        else:
            return argv[position:]
    return []


def _starts_more(wrapping: list[str]) -> bool:
    """Whether the words in front of a command start more than it: a container, or what a variable names."""
    return ("docker" in wrapping and "run" in wrapping) or any(map(RUNS_BY_NAME.match, wrapping))


def _skip_flags(argv: list[str], position: int, with_value: frozenset[str] = VALUE_FLAGS) -> int:
    while position < len(argv) and (argv[position].startswith("-") or _ASSIGNMENT.match(argv[position])):
        position += 2 if argv[position] in with_value else 1
    return position


def _classify_nested(command: SimpleCommand, argv: list[str], depth: int) -> CallFacts | None:
    """Classify a command by those that its arguments tell it to start; `None` where there are none."""
    name = get_program_name(argv[0])
    if depth >= MAX_DEPTH:
        return None
    if name in SHELLS:
        return _classify_nested_shell(command, argv, depth)
    if name.lower().removesuffix(".exe") in ("pwsh", "powershell"):
        starts = [i for i, word in enumerate(argv) if word.lower() in ("-command", "-c")]
        return classify_shell(" ".join(argv[starts[0] + 1 :]), depth + 1) if starts else None
    if name == "eval":
        return classify_shell(" ".join(argv[1:]), depth + 1)
    if name in ("xargs", "parallel", "watch"):
        rest = argv[_skip_flags(argv, 1, _XARGS_FLAGS) :]
        return _classify_started(command, rest, depth) or make_facts(CallKind.SETUP, "shell.filter")
    if name in ("find", "fd", "fdfind"):
        starts = [i for i, word in enumerate(argv) if _STARTS.match(word)][:_MAX_STARTED]
        for start, end in itertools.pairwise([*starts, len(argv)]):
            value = [argv[start].partition("=")[2]] if "=" in argv[start] else []
            inner = _classify_started(command, [*value, *argv[start + 1 : end]], depth)
            if inner is not None and (inner.kind > CallKind.SEARCH or inner.effect is not Effect.PURE_READ):
                return inner
        if "-delete" in argv:
            return make_facts(CallKind.OTHER, "shell.move", Effect.LOCAL_WRITE)
    return None


def _classify_nested_shell(command: SimpleCommand, argv: list[str], depth: int) -> CallFacts | None:
    """Classify `bash -c "..."` and `bash <<EOF`; `None` for `bash script.sh`."""
    for position, word in enumerate(argv[1:], 1):
        if re.match(r"-[a-z]*c$", word):
            return classify_shell(argv[position + 1], depth + 1) if position + 1 < len(argv) else None
        if word == "-n":
            return make_facts(CallKind.VERIFY, "shell.lint")
        if not word.startswith(("-", "+")):
            return None
    return classify_shell(command.stdin, depth + 1) if command.stdin is not None else None


def _classify_started(command: SimpleCommand, argv: list[str], depth: int) -> CallFacts | None:
    """Classify a command that another one starts in the same directory."""
    return classify_command(SimpleCommand(argv=argv, writes=[], cwd=command.cwd), depth + 1) if argv else None


def _add_redirection(facts: CallFacts, command: SimpleCommand) -> CallFacts:
    """The facts with the files that the output of the command is redirected to."""
    if facts.kind >= CallKind.VERIFY:
        # The log of a run is a by-product, not something that the agent wrote.
        return msgspec.structs.replace(facts, effect=pick_worst_effect((facts.effect, Effect.LOCAL_WRITE)))
    paths = tuple(command.resolve_path(name) for name in command.writes)
    content = command.stdin if command.stdin is not None else " ".join(command.argv[1:])
    return make_facts(
        CallKind.WRITE, "shell.redirect", writes=paths, reads=facts.reads, payload=content[:4000], creates=True
    )
