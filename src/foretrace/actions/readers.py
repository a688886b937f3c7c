"""Readers for the shell programs whose arguments decide what they do.

To add one, write `def _name(command, argv, depth) -> Meaning` and enter it in `READERS`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from foretrace.actions.git import read_git
from foretrace.actions.meaning import Kind, Meaning, meaning
from foretrace.actions.programs import CHECK_MODES, PROJECT_TOOLS, WRITE_MODES
from foretrace.actions.pycode import read_inline
from foretrace.actions.shell import Command
from foretrace.actions.sql import sql_reads
from foretrace.actions.taxonomy import Effect

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
    from foretrace.actions.commands import read_program

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
