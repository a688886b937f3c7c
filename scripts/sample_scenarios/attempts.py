"""Attempts at one bug, step by step: each plan is a way in which an agent may go about it."""

from __future__ import annotations

import random
import re
import shlex
import textwrap
from dataclasses import dataclass, field
from typing import Any

from .encode import EDITOR, Step
from .sandbox import SILENT, TESTBED, Sandbox

COST_LIMIT = "Exit due to cost limit"
REWRITTEN = "Since we have successfully fixed the issue and verified it works, let's submit the changes:"
RESOLVED = {"direct", "repair", "rejected", "undo", "testfirst", "quick", "documented"}
FAILED = {"half", "bend", "limit", "rewritten"}


@dataclass(frozen=True)
class Bug:
    """One invented bug: a few lines in good, bad and half-right form, and cases that tell them apart."""

    owner: str
    name: str
    commit: str
    files: dict[str, str]
    suffix: str
    title: str
    issue: str
    file: str
    symbol: str
    good: str
    bad: str
    half: str
    imports: str
    main: list[list[str]]
    edge: list[list[str]]
    reason: str
    idea: str
    miss: str
    attempts: list[str]
    setup: str = ""
    also: list[list[str]] = field(default_factory=list)

    @property
    def instance_id(self) -> str:
        return f"{self.owner}__{self.name}.{self.commit}.{self.suffix}"

    def broken_files(self) -> dict[str, str]:
        """The repository as the agent finds it."""
        text = self.files[self.file]
        assert text.count(self.good) == 1, (self.instance_id, "good")
        return self.files | {self.file: text.replace(self.good, self.bad)}

    def head(self) -> str:
        """Imports and set-up that all scripts share."""
        return "\n".join(filter(None, [self.imports, self.setup.strip("\n")]))

    def asserts(self, cases: list[list[str]]) -> str:
        """A script that ends with an error unless all cases hold."""
        return "\n".join([self.head(), *(f"assert {expr} == {wanted}" for expr, wanted in cases)])


