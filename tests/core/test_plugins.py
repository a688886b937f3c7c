"""The folder is the registry."""

from __future__ import annotations

import pytest

from foretrace.core import plugins
from foretrace.core.errors import UsageError
from foretrace.sources.chat import Chat


def test_names_are_the_files_of_the_folder() -> None:
    assert {"chat", "jsonl", "swe_smith", "toolbench"} <= set(plugins.names("source"))
    assert {"fence", "function_xml", "react", "tool_call_json"} <= set(plugins.names("encoding"))
    assert not any(name.startswith("_") or name == "base" for name in plugins.names("source"))


def test_resolve_by_name_or_module_and_class() -> None:
    assert plugins.resolve("source", "chat") is Chat
    assert plugins.resolve("source", "foretrace.sources.chat:Chat") is Chat


@pytest.mark.parametrize(
    "name", ["nothing", "_files", "base", "foretrace.nothing:X", "foretrace.sources.chat:No", "../x", ""]
)
def test_unknown_plugins_are_named_with_a_remedy(name: str) -> None:
    with pytest.raises(UsageError, match=r"unknown source|cannot load source"):
        plugins.resolve("source", name)
