"""Number the secrets of a trace, so that each has its own placeholder."""

from __future__ import annotations

from foretrace.core.placeholders import PLACEHOLDER, USER_NAME, USER_PLACEHOLDER, make_placeholder


class Numbering:
    """Numbers the secrets of a trace within their type, in order of appearance.

    A text that already has the form of a placeholder counts as a secret too: it keeps its number if that is free and
    gets another one if not, so that no two secrets share a placeholder.
    """

    def __init__(self) -> None:
        self._given: dict[tuple[str, str], int] = {}
        self._taken: dict[str, set[int]] = {}
        self._lowest_free: dict[str, int] = {}

    def replace(self, type: str, value: str) -> str:
        """The placeholder of a secret."""
        known = self._given.get((type, value))
        if known is None:
            known = self._give(type, self._find_own_number(value))
            self._given[type, value] = known
        return make_placeholder(type, known)

    def _give(self, type: str, wanted: int | None) -> int:
        taken = self._taken.setdefault(type, set())
        if wanted is not None and wanted not in taken:
            taken.add(wanted)
            return wanted
        number = self._lowest_free.get(type, 1)
        while number in taken:
            number += 1
        taken.add(number)
        self._lowest_free[type] = number + 1
        return number

    @staticmethod
    def _find_own_number(value: str) -> int | None:
        match = PLACEHOLDER.fullmatch(value) or USER_PLACEHOLDER.fullmatch(value)
        return int(match["number"]) if match else None


def list_placeholders(text: str) -> list[tuple[int, int, str, str]]:
    """Start, end, type and text of each placeholder in a text."""
    found = [(m.start(), m.end(), m["type"], m[0]) for m in PLACEHOLDER.finditer(text)] if "<SECRET:" in text else []
    if "redacted-user-" in text:
        found += [(m.start(), m.end(), USER_NAME, m[0]) for m in USER_PLACEHOLDER.finditer(text)]
    return found
