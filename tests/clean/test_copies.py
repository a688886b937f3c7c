"""Planted near copies are found, templates and siblings merge nothing, and the answer hangs on the texts alone."""

from __future__ import annotations

import random
import re
from array import array
from collections.abc import Sequence
from pathlib import Path

import pytest

from foretrace.api.traces import import_source
from foretrace.clean.copies import Copies, find_copies
from foretrace.clean.word_texts import WordText, make_word_text, split_sentences
from foretrace.core.store import TraceStore
from foretrace.dataset.filters.copies import find_statement

_RNG = random.Random(11)
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "ar", "en", "il", "os", "ut")]
_VOCABULARY = [*{"".join(_RNG.choice(_SYLLABLES) for _ in range(_RNG.randint(2, 3))): 0 for _ in range(1500)}]
_TEMPLATE = (
    "<uploaded_files>\n/testbed\n</uploaded_files>\nI've uploaded a python code repository in the directory /testbed. "
    "Consider the following PR description:\n\n{}\n\nCan you help me implement the necessary changes to the "
    "repository so that the requirements are met? I've already taken care of all changes to any of the test files. "
    "This means you DON'T have to modify the testing logic or any of the tests in any way!"
)


_TEXT = (
    "When the scheduler restarts while a job is being cancelled, release_slot is called twice and the queue counter "
    "drops below zero. After that every new job waits for a worker that is never free, although the dashboard says "
    "that four of them are idle. I expected release_slot to ignore a slot that was given back already. It happens on "
    "version 3.2 of acme/runner with the default settings, and I can reproduce it with the script that is attached."
)


def write_issue(rng: random.Random) -> str:
    """A made-up issue of 80 to 250 words: few words are frequent, as in real texts, and some are identifiers."""
    names = [f"{rng.choice(_VOCABULARY)}_{rng.choice(_VOCABULARY)}" for _ in range(5)]
    repository = f"{rng.choice(_VOCABULARY)}/{rng.choice(_VOCABULARY)}"
    lines: list[str] = []
    for _ in range(rng.randint(8, 20)):
        words = [_VOCABULARY[min(int(rng.paretovariate(0.5)), 1400)] for _ in range(rng.randint(6, 16))]
        words[rng.randrange(len(words))] = rng.choice([*names, repository, str(rng.randrange(100))])
        lines.append(" ".join(words).capitalize() + ".")
    return "\n".join(lines)


def reword(text: str, rng: random.Random) -> str:
    """5% of the words replaced, identifiers renamed, another repository."""
    for name in sorted(set(re.findall(r"\b\w+_\w+\b", text))):
        text = re.sub(rf"\b{name}\b", f"{rng.choice(_VOCABULARY)}_{rng.choice(_VOCABULARY)}", text)
    text = re.sub(r"\b[a-z]+/[a-z]+\b", f"{rng.choice(_VOCABULARY)}-x/{rng.choice(_VOCABULARY)}", text)
    parts = re.split(r"(\s+)", text)
    words = [place for place, part in enumerate(parts) if part.strip()]
    for place in rng.sample(words, round(0.05 * len(words))):
        parts[place] = rng.choice(_VOCABULARY)
    return "".join(parts)


def find(texts: Sequence[str]) -> Copies:
    return find_copies([read(text) for text in texts])


def read(text: str) -> WordText:
    return make_word_text(split_sentences(text))


@pytest.mark.parametrize("template", ["{}", _TEMPLATE], ids=["alone", "in a template"])
def test_planted_near_copies_are_found_and_nothing_else(template: str) -> None:
    rng = random.Random(3)
    issues = [write_issue(rng) for _ in range(200)]
    texts = [template.format(issue) for issue in issues] + [template.format(reword(issue, rng)) for issue in issues]
    clusters = [*find(texts).iterate_clusters()]
    found = sum([cluster == [i, i + 200] for i in range(200) for cluster in clusters if cluster[0] == i])
    assert found / 200 >= 0.98
    assert found == len(clusters)


