"""Rules for shell commands: wrappers such as `sudo` are removed, and commands inside commands are followed.

What a single program does is in `program_rules`.
"""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

import msgspec

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts, merge_facts, pick_worst_effect
from foretrace.actions.shell.parse import MAX_DEPTH, RUNS_BY_NAME, SimpleCommand, split_commands
from foretrace.actions.shell.program_rules import classify_program, get_program_name
from foretrace.actions.shell.program_tables import (
    DIRECT_RUNNERS,
    OPEN_PROGRAMS,
    PYTHON,
    RUN_WRAPPERS,
    SHELLS,
    VALUE_FLAGS,
    WRAPPERS,
)
from foretrace.actions.taxonomy import Effect

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_STARTS = re.compile(r"(?:-exec|-execdir|-ok|-okdir|-x|-X|--exec(?:-batch)?(?:=.*)?)\Z", re.DOTALL)
"""Options of `find` and `fd` that start a command."""
_RUNS_TEXT = re.compile(r"-[a-z]*c$")
"""The option of a shell that runs the next argument."""
_ENVIRONMENT = "shell.environment"
"""The rule of commands that only show the environment."""
_MAX_STARTED = 20
_XARGS_FLAGS = frozenset(("-I", "-n", "-P", "-d", "-L", "-s", "-a", "-j"))


@lru_cache(maxsize=1024)
def classify_shell(command: str, depth: int = 0) -> CallFacts:
    """Classify a line or script of a shell. Never raises on any text.

    Args:
        command: the text.
        depth: how many shells are nested around it (`bash -c`).
    """
    commands = split_commands(command)
    parts = [(each, facts) for each in commands if (facts := classify_command(each, depth)) is not None]
    found = [facts for _, facts in parts]
    if any(not (each.piped or facts.kind is CallKind.SETUP or facts.rule == _ENVIRONMENT) for each, facts in parts):
        # Next to other commands, `pwd` or `date` says as little about the step as `cd`. In `ps | grep x` it says more.
        found = [msgspec.structs.replace(f, kind=CallKind.SETUP) if f.rule == _ENVIRONMENT else f for f in found]
    facts = merge_facts(found)
    if facts is None:
        return make_facts(CallKind.OTHER, "shell.empty", Effect.PURE_READ)
    if facts.kind is CallKind.SETUP:
        # Only cd, export, echo: it is neither a read nor a search.
        return msgspec.structs.replace(facts, kind=CallKind.OTHER, rule="shell.setup")
    return facts


@lru_cache(maxsize=512)
def list_commands(text: str, depth: int = 0) -> list[SimpleCommand]:
    """List all commands that a shell text starts, including those inside other commands, without their wrappers.

    Programs are given by name, without a path. The result is shared and must not be changed.
    """
    found: list[SimpleCommand] = []
    for command in split_commands(text):
        found += _list_inner(command, depth)
    return found


def _list_inner(command: SimpleCommand, depth: int) -> list[SimpleCommand]:
    argv = strip_wrappers(command.argv)
    if not argv:
        return [msgspec.structs.replace(command, argv=[])]
    argv = [get_program_name(argv[0]), *argv[1:]]
    found = [msgspec.structs.replace(command, argv=argv)]
    if depth >= MAX_DEPTH:
        return found
    script = " ".join(argv[1:]) if argv[0] == "eval" else _find_script(command, argv) if argv[0] in SHELLS else None
    if script:
        return found + list_commands(script, depth + 1)
    for started in _find_started(argv):
        if argv[0] == "find" and "-name" in argv[:-1]:
            started = [argv[argv.index("-name") + 1] if word == "{}" else word for word in started if word != ";"]
        found += _list_inner(SimpleCommand(argv=started, writes=[], cwd=command.cwd), depth + 1)
    return found


def _find_started(argv: list[str]) -> list[list[str]]:
    """The commands that `xargs` or `find -exec` starts."""
    if argv[0] in ("xargs", "parallel", "watch"):
        return [argv[_skip_flags(argv, 1, _XARGS_FLAGS) :]]
    if argv[0] not in ("find", "fd", "fdfind"):
        return []
    starts = [i for i, word in enumerate(argv) if _STARTS.match(word)][:_MAX_STARTED]
    found: list[list[str]] = []
    for start, end in itertools.pairwise([*starts, len(argv)]):
        value = [argv[start].partition("=")[2]] if "=" in argv[start] else []
        found.append([*value, *argv[start + 1 : end]])
    return found


