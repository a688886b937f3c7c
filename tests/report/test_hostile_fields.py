"""Every text of every record is in the page, as text: a field that is added is covered too."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import foretrace
from foretrace.core.predictions import Prediction, PredictionsHeader
from foretrace.core.store import write_traces
from foretrace.core.trace import Trace
from foretrace.evaluation.replay_report import ReplayReport
from foretrace.evaluation.score_report import ScoreReport
from report.hostile_fields import fill, list_names, list_texts, make_filled_trace
from report.test_view import read_block, read_data


@pytest.mark.parametrize("record", [Trace, Prediction, PredictionsHeader, ScoreReport, ReplayReport])
def test_every_text_of_a_record_can_be_filled(record: type) -> None:
    filled = msgspec.to_builtins(msgspec.convert(fill(record), record))
    found = {text.split("»")[0].removeprefix("«") for text in list_texts(filled) if text.startswith("«")}
    assert found == set(list_names(record)) != set()


def test_every_text_of_a_trace_is_in_the_page_and_none_is_markup(tmp_path: Path) -> None:
    trace = make_filled_trace("a", success=True)
    write_traces([trace], tmp_path / "traces")
    foretrace.view(tmp_path / "traces", out=tmp_path / "v")
    foretrace.view(tmp_path / "traces", single=tmp_path / "r.html")
    texts = list_texts(msgspec.to_builtins(trace))
    wanted = {text for text in texts if "«" in text and text != trace.id}  # the store computes the id
    for facts in (read_data(tmp_path / "v", "traces-0")[0], read_block(tmp_path / "r.html", "traces-0")[0]):
        assert wanted <= set(list_texts(facts["trace"]))
    pages = [tmp_path / "r.html", *(tmp_path / "v").rglob("*.js"), tmp_path / "v" / "index.html"]
    for page in pages:
        if page.name != "view.js":
            text = page.read_text()
            assert [markup for markup in ("<script>w", "<img", "<svg", "<a href='j") if markup in text] == [], page
