"""Problems of a benchmark are found as copied, formatted anew, escaped and numbered, and idioms are not."""

from __future__ import annotations

import json

import pytest

from foretrace.clean.benchmarks import BenchmarkFinder, BenchmarkProblem, make_fingerprint, split_id
from foretrace.clean.word_runs import blank, number_words

STATEMENT = '''def count_tall(trees: list[float], least: float) -> int:
    """Count the trees of an avenue that are taller than those on both of their sides, and at least as
    tall as the mayor asks. The first and the last tree have one neighbor only.
    >>> count_tall([3.0, 5.5, 2.0], 5.0)
    1
    >>> count_tall([6.0, 5.5, 7.25], 5.0)
    2
    """
'''
SOLUTION = """    tall = 0
    for place, height in enumerate(trees):
        before = trees[place - 1] if place > 0 else 0.0
        behind = trees[place + 1] if place + 1 < len(trees) else 0.0
        if height >= least and height > max(before, behind):
            tall += 1
    return tall
"""
TESTS = "assert count_tall([3.0, 5.5, 2.0], 5.0) == 1\nassert count_tall([6, 5.5, 7.25, 1, 9.5], 5.0) == 3"
ASKED = "Write a function to find the trees that two given avenues have in common."
PROBLEMS = (
    BenchmarkProblem(benchmark="trees", id="Trees/12", statement=STATEMENT, solution=SOLUTION, tests=TESTS),
    BenchmarkProblem(benchmark="trees", id="Trees/13", statement=ASKED),
)
FINDER = BenchmarkFinder(PROBLEMS)
LOG = 'Traceback (most recent call last):\n  File "/app/run.py", line 12, in <module>\n    main()\nValueError: no\n'


def number_lines(text: str) -> str:
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(text.split("\n"), 40))


def find(text: str, problem: int = 0) -> list[str]:
    """Fields of a problem that stand in a text as copies."""
    return [h.field for h in FINDER.find([LOG, text]) if h.problem == problem and FINDER.judge(h)]


@pytest.mark.parametrize(
    "text",
    [
        STATEMENT,
        LOG + STATEMENT + LOG,
        json.dumps({"content": STATEMENT}),
        json.dumps(json.dumps({"content": STATEMENT})),
        number_lines(STATEMENT),
        "\n".join(f"+{line}" for line in STATEMENT.split("\n")),
        " ".join(STATEMENT.upper().split()),
        STATEMENT.replace("count_tall", "solve"),
        STATEMENT.replace("mayor", "town"),
        STATEMENT.replace("(", "“").replace(")", "”"),
        "\n".join(STATEMENT.split("\n")[1:3]),
    ],
)
def test_statement_is_found_however_it_is_written(text: str) -> None:
    assert "statement" in find(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SOLUTION, "solution"),
        (json.dumps({"command": f"cat > a.py <<EOF\n{SOLUTION}EOF"}), "solution"),
        (SOLUTION.replace("\n", "\n\n").replace("    ", "\t"), "solution"),
        (number_lines(SOLUTION), "solution"),
        (TESTS, "tests"),
    ],
)
def test_solution_and_tests_are_found(text: str, expected: str) -> None:
    assert find(text) == [expected]


def test_fingerprints_find_what_the_texts_do() -> None:
    printed = {"statement": make_fingerprint(STATEMENT), "solution": make_fingerprint(SOLUTION)}
    finder = BenchmarkFinder([BenchmarkProblem(benchmark="trees", id="Trees/12", fingerprints=printed), PROBLEMS[1]])
    texts = [LOG, f"{LOG}{json.dumps(STATEMENT)}", number_lines(SOLUTION), " ".join(STATEMENT.split()[:30])]
    expected = FINDER.find(texts)
    assert finder.find(texts) == expected
    assert [finder.judge(hit) for hit in expected] == [FINDER.judge(hit) for hit in expected]
    assert {hit.field for hit in expected} == {"statement", "solution"}


