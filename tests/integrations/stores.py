"""What tests of object stores share: the environment of a server, and what lies in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.objectstores import objects
from foretrace.objectstores.objects import Objects


def use_server(patch: pytest.MonkeyPatch, url: str) -> None:
    """Let this process, and those that it starts, find the server and the credentials for it."""
    for key, value in (("ENDPOINT_URL", url), ("ACCESS_KEY_ID", "k"), ("SECRET_ACCESS_KEY", "s")):
        patch.setenv(f"AWS_{key}", value)
    patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    patch.setattr(objects, "TRIES", 2)
    patch.setattr(objects, "READ_TIMEOUT_S", 1.0)


def read_files(folder: Path) -> dict[str, bytes]:
    """All files of a folder but its lock."""
    names = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def read_objects(bucket: Objects, folder: str) -> dict[str, bytes]:
    """All objects below a name."""
    names = [name for name in bucket.list_names() if name.startswith(f"{folder}/")]
    return {name.removeprefix(f"{folder}/"): bucket.get(name).data for name in names}  # type: ignore[union-attr]