def test_a_template_with_a_short_task_in_it_merges_nothing() -> None:
    ask = "Answer with one word. Think step by step before you do. {}\nWrite the answer into a box. Never guess."
    asked = [f"{ask.format(f'How far is {place} from here?')}" for place in _VOCABULARY[:60]]
    assert [*find(asked).iterate_clusters()] == []
    assert [*find([*asked, asked[7].upper()]).iterate_clusters()] == [[7, 60]]


@pytest.mark.parametrize("size", [3, 6, 11])
def test_a_family_that_differs_in_a_name_alone_is_found(size: int) -> None:
    """Most of its sentences stand in all of them, as those of a template do."""
    rng = random.Random(size)
    issues = [write_issue(rng) for _ in range(12)]
    names = [re.search(r"\b[a-z]+_[a-z]+\b|\b[a-z]+/[a-z]+\b", issue) for issue in issues]
    texts = [
        re.sub(rf"(?i)\b{name[0]}\b", f"{name[0][::-1]}{n}", issue) if n else issue
        for issue, name in zip(issues, names, strict=True)
        for n, name in enumerate([name] * size)
        if name is not None
    ]
    clusters = [*find(texts).iterate_clusters()]
    assert clusters == [[*range(start, start + size)] for start in range(0, len(texts), size)]


def test_of_few_texts_that_share_a_template_those_with_other_slots_are_no_copies() -> None:
    ask = _TEMPLATE.format("Book a flight from {} to {} on day {} for {} people, and no later than noon.")
    asked = [ask.format(*_VOCABULARY[n : n + 2], n, n + 1) for n in range(0, 20, 3)]
    assert [*find(asked).iterate_clusters()] == []


def test_the_same_task_in_two_templates_is_a_copy() -> None:
    rng = random.Random(8)
    issues = [write_issue(rng) for _ in range(30)]
    other = "Please solve this issue. Work in small steps and test what you did.\n{}\nYou have a shell in /work."
    clusters = [*find([*map(_TEMPLATE.format, issues), *map(other.format, issues)]).iterate_clusters()]
    assert clusters == [[i, i + 30] for i in range(30)]


def test_the_same_short_task_in_two_templates_is_a_copy() -> None:
    rng = random.Random(3)
    templates = [" ".join(f"t{n}w{rng.randrange(10**6)}" for _ in range(40)) + ". " for n in range(2)]
    tasks = [f"Do {' '.join(str(n + k) for k in range(6))}." for n in range(100, 1600, 100)]
    clusters = [*find([template + task for template in templates for task in tasks]).iterate_clusters()]
    assert clusters == [[n, n + 15] for n in range(15)]


def test_short_texts_are_copies_only_where_all_words_are_the_same() -> None:
    texts = [
        "Add 3 and 4.",
        "Add 5 and 6.",
        "add  3 and 4!",
        "Solve x + y = 3",
        "Solve x - y = 3",
        "Compute 7 - 2",
        "Compute 7 + 2",
    ]
    assert [*find(texts).iterate_clusters()] == [[0, 2]]


