"""One live attempt at a problem: a state machine that is fed completions, runs what they do, and ends in one Trace.

An episode never calls a model: `rollout` feeds it from one, an RL trainer from its own server, a test from a text.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple, Self

import msgspec

from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ForetraceError, ProblemError
from foretrace.core.problem import Problem, Test
from foretrace.core.trace import Outcome, Status, Trace
from foretrace.episodes.identity import Identity, key_of, provenance_of, task_of
from foretrace.episodes.scoring import RewardRule, Tally, metrics_of, reward_of
from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.token_context import Stream
from foretrace.episodes.transcript import Answer, Record
from foretrace.episodes.workspace import Working
from foretrace.models.base import TokenModel
from foretrace.protocols.base import Act, InteractionProtocol, ProblemView, Reply, Result
from foretrace.sandbox.base import Sandbox


class _Deed(NamedTuple):
    """What became of one act, and how long that took."""

    result: Result
    seconds: float


class Episode:
    """One attempt: `start`, then `step` for each completion until `done`, then `trace`.

    Args:
        tokens: What makes ids of text. With it, what the model is shown is one growing list of ids: what was sampled is
            never tokenised again, and answers are appended to it. Without it, a model is shown messages.

    Raises:
        ProblemError: the problem has no tests.
    """

    def __init__(
        self,
        problem: Problem,
        protocol: InteractionProtocol,
        sandbox: Sandbox,
        *,
        settings: EpisodeSettings | None = None,
        identity: Identity | None = None,
        tokens: TokenModel | None = None,
    ) -> None:
        if not (problem.public_tests or problem.hidden_tests):
            raise ProblemError(f"{problem.id} has no tests: an answer to it cannot be judged")
        self.problem, self.protocol = problem, protocol
        self.settings = settings or EpisodeSettings()
        self.identity = identity or Identity()
        self.done = False
        self.reward: float | None = None
        self._working = Working(problem, sandbox)
        self._record = Record(unread=protocol.tools[0].name if protocol.tools else "")
        self._chat: list[ChatMessage] = []
        self._acts: list[Act] = []
        self._tally = Tally()
        self._results: list[Result] = []
        self.turns = 0
        """Completions so far."""
        self.max_turns = self.settings.max_turns or protocol.max_turns
        self._outcome: Outcome | None = None
        self.prefill = ""
        """The assistant's turn so far, where answers are injected into it."""
        self._stream = None if tokens is None else Stream(tokens)

    @property
    def key(self) -> str:
        """The key of its trace: known before it starts, so that what was done is not done again."""
        return key_of(self.problem, self.protocol, self.identity, self.settings)

    async def start(self) -> tuple[ChatMessage, ...]:
        """The messages with which the episode starts."""
        await self._working.start()
        opening = self.protocol.opening(view_of(self.problem))
        self._chat = list(opening)
        self._record.open(opening)
        if self._stream is not None:
            await self._stream.open(opening)
        return opening

    @property
    def code(self) -> str:
        """The answer so far."""
        return self._working.code

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """All that the model is shown for its next completion."""
        return tuple(self._chat)

    def request(self, sampling: Sampling, *, logprobs: bool = True) -> Request:
        """The next completion that is wanted: behind the ids so far, where the episode has them, and told in messages,
        and a turn that goes on by its text, for a server that takes no ids."""
        return Request(
            messages=self.messages,
            prefill=self.prefill,
            prompt_ids=self._stream.ids if self._stream is not None else None,
            stop=self.protocol.stop,
            sampling=sampling,
            logprobs=logprobs,
        )

    async def step(self, completion: Completion) -> list[Result]:
        """Take one completion in: run what it does, and answer it or end.

        Raises:
            SandboxError: the sandbox cannot run.
        """
        if self.done:
            raise ValueError("the episode is done")
        self.turns += 1
        reply = self.protocol.read(completion.text, cut=completion.finish == "length", before=tuple(self._acts))
        reply, completion, ending = await self._kept(reply, completion)
        calls = self._record.reply(reply, completion, continues=bool(self.prefill))
        if completion.reasoning:
            self._acts.append(Act(kind="think", span=(0, 0), text=completion.reasoning))
        self._acts += reply.acts
        self._tally.reply(reply, completion)
        deeds = await self._do_all(reply)
        results = [deed.result for deed in deeds]
        self._results += results
        over = self.protocol.is_done(reply, self._results)
        last = self.turns >= self.max_turns
        answers = self._answers(deeds, calls, ends=over or last)
        if not deeds and not over:
            answers = [Answer(self.protocol.nudge(reply))]
        if self._stream is not None and not over and (self.protocol.continues or not last):
            answers = await self._appended(self._stream, answers, ending)
        self._record.answers(answers, injected=self.protocol.continues)
        if over or last:
            await self._finish("done" if over else "limit")
        else:
            self._say(reply, [answer.text for answer in answers])
        return results

    async def _kept(self, reply: Reply, completion: Completion) -> tuple[Reply, Completion, int]:
        """The reply and the completion as they stand in the turn, and how many ids at its end are the model's end."""
        if self._stream is None:
            return reply, completion, 0
        try:
            kept, ending = await self._stream.take(completion, reply.text)
        except ForetraceError:
            self._record.reply(reply, completion, continues=bool(self.prefill))  # what was said is not lost
            raise
        return msgspec.structs.replace(reply, text=kept.text), kept, ending

    async def end(self, reason: str) -> None:
        """End the episode before its own end, at a limit of what is around it; what there is of an answer is judged.

        Raises:
            SandboxError: the sandbox cannot run.
        """
        await self._finish("limit", reason)

    async def fail(self, kind: str, message: str) -> None:
        """End the episode because something around it failed; its trace says so and has no reward."""
        self._outcome = self._working.failure(kind, message, self._tally.sums())
        self.done = True
        await self._working.close()

    async def _do_all(self, reply: Reply) -> list[_Deed]:
        """What became of each act that does something. An answer is not handed in over a failure that the model has
        not seen."""
        deeds: list[_Deed] = []
        for act in reply.acts:
            if act.handling is None and act.error is None:
                continue
            started = time.perf_counter()
            if act.error is not None:
                result = Result(act=act, error=act.error)
            elif act.handling == "submit" and any(deed.result.failed for deed in deeds):
                result = Result(act=act, error="not handed in: what stands before it in this reply failed")
            else:
                result = await self._do(act)
            deeds.append(_Deed(result, time.perf_counter() - started))
            self._tally.result(*deeds[-1])
        return deeds

    async def _do(self, act: Act) -> Result:
        result = await self._working.do(act)
        counts = self.settings.feedback == "counts" and self.problem.hidden_tests
        if counts and act.handling in ("test", "check") and not result.broken:
            result = msgspec.structs.replace(result, hidden=await self._working.hidden())
        return result

    def _answers(self, deeds: list[_Deed], calls: list[str], *, ends: bool) -> list[Answer]:
        """An answer to each call, but to an answer that was handed in."""
        hints = self.settings.hints
        return [
            Answer(self.protocol.respond(deed.result, hints=hints, last=ends), call, deed.result.failed, deed.seconds)
            for deed, call in zip(deeds, calls, strict=True)
            if deed.result.act.handling != "submit" or deed.result.error is not None
        ]

    async def _appended(self, stream: Stream, answers: list[Answer], ending: int) -> list[Answer]:
        """The answers with their ids in the stream; those of a message that joins several are the first one's."""
        if not self.protocol.continues:
            ids = await stream.turn("\n".join(answer.text for answer in answers))
            return [answer._replace(token_ids=ids) for answer in answers[:1]] + answers[1:]
        stream.drop(ending)
        self._record.drop(ending)
        return [answer._replace(token_ids=await stream.inject(answer.text)) for answer in answers]

    def _say(self, reply: Reply, answers: list[str]) -> None:
        """Put a reply and what answers it where the model sees them."""
        if self.protocol.continues:
            self.prefill += reply.text + "".join(answers)
            return
        self._chat.append(ChatMessage("assistant", reply.text))
        self._chat.append(ChatMessage("user", "\n".join(answers)))

    async def _finish(self, status: Status, reason: str | None = None) -> None:
        verdicts = await self._working.judge()
        rule = RewardRule(structure_bonus=self.settings.structure_bonus)
        metrics = metrics_of(self._tally, self._acts, verdicts, self.protocol)
        self.reward = reward_of(verdicts, metrics, rule)
        self._outcome = self._working.outcome(status, verdicts, self.reward, metrics, reason)
        self.done = True
        await self._working.close()

    def trace(self) -> Trace:
        """The finished episode as a Trace, without an id.

        Raises:
            ValueError: the episode is not done.
        """
        if self._outcome is None:
            raise ValueError("the episode is not done")
        return Trace(
            key=self.key,
            task=task_of(self.problem),
            tools=self.protocol.tools,
            messages=self._record.messages,
            outcome=self._outcome,
            provenance=provenance_of(self.problem, self.protocol, self.identity, self._mode()),
            extra={"reward_formula": RewardRule(structure_bonus=self.settings.structure_bonus).formula},
        )

    def _mode(self) -> dict[str, Any]:
        """How the episode was run, for its trace."""
        mode = {"feedback": self.settings.feedback, "hints": self.settings.hints, "max_turns": self.max_turns}
        return {**self.identity.sampling, **mode}

    async def close(self) -> None:
        """End what is still running. May be called twice."""
        await self._working.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def view_of(problem: Problem) -> ProblemView:
    """What a model may see of a problem: never a hidden test."""
    return ProblemView(
        statement=problem.statement,
        entry_point=problem.entry_point,
        prompt=problem.prompt,
        public_tests=tuple(_shown(test) for test in problem.public_tests),
    )


def _shown(test: Test) -> str:
    if test.stdin is None:
        return test.code
    return f"input:\n{test.stdin}\noutput:\n{test.stdout or ''}"
