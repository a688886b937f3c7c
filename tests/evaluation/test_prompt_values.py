"""What a prompt names that a call may be about: the working directory, files, words, lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.attempts import Turn, bash, create, edit, make_prompt, view
from foretrace.evaluation.prompt_reading import PromptReader, PromptView
from foretrace.evaluation.prompt_values import (
    FILE,
    NamedLines,
    find_files,
    find_root,
    list_created,
    list_files,
    list_lines,
    list_words,
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
    files = {file.path: file for file in list_files(seen, "/w", 9)}
    assert [path for path, file in files.items() if file.created] == ["try.py"] == list_created(seen, "/w")
    assert [path for path, file in files.items() if file.edited] == ["src/b.py"]
    assert [path for path, file in files.items() if file.viewed] == ["src/a.py"]
    assert [path for path, file in files.items() if file.in_traceback] == ["src/a.py"]
    assert files["src/a.py"].in_task and not files["try.py"].in_task
    assert (files["src/a.py"].in_result, files["try.py"].in_result) == (0, -1)
    assert (files["try.py"].calls, files["try.py"].turns_ago) == (2, 0)
    assert len(list_files(seen, "/w", 2)) == 2


def test_a_name_and_a_module_stand_for_the_file_that_is_listed() -> None:
    listed = bash("find . -name '*.py'", "./src/pkg/core.py\n./src/pkg/table.py\n./src/pkg/other.py")
    seen = look("from pkg.core import run\nsee table.py and df.loc", listed)
    files = {file.path: file for file in list_files(seen, "", 9)}
    assert {path for path, file in files.items() if file.in_task} == {"src/pkg/table.py", "src/pkg/core.py"}
    assert "df.loc" not in files and len(files) == 3


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


def test_lines_that_a_prompt_points_at() -> None:
    def point(*past: Turn, task: str = "Fix `run_it`.") -> list[NamedLines]:
        return list_lines(look(task, *past), "/w", (), 9)

    shown = "10\tclass A:\n11\t    def run_it(self):\n12\t        x\n20\t    def stop(self):\n"
    traceback = 'File "/w/a.py", line 3\n  File "/w/b.py", line 7\nValueError'
    assert point(bash("grep -n x /w/a.py", "5:x = 1\n9:x = 2")) == [NamedLines("a.py", 5, 0), NamedLines("a.py", 9, 0)]
    assert point(bash("python t.py", traceback))[:2] == [NamedLines("b.py", 7, 0), NamedLines("a.py", 3, 0)]
    assert point(view("/w/a.py", shown)) == [NamedLines("a.py", 11, 19)]
    assert point(task="It fails at src/a.py:40 and on line 8") == [NamedLines("src/a.py", 40, 0), NamedLines("", 8, 0)]


def test_words_that_one_may_search_for() -> None:
    words = list_words(look("`parse_text` fails, parse_text of MyClass", bash("ls", "OtherClass")), 3)
    assert [word.word for word in words] == ["parse_text", "MyClass", "OtherClass"]
    assert [word.in_task for word in words] == [2, 1, 0] and words[2].in_result
