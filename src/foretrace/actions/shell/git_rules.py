"""Rules for git commands.

`git diff` and `git status` compare state: `label_steps` makes that a verifier once the agent has written something.
"""

from __future__ import annotations

from foretrace.actions.call_facts import CallFacts, CallKind, make_facts, split_words
from foretrace.actions.taxonomy import Effect

_LOOKUP_VERBS = split_words(
    "log reflog blame grep ls-files ls-tree ls-remote rev-parse rev-list describe shortlog cat-file "
    "whatchanged annotate"
    " merge-base name-rev show-ref for-each-ref count-objects check-ignore var help version"
    " diff-tree diff-index diff-files range-diff check-attr check-ref-format verify-commit verify-tag show-branch"
    " cherry"
)
_VALUE_FLAGS = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
_CHANGING_ARGUMENTS = {
    "branch": split_words(
        "-d -D --delete -m -M --move -c -C --copy -f --force -u --set-upstream-to --unset-upstream --edit-description"
    ),
    "remote": split_words("add remove rm rename set-url set-head set-branches prune update"),
    "tag": split_words("-d --delete -a -s -m -f --force"),
    "config": split_words("--unset --unset-all --add --replace-all -e --edit"),
}
"""Sub-command -> arguments with which it changes something, in any position: `git branch -r -d origin/x`."""
_LOOKUP_ARGUMENTS = {
    "branch": ("",),
    "tag": ("", "-l", "--list", "-n"),
    "remote": ("", "-v", "show", "get-url"),
    "stash": ("list", "show"),
    "config": ("--get", "--list", "-l", "--get-all", "get", "list"),
    "worktree": ("list",),
    "submodule": ("", "status"),
    "notes": ("", "show", "list"),
    "bisect": ("log", "view"),
}
"""Sub-command -> first arguments with which it only looks something up (`""`: no arguments)."""


_CONFIG_PLACES = frozenset({"--global", "--system", "--local", "--worktree", "--bool", "--int", "--path", "--type"})
_LIST_FLAGS = frozenset(
    {"--list", "-l", "--contains", "--no-contains", "--points-at", "--merged", "--no-merged", "--show-current"}
)
"""Options after which names are patterns of what to show."""
_SHOW_FLAGS = split_words("--sort --format --column -a -r -v -vv -av -avv -rv -ra --all --remotes -n -i")


def classify_git(argv: list[str]) -> CallFacts:
    """Classify `git ...`; paths are left as written."""
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _VALUE_FLAGS else 1
    verb = argv[position] if position < len(argv) else ""
    rest = argv[position + 1 :]
    first = rest[0] if rest else ""
    if verb in ("diff", "status", "difftool"):
        return make_facts(CallKind.COMPARE, f"git.{verb}")
    if verb == "show":
        return make_facts(CallKind.READ, "git.show")
    if not verb and "--version" in argv[1:2]:
        return make_facts(CallKind.OTHER, "shell.version", Effect.PURE_READ)
    changes = _CHANGING_ARGUMENTS.get(verb, frozenset()) & {*rest}
    if verb in _LOOKUP_VERBS or (not changes and (first in _LOOKUP_ARGUMENTS.get(verb, ()) or _only_shows(verb, rest))):
        return make_facts(CallKind.SEARCH, "git.look")
    if verb in ("apply", "am"):
        check = "--check" in rest or "--stat" in rest
        return make_facts(CallKind.VERIFY if check else CallKind.WRITE, "git.apply")
    if verb == "restore" or _discards_changes(verb, rest):
        return make_facts(CallKind.UNDO, "git.undo", writes=tuple(w for w in rest if not w.startswith("-")))
    if verb == "bisect" and first == "run":
        return make_facts(CallKind.VERIFY, "git.bisect")
    remote = verb in ("push", "send-email")
    return make_facts(CallKind.OTHER, "git.other", Effect.EXTERNAL_WRITE if remote else Effect.LOCAL_WRITE)


def _only_shows(verb: str, rest: list[str]) -> bool:
    """Whether the options of a sub-command, in any position, or a missing value make it a look-up."""
    words = [word for word in rest if not word.startswith("-")]
    flags = {word.partition("=")[0] for word in rest if word.startswith("-")}
    if verb == "config":
        is_named = len(words) == 1 and "." in words[0] and flags <= _CONFIG_PLACES
        return is_named or bool(flags & {"--list", "-l", "--get", "--get-all", "--get-regexp", "--get-urlmatch"})
    if verb in ("branch", "tag"):
        return bool(flags & _LIST_FLAGS) or (bool(flags) and not words and flags <= _SHOW_FLAGS)
    return verb == "symbolic-ref" and len(words) == 1 and flags <= {"--short", "-q", "--quiet"}


def _discards_changes(verb: str, rest: list[str]) -> bool:
    """Whether a sub-command reverts changes in the working tree."""
    if verb == "checkout":
        if "-b" in rest or "-B" in rest:
            return False
        return "--" in rest or any(w == "." or "." in w.rsplit("/", 1)[-1] for w in rest if not w.startswith("-"))
    if verb == "stash":
        return not rest or rest[0] in ("push", "save") or rest[0].startswith("-")
    return verb == "reset" and "--hard" in rest
