"""The main line of a tree of records."""

from __future__ import annotations

import time

from foretrace.sources.sessions import find_main_line


def test_the_main_line_leads_from_the_last_record_back() -> None:
    parents = {"a": None, "b": "a", "x": "b", "y": "x", "c": "b", "d": "c"}
    assert find_main_line(parents, ["a", "b", "x", "y", "c", "d"]) == {"a", "b", "c", "d"}
    assert find_main_line({}, []) == set()


def test_gaps_and_circles_end_nothing() -> None:
    assert find_main_line({"a": None, "b": "gone", "c": "b"}, ["a", "b", "c"]) >= {"a", "b", "c"}
    assert find_main_line({"a": "c", "b": "a", "c": "b"}, ["a", "b", "c"]) == {"a", "b", "c"}
    assert find_main_line({"a": "a", "b": "b"}, ["a", "b"]) == {"a", "b"}


def test_long_sessions_take_no_long_time() -> None:
    order = [str(number) for number in range(200_000)]
    start = time.process_time()
    assert len(find_main_line(dict.fromkeys(order), order)) == len(order)
    assert len(find_main_line(dict(zip(order[1:], order, strict=False)), order)) == len(order)
    assert time.process_time() - start < 5
