"""Rules for tool calls: decide by the name of the tool and its arguments, never by the words around the call."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from foretrace.actions.call_facts import OPEN_FILE, TESTED_CODE, CallFacts, CallKind, merge_facts, split_words
from foretrace.actions.python_rules import classify_cell
from foretrace.actions.rules import make_facts
from foretrace.actions.shell.command_rules import classify_git, classify_shell, get_program_name
from foretrace.actions.shell.program_tables import SHELLS
from foretrace.actions.sql_rules import is_read_only_sql, may_call_more
from foretrace.actions.taxonomy import Effect
from foretrace.actions.tool_tables import (
    CHANGE_VERBS,
    COMPUTE_VERBS,
    DATA_NOUNS,
    ELSEWHERE_KEYS,
    ELSEWHERE_NOUNS,
    OWN_STATE_READERS,
    OWN_STATE_TOOLS,
    PATH_KEYS,
    READ_VERBS,
    READS_WITH_DOUBT,
    SURE_CHANGES,
    TOOL_GROUPS,
    TOOL_KINDS,
    split_words_of_name,
    to_snake_case,
)

Arguments = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_PREFIX = re.compile(
    r"^(?P<plain>(?:functions?|tools?|default_api)[.:/])|^mcp__(?P<server>.+?)__"
    r"|^(?P<name>[A-Za-z][\w-]*?)__(?=[A-Za-z])|^(?P<folder>[\w-]+)/(?=\w)"
)
_ENDINGS = frozenset({"terminal", "give_up", "ask", "say"})
"""Groups of tools with which an agent ends or asks; a server's (`stripe__submit`) do something on that server."""
_PATCH_PATH = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ (?:b/)?)([^\n\t]+)", re.M)
_FIRST_PATH = re.compile(r"\s*([\"']?)([^\s\"']+)\1")
_URL = re.compile(r"https?://|www\.")
_NO_ANSWER = re.compile(r"\W*(?:idk|none)?\W*\Z", re.I)
NEW_KEYS = (
    "new_str", "new_string", "newString", "file_text", "content", "replacement_text", "replace", "replace_with",
    "new_content", "text", "body", "replacement", "markdown",
    "patch", "diff", "input", "code", "contents", "insert_text", "new_text", "edits",
)  # fmt: skip
_SHELL_KEYS = ("command", "cmd", "commands", "script", "input", "code", "cmds", "CommandLine", "keystrokes")
CODE_KEYS = ("code", "source", "script", "input", "cell", "python_code", "command")
_SAID_KEYS = ("text", "message", "content", "input")
_QUERY_KEYS = ("query", "sql", "statement", "input", "command", "code")
_AGENT_LINE = re.compile(
    r"\s*(?:(open|create|goto|scroll_up|scroll_down|search_dir|search_file|find_file)\b([^\n&|;]*)\s*\Z"
    r"|(edit)\s+(\d+:\d+\s*\n.*))",
    re.S,
)
"""An SWE-agent command, sent as a line of its shell."""
_SHELL_LINE = re.compile(r"(?:\A\s*|^[ \t]*)(?:%%?(?:bash|sh)\s|!)", re.M)
_TOOL_IN_PROGRAM = re.compile(r"\btools\.(\w{1,80})\s*\(")
_COMMAND_IN_PROGRAM = re.compile(
    r"""\s*\{\s*["']?(?:cmd|command)["']?\s*:\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)""", re.S
)
_PATCH_LINE = re.compile(r"\s*(?:cd\s+\S+\s*&&\s*)?apply_?patch\b[^\n]{0,200}\n?['\"]?\*\*\* Begin Patch")
"""A patch for the tool `apply_patch`, sent as a line of the shell (Codex)."""
_HANDOVER_TO = split_words("human representative operator support person staff specialist")
_HANDOVER = split_words("transfer escalate handoff handover forward connect")
_SHOWS = split_words("view read list show get")
"""Commands of a to-do list tool that only show the list."""
_WRITE_VERBS = split_words("write edit append insert patch replace create update overwrite")
_FILE_WORDS = split_words("file files docx document notebook xlsx pptx markdown csv json")


def classify_call(name: str, arguments: str) -> CallFacts:
    """Classify one tool call by its name, without prefixes such as `functions.` and `mcp__server__`, and its arguments:
    text that is not a JSON object counts as one positional argument."""
    # Long arguments would only fill the cache: they rarely repeat.
    return (_classify_call if len(arguments) < 2000 else _classify_call.__wrapped__)(name, arguments)


