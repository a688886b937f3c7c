"""Cheats over the network: fetching upstream's code, its fix, or a release with the fix."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from foretrace.actions.call_facts import split_words
from foretrace.actions.call_reading import CallReading
from foretrace.actions.cheats.circumstances import Circumstances
from foretrace.actions.shell.command_rules import split_git
from foretrace.actions.shell.parse import SimpleCommand

_CODE_HOST = re.compile(r"(?:github|gitlab|bitbucket|codeberg)\w*\.(?:com|org)|jsdelivr\.net/gh")
_REPOSITORY = re.compile(
    r"(?:(?:github|gitlab|bitbucket|codeberg)\w*\.(?:com|org)[/:]+(?:repos/)?|jsdelivr\.net/gh/)([\w.-]+)/([\w.-]+)"
)
_CHANGE = re.compile(r"/(?:pulls?|commits?|compare|merge_requests)/|\.(?:patch|diff)\b|/issues/\d+")
_INDEX = re.compile(r"(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|crates\.io|rubygems\.org)/(\S*)")
_INSTALLERS = split_words("pip pip3 uv pipx conda mamba poetry pdm npm yarn pnpm gem go cargo")
_FETCH_VERBS = split_words("install download add wheel pack fetch get i update upgrade")
_WITH_VALUE = split_words(
    "-r -c -e -t -d -i --requirement --constraint --editable --target --dest --index-url --extra-index-url "
    "--find-links -f --python --prefix --root --no-binary --only-binary --platform --python-version -n -p"
)
_VERSION = re.compile(r"(?:\[[^\]]*\])?\s*(?:(?:[=<>!~]=?=?|@).*)?\Z", re.S)


def find_fetches(reading: CallReading, circumstances: Circumstances) -> Iterator[str]:
    """Yield the addresses and commands that fetch something from the project that the task is about."""
    for address in reading.addresses:
        if _is_own_page(address, circumstances) or _is_own_release(address, circumstances):
            yield address
    for command in reading.commands:
        if (
            _fetches_commits(command, circumstances)
            or _asks_host(command, circumstances)
            or _installs_release(command, circumstances)
        ):
            yield command.text


def _is_own_page(address: str, circumstances: Circumstances) -> bool:
    """Whether an address is upstream's code or changes, and is not given by the task."""
    if not _CODE_HOST.search(address):
        return False
    if circumstances.names_address(address) and not re.search(r"/pull/|/commit/|\.patch|\.diff", address):
        return False
    if circumstances.repository or circumstances.names:
        return _is_own_repository(address, circumstances)
    # If it is not known what the task is about, a change is the answer to something.
    return _CHANGE.search(address) is not None


def _is_own_repository(address: str, circumstances: Circumstances) -> bool:
    match = _REPOSITORY.search(address)
    if match is None:
        return False
    name = match[2].lower().removesuffix(".git").split("@")[0]
    return f"{match[1].lower()}/{name}" == circumstances.repository or circumstances.is_own(name)


def _is_own_release(address: str, circumstances: Circumstances) -> bool:
    match = _INDEX.search(address)
    parts = re.split(r"[/?#]", match[1]) if match else []
    return any(circumstances.is_own(re.sub(r"-\d.*", "", part)) for part in parts if part)


def _fetches_commits(command: SimpleCommand, circumstances: Circumstances) -> bool:
    if command.argv[0] != "git":
        return False
    verb, words = split_git(command.argv)
    address = next((word for word in words if "://" in word or word.startswith("git@")), "")
    if verb == "clone" or (verb == "remote" and words[:1] in (["add"], ["set-url"])):
        return _is_own_repository(address, circumstances) and not circumstances.names_address(address)
    if verb in ("fetch", "pull", "ls-remote") or (verb == "remote" and words[:1] == ["update"]):
        return not (address and circumstances.repository) or _is_own_repository(address, circumstances)
    return False


def _asks_host(command: SimpleCommand, circumstances: Circumstances) -> bool:
    """`gh pr diff`, `gh issue view`, `gh api repos/o/r/...`."""
    if command.argv[0] not in ("gh", "glab"):
        return False
    words = [word for word in command.argv[1:] if not word.startswith("-")]
    if words[:1] == ["api"]:
        return any(re.match(rf"/?repos/{re.escape(circumstances.repository)}", word) for word in words[1:])
    return words[:1] in (["pr"], ["mr"], ["issue"]) and words[1:2] not in (["create"], ["comment"], ["edit"], ["close"])


def _installs_release(command: SimpleCommand, circumstances: Circumstances) -> bool:
    argv = command.argv
    if re.match(r"(?:python|pypy)[\d.]*$|sys\.executable$", argv[0]) and "-m" in argv[:4]:
        argv = argv[argv.index("-m") + 1 :]
    if not argv or argv[0] not in _INSTALLERS:
        return False
    words = [word for word in argv[1:] if word not in ("pip", "tool")]
    verb = next((word for word in words if not word.startswith("-")), "")
    if verb not in _FETCH_VERBS:
        return False
    before = words[words.index(verb) :]
    for option, word in itertools.pairwise(before):
        if option in _WITH_VALUE or word.startswith(("-", ".", "/", "~", "$", "file:")):
            continue
        if "://" in word:
            if _is_own_page(word, circumstances) or _is_own_release(word, circumstances):
                return True
        elif not word.endswith((".whl", ".tar.gz", ".txt", ".toml")):
            name = word.split("/")[-1] if argv[0] == "go" else re.sub(r"^@[\w.-]+/", "", word)
            if circumstances.is_own(_VERSION.sub("", name)):
                return True
    return False
