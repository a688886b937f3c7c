"""Tools of well-known agents, for rows that call tools without defining them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from foretrace.core.trace import Message, ToolSpec
from foretrace.encodings.json_arguments import encode_json

_TYPES: dict[str, dict[str, Any]] = {
    "list": {"type": "array", "items": {"type": "string"}},
    "objects": {"type": "array", "items": {"type": "object"}},
}
_LINE = re.compile(r"(\w+)\((.*)\): (.*)")
_ADDRESS = "address1 address2 city state country zip"


class KnownTools(NamedTuple):
    """The tools of one agent."""

    agent: str
    tools: tuple[ToolSpec, ...]
    sign: frozenset[str]
    """Tools of which one must be called: the names of the others are common to many agents."""


def find_known_tools(messages: Iterable[Message]) -> KnownTools | None:
    """The agent that has all the tools that these messages call; `None` if none is known."""
    called = {call.name for message in messages for call in message.tool_calls}
    for known in _AGENTS:
        if called & known.sign and called <= {tool.name for tool in known.tools}:
            return known
    return None


def _make_tools(written: str) -> tuple[ToolSpec, ...]:
    """Tools from lines `name(parameter parameter:type optional?): description`; the default type is a string."""
    return tuple(_make_tool(*found) for found in _LINE.findall(written))


def _make_tool(name: str, parameters: str, description: str) -> ToolSpec:
    properties: dict[str, Any] = {}
    required: list[str] = []
    for word in parameters.split():
        key, _, kind = word.rstrip("?").partition(":")
        properties[key] = dict(_TYPES.get(kind, {"type": kind or "string"}))
        required += [] if word.endswith("?") else [key]
    if name == "str_replace_editor":
        properties["command"]["enum"] = ["view", "create", "str_replace", "insert", "undo_edit"]
        properties["view_range"]["items"] = {"type": "integer"}
    schema = {"type": "object", "properties": properties, "required": required}
    return ToolSpec(name=name, description=description, parameters=encode_json(schema))


SWE_AGENT = KnownTools(
    "swe_agent",
    _make_tools("""
        bash(command): Run a command in the shell.
        str_replace_editor(command path file_text? old_str? new_str? insert_line:integer? view_range:list?): View, \
create and edit files; a folder is listed two levels deep.
        submit(): Hand in the current state of the repository.
    """),
    frozenset({"str_replace_editor"}),
)
_TAU_COMMON = _make_tools("""
    calculate(expression): Compute an arithmetic expression.
    think(thought): Write down a thought; nothing is changed.
    transfer_to_human_agents(summary): Hand the user over to a person.
    get_user_details(user_id): Show the profile of a user.
""")
_TAU_RETAIL = KnownTools(
    "tau_bench_retail",
    _TAU_COMMON
    + _make_tools(f"""
        find_user_id_by_email(email): Find a user by the address of mail.
        find_user_id_by_name_zip(first_name last_name zip): Find a user by name and zip code.
        get_order_details(order_id): Show the state of an order.
        get_product_details(product_id): Show the variants of a product.
        list_all_product_types(): List the products by name and id.
        cancel_pending_order(order_id reason): Cancel an order that waits.
        exchange_delivered_order_items(order_id item_ids:list new_item_ids:list payment_method_id): Exchange items \
that were delivered for others of the same products.
        return_delivered_order_items(order_id item_ids:list payment_method_id): Return items.
        modify_pending_order_address(order_id {_ADDRESS}): Change where an order goes.
        modify_pending_order_items(order_id item_ids:list new_item_ids:list payment_method_id): Change items of an \
order that waits to others of the same products.
        modify_pending_order_payment(order_id payment_method_id): Change how an order is paid.
        modify_user_address(user_id {_ADDRESS}): Change the address of a user.
    """),
    frozenset({"find_user_id_by_email", "find_user_id_by_name_zip", "list_all_product_types"}),
)
_TAU_AIRLINE = KnownTools(
    "tau_bench_airline",
    _TAU_COMMON
    + _make_tools("""
        book_reservation(user_id origin destination flight_type cabin insurance flights:objects passengers:objects \
payment_methods:objects total_baggages:integer nonfree_baggages:integer): Book flights.
        cancel_reservation(reservation_id): Cancel a whole reservation.
        get_reservation_details(reservation_id): Show a reservation.
        list_all_airports(): List the airports and their cities.
        search_direct_flight(origin destination date): Search flights between two airports on a day.
        search_onestop_flight(origin destination date): Search flights with one stop on a day.
        send_certificate(user_id amount:number): Send a voucher to a user.
        update_reservation_baggages(reservation_id total_baggages:integer nonfree_baggages:integer payment_id): Change \
the baggage of a reservation.
        update_reservation_flights(reservation_id cabin flights:objects payment_id): Change the flights of a \
reservation.
        update_reservation_passengers(reservation_id passengers:objects): Change who flies.
    """),
    frozenset({"get_reservation_details", "search_direct_flight", "book_reservation"}),
)
_AGENTS = (SWE_AGENT, _TAU_RETAIL, _TAU_AIRLINE)
