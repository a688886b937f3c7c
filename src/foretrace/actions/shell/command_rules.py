"""Rules for shell commands: wrappers such as `sudo` are removed, commands inside commands are followed, and the tables
of `program_tables` say what each program does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from foretrace.actions.call_facts import CallFacts, CallKind, merge_facts, pick_worst_effect
from foretrace.actions.python_rules import classify_inline_python
from foretrace.actions.rules import make_facts
from foretrace.actions.shell import program_tables as tables
from foretrace.actions.shell.parse import MAX_DEPTH, RUNS_BY_NAME, SimpleCommand, split_commands
from foretrace.actions.sql_rules import is_read_only_sql
from foretrace.actions.taxonomy import Effect

FINAL_MARKERS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
"""Printing one of these ends the attempt (mini-swe-agent)."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_FINDERS = ("find", "fd", "fdfind")
_STARTERS = ("xargs", "parallel", "watch")
_STARTS = re.compile(r"(?:-exec|-execdir|-ok|-okdir|-x|-X|--exec(?:-batch)?(?:=.*)?)\Z", re.DOTALL)
"""Options of `find` and `fd` that start a command."""
_MAX_STARTED = 20
_XARGS_FLAGS = frozenset(("-I", "-n", "-P", "-d", "-L", "-s", "-a", "-j"))
_RUNS_TEXT = re.compile(r"-[a-z]*c$")
"""The option of a shell that runs the next argument."""
_EXECUTABLE = re.compile(r"\.(?:sh|bash|py|rb|pl|js|out|exe|bin|run)$")
_CODE_FLAGS = ("-c", "-e", "-E", "-r", "-p", "-pe", "--eval", "-ne", "-le", "-ane")
_SCRIPT_FLAG = re.compile(r"-[a-zA-Z0-9]*[ef]$|--expression$|--file$")
_IN_PLACE = re.compile(r"-[a-zA-Z0-9]*i|--in-?place")
_AWK_IN_PLACE = re.compile(r"(?:-i|--include=)?inplace$")
_CHECKS = ("test", "lint", "build", "run")
_SQL_LOOKS = re.compile(r"(?:\\(?:d[A-Za-z]*\+?|l\+?|z|conninfo|encoding)(?: [\w.*]+)?|-l|--list)\Z")
"""Commands with which psql shows something about the database."""
_CMDLET = re.compile(r"[A-Z][A-Za-z]{1,19}-[A-Za-z]{3,40}\Z")
_CMDLET_PATHS = ("-path", "-literalpath", "-filepath")
_CMDLET_SWITCHES = ("-recurse", "-force", "-raw", "-append", "-nonewline", "-file", "-directory", "-hidden", "-wait")
_CMDLET_SENDS = re.compile(r"-(?:m|c|b|inf|fo)\w*", re.IGNORECASE)
"""-Method, -CustomMethod, -Body, -InFile, -Form, or any abbreviation, as PowerShell allows."""
_WINDOWS_FILE = re.compile(r"[\w .:\\/*-]*(?:\.\w{1,8}|[\\/]\S+)\Z")
_MODULES = {
    **dict.fromkeys(("http.server", "flask", "uvicorn", "gunicorn", "jupyter", "notebook"), "shell.service"),
    **dict.fromkeys(("venv", "virtualenv", "ensurepip", "zipfile", "tarfile"), "shell.install"),
    **dict.fromkeys(("site", "sysconfig", "platform", "pydoc"), "shell.environment"),
}
_PROGRAM_MODULES = ("pip", "black", "isort", "autopep8", "yapf", "coverage", "ruff", "alembic")
"""Python modules that are programs of their own."""


def get_program_name(word: str) -> str:
    """The name of a program without its folder; `?` for a word that is too long to be one."""
    return word.rsplit("/", 1)[-1] if len(word) < 300 else "?"


@lru_cache(maxsize=1024)
def classify_shell(command: str, depth: int = 0) -> CallFacts:
    """Classify a line or script of a shell, with `depth` shells around it (`bash -c`). Never raises on any text."""
    parts = [(c, facts) for c in split_commands(command) if (facts := classify_command(c, depth)) is not None]
    # Next to other commands, `pwd` or `date` says as little about the step as `cd`. In `ps | grep x` it says more.
    if any(not (_shows_environment(f) or c.piped or f.kind is CallKind.SETUP) for c, f in parts):
        parts = [(c, msgspec.structs.replace(f, kind=CallKind.SETUP) if _shows_environment(f) else f) for c, f in parts]
    facts = merge_facts(facts for _, facts in parts)
    if facts is None:
        return make_facts("shell.empty")
    if facts.kind is CallKind.SETUP:
        # Only cd, export, echo: it is neither a read nor a search.
        return msgspec.structs.replace(facts, kind=CallKind.OTHER, rule="shell.setup")
    return facts


