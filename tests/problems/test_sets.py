"""What every set keeps, and how rows of HumanEval, MBPP and of one's own become Problems."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.core import plugins
from foretrace.core.errors import ProblemError, UsageError
from foretrace.core.problem import Problem, Test
from foretrace.problems.base import UnusableRow, check_problem, check_problems, collect_problems
from foretrace.registry import load_problems, split_problem_spec

SETS = plugins.plugin_names("problems")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "problems.md"
HUMAN_EVAL = {
    "task_id": "HumanEval/900",
    "prompt": 'HELP = 1\n\n\ndef inc(n):\n    """Add HELP.\n\n    >>> inc(1)\n    2\n    """\n',
    "entry_point": "inc",
    "canonical_solution": "    return n + HELP\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(-1) == 0\n",
}
MBPP_FULL = {
    "text": "Write a function to add one.",
    "code": "def helper(n):\n    return n + 1\ndef inc(n):\n    return helper(n)",
    "task_id": 901,
    "test_setup_code": "",
    "test_list": ["assert inc(1) == 2", "assert inc(2) == 3", "assert inc(-1) == 0"],
    "challenge_test_list": ["assert inc(10**3) == 1001"],
}
MBPP_CLEAN = {
    "source_file": "a.ipynb",
    "task_id": 902,
    "prompt": "Write a function to take a root.",
    "code": "import math\ndef root(n):\n    return math.sqrt(n)",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(root(4), 2)", "assert set([root(9)]) == set([3])"],
}
OWN = {"statement": "def f(n): ...\n\nf(1) == 2", "entry_point": "f", "tests": ["assert f(2) == 3", "assert f(1)==2"]}
CASES = {"statement": "Double it.", "cases": [{"input": "1\n", "output": "2\n"}, {"stdout": "0\n", "tolerance": 0.1}]}


def read(name: str, tmp_path: Path, *rows: dict[str, Any]) -> tuple[list[Problem], list[UnusableRow]]:
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return collect_problems(plugins.load_plugin("problems", name)().load(path))


def load(name: str, tmp_path: Path, *rows: dict[str, Any]) -> list[Problem]:
    problems, drops = read(name, tmp_path, *rows)
    assert not drops
    return problems


@pytest.mark.parametrize("name", SETS)
def test_the_contract_is_kept(name: str) -> None:
    plugin = plugins.load_plugin("problems", name)()
    assert plugin.name == name and (plugin.license is None or isinstance(plugin.license, str))
    assert plugin.hub is None or (plugin.hub.repo.count("/") == 1 and plugin.hub.split)
    if plugin.hub is None and name != "builtin":
        with pytest.raises(UsageError, match="path="):
            list(plugin.load())


def test_human_eval(tmp_path: Path) -> None:
    (problem,) = load("humaneval", tmp_path, HUMAN_EVAL)
    assert problem.statement == problem.prompt == problem.setup == HUMAN_EVAL["prompt"]
    assert problem.public_tests == (Test(code="assert inc(1) == 2"),)
    assert problem.hidden_tests == (Test(code=HUMAN_EVAL["test"]),)
    assert problem.reference == HUMAN_EVAL["prompt"] + HUMAN_EVAL["canonical_solution"]
    assert (problem.id, problem.entry_point, problem.source) == ("HumanEval/900", "inc", "humaneval")


def test_human_eval_leaves_its_own_wrong_example_out(tmp_path: Path) -> None:
    prompt = (
        "def median(l):\n  '''\n  >>> median([3, 1])\n  2.0\n  >>> median([-10, 4, 6, 1000, 10, 20])\n  15.0\n  '''\n"
    )
    row = {**HUMAN_EVAL, "entry_point": "median", "prompt": prompt}
    first, other = load("humaneval", tmp_path, {**row, "task_id": "HumanEval/47"}, {**row, "task_id": "HumanEval/48"})
    assert [len(first.public_tests), len(other.public_tests)] == [1, 2]


def test_mbpp_full(tmp_path: Path) -> None:
    (problem,) = load("mbpp", tmp_path, MBPP_FULL)
    assert (problem.id, problem.entry_point, problem.setup, problem.form) == ("mbpp/901", "inc", "", None)
    assert problem.public_tests == (Test(code="assert inc(1) == 2"),)
    assert [t.code for t in problem.hidden_tests] == [*MBPP_FULL["test_list"][1:], *MBPP_FULL["challenge_test_list"]]
    assert "`inc`" in problem.statement and "assert inc(1) == 2" in problem.statement
    assert not any(test.code in problem.statement for test in problem.hidden_tests)


def test_mbpp_sanitized(tmp_path: Path) -> None:
    (problem,) = load("mbpp", tmp_path, MBPP_CLEAN)
    assert (problem.id, problem.entry_point, problem.setup) == ("mbpp/902", "root", "import math")
    assert len(problem.public_tests) == len(problem.hidden_tests) == 1


def test_mbpp_with_one_test_shows_only_the_name(tmp_path: Path) -> None:
    (problem,) = load("mbpp", tmp_path, {**MBPP_FULL, "test_list": ["assert inc(1) == 2"], "challenge_test_list": []})
    assert problem.public_tests == () and len(problem.hidden_tests) == 1
    assert "`inc`" in problem.statement and "assert" not in problem.statement


def test_mbpp_says_what_else_the_tests_use(tmp_path: Path) -> None:
    code = "class Pair:\n    def __init__(self, a):\n        self.a = a\ndef first(p):\n    return p.a"
    tests = ["assert first(Pair(1)) == 1", "assert first(Pair(2)) == 2"]
    (problem,) = load("mbpp", tmp_path, {**MBPP_FULL, "code": code, "test_list": tests, "challenge_test_list": []})
    assert (problem.entry_point, problem.form) == ("first", None) and "`Pair`" in problem.statement


def test_own_asserts(tmp_path: Path) -> None:
    (problem,) = load("jsonl", tmp_path, {**OWN, "level": 3, "group": "g", "license": "MIT"})
    assert [t.code for t in problem.public_tests] == ["assert f(1) == 2"]
    assert [t.code for t in problem.hidden_tests] == ["assert f(2) == 3"], "the public one is not hidden too"
    assert (problem.id, problem.group, problem.license, problem.extra) == ("set/0", "g", "MIT", {"level": 3})


def test_own_asserts_in_one_text(tmp_path: Path) -> None:
    text = "assert f(2) == 3\nassert f(\n  3) == 4\n"
    whole = "x = 1\nassert f(x) == 2\nassert f(5) == 6"
    first, other = load("jsonl", tmp_path, {**OWN, "tests": text}, {**OWN, "id": 7, "tests": whole})
    assert [t.code for t in first.hidden_tests] == ["assert f(2) == 3", "assert f(\n  3) == 4"]
    assert [t.code for t in other.hidden_tests] == [whole] and other.id == "7"


def test_own_rows_may_ask_for_a_method(tmp_path: Path) -> None:
    stub = "class Solution:\n    def inc(self, n):\n        "
    row = {"statement": "Add one.", "prompt": stub, "check": "def check(candidate):\n    assert candidate(1) == 2"}
    named, bare = load("jsonl", tmp_path, {**row, "entry_point": "Solution().inc"}, {**row, "entry_point": "inc"})
    assert named.entry_point == bare.entry_point == "Solution().inc"
    whole = "class Solution:\n    def inc(self, n): return n + 1"
    for reference, wanted in ((whole, whole), ("return n + 1", f"{stub}return n + 1")):
        (problem,) = load("jsonl", tmp_path, {**row, "entry_point": "inc", "reference": reference})
        assert problem.reference == wanted


def test_own_cases(tmp_path: Path) -> None:
    (problem,) = load("jsonl", tmp_path, {**CASES, "tolerance": 1e-6, "public_tests": [CASES["cases"][0]]})
    assert problem.public_tests == (Test(stdin="1\n", stdout="2\n", tolerance=1e-6),)
    assert problem.hidden_tests == (Test(stdin="", stdout="0\n", tolerance=0.1),)
    assert problem.entry_point is None


def test_own_rows_in_the_form_of_human_eval(tmp_path: Path) -> None:
    (problem,) = load("jsonl", tmp_path, HUMAN_EVAL)
    (known,) = load("humaneval", tmp_path, HUMAN_EVAL)
    assert problem.reference == known.reference and problem.hidden_tests == known.hidden_tests
    assert problem.public_tests == known.public_tests and problem.prompt == known.prompt


def test_a_helper_in_the_prompt_becomes_the_setup(tmp_path: Path) -> None:
    prompt = "def help(n):\n    return n\n\n\ndef f(n):\n    '''So.'''\n"
    row = {"statement": "Do f.", "prompt": prompt, "entry_point": "f", "tests": ["assert f(1) == help(1)"]}
    (problem,) = load("jsonl", tmp_path, row)
    assert problem.setup == prompt
    assert load("jsonl", tmp_path, {**row, "prompt": "def f(n):\n    '''So.'''\n"})[0].setup == ""


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("humaneval", {**HUMAN_EVAL, "test": "assert True"}, "check(candidate)"),
    ("humaneval", {**HUMAN_EVAL, "prompt": None}, "`prompt` must be a text"),
    ("humaneval", {**HUMAN_EVAL, "test": "def check(candidate):\n  assert (\n"}, "a test is not Python"),
    ("humaneval", {**HUMAN_EVAL, "prompt": "def inc(n:\n"}, "the setup is not Python"),
    ("humaneval", {**HUMAN_EVAL, "entry_point": "a b"}, "is not a Python name"),
    ("mbpp", {**MBPP_FULL, "test_list": [], "challenge_test_list": []}, "no test at all"),
    ("mbpp", {**MBPP_FULL, "test_list": ["assert out(1) == 2"], "challenge_test_list": []}, "no test calls a function"),
    ("mbpp", {**MBPP_FULL, "test_list": [5]}, "`test_list` must be a list of texts"),
    ("mbpp", {k: v for k, v in MBPP_FULL.items() if k != "task_id"}, "no key 'task_id'"),
    ("jsonl", {"entry_point": "f", "tests": ["assert f(1)"]}, "no statement"),
    ("jsonl", {"statement": "x", "entry_point": "f"}, "no test at all"),
    ("jsonl", {"statement": "x", "entry_point": "f", "test_list": ["assert f()"]}, "are read; test_list not"),
    ("jsonl", {"statement": "x", "entry_point": "f", "tests": [""]}, "an empty test"),
    ("jsonl", {"statement": "x", "tests": ["assert f(1)"]}, "entry_point"),
    ("jsonl", {"statement": "x", "entry_point": "f", "tests": ["assert f(1"]}, "not Python"),
    ("jsonl", {"statement": "x", "entry_point": "f", "tests": 5}, "`tests` must be a list"),
    ("jsonl", {"statement": "x", "entry_point": "f", "tests": [5]}, "tests[0] must be an assert"),
    ("jsonl", {"statement": "x", "cases": [{"stdin": "1"}]}, "cases[0] has no stdout"),
    ("jsonl", {"statement": "x", "cases": [{"stdout": "1", "x": 1}]}, "cases[0] must be"),
    ("jsonl", {"statement": "x", "cases": [{"stdout": "1", "tolerance": "a"}]}, "tolerance"),
    ("jsonl", {**CASES, "entry_point": "f"}, "leave entry_point out"),
    ("jsonl", {**CASES, "check": "assert f(1)"}, "do not go together"),
    ("jsonl", {**OWN, "form": "loose"}, "Invalid enum value 'loose'"),
    ("jsonl", {**OWN, "statement": 5}, "`statement` must be text"),
    ("jsonl", {**OWN, "id": " "}, "needs an id"),
    ("jsonl", {**OWN, "tests": ["assert f(" + "(" * 100_000 + ")"]}, "not Python"),
]


@pytest.mark.parametrize(("name", "row", "said"), BAD, ids=[said for _, _, said in BAD])
def test_a_row_that_cannot_be_used_names_file_and_row(
    name: str, row: dict[str, Any], said: str, tmp_path: Path
) -> None:
    good = {"humaneval": HUMAN_EVAL, "mbpp": MBPP_FULL, "jsonl": OWN}[name]
    (problem,), (drop,) = read(name, tmp_path, good, row)
    assert problem == load(name, tmp_path, good)[0]
    assert drop.at == f"{tmp_path / 'set.jsonl'} row 1" and said in drop.reason
    assert "\n" not in drop.reason and len(drop.reason) < 400


def test_what_follows_a_row_that_cannot_be_used_is_read(tmp_path: Path) -> None:
    rows = [{**OWN, "id": "a"}, {}, {**OWN, "id": "b"}, {**OWN, "id": "a"}, {**OWN, "id": "c"}]
    problems, drops = read("jsonl", tmp_path, *rows)
    assert [p.id for p in problems] == ["a", "b", "c"] and [d.at[-5:] for d in drops] == ["row 1", "row 3"]
    assert drops[1].reason == f"the id 'a' is used by {tmp_path / 'set.jsonl'} row 0 too; ids must differ"
    problems, drops = collect_problems(plugins.load_plugin("problems", "jsonl")().load(tmp_path / "set.jsonl"), limit=2)
    assert [p.id for p in problems] == ["a", "b"] and [d.at[-5:] for d in drops] == ["row 1"]
    with pytest.raises(ProblemError, match=r"set\.jsonl row 1: no statement"):
        load_problems("jsonl", tmp_path / "set.jsonl", None)
    told: list[UnusableRow] = []
    assert load_problems(f"jsonl:{tmp_path / 'set.jsonl'}", None, 3, on_unusable=told.append)[2].id == "c"
    assert [row.at[-5:] for row in told] == ["row 1", "row 3"]


def test_one_task_is_one_problem() -> None:
    """Ids are compared as tasks have them: with the name of the set in front."""
    one = Problem(id="x", source="s", statement="x", hidden_tests=(Test(code="assert f(1)"),))
    other = msgspec.structs.replace(one, source="t")
    assert check_problems([one, other]) == [one, other]
    with pytest.raises(ProblemError, match="two problems have the id 's/x'"):
        check_problems([one, msgspec.structs.replace(one, id="s/x")])


KEYS = ["statement", "prompt", "text", "question", "entry_point", "tests", "check", "test", "cases", "public_tests"]
KEYS += ["reference", "solution", "setup", "form", "id", "task_id", "group", "license", "tolerance", "test_list"]
VALUES: list[Any] = [None, True, 0, 1.5, 10**30, "", "x", "f", "f(1) == 2", "assert f(1)", "def f(n): pass", "\x00"]
VALUES += ["\ud800", [], [None], ["assert f(1)"], [[]], {}, {"stdout": "1"}, [{"stdout": "1"}], [{"stdin": 1}], "judge"]


@pytest.mark.parametrize("name", [name for name in SETS if name not in ("builtin", "harbor")])
@settings(max_examples=150)
@given(
    row=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=9),
    base=st.sampled_from([{}, HUMAN_EVAL, MBPP_FULL, OWN, CASES]),
)
def test_any_row_is_a_problem_or_a_drop(
    name: str, row: dict[str, Any], base: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    problems, drops = read(name, tmp_path_factory.mktemp("any"), {**base, **row})
    assert len(problems) + len(drops) == 1
    assert all(drop.at.endswith("row 0") and drop.reason and "\n" not in drop.reason for drop in drops)
    assert all(check_problem(problem) == problem for problem in problems)


def test_the_examples_of_the_docs_are_problems(tmp_path: Path) -> None:
    rows = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)]
    problems = load("jsonl", tmp_path, *rows)
    assert [(len(p.public_tests), len(p.hidden_tests)) for p in problems] == [(1, 2), (0, 1), (0, 2), (0, 2)]
    assert all(problem.reference for problem in problems)


@pytest.mark.parametrize(
    ("told", "path", "meant"),
    [
        ("jsonl:mine.jsonl", None, ("jsonl", Path("mine.jsonl"))),
        ("jsonl:/a/b:c", None, ("jsonl", Path("/a/b:c"))),
        ("builtin", None, ("builtin", None)),
        ("jsonl", Path("mine.jsonl"), ("jsonl", Path("mine.jsonl"))),
        ("package.module:Class", None, ("package.module:Class", None)),
        ("module:Class", Path("mine.jsonl"), ("module:Class", Path("mine.jsonl"))),
        ("package.module:Class:mine.jsonl", None, ("package.module:Class", Path("mine.jsonl"))),
    ],
)
def test_a_set_and_its_file_in_one_word(told: str, path: Path | None, meant: tuple[str, Path | None]) -> None:
    assert split_problem_spec(told, path) == meant


def test_a_set_and_two_files_are_too_many() -> None:
    with pytest.raises(UsageError, match="give one of them"):
        split_problem_spec("jsonl:mine.jsonl", Path("other.jsonl"))
