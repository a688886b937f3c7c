"""Rules for commands of PowerShell and of cmd.exe, which are called alike in any case of letters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts, split_words
from foretrace.actions.shell.parse import SimpleCommand
from foretrace.actions.taxonomy import Effect

_CMDLET = re.compile(r"[a-z]{2,20}-[a-z]{3,40}\Z", re.IGNORECASE)
_READERS = split_words("get-content gc get-childitem gci get-item format-hex import-csv import-clixml get-filehash")
_SEARCHERS = split_words("select-string sls findstr get-command get-help")
_WRITERS = split_words("set-content add-content clear-content out-file export-csv export-clixml tee-object")
_FETCHERS = split_words("invoke-webrequest iwr invoke-restmethod irm")
_FILTERS = split_words(
    "select-object where-object foreach-object foreach sort-object measure-object group-object format-table "
    "format-list format-wide out-string out-null out-host out-default convertto-json convertfrom-json get-unique"
)
_SETUPS = split_words(
    "set-location push-location pop-location write-host write-output write-verbose write-warning start-sleep "
    "set-strictmode clear-host set-executionpolicy import-module"
)
_MOVERS = split_words(
    "new-item remove-item copy-item move-item rename-item expand-archive compress-archive copy del erase md rd ren "
    "xcopy robocopy icacls attrib"
)
_PATH_FLAGS = split_words("-path -literalpath -filepath")
_SWITCHES = split_words(
    "-recurse -force -raw -append -nonewline -file -directory -hidden -wait -verbose -quiet -asbytestream"
)
_SENDS = re.compile(r"-(?:m|c|b|inf|fo)\w*", re.IGNORECASE)
"""-Method, -CustomMethod, -Body, -InFile, -Form, of which PowerShell takes any beginning."""
_TEXT = re.compile(r"'[^'\n]*'|\"[^\"\n$`]*\"")
_FILE = re.compile(r"[\w .:\\/*-]*(?:\.\w{1,8}|[\\/]\S+)\Z")
_ALIASES = split_words("gc gci sls iwr irm")
_ALL = _READERS | _SEARCHERS | _FILTERS


def classify_cmdlet(command: SimpleCommand, argv: list[str]) -> CallFacts | None:
    """Classify a command of one of these shells; `None` for any other program."""
    name = argv[0].lower().removesuffix(".exe")
    operands = _list_paths(argv)
    paths = tuple(command.resolve_path(path.replace("\\", "/")) for path in operands)
    if name in _FILTERS and command.piped:
        # `ForEach-Object Delete` calls what is named so.
        return make_facts(CallKind.SETUP, "shell.filter", Effect.SANDBOX_EXEC if name.startswith("foreach") else None)
    if name in _SETUPS:
        runs = name in ("set-executionpolicy", "import-module")
        return make_facts(CallKind.SETUP, "shell.setup", Effect.SANDBOX_EXEC if runs else None)
    if name in _READERS or (name == "type" and operands and _FILE.match(operands[0])):
        return make_facts(CallKind.READ, "shell.read", reads=paths)
    if name in _SEARCHERS:
        return make_facts(CallKind.SEARCH, "shell.search")
    if name in _WRITERS:
        creates = name in ("set-content", "out-file")
        return make_facts(
            CallKind.WRITE, "shell.edit", writes=paths[:1], payload=" ".join(argv)[:4000], creates=creates
        )
    if name in _FETCHERS:
        if any(map(_SENDS.match, argv[1:])):
            return make_facts(CallKind.OTHER, "shell.send", Effect.EXTERNAL_WRITE)
        return make_facts(CallKind.SEARCH, "shell.fetch", Effect.UNKNOWN)  # -OutFile has many spellings
    if name in _MOVERS:
        return make_facts(CallKind.OTHER, "shell.move", Effect.LOCAL_WRITE)
    if not _CMDLET.match(name) or not argv[0][:1].isupper():
        return None
    if name.startswith("invoke-"):
        return make_facts(CallKind.VERIFY, "shell.test")
    return make_facts(CallKind.OTHER, "shell.other", Effect.SANDBOX_EXEC)


def may_run_more(text: str, programs: Iterable[str]) -> bool:
    """Whether a line of PowerShell has blocks, brackets or calls, in which anything may be run.

    Args:
        text: The whole line: a parser of another shell drops some of them.
        programs: What the commands start that it found in the line.
    """
    names = {program.lower().removesuffix(".exe") for program in programs}
    if not any(name in _ALIASES or (name in _ALL and "-" in name) for name in names):
        return False
    return re.search(r"[({]|&\s*[.\w$'\"]|\.\w+\(|::", _TEXT.sub("''", text)) is not None


def _list_paths(argv: list[str]) -> list[str]:
    """What is named as a path, then what stands alone. A parameter is followed by its value, or is a switch."""
    paths: list[str] = []
    loose: list[str] = []
    last = ""
    for word in argv[1:]:
        if re.match(r"-[A-Za-z]", word):
            last = "" if ":" in word else word.lower()
        else:
            named = paths if last in _PATH_FLAGS else None if last and last not in _SWITCHES else loose
            if named is not None:
                named.append(word)
            last = ""
    return [*paths, *loose]
