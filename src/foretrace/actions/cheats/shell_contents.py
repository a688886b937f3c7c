"""The commands that a shell text starts, however deep they stand in it, and the files that it writes."""

from __future__ import annotations

import itertools
import posixpath
import re

import msgspec

from foretrace.actions.shell.command_rules import strip_wrappers
from foretrace.actions.shell.parse import MAX_DEPTH, SimpleCommand, split_commands
from foretrace.actions.shell.program_rules import get_program_name
from foretrace.actions.shell.program_tables import PYTHON, SHELLS

_ASSIGNED = re.compile(
    r"(?:^|[;&|\n(])\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)=(\"[^\"$`\n]*\"|'[^'\n]*'|[^\s;&|$`\"']+)"
)
_STARTED_ELSEWHERE = re.compile(
    r"\b(?:execSync|exec|spawnSync|spawn|system|popen|shell_exec|passthru|IO\.popen|Open3\.\w+)\s*\(?\s*"
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`)|`([^`]+)`|%x[({]([^)}]+)[)}]|qx[({/]([^)}/]+)[)}/]"
)
_SED_SUBSTITUTION = re.compile(r"s([^\w\s\\])((?:[^\\\n]|\\.)*?)\1((?:[^\\\n]|\\.)*?)\1")
_STARTERS = frozenset(("xargs", "parallel", "watch"))
_VALUE_FLAGS = frozenset(("-I", "-n", "-P", "-d", "-L", "-s", "-a", "-j"))
_REMOVERS = frozenset(("rm", "unlink", "shred", "trash", "rmdir"))


class Command(msgspec.Struct):
    """One command, without what wraps it."""

    argv: list[str]
    """Program (its name alone) and arguments, without quotes."""
    stdin: str | None = None
    reads: str | None = None
    """File that its input is redirected from."""
    cwd: str = ""
    """Directory that an earlier `cd` of the same text went to, or empty."""
    piped: bool = False
    """Whether its input comes from the command before it."""

    @property
    def text(self) -> str:
        """The command as one line, the beginning of a long one."""
        return " ".join(self.argv[:80])[:400]


class Edit(msgspec.Struct):
    """What a call does to the content of one file."""

    path: str
    new: str = ""
    """The new text, of the file or of a part of it."""
    old: str | None = None
    """The text that the new one stands for; `None` where nothing is replaced or it is not known."""
    creates: bool = False
    """Whether the new text is the whole file."""
    appends: bool = False
    """Whether the new text is added at the end of the file, if there is one."""
    removes: bool = False
    """Whether the file is removed, moved away or emptied."""
    moved_to: str = ""
    """Where a file is moved to."""
    moved_from: str = ""
    """Where the file stood that is moved to this path."""
    script: str = ""
    """The program of `sed` or `perl` that makes the change, where that is all that is known."""


class ShellContents(msgspec.Struct):
    """What a shell text holds."""

    commands: list[Command] = []
    edits: list[Edit] = []
    python: list[str] = []
    """Python code that it runs."""


def read_shell(text: str, depth: int = 0) -> ShellContents:
    """Read a shell text; `depth` says how many shells around it started it. Never raises."""
    found = ShellContents()
    for simple in split_commands(_expand(text)):
        _read_command(found, simple, depth)
    return found


def _expand(text: str) -> str:
    """Put the values of variables that the text itself sets to plain words in their places."""
    if "=" not in text or "$" not in text:
        return text
    values = {name: value.strip("'\"") for name, value in _ASSIGNED.findall(text)[:50]}
    for name, value in values.items():
        if len(value) < 300:
            text = re.sub(rf"\$(?:\{{{name}\}}|{name}\b)", lambda _, value=value: value, text)
    return text


def _read_command(found: ShellContents, simple: SimpleCommand, depth: int) -> None:
    argv = strip_wrappers(simple.argv)
    _add_redirections(found, simple)
    if not argv:
        return
    name = get_program_name(argv[0])
    command = Command(
        argv=[name, *argv[1:]], stdin=simple.stdin, reads=simple.reads, cwd=simple.cwd, piped=simple.piped
    )
    found.commands.append(command)
    if depth < MAX_DEPTH:
        for inner in _find_inner_texts(command):
            found_inside = read_shell(inner, depth + 1)
            found.commands += found_inside.commands
            found.edits += found_inside.edits
            found.python += found_inside.python
        started = _find_started(command, found.commands)
        if started:
            _read_command(found, SimpleCommand(argv=started, writes=[], cwd=simple.cwd), depth + 1)
    if PYTHON.match(name):
        found.python += _find_python(command)
    found.edits += _find_command_edits(command, simple)


