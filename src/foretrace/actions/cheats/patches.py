"""What a patch changes, as edits: unified diffs, and the patches of `apply_patch`."""

from __future__ import annotations

import re

from foretrace.actions.cheats.shell_contents import Edit

_FILE_LINE = re.compile(
    r"\*\*\* (Add|Update|Delete) File: (.+)|\+\+\+ (?:b/)?([^\t\n]+)|--- (?:a/)?([^\t\n]+)|diff --git "
)
_BEGIN = re.compile(r"\*\*\* Begin Patch|^diff --git |^--- \S+.*\n\+\+\+ \S+", re.M)


def is_patch(text: str) -> bool:
    """Whether a text for a shell, or for a tool, carries a patch."""
    return bool(_BEGIN.search(text[:20_000])) and ("patch" in text or "git apply" in text)


def find_patch_edits(text: str, path: str = "") -> list[Edit]:
    """Find what a patch does to each file: its old lines and its new ones, context in both.

    Args:
        text: the patch, and whatever stands around it.
        path: the file it is for, where the patch does not say.
    """
    edits: list[Edit] = []
    old: list[str] = []
    new: list[str] = []
    before, creates, removes = "", False, False

    def flush() -> None:
        if path and (old or new or removes):
            edits.append(
                Edit(path=path, old="\n".join(old) or None, new="\n".join(new), creates=creates, removes=removes)
            )
        old.clear()
        new.clear()

    for line in text.split("\n"):
        if match := _FILE_LINE.match(line):
            flush()
            if match[1]:
                path, creates, removes = match[2].strip(), match[1] == "Add", match[1] == "Delete"
            elif match[4]:
                before = match[4].strip()
            elif match[3]:
                removes = match[3].strip() == "/dev/null"
                creates = before == "/dev/null"
                path = before if removes else match[3].strip()
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith((" ", "@@")) and not line.startswith("@@ -") and line != "@@":
            kept = line[1:] if line[0] == " " else line[2:]
            old.append(kept)
            new.append(kept)
    flush()
    return edits