def test_words_have_the_same_numbers_wherever_they_stand() -> None:
    words = STATEMENT.split()
    numbers = number_words(STATEMENT)
    assert number_words("count_tall trees").tolist() == [1867364853, 2497474474]  # fingerprints rest on them
    long = "y" * 70_000
    text = f"{long} {'x ' * 20_000}{STATEMENT} {long}"
    found = number_words(text)
    assert found[0] == found[-1] != found[1]
    assert found[20_001:-1].tolist() == numbers.tolist()
    assert len(words) <= len(numbers)


def test_short_statement_counts_as_a_whole() -> None:
    assert find(f"{LOG}{ASKED.lower()} Use sets.", 1) == ["statement"]
    assert find("Write a function to find the trees that two given people have in common.", 1) == []


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "for place, height in enumerate(trees):\n    if height >= least and height > max(before, behind): pass",
        "Count the trees of an avenue that are taller than those on both of their sides, please.",
    ],
)
def test_what_shares_some_words_is_no_copy(text: str) -> None:
    assert find(text) == []


def test_span_is_that_of_the_text() -> None:
    text = f"→ «{LOG}»\n{STATEMENT}\n{LOG}"
    (hit,) = (h for h in FINDER.find([text]) if h.field == "statement")
    assert text[hit.start : hit.end] == STATEMENT[: STATEMENT.rindex("2") + 1]
    assert FINDER.measure(hit) == 1


def test_ids_are_found_in_texts_and_names() -> None:
    (hit,) = FINDER.find(["see Trees/1 and trees/12, not Trees/123"])
    assert (hit.problem, hit.field, hit.start) == (0, "id", 16)
    assert FINDER.find(["Trees/120 and x-Trees/12"]) == []
    assert FINDER.find_id("Trees/12") == FINDER.find_id("my-trees-12:attempt") == 0
    assert FINDER.find_id("Trees/1") is None
    assert FINDER.find_id("12") is None
    assert split_id("django__django-11099") == ("django", "django", "11099")


def test_short_numbers_are_no_ids() -> None:
    finder = BenchmarkFinder([BenchmarkProblem(benchmark="mine", id="26", statement=ASKED)])
    assert finder.find(["answer 26 in 26"]) == []
    assert finder.find_id("chat:26") is None


def test_words_of_many_problems_tell_nothing() -> None:
    license = "Permission is hereby granted, free of charge, to any person obtaining a copy of this software " * 3
    problems = [BenchmarkProblem(benchmark="b", id=f"b/{n}", statement=f"{license} Task {n}.") for n in range(5)]
    finder = BenchmarkFinder(problems)
    assert not any(finder.judge(hit) for hit in finder.find([license]))
    finder = BenchmarkFinder([*problems, BenchmarkProblem(benchmark="b", id="b/9", statement=f"{license} {ASKED}")])
    assert [finder.measure(hit) for hit in finder.find([f"{license} {ASKED}"]) if hit.problem == 5] == [1.0]


def test_words_of_many_tasks_tell_nothing() -> None:
    half = " ".join(STATEMENT.split()[:34])
    hits = [(f"task{n}", hit) for n in range(7) for hit in FINDER.find([half]) if hit.field == "statement"]
    assert all(FINDER.judge(hit) for _, hit in hits)
    common = FINDER.find_common_words(hits, tasks=100)
    assert not any(FINDER.judge(hit, common) for _, hit in hits)
    assert FINDER.find_common_words(hits[:5], tasks=100) == {}
    (whole,) = (hit for hit in FINDER.find([STATEMENT]) if hit.field == "statement")
    assert FINDER.judge(whole, common)  # a prompt that shows all of it to every task is a copy


def test_blanked_text_has_as_many_characters() -> None:
    for text in ("Ä→b\\n«c»\u00a0d", "   12\tx\n   13\ty\n   14\tz", "\ud800 x", "日本 (a_B)"):
        assert len(blank(text).decode(errors="replace")) == len(text)


def test_rows_of_the_same_words_tell_nothing() -> None:
    table = "0, " * 20
    finder = BenchmarkFinder([BenchmarkProblem(benchmark="b", id="b/1", statement=f"{table} {STATEMENT}")])
    assert finder.find([table * 1000]) == []
