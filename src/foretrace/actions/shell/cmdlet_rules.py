"""Rules for commands of PowerShell and cmd.exe, whose names ignore case."""

from __future__ import annotations

import re

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts
from foretrace.actions.shell.parse import SimpleCommand
from foretrace.actions.taxonomy import Effect

_CMDLET = re.compile(r"[a-z]{2,20}-[a-z]{3,40}\Z", re.IGNORECASE)
_BY_RULE = {
    (CallKind.READ, "shell.read"): "get-content gc get-childitem gci get-item format-hex import-csv get-filehash",
    (CallKind.SEARCH, "shell.search"): "select-string sls findstr get-command get-help",
    (CallKind.WRITE, "shell.edit"): "set-content add-content clear-content out-file export-csv tee-object",
    (CallKind.SEARCH, "shell.fetch"): "invoke-webrequest iwr invoke-restmethod irm",
    (CallKind.SETUP, "shell.filter"): (
        "select-object where-object foreach-object foreach sort-object measure-object group-object format-table "
        "format-list format-wide out-string out-null out-host out-default convertto-json convertfrom-json get-unique"
    ),
    (CallKind.SETUP, "shell.setup"): (
        "set-location push-location pop-location write-host write-output write-verbose write-warning start-sleep "
        "set-strictmode clear-host set-executionpolicy import-module"
    ),
    (CallKind.OTHER, "shell.move"): (
        "new-item remove-item copy-item move-item rename-item expand-archive compress-archive copy del erase md rd ren "
        "xcopy robocopy icacls attrib"
    ),
}
_RULES = {name: rule for rule, names in _BY_RULE.items() for name in names.split()}
_EFFECTS = {"shell.edit": Effect.LOCAL_WRITE, "shell.move": Effect.LOCAL_WRITE, "shell.fetch": Effect.UNKNOWN}
_PATH_FLAGS = ("-path", "-literalpath", "-filepath")
_SWITCHES = ("-recurse", "-force", "-raw", "-append", "-nonewline", "-file", "-directory", "-hidden", "-wait")
_SENDS = re.compile(r"-(?:m|c|b|inf|fo)\w*", re.IGNORECASE)
"""-Method, -CustomMethod, -Body, -InFile, -Form, or any abbreviation, as PowerShell allows."""
_FILE = re.compile(r"[\w .:\\/*-]*(?:\.\w{1,8}|[\\/]\S+)\Z")


def classify_cmdlet(command: SimpleCommand, argv: list[str]) -> CallFacts | None:
    """Classify a command of one of these shells; `None` for any other program.

    None of them counts as a pure read: their lines have blocks and brackets in which anything may run.
    """
    name = argv[0].lower().removesuffix(".exe")
    operands = _list_paths(argv)
    if name == "type" and operands and _FILE.match(operands[0]):
        name = "get-content"
    if name not in _RULES:
        if not _CMDLET.match(name) or not argv[0][:1].isupper():
            return None
        if name.startswith("invoke-"):
            return make_facts(CallKind.VERIFY, "shell.test")
        return make_facts(CallKind.OTHER, "shell.other", Effect.SANDBOX_EXEC)
    kind, rule = _RULES[name]
    paths = tuple(command.resolve_path(path.replace("\\", "/")) for path in operands)
    if rule == "shell.fetch" and any(map(_SENDS.match, argv[1:])):
        return make_facts(CallKind.OTHER, "shell.send", Effect.EXTERNAL_WRITE)
    if kind is CallKind.WRITE:
        creates = name in ("set-content", "out-file")
        return make_facts(kind, rule, writes=paths[:1], payload=" ".join(argv)[:4000], creates=creates)
    reads = paths if kind is CallKind.READ else ()
    return make_facts(kind, rule, _EFFECTS.get(rule, Effect.SANDBOX_EXEC), reads=reads)


def _list_paths(argv: list[str]) -> list[str]:
    """The named paths, then the unnamed ones. A parameter is followed by its value, or is a switch."""
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
