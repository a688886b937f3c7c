"""Known code in JSON that is damaged as models damage it: read as it was meant, or refused, and never otherwise."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import random
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.trace import ToolCall
from foretrace.encodings.code_calls import read_code_calls
from foretrace.encodings.json_calls import TOOL_CALL_JSON

SNIPPETS = [
    "x = 1", "print(sum(range(10)))", "import math\nprint(math.pi)", 'print("a\\nb")', "print('a\\nb')",
    'print("a\\\\nb")', "print('a\\\\nb')", "s = 'a\\nb'\nprint(s)", "s = 'a\\\\nb'\nprint(s)",
    's = "tab\\there"\nprint(repr(s))', 'path = "C:\\\\new\\\\table"\nprint(path)',
    "path = r'C:\\new\\table'\nprint(path)", "path = 'C:/new/table'",
    'import re\nprint(re.findall(r"\\d+\\s*\\w", "12 a"))', "import re\nprint(re.sub(r'\\\\+', '/', 'a\\\\b'))",
    'import re\nPATTERN = re.compile(r"(?P<a>[\\"\'])(.*?)\\1")', "import re\nprint(re.split('[\\\\/]', 'a/b'))",
    'name = "Ann"\nprint(f"Hi {name!r}, {len(name):>5}")', "d = {'a': 1}\nprint(f\"{d['a']}\")",
    'print(f"{{literal}} {1 + 1}")', 'def f():\n    """A docstring with "quotes" in it."""\n    return 1',
    "def f():\n    '''It's one.\n\n    Two.'''\n    return 2", 'def f():\n    r"""Raw \\d and \\n."""\n    return 3',
    'def f(x):\n    """\n    >>> f("a\\\\nb")\n    """\n    return x',
    'import json\nprint(json.loads(\'{"a": [1, 2, {"b": "c"}]}\'))',
    'data = {"code": "print(1)", "name": "x"}\nprint(data["code"])',
    'text = \'{"name": "python", "arguments": {"code": "x = 2"}}\'\nprint(len(text))', 'print("café ☃ 🎉")',
    "π = 3.14\nprint(π)", 's = "\\u00e9\\U0001f389"\nprint(s)', "print('日本語'.encode('utf-8'))",
    'print("</tool_call>")', "x = '<tool_call>' + '</tool_call>'",
    "t = '<tool_call>{\"name\": \"python\", \"arguments\": {\"code\": \"x = 1\"}}</tool_call>'\nprint(t)",
    "if 1 < 2 and 3 > 2:\n    print('<b>' + '</b>')", "html = '<div class=\"a\">\\n</div>'\nprint(html)",
    "a = 1 << 3\nb = a >> 1", "# a comment first\nx = 1\nprint(x)", "x = 1  # trailing: \"quoted\"\ny = 2",
    "import os  # don't\nprint(os.sep)", "x = 5  # split on \\n", "x = [\n    1,\n    2,\n]\nprint(x)",
    "total = 1 + \\\n    2\nprint(total)", "lambda_ = lambda a, b=1: a + b\nprint(lambda_(1))",
    "class A:\n    x: int = 0\n\n    def m(self) -> 'A':\n        return self",
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    print(f'{e}')",
    "with open('f.txt', 'w') as f:\n    f.write('a\\n')", "for i in range(3):\n\tprint(i)",
    "x = ''\ny = \"\"\nprint(x + y)", 'x = """a\nb"""\nprint(x)', 'x = """a\\nb"""', "print('it\\'s')",
    'print("say \\"hi\\"")', "print('\\'', '\"', \"\\\\\")", "print('\\x41\\101')", "print('\\0' + '\\r\\n')",
    'assert "a" "b" == "ab"', "print(b'\\x00\\xff')", "md = '''\n```python\nx = 1\n```\n'''\nprint(md)",
    "print('```')", "x = {1: '}', 2: ']'}", 'print("}}")',
    "rows = [','.join(r) for r in [['a', 'b']]]\nprint('\\n'.join(rows))",
    'print("\\t".join(["a", "b"]), end="\\n\\n")',
    "def g(n):\n    return n if n < 2 else g(n - 1) + g(n - 2)\n\n\nprint(g(10))", 'print("%s\\\\%s" % ("a", "b"))',
    "s = 'x'; t = \"y\"", "match [1, 2]:\n    case [a, b]:\n        print(a, b)", "x = '\\\\'",
    'x = "\\\\"\nprint("\\\\\\\\")', "print('a', \"b\", '''c''', \"\"\"d\"\"\")",
    "import string\nprint(string.Template('$a').substitute(a=1))", "@property\ndef p(self):\n    return '\"\"\"'",
]  # fmt: skip

TEXTS = ["a", "a\n", "\t", "it's", '"q"', "\\", "\\n", "\\d+"]
TEXTS += ["é", "🎉", "</tool_call>", "{}", '{"a": 1}', "```", "#", ",", "'''"]
COMMENTS = ["why", "it is", "e.g. f(1)", "don't"]


def made_code(pick: random.Random) -> str:
    """Code of random statements whose strings hold what is hard to escape."""

    def string() -> str:
        value = "".join(pick.choices(TEXTS, k=pick.randint(1, 3)))
        forms = [repr(value), json.dumps(value, ensure_ascii=pick.random() < 0.3), repr(value)]
        if '"""' not in value and "\\" not in value and not value.endswith('"'):
            forms.append(f'"""{value}"""')
        return pick.choice(forms)

    forms: list[Callable[[], str]] = [
        lambda: f"x = {string()}", lambda: f"print({string()}, {string()})", lambda: "# " + pick.choice(COMMENTS),
        lambda: f"def f(a={string()}):\n    return a + {string()}", lambda: f"x = [{string()}]  # note",
        lambda: "import re",
        lambda: f"if 1 < 2:\n    y = {{{string()}: {string()}}}", lambda: f"re.sub(r'\\s+', {string()}, {string()})",
    ]  # fmt: skip
    return "\n".join(pick.choice(forms)() for _ in range(pick.randint(1, 5))) + pick.choice(["", "\n", "\nz = 0"])


