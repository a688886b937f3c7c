"""Other readings of a text say where in it their characters stand."""

from __future__ import annotations

import json
import time

import pytest

from foretrace.clean.scanner import Deadline, TooSlowError, find_secrets, read_in_other_ways


def test_characters_are_found_in_the_original() -> None:
    original = json.dumps(json.dumps({"key\n": 'a"b\\c', "é": "%41"})) + " tail"
    for view in read_in_other_ways(original):
        for place, character in enumerate(view.text):
            start, end = view.find_span(place, place + 1)
            assert original[start:end].endswith(character) or original[start] in "\\%"
        assert view.find_span(len(view.text) - 4, len(view.text)) == (len(original) - 4, len(original))


def test_long_blanks_take_no_time() -> None:
    text = 'password = "Xy7!kk2pQ"' + " " * 50_000 + "end\n" + "\t" * 50_000 + "x"
    begun = time.process_time()
    assert [found.type for found in find_secrets(text, Deadline(60))] == ["password"]
    assert time.process_time() - begun < 5


def test_many_names_in_a_row_are_given_up_at_the_deadline() -> None:
    """Each is a name, and what follows its long value: all of them would take ten seconds."""
    before = time.thread_time()
    with pytest.raises(TooSlowError):
        find_secrets("password=" * 5000, Deadline(0.05))
    assert time.thread_time() - before < 2
