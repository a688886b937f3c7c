"""What is exported as spans comes back, except for the tokens."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, given, settings

from exports import any_traces
from exports.reading import as_carried, export, read_back
from foretrace.core.trace import Trace
from foretrace.exports.base import Family


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@settings(phases=[Phase.generate], max_examples=12)  # examples are large: shrinking them takes minutes
@given(any_traces.traces())
def test_a_trace_comes_back_as_it_was(folder: Path, trace: Trace) -> None:
    data = export("otlp", Family(trace))
    (back,) = map(as_carried, read_back("otlp", data, folder))
    carried = as_carried(trace)
    assert back.messages == carried.messages
    assert msgspec.structs.replace(back, messages=()) == msgspec.structs.replace(carried, messages=())
    assert export("otlp", Family(back)) == data, "an export of an export"
