"""Files of pair scores: what is written reads back, and what is wrong is named or counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.planted import write_lines
from foretrace.core.errors import PredictionError
from foretrace.evaluation.pair_accuracy import (
    PairPlace,
    PairScores,
    PairScoresHeader,
    is_pair_scores,
    read_pair_scores,
    write_pair_scores,
)

_NUMBERS = st.none() | st.floats(allow_nan=False, allow_infinity=False)
_PLACES = st.builds(PairPlace, st.text("k/", max_size=3), st.integers(0, 9), st.text("f"), st.text("p"))
_SCORES = st.dictionaries(_PLACES, st.tuples(_NUMBERS, _NUMBERS), min_size=1, max_size=5)
LINE = {"key": "k", "step": 3, "family": "argument", "pair": "p", "chosen": 1, "rejected": -2.5}


@given(scores=_SCORES)
def test_what_is_written_reads_back(scores: PairScores, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "pairs.jsonl"
    header = PairScoresHeader(verifier="m", dataset="d", latency_s={"p50": 0.1})
    write_pair_scores(path, header, scores)
    assert read_pair_scores(path) == (header, scores, {})
    assert is_pair_scores(path)


def test_a_file_of_someone_else(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", LINE)
    assert is_pair_scores(path)
    assert read_pair_scores(path) == (PairScoresHeader(), {PairPlace("k", 3, "argument", "p"): (1, -2.5)}, {})
    assert not is_pair_scores(write_lines(tmp_path / "o.jsonl", {"key": "k", "step": 3, "prediction": {}}))
    assert not is_pair_scores(write_lines(tmp_path / "o.jsonl", "nonsense\n")) and not is_pair_scores(tmp_path / "none")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([LINE, LINE], "line 2: a second score of the argument pair p at k step 3"),
        ([{"key": "k", "step": 3, "chosen": 1, "rejected": 2}], "line 1: is not a score of a pair: it has no family"),
        ([{"step": 3}], "line 1: is not a score of a pair: it has no key"),
        ([LINE | {"step": "x"}], "line 1: is not a score of a pair: its step is not a number"),
        (["nonsense\n"], "line 1: is not a score of a pair"),
        ([{"pair_scores": 2}], "format 2 of pair scores is not known"),
        ([{"pair_scores": 1, "verifier": 7}], "is not a header of pair scores"),
    ],
)
def test_a_line_that_is_no_score_is_named(tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(PredictionError, match=said):
        read_pair_scores(write_lines(tmp_path / "p.jsonl", *lines))
