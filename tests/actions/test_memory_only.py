"""Code that can change nothing but memory: what is not known to be so is not."""

from __future__ import annotations

import pytest

from foretrace.actions.memory_only import changes_memory_only

HARMLESS = (
    "x = [1]\nx.append(2)\nprint(sorted(x, key=abs))",
    "import math, collections.abc\nfrom functools import cache\nprint(math.floor(2.5))",
    "class A:\n    def __init__(self):\n        super().__init__()\n        self._x = 1",
    "import time\ntime.sleep(0.1)", "from __future__ import annotations\n'open'.upper()",
    "from typing import Any, Optional\nx: Optional[Any] = None\nfor _ in range(2):\n    print(__name__)",
)  # fmt: skip
HARMFUL = (
    "open('f', 'w')", "o = open", "import os", "import os.path as p", "import os as q\nq.mkdir('f')",
    "from json.tool import Path\nPath('f').write_text('x')", "import enum\nenum.bltns.exec('x')",
    "from enum import bltns", "import dataclasses\ndataclasses.inspect.importlib.import_module('x')",
    "import operator\noperator.attrgetter('inspect.x')",
    "import string\nstring.Formatter().get_field('0.inspect.x', (string,), {})",
    "import dataclasses\nmatch dataclasses:\n    case object(inspect=i):\n        i.x",
    "import typing\ntyping.get_type_hints(x)", "from typing import get_type_hints",
    "from functools import singledispatch", "_io.FileIO('f', 'w')", "help()", "from pathlib import Path",
    "from random import _os", "from math import *", "from . import x", "import random\nrandom._os.remove('f')",
    "import json\njson.codecs.open('f', 'w')", "exec('x')", "getattr(x, 'y')", "print.__self__",
    "[c for c in ().__class__.__base__.__subclasses__()]", "def f(:", "\0",
)  # fmt: skip


@pytest.mark.parametrize("code", HARMLESS)
def test_code_of_known_names_changes_memory_only(code: str) -> None:
    assert changes_memory_only(code)


@pytest.mark.parametrize("code", HARMFUL)
def test_code_that_may_reach_a_file_does_not(code: str) -> None:
    assert not changes_memory_only(code)
