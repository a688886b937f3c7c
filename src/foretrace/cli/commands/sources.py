"""`foretrace sources`: what `import` and `build` can read."""

from __future__ import annotations

from foretrace.cli.output import Output


def sources(output: Output) -> None:
    """List what `import` and `build` can read."""
    from foretrace.cli.display.plugins import show_plugins
    from foretrace.registry import describe_plugins

    found = describe_plugins("source")
    facts = [
        {
            "name": one.name,
            "about": one.about,
            "hub": one.place or "local files only",
            "license": one.license,
            "recognized": one.recognized,
        }
        for one in found
    ]
    if not output.write_json({"sources": facts}):
        show_plugins(output, found, "module:Class (docs/sources.md)")
