"""What an agent's program writes into the user's role is told apart by its marks, never by its words."""

from __future__ import annotations

import time

import pytest

from foretrace.sources.sessions import is_injected, split_injected


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("please fix it", [("user", "please fix it")]),
        ("", [("user", "")]),
        ("  two\nlines\n", [("user", "  two\nlines\n")]),
        ("<system-reminder>a</system-reminder>", [("environment", "<system-reminder>a</system-reminder>")]),
        (
            "go\n<system-reminder>\na\n</system-reminder>\nnow",
            [("user", "go"), ("environment", "<system-reminder>\na\n</system-reminder>"), ("user", "now")],
        ),
        (
            "<command-name>/x</command-name>\n  <command-args>y</command-args>",
            [("environment", "<command-name>/x</command-name>\n<command-args>y</command-args>")],
        ),
        (
            '<hook_prompt hook="1">a</hook_prompt>b',
            [("environment", '<hook_prompt hook="1">a</hook_prompt>'), ("user", "b")],
        ),
        ("what is <system-reminder>x</system-reminder>?", [("user", "what is <system-reminder>x</system-reminder>?")]),
        ("<system-reminder> never closed", [("user", "<system-reminder> never closed")]),
        ("<b>bold</b>", [("user", "<b>bold</b>")]),
        ("[Request interrupted by user for tool use]", [("environment", "[Request interrupted by user for tool use]")]),
    ],
)
def test_pieces(text: str, pieces: list[tuple[str, str]]) -> None:
    assert list(split_injected(text)) == pieces
    assert is_injected(text) == all(author == "environment" for author, _ in pieces)


@pytest.mark.parametrize(
    "mark", ["<system-reminder>\n", "\n<", "<system-reminder>\n</skill>", "<system-reminder>x</system-reminder>"]
)
def test_hostile_text_takes_no_long_time(mark: str) -> None:
    start = time.process_time()
    list(split_injected(mark * 50_000))
    assert time.process_time() - start < 5
