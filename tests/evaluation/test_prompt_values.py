"""What a prompt names that a call may be about: the working directory, files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.attempts import Turn, bash, create, edit, make_prompt, view
from foretrace.evaluation.prompt_reading import PromptView, read_prompt
from foretrace.evaluation.prompt_values import FILE, find_files, find_root, list_created, list_files, make_relative


def look(task: str, *past: Turn) -> PromptView:
    return read_prompt(make_prompt(task, past))


@pytest.mark.parametrize(
    ("task", "past", "root"),
    [
        ("<uploaded>\n/repo/x\n</uploaded>", [], "/repo/x"),
        ("Fix it.", [bash("cd /srv/app && ls")], "/srv/app"),
        ("Fix the bug in /testbed, please", [], "/testbed"),
        ("Choose 1/2 or see https://x.org/a/b", [], ""),
    ],
)
def test_the_working_directory(task: str, past: list[Turn], root: str) -> None:
    assert find_root(look(task, *past)) == root


def test_files_say_where_they_stand() -> None:
    traceback = 'Traceback\n  File "/w/src/a.py", line 3\nValueError'
    seen = look(
        "In\n/w\nfix src/a.py",
        create("/w/try.py", "import a"),
        view("/w/src/a.py"),
        edit("/w/src/b.py", "x", "y"),
        bash("python try.py", traceback),
    )
    assert list_created(seen, "/w") == ["try.py"]
    files = {file.path: file for file in list_files(seen, "/w", 9)}
    assert [*files] == ["try.py", "src/a.py", "src/b.py"], "made and run; in the task; edited"
    assert (files["src/a.py"].in_result, files["try.py"].in_result) == (0, -1)
    assert (files["try.py"].calls, files["try.py"].turns_ago) == (2, 0)
    assert len(list_files(seen, "/w", 2)) == 2


@given(
    st.lists(
        st.sampled_from(["src/a.py", "b.md", " ", "\n", "\t", ".", "..", "*/", "://", "x", "/", "-", "@", "\u00a0"])
    )
)
def test_words_without_a_dot_name_no_file(parts: list[str]) -> None:
    text = "".join(parts)
    assert find_files(text, "") == [*dict.fromkeys(make_relative(path, "") for path in FILE.findall(text))]


def test_files_that_were_run_count_as_made_where_the_beginning_is_left_out() -> None:
    seen = look("Fix it.", bash("python first.py"), create("/w/second.py", "x"), bash("python src/third.py"))
    assert list_created(seen, "/w") == ["first.py", "second.py"]
