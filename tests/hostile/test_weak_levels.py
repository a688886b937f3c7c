"""Verdicts at levels 1 and 0, which isolate little: still not one of them is forged."""

from __future__ import annotations

from hostile.settings import make_test

test_no_forged_verdict_at_level_1 = make_test("L1")
test_no_forged_verdict_at_level_0 = make_test("L0")
