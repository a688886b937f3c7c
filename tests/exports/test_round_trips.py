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
from exports.test_row_formats import CALL, CALLING, RESULT, TOOL, USER, make
from foretrace.core.trace import Sampled, Trace
from foretrace.exports.base import Family


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


@pytest.mark.parametrize("name", WITH_KEPT_FIELDS)
def test_calls_without_ids_are_named_by_their_results(name: str, folder: Path) -> None:
    nameless = msgspec.structs.replace(CALL, id="")
    calling = msgspec.structs.replace(CALLING, tool_calls=(nameless, nameless))
    result = msgspec.structs.replace(RESULT, tool_call_ids=())
    trace = make(USER, calling, result, result, SAID)
    data = export(name, Family(trace))
    for place in (0, 1):
        own = f"call_1_{place}".encode()
        assert data.count(own) >= 2, "the call and its result"
    assert read_back(name, data, folder) == [trace]


@pytest.mark.parametrize("name", WITH_KEPT_FIELDS)
def test_an_edit_of_the_file_counts(name: str, folder: Path) -> None:
    compact = msgspec.structs.replace(CALLING, tool_calls=(msgspec.structs.replace(CALL, arguments='{"x":1}'),))
    tool = msgspec.structs.replace(TOOL, parameters='{"type":"object"}')
    trace = msgspec.structs.replace(make(USER, compact, RESULT, SAID), tools=(tool,))
    data = export(name, Family(trace))
    assert read_back(name, data, folder) == [trace]
    edits = [(b"run", b"walk"), (b"Task.", b"Work."), (b"Hm.", b"Ah.")]
    for was, now in edits:
        data = data.replace(was, now)
    # The format's own field only, and not what lies under `foretrace`.
    own = {
        "atif": (b'"x": 1', b'"x": 2'),
        "hub_session": (rb"\"x\":1", rb"\"x\":2"),
        "otlp": (rb"\"x\": 1", rb"\"x\": 2"),
    }
    assert own[name][0] in data
    (back,) = read_back(name, data.replace(*own[name]), folder)
    call = back.messages[1].tool_calls[0]
    assert (call.name, call.arguments.replace(" ", "")) == ("walk", '{"x":2}')
    assert (back.messages[0].content, back.messages[1].reasoning) == ("Work.", "Ah.")


@pytest.mark.parametrize("name", [*WITH_KEPT_FIELDS, "atif:1.8"])
def test_a_trace_comes_back_as_it_was(name: str, folder: Path) -> None:
    @settings(phases=[Phase.generate])  # examples are large: shrinking them takes minutes
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
