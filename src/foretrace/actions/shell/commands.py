"""What a shell command means: what wraps it is cut off, then tables and readers of single programs decide.

A program whose arguments decide has a reader (`READERS`, at the end); the others stand in the tables of `programs.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import lru_cache

import msgspec

from foretrace.actions.meaning import Kind, Meaning, meaning, merge, worst
from foretrace.actions.python_code import read_inline
from foretrace.actions.shell.git import read_git
from foretrace.actions.shell.parse import MAX_DEPTH, Command, commands
from foretrace.actions.shell.programs import (
    CHECK_MODES,
    FILTERS,
    INTERPRETERS,
    PROGRAMS,
    PROJECT_TOOLS,
    PYTHON,
    RUN_WRAPPERS,
    SHELLS,
    VALUE_FLAGS,
    WRAPPERS,
    WRITE_MODES,
)
from foretrace.actions.sql import sql_reads
from foretrace.actions.taxonomy import Effect

FINAL_MARKERS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
"""Printing one of these ends the attempt (mini-swe-agent)."""

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_XARGS_FLAGS = frozenset(("-I", "-n", "-P", "-d", "-L", "-s", "-a", "-j"))
_EXECUTABLE = re.compile(r"\.(?:sh|bash|py|rb|pl|js|out|exe|bin|run)$")


@lru_cache(maxsize=1024)
def read_shell(command: str, depth: int = 0) -> Meaning:
    """What a shell command means. Never raises on any text."""
    found = [m for c in commands(command) if (m := read_command(c, depth)) is not None]
    chief = merge(found)
    if chief is None:
        return meaning(Kind.OTHER, "shell.empty", Effect.PURE_READ)
    if chief.kind is Kind.SETUP:
        # Nothing but cd, export, echo: it is no read and no search.
        return msgspec.structs.replace(chief, kind=Kind.OTHER, rule="shell.setup")
    return chief


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


Reader = Callable[[Command, list[str]], Meaning]

VERSION_FLAGS = frozenset(("--version", "-V", "-version", "--help", "-h"))
_LOCAL = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/]|$)")
_SENDS = re.compile(r"-X(?:POST|PUT|PATCH|DELETE)?$|--request$|-d$|--data|-F$|--form|-T$|--upload-file|--post")
_CODE_FLAGS = ("-c", "-e", "-E", "-r", "-p", "-pe", "--eval", "-ne", "-le", "-ane")


def operands(command: Command, argv: list[str]) -> tuple[str, ...]:
    """The words that are no flags, as paths."""
    return tuple(command.path(word) for word in argv[1:] if word and not word.startswith("-"))


def read_reading(command: Command, argv: list[str]) -> Meaning:
    """A program that shows files."""
    paths = tuple(path for path in operands(command, argv) if not path.isdigit())
    if not paths and argv[0] == "cat" and command.stdin is not None:
        return meaning(Kind.SETUP, "shell.print")
    if command.reads:
        paths += (command.path(command.reads),)
    return meaning(Kind.READ, "shell.read", reads=paths)


def read_writing(command: Command, argv: list[str]) -> Meaning:
    """A program that changes files, unless a flag makes it a check."""
    name = argv[0].rsplit("/", 1)[-1]
    flags = {word.split("=", 1)[0] for word in argv[1:] if word.startswith("-")}
    if flags & set(CHECK_MODES.get(name, "").split()):
        return meaning(Kind.VERIFY, "shell.lint")
    if name in WRITE_MODES and not flags & set(WRITE_MODES[name].split()):
        return meaning(Kind.VERIFY, "shell.lint")
    paths = operands(command, argv)
    if name == "tee":
        if all(path == "/dev/null" or path.startswith("/dev/") for path in paths):
            return meaning(Kind.SETUP, "shell.filter")
        # What a command prints is logged; the text of a heredoc is written.
        return meaning(Kind.WRITE, "shell.edit", writes=paths, payload=(command.stdin or "")[:4000], creates=True)
    return meaning(Kind.WRITE, "shell.edit", writes=paths, payload=" ".join(argv)[:4000])


def _python(command: Command, argv: list[str]) -> Meaning:
    position = 1
    while position < len(argv):
        word = argv[position]
        if word in ("-c", "-uc", "-Ic", "-Bc", "-bc"):
            return _piped_code(command, argv[position + 1] if position + 1 < len(argv) else "")
        if word == "-m":
            return _module(command, argv[position + 1 :])
        if word in VERSION_FLAGS:
            return meaning(Kind.OTHER, "shell.version", Effect.PURE_READ)
        if word in ("-W", "-X"):
            position += 1
        elif word == "-":
            break
        elif not word.startswith("-"):
            return _script(command, argv[position:])
        position += 1
    if command.stdin is not None:
        return read_inline(command.stdin)
    if command.reads:
        return meaning(Kind.VERIFY, "shell.run", runs=(command.path(command.reads),))
    if command.piped:
        return meaning(Kind.VERIFY, "shell.run")
    return meaning(Kind.OTHER, "shell.interactive", Effect.SANDBOX_EXEC)


def _piped_code(command: Command, code: str) -> Meaning:
    found = read_inline(code)
    if (command.piped and found.kind in (Kind.OTHER, Kind.READ)) or (command.piped and "sys.stdin" in code):
        # Code behind a pipe that only reads standard input shapes what is printed.
        return meaning(Kind.SETUP, "shell.filter")
    return found


def _module(command: Command, argv: list[str]) -> Meaning:
    """`python -m MODULE ...`."""
    name = argv[0] if argv else ""
    if name in ("http.server", "flask", "uvicorn", "gunicorn", "jupyter", "notebook"):
        return meaning(Kind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    if name == "json.tool":
        return meaning(Kind.SETUP if command.piped else Kind.VERIFY, "shell.filter")
    if name in ("venv", "virtualenv", "ensurepip", "zipfile", "tarfile"):
        return meaning(Kind.OTHER, "shell.install", Effect.LOCAL_WRITE)
    if name in ("site", "sysconfig", "platform", "pydoc"):
        return meaning(Kind.OTHER, "shell.environment", Effect.PURE_READ)
    if name in ("pip", "black", "isort", "autopep8", "yapf", "coverage", "ruff", "alembic"):
        return read_program(command, argv)
    return meaning(Kind.VERIFY, "shell.module", runs=(name,))


def _script(command: Command, argv: list[str]) -> Meaning:
    """An interpreter with a script file."""
    name = argv[0].rsplit("/", 1)[-1]
    if name in PROJECT_TOOLS:
        return _project(command, [name, *argv[1:]])
    return meaning(Kind.VERIFY, "shell.run", runs=(command.path(argv[0]),))


def read_interpreter(command: Command, argv: list[str]) -> Meaning:
    """Another interpreter: a script, code in an argument, or nothing."""
    if any(word in _CODE_FLAGS for word in argv[1:3]):
        return meaning(Kind.VERIFY, "shell.code")
    if len(argv) == 2 and argv[1] in VERSION_FLAGS | {"-v"}:
        return meaning(Kind.OTHER, "shell.version", Effect.PURE_READ)
    rest = [word for word in argv[1:] if not word.startswith("-")]
    if rest:
        return _script(command, rest)
    runs = command.stdin is not None or command.piped or command.reads or ("-version" not in argv and len(argv) > 1)
    return meaning(Kind.VERIFY if runs else Kind.OTHER, "shell.run", Effect.SANDBOX_EXEC)


def _sed(command: Command, argv: list[str]) -> Meaning:
    if any(re.match(r"-[nErsz]*i|--in-place", word) for word in argv[1:]):
        given = ("-e", "-f", "--expression", "--file")
        words = [w for before, w in itertools.pairwise(argv) if w[:1] != "-" and before not in given]
        # Without -e the first word is the script.
        files = words if any(w in given for w in argv) else words[1:]
        paths = tuple(command.path(w) for w in files if w not in ("{}", ";", "+"))
        return meaning(Kind.WRITE, "shell.sed", writes=paths, payload=" ".join(argv)[:4000])
    if command.piped:
        return meaning(Kind.SETUP, "shell.filter")
    return meaning(Kind.READ, "shell.read", reads=operands(command, argv)[1:])


def _perl(command: Command, argv: list[str]) -> Meaning:
    if any(re.match(r"-[a-z0]*i", word) for word in argv[1:]):
        paths = tuple(command.path(w) for w in argv[1:] if not w.startswith("-") and re.match(r"[\w./-]+$", w))
        return meaning(Kind.WRITE, "shell.sed", writes=paths, payload=" ".join(argv)[:4000])
    if any(re.match(r"-[a-z]*[np][a-z]*e$", word) for word in argv[1:]):
        return meaning(Kind.SETUP if command.piped else Kind.READ, "shell.filter")
    return read_interpreter(command, argv)


def _awk(command: Command, argv: list[str]) -> Meaning:
    if command.piped:
        return meaning(Kind.SETUP, "shell.filter")
    if "inplace" in argv:
        return meaning(Kind.WRITE, "shell.sed", writes=operands(command, argv)[-1:], payload=" ".join(argv)[:4000])
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    search = "NR" not in script and re.match(r"\s*!?/[^/]+/\s*(?:\{|$)", script)
    return meaning(Kind.SEARCH if search else Kind.READ, "shell.awk")


def _dd(command: Command, argv: list[str]) -> Meaning:
    target = next((word[3:] for word in argv if word.startswith("of=")), "")
    return meaning(Kind.WRITE, "shell.edit", writes=(command.path(target),) if target else ())


def _pip(command: Command, argv: list[str]) -> Meaning:
    words = [word for word in argv[1:] if word != "pip"]
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb in ("show", "list", "freeze", "search", "index", "inspect", "tree"):
        return meaning(Kind.SEARCH, "shell.package")
    if verb == "check":
        return meaning(Kind.VERIFY, "shell.package")
    if verb in ("config", "debug", "help", "") or set(words) & VERSION_FLAGS:
        return meaning(Kind.OTHER, "shell.environment", Effect.PURE_READ)
    return meaning(Kind.OTHER, "shell.install", Effect.LOCAL_WRITE)


def _packages(command: Command, argv: list[str]) -> Meaning:
    """System package managers: only some of their verbs look."""
    if len(argv) > 1 and argv[1] in ("show", "list", "search", "info", "-l", "-s", "-qa", "-L", "policy"):
        return meaning(Kind.SEARCH, "shell.package")
    return meaning(Kind.OTHER, "shell.install", Effect.LOCAL_WRITE)


def _project(command: Command, argv: list[str]) -> Meaning:
    """A program with sub-commands: `npm test`, `cargo build`, `make`, `manage.py test`."""
    name = argv[0] if argv[0] in PROJECT_TOOLS else argv[0].rsplit("/", 1)[-1]
    checks, services, looks = (part.split() for part in PROJECT_TOOLS[name])
    words = [word for word in argv[1:] if not word.startswith("-")]
    verb = words[0] if words else ""
    given = {verb, *argv[1:4]} if name in ("gh", "nginx", "apachectl", "npm", "yarn", "pnpm") else {verb, *argv[1:2]}
    if set(argv[1:]) & {"--version", "-V"} or (len(argv) == 2 and argv[1] in VERSION_FLAGS | {"-v", "version"}):
        return meaning(Kind.OTHER, "shell.version", Effect.PURE_READ)
    if name in ("eslint", "ruff", "rubocop", "cargo") and (
        set(argv) & {"--fix", "--unsafe-fixes", "-a", "-A", "--autocorrect"} or verb in ("format", "fmt", "fix")
    ):
        check = set(argv) & {"--check", "--diff"}
        return meaning(Kind.VERIFY if check else Kind.WRITE, "shell.lint", writes=tuple(map(command.path, words[1:])))
    if given & set(services) or (name in ("npm", "yarn", "pnpm") and words[1:2] in (["dev"], ["start"], ["serve"])):
        return meaning(Kind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    if given & set(checks) or "*" in checks:
        return meaning(Kind.VERIFY, "shell.build")
    if given & set(looks):
        return meaning(Kind.SEARCH, "shell.look")
    return meaning(Kind.OTHER, "shell.project", Effect.LOCAL_WRITE)


def _curl(command: Command, argv: list[str]) -> Meaning:
    sends = any(_SENDS.match(word) for word in argv[1:]) and "GET" not in argv and "HEAD" not in argv
    if any(_LOCAL.match(word) for word in argv[1:]):
        return meaning(Kind.VERIFY, "shell.probe")
    if sends:
        return meaning(Kind.OTHER, "shell.send", Effect.EXTERNAL_WRITE)
    return meaning(Kind.SEARCH, "shell.fetch")


def _sql_client(command: Command, argv: list[str]) -> Meaning:
    texts = [*argv[1:], command.stdin or ""]
    found = [reads for text in texts if (reads := sql_reads(text)) is not None]
    if not found:
        return meaning(Kind.OTHER, "shell.sql", Effect.UNKNOWN)
    if all(found):
        return meaning(Kind.SEARCH, "shell.sql")
    return meaning(Kind.OTHER, "shell.sql", Effect.LOCAL_WRITE)


def _sort(command: Command, argv: list[str]) -> Meaning:
    if "-o" in argv[:-1]:
        return meaning(Kind.WRITE, "shell.edit", writes=(command.path(argv[argv.index("-o") + 1]),))
    return meaning(Kind.SETUP, "shell.filter") if command.piped else read_reading(command, argv)


def _checksum(command: Command, argv: list[str]) -> Meaning:
    if "-c" in argv or "--check" in argv:
        return meaning(Kind.VERIFY, "shell.checksum")
    return read_reading(command, argv)


def _git(command: Command, argv: list[str]) -> Meaning:
    return read_git(argv)


READERS: dict[str, Reader] = {
    "git": _git,
    "sed": _sed,
    "gsed": _sed,
    "perl": _perl,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "dd": _dd,
    "sort": _sort,
    "python": _python,
    **dict.fromkeys(("pip", "pip3", "uv"), _pip),
    **dict.fromkeys(("apt", "apt-get", "apt-cache", "dpkg", "conda", "mamba", "brew", "gem"), _packages),
    **dict.fromkeys(("curl", "wget", "http", "httpie"), _curl),
    **dict.fromkeys(("sqlite3", "mysql", "psql", "mariadb", "duckdb", "clickhouse-client"), _sql_client),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum"), _checksum),
    **{name: _project for name in PROJECT_TOOLS if name != "uv"},
}
"""Program -> its reader."""
