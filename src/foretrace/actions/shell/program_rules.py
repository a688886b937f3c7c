"""Rules for single shell programs: a function for each program whose arguments matter, tables for the others.

To add a program, put its name into a table of `program_tables`. If its arguments matter, write a function here and add
it to `PROGRAM_RULES` at the end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import msgspec

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts
from foretrace.actions.python_rules import classify_inline_python
from foretrace.actions.shell.cmdlet_rules import classify_cmdlet
from foretrace.actions.shell.git_rules import classify_git
from foretrace.actions.shell.parse import RUNS_BY_NAME, SimpleCommand
from foretrace.actions.shell.program_tables import (
    CHECK_FLAGS,
    FILTERS,
    INTERPRETERS,
    PROGRAMS,
    PYTHON,
    REMOTE_CHECKS,
    SQL_CLIENTS,
    SUBCOMMANDS,
    WRITE_FLAGS,
)
from foretrace.actions.shell.remote_rules import is_lookup, seems_lookup, sends_api, sends_request
from foretrace.actions.shell.writing_options import has_writing_option
from foretrace.actions.sql_rules import is_read_only_sql
from foretrace.actions.taxonomy import Effect

FINAL_MARKERS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
"""Printing one of these ends the attempt (mini-swe-agent)."""
_EXECUTABLE = re.compile(r"\.(?:sh|bash|py|rb|pl|js|out|exe|bin|run)$")
ProgramRule = Callable[[SimpleCommand, list[str]], CallFacts]

_VERSION_FLAGS = frozenset(("--version", "-V", "-version", "--help", "-h"))
_LOCAL_URL = re.compile(r"(?:https?://)?(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/]|$)")
_DOCKER_GROUPS = frozenset({"compose", "container", "image", "volume", "network"})
_ARCHIVE_LISTS = {"tar": re.compile(r"-?t[a-zA-Z]*|-[zvjJ]+t[a-zA-Z]*|--list"), "unzip": re.compile(r"-[lpZ][qv]*")}
"""Archive program -> its first option when it lists an archive."""
_SETTING_SCRIPT = re.compile(
    r"(?:^|/)(?:activate(?:\.\w+)?|\.?env(?:\.\w+)?|\.(?:ba|z)shrc|\.(?:bash_)?profile|profile|nvm\.sh|conda\.sh)$"
)
_SQL_LOOKS = re.compile(r"(?:\\(?:d[A-Za-z]*\+?|l\+?|z|conninfo|encoding)(?: [\w.*]+)?|-l|--list)\Z")
"""Commands with which psql shows something about the database."""
_CODE_FLAGS = ("-c", "-e", "-E", "-r", "-p", "-pe", "--eval", "-ne", "-le", "-ane")


def get_program_name(word: str) -> str:
    """The name of a program without its folder; `?` for a word that is too long to be one."""
    return word.rsplit("/", 1)[-1] if len(word) < 300 else "?"


def classify_program(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a command that does not start others, without its redirections.

    Args:
        command: the command with its wrappers.
        argv: its program and arguments without wrappers.
    """
    facts = _classify_by_name(command, argv)
    if facts.effect is Effect.PURE_READ and has_writing_option(get_program_name(argv[0]), argv[1:]):
        return msgspec.structs.replace(facts, effect=Effect.LOCAL_WRITE)
    return facts


def _classify_by_name(command: SimpleCommand, argv: list[str]) -> CallFacts:
    name = get_program_name(argv[0])
    if name in ("echo", "printf"):
        if any(marker in word for marker in FINAL_MARKERS for word in argv[1:]):
            return make_facts(CallKind.TERMINAL, "shell.final_marker")
        return make_facts(CallKind.SETUP, "shell.print")
    if command.piped and name in FILTERS and name not in PROGRAM_RULES:
        return make_facts(CallKind.SETUP, "shell.filter")
    if len(argv) > 1 and (lists := _ARCHIVE_LISTS.get(name)) is not None and lists.fullmatch(argv[1]):
        return make_facts(CallKind.READ, "shell.read", Effect.UNKNOWN)
    rule = PROGRAM_RULES["python"] if PYTHON.match(name) else PROGRAM_RULES.get(name)
    if rule is not None:
        return rule(command, argv)
    if name in INTERPRETERS:
        return _classify_interpreter(command, argv)
    if (facts := classify_cmdlet(command, argv)) is not None:
        return facts
    if name in PROGRAMS and ("/" not in argv[0] or argv[0].startswith("/") or PROGRAMS[name][0] is CallKind.VERIFY):
        kind, effect, rule_name = PROGRAMS[name]
        if kind is CallKind.SETUP and _runs_in_setup(name, argv[1:]):
            return make_facts(kind, f"shell.{rule_name}", Effect.SANDBOX_EXEC)
        if kind is CallKind.READ:
            return _classify_file_viewer(command, argv)
        if kind is CallKind.WRITE:
            return _classify_file_editor(command, argv)
        if kind is CallKind.VERIFY and len(argv) == 2 and argv[1] in _VERSION_FLAGS:
            return make_facts(CallKind.OTHER, "shell.version", Effect.PURE_READ)
        return make_facts(kind, f"shell.{rule_name}", effect)
    if "/" in argv[0] or _EXECUTABLE.search(name):
        return make_facts(CallKind.VERIFY, "shell.run")
    return make_facts(CallKind.OTHER, "shell.other", Effect.SANDBOX_EXEC)


