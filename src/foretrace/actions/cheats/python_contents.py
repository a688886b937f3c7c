"""What Python code does when it is run: the commands it starts, the files it writes, the strings it holds."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import msgspec

from foretrace.actions.call_facts import split_words
from foretrace.actions.cheats.code_signs import normalise_names
from foretrace.actions.cheats.shell_contents import Command, Edit, find_move_edits
from foretrace.core.python_source import try_parse

MAX_NODES = 8000
"""Nodes of a syntax tree that are visited."""
_STARTERS = split_words(
    "run Popen check_output check_call call system popen getoutput getstatusoutput create_subprocess_shell "
    "create_subprocess_exec spawn execvp execv sh"
)
_NETWORK = re.compile(r"\b(?:requests|urllib|urlopen|urlretrieve|httpx|aiohttp|wget|pycurl|http\.client)\b")
_MAGIC = re.compile(r"^\s*[!%][^\n]*$", re.M)
_QUOTED = re.compile(r"\"([^\"\\\n]{1,300})\"|'([^'\\\n]{1,300})'")
_MAY_START = re.compile(rf"\b(?:{'|'.join(sorted(_STARTERS))}|git|iter_commits|fetch|pull)\b|[\"'][/\\]")
_REMOVERS = frozenset(("remove", "unlink", "rmtree"))
_FILE_CALLS = _REMOVERS | split_words("open write_text write_bytes write replace sub subn rename move")
_HOLE = "X"
"""Stands for a part of a string that is not known before the code runs."""


class PythonContents(msgspec.Struct):
    """What Python code holds."""

    shell: list[str] = []
    """Texts that it gives to a shell."""
    commands: list[Command] = []
    """Commands that it starts word by word."""
    edits: list[Edit] = []
    strings: list[str] = []
    uses_network: bool = False


def read_python(code: str) -> PythonContents:
    """Read Python code; of code that does not parse only the strings are found. Never raises."""
    found = PythonContents(uses_network=bool(_NETWORK.search(code)))
    tree = try_parse(_MAGIC.sub("pass", code))
    if tree is None:
        found.strings = [a or b for a, b in _QUOTED.findall(code)]
        return found
    nodes = list_nodes(tree)
    names = _find_values(nodes)
    opened: list[tuple[str, str]] = []
    changes: list[tuple[str, str]] = []
    written: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 400:
            found.strings.append(node.value)
        elif isinstance(node, ast.Call):
            _read_started(node, names, found)
            _read_file_call(node, names, found, opened, changes, written)
    for path, mode in opened:
        if not set(mode) & set("wax+"):
            continue
        appends = "a" in mode
        if changes:
            found.edits += [Edit(path=path, old=old, new=new, script=f"{old} -> {new}") for old, new in changes]
        else:
            empties = written == [""] and not appends
            text = "\n".join(written)
            found.edits.append(Edit(path=path, new=text, creates=not appends, appends=appends, removes=empties))
    return found


def may_start(code: str) -> bool:
    """Whether code may start a command, use the network, or hold a string that begins with a slash.

    Where it says no, the tree has none of these; where it says yes, the tree decides.
    """
    return bool(_MAY_START.search(normalise_names(code)) or _NETWORK.search(code))


def list_nodes(tree: ast.AST) -> list[ast.AST]:
    """The nodes of a syntax tree from the outside in, `MAX_NODES` at most."""
    nodes = [tree]
    add = nodes.append
    for node in nodes:
        if len(nodes) >= MAX_NODES:
            break
        # As ast.iter_child_nodes, whose generators take three times as long.
        for value in map(node.__dict__.get, node._fields):
            if isinstance(value, list):
                nodes += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                add(value)
    return nodes


_Values = dict[str, str | list[str]]


def _find_values(nodes: list[ast.AST]) -> _Values:
    """Variable -> the text, or the list of texts, that it is set to, as far as the code says it plainly."""
    values: _Values = {}
    for node in nodes:
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before, more = values.get(node.target.id), _get_words(node.value, values)
            if isinstance(before, list) and more:
                values[node.target.id] = [*before, *more]
        elif isinstance(node, ast.Assign):
            text = get_text(node.value, values)
            words = _get_words(node.value, values)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    if words is not None:
                        values[target.id] = words
                    elif text is not None:
                        values[target.id] = text
    return values


def get_text(node: ast.AST, values: _Values | None = None) -> str | None:
    """The text that an expression gives, with `X` for what is not known; `None` where nothing is known of it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(get_text(part, values) or _HOLE for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return get_text(node.value, values)
    if isinstance(node, ast.Attribute) and get_dotted_name(node) == "sys.executable":
        return "python"
    if isinstance(node, ast.Name) and values is not None:
        value = values.get(node.id)
        return value if isinstance(value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Div)):
        left, right = get_text(node.left, values), get_text(node.right, values)
        between = "/" if isinstance(node.op, ast.Div) else ""
        return None if left is None and right is None else f"{left or _HOLE}{between}{right or _HOLE}"
    if isinstance(node, ast.Call):
        name = get_name(node.func)
        if name in ("join",) and isinstance(node.func, ast.Attribute) and get_name(node.func.value) == "path":
            return "/".join(get_text(each, values) or _HOLE for each in node.args)
        if name.endswith("Path") or name in ("str", "expanduser", "abspath", "resolve", "fspath"):
            return get_text(node.args[0], values) if node.args else None
    return None


