"""A fix takes the place of what it fixes: which blocks change, what stays of them, and when nothing may move."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from foretrace.core.errors import SandboxError
from foretrace.episodes.code_blocks import CodeBlocks
from foretrace.episodes.redefinitions import find_replacements, replace_unrun
from protocols.play import Stage

F_OLD, F_NEW = "def f():\n    return 1", "def f():\n    return 2"


def test_the_new_definition_stands_where_the_old_one_stood() -> None:
    first = f"import math\n\n# the first try\n{F_OLD}\n\nprint(f())"
    (plan,) = find_replacements(["x = 0", first, "y = f()"], F_NEW)
    assert plan.start == 1
    assert plan.blocks == ["import math\n\n# the first try", F_NEW, "print(f())", "y = f()"]


def test_decorators_and_the_lines_of_classes_go_with_their_definition() -> None:
    decorated = "@functools.cache\n@functools.wraps(\n    print\n)\ndef f():\n    return 1"
    old = f"import functools\n{decorated}\nclass A:\n    x = 1\n\n    y = 2\nz = 3"
    (plan,) = find_replacements([old], f"{F_NEW}\nclass A: pass")
    assert plan.blocks == ["import functools", f"{F_NEW}\nclass A: pass", "z = 3"]


def test_what_a_fix_does_beside_defining_comes_last() -> None:
    best, other = find_replacements([F_OLD, "y = f()"], f"import math\n{F_NEW}\nprint(y, f())")
    assert best.blocks == [f"import math\n{F_NEW}", "y = f()", "print(y, f())"]
    assert other.blocks == [f"import math\n{F_NEW}\nprint(y, f())", "y = f()"]


def test_a_fix_that_sets_what_a_later_block_sets_does_not_go_before_it() -> None:
    (plan,) = find_replacements([F_OLD, "y = f()"], f"{F_NEW}\ny = 7")
    assert plan.blocks == [F_NEW, "y = f()", "y = 7"]


def test_definitions_in_several_blocks_are_all_replaced() -> None:
    (plan,) = find_replacements(
        [F_OLD, "x = f()", "def g():\n    return f()", f"{F_OLD}\nz = 1"], f"{F_NEW}\ndef g():\n    return 3"
    )
    assert plan.blocks == [f"{F_NEW}\ndef g():\n    return 3", "x = f()", "z = 1"]


@pytest.mark.parametrize(
    ("blocks", "fix"),
    [
        ([F_OLD], "x = 1"),
        ([F_OLD], "def g():\n    return 1"),
        ([F_OLD], "def f(:"),
        ([F_OLD], "old = f\ndef f():\n    return old() + 1"),
        ([F_OLD], "def f(old=f):\n    return old() + 1"),
        (["class A: pass"], "class A(A): pass"),
        ([F_OLD, "slow = f"], "def f():\n    return slow() + 1"),
        ([F_OLD], "print(f())\ndef f():\n    return 2"),
        ([], F_NEW),
    ],
)
def test_nothing_moves_where_there_is_no_fix_or_it_needs_the_old_code(blocks: list[str], fix: str) -> None:
    assert find_replacements(blocks, fix) == []


def test_code_that_is_not_run_is_mended_only_where_no_name_comes_too_late() -> None:
    assert replace_unrun(f"a = 1\n{F_OLD}\nb = 2", F_NEW) == f"a = 1\n\n{F_NEW}\n\nb = 2"
    assert replace_unrun(f"{F_OLD}\nk = 3", "def f(n=k):\n    return n") is None
    assert replace_unrun("def f(:\n    return 1\n\nb = 2", F_NEW) == f"b = 2\n\n{F_NEW}"
    assert replace_unrun("def f(:\n    return 1\n\nb = = 2", F_NEW) is None
    assert replace_unrun("b = 2", F_NEW) is None


NAMES = ("f", "g", "h")
DEFINITIONS = st.builds(
    lambda name, number, other: f"def {name}(n=0):\n    return {number} + ({other}(n + 1) if n < 3 else n)\n",
    st.sampled_from(NAMES),
    st.integers(0, 9),
    st.sampled_from((*NAMES, "alias")),
)
STATEMENTS = st.one_of(
    st.builds(lambda name: f"value = {name}()\n", st.sampled_from(NAMES)),
    st.builds(lambda name: f"alias = {name}\n", st.sampled_from(NAMES)),
    st.just("import math\n"),
)
BLOCKS = st.lists(
    st.lists(st.one_of(DEFINITIONS, DEFINITIONS, STATEMENTS), min_size=1, max_size=3).map("".join),
    min_size=2,
    max_size=6,
)


@given(blocks=BLOCKS)
@trials(max_examples=15)
def test_the_answer_does_what_the_notebook_did(stage: Stage, blocks: list[str]) -> None:
    """Functions of the answer behave as those of a session in which all blocks that ran just followed one another."""
    shown = (
        "for _name in 'fgh':\n    try:\n        print(_name, globals()[_name]())\n"
        "    except (KeyError, NameError, RecursionError) as _error:\n        print(_name, type(_error).__name__)\n"
    )

    async def play() -> tuple[str, str, int]:
        async with contextlib.AsyncExitStack() as stack:
            mended = CodeBlocks(stage.sandbox)
            stack.push_async_callback(mended.close)
            plain = await stack.enter_async_context(await stage.sandbox.session())
            for block in blocks:
                one, other = await mended.run(block), await plain.run(block)
                assert (one.ok, one.error and one.error.kind) == (other.ok, other.error and other.error.kind)
            told = (await plain.run(shown)).stdout
            assert (await mended.run_detached(shown)).stdout == told
        again = await stage.sandbox.run(f"{mended.code}\n{shown}")
        return told, again.stdout, f"\n{mended.code}".count("\ndef f(")

    told, again, definitions = stage.runner.run(play())
    assert told == again
    if " = f" not in "".join(blocks):  # nobody has used an f of before, which would have to stay for him
        assert definitions <= 1 or any(block.count("def f(") > 1 for block in blocks)


def test_a_session_that_cannot_be_opened_is_not_opened_again() -> None:
    opened: list[None] = []

    class Broken:
        async def session(self) -> None:
            opened.append(None)
            raise SandboxError("no worker")

    with pytest.raises(SandboxError, match="no worker"):
        asyncio.run(CodeBlocks(Broken()).run("x = 1"))  # type: ignore[arg-type]
    assert len(opened) == 1
