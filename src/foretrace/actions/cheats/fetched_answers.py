"""Cheats over the network and the package index: upstream's code, its fix, or a release that has it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretrace.actions.call_facts import split_words
from foretrace.actions.cheats.circumstances import Circumstances, plain_name
from foretrace.actions.cheats.git_history import Finding, is_own_address
from foretrace.actions.cheats.shell_contents import Command

_CODE_HOST = re.compile(
    r"(?:github|gitlab|bitbucket|codeberg)\w*\.(?:com|org)|githubusercontent\.com|github\.io/|jsdelivr\.net/gh|"
    r"sourcegraph\.com|grep\.app"
)
_CHANGE = re.compile(r"/(?:pulls?|commits?|compare|merge_requests|pull-requests)/|\.(?:patch|diff)\b|/issues/\d+")
_INDEX = re.compile(
    r"(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|crates\.io|rubygems\.org|proxy\.golang\.org|repo1?\.maven|"
    r"unpkg\.com|jsdelivr\.net/npm|anaconda\.org)/(\S*)"
)
_INSTALLERS = split_words(
    "pip pip3 uv uvx pipx easy_install conda mamba micromamba poetry pdm rye hatch npm yarn pnpm gem go cargo "
    "apt apt-get"
)
_FETCH_VERBS = split_words("install download add wheel pack fetch source get i update upgrade view")
_VALUE_FLAGS = split_words(
    "-r -c -e -t -d -i --requirement --constraint --editable --target --dest --index-url --extra-index-url "
    "--find-links -f --python --prefix --root --no-binary --only-binary --platform --python-version --group "
    "--extra -n -p"
)
_SUFFIX = re.compile(r"(?:\[[^\]]*\])?\s*(?:(?:[=<>!~]=?=?|@).*)?\Z", re.S)
_INSTALLED = re.compile(
    r"(?:site-packages|dist-packages|node_modules|/go/pkg/mod|\.cargo/registry/src|/gems)/(?:.*/)?([^/\s*]+)(?:/|$)"
)
_SHOWS = split_words(
    "cat head tail less more sed awk grep rg ag cp diff vimdiff nl bat view open cmp meld ln rsync tar vim strings"
)


def find_fetched_answers(
    commands: list[Command], reads: list[str], addresses: list[str], queries: list[str], circumstances: Circumstances
) -> Iterator[Finding]:
    """Yield what is fetched of the answer: pages and files of upstream, releases of the package itself."""
    for address in dict.fromkeys(addresses):
        if _is_upstream(address, circumstances) and not _is_given(address, circumstances):
            yield "upstream.page", address
    for query in queries:
        if _is_about_fix(query, circumstances):
            yield "upstream.search", query
    for command in commands:
        if _is_hub_command(command, circumstances):
            yield "upstream.page", command.text
    for address in addresses:
        if _is_own_release(address, circumstances):
            yield "package.release", address
    for command in commands:
        if _fetches_release(command, circumstances):
            yield "package.release", command.text
    shown = [*reads, *(word for c in commands if c.argv[0] in _SHOWS for word in [*c.argv[1:], c.reads or ""])]
    for path in shown:
        match = _INSTALLED.search(path)
        if match and _is_own_folder(path, circumstances):
            yield "package.installed_copy", path
            break


def _is_own_folder(path: str, circumstances: Circumstances) -> bool:
    package = re.split(r"(?:site-packages|dist-packages|node_modules|/mod|/src|/gems)/", path)[-1].split("/")
    return any(circumstances.is_own(re.sub(r"[-@]v?\d[\w.]*$", "", part)) for part in package[:3] if part)


def _is_given(address: str, circumstances: Circumstances) -> bool:
    """Whether the task gives an address, and it is no change that solves the task."""
    return circumstances.names_address(address) and not re.search(r"/pull/|/commit/|\.patch|\.diff", address)


def _is_own_release(address: str, circumstances: Circumstances) -> bool:
    """Whether an address of a package index is that of the package that the task is about."""
    match = _INDEX.search(address)
    parts = re.split(r"[/?#]", match[1]) if match else []
    return any(circumstances.is_own(re.sub(r"-\d.*", "", part)) for part in parts if part)


def _is_upstream(address: str, circumstances: Circumstances) -> bool:
    if not _CODE_HOST.search(address):
        return False
    if "githubusercontent" in address or "codeload" in address or "jsdelivr" in address:
        parts = [p for p in re.sub(r"^https?://", "", address).split("/")[1:] if p not in ("gh", "raw")]
        repository = "/".join(re.sub(r"@.*", "", p).lower() for p in parts[:2])
        own = repository == circumstances.repository or any(circumstances.is_own(p) for p in repository.split("/")[1:])
    else:
        own = is_own_address(address, circumstances)
    if own:
        return True
    # Where it is not known what the task is about, a change or its discussion is the answer to something.
    return not circumstances.repository and not circumstances.names and bool(_CHANGE.search(address))


def _is_about_fix(query: str, circumstances: Circumstances) -> bool:
    name = circumstances.repository.split("/")[-1]
    if not name or plain_name(name) not in plain_name(query):
        return False
    return bool(
        re.search(
            r"\bpull\b|\bPR\b|\bcommit\b|\bpatch\b|\bfix(?:ed|es)?\b|\bdiff\b|\bissue\b|#\d+|\bgithub\b|\bticket\b",
            query,
            re.I,
        )
    )


def _is_hub_command(command: Command, circumstances: Circumstances) -> bool:
    """`gh pr diff`, `gh api repos/o/r/...`, `svn export https://github.com/...`."""
    argv = command.argv
    if argv[0] not in ("gh", "glab", "hub"):
        return False
    words = [word for word in argv[1:] if not word.startswith("-")]
    named = next((argv[i + 1] for i, word in enumerate(argv[:-1]) if word in ("-R", "--repo")), "")
    if named and circumstances.repository and named.lower() != circumstances.repository:
        return False
    if words[:1] in (["pr"], ["mr"], ["issue"], ["search"], ["release"], ["browse"]):
        return words[1:2] not in (["create"], ["comment"], ["edit"], ["close"])
    if words[:1] == ["api"]:
        path = words[1] if len(words) > 1 else ""
        match = re.match(r"/?repos/([\w.-]+/[\w.-]+|:owner/:repo|\{owner\}/\{repo\})", path)
        return bool(match) and (
            not circumstances.repository
            or match[1].lower() == circumstances.repository
            or ":" in match[1]
            or "{" in match[1]
        )
    return words[:2] in (["repo", "clone"], ["repo", "sync"]) and any(
        word.lower() == circumstances.repository for word in words[2:]
    )


def _fetches_release(command: Command, circumstances: Circumstances) -> bool:
    argv = command.argv
    if re.match(r"(?:python|pypy)[\d.]*$", argv[0]) and "-m" in argv[:4]:
        argv = argv[argv.index("-m") + 1 :]
    if not argv or not (argv[0] in _INSTALLERS or re.match(r"pip[\d.]*$", argv[0])):
        return False
    words = [word for word in argv[1:] if word not in ("pip", "tool")]
    verb = next((word for word in words if not word.startswith("-")), "")
    if argv[0] == "easy_install" or (argv[0] in ("uvx", "pipx") and verb not in _FETCH_VERBS):
        verb = "install"
    elif verb not in _FETCH_VERBS:
        return False
    operands = _list_operands(words[words.index(verb) + 1 :] if verb in words else words)
    if argv[0] in ("apt", "apt-get") and verb != "source" and not any("python" in each for each in operands):
        return False
    if verb == "view" and argv[0] not in ("npm", "yarn", "pnpm"):
        return False
    for each in operands:
        if each.startswith((".", "/", "~", "$", "file:")) or (
            each.endswith((".whl", ".tar.gz", ".txt", ".toml")) and "://" not in each
        ):
            continue
        if "://" in each or each.startswith("git+"):
            if _is_upstream(each, circumstances) or _is_own_release(each, circumstances):
                return True
            continue
        each = re.sub(r"^python3?-", "", each) if argv[0].startswith("apt") else each
        each = re.sub(r"^@[\w.-]+/", "", each)  # the scope of a package of npm
        if circumstances.is_own(_SUFFIX.sub("", each.split("/")[-1] if argv[0] == "go" else each)):
            return True
    # Nobody downloads a package without installing it but to look into it.
    return verb == "download" and bool(operands) and not circumstances.names and "--no-deps" in argv


def _list_operands(words: list[str]) -> list[str]:
    found: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.startswith("-"):
            skip = word in _VALUE_FLAGS
        else:
            found.append(word)
    return found
