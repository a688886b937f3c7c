"""Every example of README.md and docs/ is run, in the order of its page, or says in the page why it is not.

A block of `console` or `python` is an example. What stands before a block in the page's source, as an HTML comment:

- `<!-- not run: REASON -->`: the example is not run, e.g. since it needs a model server.
- `<!-- output -->`: the block is what the example before it prints.
- `<!-- file: NAME -->`: the block is written to that file, in the folder in which the page is run; a second one is
  added to it.

Expected output is compared line by line: `...` stands for anything in a line, and alone for any lines. A command
without expected output must only succeed; one that fails says so by a last line that begins with `foretrace: `.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest

from foretrace.cli.main import app, main

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
_BLOCK = re.compile(r"(?:^<!-- (?P<marker>[^\n]*?) -->\n+)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_PROGRESS = re.compile(r".* \(\d+ s\)$")
REASONS = (
    *("a model server", "llama-server", "Docker", "the Hub", "a Ray cluster", "an object store", "the library "),
    "a file of HumanEval",
)
"""What an example that is not run needs, and what no test has: software of others, a network, or data."""
OTHER_REASONS = ("changes the shell", "reads your own sessions", "runs the tests themselves", "takes long;")
_EXTRA = re.compile(r"\.\[([a-z]+)\]")


class Block(NamedTuple):
    """A fenced block of a page."""

    line: int
    language: str
    marker: str
    text: str


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(text.count("\n", 0, m.start("text")), m["language"], m["marker"] or "", m["text"])
        for m in _BLOCK.finditer(text)
    ]


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a console block, each with the output that is shown."""
    command, shown = "", list[str]()
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    if command:
        yield command, shown


def matches(shown: list[str], printed: list[str]) -> bool:
    """Whether the printed lines are those shown, in which `...` stands for anything."""
    pattern = ""
    for line in shown:
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("...")) + r"[^\S\n]*\n"
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


class Page:
    """Runs the examples of one page in the current folder."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.printed = ""

    def run(self) -> None:
        for block in blocks(self.name):
            at = f"{self.name}:{block.line}"
            kind, _, value = block.marker.partition(": ")
            if kind == "not run":
                continue
            if kind == "file":
                Path(value).parent.mkdir(parents=True, exist_ok=True)
                with Path(value).open("a") as file:
                    file.write(block.text)
            elif kind == "output":
                self.compare(block.text.splitlines(), at)
            elif block.language == "python":
                self.run_python(block.text, at)
            elif block.language == "console":
                for command, shown in commands(block.text):
                    self.run_command(command, shown, at)

    def run_python(self, code: str, at: str) -> None:
        with self.output(errors=False):
            try:
                exec(compile(code, at, "exec"), self.names)
            except Exception:
                pytest.fail(f"{at}: {traceback.format_exc(limit=-3)}")

    def run_command(self, line: str, shown: list[str], at: str) -> None:
        words = shlex.split(line, comments=True)
        if words == ["make", "demo"]:
            words = ["foretrace", "demo", "--out", "demo-out"]
        assert words[0] == "foretrace", f"{at}: only foretrace can be run here; mark the block `<!-- not run: ... -->`"
        with self.output():
            code = main(words[1:])
        fails = bool(shown) and shown[-1].startswith("foretrace: ")
        assert (code != 0) == fails, f"{at}: {line}: exit code {code}\n{self.printed}"
        if shown:
            self.compare(shown, f"{at}: {line}")

    def compare(self, shown: list[str], at: str) -> None:
        printed = [line for line in self.printed.splitlines() if not _PROGRESS.fullmatch(line)]
        if not matches(shown, printed):
            pytest.fail("\n".join([f"{at}: the page shows", *shown, "but this was printed", *printed]), pytrace=False)

    @contextlib.contextmanager
    def output(self, *, errors: bool = True) -> Iterator[None]:
        """Keep what is printed; of Python without stderr, where the libraries draw their bars."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if errors else sys.stderr):
            yield
        self.printed = out.getvalue()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the sandbox needs Linux")
@pytest.mark.usefixtures("short_measuring")
@pytest.mark.parametrize("name", PAGES)
def test_examples_of_a_page_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("COLUMNS", "120")
    before = {*sys.modules}
    page = Page(name)
    try:
        page.run()
    finally:
        for module in {*sys.modules} - before:
            file = getattr(sys.modules[module], "__file__", None) or ""
            if file.startswith(str(tmp_path)):
                del sys.modules[module]


def test_the_commands_of_all_examples_have_their_options() -> None:
    """Those that are not run, too."""
    every: Any = app
    above = click.Context(every, **every.context_settings)
    for page in PAGES:
        for block in blocks(page):
            for line, _ in commands(block.text) if block.language == "console" else ():
                program, *words = shlex.split(line, comments=True)
                command = every
                while words and words[0] in getattr(command, "commands", ()):
                    command = command.commands[words.pop(0)]
                if program == "foretrace":
                    assert command is not every or words[0] in ("--help", "-h"), f"{page}:{block.line}: {line}"
                    command.make_parser(click.Context(command, parent=above)).parse_args(words)


def test_every_example_that_is_not_run_gives_a_reason_that_holds() -> None:
    for page in PAGES:
        for block in blocks(page):
            kind, _, why = block.marker.partition(": ")
            known = why.startswith(OTHER_REASONS) or why.removeprefix("needs ").startswith(REASONS)
            assert kind != "not run" or known, f"{page}:{block.line}: {why}"
            assert block.language not in ("bash", "shell", "sh") or block.text.startswith("#!"), f"{page}:{block.line}"


def test_links_lead_somewhere() -> None:
    """`make docs` checks those within docs/ again, as a site."""
    for page in [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"]:
        text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            name, _, anchor = target.partition("#")
            file = (ROOT / page).parent / name if name else ROOT / page
            assert file.is_file(), f"{page}: {target}"
            titles = re.findall(r"^#+ (.+)$", file.read_text(), re.M) if anchor else ()
            assert not anchor or anchor in {_slug(title) for title in titles}, f"{page}: {target}"


def _slug(title: str) -> str:
    return re.sub(r"[^\w\s-]", "", title).strip().lower().replace(" ", "-")


def test_what_is_to_be_installed_is_there() -> None:
    """The package is in no registry: it is installed from a checkout, with the extras that it has."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    files = [*(ROOT / page for page in PAGES), ROOT / "CONTRIBUTING.md", *(ROOT / "src").rglob("*.py")]
    for file in files:
        text = file.read_text()
        assert "foretrace[" not in text and "pip install foretrace" not in text, file
        lines = [line for line in text.splitlines() if "pip install" in line]
        assert {extra for line in lines for extra in _EXTRA.findall(line)} <= extras.keys(), file


def test_what_matches() -> None:
    assert matches(["a", "...", "b ...", "..."], ["a", "x", "y", "b 3.5 s"])
    assert not matches(["a", "b"], ["a"]) and not matches(["a"], ["a", "b"])
    assert not matches(["a ... b"], ["a b"]) and matches(["a ... b"], ["a 1 b  "])
    assert [*commands("$ a \\\n  b\nout\n$ c\n")] == [("a    b", ["out"]), ("c", [])]
    assert Counter(block.language for block in blocks("README.md"))["python"] >= 1
