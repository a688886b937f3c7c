"""Tests as people write them for pytest, in a sandbox that has none: what pytest itself says is the oracle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.judge_fixture import Judge

TESTS = """import pytest
seen = []
@pytest.fixture
def stack():
    made = Stack()
    made.push(1)
    yield made
    seen.append(len(made))
@pytest.fixture(params=[2, 3], ids=str)
def count(request):
    return request.param
@pytest.fixture(scope='module')
def shared():
    return Stack()
@pytest.fixture(autouse=True)
def noted():
    seen.append('begin')
@pytest.fixture
def filled(stack, count):
    for n in range(count):
        stack.push(n)
    return stack
def test_pop(stack):
    assert stack.pop() == 1 and len(stack) == 0
def test_many(filled, count):
    assert len(filled) == count + 1
@pytest.mark.parametrize('n', [pytest.param(1, id='one'), 4])
@pytest.mark.slow
def test_push(stack, n):
    stack.push(n)
    assert stack.pop() == n
@pytest.mark.timeout(5)
class TestShared:
    @pytest.fixture
    def own(self):
        return 7
    def setup_method(self):
        self.base = 1
    def test_own(self, own, shared):
        shared.push(own + self.base)
    @pytest.mark.parametrize('n', [1, 2])
    def test_more(self, shared, n):
        assert shared.pop() == 8
        shared.push(8)
def test_folder(tmp_path):
    (tmp_path / 'a.txt').write_text('hi')
    assert load(tmp_path / 'a.txt') == ['h', 'i']
def test_printed(capsys):
    Stack().show()
    assert capsys.readouterr().out == '[]\\n' and capsys.readouterr().out == ''
def test_patched(monkeypatch):
    monkeypatch.setenv('KIND', 'deep')
    monkeypatch.setattr('time.time', lambda: 5.0)
    monkeypatch.setattr(Stack, 'limit', 1)
    assert describe() == ('deep', 5.0, 1)
def test_unpatched():
    assert describe()[0] == 'flat' and describe()[1] > 5 and describe()[2] == 9
def test_seen():
    assert seen.count('begin') > 9 and 0 in seen and 3 in seen and 4 in seen
"""
RIGHT = """import os, time
class Stack:
    limit = 9
    def __init__(self):
        self.items = []
    def push(self, item):
        self.items.append(item)
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
    def show(self):
        print(self.items)
def load(path):
    return list(path.read_text())
def describe():
    return os.environ.get('KIND', 'flat'), time.time(), Stack.limit
"""
MUTANTS = {
    "another order": ("append(item)", "insert(0, item)"),
    "another line end": ("print(self.items)", "print(self.items, end='')"),
    "no environment": ("os.environ.get('KIND', 'flat')", "'flat'"),
    "no clock": ("time.time()", "6.0"),
    "no limit": ("Stack.limit", "9"),
}


def passes_with_pytest(code: str, folder: Path) -> bool:
    file = folder / "test_case.py"
    file.write_text(code + TESTS, encoding="utf-8")
    flags = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-c", str(folder / "none.ini")]
    (folder / "none.ini").write_text("[pytest]\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", *flags, str(file)], capture_output=True, cwd=folder)
    return done.returncode == 0


def test_fixtures_cases_and_marks_are_those_of_pytest(judged: Judge, tmp_path: Path) -> None:
    assert passes_with_pytest(RIGHT, tmp_path)
    verdict = judged(RIGHT, TESTS, entry_point="Stack")
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", MUTANTS)
def test_what_fails_with_pytest_fails(judged: Judge, tmp_path: Path, name: str) -> None:
    code = RIGHT.replace(*MUTANTS[name])
    assert not passes_with_pytest(code, tmp_path)
    assert not judged(code, TESTS, entry_point="Stack").passed
