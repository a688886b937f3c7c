"""Small random programs, and tests of them: functions and classes from a grammar, none of which lies."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

_NUMBERS = ("+", "-", "*", "//", "%", "&", "|", "^")
_COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")


class Program(NamedTuple):
    code: str
    tests: list[str]


def make_program(choice: random.Random) -> Program:
    """A program with `f` and a class `C`, and tests that use either, with right and wrong expectations."""
    grammar = Grammar(choice)
    parts = [grammar.function(), grammar.own_class()]
    code = "\n".join(part.code for part in parts)
    return Program(code, [use for part in parts for use in choice.sample(part.uses, min(len(part.uses), 4))])


class _Part(NamedTuple):
    code: str
    uses: list[str]
    """Tests that use it."""


class Grammar:
    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.one_of: Callable[..., str] = lambda *options: choice.choice(options)

    def number(self, *names: str, depth: int = 0) -> str:
        """An expression whose value is an int, or that raises."""
        if depth > 2 or self.choice.random() < 0.3:
            return self.one_of(*names, *names, str(self.choice.randint(0, 9)))
        left, right = (self.number(*names, depth=depth + 1) for _ in range(2))
        if self.choice.random() < 0.7:
            return f"({left} {self.one_of(*_NUMBERS)} {right})"
        return self.one_of(
            f"({left} if {self.truth(*names)} else {right})",
            f"max({left}, {right})",
            f"abs({left})",
            f"sum(range({left} % 5))",
            f"len(str({left}))",
            f"int({left} / (1 + abs({right})))",
        )

    def truth(self, *names: str) -> str:
        return f"{self.number(*names, depth=2)} {self.one_of(*_COMPARISONS)} {self.number(*names, depth=2)}"

    def value(self, *names: str) -> str:
        """An expression of any type."""
        item, other = self.number(*names), self.number(*names)
        return self.one_of(
            item,
            f"[{item}, {other}]",
            f"({item}, {other})",
            f"{{{item}: {other}}}",
            f"{{{item}, {other}}}",
            f"str({item})",
            f"{item} / 4",
            self.truth(*names),
            f"[v * {item} for v in range(3)]",
            f"{{v: [v] * 2 for v in range({item} % 4)}}",
            f"(v for v in ({item}, {other}))",
            f"iter([{item}])",
            f"range({item} % 7)",
            f"'-'.join(map(str, ({item}, {other})))",
            f"sorted([{item}, {other}, 3], reverse=True)",
            f"dict(a={item}).items()",
            f"frozenset([{item}])",
            "None",
        )

    def block(self, *names: str) -> list[str]:
        """Statements that set `t`, an int, and give back something."""
        lines = [f"t = {self.number(*names)}"]
        for _ in range(self.choice.randint(0, 2)):
            change = f"t {self.one_of('+', '-', '^')}= {self.number('t', *names)}"
            lines += self.choice.choice(
                [
                    [change],
                    [f"for n in range({self.choice.randint(1, 4)}):", f"    {change}"],
                    [f"if {self.truth('t', *names)}:", f"    {change}", "else:", "    t -= 1"],
                    ["try:", f"    {change}", "except ZeroDivisionError:", "    t = -1"],
                    [f"if {self.truth('t', *names)}:", f"    raise {self.one_of('ValueError', 'KeyError')}(t)"],
                    [f"if {self.truth('t', *names)}:", f"    return {self.value('t', *names)}"],
                ]
            )
        return [*lines, f"return {self.value('t', *names)}"]

    def function(self) -> _Part:
        shape = self.choice.choice(["plain", "plain", "generator", "changes", "closure"])
        if shape == "changes":
            lines = ["def f(x, y=2):", f"    x[0:1] = [{self.number('y')}, {self.number('len(x)')}]", "    return x"]
            call = f"f([{self.choice.randint(0, 5)}, 7])"
            uses = [f"a = [1, 2]\nb = f(a, {self.choice.randint(0, 4)})\nassert a is b", f"assert {call}[1:] == [1, 7]"]
            return _Part("\n".join(lines), [*uses, *self.claims(call)])
        if shape == "generator":
            lines = ["def f(x, y=2):", "    for n in range(y % 4):", f"        yield {self.value('x', 'n')}"]
            call = f"f({self.arguments()})"
            uses = [f"assert len(list({call})) == {self.choice.randint(0, 3)}", f"g = {call}\nassert iter(g) is g"]
            return _Part("\n".join(lines), [*uses, *self.claims(f"list({call})"), *self.claims(f"next({call}, None)")])
        if shape == "closure":
            inner = self.value("x", "y", "k")
            lines = ["def f(x, y=2):", "    def g(k=1):", f"        return {inner}", "    return g"]
            return _Part("\n".join(lines), self.claims(f"f({self.arguments()})({self.choice.randint(0, 5)})"))
        body = [f"    {line}" for line in self.block("x", "y")]
        calls = [f"f({self.arguments()})" for _ in range(3)]
        return _Part("\n".join(["def f(x, y=2):", *body]), [use for call in calls for use in self.claims(call)])

    def own_class(self) -> _Part:
        key = self.choice.choice(["self.a", "(self.a, self.b)", "(self.b, self.a)", "self.a + self.b * 1000"])
        other = key.replace("self", "other")
        first, second = self.choice.randint(0, 9), self.choice.randint(0, 9)
        made, twin = f"C({first}, {second})", f"C({second}, {first})"
        grown, given = self.number("x", "self.b"), self.value("self.a", "x")
        changing = f"def m(self, x):\n        self.a += {grown}\n        return {given}"
        members = {
            changing: [
                *self.claims(f"{made}.m({self.choice.randint(0, 5)})"),
                f"c = {made}\nc.m(2)\nassert c.a == {self.choice.randint(0, 20)} or c.b == {second}",
            ],
            f"def __eq__(self, other): return isinstance(other, C) and {key} == {other}\n"
            f"    def __hash__(self): return hash({key})": [
                f"assert {made} == {made}",
                f"assert {made} {self.one_of('==', '!=')} {twin}",
                f"assert len({{{made}, {made}, {twin}}}) == {self.choice.randint(1, 3)}",
                f"assert {made} in [{twin}, {made}]",
                f"assert {made} != {first}",
            ],
            f"def __lt__(self, other): return {key} < {other}": [
                f"assert {self.one_of('', 'not ')}{made} < {twin}",
                f"assert [c.a for c in sorted([{made}, {twin}])] == {sorted([first, second])}",
                f"assert max({made}, {twin}).a == {max(first, second)}",
            ],
            "def __add__(self, other): return C(self.a + other.a, self.b + other.b)": [
                f"assert ({made} + {twin}).a == {first + self.choice.choice([first, second])}",
                f"c = {made}\nc += {twin}\nassert type(c) is C and c.b == {first + second}",
            ],
            "def __mul__(self, k): return C(self.a * k, self.b * k)\n    __rmul__ = __mul__": [
                f"assert ({made} * 3).b == {second * 3} == (3 * {made}).b",
                f"assert (2 * {made}).a == {first + self.choice.choice([first, 1])}",
            ],
            "def __abs__(self): return abs(self.a) + abs(self.b)": self.claims(f"abs({made})"),
            "def __len__(self): return self.a": [
                f"assert len({made}) == {self.choice.choice([first, second])}",
                f"assert {self.one_of('', 'not ')}{made}",
            ],
            "def __iter__(self): return iter((self.a, self.b))": [
                f"x, y = {made}\nassert (x, y) == {(first, self.choice.choice([first, second]))}",
                *self.claims(f"sorted({made})"),
            ],
            "def __getitem__(self, n): return (self.a, self.b)[n]": [
                f"assert {made}[{self.choice.randint(-2, 2)}] == {second}",
                f"assert {made}[0:2] == {(first, second)}",
            ],
            "def __contains__(self, x): return x in (self.a, self.b)": [
                f"assert {self.choice.choice([first, 77])} in {made}",
                f"assert {self.choice.choice([second, 78])} not in {made}",
            ],
            "def __repr__(self): return f'C({self.a}, {self.b})'": [
                *self.claims(f"repr({made})"),
                f"assert f'{{{made}}}' == 'C({first}, {second})'",
            ],
            f"def __call__(self, x): return {self.value('x', 'self.a')}": self.claims(f"{made}(3)"),
            f"@property\n    def p(self): return {self.value('self.a', 'self.b')}": self.claims(f"{made}.p"),
            f"@classmethod\n    def of(cls, x): return cls({self.number('x')}, x)": [
                f"assert isinstance(C.of(3), C) and C.of(3).b == {self.choice.randint(2, 3)}"
            ],
            "def __enter__(self): return self\n    def __exit__(self, *e): self.b = 99; return e[0] is KeyError": [
                f"c = {made}\nwith c as d:\n    assert d is c\nassert c.b == {self.choice.choice([99, second])}",
                f"c = {made}\nwith c:\n    {{}}[{first}]\nassert c.b == 99",
            ],
        }
        chosen = self.choice.sample(list(members), self.choice.randint(1, 5))
        head = "class C:\n    def __init__(self, a, b=1): self.a, self.b = a, b"
        uses = [use for member in chosen for use in members[member]] + [f"assert {made}.a == {first}"]
        if self.choice.random() < 0.2:  # what it lacks
            uses.append(self.choice.choice([use for uses_ in members.values() for use in uses_]))
        return _Part("\n".join([head, *(f"    {member}" for member in chosen)]), uses)

    def arguments(self) -> str:
        return ", ".join(str(self.choice.randint(-4, 9)) for _ in range(self.choice.randint(1, 2)))

    def claims(self, call: str) -> list[str]:
        """Asserts about what a call gives. `EXPECT(...)` stands for what plain Python gives for it."""
        wrong = self.choice.random() < 0.2
        expected = f"EXPECT({call})" if not wrong else self.value("1", "2")
        return [
            f"assert {call} == {expected}",
            f"r = {call}\nassert r == {expected}",
            f"assert not {call} != {expected}",
            f"assert [{call}] == [{expected}]",
            f"assert type({call}) is type({expected})",
            f"assert repr({call}) == repr({expected})",
            f"assert bool({call}) is bool({expected})",
            f"try:\n    r = {call}\nexcept (ValueError, KeyError) as error:\n    assert error.args[0] == "
            f"{self.choice.randint(-2, 9)}\nelse:\n    assert r == {expected}",
            f"try:\n    r = {call}\nexcept ZeroDivisionError:\n    r = 0\nassert r == 0 or [r] == [r]",
        ]
