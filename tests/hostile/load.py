"""Reads the snippets: TOML files, so that their code stands there as it is run.

To add one, put a `[[snippets]]` table with the fields of `harness.Snippet` into a file; what stands at the head of a
file holds for all of its snippets, and `uses` names code of helpers.toml that goes before its own.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from hostile.harness import Snippet

_FOLDER = Path(__file__).parent / "snippets"
_BEHAVED = {"endings": ("ok",), "limits": {"wall_s": 3.0}}
_TUPLES = ("forms", "endings", "tests")


def _snippet(kind: str, entry: dict[str, Any], defaults: dict[str, Any], helpers: dict[str, str]) -> Snippet:
    fields = {**(_BEHAVED if kind == "behaved" else {}), **defaults, **entry}
    fields["code"] = helpers.get(fields.pop("uses", ""), "") + fields["code"]
    fields |= {name: tuple(fields[name]) for name in _TUPLES if name in fields}
    return Snippet(kind=kind, **fields)


def _cases(entry: dict[str, Any]) -> list[dict[str, Any]]:
    """The snippet once for each of its `cases`: asserts of which each becomes its only test."""
    if "cases" not in entry:
        return [entry]
    rest = {name: value for name, value in entry.items() if name != "cases"}
    return [
        {**rest, "name": f"{entry['name']}_{number}", "tests": [{"code": f"def check(candidate):\n    {case}\n"}]}
        for number, case in enumerate(entry["cases"], 1)
    ]


def load(kind: str) -> list[Snippet]:
    """All snippets of a kind, in the order of their files."""
    helpers = tomllib.loads((_FOLDER / "helpers.toml").read_text())
    found = []
    for path in sorted(_FOLDER.glob("*.toml")):
        data = tomllib.loads(path.read_text())
        if data.pop("kind", "") == kind:
            entries = data.pop("snippets")  # what is left holds for all of the file
            found += [_snippet(kind, case, data, helpers) for entry in entries for case in _cases(entry)]
    return found
