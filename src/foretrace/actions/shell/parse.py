"""Parse shell text with tree-sitter-bash, and split it into simple commands or tokens.

Bodies of heredocs and quoted script text are data, never commands. Input is untrusted: only the first
`MAX_CHARACTERS` characters are read, nothing recurses over the syntax tree, and broken syntax is read as far as
possible.
"""

from __future__ import annotations

import copy
import itertools
import posixpath
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.actions.call_facts import split_words
from foretrace.core.placeholders import PLACEHOLDER

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

MAX_CHARACTERS = 200_000
"""Most characters of a command that are read."""
MAX_PARSED = 4_000
"""Most characters that are parsed after long quoted texts and heredoc bodies are removed."""
_SUBSTITUTION = re.compile(r"(?<!\\)(?:\$\((?!\()([^()]{0,500})|`([^`]{0,500})`)")
_MAX_SUBSTITUTIONS = 20
_USUAL_FOLDER = r"(?:\$HOME|\$\{HOME\}|~|/usr|/opt|/s?bin|/lib(?:64)?)(?:/(?!\.\.)[\w.@+-]+)*"
RUNS_BY_NAME = re.compile(
    r"(?:LD_(?:PRELOAD|AUDIT)|DYLD_INSERT_LIBRARIES|BASH_ENV|PROMPT_COMMAND|LESS(?:OPEN|CLOSE)|(?:GIT_|MAN|BAT_)?PAGER"
    r"|GIT_(?:EXTERNAL_DIFF|SSH|SSH_COMMAND|EXEC_PATH|PROXY_COMMAND|ASKPASS|CONFIG_\w+)|PYTHONSTARTUP|PERL5OPT|RUBYOPT"
    r"|NODE_OPTIONS)=(?!['\"]?(?:cat|less(?: -\w+)?|more|/dev/null|)['\"]?\Z)"
    rf"|(?P<path>PATH|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH)=(?!['\"]?(?:{_USUAL_FOLDER}:)*(?:{_USUAL_FOLDER}['\"]?\Z"
    r"|\$(?:(?P=path)\b|\{(?P=path)(?:\}|:\+\$\{?(?P=path)\b))))"
)
"""Variables that make any program run another one. Left out are programs that only show something, folders that
usually hold a user's programs, and folders appended to the search path."""
MAX_COMMANDS = 400
"""Most commands of one text that are read."""
MAX_DEPTH = 4
"""Most levels of `bash -c "bash -c ..."` that are followed."""

_parser: Any = None
_SIMPLE = re.compile(r"[A-Za-z0-9_./:,@%+=-]+(?: +[A-Za-z0-9_./:,@%+=-]+)*\Z")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_ESCAPE = re.compile(r"\\(.)", re.S)
_SINKS = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_SUBSHELLS = split_words("subshell command_substitution process_substitution function_definition")
_WORD_NODES = split_words(
    "word string raw_string ansi_c_string translated_string concatenation number simple_expansion expansion "
    "command_substitution process_substitution brace_expression arithmetic_expansion"
)


