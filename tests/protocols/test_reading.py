"""Any text at all, read by every protocol: acts stand in order inside of what is kept, and nothing invented is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.core.completion import Completion
from foretrace.core.plugins import load_plugin, plugin_names
from foretrace.encodings.reply_blocks import find_hallucinated_result
from foretrace.episodes.transcript import Transcript
from foretrace.protocols.base import Act, InteractionProtocol

TAGS = ("think", "code", "verify", "wait", "plan", "reflect", "answer", "result", "error", "tool_call", "tool_response")
BITS = st.one_of(
    st.sampled_from([f"<{tag}>" for tag in TAGS]),
    st.sampled_from([f"</{tag}>" for tag in TAGS]),
    st.sampled_from(
        ["[THINK]", "[CODE]", "[/CODE]", "[VERIFY]", "[RESULT]", "```python\n", "```", "\n", "Observation:"]
    ),
    st.sampled_from(
        ["x = 1\n", "def f():\n    return 1\n", "one two three four", '{"name": "python", ', "<", "é", "🙂"]
    ),
    st.sampled_from(['{"name": "python", "arguments": {"code": "print(1)"}}', '"arguments": {"code": "a\nb"}}']),
    st.text(max_size=12),
)
TEXTS = st.lists(BITS, max_size=14).map("".join)
PROTOCOLS: list[InteractionProtocol] = [load_plugin("protocol", name)() for name in plugin_names("protocol")]


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
@given(text=TEXTS, cut=st.booleans(), earlier=TEXTS)
def test_acts_stand_in_order_inside_of_what_is_kept(
    protocol: InteractionProtocol, text: str, cut: bool, earlier: str
) -> None:
    before: tuple[Act, ...] = protocol.read(earlier, cut=False, before=()).acts
    reply = protocol.read(text, cut=cut, before=before)
    made = find_hallucinated_result(text)
    added = reply.text[len(text) :]
    assert reply.text == text[:made] + added and (not added or (added in protocol.stop and added.startswith("</")))
    assert (reply.hallucinated > 0) == (made is not None)
    assert not added or not (cut or reply.hallucinated)
    at = 0
    for act in reply.acts:
        assert at <= act.span[0] <= act.span[1] <= len(reply.text)
        at = act.span[1]
        assert act.handling is None or act.error is None
        assert (act.kind == "refused") <= (act.error is not None)
    record = Transcript(unread="python")
    record.add_reply(reply, Completion(text=text), continues=False)
    assert "".join(m.content for m in record.messages) == reply.text
    for message in record.messages:
        for call in message.tool_calls:
            assert call.span is not None and 0 <= call.span[0] <= call.span[1] <= len(message.content)
    assert protocol.nudge(reply).strip()
