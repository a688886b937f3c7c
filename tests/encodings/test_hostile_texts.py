"""Texts made to be read again and again: every encoding reads them once. Quadratic reading would take a minute."""

from __future__ import annotations

import re
from typing import Any

import pytest

from foretrace.encodings.base import find_at
from foretrace.encodings.calls_in_text import find_calls
from foretrace.encodings.table import ENCODINGS

n = 40_000


@pytest.mark.parametrize(
    "text",
    [
        '<|tool_call_begin|>a<|tool_call_argument_begin|>x'+' '*n,
        '<|tool_call_begin|>a<|tool_call_argument_begin|>{"'*(n//20),
        '''<functioncall>{"name":"a","arguments":'{}'''*(n//10),
        '''<functioncall>{"name":"a","arguments":'{"a": "'''*(n//10),
        '[TOOL_CALLS]['+'1,'*n+'1]',
        '[TOOL_CALLS]['+'{"name":"a"} , '*(n//4)+'{"name":"b"',
        '[TOOL_CALLS][{"name":'*(n//8),
        '<|python_tag|>a.call('*(n//8),
        '\n[TOOL_CALLS]a{'*(n//8),
        '<tool_calls>[[1,'*(n//8),
        '{"'*n,
        '{"a\\"'*n,
        '{"keystrokes":'*(n//8),
        '{"","'*n,
        '{"a":"{",'*n,
        '<read_file>\n'*n,
        '<read_file>\n<path>'+'</path>x'*n,
        '<read_file><path>'+('</path>'+' '*50)*(n//8)+'x</read_file>',
        '<read_file>'+''.join(f'<a{i}></a{i}>' for i in range(n//4))+'</read_file>',
        '[a('+'('*20000+')]',
        '['+' '*n+')]',
        '[TOOL_CALLS][{"name":"a"}]'+'` '*n,
        '[TOOL_CALLS][{"name":"a"}]`'*(n//20),
        '[TOOL_CALLS][{"name":"a"}]\n'+'```a\n'*n,
        '[TOOL_CALLS][{"name":"a"}]'+''.join('`'*(i%300)+' ' for i in range(2000)),
        '[TOOL_CALLS][{"name":"a"}]\n'+('\n'+' '*100)*(n//50),
        '<tool_call>\n<function=f>\n<parameter=p>\na\n</parameter>\n</function>\n</tool_call>\n'*(n//60),
        '<tool_call>f<arg_key>a</arg_key><arg_value>'*(n//40),
        '<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value>'*(n//50),
        '<tool_call><function=a>'*(n//20),
        '<tool_call><function=a><parameter=x>'*(n//30),
    ],
    ids=lambda text: repr(text[:40]),
)  # fmt: skip
def test_hostile_texts_are_read_in_linear_time(text: str) -> None:
    readers: list[Any] = [find_calls, *(encoding.parse for encoding in ENCODINGS.values())]
    for reader in readers:
        assert isinstance(reader(text), list)


def test_a_text_is_given_up_after_enough_beginnings_without_a_call() -> None:
    tried: list[int] = []
    find = find_at(re.compile("<"), lambda text, match: tried.append(match.start()), most_failed=3)
    assert list(find("<" * 9)) == [] and tried == [0, 1, 2]
