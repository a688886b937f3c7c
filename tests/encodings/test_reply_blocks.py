"""Blocks of a reply: found in all three forms, covering the text exactly, and read back as they were written."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.encodings.reply_blocks import ReplyBlock, find_hallucinated_result, split_reply

PROSE = ["think", "verify", "wait", "plan", "action", "reflection", "result", "error", "hint", "answer"]


def find_blocks(text: str) -> list[ReplyBlock]:
    """The blocks of a text without the plain text between them."""
    return [part for part in split_reply(text) if part.kind != "text"]


def render(block: ReplyBlock) -> str:
    """The text of a block; `split_reply` gives the block back, but for its span."""
    closing = block.ended_by == "marker"
    name = "final_answer" if block.kind == "answer" else block.kind
    if block.syntax == "text":
        return block.content
    if block.syntax == "fence":
        return f"```{'output' if block.kind == 'result' else 'python'}\n{block.content}{'```' * closing}"
    if block.syntax == "bracket":
        name = name.replace("_", " ").upper()
        return f"[{name}]{block.content}{f'[/{name}]' * closing}"
    return f"<{name}>{block.content}{f'</{name}>' * closing}"


def found(text: str) -> list[tuple[str, str, str, str]]:
    check_cover(text)
    return [(b.kind, b.content, b.syntax, b.ended_by) for b in find_blocks(text)]


def check_cover(text: str) -> None:
    at = 0
    for piece in split_reply(text):
        start, end = piece.span
        assert start == at and end > start, (text, piece)
        assert piece.content in text[start:end] and (piece.kind != "text" or piece.content == text[start:end])
        at = end
    assert at == len(text)


NOISE = [
    "<think>", "</think>", "<code>", "</code>", "[THINK]", "[/THINK]", "[CODE]", "[/CODE]", "[VERIFY]", "<verify>",
    "```", "```python\n", "\n```\n", "\n", " ", "x = 1", 'print("', '")', "'''", "<result>", "</result>",
    "Observation:",
    "[WAIT]",
    '<tool_call>{"name": "p", "arguments": {"code": "x"}}</tool_call>', "<tool_call>", "</tool_call>", "é",
    "FINAL ANSWER]",
    "[",
]  # fmt: skip


@given(st.lists(st.sampled_from(NOISE), max_size=30).map("".join) | st.text(max_size=80))
def test_parts_cover_any_text(text: str) -> None:
    check_cover(text)
    cut = find_hallucinated_result(text)
    assert cut is None or 0 <= cut < len(text)


words = st.text(st.characters(codec="utf-8", exclude_characters="<[`\r"), max_size=40)
codes = st.sampled_from(
    ["x = 1", 'print("[CODE]")', 's = """\n[VERIFY]\n<think>\n"""', "y = '</code>'", "a[1] < b", "# no\nz = 2"]
)


@st.composite
def replies(draw: st.DrawFn) -> list[ReplyBlock]:
    """Blocks of one reply, with text on lines of its own between some of them; the last may have no end."""
    items: list[ReplyBlock] = []
    for _ in range(draw(st.integers(1, 6))):
        form = draw(st.sampled_from(["bracket", "xml", "fence"]))
        if form == "fence":
            if items:
                items.append(ReplyBlock("text", f"\n{draw(words)}\n", "text"))
            items += [ReplyBlock("code", draw(codes) + "\n", "fence"), ReplyBlock("text", "\n", "text")]
        elif draw(st.booleans()):
            items.append(ReplyBlock("code", f"\n{draw(codes)}\n", form))
        else:
            items.append(ReplyBlock(draw(st.sampled_from(PROSE)), draw(words), form))
    merged: list[ReplyBlock] = []
    for item in items:
        if merged and item.kind == "text" == merged[-1].kind:
            item = ReplyBlock("text", merged.pop().content + item.content, "text")
        merged.append(item)
    if merged[-1].kind != "text" and draw(st.booleans()):
        merged[-1] = msgspec.structs.replace(merged[-1], ended_by="cut")
    return merged


@given(replies())
def test_what_is_rendered_is_read_back(items: list[ReplyBlock]) -> None:
    text = "".join(map(render, items))
    assert [msgspec.structs.replace(p, span=(0, 0)) for p in split_reply(text)] == items
    check_cover(text)


def test_the_three_forms() -> None:
    assert found("[THINK]\nhm\n[CODE]\nx = 1\n[VERIFY]\nok") == [
        ("think", "\nhm\n", "bracket", "next"), ("code", "\nx = 1\n", "bracket", "next"),
        ("verify", "\nok", "bracket", "cut"),
    ]  # fmt: skip
    assert found("[THINK]a[/THINK] [WAIT] no[/WAIT]") == [
        ("think", "a", "bracket", "marker"),
        ("wait", " no", "bracket", "marker"),
    ]
    assert found("<think>a</think><code>x</code>") == [("think", "a", "xml", "marker"), ("code", "x", "xml", "marker")]
    assert found("So:\n```python\nx = 1\n```\nDone") == [("code", "x = 1\n", "fence", "marker")]
    assert found("[FINAL ANSWER] 3") == [("answer", " 3", "bracket", "cut")]
    assert [b.is_closed for b in find_blocks("<think>a</think>\n<code>\nx = 1")] == [True, False]


def test_what_is_inside_is_content() -> None:
    fenced = "\n```python\nprint('</code>')\n```\n"
    (block,) = find_blocks(f"<code>{fenced}</code>")
    assert block.content == fenced and block.code == "print('</code>')"
    assert [b.kind for b in find_blocks('[CODE]\nprint("[CODE]")\n[VERIFY] ok')] == ["code", "verify"]
    assert found("[CODE]\ns = '''\n[VERIFY]\n'''\n[VERIFY] ok")[0][1] == "\ns = '''\n[VERIFY]\n'''\n"
    assert [b.kind for b in find_blocks("```python\nx = '''\n[THINK]\n<code>\n'''\n```")] == ["code"]
    assert find_blocks("```text\n[THINK]\n<code>x</code>\n```") == []
    doc = 'def f():\n    """\n```\nx\n```\n    """\n'
    assert found(f"```python\n{doc}```\n") == [("code", doc, "fence", "marker")]
    assert [b.kind for b in find_blocks("<think>a\n```python\nx = 1\n```\n<code>y</code></think>")] == ["think"]
    call = '<tool_call>{"name": "p", "arguments": {"code": "x = 1\n<think>\n</think>\n"}}</tool_call>'
    assert find_blocks(call) == [] and [b.kind for b in find_blocks(f"<think>a\n{call}\n</think>")] == ["think"]


def test_fences() -> None:
    assert [b.kind for b in find_blocks("[THINK]\nso\n```python\nx = 1\n```\n[VERIFY] ok")] == [
        "think",
        "code",
        "verify",
    ]
    assert [b.kind for b in find_blocks("[THINK]\nso\n```python\nx = 1\n```\n[CODE]\ny = 2")] == ["think", "code"]
    assert [b.kind for b in find_blocks("```\nx = f(1)\n```\n```\n3\n```\n```output\n3\n```")] == ["code", "result"]
    assert found("```python\nx = 1\n[VERIFY]\nok") == [
        ("code", "x = 1\n", "fence", "next"), ("verify", "\nok", "bracket", "cut"),
    ]  # fmt: skip
    assert [b.kind for b in find_blocks("oops ```\n```\n<think>a</think>")] == ["think"]
    assert ReplyBlock("code", "Here:\n```py\nx = 1\n```\nThat is it.").code == "x = 1"
    assert ReplyBlock("code", "\n  x = (\n").code == "  x = ("


def test_missing_ends() -> None:
    assert found("<think>a\n<code>\nx = 1\n</code>") == [
        ("think", "a\n", "xml", "next"),
        ("code", "\nx = 1\n", "xml", "marker"),
    ]
    assert [b.content for b in find_blocks("<code>\nx = 1\n<verify>ok</verify>\n<code>\ny = 2\n</code>")] == [
        "\nx = 1\n",
        "ok",
        "\ny = 2\n",
    ]
    assert found("<code>\nx = (\n<result>1</result>")[0] == ("code", "\nx = (\n", "xml", "next")


INVENTED = [
    "<code>\nx = 1\n</code>\n^<result>3</result>",
    "[CODE]\nprint(3)\n^[RESULT] 3",
    '<think>a\n<tool_call>{"name": "p", "arguments": {"code": "x"}}</tool_call>^<tool_response>3</tool_response>',
    "<think>so\n^<result>3</result></think>",
    "```python\nprint(3)\n```\n^Observation: 3",
    "```python\nprint(3)\n```\n^```output\n3\n```",
    "<code>x = (</code> It gives ^<error>SyntaxError</error> so",
    "<code>\nx = (\n^<result>3</result>\n</code>",
    *(f"<code>\nx\n</code>\n^<{tag}>3</{tag}>" for tag in ("tool_result", "function_results", "execution_result")),
    *(f"<code>\nx\n</code>\n^<{tag}>3</{tag}>" for tag in ("stdout", "interpreter", "system")),
    "```python\nprint(3)\n```\n\n^Output:\n```\n3\n```",
    "<code>\nx\n</code>\n^**Result:** 3",
    "<verify>\nx()\n</verify>\n\n^User: The public test passed.",
    '<think>a\n<tool_call>{"name": "p", "arguments": {"code": "x"}}</tool_call>\n^Output: 3',
    "<code>\nx\n</code>^<|im_start|>user\nAll passed.",
]  # fmt: skip


@pytest.mark.parametrize("text", INVENTED)
def test_invented_results(text: str) -> None:
    at = text.index("^")
    assert find_hallucinated_result(text.replace("^", "")) == at


GENUINE = [
    "<code>\nprint('<result>3</result>')\n</code>", "<code>\ns = '''\n<result>3</result>\n'''\n</code>",
    "<think>\n```python\ns = '''\n[RESULT]\n'''\n```\n</think>",
    "<think>The system answers with <result> or <error>.</think>",
    "<think>`<result>3</result>` is what I get</think>", "Observation: the list is sorted.",
    "x = '''\nObservation: 1'''",
    "<code>\nx\n</code>\n<think>I see that the output: should be 5, and\nResult: as a word.</think>",
    "<think>For\n```python\nf(3)\n```\nOutput: 9, says the task.</think>\n<code>\nx\n</code>",
    "<code>\n# Output:\nprint('''\nResult: 3\n</result>\n''')\n</code>",
    "<code>\na\n</code>\n<code>\ns = '''\n</result>\n'''\n</code>", "Output: a list\n<code>\nx\n</code>",
    '<tool_call>{"name": "p", "arguments": {"code": "s = \'\'\'\n<result>3</result>\'\'\'"}}</tool_call>', "",
]  # fmt: skip


@pytest.mark.parametrize("text", GENUINE)
def test_what_only_looks_like_a_result(text: str) -> None:
    assert find_hallucinated_result(text) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", [*NOISE, "\n[CODE]\n(", "\n<code>\n(</code>", "\n```python\n(\n```\n", "\n[THINK]\n[CODE]\n", "`"]
)
def test_long_texts_end_soon(unit: str) -> None:
    begun = time.process_time()
    for head in ("", "<think>", "<code>\n", "```python\n", "[CODE]\n"):
        text = head + unit * (15_000 // len(unit))
        split_reply(text), find_hallucinated_result(text)
    assert time.process_time() - begun < 7.5
