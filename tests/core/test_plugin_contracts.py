"""An object at `module:Class` that is not a plugin of its kind ends in one line that says what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from foretrace.core import plugins
from foretrace.core.errors import UsageError
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


def test_the_message_names_what_lacks() -> None:
    with pytest.raises(UsageError, match=r"^'os:path' is not a recipe: it has no 'configs', 'rows'$"):
        load_recipes(["os:path"])


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if kind != "model"])  # each wants a name of its own form
def test_our_own_have_all_that_their_contracts_name(kind: str) -> None:
    for name in plugins.BUILT_IN[kind.replace("problem set", "problems")]:
        assert MAKERS[kind](name) is not None
