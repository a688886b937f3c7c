"""Which messages of a trace's history a prompt shows: the latest ones, from a start that follows from the past alone.

A server that keeps what it has computed (a prefix cache) computes of the next prompt only what follows the part that it
shares with the one before. Where the window slides, almost every step of a long trace leaves other messages out, so
little more than the system text is shared. Where it is cut in blocks, the start stays until the history has no room,
and then moves far: the prompts between two cuts only grow at their end.
"""

from __future__ import annotations

from foretrace.dataset.settings import Window

KEPT_SHARE = 0.5
"""What a cut leaves of the room for the history, at most."""


class HistoryWindow:
    """The start of the history at each step of a trace. Places count the messages of the history from 0."""

    def __init__(self, window: Window, room: int) -> None:
        """
        Args:
            window: How it moves.
            room: Tokens of all messages that are shown together, at most.
        """
        self._window: Window = window
        self.room = room
        self._is_agent: list[bool] = []
        self._sums = [0]
        """Tokens of the first messages, by their number."""
        self._starts = [0]
        """In blocks: where the history begins after the steps among the first messages, by their number."""

    def add(self, role: str, tokens: int) -> None:
        """Take the next message: the role of its turn, and its tokens."""
        self._is_agent.append(role == "assistant")
        self._sums.append(self._sums[-1] + tokens)

    def count_tokens(self, start: int, end: int) -> int:
        """Tokens of the messages from `start` to before `end`."""
        return self._sums[end] - self._sums[start]

    def find_start(self, end: int) -> int:
        """Place of the first message that is shown to the agent's message at `end`. Where some are left out, it is one
        of the agent, so that no result stands without its call; unless there is none with room for what follows it."""
        if self._window == "sliding":
            return self._find_latest(end, self.room)
        # The cuts are those of all steps before, whether or not their prompts were asked for.
        for at in range(len(self._starts) - 1, end):
            self._starts.append(self._find_block_start(at) if self._is_agent[at] else self._starts[at])
        return self._find_block_start(end)

    def _find_block_start(self, end: int) -> int:
        start = self._starts[end]
        if self.count_tokens(start, end) <= self.room:
            return self._find_agent(start, end)
        after_cut = self._find_latest(end, int(self.room * KEPT_SHARE))
        if after_cut < end and self._is_agent[after_cut]:
            return after_cut
        start = self._find_latest(end, self.room)
        return next((at for at in range(end - 1, start, -1) if self._is_agent[at]), start)

    def _find_latest(self, end: int, room: int) -> int:
        """Where the latest messages begin that fit into so many tokens."""
        start = end
        while start > 0 and self.count_tokens(start - 1, end) <= room:
            start -= 1
        return self._find_agent(start, end)

    def _find_agent(self, start: int, end: int) -> int:
        """The first place from `start` on with a message of the agent; `start` where there is none, or nothing is left
        out."""
        return start if start == 0 else next((at for at in range(start, end) if self._is_agent[at]), start)
