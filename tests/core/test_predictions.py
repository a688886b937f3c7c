"""Files of predictions: what is written reads back, and what is wrong is named or counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.errors import PredictionError
from foretrace.core.predictions import PredictedCall, Prediction, PredictionsHeader, read_predictions, write_predictions

_NUMBERS = st.none() | st.floats(0, 1)
_CALLS = st.builds(
    PredictedCall,
    st.text("abc", min_size=1),
    st.dictionaries(st.text("xyz"), st.integers(-9, 9) | st.text(max_size=3)).map(json.dumps),
)
_ROWS = st.lists(
    st.builds(
        Prediction,
        key=st.text("kl/", min_size=1, max_size=3),
        step=st.integers(0, 5),
        rank=st.integers(1, 3),
        action=st.sampled_from(["file_read", "verifier"]),
        calls=st.lists(_CALLS, max_size=2).map(tuple),
        completion=st.none() | st.text(max_size=5),
        confidence=_NUMBERS,
        seconds=_NUMBERS,
        tokens=st.none() | st.integers(0, 99),
        score=_NUMBERS,
    ),
    unique_by=lambda row: (row.key, row.step, row.rank),
    max_size=5,
)


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return path


@given(rows=_ROWS)
def test_what_is_written_reads_back(rows: list[Prediction], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "law.jsonl"
    header = PredictionsHeader(predictor="markov:2", steps=len(rows), latency_s={"p50": 0.5})
    write_predictions(path, header, rows)
    file = read_predictions(path)
    assert file.header == header
    assert file.problems == {}
    for row, back in zip(rows, file.rows, strict=True):
        assert [(c.tool, json.loads(c.arguments)) for c in back.calls] == [
            (c.tool, json.loads(c.arguments)) for c in row.calls
        ]
        assert (back.key, back.step, back.rank, back.action) == (row.key, row.step, row.rank, row.action)
        assert (back.confidence, back.seconds, back.tokens, back.score) == (
            row.confidence,
            row.seconds,
            row.tokens,
            row.score,
        )


@pytest.mark.parametrize(
    "guess",
    [
        {"prediction": {"action": "file_read", "tool": "cat", "arguments": {"path": "a"}}},
        {"prediction": '{"action": "file_read", "tool": "cat", "arguments": {"path": "a"}}'},
        {"action": "file_read", "tool": "cat", "arguments": '{"path": "a"}'},
        {"step": "3", "action": "file_read", "tool": "cat", "arguments": {"path": "a"}},
        {"completion": '<think>x</think>```json\n{"action":"file_read","tool":"cat","arguments":{"path":"a"}}\n```'},
    ],
)
def test_every_way_to_write_a_guess(guess: dict[str, Any], tmp_path: Path) -> None:
    (row,) = read_predictions(write(tmp_path / "p.jsonl", {"key": "k", "step": 3, **guess})).rows
    assert (row.step, row.action) == (3, "file_read")
    assert [(c.tool, json.loads(c.arguments)) for c in row.calls] == [("cat", {"path": "a"})]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('{"key": "k", "step": 1, "action": "file_read", "confidence": NaN}\n', "bad_confidence"),
        ('{"key": "k", "step": 1, "action": "file_read", "confidence": 1.5}\n', "bad_confidence"),
        ('{"key": "k", "step": 1, "action": "file_read", "seconds": -1}\n', "bad_seconds"),
        ('{"key": "k", "step": 1, "action": "file_read", "seconds": 1e300}\n', "bad_seconds"),
        ('{"key": "k", "step": 1, "action": "file_read", "tokens": "x"}\n', "bad_tokens"),
        ('{"key": "k", "step": 1, "completion": "I would read a file."}\n', "no_action"),
        ('{"key": "k", "step": 1, "action": "file_re', "torn_last_line"),
    ],
)
def test_faults_are_counted(line: str, fault: str, tmp_path: Path) -> None:
    good = {"key": "k", "step": 0, "action": "file_read"}
    file = read_predictions(write(tmp_path / "p.jsonl", good, line))
    assert file.problems == {fault: 1}
    assert len(file.rows) == (1 if fault == "torn_last_line" else 2)
    assert all(row.confidence is None and row.seconds is None for row in file.rows)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{\n", {"key": "k", "step": 0}], "line 1: is not a prediction"),
        ([[1]], "line 1: is not a prediction: it is not a JSON object"),
        ([{"step": 0}], "line 1: is not a prediction: it has no key or no step"),
        ([{"key": "k", "step": "x"}], "its step is not a number"),
        ([{"key": "k", "step": 10.9}], "its step is not a number"),
        ([{"key": "k", "step": True}], "its step is not a number"),
        ([{"key": "k", "step": 0, "rank": 0}], "its rank is not a number from 1 on"),
        ([{"key": "k", "step": 0, "action": "a"}] * 2, "line 2: a second prediction for k step 0 rank 1"),
        ([{"predictions": 9}], "format 9 of predictions is not known"),
        ([{"predictions": 1, "k": "x"}], "is not a header of predictions"),
    ],
)
def test_what_is_no_prediction_is_named(lines: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(PredictionError, match=message):
        read_predictions(write(tmp_path / "p.jsonl", *lines))


def test_nulls_that_pad_the_structs_of_parquet_are_no_arguments(tmp_path: Path) -> None:
    guesses = [
        {"action": "file_read", "tool": "cat", "arguments": {"path": "a"}},
        {"action": "verifier", "tool": "bash", "arguments": {"command": "pytest", "options": [{"quiet": True}, {}]}},
    ]
    lines = [{"key": "k", "step": step, "prediction": guess} for step, guess in enumerate(guesses)]
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "p.parquet")
    parquet = read_predictions(tmp_path / "p.parquet").rows
    assert parquet == read_predictions(write(tmp_path / "p.jsonl", *lines)).rows


def test_a_file_without_any_action_is_refused(tmp_path: Path) -> None:
    file = read_predictions(write(tmp_path / "p.jsonl", {"key": "k", "step": 0, "guess": "file_read"}))
    with pytest.raises(PredictionError, match=r"p\.jsonl: none of its 1 predictions names an action"):
        file.check_not_empty()


GUESS = {"action": "file_read", "tool": "cat", "arguments": {"path": "a"}}


def test_the_files_of_a_folder_are_of_one_dataset(tmp_path: Path) -> None:
    for name, dataset in (("a", "d1"), ("b", "d2")):
        write(tmp_path / f"{name}.jsonl", {"predictions": 1, "dataset": dataset}, {"key": name, "step": 3, **GUESS})
    with pytest.raises(PredictionError, match=r"b\.jsonl line 1: is for another dataset"):
        read_predictions(tmp_path)


def test_of_a_traces_folder_its_guesses_are_read(tmp_path: Path) -> None:
    write(tmp_path / "guesses.jsonl", {"key": "k", "step": 3, **GUESS})
    write(tmp_path / "launches.jsonl", {"key": "k", "step": 3})
    assert [row.key for row in read_predictions(tmp_path).rows] == ["k"]
