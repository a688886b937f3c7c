"""`foretrace sources`: what `import` and `build` can read."""

from __future__ import annotations

from foretrace.cli.output import Output


def sources(say: Output) -> None:
    """List what `import` and `build` can read."""
    import sys

    from foretrace.core.plugins import load_plugin, plugin_names

    rows: list[tuple[str, str, str, str | None]] = []
    for name in plugin_names("source"):
        plugin = load_plugin("source", name)
        hub = getattr(plugin, "hub", None)
        about = (sys.modules[plugin.__module__].__doc__ or "").strip().split("\n")[0]
        rows.append((name, about, f"{hub.repo} ({hub.split})" if hub else "local files only", plugin.license))
    if say.emit({"sources": [dict(zip(("name", "about", "hub", "license"), r, strict=True)) for r in rows]}):
        return
    for name, about, hub, license in rows:
        say.line((name, "bold"), f"  {about}")
        say.line((f"    {hub}; license {license or 'that of the rows'}", "dim"))
    say.line()
    say.line("your own: module:Class (docs/add-a-source.md)")
