"""What a page holds is data, whatever stands in it."""

from __future__ import annotations

import json
import re

import pytest

from foretrace.report.page import make_data_block, make_data_script
from report.hostile_traces import ANSI, MARKUP, RTL

TEXTS = [MARKUP, ANSI, RTL, "\\", "'", '\\"', "\u2028", "\ud800 alone", "</ScRiPt", "<!--<script>", "", "\x00"]


def read_script(script: str) -> object:
    """What a browser would read: the literal between single quotes, then its JSON."""
    found = re.fullmatch(r"foretrace\.take\('n', '((?:[^'\\\n\u2028\u2029]|\\.)*)'\);\n", script)
    assert found, script
    text = re.sub(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|.)", _unescape, found[1])
    return json.loads(text)


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1][1:], 16)) if len(match[1]) > 1 else match[1]


@pytest.mark.parametrize("text", TEXTS)
def test_a_script_says_what_was_given(text: str) -> None:
    script = make_data_script("n", {text: [text]})
    assert "<" not in script
    assert read_script(script) == {text: [text]}


@pytest.mark.parametrize("text", TEXTS)
def test_a_block_says_what_was_given(text: str) -> None:
    block = make_data_block("n", {text: [text]})
    inside = block.removeprefix('<script type="application/json" data-name="n">').removesuffix("</script>\n")
    assert "<" not in inside and "\u2028" not in inside
    assert json.loads(inside) == {text: [text]}