def _shows_environment(facts: CallFacts) -> bool:
    return facts.rule == "shell.environment"


@lru_cache(maxsize=512)
def list_commands(text: str, depth: int = 0) -> list[SimpleCommand]:
    """All commands that a shell text starts, including those inside other commands, without their wrappers, and with
    programs by name, without a path. The result is shared and must not be changed."""
    return [inner for command in split_commands(text) for inner in _list_inner(command, depth)]


def _list_inner(command: SimpleCommand, depth: int) -> list[SimpleCommand]:
    argv = strip_wrappers(command.argv)
    if not argv:
        return [msgspec.structs.replace(command, argv=[])]
    argv = [get_program_name(argv[0]), *argv[1:]]
    found = [msgspec.structs.replace(command, argv=argv)]
    if depth >= MAX_DEPTH:
        return found
    if script := _find_script(command, argv):
        return found + list_commands(script, depth + 1)
    for started in _find_started(argv):
        if argv[0] == "find" and "-name" in argv[:-1]:
            started = [argv[argv.index("-name") + 1] if word == "{}" else word for word in started if word != ";"]
        found += _list_inner(SimpleCommand(argv=started, writes=[], cwd=command.cwd), depth + 1)
    return found


def _find_script(command: SimpleCommand, argv: list[str]) -> str | None:
    """The text that `bash -c "..."`, `bash <<EOF` or `eval` runs; `None` for `bash script.sh` and `bash -n`."""
    if argv[0] == "eval":
        return " ".join(argv[1:])
    if argv[0].lower().removesuffix(".exe") in ("pwsh", "powershell"):
        start = next((i for i, word in enumerate(argv) if word.lower() in ("-command", "-c")), len(argv))
        return " ".join(argv[start + 1 :]) or None
    if argv[0] not in tables.SHELLS:
        return None
    for position, word in enumerate(argv[1:], 1):
        if _RUNS_TEXT.match(word):
            return argv[position + 1] if position + 1 < len(argv) else None
        if not word.startswith(("-", "+")):
            return None
    return command.stdin


def _find_started(argv: list[str]) -> list[list[str]]:
    if argv[0] in _STARTERS:
        return [argv[_skip_flags(argv, 1, _XARGS_FLAGS) :]]
    if argv[0] not in _FINDERS:
        return []
    starts = [i for i, word in enumerate(argv) if _STARTS.match(word)][:_MAX_STARTED]
    values = [[argv[start].partition("=")[2]] if "=" in argv[start] else [] for start in starts]
    ends = [*starts[1:], len(argv)]
    return [[*value, *argv[start + 1 : end]] for value, start, end in zip(values, starts, ends, strict=False)]


def classify_command(command: SimpleCommand, depth: int = 0) -> CallFacts | None:
    """Classify one command of a line; `None` if nothing is left of it without its wrappers."""
    argv = strip_wrappers(command.argv)
    if not argv:
        return None if not command.writes else _add_redirection(make_facts("shell.setup"), command)
    wrapping = command.argv[: len(command.argv) - len(argv)]
    facts = _classify_nested(command, argv, depth) or _classify_program(command, argv)
    if facts.effect is Effect.PURE_READ:
        pattern = tables.WRITING_ARGUMENTS.get(get_program_name(argv[0]))
        if pattern is not None and pattern.search("\n".join(word.replace("\n", ";") for word in argv[1:])):
            facts = msgspec.structs.replace(facts, effect=Effect.LOCAL_WRITE)
        elif _runs_arguments(argv):
            facts = msgspec.structs.replace(facts, effect=Effect.UNKNOWN)
        elif {"docker", "run"} <= {*wrapping} or any(map(RUNS_BY_NAME.match, wrapping)):
            facts = msgspec.structs.replace(facts, effect=Effect.SANDBOX_EXEC)
    if command.background and facts.kind is CallKind.VERIFY:
        facts = make_facts("shell.service")
    return _add_redirection(facts, command) if command.writes else facts