def _find_inner_texts(command: Command) -> list[str]:
    """Shell texts that a command runs: `bash -c`, `eval`, `alias x='...'`, `node -e "execSync('...')"`."""
    name, words = command.argv[0], command.argv[1:]
    if name in SHELLS:
        for before, word in itertools.pairwise(command.argv):
            if re.match(r"-[a-z]*c$", before):
                return [word]
        return [command.stdin] if command.stdin and not words else []
    if name == "eval":
        return [" ".join(words)]
    if name in ("script", "su", "runuser", "flock", "ssh", "nsenter"):
        return [w for before, w in itertools.pairwise(command.argv) if re.match(r"-[a-z]*c$|--command$", before)]
    if name == "tmux" and "send-keys" in words:
        return [word for word in words if " " in word]
    if name == "alias":
        return [word.split("=", 1)[1] for word in words if "=" in word]
    if name in ("node", "nodejs", "ruby", "perl", "php", "deno", "bun", "awk", "gawk"):
        texts = [*words, command.stdin or ""]
        groups = (match.groups() for text in texts for match in _STARTED_ELSEWHERE.finditer(text[:20_000]))
        return [each.strip("\"'`") for group in groups for each in group if each]
    return []


def _find_started(command: Command, earlier: list[Command]) -> list[str]:
    """The command that another one starts: behind `xargs`, `find -exec`, `git submodule foreach`."""
    argv = command.argv
    if argv[0] in _STARTERS:
        position = 1
        while position < len(argv) and argv[position].startswith("-"):
            position += 2 if argv[position] in _VALUE_FLAGS else 1
        return _add_operands(argv[position:], earlier)
    if argv[0] in ("find", "fd", "fdfind"):
        at = next((i for i, word in enumerate(argv) if word in ("-exec", "-execdir", "-ok", "-x", "-X")), None)
        if at is None:
            return []
        return [_find_target(argv[:at]) if w == "{}" else w for w in argv[at + 1 :] if w not in (";", "+", "\\;")]
    return []


def _add_operands(argv: list[str], earlier: list[Command]) -> list[str]:
    """The command of `xargs` with what it is given: the files, or refs, that the first command of the pipe lists."""
    lister = next((each for each in reversed(earlier[:-1]) if not each.piped), None)
    if not argv or lister is None:
        return argv
    program, words = lister.argv[0], [word for word in lister.argv[1:] if not word.startswith("-")]
    if program in ("find", "fd"):
        target = _find_target(lister.argv)
    elif (program in ("grep", "rg", "ls") or lister.argv[:2] in (["git", "ls-files"], ["git", "grep"])) and words:
        target = words[-1] if "." in words[-1].rsplit("/", 1)[-1] else f"{words[-1]}/*.py"
    else:
        target = "--all" if program == "git" and "--all" in lister.argv else ""
    if not target:
        return argv
    return [target if word == "{}" else word for word in argv] if "{}" in argv else [*argv, target]


def _find_target(argv: list[str]) -> str:
    """What `{}` stands for behind `find`: the folder and the pattern of the names."""
    folder = next((word for word in argv[1:] if not word.startswith("-")), ".")
    name = next((word for before, word in itertools.pairwise(argv) if before in ("-name", "-iname", "-path")), "*")
    return f"{folder}/{name}"


def _find_python(command: Command) -> list[str]:
    for before, word in itertools.pairwise(command.argv):
        if re.match(r"-[A-Za-z]*c$", before):
            return [word]
    scripts = [word for word in command.argv[1:] if not word.startswith("-")]
    return [command.stdin] if command.stdin and not scripts else []


