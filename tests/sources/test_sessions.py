"""The main line of a tree of records, what the program writes into the user's role, the repository of a folder."""

from __future__ import annotations

import time

import pytest

from foretrace.sources.repositories import find_repository_of_folder
from foretrace.sources.sessions import find_main_line, is_injected, split_injected


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


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/home/someone/app", "app"),
        ("/home/someone/code/app/packages/web", "app"),
        ("/Users/someone/Documents/GitHub/app", "app"),
        ("C:\\Users\\someone\\source\\repos\\App\\src", "App"),
        ("/home/someone/go/src/github.com/owner/name/cmd", "owner/name"),
        ("/home/someone/.codex/worktrees/1a2b/app", "app"),
        ("/home/someone/code/app/.claude/worktrees/fix", "app"),
        ("/private/tmp/app", "app"),
        ("/workspace/app", "app"),
        ("file:///work/proj", "proj"),
        ("/home/someone", None),
        ("/workspace", None),
        ("/tmp", None),
        ("~", None),
        ("", None),
        ("/" * 100_000, None),
    ],
)
def test_folders(folder: str, name: str | None) -> None:
    assert find_repository_of_folder(folder) == name