def strip_wrappers(argv: list[str]) -> list[str]:
    """Remove the leading words that only wrap a command: assignments, sudo, env, timeout N, `poetry run`, ..."""
    position, count = 0, len(argv)
    while position < count:
        word = argv[position]
        name, after = get_program_name(word), position + 1
        if name in ("coverage", "kernprof", "scalene") and argv[after : after + 1] == ["run"]:
            return ["python", *argv[after + 1 :]]
        if _ASSIGNMENT.match(word) or name in ("!", "{"):
            position = after
            continue
        if name in tables.WRAPPERS:
            after = _skip_flags(argv, after) + (name in ("timeout", "gtimeout"))
            if name == "command" and argv[position + 1 : position + 2] in (["-v"], ["-V"]):
                return argv[position:]
        elif name in tables.RUN_WRAPPERS and argv[after : after + 1] in (["run"], ["exec"]):
            # `docker run IMAGE`: the image comes before the command.
            after = _skip_flags(argv, after + 1) + (name == "docker")
        elif name in tables.DIRECT_RUNNERS:
            after = _skip_flags(argv, after)
        else:
            return argv[position:]
        if after >= count:
            return argv[position:]
        position = after
    return []


def _runs_arguments(argv: list[str]) -> bool:
    name = get_program_name(argv[0])
    if argv[1:] == ["--version"]:
        return False
    starts = name in _FINDERS and any(map(_STARTS.match, argv))
    return starts or name in tables.OPEN_PROGRAMS or tables.PYTHON.match(name) is not None


def _skip_flags(argv: list[str], position: int, with_value: frozenset[str] = tables.VALUE_FLAGS) -> int:
    while position < len(argv) and (argv[position].startswith("-") or _ASSIGNMENT.match(argv[position])):
        position += 2 if argv[position] in with_value else 1
    return position


def _classify_nested(command: SimpleCommand, argv: list[str], depth: int) -> CallFacts | None:
    """Classify a command by the commands that its arguments tell it to start; `None` if there are none."""
    if depth >= MAX_DEPTH:
        return None
    argv = [get_program_name(argv[0]), *argv[1:]]
    name = argv[0]
    script = _find_script(command, argv)
    if script is not None:
        return classify_shell(script, depth + 1)
    if name in tables.SHELLS:
        flags = itertools.takewhile(lambda word: word[:1] in ("-", "+") and not _RUNS_TEXT.match(word), argv[1:])
        return make_facts("shell.lint") if "-n" in flags else None
    for started in _find_started(argv):
        inner = SimpleCommand(argv=started, writes=[], cwd=command.cwd)
        inner = classify_command(inner, depth + 1) if started else None
        if name in _STARTERS:
            return inner or make_facts("shell.filter")
        if inner is not None and (inner.kind > CallKind.SEARCH or inner.effect is not Effect.PURE_READ):
            return inner
    return make_facts("shell.move") if name in _FINDERS and "-delete" in argv else None


def _add_redirection(facts: CallFacts, command: SimpleCommand) -> CallFacts:
    if facts.kind >= CallKind.VERIFY:
        # The log of a run is a by-product, not the agent's writing.
        return msgspec.structs.replace(facts, effect=pick_worst_effect((facts.effect, Effect.LOCAL_WRITE)))
    paths = tuple(command.resolve_path(name) for name in command.writes)
    content = command.stdin if command.stdin is not None else " ".join(command.argv[1:])
    return make_facts("shell.redirect", writes=paths, reads=facts.reads, payload=content[:4000], creates=True)


