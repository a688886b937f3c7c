"""The repository behind an instance id of SWE data, by which the instances are grouped into splits."""

from __future__ import annotations

import re

_HASHED = re.compile(r"(?P<owner>[^/]+?)__(?P<name>[^/]+?)\.[0-9a-f]{6,40}(?:\..*)?")
"""SWE-smith: `owner__name.0123abcd.kind__suffix`."""
_NUMBERED = re.compile(r"(?P<owner>[^/]+?)__(?P<name>[^/]+?)-\d+(?:_\d+)?")
"""SWE-bench and SWE-Gym: `owner__name-123`, with the attempt as `_4`."""
_OTHER = re.compile(r"(?P<owner>[^/]+?)__(?P<name>[^./]+)(?:\..*)?")
_MAX_ID_CHARS = 512


def find_repository(instance: str) -> str:
    """`owner/name`, or the id itself where it names no repository."""
    if len(instance) > _MAX_ID_CHARS:
        return instance
    match = _HASHED.fullmatch(instance) or _NUMBERED.fullmatch(instance) or _OTHER.fullmatch(instance)
    return f"{match['owner']}/{match['name']}" if match else instance
