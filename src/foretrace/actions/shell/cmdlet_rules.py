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
_CHECKERS = split_words("invoke-pester invoke-scriptanalyzer")
_FETCHERS = split_words("invoke-webrequest iwr invoke-restmethod irm")
_FILTERS = split_words(
    "select-object where-object foreach-object sort-object measure-object group-object format-table format-list "
    "format-wide out-string out-null out-host out-default convertto-json convertfrom-json get-unique"
)
_SETUPS = split_words(
    "set-location push-location pop-location write-host write-output write-verbose write-warning start-sleep "
    "set-strictmode clear-host"
)
_MOVERS = split_words(
    "new-item remove-item copy-item move-item rename-item expand-archive compress-archive copy del erase md rd ren "
    "xcopy robocopy icacls attrib"
)
_LOOKS = split_words(
    "get-process get-service get-date get-location get-alias get-variable get-history get-host get-member get-random "
    "get-acl get-itemproperty get-itempropertyvalue get-psdrive get-psprovider get-module get-verb get-culture "
    "get-timezone get-uptime get-computerinfo get-ciminstance get-wmiobject get-eventlog get-winevent get-hotfix "
    "get-netadapter get-netipaddress get-nettcpconnection get-netroute get-netfirewallrule get-dnsclientserveraddress "
    "get-disk get-volume get-partition get-localuser get-localgroup get-package get-packageprovider get-counter "
    "get-executionpolicy get-error get-job get-unique get-tracesource get-typedata get-formatdata get-psbreakpoint "
    "get-pscallstack get-psrepository get-installedmodule get-scheduledtask get-authenticodesignature get-uiculture "
    "test-path test-connection test-netconnection test-json test-modulemanifest test-wsman resolve-path "
    "resolve-dnsname measure-object show-command compare-object split-path join-path convert-path"
)
"""Cmdlets that are known to change nothing. Others of these verbs are somebody's own, or a program
(`test-storybook`)."""
_PATH_FLAGS = split_words("-path -literalpath -filepath")
_SWITCHES = split_words(
    "-recurse -force -raw -append -nonewline -file -directory -hidden -wait -verbose -quiet -asbytestream"
)
_SENDING = ("-body", "-infile", "-form")
_BLOCK = re.compile(
    r"\{(?>(?:\$_(?:\.\w+)*|\$(?:true|false|null)\b|'[^']*'|\"[^\"$`]*\"|[\d.]+(?:[kmgt]b)?|\s+"
    r"|-(?:not|and|or|xor|eq|ne|gt|lt|ge|le|i?like|notlike|i?match|notmatch|contains|notcontains|in|notin|is|isnot)\b)*)\}",
    re.IGNORECASE,
)
"""A block that only looks at what it is given: `{ $_.Length -gt 3 }`."""
_TEXT = re.compile(r"'[^'\n]*'|\"[^\"\n$`]*\"")
_FILE = re.compile(r"[\w .:\\/*-]*(?:\.\w{1,8}|[\\/]\S+)\Z")


_ALL = _READERS | _SEARCHERS | _FETCHERS | _FILTERS | _SETUPS | _LOOKS
_ALIASES = split_words("gc gci sls iwr irm")


def classify_cmdlet(command: SimpleCommand, argv: list[str]) -> CallFacts | None:
    """Classify a command of one of these shells; `None` for any other program."""
    name = argv[0].lower().removesuffix(".exe")
    operands, flags = _split_arguments(argv)
    paths = tuple(command.resolve_path(path.replace("\\", "/")) for path in operands)
    if name in ("foreach-object", "foreach") and command.piped and not "".join(argv[1:2]).startswith("{"):
        # `ForEach-Object Delete` calls what is named so.
        return make_facts(CallKind.SETUP, "shell.filter", Effect.SANDBOX_EXEC)
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
        methods = [value for flag, value in flags.items() if _may_be(flag, "-method", "-custommethod")]
        sends = any(_may_be(flag, *_SENDING) for flag in flags) or any(
            m.lower() not in ("get", "head") for m in methods
        )
        # `-o` may be -OutFile in one version and nothing in another.
        writes = any(_may_be(flag, "-outfile", "-sessionvariable") for flag in flags)
        effect = Effect.EXTERNAL_WRITE if sends else Effect.LOCAL_WRITE if writes else None
        return make_facts(
            CallKind.OTHER if sends else CallKind.SEARCH, "shell.send" if sends else "shell.fetch", effect
        )
    if name in _MOVERS:
        return make_facts(CallKind.OTHER, "shell.move", Effect.LOCAL_WRITE)
    if name in _LOOKS:
        return make_facts(CallKind.OTHER, "shell.environment", Effect.PURE_READ)
    if name in ("set-executionpolicy", "import-module"):
        return make_facts(CallKind.SETUP, "shell.setup", Effect.SANDBOX_EXEC)
    if not _CMDLET.match(name):
        return None
    return make_facts(CallKind.OTHER, "shell.other", Effect.SANDBOX_EXEC) if argv[0][:1].isupper() else None


def may_run_more(text: str, programs: Iterable[str]) -> bool:
    """Whether a line of PowerShell has blocks, brackets or calls, in which anything may be run.

    Args:
        text: The whole line: a parser of another shell drops some of them.
        programs: What the commands start that it found in the line.
    """
    names = {program.lower().removesuffix(".exe") for program in programs}
    if not any(name in _ALIASES or (name in _ALL and "-" in name) for name in names):
        return False
    bare = _TEXT.sub("''", _BLOCK.sub("", text))
    return re.search(r"[({]|&\s*[.\w$'\"]|\.\w+\(|::", bare) is not None


def _may_be(flag: str, *parameters: str) -> bool:
    """Whether a flag is one of these parameters, of which PowerShell takes any beginning."""
    return len(flag) > 1 and any(parameter.startswith(flag) for parameter in parameters)


def _split_arguments(argv: list[str]) -> tuple[list[str], dict[str, str]]:
    """Paths, and the parameters with their values. A parameter is followed by its value, or is a switch; what is named
    as a path stands before what only stands there."""
    flags: dict[str, str] = {}
    paths: list[str] = []
    loose: list[str] = []
    last = ""
    for word in argv[1:]:
        if re.match(r"-[A-Za-z]", word):
            last, colon, value = word.lower().partition(":")
            flags[last] = value
            last = "" if colon else last
        elif last in _SWITCHES or not last:
            loose.append(word)
            last = ""
        else:
            flags[last] = word
            paths += [word] if last in _PATH_FLAGS else []
            last = ""
    return [*paths, *loose], flags
