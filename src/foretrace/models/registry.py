"""Reads the name of a model as a user gives it, and makes the model."""

from __future__ import annotations

from collections.abc import Collection

from foretrace.core import plugins
from foretrace.core.errors import UsageError
from foretrace.models.base import ChatModel, Server


def split_spec(spec: str, kinds: Collection[str]) -> tuple[str, str]:
    """`KIND:NAME` in its two parts; the name may hold colons, and may be missing (`demo`).

    A plugin of one's own is `module:Class` or `module:Class:NAME`, and its kind `module:Class`.

    Raises:
        UsageError: neither a known kind nor a plugin of one's own.
    """
    kind, _, name = spec.strip().partition(":")
    if kind in kinds:
        return kind, name
    attribute, _, rest = name.partition(":")
    if attribute.isidentifier() and all(part.isidentifier() for part in kind.split(".")) and attribute[0].isupper():
        return f"{kind}:{attribute}", rest
    raise UsageError(f"unknown model {spec!r}: give KIND:NAME, with one of {', '.join(sorted(kinds))}")


def make_model(spec: str, server: Server | None = None) -> ChatModel:
    """The model of that name, not yet asked anything.

    Raises:
        UsageError: no such kind, a missing name, or settings that do not fit.
    """
    kind, name = split_spec(spec, plugins.plugin_names("model"))
    return plugins.make_plugin("model", kind, ChatModel, name, server or Server())
