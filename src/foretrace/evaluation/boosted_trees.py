"""Gradient-boosted trees that answer for a few dozen rows in a fraction of a millisecond.

scikit-learn fits them; what it does for each tree of a prediction costs more than the tree. Here all trees are asked at
once: each condition that does not hold strikes out the leaves on its left, and the first leaf that is left is the one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST_LEAVES = 15
_FIRST_BIT = np.array([(bits & -bits).bit_length() - 1 for bits in range(1 << _MOST_LEAVES)], np.int64)
"""Number of the lowest bit that is set."""


class BoostedTrees:
    """A fitted binary model.

    Args:
        model: A fitted `HistGradientBoostingClassifier` of two classes, with at most 15 leaves to a tree.
    """

    def __init__(self, model: Any) -> None:
        trees = [tree.nodes for (tree,) in model._predictors]
        most = max((int(nodes["is_leaf"].sum()) for nodes in trees), default=1)
        shape = len(trees), max(most - 1, 1)
        self._features = np.zeros(shape, np.int64)
        self._thresholds = np.full(shape, np.inf)
        self._masks = np.full(shape, (1 << _MOST_LEAVES) - 1, np.int16)
        self._values = np.zeros((len(trees), _MOST_LEAVES))
        self._baseline = float(model._baseline_prediction.ravel()[0])
        for at, nodes in enumerate(trees):
            self._lay_out(at, nodes)

    def _lay_out(self, tree: int, nodes: Any) -> None:
        conditions = 0
        leaves = 0

        def visit(index: int) -> None:
            nonlocal conditions, leaves
            node = nodes[index]
            if node["is_leaf"]:
                self._values[tree, leaves] = node["value"]
                leaves += 1
                return
            place, first = conditions, leaves
            conditions += 1
            self._features[tree, place] = node["feature_idx"]
            self._thresholds[tree, place] = node["num_threshold"]
            visit(int(node["left"]))
            self._masks[tree, place] &= ~((1 << leaves) - (1 << first))
            visit(int(node["right"]))

        visit(0)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Probability of the second class: (rows, features) -> (rows,)."""
        struck = np.where(features[:, self._features] <= self._thresholds, np.int16(-1), self._masks)
        leaves = _FIRST_BIT[np.bitwise_and.reduce(struck, axis=2) & ((1 << _MOST_LEAVES) - 1)]
        scores = self._values[np.arange(len(self._values)), leaves].sum(axis=1) + self._baseline
        return 1.0 / (1.0 + np.exp(-scores))
