"""What a prompt names that a call may be about: the working directory, files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.attempts import Turn, bash, create, edit, make_prompt, view
from foretrace.evaluation.prompt_reading import PromptReader, PromptView
from foretrace.evaluation.prompt_values import (
    FILE,
    find_files,
    find_root,
    list_created,
    list_files,
    make_relative,
)


def look(task: str, *past: Turn) -> PromptView:
    return PromptReader().read(make_prompt(task, past))


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
    assert [*files] == ["src/a.py", "try.py", "src/b.py"], "in the task and the traceback; made and run; edited"
    assert (files["src/a.py"].in_result, files["try.py"].in_result) == (0, -1)
    assert (files["try.py"].calls, files["try.py"].turns_ago) == (2, 0)
    assert len(list_files(seen, "/w", 2)) == 2


def test_a_name_and_a_module_stand_for_the_file_that_is_listed() -> None:
    listed = bash("find . -name '*.py'", "./src/pkg/core.py\n./src/pkg/table.py\n./src/pkg/other.py")
    seen = look("from pkg.core import run\nsee table.py and df.loc", listed)
    assert [file.path for file in list_files(seen, "", 9)] == [
        "src/pkg/core.py",
        "src/pkg/table.py",
        "src/pkg/other.py",
    ]


def test_files_of_a_diff_and_of_the_web_are_those_of_the_repository() -> None:
    assert find_files("diff --git a/src/x.py b/src/x.py", "/w") == ["src/x.py"]
    assert find_files("see https://github.com/a/b/blob/0f1e/src/x.py#L3", "/w") == ["src/x.py"]


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