def _classify_program(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a command that does not start others: `argv` are its program and arguments without wrappers."""
    name = get_program_name(argv[0])
    if name in ("echo", "printf"):
        ends = any(marker in word for marker in FINAL_MARKERS for word in argv[1:])
        return make_facts("shell.final_marker" if ends else "shell.print")
    in_place = _AWK_IN_PLACE if name.endswith("awk") else _IN_PLACE
    if name in tables.SCRIPT_READERS and any(map(in_place.match, argv[1:])):
        return _classify_in_place(command, argv)
    if command.piped and name in tables.FILTERS:
        return make_facts("shell.filter")
    if tables.PYTHON.match(name):
        return _classify_python(command, argv)
    if (special := _SPECIAL_PROGRAMS.get(name)) is not None:
        return special(command, argv)
    if name in tables.SUBCOMMANDS:
        return _classify_subcommand(command, [name, *argv[1:]])
    if name in tables.INTERPRETERS:
        return _classify_interpreter(command, argv)
    if (facts := _classify_cmdlet(command, argv)) is not None:
        return facts
    rule = tables.PROGRAMS.get(name)
    is_local = "/" in argv[0] and not argv[0].startswith("/")
    if rule is None or (is_local and rule not in _CHECKS):
        return make_facts("shell.run" if "/" in argv[0] or _EXECUTABLE.search(name) else "shell.other")
    return _classify_by_table(command, argv, name, rule)


def _classify_by_table(command: SimpleCommand, argv: list[str], name: str, rule: str) -> CallFacts:
    arguments = " ".join(argv[1:]).replace("\n", " ")
    special: CallKind | Effect | None = None
    for pattern, found, override in tables.BY_ARGUMENTS.get(name, ()):
        if pattern.match(arguments):
            rule, special = found, override
            break
    else:
        if is_lookup(name, argv[1:]):
            rule = "look"
        elif rule in _CHECKS and tables.IS_VERSION.match(arguments):
            rule = "version"
        elif rule == "setup" and name == "export" and any(map(RUNS_BY_NAME.match, argv[1:])):
            special = Effect.SANDBOX_EXEC
    kind = special if isinstance(special, CallKind) else None
    effect = special if isinstance(special, Effect) else None
    if rule == "read":
        return _classify_viewer(command, argv, effect)
    if rule == "edit":
        # The output of another command is a log, not content; the text of a heredoc is content.
        payload = (command.stdin or "") if name == "tee" else " ".join(argv)
        writes = _list_operands(command, argv)
        return make_facts("shell.edit", writes=writes, payload=payload[:4000], creates=name == "tee")
    return make_facts(f"shell.{rule}", kind, effect)


def is_lookup(name: str, arguments: list[str]) -> bool:
    if name not in tables.LOOKUPS:
        return False
    flags, pattern = tables.LOOKUPS[name]
    start = 0
    while start < len(arguments) and arguments[start].partition("=")[0] in flags:
        start += 1 if "=" in arguments[start] else 2
    return pattern.fullmatch(" ".join(re.sub(r"\s", "_", word) for word in arguments[start:])) is not None


def _list_operands(command: SimpleCommand, argv: list[str]) -> tuple[str, ...]:
    return tuple(command.resolve_path(word) for word in argv[1:] if word and not word.startswith("-"))


def _classify_viewer(command: SimpleCommand, argv: list[str], effect: Effect | None = None) -> CallFacts:
    paths = tuple(path for path in _list_operands(command, argv) if not path.isdigit())
    if not paths and argv[0] == "cat" and command.stdin is not None:
        return make_facts("shell.print")
    if argv[0].endswith("sed"):
        paths = paths[1:]
    if command.reads:
        paths += (command.resolve_path(command.reads),)
    return make_facts("shell.read", None, effect, reads=paths)


def _classify_in_place(command: SimpleCommand, argv: list[str]) -> CallFacts:
    paths = tuple(map(command.resolve_path, split_script(argv)[1]))
    return make_facts("shell.sed", writes=paths, payload=" ".join(argv)[:4000])


def split_script(argv: list[str]) -> tuple[list[str], list[str]]:
    """The scripts and the files of `sed -i`, `perl -pi -e`, `yq -i`: without an option for the script, the first word
    is the script."""
    scripts: list[str] = []
    files: list[str] = []
    for before, word in itertools.pairwise(argv):
        if _SCRIPT_FLAG.match(before):
            scripts.append(word)
        elif word and not word.startswith("-") and word not in ("{}", ";", "+"):
            files.append(word)
    return (scripts, files) if scripts else (files[:1], files[1:])


def _classify_awk(command: SimpleCommand, argv: list[str]) -> CallFacts:
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    search = "NR" not in script and re.match(r"\s*!?/[^/]+/\s*(?:\{|$)", script)
    return make_facts("shell.awk", CallKind.SEARCH if search else CallKind.READ)


def _classify_perl(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if any(re.match(r"-[a-z]*[np][a-z]*e$", word) for word in argv[1:]):
        return make_facts("shell.filter", CallKind.READ)
    return _classify_interpreter(command, argv)


def _classify_sql_client(command: SimpleCommand, argv: list[str]) -> CallFacts:
    found = [is_read_only_sql(text) for text in (*argv[1:], command.stdin or "")]
    if False in found:
        return make_facts("shell.sql", None, Effect.LOCAL_WRITE)
    shows = True in found or any(_SQL_LOOKS.match(word) for word in argv[1:])
    return make_facts("shell.sql", CallKind.SEARCH if shows else CallKind.OTHER, Effect.UNKNOWN)


def _classify_python(command: SimpleCommand, argv: list[str]) -> CallFacts:
    has_input = command.reads or command.piped or command.stdin is not None
    words = iter(argv[1:])
    for word in words:
        if re.fullmatch(r"-[uIBb]?c", word):
            return _classify_python_code(command, next(words, ""))
        if word == "-m":
            return _classify_python_module(command, [*words])
        if tables.IS_VERSION.match(word):
            return make_facts("shell.version")
        if word in ("-W", "-X"):
            next(words, "")
        elif word == "-":
            break
        elif not word.startswith("-"):
            return _classify_script(command, [word, *words])
    if command.stdin is not None:
        return classify_inline_python(command.stdin)
    return make_facts("shell.run" if has_input else "shell.interactive")


def _classify_python_code(command: SimpleCommand, code: str) -> CallFacts:
    facts = classify_inline_python(code)
    if not command.piped or facts.effect in (Effect.LOCAL_WRITE, Effect.EXTERNAL_WRITE):
        return facts
    if facts.kind in (CallKind.OTHER, CallKind.READ) or "sys.stdin" in code:
        # Code after a pipe that only reads its standard input filters the output.
        return make_facts("shell.filter", None, Effect.SANDBOX_EXEC)
    return facts


def _classify_python_module(command: SimpleCommand, argv: list[str]) -> CallFacts:
    name = argv[0] if argv else ""
    if name == "json.tool":
        return make_facts("shell.filter", CallKind.SETUP if command.piped else CallKind.VERIFY)
    if name in _PROGRAM_MODULES:
        return _classify_program(command, argv)
    rule = _MODULES.get(name, "shell.module")
    return make_facts(rule, None, Effect.SANDBOX_EXEC if rule == "shell.environment" else None)


def _classify_script(command: SimpleCommand, argv: list[str]) -> CallFacts:
    name = get_program_name(argv[0])
    return _classify_subcommand(command, [name, *argv[1:]]) if name in tables.SUBCOMMANDS else make_facts("shell.run")


def _classify_interpreter(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if any(word in _CODE_FLAGS for word in argv[1:3]):
        return make_facts("shell.code")
    if len(argv) == 2 and (tables.IS_VERSION.match(argv[1]) or argv[1] == "-v"):
        return make_facts("shell.version")
    rest = [word for word in argv[1:] if not word.startswith("-")]
    if rest:
        return _classify_script(command, rest)
    runs = command.stdin is not None or command.piped or command.reads or len(argv) > 1
    return make_facts("shell.run", CallKind.VERIFY if runs else CallKind.OTHER, Effect.SANDBOX_EXEC)


def _classify_subcommand(command: SimpleCommand, argv: list[str]) -> CallFacts:
    name = argv[0]
    checks, services, lookups = (part.split() for part in tables.SUBCOMMANDS[name])
    words = [word for word in argv[1:] if not word.startswith("-")]
    if is_lookup(name, argv[1:]) or (name not in tables.LOOKUPS and argv[1:2] and argv[1] in lookups):
        return make_facts("shell.look")
    if name == "docker" and words[:1] in (["compose"], ["container"], ["image"], ["volume"], ["network"]):
        return _classify_subcommand(command, [name, *argv[argv.index(words[0]) + 1 :]])
    verb = words[0] if words else ""
    verbs = {verb, *argv[1 : 4 if name in ("nginx", "apachectl", "npm", "yarn", "pnpm") else 2]}
    if {*argv[1:]} & {"--version", "-V"} or (
        len(argv) == 2 and (tables.IS_VERSION.match(argv[1]) or argv[1] in ("-v", "version"))
    ):
        return make_facts("shell.version")
    if name in ("eslint", "ruff", "rubocop", "cargo") and (
        {*argv} & {"--fix", "--unsafe-fixes", "-a", "-A", "--autocorrect"} or verb in ("format", "fmt", "fix")
    ):
        kind = CallKind.VERIFY if {*argv} & {"--check", "--diff"} else CallKind.WRITE
        return make_facts("shell.lint", kind, writes=tuple(map(command.resolve_path, words[1:])))
    if verbs & {*services} or (name in ("npm", "yarn", "pnpm") and words[1:2] in (["dev"], ["start"], ["serve"])):
        return make_facts("shell.service")
    return make_facts("shell.build" if verbs & {*checks} or "*" in checks else "shell.project")


def split_git(argv: list[str]) -> tuple[str, list[str]]:
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in tables.LOOKUPS["git"][0] else 1
    return (argv[position] if position < len(argv) else ""), argv[position + 1 :]


def classify_git(argv: list[str]) -> CallFacts:
    """Classify `git ...`; paths are left as written. `label_steps` makes `git.diff` a check after edits."""
    verb, rest = split_git(argv)
    if verb in ("diff", "status", "difftool", "show"):
        return make_facts(f"git.{verb}")
    if not verb and "--version" in argv[1:2]:
        return make_facts("shell.version")
    if is_lookup("git", [verb, *rest]):
        return make_facts("git.look")
    if verb in ("apply", "am"):
        return make_facts("git.apply", CallKind.VERIFY if {"--check", "--stat"} & {*rest} else None)
    if verb == "restore" or _discards_changes(verb, rest):
        return make_facts("git.undo", writes=tuple(word for word in rest if not word.startswith("-")))
    if verb == "bisect" and rest[:1] == ["run"]:
        return make_facts("git.bisect")
    return make_facts("git.other", None, Effect.EXTERNAL_WRITE if verb in ("push", "send-email") else None)


def _discards_changes(verb: str, rest: list[str]) -> bool:
    if verb == "checkout":
        names_file = any(w == "." or "." in w.rsplit("/", 1)[-1] for w in rest if not w.startswith("-"))
        return not {"-b", "-B"} & {*rest} and ("--" in rest or names_file)
    if verb == "stash":
        return not rest or rest[0] in ("push", "save") or rest[0].startswith("-")
    return verb == "reset" and "--hard" in rest


def _classify_cmdlet(command: SimpleCommand, argv: list[str]) -> CallFacts | None:
    """Classify a command of PowerShell or cmd.exe; `None` for any other program."""
    name = argv[0].lower().removesuffix(".exe")
    path = _find_cmdlet_path(argv)
    if name == "type" and _WINDOWS_FILE.match(path):
        name = "get-content"
    rule = tables.CMDLETS.get(name)
    if rule is None:
        known = _CMDLET.match(argv[0])
        return make_facts("shell.test" if name.startswith("invoke-") else "shell.other") if known else None
    paths = (command.resolve_path(path.replace("\\", "/")),) if path else ()
    if rule == "edit":
        creates = name in ("set-content", "out-file")
        return make_facts("shell.edit", writes=paths, payload=" ".join(argv)[:4000], creates=creates)
    if rule == "fetch":
        sends = any(map(_CMDLET_SENDS.match, argv[1:]))
        return make_facts("shell.send") if sends else make_facts("shell.fetch", None, Effect.UNKNOWN)
    effect = None if rule == "move" else Effect.SANDBOX_EXEC
    return make_facts(f"shell.{rule}", None, effect, reads=paths if rule == "read" else ())


def _find_cmdlet_path(argv: list[str]) -> str:
    """The named path, else the first word that is not the value of a parameter."""
    pairs = [(before.lower(), word) for before, word in itertools.pairwise(argv) if not word.startswith("-")]
    free = (word for before, word in pairs if not before.startswith("-") or before in _CMDLET_SWITCHES)
    return next((word for before, word in pairs if before in _CMDLET_PATHS), next(free, ""))


_SPECIAL_PROGRAMS: dict[str, Callable[[SimpleCommand, list[str]], CallFacts]] = {
    "git": lambda command, argv: classify_git(argv),
    **dict.fromkeys(("sed", "gsed", "yq"), _classify_viewer),
    **dict.fromkeys(("awk", "gawk", "mawk"), _classify_awk),
    "perl": _classify_perl,
    **dict.fromkeys(tables.SQL_CLIENTS, _classify_sql_client),
}
