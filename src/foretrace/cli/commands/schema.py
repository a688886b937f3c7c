"""`foretrace schema`: the JSON Schema of a record."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from foretrace.cli.output import Output
from foretrace.core.errors import UsageError


def schema(
    output: Output,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A record, e.g. Trace or Message.")] = "Trace",
) -> None:
    """Print the JSON Schema of a record."""
    import msgspec

    records = _records()
    record = records.get(name.lower().replace("_", ""))
    if record is None:
        raise UsageError(f"no record {name!r}: choose one of {', '.join(r.__name__ for r in records.values())}")
    found = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(record)}
    if not output.write_json(found):
        output.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")


def _records() -> dict[str, Any]:
    from foretrace.actions.taxonomy import StepLabel
    from foretrace.core import trace

    found = (trace.Trace, trace.Message, trace.ToolCall, trace.ToolSpec, trace.Task, trace.Outcome, trace.Provenance)
    return {record.__name__.lower(): record for record in (*found, StepLabel)}
