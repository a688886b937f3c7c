"""How often a score is right, and how sure that is."""

from __future__ import annotations

import pytest

from foretrace.dataset.pairwise_accuracy import find_t_quantile


@pytest.mark.parametrize(
    ("freedom", "share", "known"),
    [(1, 0.99, 63.656741), (1.5, 0.5, 0.872595), (3, 0.5, 0.764892), (5, 0.99, 4.032143), (29, 0.99, 2.756386),
     (200, 0.99, 2.600634), (1e7, 0.99, 2.575830)],
)  # fmt: skip
def test_students_t(freedom: float, share: float, known: float) -> None:
    """Against tables."""
    assert find_t_quantile(freedom, share) == pytest.approx(known, rel=1e-6)
