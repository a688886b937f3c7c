"""The shared form, where tests run in the candidate's own process: simple forgeries fail there too, others cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile.harness import Host, Snippet, violations
from hostile.settings import ATTACKS, LINUX

pytestmark = LINUX

_LYING = (
    "int_with_lying_eq object_with_lying_eq str_with_lying_eq list_with_lying_eq lying_item_in_a_list mock_any "
    "lying_arithmetic pretends_to_be_int metaclass_pretends_to_be_int method_with_a_lying_result "
    "lying_text_of_an_object lying_iteration_of_an_object"
)
FORGEABLE = {
    "the tests compare the candidate's own objects": _LYING,
    "the tests use modules and functions that the candidate has changed": (
        "patched_builtins patched_math replaced_module patched_unittest patched_writing"
    ),
    "the expected values are in the same process": "walks_frames walks_the_heap audits_what_is_compiled "
    "reads_constants_of_its_caller searches_its_memory",
    "the test's own loop believes it": "stops_the_iteration",
}
"""Forgeries that may pass in the shared form, by the reason why it is recorded as the weakest."""
_NAMES = [name for names in FORGEABLE.values() for name in names.split()]
CALLS = [snippet for snippet in ATTACKS if snippet.kind == "forge" and snippet.forms != ("stdin",)]


@pytest.mark.parametrize("snippet", CALLS, ids=lambda s: s.name)
def test_only_known_forgeries_pass(host: Callable[[str], Host], snippet: Snippet) -> None:
    found = violations(snippet, seen := host("L3").run(snippet, "shared"))
    if any(snippet.name.startswith(name) for name in _NAMES):
        found = [one for one in found if not one.startswith("forged")]
    assert not found, (found, seen)
