"""What a git command means."""

from __future__ import annotations

from foretrace.actions.meaning import Kind, Meaning, meaning, words
from foretrace.actions.taxonomy import Effect

_LOOKS = words(
    "log reflog blame grep ls-files ls-tree ls-remote rev-parse rev-list describe shortlog cat-file "
    "whatchanged annotate"
    " merge-base name-rev show-ref for-each-ref count-objects check-ignore var help"
)
_VALUE_FLAGS = ("-C", "-c", "--git-dir", "--work-tree", "--namespace")
_LISTS = {
    "branch": ("", "-a", "-r", "-v", "-vv", "--list", "--show-current", "--contains", "--all", "--merged"),
    "tag": ("", "-l", "--list", "-n"),
    "remote": ("", "-v", "show", "get-url"),
    "stash": ("list", "show"),
    "config": ("--get", "--list", "-l", "--get-all", "get", "list"),
    "worktree": ("list",),
    "submodule": ("", "status"),
    "notes": ("", "show", "list"),
    "bisect": ("log", "view"),
}
"""Sub-commands that only look with one of these as their first argument (`""`: with none)."""


def read_git(argv: list[str]) -> Meaning:
    """What `git ...` does; paths are left as written."""
    position = 1
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _VALUE_FLAGS else 1
    verb = argv[position] if position < len(argv) else ""
    rest = argv[position + 1 :]
    first = rest[0] if rest else ""
    if verb in ("diff", "status", "difftool"):
        return meaning(Kind.INSPECT, f"git.{verb}")
    if verb == "show":
        return meaning(Kind.READ, "git.show")
    if verb in _LOOKS or first in _LISTS.get(verb, ()):
        return meaning(Kind.SEARCH, "git.look")
    if verb in ("apply", "am"):
        check = "--check" in rest or "--stat" in rest
        return meaning(Kind.VERIFY if check else Kind.WRITE, "git.apply")
    if verb == "restore" or _discards(verb, rest):
        return meaning(Kind.UNDO, "git.undo", writes=tuple(w for w in rest if not w.startswith("-")))
    if verb == "bisect" and first == "run":
        return meaning(Kind.VERIFY, "git.bisect")
    outside = verb in ("push", "send-email")
    return meaning(Kind.OTHER, "git.other", Effect.EXTERNAL_WRITE if outside else Effect.LOCAL_WRITE)


def _discards(verb: str, rest: list[str]) -> bool:
    """Whether it takes back changes of the working tree."""
    if verb == "checkout":
        if "-b" in rest or "-B" in rest:
            return False
        return "--" in rest or any(w == "." or "." in w.rsplit("/", 1)[-1] for w in rest if not w.startswith("-"))
    if verb == "stash":
        return not rest or rest[0] in ("push", "save") or rest[0].startswith("-")
    return verb == "reset" and "--hard" in rest
