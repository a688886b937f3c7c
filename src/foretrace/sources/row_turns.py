"""Find the conversation in a row, whatever its columns are called: the turns as one list, and their columns.

A turn is a mapping with a role and a content in one of the forms that `turn_items` reads. The forms of a row: a list of
messages (or its JSON text, or parallel lists); messages with the last reply in its own column; a request and a response
of a model's API; an agent's steps with their actions and results; a text with the tokens of a chat template or with
roles at the beginning of lines; alternating states of a web page and actions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.sources.base import RowError
from foretrace.sources.json_values import as_dict, as_list, decode_json, decode_nested, get_dict, get_text, write_text
from foretrace.sources.leftovers import find_rest
from foretrace.sources.openai_messages import check_objects, decode_column
from foretrace.sources.turn_items import REST, Row, Turns, get_role, is_agent, is_turn, make_raw_call, make_thought

MESSAGES = ("messages", "conversations", "conversation", "history", "trajectory", "dialogue", "turns")
"""Columns that are tried first."""
_REPLIES = ("completion", "response")
_REQUESTS = ("request", "inputs", "input", "request_body", "requestBody")
_RESPONSES = ("response", "outputs", "output", "response_body", "responseBody")
"""Columns for the response in a log of a model's API."""
_REPLY_PATHS: tuple[tuple[str | int, ...], ...] = (
    ("choices", 0, "message"),
    ("output", "message"),
    ("candidates", 0, "content"),
    ("generations", 0, 0, "message"),
    (),
)
"""Paths to the model's message in the response of an API."""
_TOOL_HOLDERS = ("toolConfig", "tool_config", "config")
_SYSTEMS = ("system", "system_prompt", "systemInstruction", "system_instruction")
_INTENTS = ("intent", "task", "goal", "objective")
"""Columns of the task to be done on a page."""
_STATES = frozenset({
    "state", "chat_messages", "values", "channel_values", "session", "thread", "chat", "transcript", "episode",
    "rollout", *MESSAGES,
})  # fmt: skip
"""Columns that contain the agent's `messages`; messages in a `grader` or in `metadata` are not the agent's."""
_SPOKEN = re.compile(r"^(system|user|assistant|tool|human|ai|function response): ?", re.MULTILINE | re.IGNORECASE)
_SPOKEN_START = re.compile(r"\s*(?:system|user|assistant|human): ", re.IGNORECASE)
_TEMPLATES = (
    ("<|im_start|>", r"<\|im_start\|>(\w+)(?:[ \t]+name=[\w.-]+)?[ \t]*\n(.*?)(?:<\|im_end\|>|\Z)"),
    ("<|start_header_id|>", r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n*(.*?)(?:<\|eot_id\|>|<\|eom_id\|>|\Z)"),
)
"""Chat templates (ChatML, Llama): the token that begins a turn, and the role and the text of a turn."""
_FILLING = re.compile(r"(?:\s|<\|endoftext\|>|<\|end_of_text\|>|<\|begin_of_text\|>|</?s>)*")
"""What a template may put between turns."""
_THOUGHT = re.compile(r"\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
_STEPS = ("trajectory", "steps", "history", "actions")
_ACTIONS = ("tool", "tool_name", "action", "function", "tool_call", "tool_calls", "command")
_ARGUMENTS = ("tool_input", "tool_args", "action_input", "arguments", "args", "parameters", "input", "kwargs")
_RESULTS = ("observation", "observations", "obs", "tool_output", "tool_result", "result", "output", "response")
_THOUGHTS = ("thought", "thoughts", "reasoning", "rationale", "thinking")
_TASKS = ("question", "task", "query", "goal", "instruction", "intent", "input", "prompt", "objective")
_GOALS = frozenset({"question", "goal", "instruction", "intent", "objective"})
"""Columns that only describe an agent's task; a build or a test may have a `task`, too."""
_ANSWERS = ("final_answer", "answer", "output", "final_output")


class FoundTurns(NamedTuple):
    """The conversation of a row, with its turns in one vocabulary."""

    turns: Turns
    columns: frozenset[str]
    """Columns that the conversation takes, including ignored ones."""
    form: str
    """What was recognized, in a few words."""
    tools: Any = None
    """Definitions of tools, if they are in a request within the row."""
    rest: Row | None = None
    """What else is in those columns."""


def find_turns(row: Row) -> FoundTurns | None:
    """The conversation of a row; `None` if there is none."""
    for find in _FINDERS:
        if found := find(row):
            found = _add_system(row, found)
            return found if find is _find_web_states else _add_rest(row, found)  # its pages are too large to keep
    return None


def read_turns(row: Row, path: str) -> FoundTurns:
    """The conversation in the column that the user names (dots lead into objects); a RowError if there is none."""
    value = get_path(row, path)
    column = path if path in row else path.partition(".")[0]
    if isinstance(value, str) and ((turns := split_template(value)) or _SPOKEN_START.match(value)):
        turns = turns or _split_transcript(value)
        return FoundTurns([*enumerate(turns)], frozenset({column}), path)
    turns = decode_turns(value, path)
    return _add_rest(row, _add_system(row, FoundTurns([*enumerate(turns)], frozenset({column}), path)))


def _add_rest(row: Row, found: FoundTurns) -> FoundTurns:
    """Add what else the columns of the conversation contain: a step's rest goes to its message, others to the row."""
    places: dict[int | None, list[int]] = {}
    for number, (place, _) in enumerate(found.turns):
        places.setdefault(place, []).append(number)
    turns = list(found.turns)
    rests: Row = {}
    for column in sorted(found.columns & row.keys()):
        value = decode_nested(row[column])
        for place, item in enumerate(as_list(value)):
            own = places.get(place, range(len(turns)))
            if not isinstance(item, dict) or any(turns[number][1] == item for number in own):
                continue
            if (rest := find_rest(item, [turns[number][1] for number in own])) is not None and own:
                turns[own[0]] = turns[own[0]][0], {**turns[own[0]][1], REST: rest}
        if isinstance(value, dict):
            rest = find_rest(value, [found.tools, *(turn for _, turn in turns)])
            rests |= {} if rest is None else {column: rest}
    return found._replace(turns=turns, rest=rests)


def get_path(row: Row, path: str) -> Any:
    """The value in a column, or at `a.b` within objects or their JSON text; a RowError if it is missing."""
    if path in row:
        return row[path]
    value: Any = row
    for name in path.split("."):
        value = decode_nested(value)
        if not isinstance(value, dict) or name not in value:
            raise RowError("missing_column", path)
        value = value[name]
    return value


def decode_turns(value: Any, column: str) -> list[Row]:
    """A list of turns, given as it is, as JSON text, or as parallel lists; a RowError if it is something else."""
    value = decode_column(value, column)
    if isinstance(value, dict) and (value := _zip_lists(value)) is None:
        raise RowError("wrong_column_type", f"{column} is an object, and no lists of one length")
    return check_objects(value, column)


def _zip_lists(value: Row) -> list[Row] | None:
    lists = {key: items for key, items in value.items() if isinstance(items, list)}
    size = max(map(len, lists.values()), default=0)
    lists = {key: items for key, items in lists.items() if len(items) == size}
    if not size or len(lists) < 2:
        return None
    return [dict(zip(lists, items, strict=True)) for items in zip(*lists.values(), strict=True)]


def _list_turns(value: Any) -> list[Row]:
    """The value as a list of turns; empty if it is not one."""
    value = decode_nested(value)
    if isinstance(value, dict):
        value = _zip_lists(value)
    if not isinstance(value, list) or not value:
        return []
    if not all(isinstance(item, dict) for item in value) or not any(map(is_turn, value[:20])):
        return []
    return [] if _are_alternatives(value) else value


def _are_alternatives(items: list[Row]) -> bool:
    """Whether all messages are in envelopes and the agent's: alternative replies, or replies to several questions."""
    inner = [item.get("message") for item in items]
    return all(isinstance(message, dict) and is_agent(message) for message in inner)


def _find_messages(row: Row) -> FoundTurns | None:
    known = ((name, _list_turns(row[name])) for name in MESSAGES if name in row)
    found = next((each for each in known if each[1]), None)
    if found is None:
        # Only one other column may hold turns: with two, there is no way to tell which is the conversation.
        others = _list_others(row)
        found = others[0] if len(others) == 1 else None
    if found is None:
        return None
    column = found[0]
    turns: Turns = [*enumerate(found[1])]
    used = {column}
    if isinstance(row.get("completion"), (str, list, dict)):
        reply = _make_turns(row["completion"], "assistant")
        turns += [(len(turns) + n, turn) for n, turn in enumerate(reply)]
        used.add("completion")
    return FoundTurns(turns, frozenset(used), f"column {column} holds messages")


def _list_others(row: Row) -> list[tuple[str, list[Row]]]:
    """The columns of other names that hold turns, and the turns."""
    names = [name for name in row if name not in ("prompt", "input", "output", *_REPLIES, *MESSAGES)]
    return [(name, turns) for name in names if (turns := _list_turns(row[name]))]


def find_rivals(row: Row) -> list[str]:
    """The columns of a row with several conversations; empty if there are fewer than two."""
    names = ["chosen", "rejected"] if {"chosen", "rejected"} <= row.keys() else [name for name, _ in _list_others(row)]
    return names if len(names) > 1 else []


def _find_input(row: Row) -> FoundTurns | None:
    """A whole conversation in `input`, as clients of the Responses API keep it."""
    turns = _list_turns(row.get("input"))
    if not any(map(is_agent, turns)) or any(row.get(name) for name in (*_REPLIES, *_RESPONSES)) or find_rivals(row):
        return None
    if get_role(turns[-1]) == "user":  # examples in a prompt, whose reply is elsewhere
        return None
    return FoundTurns([*enumerate(turns)], frozenset({"input"}), "column input holds messages")


def _make_turns(value: Any, role: str) -> list[Row]:
    if turns := _list_turns(value):
        return turns
    value = decode_nested(value) if isinstance(value, str) and is_turn(decode_nested(value)) else value
    if isinstance(value, dict) and is_turn(value):
        return [value]
    return [{"role": role, "content": value}] if isinstance(value, str) and value.strip() else []


def _find_logged_call(row: Row) -> FoundTurns | None:
    """A request to a model's API and its response, as proxies and gateways log them; the messages of the request may be
    in the row itself. Replies in the request were logged with their own requests."""
    said_in = next((name for name in _RESPONSES if _open_body(row.get(name))), "")
    answer = _open_body(row.get(said_in))
    holders = [(name, body) for name in _REQUESTS if (body := _open_body(row.get(name)))]
    for asked_in, body in (*holders, ("messages" if "messages" in row else "contents", row)):
        messages = body.get("messages", body.get("contents"))
        if isinstance(messages, list) and len(messages) == 1 and isinstance(messages[0], list):
            messages = messages[0]  # only a batch of one: other conversations would be lost
        turns, reply = _list_turns(messages), find_reply(answer)
        if body is row and (said_in != "response" or is_turn(answer) or (turns and is_agent(turns[-1]))):
            return None
        if turns and reply is not None:
            columns = frozenset({asked_in, said_in})
            exchange: Turns = [*((None, turn) for turn in turns), (0, reply)]
            found = FoundTurns(exchange, columns, f"{asked_in} and {said_in} of a model's API", _find_tools(body))
            return found if body is row else _add_system(body, found)._replace(columns=columns)
    return None


def _find_responses(row: Row) -> FoundTurns | None:
    """A request and a response: `responses_create_params` and `response`, or `input` and `output`."""
    asked, answer = decode_nested(row.get("responses_create_params")), decode_nested(row.get("response"))
    nested = isinstance(answer, dict) and isinstance(answer.get("output"), list)
    output = answer.get("output") if isinstance(answer, dict) and nested else decode_nested(row.get("output"))
    if not isinstance(output, list) or not _list_turns(output):
        return None
    request: Row = asked if isinstance(asked, dict) else row
    turns: Turns = []
    if isinstance(request.get("instructions"), str):
        turns.append((None, {"role": "system", "content": request["instructions"]}))
    turns += [(None, turn) for turn in _make_turns(request.get("input"), "user")]
    if not turns and isinstance(metadata := request.get("metadata"), dict):
        statement = metadata.get("problem_statement")
        turns += [(None, turn) for turn in _make_turns(statement, "user")]
    turns += enumerate(output)
    used = {"response"} if nested else {"output", "input", "instructions"}
    tools = _find_tools(request) or (_find_tools(answer) if isinstance(answer, dict) else None)
    form = "response.output holds items" if nested else "output holds items"
    return FoundTurns(turns, frozenset(used), form, tools=tools)


def _find_tools(body: Row) -> Any:
    holders = (body, *(decode_nested(body.get(name)) for name in _TOOL_HOLDERS))
    names = ("tools", "functions")
    return next((h[name] for h in holders if isinstance(h, dict) for name in names if h.get(name)), None)


def _open_body(value: Any) -> Row:
    """The body of a request or a response, which may be in an envelope."""
    value = decode_nested(value)
    for name in ("body", "inputBodyJson", "outputBodyJson"):
        if isinstance(value, dict) and name in value:
            value = decode_nested(value[name])
    return as_dict(value)


def find_reply(body: Row) -> Row | None:
    """The model's message in a response of one of the APIs; `None` if there are several choices."""
    for path in _REPLY_PATHS:
        value: Any = body
        for key in path:
            if isinstance(value, dict) and isinstance(key, str):
                value = value.get(key)
            else:
                value = value[0] if isinstance(value, list) and len(value) == 1 else None
        if isinstance(value, dict) and is_turn(value):
            return value
    return None


def _find_halves(row: Row) -> FoundTurns | None:
    """`prompt` with a `completion` or `response`; turns in `input` with a text in `output`."""
    prompt, reply = "prompt", next((name for name in _REPLIES if isinstance(row.get(name), (str, list, dict))), None)
    if reply is None and isinstance(row.get("output"), str) and _list_turns(row.get("input")):
        # Only next to turns: two texts in these columns are an instruction and its answer.
        prompt, reply = "input", "output"
    if reply is not None and (found := _find_rendered_halves(row, reply)) is not None:
        return found
    asked, said = _make_turns(row.get(prompt), "user"), _make_turns(row.get(reply or ""), "assistant")
    if reply is None or not asked or not said:
        return None
    if len(said) == 1 and _are_calls(calls := decode_nested(row.get("tool_calls"))):
        said = [{"tool_calls": calls, **said[0]}]
    turns: Turns = [*((None, turn) for turn in asked), *enumerate(said)]
    return FoundTurns(turns, frozenset({prompt, reply}), f"columns {prompt} and {reply}")


def _find_rendered_halves(row: Row, reply: str) -> FoundTurns | None:
    """Two halves of a text with the tokens of a chat template, as in rollouts of a trainer."""
    before, after = row.get("prompt"), row.get(reply)
    if not isinstance(before, str) or not isinstance(after, str):
        return None
    asked, turns = split_template(before), split_template(before + after)
    # The turn that is open at the end of the prompt continues in the reply.
    count = next((n for n, pair in enumerate(zip(asked, turns, strict=False)) if pair[0] != pair[1]), len(asked))
    if not count or not any(map(is_agent, turns[count:])):
        return None
    both: Turns = [*((None, turn) for turn in turns[:count]), *enumerate(turns[count:])]
    return FoundTurns(both, frozenset({"prompt", reply}), f"columns prompt and {reply} are a text of a chat template")


def _are_calls(value: Any) -> bool:
    """Whether a column holds calls; a column of this name may also hold their number or ids."""
    calls = as_list(value)
    return bool(calls) and all(get_text(each, "name") or get_dict(each, "function") for each in calls)


def _find_wanted_calls(row: Row) -> FoundTurns | None:
    """`query` with the calls that answer it in `answers` (xLAM)."""
    calls = decode_nested(row.get("answers"))
    if not isinstance(row.get("query"), str) or not _are_calls(calls):
        return None
    turns: Turns = [(None, {"role": "user", "content": row["query"]})]
    turns.append((0, {"role": "assistant", "content": "", "tool_calls": calls}))
    return FoundTurns(turns, frozenset({"query", "answers"}), "columns query and answers")


def _find_text(row: Row) -> FoundTurns | None:
    """One text with the tokens of a chat template, or in which each turn begins with its role."""
    found: list[FoundTurns] = []
    for column, value in row.items():
        if not isinstance(value, str):
            continue
        turns, what = split_template(value), "text of a chat template"
        if not turns:
            turns, what = _split_transcript(value), "transcript"
        if {"user", "assistant"} <= {get_role(turn) for turn in turns}:
            found.append(FoundTurns([*enumerate(turns)], frozenset({column}), f"column {column} is a {what}"))
    return found[0] if len(found) == 1 else None  # of two, one may be the rejected reply


def split_template(text: str) -> list[Row]:
    """The turns of a text that begins with a template's tokens, else none. Text outside of turns is a RowError."""
    at = _skip_filling(text, 0)
    token, pattern = next(((token, each) for token, each in _TEMPLATES if text.startswith(token, at)), ("", ""))
    turns: list[Row] = []
    for match in re.finditer(pattern, text, re.DOTALL) if pattern else ():
        role, said = match.groups()
        if match.start() != at or token in said:
            break
        if role == "assistant" and (thought := _THOUGHT.match(said)):
            turns += [make_thought(thought[1])] if thought[1] else []
            said = said[thought.end() :]
        turns.append({"role": role, "content": said.rstrip("\n")})
        at = _skip_filling(text, match.end())
    if pattern and at < len(text):
        raise RowError("stray_text", f"text at character {at} is in no turn of the chat template: {text[at:][:60]!r}")
    return turns


def _skip_filling(text: str, at: int) -> int:
    found = _FILLING.match(text, at)
    return found.end() if found else at


def _find_nested(row: Row) -> FoundTurns | None:
    """`messages` within one other column: the state of a graph or session."""
    held = [(name, _list_turns(_open_body(row[name]).get("messages"))) for name in row if name in _STATES]
    found = [(name, turns) for name, turns in held if turns]
    if len(found) != 1:
        return None
    column, turns = found[0]
    return FoundTurns([*enumerate(turns)], frozenset({column}), f"{column}.messages holds messages")


def _find_web_states(row: Row) -> FoundTurns | None:
    """Alternating states of a web page and actions (web navigation in the Agent Data Protocol)."""
    for column in ("trajectory", "steps", "actions"):
        items = decode_nested(row.get(column))
        if isinstance(items, list) and items and all(isinstance(item, dict) for item in items):
            turns = list(_read_states(items))
            if any(turn["role"] == "assistant" for _, turn in turns):
                intent = next((row[k] for k in _INTENTS if isinstance(row.get(k), str)), None)
                asked: Turns = [(None, {"role": "user", "content": intent})] if intent else []
                return FoundTurns([*asked, *turns], frozenset({column}), f"column {column} holds states and actions")
    return None


def _read_states(items: list[Row]) -> Iterator[tuple[int, Row]]:
    begun = False
    for index, item in enumerate(items):
        action = item.get("action")
        if isinstance(action, dict) and isinstance(action.get("action_name"), str):
            thought = get_dict(item, "metadata").get("cot")
            names = action.keys() - {"action_name", "action_type"}
            given = {name: value for name, value in action.items() if name in names and value not in ("", [], None)}
            call = make_raw_call(action["action_name"], given)
            yield index, {"role": "assistant", "content": thought or "", "tool_calls": [call]}
            begun = True
        elif isinstance(item.get("axtree"), str):
            more = {k: v for k, v in item.items() if k != "axtree"}
            # Before the first step it is part of the task; later it is the result of a step.
            yield index, {"role": "tool" if begun else "environment_state", "content": item["axtree"], **more}
        else:
            return


def _split_transcript(text: str) -> list[Row]:
    """The turns of a text whose lines begin with roles; none if its first one does not."""
    pieces = _SPOKEN.split(text)[1:] if _SPOKEN_START.match(text) else []
    roles = (role.lower().removesuffix(" response") for role in pieces[::2])
    return [{"role": role, "content": said.strip()} for role, said in zip(roles, pieces[1::2], strict=True)]


def _find_steps(row: Row) -> FoundTurns | None:
    """A column of an agent's steps, each with its thought, its action and the result, as home-made loops write them.

    A list of actions in words only (a recipe, a test plan) is not a conversation: there are thoughts, or the row has a
    task and the actions have the form of calls.
    """
    for column in _STEPS:
        items = as_list(decode_json(row.get(column)))
        steps = [step for item in items if (step := _read_step(item)) is not None]
        if not steps or len(steps) < len(items) or not any(call and result is not None for _, call, result, _ in steps):
            continue
        asked = next((key for key in _TASKS if get_text(row, key)), None)
        is_agents = asked in _GOALS or (asked and any("observation" in item for item in items))
        is_sure = is_agents and any(is_call for *_, is_call in steps)
        if not is_sure and not any(thought for thought, *_ in steps):
            continue
        turns: Turns = [] if asked is None else [(None, {"role": "user", "content": row[asked]})]
        for index, (thought, made, result, _) in enumerate(steps):
            ids = [f"step_{index}.{n}" if n else f"step_{index}" for n in range(len(made))]
            calls = [make_raw_call(*call, own) for call, own in zip(made, ids, strict=True)]
            if calls or thought:
                turns.append((index, {"role": "assistant", "content": thought, "tool_calls": calls}))
            if result is not None:
                answer: Row = {"role": "tool", "tool_call_ids": ids} if ids else {"role": "environment_state"}
                turns.append((index, {**answer, "content": write_text(result)}))
        said = next((key for key in _ANSWERS if get_text(row, key).strip()), None)
        turns += [] if said is None else [(None, {"role": "assistant", "content": row[said], "train": None})]
        columns = frozenset(filter(None, (column, asked, said)))
        return FoundTurns(turns, columns, f"column {column} holds steps with actions")
    return None


def _read_step(item: Any) -> tuple[str, list[tuple[str, Row]], Any, bool] | None:
    """Thought, calls and result of a step, and whether the action has the form of a call."""
    if not isinstance(item, dict) or "role" in item:
        return None
    thought = next((text for name in _THOUGHTS if (text := get_text(item, name))), "")
    result = next((item[name] for name in _RESULTS if item.get(name) is not None), None)
    key = next((key for key in _ACTIONS if item.get(key)), None)
    if key is None:
        return (thought, [], result, False) if thought else None
    action = decode_nested(item[key])
    given = next((item[name] for name in _ARGUMENTS if name in item), None)
    if isinstance(action, (dict, list)):
        calls = [_read_action(each) for each in (action if isinstance(action, list) else [action])]
        return (thought, calls, result, True) if all(name for name, _ in calls) else None
    if not isinstance(action, str):
        return None
    if given is not None and "\n" not in action and len(action) <= 100:
        return thought, [(action, _as_arguments(given))], result, key != "action" or not isinstance(given, str)
    if key == "command":  # a build or a person runs commands, too
        return thought, [("bash", {"command": action})], result, False
    read = ACTION_LINE.parse(f"Action: {action}")
    is_call = len(read) == 1 and read[0].name not in ("act", "answer") and action.rstrip().endswith((")", "]"))
    call = (read[0].name, msgspec.json.decode(read[0].arguments)) if is_call else ("act", {"input": action})
    return thought, [call], result, is_call


def _read_action(action: Any) -> tuple[str, Row]:
    """Name and arguments of an action that is an object; without a name if it is none."""
    inner = get_dict(action, "function") or as_dict(action)
    name = get_text(inner, "name", "tool", "tool_name", "action", "type")
    rest = {k: v for k, v in inner.items() if v != name and k not in ("id", "type") and v is not None}
    return name, _as_arguments(next((inner[k] for k in _ARGUMENTS if k in inner), rest))


def _as_arguments(value: Any) -> Row:
    value = decode_nested(value)
    return value if isinstance(value, dict) else {} if value in (None, "", []) else {"input": value}


def _add_system(row: Row, found: FoundTurns) -> FoundTurns:
    """Add a system prompt that is in its own column, unless it is already a turn."""
    column = next((c for c in _SYSTEMS if _read_system(row.get(c)).strip()), None)
    if column is None:
        return found
    text = _read_system(row[column])
    prompts = [turn for _, turn in found.turns if get_role(turn) == "system"]
    if any(turn.get("content", turn.get("value")) == text for turn in prompts):
        return found._replace(columns=found.columns | {column})
    if prompts:
        return found
    return found._replace(
        turns=[(None, {"role": "system", "content": text}), *found.turns], columns=found.columns | {column}
    )


def _read_system(value: Any) -> str:
    """A system prompt: text, blocks of text, or an object with parts."""
    if isinstance(value, dict):
        value = value.get("parts")
    if isinstance(value, list):
        texts = [block.get("text") if isinstance(block, dict) else None for block in value]
        value = "\n\n".join(text for text in texts if isinstance(text, str)) if all(texts) else ""
    return value if isinstance(value, str) else ""


_FINDERS = (
    _find_logged_call,
    _find_messages,
    _find_responses,
    _find_web_states,
    _find_steps,
    _find_halves,
    _find_wanted_calls,
    _find_text,
    _find_nested,
    _find_input,
)
