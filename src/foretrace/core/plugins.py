"""Find plugins: foretrace's own by the table below, any other as `module:Class` or by its package's entry point.

To add a source, protocol, model server, sandbox, problem set, recipe, predictor or export format, write one file that
defines `PLUGIN` and list its module in `BUILT_IN` (`tests/core/test_plugins.py` fails if you forget). A plugin outside
of foretrace does not need that: it is named `module:Class`, or found through the entry point group `foretrace.<kind>`.
A plugin that cannot be found, made or used is a `UsageError`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from foretrace.core.errors import ForetraceWarning, UsageError, find_first_line

BUILT_IN: dict[str, dict[str, str]] = {
    "source": {
        "chat": "foretrace.sources.chat",
        "claude_code": "foretrace.sources.formats.claude_code",
        "codex": "foretrace.sources.formats.codex",
        "codex_exec": "foretrace.sources.formats.codex_exec",
        "copilot_cli": "foretrace.sources.formats.copilot_cli",
        "cursor": "foretrace.sources.formats.cursor",
        "gemini_cli": "foretrace.sources.formats.gemini_cli",
        "hermes": "foretrace.sources.formats.hermes",
        "jsonl": "foretrace.sources.jsonl",
        "opencode": "foretrace.sources.formats.opencode",
        "pi": "foretrace.sources.formats.pi",
        "swe_smith": "foretrace.sources.swe_smith",
        "toolbench": "foretrace.sources.toolbench",
        "adp": "foretrace.sources.formats.adp",
        "aider": "foretrace.sources.formats.aider",
        "atif": "foretrace.sources.formats.atif",
        "hub_session": "foretrace.sources.formats.hub_session",
        "inspect_ai": "foretrace.sources.formats.inspect_ai",
        "message_list": "foretrace.sources.formats.message_list",
        "mini_swe_agent": "foretrace.sources.formats.mini_swe_agent",
        "openhands": "foretrace.sources.formats.openhands",
        "otlp": "foretrace.sources.formats.otlp",
        "r2e_gym": "foretrace.sources.formats.r2e_gym",
        "swe_agent": "foretrace.sources.formats.swe_agent",
        "vscode_chat": "foretrace.sources.formats.vscode_chat",
        "verifiers_traces": "foretrace.sources.formats.verifiers_traces",
        "zed": "foretrace.sources.formats.zed",
    },
    "model": {
        "demo": "foretrace.models.servers.demo",
        "llamacpp": "foretrace.models.servers.llamacpp",
        "ollama": "foretrace.models.servers.ollama",
        "openai": "foretrace.models.servers.openai",
        "scripted": "foretrace.models.servers.scripted",
    },
    "sandbox": {
        "docker": "foretrace.sandbox.docker",
        "local": "foretrace.sandbox.local",
    },
    "protocol": {
        "inline": "foretrace.protocols.inline",
        "interleaved": "foretrace.protocols.interleaved",
        "interleaved_forced": "foretrace.protocols.interleaved_forced",
        "interleaved_tools": "foretrace.protocols.interleaved_tools",
        "structured": "foretrace.protocols.structured",
        "tools": "foretrace.protocols.tools",
    },
    "problems": {
        "builtin": "foretrace.problems.builtin",
        "harbor": "foretrace.problems.harbor",
        "humaneval": "foretrace.problems.humaneval",
        "jsonl": "foretrace.problems.jsonl",
        "mbpp": "foretrace.problems.mbpp",
    },
    "predictor": {
        "majority": "foretrace.evaluation.predictors.majority",
        "markov": "foretrace.evaluation.predictors.markov",
        "regression": "foretrace.evaluation.predictors.regression",
        "memory": "foretrace.evaluation.predictors.memory",
    },
    "recipe": {
        "proposer": "foretrace.dataset.recipes.proposer",
        "verifier": "foretrace.dataset.recipes.verifier",
        "eval": "foretrace.dataset.recipes.eval",
        "trajectories": "foretrace.dataset.recipes.trajectories",
    },
    "format": {
        "jsonl": "foretrace.exports.jsonl",
        "chat": "foretrace.exports.chat",
        "inline": "foretrace.exports.inline",
        "openai": "foretrace.exports.openai",
        "sharegpt": "foretrace.exports.sharegpt",
        "verifiers_sft": "foretrace.exports.verifiers_sft",
        "atif": "foretrace.exports.atif",
        "pi": "foretrace.exports.pi",
        "otlp": "foretrace.exports.otlp",
    },
}
"""By kind: the name that a user gives, and the module that defines its `PLUGIN`. Lists of names keep this order."""

_KIND_NAMES = {"problems": "problem set"}
"""The noun for one plugin in messages, if it differs from the name of the kind."""
_OTHER_NAMES = {"format": ("harbor-tasks",)}
"""Names that can be given instead of a plugin's: `export` writes this format from problems, not from traces."""