_DATA = re.compile(
    r"\\."  # an escaped character
    r"|'(?P<single>[^']*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|(?P<line><<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w+)(?P=quote)(?!<)[^\n]*\n)"
    r"(?P<body>.*?)(?=^[ \t]*(?P=end)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""A quoted text, or a heredoc: the rest of its line, and its body up to the end word."""
_PLACEHOLDER = re.compile(r"ForetraceData(\d+)Here")
MAX_QUOTED = 200
"""Most characters of a quoted text that stays in place."""


class SimpleCommand(msgspec.Struct):
    """One simple command of a shell text: a program, its arguments and redirections, without their quotes."""

    argv: list[str]
    writes: list[str]
    """Files that its output is redirected to."""
    appends: list[str] = []
    """Those files that it is appended to, by `>>`."""
    stdin: str | None = None
    """Body of its heredoc or here-string."""
    reads: str | None = None
    """File that its input is redirected from."""
    piped: bool = False
    """Whether its input comes from the command before it in a pipeline."""
    expands_stdin: bool = False
    """Whether the shell runs the substitutions in that body, because the end word is not quoted."""
    background: bool = False
    cwd: str = ""
    """Directory that an earlier `cd` of the same text went to, or empty."""

    @property
    def text(self) -> str:
        """The command on one line; only the beginning of a long one."""
        return " ".join(self.argv[:80])[:400]

    def resolve_path(self, name: str) -> str:
        """A path relative to the directory in which the text started."""
        return _join_path(self.cwd, name) if name else name


class _Directories(msgspec.Struct):
    """The working directories of one shell, as `cd` changes them. A subshell starts with a copy of its parent's."""

    current: str = ""
    previous: str = ""

    def follow(self, argv: list[str]) -> None:
        if argv[:1] == ["cd"]:
            target = next((word for word in argv[1:] if word == "-" or word[:1] not in "-+"), "~")
            there = self.previous if target == "-" else _join_path(self.current, target)
            self.current, self.previous = there, self.current


def _join_path(folder: str, name: str) -> str:
    return posixpath.normpath(name if not folder or name.startswith(("/", "~", "$")) else posixpath.join(folder, name))


@lru_cache(maxsize=512)
def split_commands(command: str) -> list[SimpleCommand]:
    """Split a text into its simple commands, in order, each with the directory that earlier `cd`s lead to. The result
    is shared and must not be changed."""
    text = _write_placeholders_as_words(command[:MAX_CHARACTERS].replace("\0", " ")).strip()
    if not text:
        return []
    if _SIMPLE.match(text) and not _ASSIGNMENT.match(text):
        return [SimpleCommand(argv=text.split(), writes=[])]
    data: list[str] = []
    if len(text) > MAX_PARSED:
        text, data = elide(text)
    text = text[:MAX_PARSED]
    commands = _collect_commands(parse_bash(text).root_node, text)
    if "`" in text and "${" in text:  # the grammar takes backticks in `${x:-...}` for text
        commands += _read_body_substitutions(text)
    if not commands:
        words = text.split(None, 40)[:40]
        commands = [] if text.startswith("#") else [SimpleCommand(argv=words, writes=[])]
    for each in commands.copy():
        if data:
            each.argv = [restore(word, data) for word in each.argv]
            each.stdin = each.stdin and restore(each.stdin, data)
        if each.expands_stdin and each.stdin and not each.writes:
            commands += _read_body_substitutions(each.stdin)
    return commands


def _read_body_substitutions(body: str) -> list[SimpleCommand]:
    """The commands whose output the shell puts into the body of a heredoc."""
    found = itertools.islice(_SUBSTITUTION.finditer(body), _MAX_SUBSTITUTIONS)
    return [SimpleCommand(argv=["eval", match[1] or match[2] or ""], writes=[]) for match in found]


def parse_bash(text: str) -> Tree:
    """Parse a shell text; byte offsets of the nodes of its tree are character offsets into the text.

    Non-ASCII characters are parsed as letters: the grammar's scanner looks characters up in tables of the C library,
    which end at 255, so that `{` before an emoji can crash the process.
    """
    global _parser
    if _parser is None:
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        _parser = Parser(Language(tree_sitter_bash.language()))
    plain = text if text.isascii() else _NOT_ASCII.sub("x", text)
    return _parser.parse(plain.encode("ascii"))


def _collect_commands(root: Node, source: str) -> list[SimpleCommand]:
    """Collect the commands in order, with an explicit stack: nesting can be deeper than Python's recursion limit."""
    commands: list[SimpleCommand] = []
    substitutions: list[tuple[Node, bool, _Directories]] = []
    stack = [(root, False, _Directories())]
    while (stack or substitutions) and len(commands) < MAX_COMMANDS:
        # Substitutions are added at the end: a redirection belongs to the command around them.
        node, piped, folders = (stack or substitutions).pop()
        kind = node.type
        inner = None
        latest = commands[-1] if commands else SimpleCommand(argv=[], writes=[])
        if kind == "command":
            inner = node
            redirections = _add_command(node, source, piped, folders, commands)
            stack.extend((child, False, folders) for child in reversed(redirections))
        elif kind == "file_redirect":
            _add_redirect(node, source, commands)
        elif kind == "heredoc_body":
            latest.stdin = _get_text(node, source)
        elif kind == "variable_assignment" and RUNS_BY_NAME.match(_get_text(node, source)):
            commands.append(SimpleCommand(argv=["export", _get_text(node, source)], writes=[]))
            inner = node
        elif kind == "herestring_redirect":
            latest.stdin = unquote(node.children[-1], source) if node.children else ""
            inner = node
        elif kind == "test_command":
            commands.append(SimpleCommand(argv=["test"], writes=[]))
            inner = node
        elif kind == "heredoc_start":
            latest.expands_stdin = not re.search(r"['\"\\]", _get_text(node, source))
        elif kind not in ("comment", "heredoc_end"):
            stack.extend(_list_children(node, piped, folders))
        if inner is not None:
            substitutions += [(each, False, copy.copy(folders)) for each in _find_substitutions(inner)]
        if kind == "&":
            latest.background = True
    return commands


def _list_children(node: Node, piped: bool, folders: _Directories) -> list[tuple[Node, bool, _Directories]]:
    """The children of a node in reverse (for the stack), each with whether its input is piped, and its directories."""
    children = node.children
    if node.type == "heredoc_redirect":
        # What follows the marker (`<<EOF > f`, `<<EOF | cmd`) comes before the body in the text, but the body
        # belongs to the command before it.
        children = sorted(children, key=lambda child: child.type != "heredoc_body")
    if node.type in _SUBSHELLS:
        folders = copy.copy(folders)
    marked: list[tuple[Node, bool, _Directories]] = []
    for child in children:
        if child.type in ("|", "|&"):
            piped = True
        elif child.type in ("&&", "||", ";", "\n"):
            piped = False
        marked.append((child, piped, copy.copy(folders) if node.type == "pipeline" else folders))
    return marked[::-1]


def _add_command(
    node: Node, source: str, piped: bool, folders: _Directories, commands: list[SimpleCommand]
) -> list[Node]:
    """Append the command of a node; return its redirections."""
    argv: list[str] = []
    redirections: list[Node] = []
    for child in node.children:
        kind = child.type
        if kind == "variable_assignment" and RUNS_BY_NAME.match(_get_text(child, source)):
            commands.append(SimpleCommand(argv=["export", _get_text(child, source)], writes=[]))
        if kind == "command_name":
            argv.append(unquote(child.children[0] if child.children else child, source))
        elif kind in _WORD_NODES:
            argv.append(unquote(child, source))
        elif kind in ("herestring_redirect", "file_redirect"):
            redirections.append(child)
    if argv:
        commands.append(SimpleCommand(argv=argv, writes=[], piped=piped, cwd=folders.current))
        folders.follow(argv)
    return redirections


def _find_substitutions(node: Node) -> list[Node]:
    """Command and process substitutions inside a word, outermost only."""
    substitutions: list[Node] = []
    stack = [node]
    while stack:
        each = stack.pop()
        if each.type in ("command_substitution", "process_substitution"):
            substitutions.append(each)
        elif each.type != "raw_string":
            stack.extend(each.children)
    return substitutions


def _add_redirect(node: Node, source: str, commands: list[SimpleCommand]) -> None:
    operator = next((c.type for c in node.children if not c.is_named), "")
    if any(c.type == "ERROR" for c in node.children):  # the grammar does not know `<>`
        operator = "<>"
    target = next((c for c in reversed(node.children) if c.type in _WORD_NODES), None)
    if target is None:
        return
    name = unquote(target, source)
    if not commands:
        commands.append(SimpleCommand(argv=[":"], writes=[]))
    is_stream = operator == ">&" and re.fullmatch(r"\d*-?|\$.*", name) is not None
    if operator in (">", ">>", ">|", "&>", "&>>", "<>", ">&") and not is_stream:
        if name not in _SINKS:
            commands[-1].writes.append(name)
            if operator.endswith(">>"):
                commands[-1].appends = [*commands[-1].appends, name]
    elif operator == "<":
        commands[-1].reads = name


def unquote(node: Node, source: str) -> str:
    """The value of a word: without quotes and escapes, with expansions left as written."""
    kind, text = node.type, _get_text(node, source)
    if kind == "raw_string":
        return text[1:-1]
    if kind == "string":
        return _ESCAPE.sub(lambda m: m[1] if m[1] in '"\\$`' else "" if m[1] == "\n" else m[0], text[1:-1])
    if kind == "ansi_c_string":
        return text[2:-1]
    if kind == "concatenation":
        return "".join(unquote(child, source) for child in node.children)
    if kind == "word" and "\\" in text:
        return _ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], text)
    return text


