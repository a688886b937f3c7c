"""Python in a shell that only reads files and prints, and all that looks like it."""

from __future__ import annotations

import time

import pytest

from foretrace.actions.call_facts import CallKind
from foretrace.actions.python_reads import only_reads_files
from foretrace.actions.python_rules import classify_cell, classify_inline_python
from foretrace.actions.taxonomy import Effect

READS = [
    "import json\nd = json.load(open('a.json'))\nprint(d['x'], list(d)[:3])",
    "import json\nwith open('a.json') as f:\n    d = json.load(f)\nfor k, v in d.items():\n    print(k, len(v))",
    "import json, sys\nprint(json.dumps(json.load(open(sys.argv[1])), indent=2), file=sys.stderr)",
    "from pathlib import Path\nfor p in sorted(Path('.').glob('*.py')):\n    print(p, p.read_text(newline='')[:5])",
    "import csv\nrows = list(csv.DictReader(open('a.csv', newline='')))\nprint(max(rows, key=len), f'{len(rows)}')",
    "import tomllib\nprint(tomllib.load(open('pyproject.toml', 'rb'))['project']['name'])",
    "import json as j\nfrom collections import Counter\n"
    "def kinds(d):\n    return Counter(x['kind'] for x in d)\nprint(kinds(j.load(open('a.json'))).most_common(3))",
]
NO_READS = [
    "import json\njson.load(open('a.json'))",  # tells only whether it parses
    "import json\nprint(json.loads('{}'))",
    "import json\nd = json.load(open('a.json'))\nassert d\nprint(d)",
    "import json\nprint(json.load(open('a.json')) == {})",
    "import json, sys\nprint(json.load(open('a.json')))\nsys.exit(1)",
    "import json\ntry:\n    print(json.load(open('a.json')))\nexcept ValueError as e:\n    print(e)",
    "import json\nprint(json.load(open('a.json')))\nraise SystemExit(1)",
    "import pickle\nprint(pickle.load(open('a.pkl', 'rb')))",
    "import yaml\nprint(yaml.load(open('a.yml')))",
    "import shop\nprint(open('a').read(), shop.price())",
    "import os\nprint(open('a').read())\nos.truncate('a', 0)",
    "import subprocess\nprint(open('a').read())\nsubprocess.run(['rm', 'a'])",
    "print(open('a').read())\nexec(open('b').read())",
    "print(open('a').read())\ngetattr(__import__('os'), 'remove')('a')",
    "from pathlib import Path\nprint(Path('a').read_text())\nPath('a').unlink()",
    "from pathlib import Path\nprint(Path('a').read_text())\nPath('a').touch()",
    "from pathlib import Path\nprint(Path('a').open('w'))",
    "from pathlib import Path\nprint(Path('a').read_text())\nPath('a').replace('b')",
    "print(open('a', 'r+').read())", "m = 'w'\nprint(open('a', m))", "print(open('a', **{'mode': 'w'}))",
    "print(open(*['a', 'w']))", "print(open('a').read())\nprint(*map(open, ['b']))",
    "import json\nf = json\nprint(f.load(open('a')))", "import json as print\nprint(open('a'))",
    "import json\njson.load = print\nprint(json.load(open('a')))", "open = print\nprint(open('a'))",
    "print(open('a').read(), file=open('b', 'w'))", "print(sorted(open('a'), key=exec))",
    "import json\nprint(json.load(open('a'), object_hook=exec))", "from json import load as open\nprint(open('a'))",
    "@exec\ndef f():\n    pass\nprint(open('a').read())", "class A:\n    pass\nprint(open('a').read())",
    "print(open('a').read())\nprint.__self__.exec('1')", "print(open('a').read())\n[f for f in [exec]][0]('1')",
    "from .json import load\nprint(load(open('a')))",
    "import sys\nprint(open('a').read())\nsys.modules['os'].remove('a')",
]  # fmt: skip


@pytest.mark.parametrize("code", READS)
def test_reads(code: str) -> None:
    facts = classify_inline_python(code)
    assert (facts.kind, facts.effect) == (CallKind.READ, Effect.PURE_READ)


@pytest.mark.parametrize("code", NO_READS)
def test_no_reads(code: str) -> None:
    assert not only_reads_files(code)
    assert classify_inline_python(code).effect is not Effect.PURE_READ


def test_cells() -> None:
    def find(code: str) -> Effect:
        return classify_cell(code, lambda _: None).effect

    assert find("open('a').read()") is Effect.PURE_READ
    assert find("import os\nprint(open('a').read())\nos.truncate('a', 0)") is Effect.SANDBOX_EXEC


@pytest.mark.parametrize(
    "code",
    [
        "import inspect, shop\nprint(inspect.getsource(shop.pay))\nshop.pay()",
        "import sqlite3\nc = sqlite3.connect('a')\nprint(c.execute('SELECT * FROM users').fetchall())\nwipe(c)",
        "import sqlite3\nc = sqlite3.connect('a')\nc.execute('SELECT * FROM users')\nc.execute('DELETE FROM users')",
        "import os\nprint(os.__file__)\ngetattr(os, 'remove')('a')",
    ],
)
def test_no_other_lookup_with_more_in_it_is_a_pure_read(code: str) -> None:
    assert classify_inline_python(code).effect is not Effect.PURE_READ


def test_long_code_takes_linear_time() -> None:
    for piece in ("print(open('a').read())\n", "x = [x]\n", "(" * 50 + ")" * 50 + "\n", "f(" * 20, "a.b\n", "-"):
        before = time.perf_counter()
        only_reads_files(piece * (200_000 // len(piece)))
        only_reads_files(piece * (29_000 // len(piece)))
        assert time.perf_counter() - before < 3, piece
