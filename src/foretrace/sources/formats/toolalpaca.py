"""ToolAlpaca: a list of APIs, each with the runs of an agent in `Instances`: LangChain's steps, and the answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from foretrace.core.trace import Task, Trace
from foretrace.rows.base import Drop, RowRef
from foretrace.rows.head import FileHead
from foretrace.sources.account import Account
from foretrace.sources.base import RowError, make_row_id
from foretrace.sources.chat import Chat
from foretrace.sources.json_values import get_dict, get_list, get_text, read_objects
from foretrace.sources.openai_messages import read_tool_specs

Row = dict[str, Any]


class ToolAlpaca:
    """Each run is a trace; those of one API are a group. A run that broke off is a text without steps, and a drop."""

    name = "toolalpaca"
    license = None

    def recognize(self, head: FileHead) -> str | None:
        """By an API with its documentation and `Instances`."""
        named = {"Name", "Documentation", "Instances"} <= head.first.keys()
        return "an API with Documentation and Instances" if named else None

    def read_traces(self, path: Path, account: Account) -> Iterator[Trace | Drop]:
        """The runs of each API, in their order."""
        for place, api in enumerate(read_objects(path)):
            if isinstance(api, Drop):
                account.drop(api.reason)
                yield api
                continue
            instances = get_list(api, "Instances")
            if not instances:
                account.ignore("API without runs")
            for number, instance in enumerate(instances):
                found = _read_instance(instance, api, f"{get_text(api, 'Name')} run {number}", RowRef(place, path.name))
                if isinstance(found, Drop):
                    account.drop(found.reason)
                else:
                    account.use()
                yield found


def _read_instance(instance: Any, api: Row, where: str, at: RowRef) -> Trace | Drop:
    if not isinstance(instance, dict) or not get_list(instance, "intermediate_steps"):
        return Drop("no_steps", f"{where}: has no intermediate_steps")
    own = make_row_id({"api": get_text(api, "Name"), "run": instance})
    row = {**instance, "id": own}
    if thought := get_text(instance, "Final Thought"):
        row["final_thought"] = thought
    try:
        found = Chat().to_trace(row, at)
    except RowError as error:
        return Drop(error.drop.reason, f"{where}: {error.drop.detail}")
    if isinstance(found, Drop):
        return found
    described = get_dict(api, "Function_Description")
    tools = [{"name": name, "description": text} for name, text in described.items() if name != "components"]
    group = get_text(api, "Name") or own
    return msgspec.structs.replace(
        found,
        key=f"{ToolAlpaca.name}@{own}",
        tools=read_tool_specs(tools),
        task=Task(id=found.task.id, group=f"api:{group}", kind="chat"),
        provenance=msgspec.structs.replace(found.provenance, source=ToolAlpaca.name, split=None),
    )


PLUGIN = ToolAlpaca
