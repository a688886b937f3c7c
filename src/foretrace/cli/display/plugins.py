"""What `foretrace sources` and `foretrace problems list` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretrace.cli.output import Output

if TYPE_CHECKING:
    from foretrace.registry import PluginFacts


def show_plugins(output: Output, plugins: Sequence[PluginFacts], own: str) -> None:
    """Print plugins: what each is, where its rows are read from, and their license; `own` says how to add one."""
    for plugin in plugins:
        output.print((plugin.name, "bold"), f"  {plugin.about}")
        count = f"{plugin.problems:,} problems; " if plugin.problems else ""
        license = plugin.license or "as the rows say"
        output.print((f"    {count}{plugin.place or 'local files only'}; license {license}", "dim"))
        if plugin.recognized:
            output.print((f"    auto knows it {plugin.recognized[0].lower()}{plugin.recognized[1:]}", "dim"))
    output.print()
    output.print(f"your own: {own}")