def as_string(value: Any) -> Any:
    return {**value, "arguments": json.dumps(value["arguments"])} if isinstance(value.get("arguments"), dict) else value


def real_newlines(body: str) -> str:
    return re.sub(r"(?<!\\)((?:\\\\)*)\\n", "\\1\n", body)


ESCAPE = re.compile(r"\\(.)")


def unescaped(which: str, to: str) -> Callable[[str], str]:
    """JSON text in which one kind of escape was not written."""
    return lambda body: ESCAPE.sub(lambda m: to if m[1] == which else m[0], body)


def with_tabs(code: str) -> str:
    """Code that is indented with tabs, if it means the same."""
    tabbed = re.sub(r"(?m)^(?:    )+", lambda m: "\t" * (len(m[0]) // 4), code)
    return tabbed if meaning(tabbed) == meaning(code) is not None else code


def more_arguments(value: Any) -> Any:
    if not isinstance(value.get("arguments"), dict):
        return value
    return {**value, "arguments": {"language": "python", **value["arguments"], "timeout": 10}}


def drop_last_brace(body: str) -> str:
    return body[: body.rindex("}")] + body[body.rindex("}") + 1 :] if "}" in body[-8:] else body


DAMAGES: dict[str, list[tuple[str, Any]]] = {
    "fence": [("code", lambda code: f"```python\n{code}\n```")],
    "bare_fence": [("code", lambda code: f"```\n{code}\n```\n")],
    "nested": [("value", lambda v: {"name": "python", "arguments": v})],
    "function": [("value", lambda v: {"type": "function", "function": v})],
    "parameters": [("value", lambda v: {"name": "python", "parameters": v["arguments"]} if "arguments" in v else v)],
    "arguments_string": [("value", as_string)],
    "pretty": [("dump", lambda v: json.dumps(v, indent=2, ensure_ascii=False))],
    "ascii": [("dump", json.dumps)],
    "python_dict": [("dump", repr)],
    "newlines": [("body", real_newlines)],
    "naive_newlines": [("body", lambda body: body.replace("\\n", "\n"))],
    "trailing_comma": [("body", lambda body: re.sub(r"\}(\s*)\}$", r"},\1}", body))],
    "inner_trailing_comma": [("body", lambda body: re.sub(r'(["\'])(\s*\}\s*\})$', r"\1,\2", body))],
    "missing_brace": [("body", drop_last_brace)],
    "extra_brace": [("body", lambda body: body + "}")],
    "json_fence": [("body", lambda body: f"```json\n{body}\n```")],
    "single_backslashes": [("body", unescaped("\\", "\\"))],
    "bare_quotes": [("body", unescaped('"', '"'))],
    "crlf": [("code", lambda code: code.replace("\n", "\r\n"))],
    "crlf_newlines": [("body", lambda body: real_newlines(body).replace("\n", "\r\n"))],
    "tabs": [("code", with_tabs), ("body", unescaped("t", "\t"))],
    "triple_quotes": [("quotes", '"""')],
    "reordered": [("value", lambda v: dict(reversed(v.items())))],
    "more_arguments": [("value", more_arguments)],
    "missing_close_tag": [("close", "")],
    "single_quotes": [("body", lambda body: re.sub(r'"(name|arguments|code|python)"', r"'\1'", body))],
    "missing_both": [("body", drop_last_brace), ("close", "")],
}
"""Damage -> what it changes on the way from code to the text of a call: the code, the value of the call, how that is
dumped, the dumped body, the quotes around its code, the closing tag."""


def damaged(code: str, *damages: str) -> str:
    """The text of a call with this code."""
    changes = [change for name in damages for change in DAMAGES[name]]
    for stage, change in changes:
        code = change(code) if stage == "code" else code
    value: Any = {"name": "python", "arguments": {"code": code}}
    for stage, change in changes:
        value = change(value) if stage == "value" else value
    settings = dict(changes)
    body = settings.get("dump", lambda value: json.dumps(value, ensure_ascii=False))(value)
    for stage, change in changes:
        if stage == "body":
            body = change(body)
        elif stage == "quotes":
            body = body.replace(json.dumps(code, ensure_ascii=False), f"{change}{code}{change}")
    return f"<tool_call>\n{body}" + settings.get("close", "\n</tool_call>")


def code_of(call: ToolCall) -> str:
    """The code of a call; empty if it was refused."""
    return json.loads(call.arguments).get("code", "")


@functools.lru_cache(maxsize=4096)
def meaning(code: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.dump(ast.parse(code))
        except (SyntaxError, ValueError):
            return None


def outcome(code: str, damages: tuple[str, ...]) -> str:
    """What became of code; what is not Python when it is read runs nothing, and its error is shown to the model."""
    true = meaning(code)
    assert true is not None, code
    calls = read_code_calls(damaged(code, *damages), truncated=False)
    accepted = [c for c in calls if c.error is None and meaning(code_of(c)) is not None]
    if len(accepted) > 1 or any(meaning(code_of(c)) != true for c in accepted):
        # as JSON, `'a\tb'` with a backslash that was not doubled is other code, and so is a line that ends twice
        is_anothers = "single_backslashes" in damages or {"crlf", "crlf_newlines"} == {*damages}
        return "other code's text" if len(accepted) == 1 and is_anothers else "wrong"
    if accepted:
        assert accepted[0].name == "python"
        return "exact" if code_of(accepted[0]).strip() == code.strip() else "same meaning"
    return "refused"


PAIRS: list[tuple[str, ...]] = [(), *((name,) for name in DAMAGES), *itertools.permutations(DAMAGES, 2)]


def test_rates() -> None:
    """The bar for each damage alone: nothing is executed wrongly, and most is recovered from."""
    counts = Counter(outcome(code, (name,)) for code in SNIPPETS for name in DAMAGES)
    assert not counts["wrong"], counts
    assert counts["exact"] + counts["same meaning"] > 0.87 * counts.total(), counts


@given(
    st.integers(0, 2**32).map(lambda seed: made_code(random.Random(seed)))
    | st.text(max_size=60).map("x = 1\nprint({!r})\n".format),
    st.sampled_from(PAIRS),
)
def test_never_wrong(code: str, damages: tuple[str, ...]) -> None:
    assert meaning(code) is None or outcome(code, damages) != "wrong", (code, damages)


@pytest.mark.parametrize("damage", ["newlines", "trailing_comma", "python_dict", "missing_brace", "pretty"])
def test_several_calls(damage: str) -> None:
    """In order, whichever of them is damaged; spans are those of the calls."""
    for first, second in itertools.pairwise(SNIPPETS):
        one, two = damaged(first, damage), damaged(second)
        text = f"<think>I try <tool_call> twice.\n{one}\nAnd:\n{two} done"
        calls = read_code_calls(text, truncated=False)
        if calls[0].error is None:
            assert len(calls) == 2 and meaning(code_of(calls[0])) == meaning(first)
            alone = read_code_calls(two, truncated=False)[0]
            assert (code_of(calls[1]), calls[1].error) == (code_of(alone), alone.error)
            assert [text[slice(*c.span)] for c in calls] == [one, two]
        else:
            assert all(c.error or meaning(code_of(c)) == meaning(second) for c in calls), (first, second)


@pytest.mark.parametrize("damage", [(), ("newlines",), ("python_dict",), ("trailing_comma",), ("arguments_string",)])
def test_a_cut_call_is_never_executed(damage: tuple[str, ...]) -> None:
    """Cut anywhere and said to be: refused. Cut anywhere and not said to be: refused or whole."""
    for code in SNIPPETS[::3]:
        text = damaged(code, *damage)
        for end in range(len("<tool_call>\n{"), len(text)):
            for truncated in (True, False):
                for call in read_code_calls(text[:end], truncated=truncated):
                    assert call.error or (not truncated and meaning(code_of(call)) == meaning(code)), text[:end]


RARE = [
    'def g():\n    r"""Raw \\d.\n\n    More \\n here.\n    """\n    return "a\\n"', "x = 'a\\\nb'\nprint('a\\nb')",
    "x = 'abc\\\ndef'\ntotal = 1 + \\\n    2\n", 'x = """\\\na\n"""\nprint("a\\n")', "# use \\\\n here\nprint('a\\n')",
    "# C:\\\nx = 1\nprint('\\\\')", "print('a\\n')\nx = r'\\u00e9'", "print('\\d')\nx = r'é\\n'",
    "x = r\"'\\''\"\ny = '\\d'",
    "x = r'{\"k\": 1}\\d'\ny = '\\n'", 'x = "\\r\\n"\ny = 1', "# a\nx = r'''\x1b[0m\nb'''",
    "t = r\"</tool_call>\"\nx = 1 + \\\n    2", 'print("\\"")\nx = 1 + \\\n    2\nprint("\\"")',
    'for i in x:\n    print(i, "}}")\nprint("a\\\\b")',
    "# its f(1)\ndef f(a, b=r\"'\\''\"):\n    '''\\\\n'''\n    return a.split('\\n')",
]  # fmt: skip
"""Line breaks, escapes and quotes where most code has none."""


@pytest.mark.parametrize("code", RARE)
def test_rare_code_is_never_read_otherwise(code: str) -> None:
    """Under each damage alone, and under each two of those that change how code is escaped."""
    escapes = ["single_backslashes", "crlf", "newlines", "naive_newlines", "ascii"]
    for damages in [*((name,) for name in DAMAGES), *itertools.permutations(escapes, 2)]:
        assert outcome(code, damages) != "wrong", (code, damages)


def only(text: str) -> ToolCall:
    (call,) = read_code_calls(text, truncated=False)
    return call


def test_a_call_without_damage_is_the_encodings_own() -> None:
    body = '<tool_call>\n{"name": "python", "arguments": {"code": "x = 1e3", "t": 1.50}}\n</tool_call>'
    call = only(f"go {body}")
    assert (call.name, code_of(call), call.repairs, call.error) == ("python", "x = 1e3", (), None)
    assert call.arguments == '{"code": "x = 1e3", "t": 1.50}' == TOOL_CALL_JSON.parse(body)[0].arguments
    assert call.span == (3, 3 + len(body))


REPAIRED = {
    '{"name": "p", "arguments": {"code": "print(\\"a\\")\nx = 1"}}': ("print(\"a\")\nx = 1", {"control_characters"}),
    '{"name": "p", "arguments": {"code": "```py\\nx = 1\\n```"}}': ("x = 1", {"fence"}),
    '{"name": "p", "arguments": "{\\"code\\": \\"x = 1\\"}"}': ("x = 1", {"arguments_string"}),
    '{"name": "p", "arguments": {"input": {"code": "x = 1"}}}': ("x = 1", {"nested"}),
    "{'name': 'p', 'arguments': {'code': 'x = 1'}}": ("x = 1", {"json_repair"}),
    '{"name": "p", "arguments": {"code": "x = 1",}}': ("x = 1", {"json_repair"}),
    '{"name": "p", "arguments": {"code": "x = 1"}': ("x = 1", {"json_repair"}),
    '{"name": "p", "arguments": {"code": "x = 1"}}}': ("x = 1", {"json_repair"}),
    '{"name": "p", "arguments": {"code": "re.findall(\'\\d\', s)"}}': ("re.findall('\\d', s)", {"json_repair"}),
    '{"name": "p", "parameters": {"code": "x = 1"}}': ("x = 1", {"nested"}),
}  # fmt: skip


@pytest.mark.parametrize("body", REPAIRED)
def test_each_repair_is_named(body: str) -> None:
    code, repairs = REPAIRED[body]
    call = only(f"<tool_call>{body}</tool_call>")
    assert (code_of(call), set(call.repairs), call.error, call.name) == (code, repairs, None, "p")


REFUSED = {
    '{"name": "p", "arguments": {"code": "x"}} and {"code": "y"}': "text between",
    '{"name": "p", "arguments": {"code": "print("}}")"}}': "text between",
    '{"name": "p", "arguments": {"path": "x"}}': "no 'code'",
    '{"name": "p", "arguments": {"code": "x = \\"\\ud83d\\""}}': "arguments are not JSON",
    '{"name": "p", "arguments": {"code": ""}}': "empty",
    '{"name": "p", "arguments"': "no 'code'",
    '{"name": "p", "arguments": {"code": "x", "code": "y"}}': "more than once",
    '{"name": "p", "arguments": {"code": """print("a")\nx = 1"""}}': "not JSON",
    '{"name": "p", "arguments": {"code": "print(s.split(\'\\\'))"}}': "not JSON",
    '{"name": "p", "arguments": {"code": "re.findall(r\'\\bfoo\\b\', s)"}}': "control characters",
    '[{"name": "p", "arguments": {"code": "x"}}, {"name": "q", "arguments": {}}]': "several calls",
}


@pytest.mark.parametrize("body", REFUSED)
def test_what_cannot_be_told_is_refused(body: str) -> None:
    call = only(f"<tool_call>{body}</tool_call>")
    assert not code_of(call) and REFUSED[body] in str(call.error)


@pytest.mark.parametrize("code", ["print('a\\nb')", "x = 1\\ny = 2", "# why\\nprint(1)", 'print(\\"a\\")'])
def test_no_escape_is_guessed(code: str) -> None:
    """What the JSON says is what is run: the model sees what Python says of it."""
    call = only(f"<tool_call>{json.dumps({'name': 'p', 'arguments': {'code': code}})}</tool_call>")
    assert (code_of(call), call.repairs, call.error) == (code, (), None)


def test_the_models_own_mistake_is_its_own() -> None:
    """Well-formed JSON with code that is not Python: to be executed, so that the model sees the error."""
    call = only('<tool_call>{"name": "p", "arguments": {"code": "x = (1\\nprint(\\"a\\")"}}</tool_call>')
    assert (code_of(call), call.repairs, call.error) == ('x = (1\nprint("a")', (), None)


def test_after_a_call_without_a_clear_end_nothing_is_executed() -> None:
    good = damaged("x = 1")
    calls = read_code_calls(f'<tool_call>{{"name": "p", "arguments": {{"code": "x = \n{good}', truncated=False)
    assert calls and all(c.error and not code_of(c) for c in calls)


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", ["<tool_call>", '<tool_call>{"code": "', '"', "'", "\\", "\\n", "{", '{"code": "x"},', "```\n"]
)
def test_long_texts_end_soon(unit: str) -> None:
    begun = time.process_time()
    for head in ("", '<tool_call>{"name": "p", "arguments": {"code": "', "<tool_call>{'code': '"):
        for tail in ("", '"}}</tool_call>', "'}</tool_call>"):
            for size in (60_000, 300_000):
                read_code_calls(head + unit * (size // len(unit)) + tail, truncated=False)
    assert time.process_time() - begun < 30
