"""User names are found in home folders and wherever else they stand for a person."""

from __future__ import annotations

import random

from foretrace.clean.personal import _HOME, _find_homes, find_user_names


def test_home_folders_are_found_as_by_their_pattern_alone() -> None:
    rng = random.Random(4)
    pieces = [
        "/home/",
        "/Users/",
        "home/x ",
        "users/",
        "C:\\Users\\",
        "D:/users/",
        "\\n/home/",
        "/mnt/c/Users/",
        "annabel",
    ]
    pieces += [
        "bob.smith",
        "a",
        "/",
        " ",
        "C:\\\\Users\\\\",
        "x" * 45,
        "Documents and Settings\\",
        "/var/home/",
        "~",
        "\n",
    ]
    for _ in range(2000):
        text = "".join(rng.choices(pieces, k=10))
        assert [m.span() for m in _find_homes(text)] == [m.span() for m in _HOME.finditer(text)], text


def test_names_are_found_where_they_stand_for_a_person() -> None:
    text = (
        "annabel@host:~annabel$ USER=annabel chown annabel:annabel f; su - annabel; /media/annabel/x uid=7(annabel) "
        "drwxr-xr-x 2  annabel  annabel 4096 x; home-annabel annabelle and annabel herself"
    )
    places = sorted({found.start for found in find_user_names(text, {"annabel"})})
    assert len(places) == text.count("annabel") - 2  # annabelle, and she herself
