"""Read-only sub-commands of programs that can also change much (cloud and cluster clients, package tools), and requests
that send something (curl, wget, `gh api`).

Only its position makes a word a sub-command: the value of a flag or the name of a thing may look like one
(`kubectl -n get delete pod x`). So words are read up to the first flag that is not known to be allowed anywhere; a
command that is not listed here is not a look-up.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

import msgspec

from foretrace.actions.call_facts import split_words

_ANY = r"(?: .*)?"
"""Anything that follows a read-only sub-command: names, options."""


class _Program(msgspec.Struct, frozen=True):
    """The look-ups of a program, and the flags that may appear anywhere in its commands."""

    lookups: re.Pattern[str]
    """A whole read-only command without its common flags; everything from the first other flag on is ` -`."""
    valued: frozenset[str] = frozenset()
    """Common flags that take the next word as their value."""
    switches: frozenset[str] = frozenset()


def _make(lookups: str, valued: str = "", switches: str = "") -> _Program:
    return _Program(re.compile(lookups), split_words(valued), split_words(switches))


_KUBECTL = (
    rf"(?:get|describe|logs|top|explain|api-resources|api-versions|version|events){_ANY}|cluster-info|"
    rf"config (?:view|get-contexts|get-clusters|get-users|current-context){_ANY}|rollout (?:status|history){_ANY}|"
    rf"auth (?:can-i|whoami){_ANY}"
)
_DOCKER = (
    rf"(?:ps|images|logs|inspect|version|info|top|port|history|stats|diff|search){_ANY}|"
    rf"(?:container|image|volume|network|context) (?:ls|list|inspect|logs|top|history){_ANY}|"
    rf"compose (?:ps|logs|images|ls|top|port|version|config){_ANY}|system (?:df|info){_ANY}|manifest inspect{_ANY}"
)
_COMPOSE = "-f --file -p --project-name --project-directory --env-file --profile"
_GH = (
    r"(?:pr|issue|run|repo|release|workflow|gist|label|secret|variable|cache|ruleset|project|extension|alias|config|"
    rf"codespace|ssh-key|gpg-key|org|auth) (?:view|list|ls|status|diff|checks|field-list|item-list){_ANY}|"
    rf"search (?:code|commits|issues|prs|repos){_ANY}|status{_ANY}|api(?: [^ ]+)?(?: -)?"
)
_PROGRAMS = {
    "kubectl": _make(
        _KUBECTL,
        "-n --namespace --context --kubeconfig --cluster --user -s --server --token --as --request-timeout",
        "-A --all-namespaces --insecure-skip-tls-verify",
    ),
    "gh": _make(_GH, "-R --repo"),
    "docker": _make(_DOCKER, f"-H --host -c --context --config -l --log-level {_COMPOSE}", "-D --debug --tls"),
    "npm": _make(
        rf"(?:ls|list|view|outdated|root|prefix|bin|whoami){_ANY}|config (?:get|list|ls){_ANY}|audit(?: -)?",
        "--prefix -C -w --workspace",
        "-g --global --json",
    ),
    "yarn": _make(rf"(?:list|why|info){_ANY}", "--cwd", "--json"),
    "pnpm": _make(rf"(?:ls|list|why){_ANY}", "-C --dir -F --filter", "-r --recursive --json"),
    "cargo": _make(rf"(?:\+[\w.-]+ )?(?:tree|metadata|search){_ANY}", "--manifest-path", "-q --quiet --offline"),
    "go": _make(rf"(?:list|doc|version|mod (?:graph|why|verify)){_ANY}|env(?: [\w ]+)?", "-C"),
}
"""Program -> its look-ups."""
_LOOKS = re.compile(r"(?:get|list|describe|show|ls|status|history|version|info|search|lookup|tail)(?:-|\Z)")
_FILE_OPTIONS = re.compile(
    r"--(?:output-dir(?:ectory)?|output_file|profile-output|template-output|out|out-file|outfile|fix|force)(?:=|$)|-mod=mod$"
)
"""Options of look-ups that write a file or a setting."""
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SWITCHES = "[sSLkfivgGINq#]*"
"""Short options of curl without a value, which may be combined in one word with another option."""
_METHOD = re.compile(rf"(?:^| )(?:-{_SWITCHES}X|--req\w*)[ =]?[\"']?(\w+)")
_UPLOADS = re.compile(rf"-{_SWITCHES}[TQt]|--(?:upload-file|quote|mail-|telnet-option)")
_DATA = re.compile(rf"-{_SWITCHES}[dF]|--(?:data|form|json|url-query-data)")
_QUERY = re.compile(r"(?:^| )(?:-[a-zA-Z]*[GI]|--get|--head)")
_WGET_SENDS = re.compile(r"--(?:post|body|method)\b")
_GH_SAFE = re.compile(
    r"(?:-[HqtipX]|--(?:paginate|include|silent|slurp|verbose|header|jq|template|hostname|preview|cache))(?:=|$)"
)
"""Options with which `gh api` only looks; fields, and possibly others, make it a POST."""


def is_lookup(name: str, arguments: Sequence[str], others: Sequence[str] = ()) -> bool:
    """Whether a command certainly only looks.

    Args:
        name: The program, without its folder.
        arguments: Its arguments.
        others: The read-only sub-commands of a program without patterns here: the first argument must be one.
    """
    program = _PROGRAMS.get(name)
    if program is None:
        return bool(arguments) and arguments[0] in others
    if not program.lookups.fullmatch(" ".join(_read_words(program, arguments))):
        return False
    return not any(_FILE_OPTIONS.match(word) for word in arguments)


def seems_lookup(arguments: Sequence[str]) -> bool:
    """Whether the first words of an unknown command look like those of a look-up."""
    words = itertools.takewhile(lambda word: not word.startswith("-"), arguments[:4])
    return any(map(_LOOKS.match, words))


def _read_words(program: _Program, arguments: Sequence[str]) -> Iterator[str]:
    """The words of a command without its common flags; `-` replaces everything from the first other flag on."""
    position = 0
    while position < len(arguments):
        word = arguments[position]
        name, has_value, _ = word.partition("=")
        if word in program.valued:
            position += 1
        elif not word.startswith("-"):
            yield word
        elif word not in program.switches and not (has_value and name in program.valued):
            yield "-"
            return
        position += 1


def sends_request(name: str, arguments: Sequence[str]) -> bool:
    """Whether a request by `curl` or `wget` with these arguments may change something on a server."""
    if name == "wget":
        return any(map(_WGET_SENDS.match, arguments))
    text = " ".join(word[:200] for word in arguments)
    methods = _METHOD.findall(text)
    if any(map(_UPLOADS.match, arguments)) or any(map(_is_changing, methods)):
        return True
    return not methods and not _QUERY.search(text) and any(map(_DATA.match, arguments))


def sends_api(arguments: Sequence[str]) -> bool:
    """Whether `gh api` may change something, by its method or another option."""
    options = [word for word in arguments if word.startswith("-")]
    methods = [after for word, after in itertools.pairwise([*arguments, ""]) if word == "-X"]
    return not all(map(_GH_SAFE.match, options)) or any(map(_is_changing, methods))


def _is_changing(method: str) -> bool:
    return method.strip("\"'= ").upper() not in _SAFE_METHODS