def plugin_names(kind: str) -> list[str]:
    """Names of the plugins of one kind: our own in the order of the table, then those from entry points by name."""
    return [*BUILT_IN[kind], *sorted(_find_entry_points(kind))]


def suggest_name(name: str, known: Iterable[str]) -> str:
    """`, did you mean NAME?` if a known name is like a wrong one; else nothing."""
    near = get_close_matches(name, known, n=1)
    return f", did you mean {near[0]}?" if near else ""


def load_plugin(kind: str, name: str) -> Any:
    """The plugin of that name: `PLUGIN` of its module, or the object at `module:Class` or of an entry point."""
    if ":" in name:
        return _load_external(kind, name)
    others = _find_entry_points(kind)
    if name in BUILT_IN[kind]:
        return importlib.import_module(BUILT_IN[kind][name]).PLUGIN
    point = others.get(name)
    if point is None:
        known = [*plugin_names(kind), *_OTHER_NAMES.get(kind, ())]
        near = suggest_name(name, known)
        raise UsageError(f"unknown {kind} {name!r}{near}: choose one of {', '.join(known)}, or module:Class")
    try:
        return point.load()
    except Exception as error:  # another package's module may fail in any way on import
        raise UsageError(f"cannot load {kind} {name!r} (entry point {point.value}): {find_first_line(error)}") from None


def make_plugin(kind: str, name: str, contract: type, *arguments: Any) -> Any:
    """The plugin of that name, checked. If it is a class or a function, it is called with these arguments first.

    Args:
        contract: The `typing.Protocol` of its kind, whose members it must all have.
    """
    plugin = load_plugin(kind, name)
    if inspect.isclass(plugin) or inspect.isroutine(plugin):
        check_arguments(kind, name, plugin, *arguments)
        plugin = plugin(*arguments)
    check_members(kind, name, plugin, contract)
    return plugin


def check_arguments(kind: str, name: str, factory: Any, *arguments: Any, **options: Any) -> None:
    """Check that a class or function can be called with these arguments."""
    try:
        inspect.signature(factory).bind(*arguments, **options)
    except TypeError as error:
        raise UsageError(f"{name!r} is not a {_KIND_NAMES.get(kind, kind)}: to make it fails with {error}") from None
    except ValueError:  # Python does not know the signature of some classes written in C
        pass
    if inspect.isabstract(factory):
        raise UsageError(f"{name!r} is not a {_KIND_NAMES.get(kind, kind)}: it is an abstract class")


def check_members(kind: str, name: str, plugin: object, contract: type) -> None:
    """Check that a plugin has all members of its contract, a `typing.Protocol`."""
    members = dict.fromkeys([*inspect.get_annotations(contract), *vars(contract)])
    missing = [repr(m) for m in members if not m.startswith("_") and not hasattr(plugin, m)]
    if missing:
        raise UsageError(f"{name!r} is not a {_KIND_NAMES.get(kind, kind)}: it has no {', '.join(missing)}")


def _find_entry_points(kind: str) -> dict[str, EntryPoint]:
    """Plugins of other packages. One with the name of a built-in plugin is left out, with a warning."""
    found: dict[str, EntryPoint] = {}
    for point in _read_entry_points(f"foretrace.{kind}", tuple(sys.path)):
        if point.name in BUILT_IN[kind]:
            owner = point.dist.name if point.dist is not None else "another package"
            warnings.warn(
                f"{owner} brings a {kind} {point.name!r}, which is the name of foretrace's own: ours is used; "
                f"name theirs {point.value}",
                ForetraceWarning,
                stacklevel=3,
            )
        else:
            found[point.name] = point
    return found


@functools.cache
def _read_entry_points(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """The entry points of one group. Cached, since finding them reads a file of every package on `sys.path`, and a
    build asks 25 times."""
    return entry_points(group=group)


def _load_external(kind: str, name: str) -> Any:
    module, _, attribute = name.partition(":")
    # A console script does not search the current folder, where users keep their own plugins.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        known = ", ".join(plugin_names(kind))
        raise UsageError(f"cannot load {kind} {name!r}: {error}; foretrace's own are {known}") from None
