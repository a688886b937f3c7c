"""Templates that open `<think>` by themselves, and a prefill that would open it again."""

from __future__ import annotations

_OPEN = "<think>"


def without_doubled_think(prompt: str, prefill: str) -> str:
    """The prefill without an opening `<think>` that the rendered prompt already ends with."""
    bare = prefill.lstrip()
    if opens_think(prompt) and bare.startswith(_OPEN):
        rest = bare.removeprefix(_OPEN)
        # The blank after the tag is the template's own.
        return rest.removeprefix("\n") if prompt.endswith("\n") else rest
    return prefill


def opens_think(prompt: str) -> bool:
    """Whether a rendered prompt ends inside an open think block."""
    return prompt.rstrip().endswith(_OPEN)
