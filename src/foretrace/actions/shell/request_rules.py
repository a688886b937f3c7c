"""Whether a command that makes a request sends something: curl, wget, `gh api`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SWITCHES = "[sSLkfivgGINq#]*"
"""Short options of curl without a value, which may stand in one word with another option."""
_METHOD = re.compile(rf"(?:^| )(?:-{_SWITCHES}X|--req\w*)[ =]?[\"']?(\w+)")
_UPLOADS = re.compile(rf"-{_SWITCHES}[TQt]|--(?:upload-file|quote|mail-|telnet-option)")
_DATA = re.compile(rf"-{_SWITCHES}[dF]|--(?:data|form|json|url-query-data)")
_QUERY = re.compile(r"(?:^| )(?:-[a-zA-Z]*[GI]|--get|--head)")
_WGET_SENDS = re.compile(r"--(?:post|body|method)\b")
_GH_SAFE = re.compile(
    r"(?:-[HqtipX]|--(?:paginate|include|silent|slurp|verbose|header|jq|template|hostname|preview|cache))(?:=|$)"
)
"""Options of `gh api` with which it only looks; fields make it a POST, and others may do so too."""


def sends_request(name: str, arguments: Sequence[str]) -> bool:
    """Whether a request of `curl` or `wget` may change something elsewhere; `arguments` follow the name."""
    if name == "wget":
        return any(map(_WGET_SENDS.match, arguments))
    text = " ".join(word[:200] for word in arguments)
    methods = _METHOD.findall(text)
    if any(map(_UPLOADS.match, arguments)) or any(map(_is_changing, methods)):
        return True
    return not methods and not _QUERY.search(text) and any(map(_DATA.match, arguments))


def sends_api(arguments: Sequence[str]) -> bool:
    """Whether `gh api` may change something, by its method or another option."""
    options = [word for word in arguments if word.startswith("-")]
    methods = [after for word, after in itertools.pairwise([*arguments, ""]) if word == "-X"]
    return not all(map(_GH_SAFE.match, options)) or any(map(_is_changing, methods))


def _is_changing(method: str) -> bool:
    return method.strip("\"'= ").upper() not in _SAFE_METHODS
