"""Boosted trees that answer at once say what scikit-learn says."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.evaluation.boosted_trees import BoostedTrees

ensemble = pytest.importorskip("sklearn.ensemble", reason="the ranker is fitted by scikit-learn")


@pytest.mark.parametrize(("trees", "leaves"), [(1, 2), (20, 7), (20, 15)])
def test_same_probabilities(trees: int, leaves: int) -> None:
    """Values are rounded, so that many rows lie on the thresholds' sides and none between."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(600, 6)).round(1)
    right = rows[:, 0] * rows[:, 1] + rows[:, 2] > 0.5
    model = ensemble.HistGradientBoostingClassifier(max_iter=trees, max_leaf_nodes=leaves, min_samples_leaf=5)
    model.fit(rows, right)
    expected = model.predict_proba(rows)[:, 1]
    assert len({*expected.round(9)}) > 1
    assert BoostedTrees(model).predict(rows) == pytest.approx(expected, abs=1e-12)
    assert BoostedTrees(model).predict(rows[:1]) == pytest.approx(expected[:1], abs=1e-12)
