"""User names are found in home folders and wherever else they stand for a person."""

from __future__ import annotations

import json

import pytest

from foretrace.clean.personal import find_addresses, find_home_names, find_user_names
from foretrace.clean.redact import Redactor, RedactSettings


def test_names_are_found_where_they_stand_for_a_person() -> None:
    text = (
        "annabel@host:~annabel$ USER=annabel chown annabel:annabel f; su - annabel; /media/annabel/x uid=7(annabel) "
        "drwxr-xr-x 2  annabel  annabel 4096 x; home-annabel\nannabel   4711  0.0 bash; machine x login annabel "
        '"user": "annabel" {"login":"annabel"} {\\"user\\":\\"annabel\\"} {\\"username\\": \\"annabel\\"} '
        "annabelle and annabel herself"
    )
    places = sorted({found.start for found in find_user_names(text, {"annabel"})})
    assert len(places) == text.count("annabel") - 2  # annabelle, and she herself
    assert len([*find_user_names("annabel\n", {"annabel"})]) == 1, "what whoami prints"
    assert not [*find_user_names("annabel\nshop\n", {"annabel"})], "a list of folders"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cat /home/jürgen/shop.py", "jürgen"),
        ("C:\\Users\\Jürgen\\shop", "Jürgen"),
        ("C:\\Users\\Jane Doe\\shop", "Jane Doe"),
        ('"C:\\\\Users\\\\Jane Doe\\\\shop"', "Jane Doe"),
        ("cd C:\\Users\\jane Done", "jane"),
        ("/Users/łukasz/shop", "łukasz"),
        ("~/.claude/projects/-Users-annabel-work/x.jsonl", "annabel"),
        ("ls -home-annabel-shop", "annabel"),
        ("[File: /data/__Users__annabel__shop/x.py]", "annabel"),
        ("C:\\x\\C--Users-annabel-shop", "annabel"),
        ("open?path=%2FUsers%2Fannabel%2Fshop", "annabel"),
    ],
)
def test_names_of_home_folders(text: str, name: str) -> None:
    assert [*find_home_names(text)] == [name]
    clean = Redactor(RedactSettings()).redact_text(text)
    assert clean == text.replace(name, "redacted-user-1")
    assert Redactor(RedactSettings()).redact_text(clean) == clean


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("/Users/annabel\n", ["annabel"]),
        ("/home/annabel", ["annabel"]),
        ("$ pwd; ls\n/home/annabel\r\nshop", ["annabel"]),
        ("see /home/annabel\n", []),
        ('get("/home/about")', []),
        ("GET /Users/search\n", []),
        ("cd /home/redacted-us\n[120 characters left out]", []),
        ("/home/redacted-us\n[120 characters left out]", []),
    ],
)
def test_a_home_folder_at_the_end_of_a_path_is_the_same_in_text_and_in_json(text: str, names: list[str]) -> None:
    assert [*find_home_names(text)] == names
    if "\n" in text:
        assert [*find_home_names(json.dumps({"output": text}))] == names
        assert [*find_home_names(json.dumps(json.dumps([text])))] == names


@pytest.mark.parametrize(
    "text",
    [
        "mvn -Users-app",
        "go-home-page-1",
        "--home-page-url x",
        "x -home-ubuntu-shop",
        "in_Users_list_all",
        "__home__page",
    ],
)
def test_what_is_no_home_folder(text: str) -> None:
    assert [*find_home_names(text)] == []


def test_addresses_behind_an_escaped_line_break_leave_it_whole() -> None:
    arguments = json.dumps({"text": "Write to\nnora@shop.io or\tt@shop.io\n203.0.113.9 é@x\u00e9bob@shop.io"})
    found = [each.value for each in find_addresses(arguments, emails=True, addresses=True)]
    assert found == ["nora@shop.io", "t@shop.io", "bob@shop.io", "203.0.113.9"]


def test_a_known_name_is_taken_out_of_sockets_and_commits() -> None:
    text = "/home/annabel/x\n/run/user/annabel/bus\nAuthor: annabel <a@b>\nCo-authored-by: annabel"
    assert "annabel" not in Redactor(RedactSettings()).redact_text(text)
