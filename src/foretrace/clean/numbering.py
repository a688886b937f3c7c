"""Which placeholder stands for which secret of a trace."""

from __future__ import annotations

from foretrace.core.placeholders import PLACEHOLDER, USER_NAME, USER_PLACEHOLDER, make_placeholder


class Numbering:
    """Gives each secret of a trace its number among those of its type, in the order in which they come.

    A text that has the form of a placeholder already counts as a secret of its own: it keeps its number where that is
    free, and gets another one where it is not, so that no two things have one placeholder.
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
    """What has the form of a placeholder in a text: start, end, type and text of each."""
    found = [(m.start(), m.end(), m["type"], m[0]) for m in PLACEHOLDER.finditer(text)] if "<SECRET:" in text else []
    if "redacted-user-" in text:
        found += [(m.start(), m.end(), USER_NAME, m[0]) for m in USER_PLACEHOLDER.finditer(text)]
    return found
