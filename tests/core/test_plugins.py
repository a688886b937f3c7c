"""Names and plugins: the table of our own, other packages' entry points, and `module:Class`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import foretrace
from foretrace.core import plugins
from foretrace.core.errors import ForetraceWarning, UsageError
from foretrace.dataset.recipes.base import load_recipes
from foretrace.registry import (
    make_format,
    make_model,
    make_predictor,
    make_problem_set,
    make_protocol,
    make_sandbox,
    make_source,
)
from foretrace.sandbox.base import SandboxSettings
from foretrace.sources.chat import Chat

SRC = Path(foretrace.__file__).parents[1]


def modules_with_plugins() -> set[str]:
    """Modules that bind `PLUGIN` at their top."""
    found: set[str] = set()
    for file in SRC.rglob("*.py"):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        bound = {t.id for n in body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}
        if "PLUGIN" in bound:
            found.add(".".join(file.relative_to(SRC).with_suffix("").parts))
    return found


def test_the_table_names_every_plugin_and_nothing_else() -> None:
    listed = {module for kind in plugins.BUILT_IN.values() for module in kind.values()}
    missing = modules_with_plugins() - listed
    assert not missing, f"name {sorted(missing)} in BUILT_IN of foretrace/core/plugins.py"
    assert listed == modules_with_plugins()


@pytest.mark.parametrize("kind", plugins.BUILT_IN)
def test_a_plugin_is_called_like_its_file(kind: str) -> None:
    for name, module in plugins.BUILT_IN[kind].items():
        assert module.rpartition(".")[2] == name
        assert plugins.load_plugin(kind, name) is not None
        assert name in plugins.plugin_names(kind)


@pytest.mark.parametrize(
    "name", ["nothing", "files", "base", "foretrace.nothing:X", "foretrace.sources.chat:No", "../x", ""]
)
def test_unknown_plugins_are_named_with_a_remedy(name: str) -> None:
    with pytest.raises(UsageError, match=r"unknown source|cannot load source"):
        plugins.load_plugin("source", name)


def test_a_name_like_a_known_one_is_suggested() -> None:
    with pytest.raises(UsageError, match=r"unknown protocol 'interleavd', did you mean interleaved[?]: choose one of"):
        plugins.load_plugin("protocol", "interleavd")
    with pytest.raises(UsageError, match=r"claude: no such file or source, did you mean claude_code[?]$"):
        make_source("claude")
    with pytest.raises(UsageError, match=r"unknown model 'olama:x', did you mean ollama[?]"):
        make_model("olama:x")


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that brings a source of its own, one that has our name, and one that cannot be loaded."""
    info = tmp_path / "stranger-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[foretrace.source]\nstrange = stranger:Strange\nchat = stranger:Strange\nbroken = stranger_broken:Nothing\n"
    )
    (tmp_path / "stranger.py").write_text("class Strange:\n    name = 'strange'\n")
    (tmp_path / "stranger_broken.py").write_text("raise RuntimeError('no license file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("stranger")
@pytest.mark.filterwarnings("ignore:stranger brings a source")
def test_entry_points_add_names() -> None:
    assert plugins.plugin_names("source")[-2:] == ["broken", "strange"]
    assert plugins.load_plugin("source", "strange").name == "strange"
    with pytest.raises(UsageError, match=r"cannot load source 'broken' .*: no license file"):
        plugins.load_plugin("source", "broken")


@pytest.mark.usefixtures("stranger")
def test_an_entry_point_never_shadows_our_own_in_silence() -> None:
    with pytest.warns(
        ForetraceWarning, match=r"stranger brings a source 'chat'.*ours is used; name theirs stranger:Strange"
    ):
        assert "chat" in plugins.plugin_names("source")
    with pytest.warns(ForetraceWarning, match="ours is used"):
        assert plugins.load_plugin("source", "chat") is Chat
    assert plugins.load_plugin("source", "stranger:Strange").name == "strange"


def test_names_import_no_plugin() -> None:
    script = (
        "import sys; from foretrace.core.plugins import plugin_names; plugin_names('source'); "
        "print([m for m in sys.modules if m.startswith('foretrace.sources')])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


MAKERS: dict[str, Callable[[str], object]] = {
    "recipe": lambda name: load_recipes([name])[0],
    "source": make_source,
    "format": make_format,
    "problem set": make_problem_set,
    "protocol": make_protocol,
    "predictor": make_predictor,
    "model": lambda name: make_model(f"{name}:toy"),
    "sandbox": lambda name: make_sandbox(name, SandboxSettings()),
}


OBJECTS = """
class Nothing:
    def __init__(self, *arguments): pass

class Wants:
    def __init__(self, *, what): pass
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "objects.py").write_text(OBJECTS)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", ["objects:Nothing", "objects:Wants", "os:PathLike"])
def test_no_plugin_of_its_kind(kind: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}' is not a {kind}: ") as caught:
        MAKERS[kind](name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "model"])  # a model's class has a capital letter
@pytest.mark.parametrize("name", ["os:path", "os:sep"])
def test_an_object_that_cannot_be_made(kind: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"'{name}' is not a {kind}: it has no '"):
        MAKERS[kind](name)


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "model"])  # each wants a name of its own form
def test_our_own_have_all_that_their_contracts_name(kind: str) -> None:
    for name in plugins.BUILT_IN[kind.replace("problem set", "problems")]:
        assert MAKERS[kind](name) is not None
