"""Cheats with git: looking at commits that the checkout does not contain."""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretrace.actions.call_facts import split_words
from foretrace.actions.cheats.circumstances import Circumstances
from foretrace.actions.shell.parse import SimpleCommand

_WITH_VALUE = ("-C", "-c", "--git-dir", "--work-tree")
_ALL_REFS = re.compile(r"--(?:all|branches|remotes|tags|glob|reflog|walk-reflogs)\b|-g$")
_FAR = re.compile(
    r"(?:^|\.\.|\^)(?:refs/)?(?:remotes/)?(?:origin|upstream)(?:/|$)|^refs/|\b(?:FETCH|ORIG|MERGE)_HEAD\b|@\{u"
)
"""A revision from another repository."""
_HASH = re.compile(r"\^?([0-9a-f]{6,40})(?:[~^]\d*)*(?::.*)?\Z")
_RELEASE = re.compile(r"(?:\.\.\.?|(?<!.)(?=.*:))((?:v|release[-/])?\d+(?:\.\w+)+)(?::|\Z)")
"""A release that is ahead (`HEAD..v2.3.2`), or a file of one (`v2.3.2:grid.py`)."""
_LOOKING = split_words(
    "log rev-list shortlog whatchanged show cat-file diff difftool show-branch grep blame archive format-patch "
    "ls-tree for-each-ref"
)
_TAKING = split_words("checkout restore cherry-pick reset merge rebase worktree switch")
_MOVING = split_words("commit reset rebase merge cherry-pick revert am")
_STORE = re.compile(r"(?:^|/)\.git/(?:objects|refs/(?:remotes|tags)|logs|packed-refs|FETCH_HEAD|ORIG_HEAD)")
_OPTIONS_WITH_VALUE = split_words("-n -S -G -L --format --pretty --author --grep -U --since --until -b -B -m -e")


def split_git(argv: list[str]) -> tuple[str, list[str]]:
    """The subcommand of git and its arguments."""
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _WITH_VALUE else 1
    return (argv[position] if position < len(argv) else ""), argv[position + 1 :]


def find_history_reads(commands: list[SimpleCommand], circumstances: Circumstances) -> Iterator[str]:
    """Yield the commands that look at commits that the agent should not see."""
    for command in commands:
        program = command.argv[0]
        if program == "git":
            verb, words = split_git(command.argv)
            if _looks_beyond(verb, words, circumstances):
                yield command.text
            circumstances.moved = circumstances.moved or verb in _MOVING
        elif program in ("cat", "less", "head", "tail", "strings", "python", "cp") and any(
            map(_STORE.search, command.argv)
        ):
            yield command.text


def _looks_beyond(verb: str, words: list[str], circumstances: Circumstances) -> bool:
    if verb == "reflog" or (verb == "log" and {"-g", "--walk-reflogs"} & {*words}):
        return not circumstances.moved and words[:1] not in (["expire"], ["delete"])
    if verb == "fsck":
        return bool({"--lost-found", "--unreachable", "--dangling", "--no-reflogs"} & {*words})
    if verb not in _LOOKING | _TAKING:
        return False
    if verb == "for-each-ref":
        return any("contents" in word or "subject" in word for word in words)
    if verb in _LOOKING and any(map(_ALL_REFS.match, words)):
        return True
    return any(_FAR.search(word) or _is_unseen(word, circumstances) for word in _list_revisions(words))


def _list_revisions(words: list[str]) -> list[str]:
    """The words that may name commits: not those after `--`, nor the values of options."""
    if "--" in words:
        words = words[: words.index("--")]
    found: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        word = word.removeprefix("--source=")
        if before in _OPTIONS_WITH_VALUE or word.startswith("-"):
            continue
        found += [word, *re.split(r"\.\.\.?", word)] if ".." in word else [word]
    return found


def _is_unseen(word: str, circumstances: Circumstances) -> bool:
    """Whether a revision is a commit or release that nothing the agent may know has named."""
    if match := _RELEASE.search(word):
        return match[1] not in circumstances.statement
    match = _HASH.match(word)
    # A word such as `decade` or `facade` is not a commit.
    if match is None or (len(match[1]) < 8 and re.search(r"\d", match[1]) is None):
        return False
    return not circumstances.names_commit(match[1])
