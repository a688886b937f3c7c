"""All encodings, by name."""

from __future__ import annotations

from foretrace.encodings.action_lines import ACTION_LINE
from foretrace.encodings.base import TextEncoding
from foretrace.encodings.fence import FENCE
from foretrace.encodings.json_calls import JSON_ACTION, REACT, TAGGED_JSON, TERMINAL_JSON, TOOL_CALL_JSON
from foretrace.encodings.parameter_tags import FUNCTION_XML, TOOL_TAGS, WRAPPED_FUNCTION
from foretrace.encodings.python_calls import CALL_LIST
from foretrace.encodings.text_bodies import CODE_FENCE, TAGGED_CODE
from foretrace.encodings.web_actions import WEB_CALL, WEB_FENCE

_ALL: tuple[TextEncoding, ...] = (
    ACTION_LINE, CALL_LIST, CODE_FENCE, FENCE, FUNCTION_XML, JSON_ACTION, REACT, TAGGED_CODE, TAGGED_JSON,
    TERMINAL_JSON, TOOL_CALL_JSON, TOOL_TAGS, WRAPPED_FUNCTION, WEB_CALL, WEB_FENCE,
)  # fmt: skip
ENCODINGS = {encoding.name: encoding for encoding in _ALL}
