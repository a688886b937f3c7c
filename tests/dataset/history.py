"""Whether a prompt shows a trace's history: read back from the prompt, apart from the code that renders it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretrace.core.message_columns import ChatText
from foretrace.core.trace import Message
from foretrace.dataset.prompt_texts import (
    AGENT_BEGINS,
    AGENT_GOES_ON,
    JOIN,
    find_side,
    frame_text,
    make_omission_mark,
    make_shown_text,
)

OMISSION = re.compile(r"\[(\d{1,12}) earlier messages? left out\]")
CUT = re.compile(r"\n\[(\d{1,12}) characters left out\](?=\n)")


class History:
    """The messages of a trace, against which prompts are compared."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._texts = [make_shown_text(message) for message in messages]
        self._sides = [find_side(message) for message in messages]
        self._start = next((at for at, m in enumerate(messages) if m.role != "system"), len(messages))
        turns = range(self._start, len(messages))
        self._first = next((at for at in turns if messages[at].role in ("assistant", "tool")), len(messages))
        self._ends = _find_run_ends(self._sides)
        self._known: dict[tuple[int, int], str] = {}
        """The text of each turn behind the first that was found right, by its first message and the one behind its
        last: most stand in many prompts."""
        self._openings: set[tuple[int | str, ...]] = set()
        """First turns that were found right, each as its text and its pieces."""

    def is_shown_by(self, prompt: Sequence[ChatText], step: int) -> bool:
        """Whether the prompt's history is the trace's messages up to the step.

        That is one system message, then turns of user and agent by turns, the user's first and last; in them each
        message at its place, whole or with its middle marked as left out. Messages may be missing only behind the
        task, and a mark there says how many.
        """
        turns = prompt[1:]
        if not turns or prompt[0].role != "system" or len(turns) % 2 == 0:
            return False
        roles = [role for role, _ in turns]
        if roles[::2].count("user") + roles[1::2].count("assistant") != len(turns):
            return False
        marked = {int(mark[1]) for mark in OMISSION.finditer(turns[0].content)}
        missing = [0, *sorted(count for count in marked if 0 < count <= step - self._first)]
        return any(self._is_shown(turns, step, count) for count in missing)

    def _is_shown(self, turns: Sequence[ChatText], step: int, missing: int) -> bool:
        pieces: list[int | str] = [*range(self._start, min(self._first, step))]
        if missing:
            pieces.append(make_omission_mark(missing))
        at = self._first + missing
        if at < step and self._sides[at] == "user":
            end = min(self._ends[at], step)
            pieces += range(at, end)
            at = end
        place, count, side = 1, len(turns), "user"
        known, ends = self._known, self._ends
        while at < step:  # from turn to turn the side changes, as the role does in the prompt
            end = min(ends[at], step)
            if place == count:
                return False
            text = turns[place].content
            if known.get((at, end)) != text:
                if not self._is_joined(text, range(at, end)):
                    return False
                known[at, end] = text
            side = self._sides[at]
            at = end
            place += 1
        if side == "assistant":
            if place == count or turns[place].content != AGENT_GOES_ON:
                return False
            place += 1
        return place == count and self._is_opening(turns[0].content, pieces or [AGENT_BEGINS])

    def _is_opening(self, text: str, pieces: Sequence[int | str]) -> bool:
        turn = (text, *pieces)
        if turn not in self._openings:
            if not self._is_joined(text, pieces):
                return False
            self._openings.add(turn)
        return True

    def _is_joined(self, text: str, pieces: Sequence[int | str]) -> bool:
        """Whether the text is these pieces: marks, and messages by their index."""
        if text == JOIN.join([piece if isinstance(piece, str) else self._frame(piece) for piece in pieces]):
            return True
        ends = {0}
        for number, piece in enumerate(pieces):
            if number:
                ends = {at + len(JOIN) for at in ends if text.startswith(JOIN, at)}
            ends = {end for at in ends for end in self._find_ends(text, at, piece)}
        return len(text) in ends

    def _frame(self, index: int) -> str:
        return frame_text(self._messages[index], self._texts[index])

    def _find_ends(self, text: str, at: int, piece: int | str) -> list[int]:
        """Where the piece may end that begins at a place of the text."""
        before, whole, behind = "", piece, ""
        if not isinstance(piece, str):
            whole = self._texts[piece]
            before, _, behind = frame_text(self._messages[piece], "\0").partition("\0")
        assert isinstance(whole, str)
        if not text.startswith(before, at):
            return []
        at += len(before)
        ends = [at + len(whole)] if text.startswith(whole, at) else []
        if not isinstance(piece, str):
            ends += _find_cut_ends(text, at, whole)
        return [end + len(behind) for end in ends if text.startswith(behind, end)]


def _find_run_ends(sides: Sequence[str]) -> list[int]:
    """For each message, where the messages of its side end that follow one another there."""
    ends = [len(sides)] * len(sides)
    for at in range(len(sides) - 2, -1, -1):
        ends[at] = ends[at + 1] if sides[at] == sides[at + 1] else at + 1
    return ends


def _find_cut_ends(text: str, at: int, whole: str) -> list[int]:
    """Where the text ends that begins at a place and is `whole` with its middle marked as left out."""
    ends: list[int] = []
    for mark in CUT.finditer(text, at):
        head = text[at : mark.start()]
        if not whole.startswith(head):
            break
        left = len(whole) - len(head) - int(mark[1])
        end = mark.end() + 1 + left
        if left >= 0 and text[mark.end() + 1 : end] == whole[len(whole) - left :]:
            ends.append(end)
    return ends