def _get_text(node: Node, source: str) -> str:
    return source[node.start_byte : node.end_byte]


_STRUCTURE_NODES = split_words(
    "program list pipeline command command_name redirected_statement subshell compound_statement do_group "
    "for_statement while_statement if_statement elif_clause else_clause case_statement case_item negated_command "
    "variable_assignments declaration_command heredoc_redirect file_redirect herestring_redirect unset_command "
    "function_definition c_style_for_statement test_command"
)


def _write_placeholders_as_words(text: str) -> str:
    """The text with each placeholder as one word of the same length: bash gives `<` and `>` a meaning."""
    return PLACEHOLDER.sub(lambda mark: f"_{mark[0][1:-1].replace(':', '_')}_", text) if "<SECRET:" in text else text


def tokenize(command: str) -> list[tuple[str, str]] | None:
    """Split a text into tokens (kind, text), without the whitespace between them; `None` for broken syntax.

    Kinds: `word` (a literal, unquoted and then quoted in one way), `raw` (a word with expansions or patterns, as
    written), `body` (of a heredoc, verbatim), `mark` (operators and keywords; a newline counts as `;`).
    """
    if len(command) > MAX_CHARACTERS or "\0" in command:
        return None
    command = _write_placeholders_as_words(command)
    data: list[str] = []
    if len(command) > MAX_PARSED:
        command, data = elide(command)
    if len(command) > MAX_PARSED:
        return None
    root = parse_bash(command).root_node
    if root.has_error:
        return None
    tokens: list[tuple[str, str]] = []
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if node.type in _STRUCTURE_NODES and node.child_count:
            stack.extend(reversed(node.children))
            continue
        token = _make_token(node, command) if node.type != "comment" else None
        # An empty statement (a blank line, `;` before a newline) is left out.
        empty = token == ("mark", ";") and (not tokens or tokens[-1] == token)
        if token is not None and not empty:
            tokens.append(token)
    while tokens and tokens[-1] == ("mark", ";"):
        tokens.pop()
    return [(kind, restore(text, data)) for kind, text in tokens] if data else tokens