class Attempt:
    """Writes the steps of one attempt while a sandbox carries them out."""

    def __init__(self, bug: Bug, sandbox: Sandbox, plan: str, say: dict[str, list[str]], seed: int) -> None:
        self.bug, self.sandbox, self.plan, self._say = bug, sandbox, plan, say
        self.steps: list[Step] = []
        self.path = f"{TESTBED}/{bug.file}"
        self.scripts: list[str] = []
        self._rng = random.Random(f"{seed}/{bug.instance_id}")
        self._explore()
        self._rng = random.Random(f"{seed}/{bug.instance_id}/{plan}")
        self._folder = TESTBED
        getattr(self, f"_plan_{plan}")()

    # -- single steps --------------------------------------------------------------------------------------

    def _do(self, key: str, tool: str, observation: str | None = None, /, **arguments: Any) -> str:
        thought = self._rng.choice(self._say[key]).format(**vars(self.bug)) if key else ""
        result = self.sandbox.run(tool, arguments) if observation is None else observation
        self.steps.append(Step(thought[:1].upper() + thought[1:], tool, arguments, result))
        return result

    def _bash(self, key: str, command: str) -> str:
        return self._do(key, "bash", command=command)

    def _replace(self, key: str, old: str, new: str) -> str:
        return self._do(key, EDITOR, command="str_replace", path=self.path, old_str=old, new_str=new)

    def _half(self) -> None:
        for old, new in self.bug.also:
            self._replace("prepare", old, new)
        self._replace("half", self.bug.bad, self.bug.half)

    def _around(self) -> list[int]:
        lines = self.sandbox.read(self.path).splitlines()
        at = next(n for n, line in enumerate(lines, start=1) if f"def {self.bug.symbol}(" in line)
        return [max(1, at - 1), min(len(lines), at + 13)]

    def _write(self, key: str, run_key: str, name: str, text: str, *, heredoc: bool | None = None) -> str:
        """Create a script and run it, in two steps or with a heredoc in one; the output is returned."""
        path = f"{self._folder}/{name}"
        self.scripts.append(path)
        run = f"cd {TESTBED} && PYTHONPATH=. python {path.removeprefix(TESTBED + '/')}"
        if self._folder == TESTBED:
            run = run.replace("PYTHONPATH=. ", "")
        if heredoc if heredoc is not None else self._rng.random() < 0.3:
            return self._bash(key, f"cat > {path} <<'EOF'\n{text}\nEOF\n{run}")
        self._do(key, EDITOR, command="create", path=path, file_text=text)
        return self._bash(run_key, run)

    def _again(self, key: str) -> str:
        path = self.scripts[-1].removeprefix(TESTBED + "/")
        prefix = "PYTHONPATH=. " if "/" in path else ""
        tail = self._rng.choice(["", " 2>&1 | tail -n 20"])
        return self._bash(key, f"cd {TESTBED} && {prefix}python {path}{tail}")

    def _repro(self) -> str:
        names = ["reproduce.py", "repro.py", f"show_{self.bug.symbol}.py", "reproduce_report.py"]
        name = self._rng.choice(names)
        lines = [self.bug.head(), ""]
        for expr, wanted in self.bug.main:
            lines += [f"print({expr + ' ='!r}, {expr})", f"print({'   expected: ' + wanted!r})"]
        return self._write("repro", "run_repro", name, "\n".join(lines))

    def _edge(self, *, heredoc: bool | None = None) -> str:
        name = self._rng.choice(["edges.py", "check_edges.py", f"edge_{self.bug.symbol}.py"])
        cases = [*self.bug.edge, self.bug.main[0]]
        if self._rng.random() < 0.5:
            text = self.bug.asserts(cases) + "\nprint('all fine')"
        else:
            rows = "".join(f"    ({expr!r}, {expr}, {wanted}),\n" for expr, wanted in cases)
            text = (
                f"import sys\n\n{self.bug.head()}\n\nCASES = [\n{rows}]\n\nbad = 0\n"
                "for label, got, wanted in CASES:\n    ok = got == wanted\n    bad += not ok\n"
                "    print('ok  ' if ok else 'FAIL', label, '->', got)\nsys.exit(1 if bad else 0)"
            )
        return self._write("edge", "run_edge", name, text, heredoc=heredoc)

    def _probe(self, key: str = "probe") -> str:
        expr = self.bug.main[0][0]
        glue = "\n" if self.bug.setup else "; "
        code = glue.join([self.bug.head(), f"print({expr})"])
        return self._bash(key, f"cd {TESTBED} && python -c {shlex.quote(code)}")

    def _suite(self, key: str = "suite") -> str:
        tail = self._rng.choice(["", " 2>&1 | tail -n 5", " tests"])
        return self._bash(key, f"cd {TESTBED} && python -m pytest -q{tail}")

    def _submit(self, key: str = "done", *, twice: bool = True) -> None:
        self._do(key, "submit", *([] if twice else [""]))
        if twice:
            if self.scripts:
                self._bash("tidy", "rm -f " + " ".join(dict.fromkeys(self.scripts)))
            self._do("last", "submit", "")
        self.steps[-1] = self.steps[-1]._replace(observation=None)
        if self.plan in RESOLVED:
            self._check_end()

    def _check_end(self) -> None:
        """The agent of a resolved attempt saw nothing fail after its last edit."""
        edited = [n for n, step in enumerate(self.steps) if step.tool == EDITOR or "sed -i" in str(step.arguments)]
        for step in self.steps[edited[-1] :]:
            failed = step.tool == "bash" and re.search("FAIL|Traceback", step.observation or "")
            assert not failed, (self.bug.instance_id, self.plan, step)

    # -- the first messages, shared by all attempts at the bug ---------------------------------------------

    def _explore(self) -> None:
        bug, rng = self.bug, self._rng
        package = bug.file.split("/", 1)[0]
        look = [
            f'find {TESTBED} -type f -name "*.py" | sort',
            f"cd {TESTBED} && ls {package} tests",
            f"cd {TESTBED} && git ls-files | head -n 20",
        ]
        if rng.random() < 0.3:
            self._do("look", EDITOR, command="view", path=TESTBED)
        else:
            self._bash("look", rng.choice(look))
        search = [
            f'cd {TESTBED} && grep -rn "{bug.symbol}" --include="*.py" . | sort',
            f'grep -n "def {bug.symbol}" {self.path}',
            f"cd {TESTBED} && grep -rnw {bug.symbol} {package} tests | sort | head -n 12",
        ]
        if rng.random() < 0.7:
            self._bash("search", rng.choice(search))
        kind = rng.choice([0, 0, 0, 1, 2, 2])
        if kind == 0:
            self._do("read_part", EDITOR, command="view", path=self.path, view_range=self._around())
        elif kind == 1:
            self._do("read", EDITOR, command="view", path=self.path)
        else:
            first, last = self._around()
            self._bash("read_part", f"sed -n '{first},{last}p' {self.path}")
        if rng.random() < 0.2:
            test = next(name for name in bug.files if name.startswith("tests/"))
            self._bash("tests", f"cd {TESTBED} && cat {test} | head -n 25")
        elif rng.random() < 0.3:
            self._bash("history", f"cd {TESTBED} && git log --oneline -n 5 -- {bug.file}")

    # -- plans ---------------------------------------------------------------------------------------------

    def _plan_direct(self) -> None:
        if self._rng.random() < 0.4:
            self._folder = f"{TESTBED}/scratch"
            self._bash("scratch", f"mkdir -p {self._folder}")
        self._repro()
        self._replace("fix", self.bug.bad, self.bug.good)
        self._again("rerun")
        self._edge()
        self._suite()
        self._submit()

    def _plan_repair(self) -> None:
        self._half()
        self._edge(heredoc=True)
        self._replace("repair", self.bug.half, self.bug.good)
        self._again("confirm")
        self._suite()
        self._bash("diff", f"cd {TESTBED} && git diff")
        self._submit()

    def _plan_undo(self) -> None:
        self._repro()
        self._half()
        self._edge(heredoc=False)
        self._do("undo", EDITOR, command="undo_edit", path=self.path)
        self._replace("redo", self.bug.bad, self.bug.good)
        self._again("confirm")
        self._submit()

    def _plan_rejected(self) -> None:
        self._probe()
        wrong = textwrap.indent(self.bug.bad, "    ") + "\n"
        self._replace("fix", wrong, textwrap.indent(self.bug.good, "    "))
        self._do("retry", EDITOR, command="view", path=self.path, view_range=self._around())
        self._replace("again", self.bug.bad, self.bug.good)
        self._probe("confirm")
        self._suite()
        self._submit()

    def _plan_testfirst(self) -> None:
        self._install()
        name = f"tests/test_{self.bug.symbol}_report.py"
        path = f"{TESTBED}/{name}"
        pairs = [*self.bug.main, *self.bug.edge]
        cases = "\n".join(f"    assert {expr} == {wanted}" for expr, wanted in pairs)
        text = f"{self.bug.head()}\n\n\ndef test_{self.bug.symbol}_report():\n{cases}"
        self._do("new_test", EDITOR, command="create", path=path, file_text=text)
        self._bash("run_test", f"cd {TESTBED} && python -m pytest -q --tb=line {name}")
        self._replace("fix", self.bug.bad, self.bug.good)
        self._bash("pass_test", f"cd {TESTBED} && python -m pytest -q")
        self._submit()

    def _plan_quick(self) -> None:
        self._probe()
        lines = self.sandbox.read(self.path).splitlines()
        if "\n" in self.bug.bad + self.bug.good or lines.count(self.bug.bad) != 1:
            self._replace("fix", self.bug.bad, self.bug.good)
            self._probe("confirm")
        else:
            number = lines.index(self.bug.bad) + 1
            new = self.bug.good.replace("\\", "\\\\").replace("&", "\\&").replace("|", "\\|")
            command = f"sed -i {shlex.quote(f'{number}s|.*|{new}|')} {self.bug.file}"
            show = f"git diff --stat && sed -n '{number}p' {self.bug.file}"
            self._bash("fix", f"cd {TESTBED} && {command} && {show}")
            self._probe("confirm")
        self._suite()
        self._submit(twice=False)

    def _plan_half(self) -> None:
        self._repro()
        self._half()
        self._again("rerun")
        if self._rng.random() < 0.6:
            self._suite()
        self._submit("early")

    def _plan_bend(self) -> None:
        self._repro()
        path, text = self.scripts[-1], self.sandbox.read(self.scripts[-1])
        old = next(line for line in text.splitlines() if "expected: " in line)
        new = old.split("expected: ")[0] + "whatever the code gives')"
        self._do("bend", EDITOR, command="str_replace", path=path, old_str=old, new_str=new)
        self._again("rerun")
        self._suite()
        self._submit("early")

    def _plan_documented(self) -> None:
        """Bodies that hold fences, quotes and tag-like text, so that every encoding has to quote them."""
        self._edge(heredoc=True)
        self._replace("fix", self.bug.bad, self.bug.good)
        self._again("rerun")
        path = f"{TESTBED}/NOTES.md"
        expr, wanted = self.bug.edge[0]
        text = (
            f"# It's settled\n\n{self.bug.title}:\n\n"
            f"```python\n{self.bug.imports}\n\n{expr}  # {wanted}\n```\n\n"
            "Don't write <parameter=value> or 'single quotes' around it.\n"
        )
        self._do("note", EDITOR, command="create", path=path, file_text=text)
        self._do("read_note", EDITOR, command="view", path=path, view_range=[1, 4])
        self._bash("suite", f"cd {TESTBED} && for t in tests/*.py; do\n  python -m pytest -q $t\ndone")
        self._submit(twice=False)

    def _plan_limit(self) -> None:
        self._unfinished()
        self.steps.append(Step(COST_LIMIT, "", {}, None))

    def _plan_rewritten(self) -> None:
        self._unfinished()
        self.steps.append(Step(REWRITTEN, "submit", {}, None))

    def _unfinished(self) -> None:
        """Work that a limit cuts off: the half-right change, its failure, and no way out yet."""
        self._install()
        self._repro()
        self._half()
        self._edge(heredoc=False)
        self._do("read_part", EDITOR, command="view", path=self.path, view_range=self._around())
        self._bash("diff", f"cd {TESTBED} && git status --short")
        self._again("rerun")

    def _install(self) -> None:
        name = self.bug.name
        text = f"Processing {TESTBED}\nBuilding wheel for {name}: done\nInstalled {name} 0.3.0"
        self._do("install", "bash", f"OBSERVATION:\n{text}", command=f"cd {TESTBED} && pip install -e .")


__all__ = ["FAILED", "RESOLVED", "SILENT", "Attempt", "Bug"]
