"""The repository named by an instance id, a git remote or a working directory: it groups traces into splits."""

from __future__ import annotations

import re

_HASHED = re.compile(r"(?P<owner>[^/]+?)__(?P<name>[^/]+?)\.[0-9a-f]{6,40}(?:\..*)?")
"""SWE-smith: `owner__name.0123abcd.kind__suffix`."""
_NUMBERED = re.compile(r"(?P<owner>[^/]+?)__(?P<name>[^/]+?)-\d+(?:_\d+)?")
"""SWE-bench and SWE-Gym: `owner__name-123`, optionally with the attempt as `_4`."""
_OTHER = re.compile(r"(?P<owner>[^/]+?)__(?P<name>[^./]+)(?:\..*)?")
_MAX_ID_CHARS = 512


def find_repository(instance: str) -> str:
    """`owner/name`, or the id itself if it does not name a repository."""
    if len(instance) > _MAX_ID_CHARS:
        return instance
    match = _HASHED.fullmatch(instance) or _NUMBERED.fullmatch(instance) or _OTHER.fullmatch(instance)
    return f"{match['owner']}/{match['name']}" if match else instance


_REMOTE = re.compile(r"(?:[\w.+-]+://(?:[^/@]*@)?[^/]+/|[^/@:]+@[^/:]+:|[\w.-]+\.[a-z]+[/:])(?P<path>[^?#]+)")
_HOSTS = ("github.com", "gitlab.com", "bitbucket.org")
_WORKTREES = ("worktrees", ".worktrees", "worktree")
_HOME_OF_ALL = frozenset({"home", "users"})
_CONTAINERS = frozenset({
    "tmp", "private", "var", "folders", "work", "workspace", "workspaces", "workdir", "code", "src", "source",
    "sources", "dev", "develop", "development", "projects", "repos", "repositories", "git",
    "github", "documents", "desktop", "downloads", "go", "mnt", "data", "srv", "opt", "root", "volumes", "c", "d",
    "sites", "www", "programming",
})  # fmt: skip
"""Folders that contain repositories but are not repositories themselves, in lower case."""


def find_repository_of_remote(remote: str) -> str | None:
    """`owner/name` of a git remote such as `git@github.com:owner/name.git`; `None` if it does not have this form."""
    match = _REMOTE.fullmatch(remote.strip()[:_MAX_ID_CHARS])
    parts = [part for part in match["path"].removesuffix(".git").split("/") if part] if match else []
    return "/".join(parts).removesuffix(".git") if len(parts) >= 2 else None


def find_repository_of_folder(folder: str) -> str | None:
    """A name for the repository of a working directory: the first folder of the path that is neither a home nor a
    container of repositories. Too coarse is better than too fine: traces that belong together must never be split."""
    named = re.split(r"[/\\\\]+", folder.removeprefix("file://")[:4096])
    parts = [part for part in named if part not in ("", ".", "~")]
    lower = [part.lower() for part in parts]
    for host in _HOSTS:
        if host in lower and len(parts) >= (at := lower.index(host)) + 3:
            return "/".join(parts[at + 1 : at + 3])
    for mark in _WORKTREES:  # `.codex/worktrees/1a2b/name`, `name/.claude/worktrees/branch`
        at = lower.index(mark) if mark in lower else 0
        if at and lower[at - 1] in (".codex", ".cursor", ".local") and len(parts) > at + 2:
            return parts[at + 2]
    while parts:
        if lower[0] in _HOME_OF_ALL and len(parts) > 1:
            parts, lower = parts[2:], lower[2:]
        elif lower[0].rstrip(":") in _CONTAINERS:
            parts, lower = parts[1:], lower[1:]
        else:
            return parts[0]
    return None
