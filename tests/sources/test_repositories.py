"""The repository behind an instance, a git remote or a working directory."""

from __future__ import annotations

import pytest

from foretrace.sources.repositories import find_repository_of_folder


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/home/someone/app", "app"),
        ("/home/someone/code/app/packages/web", "app"),
        ("/Users/someone/Documents/GitHub/app", "app"),
        ("C:\\Users\\someone\\source\\repos\\App\\src", "App"),
        ("/home/someone/go/src/github.com/owner/name/cmd", "owner/name"),
        ("/home/someone/.codex/worktrees/1a2b/app", "app"),
        ("/home/someone/code/app/.claude/worktrees/fix", "app"),
        ("/private/tmp/app", "app"),
        ("/workspace/app", "app"),
        ("file:///work/proj", "proj"),
        ("/home/someone", None),
        ("/workspace", None),
        ("/tmp", None),
        ("~", None),
        ("", None),
        ("/" * 100_000, None),
    ],
)
def test_folders(folder: str, name: str | None) -> None:
    assert find_repository_of_folder(folder) == name
