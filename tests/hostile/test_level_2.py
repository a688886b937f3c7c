"""The same at level 2, without a scratch folder: no namespaces, but Landlock and the system call filter."""

from __future__ import annotations

from hostile.settings import make_test

test_no_violation = make_test("L2")
