"""What is exported comes back: all of it from formats with a free place, else the fields that the format carries."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import Phase, given, settings

from exports import any_traces
from exports.any_traces import SAID
from exports.reading import WITH_KEPT_FIELDS, as_carried, export, read_back
from exports.test_row_formats import USER, make
from foretrace.core.trace import Sampled, Trace
from foretrace.exports.base import Family


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.mark.parametrize("name", [*WITH_KEPT_FIELDS, "atif:1.8"])
def test_a_trace_comes_back_as_it_was(name: str, folder: Path) -> None:
    @settings(phases=[Phase.generate], max_examples=12)  # examples are large: shrinking them takes minutes
    @given(any_traces.traces())
    def check(trace: Trace) -> None:
        data = export(name, Family(trace))
        (back,) = read_back(name, data, folder)
        carried = as_carried(trace, name.partition(":")[0])
        for read, message in zip(as_carried(back, name).messages, carried.messages, strict=True):
            assert read == message
        assert msgspec.structs.replace(as_carried(back, name), messages=()) == msgspec.structs.replace(
            carried, messages=()
        )
        assert export(name, Family(back)) == data, "an export of an export"

    check()


def test_the_largest_logprobs_come_back(folder: Path) -> None:
    sampled = Sampled(token_ids=(7, 8), logprobs=(-sys.float_info.max, -1e300), exact="token")
    trace = make(USER, msgspec.structs.replace(SAID, sampled=sampled))
    assert read_back("atif", export("atif", Family(trace)), folder) == [trace]
