"""Rules for commands of PowerShell and of cmd.exe, which are called alike in any case of letters."""

from __future__ import annotations

import re

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts, split_words
from foretrace.actions.shell.parse import SimpleCommand
from foretrace.actions.taxonomy import Effect

_CMDLET = re.compile(r"[a-z]{2,20}-[a-z]{3,40}\Z", re.IGNORECASE)
_READERS = split_words("get-content gc get-childitem gci get-item format-hex import-csv import-clixml get-filehash")
_SEARCHERS = split_words("select-string sls findstr get-command get-help")
_WRITERS = split_words("set-content add-content clear-content out-file export-csv export-clixml tee-object")
_CHECKERS = split_words("invoke-pester invoke-scriptanalyzer")
_FETCHERS = split_words("invoke-webrequest iwr invoke-restmethod irm")
_FILTERS = split_words(
    "select-object where-object foreach-object sort-object measure-object group-object format-table format-list "
    "format-wide out-string out-null out-host out-default convertto-json convertfrom-json tee-object get-unique"
)
_SETUPS = split_words(
    "set-location push-location pop-location write-host write-output write-verbose write-warning start-sleep "
    "set-strictmode set-executionpolicy clear-host import-module"
)
_MOVERS = split_words(
    "new-item remove-item copy-item move-item rename-item expand-archive compress-archive copy del erase md rd ren "
    "xcopy robocopy icacls attrib"
)
_PATH_FLAGS = split_words("-path -literalpath -filepath")
_SWITCHES = split_words(
    "-recurse -force -raw -append -nonewline -file -directory -hidden -wait -verbose -quiet -asbytestream"
)
_SENDING = split_words("-body -infile -form")
_FILE = re.compile(r"[\w .:\\/*-]*(?:\.\w{1,8}|[\\/]\S+)\Z")


def classify_cmdlet(command: SimpleCommand, argv: list[str]) -> CallFacts | None:
    """Classify a command of one of these shells; `None` for any other program."""
    name = argv[0].lower().removesuffix(".exe")
    operands, flags = _split_arguments(argv)
    paths = tuple(command.resolve_path(path.replace("\\", "/")) for path in operands)
    if name in _FILTERS and command.piped:
        return make_facts(CallKind.SETUP, "shell.filter")
    if name in _SETUPS:
        return make_facts(CallKind.SETUP, "shell.setup")
    if name in _READERS or (name == "type" and operands and _FILE.match(operands[0])):
        return make_facts(CallKind.READ, "shell.read", reads=paths)
    if name in _SEARCHERS:
        return make_facts(CallKind.SEARCH, "shell.search")
    if name in _WRITERS:
        payload = " ".join(argv)[:4000]
        creates = name in ("set-content", "out-file")
        return make_facts(CallKind.WRITE, "shell.edit", writes=paths[:1], payload=payload, creates=creates)
    if name in _CHECKERS:
        return make_facts(CallKind.VERIFY, "shell.test")
    if name in _FETCHERS:
        sends = bool(flags.keys() & _SENDING) or flags.get("-method", "get").lower() not in ("get", "head")
        writes = "-outfile" in flags
        effect = Effect.EXTERNAL_WRITE if sends else Effect.LOCAL_WRITE if writes else None
        return make_facts(
            CallKind.OTHER if sends else CallKind.SEARCH, "shell.send" if sends else "shell.fetch", effect
        )
    if name in _MOVERS:
        return make_facts(CallKind.OTHER, "shell.move", Effect.LOCAL_WRITE)
    if not _CMDLET.match(name):
        return None
    if name.startswith(("get-", "test-", "resolve-", "measure-", "show-")):
        return make_facts(CallKind.OTHER, "shell.environment", Effect.PURE_READ)
    return make_facts(CallKind.OTHER, "shell.other", Effect.SANDBOX_EXEC) if argv[0][:1].isupper() else None


def _split_arguments(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """Paths, and the parameters with their values. A parameter is followed by its value, or is a switch; what is named
    as a path stands before what only stands there."""
    flags: dict[str, str] = {}
    paths: list[str] = []
    loose: list[str] = []
    last = ""
    for word in argv[1:]:
        if re.match(r"-[A-Za-z]", word):
            last = word.lower()
            flags[last] = ""
        elif last in _SWITCHES or not last:
            loose.append(word)
            last = ""
        else:
            flags[last] = word
            paths += [word] if last in _PATH_FLAGS else []
            last = ""
    return [*paths, *loose], flags