@lru_cache(maxsize=512)
def _classify_call(name: str, arguments: str) -> CallFacts:
    values = decode_arguments(arguments)
    facts = _classify_by_tables(name.strip(), values)
    if facts.effect is Effect.PURE_READ and find_tool_group(name) in ("code", "code_mode"):
        return msgspec.structs.replace(facts, effect=Effect.SANDBOX_EXEC)
    if facts.effect is Effect.PURE_READ and _names_change(name):
        return msgspec.structs.replace(facts, effect=Effect.UNKNOWN)
    return facts


def _names_change(name: str) -> bool:
    snake = to_snake_case(name)
    return snake not in TOOL_KINDS and snake not in TOOL_GROUPS and bool(SURE_CHANGES & set(snake.split("_")))


def _strip_prefix(name: str) -> str:
    """A name without its server. The whole name if the prefix is a verb of change rather than a server
    (`delete__get_user`), or if the rest by itself would mean something else."""
    match = _PREFIX.match(name)
    if match is None or match["plain"]:
        return name[match.end() :] if match else name
    verbs = SURE_CHANGES if match["server"] else CHANGE_VERBS
    rest = name[match.end() :]
    front = split_words_of_name(match["server"] or match["name"] or match["folder"])
    return name if verbs & set(front) or TOOL_GROUPS.get(to_snake_case(rest)) in _ENDINGS else rest


def _classify_by_tables(name: str, values: Arguments) -> CallFacts:
    listed = _find_listed_name(name)
    if group := TOOL_GROUPS.get(listed):
        return _GROUP_RULES[group](listed, values)
    plain = _strip_prefix(name)
    if not listed:
        return _classify_by_name(plain, values)
    if plain is not name and _needs_path(listed, TOOL_KINDS[listed][0], values):
        return _classify_by_name(name.removeprefix("mcp__"), values)
    return _classify_listed_tool(listed, TOOL_KINDS[listed], values)


def _needs_path(snake: str, kind: CallKind, values: Arguments) -> bool:
    """Whether a server's one-word tool is about files only if a file is named: `door__open`, `notion__write`."""
    of_files = kind in (CallKind.READ, CallKind.WRITE, CallKind.UNDO)
    return of_files and "_" not in snake and not _get_path(values) and not values.get("input")


def find_tool_group(name: str) -> str | None:
    """The group of `TOOL_GROUPS` whose rule classifies a tool's calls; None if its arguments do not matter."""
    return TOOL_GROUPS.get(_find_listed_name(name.strip()))


@lru_cache(maxsize=512)
def _find_listed_name(name: str) -> str:
    """The name in the tables that a tool has without its server, or that its name ends in (`desktop_read_text_file`);
    empty if there is none. At the end a single word does not count, nor do tools that end the attempt: too many things
    have such names."""
    snake = to_snake_case(_strip_prefix(name))
    if snake in TOOL_GROUPS or snake in TOOL_KINDS:
        return snake
    words = snake.split("_")
    for start in range(1, len(words) - 1):
        tail = "_".join(words[start:])
        if words[start - 1] in CHANGE_VERBS:  # enable_web_search
            return ""
        if tail in TOOL_KINDS or TOOL_GROUPS.get(tail) in _COMPOUND_GROUPS:
            return tail
    return ""


