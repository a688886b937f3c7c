"""What `foretrace problems check` prints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.episodes.validate import ValidationReport

_MAX_NAMED = 5
"""Problems that the last line of a failed check names."""
_FAULT_TEXTS = {
    "bad_row": "left out",
    "reference_failed": "the reference fails for",
    "empty_passed": "an answer that does nothing passes for",
    "unusable": "the tests cannot be judged for",
    "lost": "the sandbox lost the run for",
}


def show_check(output: Output, checked: ValidationReport, isolation: dict[str, Any]) -> None:
    """Print the counts of a check, and what it found."""
    with_reference = checked.problems - checked.without_reference
    output.print_fields(
        [
            ("problems", checked.problems),
            ("references passed", f"{checked.references_passed:,} of {with_reference:,}"),
            ("empty answers passed", checked.empty_passed),
            ("without a reference", checked.without_reference),
            ("public tests", f"{checked.public:,}, at {checked.with_public:,} problems"),
            ("hidden tests", checked.hidden),
            ("forms of judging", ", ".join(f"{form} {count:,}" for form, count in checked.forms.items()) or None),
            ("isolation", f"level {isolation['level']} ({isolation.get('sandbox', '')})"),
            *((f"not {name}", why) for name, why in isolation.get("refused", {}).items()),
            ("seconds", f"{checked.seconds:.1f}"),
        ]
    )
    if checked.faults:
        output.print()
        output.print_table(
            ("problem", "fault", "tests", "detail"), [(f.problem, f.kind, f.tests, f.detail) for f in checked.faults]
        )
    if missing := _find_missing_modules(checked):
        output.note(
            f"the sandbox imports no installed packages but those that it is told to: give --preload "
            f"{'+'.join(missing)}, once they are installed"
        )


def _find_missing_modules(checked: ValidationReport) -> list[str]:
    """Packages that code of problems wanted, and that were not there."""
    found = (re.search(r"No module named '(\w+)", fault.detail) for fault in checked.faults)
    return list(dict.fromkeys(match[1] for match in found if match))


def verdict(checked: ValidationReport) -> str:
    """One line that names what is wrong, and where."""
    parts: list[str] = []
    for fault, text in _FAULT_TEXTS.items():
        names = list(dict.fromkeys(f.problem for f in checked.faults if f.kind == fault))
        if names:
            more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
            parts.append(f"{text} {len(names):,}: {', '.join(names[:_MAX_NAMED])}{more}")
    return "; ".join(parts)