def _make_token(node: Node, source: str) -> tuple[str, str] | None:
    text = _get_text(node, source)
    if node.type == "heredoc_body":
        return "body", text
    if not node.is_named:
        return "mark", ";" if text.strip() in ("", ";") else text
    if node.type == "raw_string" or (node.type in ("word", "string", "number") and not re.search(r"[$`]", text)):
        if node.type in ("word", "number") and re.search(r"[*?\[\]{}~!]", text):
            return "raw", text
        return "word", shlex.quote(unquote(node, source))
    return "raw", text


def elide(text: str) -> tuple[str, list[str]]:
    """Replace long data (bodies of heredocs, quoted scripts) by placeholders: the text, and the data for `restore`.

    The time to parse hostile text grows with the square of its length. Honest commands are long because of data.
    """
    data: list[str] = []

    def replace(match: re.Match[str]) -> str:
        if match["line"]:
            return f"{match['line']}{_add_placeholder(data, match['body'].removesuffix(chr(10)))}\n"
        quoted = match["single"] if match["single"] is not None else match["double"]
        if quoted is None or len(quoted) <= MAX_QUOTED:
            return match[0]
        return f"{match[0][0]}{_add_placeholder(data, quoted)}{match[0][0]}"

    return _DATA.sub(replace, text), data


def _add_placeholder(data: list[str], text: str) -> str:
    data.append(text)
    return f"ForetraceData{len(data) - 1}Here"


def restore(text: str, data: list[str]) -> str:
    if "ForetraceData" not in text:
        return text
    return _PLACEHOLDER.sub(lambda m: data[int(m[1])] if int(m[1]) < len(data) else m[0], text)