def classify_command(command: SimpleCommand, depth: int = 0) -> CallFacts | None:
    """Classify one command of a line; `None` if nothing is left of it without its wrappers."""
    argv = strip_wrappers(command.argv)
    if not argv:
        return None if not command.writes else _add_redirection(make_facts(CallKind.SETUP, "shell.setup"), command)
    facts = _classify_nested(command, argv, depth) or classify_program(command, argv)
    if facts.effect is Effect.PURE_READ and _runs_arguments(argv):
        facts = msgspec.structs.replace(facts, effect=Effect.UNKNOWN)
    if facts.effect is Effect.PURE_READ and _starts_more(command.argv[: len(command.argv) - len(argv)]):
        facts = msgspec.structs.replace(facts, effect=Effect.SANDBOX_EXEC)
    if command.background and facts.kind is CallKind.VERIFY:
        facts = make_facts(CallKind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    return _add_redirection(facts, command) if command.writes else facts


def strip_wrappers(argv: list[str]) -> list[str]:
    """Remove the leading words that only wrap a command: assignments, sudo, env, timeout N, `poetry run`, ..."""
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
            # `docker run IMAGE`: the image comes before the command.
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
    """Whether the leading words start more than the command: a container, or a program named by a variable."""
    return ("docker" in wrapping and "run" in wrapping) or any(map(RUNS_BY_NAME.match, wrapping))


def _runs_arguments(argv: list[str]) -> bool:
    """Whether a program runs what its arguments say."""
    name = get_program_name(argv[0])
    if argv[1:] == ["--version"]:
        return False
    starts = name in ("find", "fd", "fdfind") and any(map(_STARTS.match, argv))
    return starts or name in OPEN_PROGRAMS or PYTHON.match(name) is not None


def _skip_flags(argv: list[str], position: int, with_value: frozenset[str] = VALUE_FLAGS) -> int:
    while position < len(argv) and (argv[position].startswith("-") or _ASSIGNMENT.match(argv[position])):
        position += 2 if argv[position] in with_value else 1
    return position


def _classify_nested(command: SimpleCommand, argv: list[str], depth: int) -> CallFacts | None:
    """Classify a command by the commands that its arguments tell it to start; `None` if there are none."""
    name = get_program_name(argv[0])
    if depth >= MAX_DEPTH:
        return None
    if name in SHELLS:
        script = _find_script(command, argv)
        if script is not None:
            return classify_shell(script, depth + 1)
        flags = [*itertools.takewhile(lambda word: word[:1] in ("-", "+") and not _RUNS_TEXT.match(word), argv[1:])]
        return make_facts(CallKind.VERIFY, "shell.lint") if "-n" in flags else None
    if name.lower().removesuffix(".exe") in ("pwsh", "powershell"):
        starts = [i for i, word in enumerate(argv) if word.lower() in ("-command", "-c")]
        return classify_shell(" ".join(argv[starts[0] + 1 :]), depth + 1) if starts else None
    if name == "eval":
        return classify_shell(" ".join(argv[1:]), depth + 1)
    if name in ("xargs", "parallel", "watch"):
        started = _classify_started(command, _find_started([name, *argv[1:]])[0], depth)
        return started or make_facts(CallKind.SETUP, "shell.filter")
    if name in ("find", "fd", "fdfind"):
        for started in _find_started([name, *argv[1:]]):
            inner = _classify_started(command, started, depth)
            if inner is not None and (inner.kind > CallKind.SEARCH or inner.effect is not Effect.PURE_READ):
                return inner
        if "-delete" in argv:
            return make_facts(CallKind.OTHER, "shell.move", Effect.LOCAL_WRITE)
    return None


def _find_script(command: SimpleCommand, argv: list[str]) -> str | None:
    """The text that `bash -c "..."` or `bash <<EOF` runs; `None` for `bash script.sh` and `bash -n`."""
    for position, word in enumerate(argv[1:], 1):
        if _RUNS_TEXT.match(word):
            return argv[position + 1] if position + 1 < len(argv) else None
        if word == "-n" or not word.startswith(("-", "+")):
            return None
    return command.stdin


def _classify_started(command: SimpleCommand, argv: list[str], depth: int) -> CallFacts | None:
    """Classify a command that another one starts in the same directory."""
    return classify_command(SimpleCommand(argv=argv, writes=[], cwd=command.cwd), depth + 1) if argv else None


def _add_redirection(facts: CallFacts, command: SimpleCommand) -> CallFacts:
    """The facts with the files that the output of the command is redirected to."""
    if facts.kind >= CallKind.VERIFY:
        # The log of a run is a by-product, not the agent's writing.
        return msgspec.structs.replace(facts, effect=pick_worst_effect((facts.effect, Effect.LOCAL_WRITE)))
    paths = tuple(command.resolve_path(name) for name in command.writes)
    content = command.stdin if command.stdin is not None else " ".join(command.argv[1:])
    return make_facts(
        CallKind.WRITE, "shell.redirect", writes=paths, reads=facts.reads, payload=content[:4000], creates=True
    )