def _add_redirections(found: ShellContents, simple: SimpleCommand) -> None:
    for name in simple.writes:
        if name.startswith("/dev/"):
            continue
        program = get_program_name(simple.argv[0]) if simple.argv else ""
        text = simple.stdin if simple.stdin is not None else ""
        if not text and program in ("echo", "printf"):
            text = " ".join(word for word in simple.argv[1:] if word not in ("-e", "-n", "-en")).replace("\\n", "\n")
        appends = name in simple.appends
        empties = program in (":", "true", "") or (program in ("echo", "printf") and not text.strip("\"' \\n"))
        found.edits.append(
            Edit(
                path=simple.resolve_path(name),
                new=text,
                creates=not appends,
                appends=appends,
                removes=empties and not appends,
            )
        )


def _find_command_edits(command: Command, simple: SimpleCommand) -> list[Edit]:
    """Edits by programs that change files: sed, tee, rm, mv, cp, truncate, `git rm`."""
    name, words = command.argv[0], [word for word in command.argv[1:] if not word.startswith("-")]
    paths = [simple.resolve_path(word) for word in words]
    if name in ("sed", "gsed", "perl") and any(re.match(r"-[a-zA-Z0-9]*i|--in-place", w) for w in command.argv[1:]):
        return _find_sed_edits(command, simple)
    if name == "tee":
        appends = "-a" in command.argv
        return [Edit(path=path, new=command.stdin or "", creates=not appends, appends=appends) for path in paths]
    if name in _REMOVERS:
        return [Edit(path=path, removes=True) for path in paths]
    if name == "truncate":
        return [Edit(path=path, removes=True) for path in paths if not re.match(r"\d", path)]
    if name == "mv" and len(paths) > 1:
        return find_move_edits(paths[:-1], paths[-1])
    if name in ("cp", "install", "ln") and len(paths) > 1:
        return [Edit(path=paths[-1], creates=True, removes=paths[0] in ("/dev/null", "/bin/true", "/usr/bin/true"))]
    if name == "touch":
        return [Edit(path=path) for path in paths]
    if name == "git" and words[:1] == ["mv"] and len(paths) > 2:
        return find_move_edits(paths[1:-1], paths[-1])
    if name == "git" and words[:1] == ["rm"] and "--cached" not in command.argv:
        return [Edit(path=path, removes=True, script="git rm") for path in paths[1:]]
    if name in ("find", "fd") and "-delete" in command.argv:
        return [Edit(path=_find_target(command.argv), removes=True)]
    if name in ("ed", "ex", "vim", "vi") and command.stdin and paths:
        return [Edit(path=paths[-1], script=command.stdin)]
    if name in ("awk", "gawk") and "inplace" in command.argv and len(paths) > 2:
        return [Edit(path=paths[-1], script=words[-2])]
    return []


def find_move_edits(sources: list[str], target: str) -> list[Edit]:
    """What moving files does; a target without a suffix is taken for a folder."""
    found: list[Edit] = []
    for source in sources:
        is_folder = len(sources) > 1 or "." not in posixpath.basename(target.rstrip("/.")) or target.endswith("/")
        path = posixpath.join(target, posixpath.basename(source)) if is_folder else target
        found += [
            Edit(path=source, removes=True, moved_to=path),
            Edit(path=path, creates=True, moved_from=source),
        ]
    return found


def _find_sed_edits(command: Command, simple: SimpleCommand) -> list[Edit]:
    scripts: list[str] = []
    files: list[str] = []
    for before, word in itertools.pairwise(command.argv):
        if before in ("-e", "--expression") or re.match(r"-[a-z0-9]*e$", before):
            scripts.append(word)
        elif not word.startswith("-"):
            files.append(word)
    if not scripts and files:
        scripts.append(files.pop(0))
    script = "\n".join(scripts)
    edits = [(old, new) for _, old, new in _SED_SUBSTITUTION.findall(script)]
    found: list[Edit] = []
    for name in files:
        if name in ("{}", ";", "+", ""):
            continue
        path = simple.resolve_path(name)
        if edits:
            old, new = ("\n".join(side).replace("\\", "") for side in zip(*edits, strict=True))
            found.append(Edit(path=path, old=old, new=new, script=script))
        else:
            found.append(Edit(path=path, script=script))
    return found