def _runs_in_setup(name: str, arguments: list[str]) -> bool:
    """Whether a command that sets up the shell may run or fetch something; scripts known to set variables do not."""
    if name in ("alias", "export"):
        return any("=" in word if name == "alias" else RUNS_BY_NAME.match(word) for word in arguments)
    if name in ("source", "."):
        return not (arguments and _SETTING_SCRIPT.search(arguments[0]))
    return name == "trap" or (name == "nvm" and arguments[:1] not in (["use"], ["ls"], ["list"], ["current"]))


def _list_operands(command: SimpleCommand, argv: list[str]) -> tuple[str, ...]:
    """The arguments that are not flags, as paths."""
    return tuple(command.resolve_path(word) for word in argv[1:] if word and not word.startswith("-"))


def _classify_file_viewer(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a program that shows files."""
    paths = tuple(path for path in _list_operands(command, argv) if not path.isdigit())
    if not paths and argv[0] == "cat" and command.stdin is not None:
        return make_facts(CallKind.SETUP, "shell.print")
    if command.reads:
        paths += (command.resolve_path(command.reads),)
    return make_facts(CallKind.READ, "shell.read", reads=paths)


def _classify_file_editor(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a program that changes files, unless a flag makes it a check."""
    name = argv[0].rsplit("/", 1)[-1]
    flags = {word.split("=", 1)[0] for word in argv[1:] if word.startswith("-")}
    if flags & set(CHECK_FLAGS.get(name, "").split()):
        return make_facts(CallKind.VERIFY, "shell.lint")
    if name in WRITE_FLAGS and not flags & set(WRITE_FLAGS[name].split()):
        return make_facts(CallKind.VERIFY, "shell.lint")
    paths = _list_operands(command, argv)
    if name == "tee":
        if all(path == "/dev/null" or path.startswith("/dev/") for path in paths):
            return make_facts(CallKind.SETUP, "shell.filter")
        # The output of another command is a log, not content; the text of a heredoc is content.
        return make_facts(
            CallKind.WRITE, "shell.edit", writes=paths, payload=(command.stdin or "")[:4000], creates=True
        )
    return make_facts(CallKind.WRITE, "shell.edit", writes=paths, payload=" ".join(argv)[:4000])


def _classify_python(command: SimpleCommand, argv: list[str]) -> CallFacts:
    position = 1
    goes_on = "-i" in argv and (command.reads or command.piped or command.stdin is not None)
    if goes_on:  # it reads more code after the first
        return make_facts(CallKind.VERIFY, "shell.run")
    while position < len(argv):
        word = argv[position]
        if word in ("-c", "-uc", "-Ic", "-Bc", "-bc"):
            return _classify_python_code(command, argv[position + 1] if position + 1 < len(argv) else "")
        if word == "-m":
            return _classify_python_module(command, argv[position + 1 :])
        if word in _VERSION_FLAGS:
            return make_facts(CallKind.OTHER, "shell.version", Effect.PURE_READ)
        if word in ("-W", "-X"):
            position += 1
        elif word == "-":
            break
        elif not word.startswith("-"):
            return _classify_script(command, argv[position:])
        position += 1
    if command.stdin is not None:
        return classify_inline_python(command.stdin)
    if command.reads:
        return make_facts(CallKind.VERIFY, "shell.run")
    if command.piped:
        return make_facts(CallKind.VERIFY, "shell.run")
    return make_facts(CallKind.OTHER, "shell.interactive", Effect.SANDBOX_EXEC)


def _classify_python_code(command: SimpleCommand, code: str) -> CallFacts:
    """Classify `python -c CODE`."""
    facts = classify_inline_python(code)
    if not command.piped or facts.effect in (Effect.LOCAL_WRITE, Effect.EXTERNAL_WRITE):
        return facts
    if facts.kind in (CallKind.OTHER, CallKind.READ) or "sys.stdin" in code:
        # Code after a pipe that only reads its standard input filters the output.
        return make_facts(CallKind.SETUP, "shell.filter", Effect.SANDBOX_EXEC)
    return facts


def _classify_python_module(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify `python -m MODULE ...`."""
    name = argv[0] if argv else ""
    if name in ("http.server", "flask", "uvicorn", "gunicorn", "jupyter", "notebook"):
        return make_facts(CallKind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    if name == "json.tool":
        return make_facts(CallKind.SETUP if command.piped else CallKind.VERIFY, "shell.filter")
    if name in ("venv", "virtualenv", "ensurepip", "zipfile", "tarfile"):
        return make_facts(CallKind.OTHER, "shell.install", Effect.LOCAL_WRITE)
    if name in ("site", "sysconfig", "platform", "pydoc"):
        return make_facts(CallKind.OTHER, "shell.environment", Effect.SANDBOX_EXEC)
    if name in ("pip", "black", "isort", "autopep8", "yapf", "coverage", "ruff", "alembic"):
        return classify_program(command, argv)
    return make_facts(CallKind.VERIFY, "shell.module")


def _classify_script(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify an interpreter with a script file."""
    name = argv[0].rsplit("/", 1)[-1]
    if name in SUBCOMMANDS:
        return _classify_subcommand(command, [name, *argv[1:]])
    return make_facts(CallKind.VERIFY, "shell.run")


def _classify_interpreter(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify an interpreter other than Python: with a script, with code in an argument, or with nothing."""
    if any(word in _CODE_FLAGS for word in argv[1:3]):
        return make_facts(CallKind.VERIFY, "shell.code")
    if len(argv) == 2 and argv[1] in _VERSION_FLAGS | {"-v"}:
        return make_facts(CallKind.OTHER, "shell.version", Effect.PURE_READ)
    rest = [word for word in argv[1:] if not word.startswith("-")]
    if rest:
        return _classify_script(command, rest)
    runs = command.stdin is not None or command.piped or command.reads or ("-version" not in argv and len(argv) > 1)
    return make_facts(CallKind.VERIFY if runs else CallKind.OTHER, "shell.run", Effect.SANDBOX_EXEC)


def _classify_sed(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if any(re.match(r"-[nErsz]*i|--in-place", word) for word in argv[1:]):
        script_flags = ("-e", "-f", "--expression", "--file")
        words = [w for before, w in itertools.pairwise(argv) if w[:1] != "-" and before not in script_flags]
        # Without -e the first word is the script.
        files = words if any(w in script_flags for w in argv) else words[1:]
        paths = tuple(command.resolve_path(w) for w in files if w not in ("{}", ";", "+"))
        return make_facts(CallKind.WRITE, "shell.sed", writes=paths, payload=" ".join(argv)[:4000])
    if command.piped:
        return make_facts(CallKind.SETUP, "shell.filter")
    return make_facts(CallKind.READ, "shell.read", reads=_list_operands(command, argv)[1:])


def _classify_perl(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if any(re.match(r"-[a-z0]*i", word) for word in argv[1:]):
        paths = tuple(command.resolve_path(w) for w in argv[1:] if not w.startswith("-") and re.match(r"[\w./-]+$", w))
        return make_facts(CallKind.WRITE, "shell.sed", writes=paths, payload=" ".join(argv)[:4000])
    if any(re.match(r"-[a-z]*[np][a-z]*e$", word) for word in argv[1:]):
        return make_facts(CallKind.SETUP if command.piped else CallKind.READ, "shell.filter")
    return _classify_interpreter(command, argv)


def _classify_awk(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if command.piped:
        return make_facts(CallKind.SETUP, "shell.filter")
    if "inplace" in argv:
        return make_facts(
            CallKind.WRITE, "shell.sed", writes=_list_operands(command, argv)[-1:], payload=" ".join(argv)[:4000]
        )
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    search = "NR" not in script and re.match(r"\s*!?/[^/]+/\s*(?:\{|$)", script)
    return make_facts(CallKind.SEARCH if search else CallKind.READ, "shell.awk")


def _classify_dd(command: SimpleCommand, argv: list[str]) -> CallFacts:
    target = next((word[3:] for word in argv if word.startswith("of=")), "")
    return make_facts(CallKind.WRITE, "shell.edit", writes=(command.resolve_path(target),) if target else ())


def _classify_pip(command: SimpleCommand, argv: list[str]) -> CallFacts:
    words = [word for word in argv[1:] if word != "pip"]
    # The value of a flag may read like a sub-command: `pip --proxy list install x`.
    verb = words[0] if words else ""
    if verb in ("show", "list", "freeze", "search", "index", "inspect", "tree"):
        return make_facts(CallKind.SEARCH, "shell.package")
    if verb == "check":
        return make_facts(CallKind.VERIFY, "shell.package")
    shows = verb in ("debug", "help", "") or words[:2] in (["config", "list"], ["config", "get"], ["config", "debug"])
    if shows or verb in _VERSION_FLAGS:
        return make_facts(CallKind.OTHER, "shell.environment", Effect.PURE_READ)
    return make_facts(CallKind.OTHER, "shell.install", Effect.LOCAL_WRITE)


def _classify_package_manager(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a system package manager: some of its sub-commands are look-ups."""
    if len(argv) > 1 and argv[1] in ("show", "list", "search", "info", "-l", "-s", "-qa", "-L", "policy"):
        return make_facts(CallKind.SEARCH, "shell.package")
    return make_facts(CallKind.OTHER, "shell.install", Effect.LOCAL_WRITE)


def _classify_subcommand(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a program with sub-commands: `npm test`, `cargo build`, `make`, `manage.py test`."""
    name = argv[0] if argv[0] in SUBCOMMANDS else argv[0].rsplit("/", 1)[-1]
    checks, services, lookups = (part.split() for part in SUBCOMMANDS[name])
    words = [word for word in argv[1:] if not word.startswith("-")]
    if is_lookup(name, argv[1:], lookups):
        return make_facts(CallKind.SEARCH, "shell.look")
    if name == "docker" and words[:1] and words[0] in _DOCKER_GROUPS:
        return _classify_subcommand(command, [name, *argv[argv.index(words[0]) + 1 :]])
    verb = words[0] if words else ""
    verbs = {verb, *argv[1:4]} if name in ("nginx", "apachectl", "npm", "yarn", "pnpm") else {verb, *argv[1:2]}
    if set(argv[1:]) & {"--version", "-V"} or (len(argv) == 2 and argv[1] in _VERSION_FLAGS | {"-v", "version"}):
        return make_facts(CallKind.OTHER, "shell.version", Effect.PURE_READ)
    if name in ("eslint", "ruff", "rubocop", "cargo") and (
        set(argv) & {"--fix", "--unsafe-fixes", "-a", "-A", "--autocorrect"} or verb in ("format", "fmt", "fix")
    ):
        check = set(argv) & {"--check", "--diff"}
        return make_facts(
            CallKind.VERIFY if check else CallKind.WRITE,
            "shell.lint",
            writes=tuple(map(command.resolve_path, words[1:])),
        )
    if verbs & set(services) or (name in ("npm", "yarn", "pnpm") and words[1:2] in (["dev"], ["start"], ["serve"])):
        return make_facts(CallKind.OTHER, "shell.service", Effect.SANDBOX_EXEC)
    if verbs & set(checks) or "*" in checks:
        return make_facts(CallKind.VERIFY, "shell.build")
    return make_facts(CallKind.OTHER, "shell.project", Effect.LOCAL_WRITE)


def _classify_remote(command: SimpleCommand, argv: list[str]) -> CallFacts:
    """Classify a cluster or cloud client: some of its sub-commands only look, or check a plan."""
    name = get_program_name(argv[0])
    if argv[1:2] and argv[1] in REMOTE_CHECKS.get(name, "").split():
        return make_facts(CallKind.VERIFY, "shell.build")
    if is_lookup(name, argv[1:]):
        return make_facts(CallKind.SEARCH, "shell.look")
    if name != "kubectl" and seems_lookup(argv[1:]):
        return make_facts(CallKind.SEARCH, "shell.look", Effect.UNKNOWN)
    return make_facts(CallKind.OTHER, "shell.remote", Effect.EXTERNAL_WRITE)


def _classify_gh(command: SimpleCommand, argv: list[str]) -> CallFacts:
    words = [word for word in argv[1:] if not word.startswith("-")]
    if len(argv) == 2 and argv[1] in ("--version", "--help", "version"):
        return make_facts(CallKind.OTHER, "shell.version", Effect.PURE_READ)
    if "api" in words and sends_api(argv[1:]):
        return make_facts(CallKind.OTHER, "shell.send", Effect.EXTERNAL_WRITE)
    if is_lookup("gh", argv[1:]):
        return make_facts(CallKind.SEARCH, "shell.look")
    if words[1:2] in (["clone"], ["checkout"], ["download"]):
        return make_facts(CallKind.OTHER, "shell.project", Effect.LOCAL_WRITE)
    return make_facts(CallKind.OTHER, "shell.remote", Effect.EXTERNAL_WRITE)


def _classify_yq(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if any(re.match(r"-[a-zA-Z]*i|--in-?place", word) for word in argv[1:]):
        paths = tuple(path for path in _list_operands(command, argv) if re.search(r"\.\w+$", path))
        return make_facts(CallKind.WRITE, "shell.edit", writes=paths[-1:], payload=" ".join(argv)[:4000])
    return make_facts(CallKind.SETUP, "shell.filter") if command.piped else _classify_file_viewer(command, argv)


def _classify_curl(command: SimpleCommand, argv: list[str]) -> CallFacts:
    sends = sends_request(get_program_name(argv[0]), argv[1:])
    if any(_LOCAL_URL.match(word) for word in argv[1:]):
        return make_facts(CallKind.VERIFY, "shell.probe")
    if sends:
        return make_facts(CallKind.OTHER, "shell.send", Effect.EXTERNAL_WRITE)
    return make_facts(CallKind.SEARCH, "shell.fetch")


def _classify_sql_client(command: SimpleCommand, argv: list[str]) -> CallFacts:
    found = [is_read_only_sql(text) for text in (*argv[1:], command.stdin or "")]
    if False in found:
        return make_facts(CallKind.OTHER, "shell.sql", Effect.LOCAL_WRITE)
    shows = True in found or any(_SQL_LOOKS.match(word) for word in argv[1:])
    return make_facts(CallKind.SEARCH if shows else CallKind.OTHER, "shell.sql", Effect.UNKNOWN)


def _classify_sort(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if "-o" in argv[:-1]:
        return make_facts(CallKind.WRITE, "shell.edit", writes=(command.resolve_path(argv[argv.index("-o") + 1]),))
    return make_facts(CallKind.SETUP, "shell.filter") if command.piped else _classify_file_viewer(command, argv)


def _classify_checksum(command: SimpleCommand, argv: list[str]) -> CallFacts:
    if "-c" in argv or "--check" in argv:
        return make_facts(CallKind.VERIFY, "shell.checksum")
    return _classify_file_viewer(command, argv)


def _classify_git(command: SimpleCommand, argv: list[str]) -> CallFacts:
    return classify_git(argv)


PROGRAM_RULES: dict[str, ProgramRule] = {
    "git": _classify_git,
    "sed": _classify_sed,
    "gsed": _classify_sed,
    "perl": _classify_perl,
    "awk": _classify_awk,
    "gawk": _classify_awk,
    "mawk": _classify_awk,
    "dd": _classify_dd,
    "yq": _classify_yq,
    **dict.fromkeys(("kubectl", "helm", "terraform", "tofu", "aws", "gcloud", "az"), _classify_remote),
    "gh": _classify_gh,
    "sort": _classify_sort,
    "python": _classify_python,
    **dict.fromkeys(("pip", "pip3", "uv"), _classify_pip),
    **dict.fromkeys(
        ("apt", "apt-get", "apt-cache", "dpkg", "conda", "mamba", "brew", "gem"), _classify_package_manager
    ),
    **dict.fromkeys(("curl", "wget"), _classify_curl),
    **dict.fromkeys(SQL_CLIENTS, _classify_sql_client),
    **dict.fromkeys(("md5sum", "sha1sum", "sha256sum", "sha512sum"), _classify_checksum),
    **{name: _classify_subcommand for name in SUBCOMMANDS if name != "uv"},
}
"""Program -> the rule that classifies it."""
