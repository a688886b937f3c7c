"""`foretrace sources`: what `import` and `build` can read."""

from __future__ import annotations

from foretrace.cli.output import Output


def sources(output: Output) -> None:
    """List what `import` and `build` can read."""
    import sys

    from foretrace.core.plugins import load_plugin, plugin_names

    rows: list[tuple[str, str, str, str | None]] = []
    for name in plugin_names("source"):
        plugin = load_plugin("source", name)
        hub = getattr(plugin, "hub", None)
        about = (sys.modules[plugin.__module__].__doc__ or "").strip().split("\n")[0]
        rows.append((name, about, f"{hub.repo} ({hub.split})" if hub else "local files only", plugin.license))
    if output.write_json({"sources": [dict(zip(("name", "about", "hub", "license"), r, strict=True)) for r in rows]}):
        return
    for name, about, hub, license in rows:
        output.print((name, "bold"), f"  {about}")
        output.print((f"    {hub}; license {license or 'that of the rows'}", "dim"))
    output.print()
    output.print("your own: module:Class (docs/add-a-source.md)")
