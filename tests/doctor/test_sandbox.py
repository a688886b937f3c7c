"""A sandbox examined from Python: what was found, and the error where none serves."""

from __future__ import annotations

import pytest

from foretrace.core.errors import SandboxError
from foretrace.doctor import examine_sandbox
from foretrace.sandbox.base import SandboxSettings


def test_a_sandbox_that_serves() -> None:
    facts, error = examine_sandbox("local", SandboxSettings(workers=1, allow_weak_isolation=True))
    assert error is None and facts is not None
    assert facts["name"] == "local" and facts["runs_per_s"] > 10


@pytest.mark.usefixtures("short_measuring")
def test_where_none_serves_what_is_there_is_found_all_the_same() -> None:
    facts, error = examine_sandbox("local", SandboxSettings(workers=1, min_level=4))
    assert isinstance(error, SandboxError) and "reaches level" in str(error)
    assert facts is not None and facts["level"] < facts["min_level"] == 4
