"""Settings written as a list of `NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Iterable

from foretrace.core.errors import Setting, UsageError


def parse_pairs(setting: str, pairs: Iterable[str], *, form: str = "NAME=VALUE", example: str) -> dict[str, str]:
    """The pairs of a setting as a dictionary; `form` and `example` tell an error message what to suggest."""
    table: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals and value):
            raise UsageError(Setting(setting, pair), f": write {form}, e.g. ", Setting(setting, example))
        if name in table:
            raise UsageError(Setting(setting), f" names {name!r} twice")
        table[name] = value
    return table