def _get_words(node: ast.AST, values: _Values) -> list[str] | None:
    """The words of a command: a list of texts, or a text that is split."""
    if isinstance(node, (ast.List, ast.Tuple)):
        return [get_text(each, values) or _HOLE for each in node.elts]
    if isinstance(node, ast.Name):
        value = values.get(node.id)
        return value if isinstance(value, list) else None
    if isinstance(node, ast.Call) and get_name(node.func) == "split":
        inner = node.func.value if isinstance(node.func, ast.Attribute) and not node.args else None
        text = get_text(inner if inner is not None else node.args[0], values) if (inner or node.args) else None
        return text.split() if text else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _get_words(node.left, values), _get_words(node.right, values)
        return None if left is None and right is None else [*(left or []), *(right or [])]
    return None


def get_name(node: ast.AST) -> str:
    """The last name of `a.b.c`; empty for what is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def get_dotted_name(node: ast.AST) -> str:
    """`a.b.c` as it is written, as far as it is names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def _read_started(node: ast.Call, values: _Values, found: PythonContents) -> None:
    name = get_name(node.func)
    if name in _STARTERS and node.args:
        words = _get_words(node.args[0], values)
        if words is None and len(node.args) > 1 and name in ("create_subprocess_exec", "execvp", "spawn"):
            words = [get_text(each, values) or _HOLE for each in node.args if not isinstance(each, ast.Starred)]
        if words:
            argv = [words[0].rsplit("/", 1)[-1], *words[1:]]
            found.commands.append(Command(argv=argv))
            if argv[0] in ("bash", "sh", "zsh") and len(argv) > 2:
                found.shell.append(argv[-1])
        elif text := get_text(node.args[0], values):
            found.shell.append(text)
        return
    # GitPython: repo.git.log("--all"), repo.iter_commits("--all"), repo.remotes.origin.fetch()
    dotted = get_dotted_name(node.func)
    is_git = ".git." in f".{dotted}" and dotted.count(".") > 1
    if not is_git and name not in ("iter_commits", "fetch", "pull"):
        return
    words = [get_text(each, values) or _HOLE for each in node.args]
    if is_git:
        found.commands.append(Command(argv=["git", name.replace("_", "-"), *words]))
    elif name == "iter_commits":
        flags = [f"--{keyword.arg}" for keyword in node.keywords if keyword.arg in ("all", "branches", "remotes")]
        found.commands.append(Command(argv=["git", "log", *words, *flags]))
    elif name in ("fetch", "pull") and re.search(r"remote|origin|upstream", ast.unparse(node.func)):
        found.commands.append(Command(argv=["git", name, *words]))


def _read_file_call(
    node: ast.Call,
    values: _Values,
    found: PythonContents,
    opened: list[tuple[str, str]],
    changes: list[tuple[str, str]],
    written: list[str],
) -> None:
    name = get_name(node.func)
    if name not in _FILE_CALLS:
        return
    texts: list[str | None] = [get_text(each, values) for each in node.args[:3]]
    owner: Callable[[], str | None] = lambda: (  # noqa: E731
        get_text(node.func.value, values) if isinstance(node.func, ast.Attribute) else None
    )
    if name == "open":
        path = texts[0] if isinstance(node.func, ast.Name) and texts else owner()
        keyword = next((get_text(k.value) for k in node.keywords if k.arg == "mode"), None)
        mode = keyword or (texts[1] if len(texts) > 1 else None) or ""
        opened.append((path or "", mode))
    elif name in ("write_text", "write_bytes"):
        opened.append((owner() or "", "w"))
        written.append((texts[0] if texts else None) or "")
    elif name == "write" and texts and texts[0] is not None:
        written.append(texts[0])
    elif name in ("replace", "sub", "subn") and len(texts) > 1 and texts[0] is not None and texts[1] is not None:
        changes.append((texts[0], texts[1]))
    elif name in _REMOVERS:
        if path := (texts[0] if texts else owner()):
            found.edits.append(Edit(path=path, removes=True))
    elif name in ("rename", "move") and (path := texts[0] if len(texts) > 1 else owner()):
        target = texts[len(texts) > 1] if texts else None
        found.edits += find_move_edits([path], target) if target else [Edit(path=path, removes=True)]