@pytest.mark.parametrize(
    ("old", "new", "is_copy"),
    [
        pytest.param("four of them are idle", "nine of them are idle", True, id="a word"),
        pytest.param("acme/runner", "big-corp/job-runner", True, id="a repository"),
        pytest.param("version 3.2", "the newest version", True, id="a number becomes words"),
        pytest.param("release_slot", "give_back_lease", True, id="a name throughout"),
        pytest.param("3.2 of acme/runner", "4.7 of 9 acme runners", False, id="other numbers"),
        pytest.param(_TEXT, " ".join(_TEXT.split()[::-1]), False, id="the same words in another order"),
        pytest.param(_TEXT[len(_TEXT) // 2 :], "", False, id="half of it"),
        pytest.param(
            "default settings, and", "usual hat: find every receipt older than last May, so", False, id="dense"
        ),
    ],
)
def test_what_differs_decides_in_both_directions(old: str, new: str, is_copy: bool) -> None:
    texts = [_TEXT, _TEXT.replace(old, new)]
    for pair in (texts, texts[::-1]):
        assert bool([*find(pair).iterate_clusters()]) == is_copy


_WORDS = _VOCABULARY[:100]
_NAMED = " ".join(f"{one} {other} acme/runner" for one, other in zip(_WORDS[::2], _WORDS[1::2], strict=True))
_LISTED = " ".join([*_WORDS[:60], *map(str, range(6)), *_WORDS[60:90]])
_REPEATED = [*_WORDS[:60], *_WORDS[10:22], *_WORDS[60:]]


@pytest.mark.parametrize(
    ("one", "other", "is_copy"),
    [
        pytest.param(_NAMED, _NAMED.replace("acme/runner", "big-corp/job-runner"), True, id="a name in 50 places"),
        pytest.param(_LISTED, _LISTED.replace(" 3 ", " 7 "), False, id="one of six numbers in under 100 words"),
        *(
            pytest.param(
                " ".join(_WORDS),
                " ".join("changed" + word if word in _WORDS[24 : 24 + 15 * n : 15] else word for word in _REPEATED),
                n < 6,
                id=f"twelve words more and {n} others",
            )
            for n in (5, 6)
        ),
    ],
)
def test_how_much_may_differ(one: str, other: str, is_copy: bool) -> None:
    assert bool([*find([one, other]).iterate_clusters()]) == is_copy


def test_texts_without_spaces_are_read_by_their_signs() -> None:
    text = "当任务被取消时调度程序会重新启动并且计数器会降到零以下所有新任务都会等待永远不会空闲的工作进程"
    assert read(text).n_words == len(text)
    assert [*find([text, text.replace("计数器", "记数器"), text[::-1]]).iterate_clusters()] == [[0, 1]]


def test_the_answer_follows_from_the_texts_in_whatever_order() -> None:
    rng = random.Random(5)
    texts = [write_issue(rng) for _ in range(40)]
    texts += [reword(text, rng) for text in texts[:20]] + texts[:5]
    order = rng.sample(range(len(texts)), len(texts))
    shuffled = [*find([texts[i] for i in order]).iterate_clusters()]
    expected = find(texts)
    assert sorted(sorted(order[i] for i in cluster) for cluster in shuffled) == [*expected.iterate_clusters()]
    assert find(texts) == expected


def test_chains_are_counted() -> None:
    chain = Copies(firsts=array("q", [0, 1, 2, 3, 0]), pairs=array("q", [0, 1, 1, 2, 2, 3]), candidates=3)
    assert [*chain.iterate_clusters()] == [[0, 1, 2, 3, 4]]
    assert chain.count_chained() == 1  # 3, which is not a copy of 1; 4 equals 0


@pytest.fixture(scope="module")
def statements(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The statements of all tasks in the shared sources, by task."""
    folder = tmp_path_factory.mktemp("shared") / "traces"
    import_source("auto", shared / "data/traces", out=folder, workers=1)
    found = {trace.task.id: find_statement(trace) for trace in TraceStore(folder).read()}
    return {task: text for task, text in found.items() if text is not None}


def test_of_real_tasks_only_copies_are_merged(statements: dict[str, str]) -> None:
    """Templates of one source, short requests and alike environments merge nothing."""
    tasks = [*statements]
    found = find([*statements.values()])
    clusters = [[statements[tasks[i]] for i in cluster] for cluster in found.iterate_clusters()]
    assert len(tasks) > 80
    assert [len(cluster) for cluster in clusters] == [3]
    asked = {re.sub(r"(?s).*Question:", "", text) for text in clusters[0]}
    assert len(asked) == 1 and "bipropellant rocket engine with kerosene" in asked.pop()
