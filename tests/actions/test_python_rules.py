"""Python in a shell: what shows a file is told from what checks something, and never is a pure read."""

from __future__ import annotations

import pytest

from foretrace.actions.call_facts import CallKind
from foretrace.actions.python_rules import classify_inline_python
from foretrace.actions.taxonomy import Effect

READ, VERIFY = CallKind.READ, CallKind.VERIFY


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("import json\nd = json.load(open('a.json'))\nprint(d['x'], list(d)[:3])", READ),
        ("from pathlib import Path\nfor p in Path('.').glob('*.py'):\n    print(p, p.read_text()[:5])", READ),
        ("import json\njson.load(open('a.json'))", VERIFY),  # tells only whether it parses
        ("import json\nd = json.load(open('a.json'))\nassert d\nprint(d)", VERIFY),
        ("import json\nprint(json.load(open('a.json')) == {})", VERIFY),
        ("import json\ntry:\n    print(json.load(open('a')))\nexcept ValueError as e:\n    print(e)", VERIFY),
        ("import shop\nprint(open('a').read(), shop.price())", VERIFY),
        ("import subprocess\nprint(open('a').read())\nsubprocess.check_call(['rm', 'a'])", VERIFY),
    ],
)
def test_code_that_reads_a_file(code: str, kind: CallKind) -> None:
    facts = classify_inline_python(code)
    assert (facts.kind, facts.effect) == (kind, Effect.SANDBOX_EXEC)