def decode_arguments(arguments: str) -> Arguments:
    try:
        value = _decode(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return {"input": arguments}
    return value if isinstance(value, dict) else {"input": value}


def get_text(values: Arguments, keys: tuple[str, ...]) -> str:
    """The first argument of `keys` that has text, with lists joined by newlines; empty if none has."""
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return "\n".join(v if isinstance(v, str) else str(v) for v in value[:200])
    return ""


def find_text(values: Arguments, keys: tuple[str, ...]) -> tuple[str, str]:
    """The name of the argument that holds a text, and the text: the first of `keys` that has one, else the first text
    argument; empty if there is none."""
    named = (key for key in keys if isinstance(values.get(key), (str, list)) and values[key])
    texts = (key for key, value in values.items() if isinstance(value, str))
    name = next(named, "") or next(texts, "")
    return name, get_text(values, (name,))


def find_query(values: Arguments) -> tuple[str, str]:
    """The name of the argument that holds a query, and the query; empty if there is none."""
    return find_text(values, _QUERY_KEYS)


def find_command(values: Arguments) -> tuple[str, str]:
    """The name of the argument that holds a shell command, and the command as a line; empty if there is none. A list
    holds the words of one command, or several lines if its name is a plural; `["bash", "-lc", "make"]` is read as
    `make`."""
    name, _ = find_text(values, _SHELL_KEYS)
    value = values.get(name)
    if not isinstance(value, list):
        return (name, value) if isinstance(value, str) else ("", "")
    words = [word if isinstance(word, str) else str(word) for word in value[:200]]
    if len(words) == 3 and get_program_name(words[0]) in SHELLS and re.match(r"-[a-z]*c$", words[1]):
        return name, words[2]
    return name, "\n".join(words) if name in ("commands", "cmds", "keystrokes") else shlex.join(words)


def _get_path(values: Arguments) -> str:
    return get_text(values, PATH_KEYS)


def _get_first_path(values: Arguments) -> str:
    """The path of a call whose only argument is a text: SWE-agent's `create FILE`, `open FILE LINE`."""
    match = _FIRST_PATH.match(get_text(values, ("input",)))
    return match[2] if match else ""


def _classify_shell_tool(name: str, values: Arguments) -> CallFacts:
    if str(values.get("is_input", "")).lower() == "true":
        return make_facts("shell.input")
    _, text = find_command(values)
    if re.fullmatch(r"\s*(?:[Cc]trl\+[a-z]|C-[a-z])?\s*", text):
        return make_facts("shell.input")
    if _PATCH_LINE.match(text):
        return _classify_patch(name, {"input": text})
    if line := _AGENT_LINE.match(text):
        tool, rest = line[1] or line[3], line[2] if line[1] else line[4]
        return _classify_listed_tool(tool, TOOL_KINDS[tool], {"input": rest.strip()})
    return classify_shell(text)


def find_shell_lines(code: str) -> str | None:
    """The lines of a code cell that is for the shell (`!ls`, `%%bash`); `None` for any other."""
    return _SHELL_LINE.sub("", code) if _SHELL_LINE.match(code) else None


def _classify_code_tool(name: str, values: Arguments) -> CallFacts:
    code = find_text(values, CODE_KEYS)[1]
    if (lines := find_shell_lines(code)) is not None:
        facts = classify_shell(lines)
        return msgspec.structs.replace(facts, retry_key=facts.retry_key or "code", payload=facts.payload or code[:4000])
    return classify_cell(code, _find_function_kind)


def _find_function_kind(name: str) -> CallKind | None:
    """The kind of a function that a code cell calls, by its name; `None` if it is not a tool."""
    if name in ("open", "view", "type", "count", "input", "look", "use", "act", "go", "move", "put", "take", "edit"):
        return None
    snake = to_snake_case(name)
    if TOOL_GROUPS.get(snake) == "terminal" and "_" in snake:  # final_answer(...); a plain word may be any function
        return CallKind.TERMINAL
    known = TOOL_KINDS.get(snake)
    if known is not None:
        return known[0]
    words = snake.split("_")
    return CallKind.SEARCH if (words[0] in READ_VERBS and len(words) > 1) or words[-1] == "search" else None


def _classify_editor(name: str, values: Arguments) -> CallFacts:
    command = str(values.get("command", "")).strip()
    path = _get_path(values)
    if command == "view":
        return make_facts("tool.view", reads=(path,))
    if command == "undo_edit":
        return make_facts("tool.undo", writes=(path,))
    if command in ("create", "str_replace", "insert", "write", "edit", "append", "replace"):
        return _classify_write(f"tool.{command}", values, creates=command in ("create", "write"))
    return make_facts("tool.editor")


def _classify_write(rule: str, values: Arguments, *, creates: bool) -> CallFacts:
    path = _get_path(values) or (_get_first_path(values) if creates else "")
    payload = get_text(values, NEW_KEYS)[:4000]
    return make_facts(rule, CallKind.WRITE, writes=(path or OPEN_FILE,), payload=payload, creates=creates)


def _classify_patch(name: str, values: Arguments) -> CallFacts:
    text = find_text(values, ("input", "patch", "diff", "patchText"))[1]
    paths = [path.strip() for path in _PATCH_PATH.findall(text[:200_000])]
    path = _get_path(values)
    writes = tuple(dict.fromkeys(p for p in [*paths, path] if p and p != "/dev/null"))
    creates = "*** Update File" not in text and "*** Add File" in text
    return make_facts("tool.patch", writes=writes or (OPEN_FILE,), payload=text[:4000], creates=creates)


def _classify_sql_tool(name: str, values: Arguments) -> CallFacts:
    _, text = find_query(values)
    if is_read_only_sql(text):
        effect = Effect.UNKNOWN if may_call_more(text) else None
        return make_facts("tool.sql", None, effect, retry_key="sql", payload=text[:4000])
    return make_facts("tool.sql_change", retry_key="sql", payload=text[:4000])


def _classify_terminal(name: str, values: Arguments) -> CallFacts:
    if str(values.get("return_type") or values.get("status", "")).startswith(("give_up", "fail", "infeasible")):
        return make_facts("terminal_give_up")
    answer = next((values[key] for key in ("answer", "final_answer", "input") if key in values), None)
    if isinstance(answer, str) and name != "stop" and _NO_ANSWER.match(answer[:40]) and (answer or name == "answer"):
        return make_facts("terminal_no_answer")
    return make_facts("terminal_call")


def _classify_code_mode(name: str, values: Arguments) -> CallFacts:
    """A program that calls the agent's tools (Codex), classified by its readable calls. For other agents, a shell."""
    if any(values.get(key) for key in ("command", "cmd", "commands")):
        return _classify_shell_tool(name, values)
    program = find_text(values, ("input", "code"))[1][:200_000]
    if "*** Begin Patch" in program:
        return _classify_patch(name, {"input": program.replace("\\n", "\n")})
    found = [_classify_call.__wrapped__(*call) for call in list_program_calls(program, name)]
    return merge_facts(found) or make_facts(f"tool.{name}", CallKind.OTHER, Effect.SANDBOX_EXEC)


def list_program_calls(program: str, name: str) -> Iterator[tuple[str, str]]:
    """The tool calls (tool and arguments) in the program that a call of the tool `name` carries (Codex)."""
    for call in itertools.islice(_TOOL_IN_PROGRAM.finditer(program), 50):
        command = _COMMAND_IN_PROGRAM.match(program, call.end())
        arguments = {"cmd": _read_literal(command[1])} if command else {}
        if call[1] not in ("exec", name):
            yield call[1], msgspec.json.encode(arguments).decode()


def _read_literal(text: str) -> str:
    """The value of a JavaScript string that is written as in JSON."""
    inner = text[1:-1]
    try:
        return str(msgspec.json.decode(f'"{inner}"')) if text[0] == '"' else inner.replace(f"\\{text[0]}", text[0])
    except msgspec.DecodeError:
        return inner


_GROUP_RULES: dict[str, Callable[[str, Arguments], CallFacts]] = {
    "shell": _classify_shell_tool,
    # Text for a running process; no text means waiting for its output.
    "stdin": lambda name, values: make_facts("shell.input"),
    "code_mode": _classify_code_mode,
    "code": _classify_code_tool,
    "editor": _classify_editor,
    "sql": _classify_sql_tool,
    "patch": _classify_patch,
    "terminal": _classify_terminal,
    "give_up": lambda name, values: make_facts("terminal_give_up"),
    "ask": lambda name, values: make_facts("ask_call"),
    "say": lambda name, values: make_facts("say_call", payload=find_text(values, _SAID_KEYS)[1][:8000]),
}
"""Group in `TOOL_GROUPS` -> the rule for its tools, given the name of the tool and its arguments."""
_COMPOUND_GROUPS = frozenset({"shell", "code", "editor", "sql", "patch"})


def _classify_listed_tool(name: str, known: tuple[CallKind, Effect | None], values: Arguments) -> CallFacts:
    kind, effect = known
    rule = f"tool.{name}"
    if name in OWN_STATE_TOOLS:
        # Running it on a wrong guess would leave a wrong plan behind.
        asked = str(values.get("command") or values.get("operation") or values.get("action") or "").lower()
        if name in OWN_STATE_READERS and (asked in _SHOWS or all(value is None for value in values.values())):
            return make_facts(rule, kind, Effect.PURE_READ)
        return make_facts(rule, kind, effect, own_state=True)
    if (kind is CallKind.WRITE or effect is Effect.LOCAL_WRITE) and ELSEWHERE_KEYS & values.keys():
        return make_facts("tool.change_verb", **_make_retry(name, values))
    if kind is CallKind.WRITE:
        return _classify_write(rule, values, creates=name.startswith(("create", "write", "save", "overwrite")))
    if kind in (CallKind.READ, CallKind.UNDO):
        path = _get_path(values) or _get_first_path(values)
        if name in ("open", "goto", "view") and (_URL.match(path) or values.get("url") or values.get("id")):
            return make_facts("tool.navigate")
        paths = (path,) if path else ()
        return make_facts(rule, kind, **{"reads" if kind is CallKind.READ else "writes": paths})
    if kind is CallKind.VERIFY and isinstance(code := values.get("code"), str) and code:
        # The call contains the code that it tests: other code makes it another attempt.
        return make_facts(rule, kind, effect, retry_key=TESTED_CODE, payload=code)
    return make_facts(rule, kind, effect)


def _classify_by_name(name: str, values: Arguments) -> CallFacts:
    """Classify a tool that is not in a table by the words of its name."""
    # ToolBench writes `api_for_tool`: only the part before `_for_` says what is done.
    api, is_api, _ = name.rpartition("_for_")
    words = [word for word in split_words_of_name(api or name) if not re.fullmatch(r"v?\d*", word)]
    if not words:
        return make_facts("tool.unknown")
    first, last = words[0], words[-1]
    if first == "git" and len(words) > 1:
        return classify_git(words)
    to_anybody = last in ("agent", "agents") and len(words) <= 3  # transfer_to_agent, but transfer_to_refunds_agent
    if _HANDOVER & set(words) and (to_anybody or _HANDOVER_TO & set(words)) and first not in READ_VERBS:
        return make_facts("hand_over")
    retry = _make_retry(name, values)
    verb = first
    goes_through = words[1:2] in (["in"], ["out"])  # check_in
    if first in READ_VERBS and not goes_through:
        return _classify_reader(words, values)
    if first not in CHANGE_VERBS | COMPUTE_VERBS and not is_api:  # crm_search_customers
        known = (word for word in words[1:] if word in READ_VERBS | CHANGE_VERBS | COMPUTE_VERBS)
        verb = next((word for word in words[1:] if word in SURE_CHANGES), next(known, ""))
    if verb in _WRITE_VERBS and _writes_file(words, values):
        return _classify_write("tool.write_words", values, creates=verb in ("write", "create", "overwrite"))
    is_sum = verb == "add" and bool(values) and all(len(key) == 1 for key in values)  # add(a, b)
    if verb in COMPUTE_VERBS or is_sum:
        return make_facts("tool.compute_verb")
    names_data = last in DATA_NOUNS and (is_api or verb != first)  # user_update_info
    if (verb in CHANGE_VERBS | SURE_CHANGES and not names_data) or goes_through:
        return make_facts("tool.change_verb", **retry)
    if set(words) & READ_VERBS or last in DATA_NOUNS or "by" in words[1:-1]:
        return make_facts("tool.read_word", None, Effect.UNKNOWN if _does_more(words) else None)
    # Nearly every API of a data marketplace fetches data, but its name does not say so.
    return make_facts("tool.api") if is_api else make_facts("tool.unknown", **retry)


def _writes_file(words: list[str], values: Arguments) -> bool:
    """Whether a call writes a local file: it names one, and has a text or says that it is a file. A page or comment on
    a server may have a path too."""
    path = _get_path(values)
    if not path or ELSEWHERE_KEYS & values.keys():
        return False
    if _FILE_WORDS & set(words):
        return True
    is_file = any(key in values for key in PATH_KEYS[1:]) or re.search(r"\.\w{1,8}$", path) is not None  # no address
    return is_file and not ELSEWHERE_NOUNS & set(words) and get_text(values, NEW_KEYS) != ""


def _classify_reader(words: list[str], values: Arguments) -> CallFacts:
    path = _get_path(values)
    of_file = words[0] in ("read", "view", "show") and (_FILE_WORDS & set(words) or (words[1:] and path))
    if of_file or words[1:] == ["directory"]:
        effect = Effect.UNKNOWN if CHANGE_VERBS & {*words} and _does_more(words) else None
        return make_facts("tool.read_words", None, effect, reads=(path,) if path else ())
    is_doubtful = words[0] in READS_WITH_DOUBT or _does_more(words)
    return make_facts("tool.read_verb", None, Effect.UNKNOWN if is_doubtful else None)


def _does_more(words: list[str]) -> bool:
    """Whether the word after an `and`, `or` or `then` may be a verb that changes something: `get_and_increment`."""
    after = (word for before, word in itertools.pairwise(words) if before in ("and", "or", "then"))
    return any(word not in READ_VERBS | DATA_NOUNS for word in after)


def _make_retry(name: str, values: Arguments) -> dict[str, str]:
    return {"retry_key": name, "payload": msgspec.json.encode(values).decode()[:4000]}


@lru_cache(maxsize=512)
def classify_description(description: str) -> CallKind | None:
    """The kind of a tool by the first verb of its description; `None` if no verb is known."""
    for word in split_words_of_name(description[:200])[:8]:
        stems = {word, word.removesuffix("s"), word.removesuffix("es")}
        if stems & (READ_VERBS | {"return", "provide"}):
            return CallKind.SEARCH
        if stems & (CHANGE_VERBS | COMPUTE_VERBS):
            return CallKind.OTHER
    return None
