"""One live attempt at a problem: a state machine that takes completions, carries out what they ask for, and produces a
Trace.

An episode never calls a model. Completions come from `rollout`, which asks a model, from the server of an RL trainer,
or from a test.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NamedTuple, Self

import msgspec

from foretrace.actions.label_steps import classify_lone_call, find_lone_action
from foretrace.actions.taxonomy import ActionType, Effect
from foretrace.core.completion import ChatMessage, Completion, Request, Sampling
from foretrace.core.errors import ForetraceError
from foretrace.core.problem import Problem
from foretrace.core.trace import Outcome, Provenance, Status, ToolCall, Trace
from foretrace.episodes.identity import Identity, make_key, make_task
from foretrace.episodes.metrics import EventCounter, compute_metrics, compute_reward, describe_reward
from foretrace.episodes.proposers import Situation, read_call
from foretrace.episodes.settings import EpisodeSettings
from foretrace.episodes.speculation import EarlyRuns, Operation, ReportedCall, Speculation
from foretrace.episodes.token_context import TokenContext
from foretrace.episodes.transcript import TOOL_NAMES, EnvironmentMessage, Transcript
from foretrace.episodes.workspace import Workspace
from foretrace.models.base import TokenModel
from foretrace.problems.base import require_tests
from foretrace.protocols.base import Act, InteractionProtocol, ProblemView, Reply, Result
from foretrace.sandbox.base import Sandbox

_UNDONE = (Effect.PURE_READ, Effect.SANDBOX_EXEC)
"""Effects that end with the process that caused them."""


class _HandledAct(NamedTuple):
    """The result of one act, the seconds it took, and when it began (ISO 8601)."""

    result: Result
    seconds: float
    started: str


class Episode:
    """One attempt: `start`, then `step` for each completion until `done`, then `trace`.

    Args:
        tokens: The model's tokenizer. With it, the prompt is one growing list of token ids, to which results are
            appended: sampled text is never tokenized again. Without it, the prompt is a list of messages.
        speculation: Runs early what `speculate` guesses; apart from times, the trace is the same without it.

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
        speculation: Speculation | None = None,
    ) -> None:
        require_tests(problem)
        self.problem, self.protocol = problem, protocol
        self.settings = settings or EpisodeSettings()
        self.identity = identity or Identity()
        self.done = False
        self.reward: float | None = None
        self._early = EarlyRuns(speculation, self.key)
        self._workspace = Workspace(problem, sandbox, self._early)
        self._transcript = Transcript(unread=protocol.tools[0].name if protocol.tools else "")
        self._chat: list[ChatMessage] = []
        self._acts: list[Act] = []
        self._events = EventCounter()
        self._results: list[Result] = []
        self.turns = 0
        self.max_turns = self.settings.max_turns or protocol.max_turns
        self._outcome: Outcome | None = None
        self.prefill = ""
        """The assistant's turn so far, if results are injected into it."""
        self._context = None if tokens is None else TokenContext(tokens)

    @property
    def key(self) -> str:
        """The key of its trace, known before it starts so that finished attempts are not repeated."""
        return make_key(self.problem, self.protocol, self.identity, self.settings)

    async def start(self) -> tuple[ChatMessage, ...]:
        """Start the sandbox; returns the opening messages."""
        await self._workspace.start()
        opening = self.protocol.opening(make_view(self.problem))
        self._chat = list(opening)
        self._transcript.add_opening(opening)
        if self._context is not None:
            await self._context.open(opening)
        return opening

    @property
    def code(self) -> str:
        return self._workspace.code

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        return tuple(self._chat)

    def request(self, sampling: Sampling, *, logprobs: bool = True) -> Request:
        """The request for the next completion: as token ids if the episode has them, and as messages and a started turn
        (`prefill`) for a server that does not take ids."""
        return Request(
            messages=self.messages,
            prefill=self.prefill,
            prompt_ids=self._context.ids if self._context is not None else None,
            stop=self.protocol.stop,
            sampling=sampling,
            logprobs=logprobs,
        )

    @property
    def speculates(self) -> bool:
        return self._early.speculation is not None

    async def speculate(self) -> None:
        """Guess the calls of the next reply, and start them early. Must be cancelled and awaited before `step`."""
        if (speculation := self._early.speculation) is not None:
            try:
                await self._begin_early(speculation)
            except Exception as error:  # the proposer's or ours: no attempt may fail because of it
                speculation.note_failure(error)

    async def _begin_early(self, speculation: Speculation) -> None:
        handlings = frozenset(getattr(self.protocol, "handlings", {}).values())
        messages, last = self._transcript.messages, self._results[-1] if self._results else None
        entry_point = self.problem.entry_point
        self._early.begin_turn(len(messages))
        situation = Situation(self.key, messages, self.protocol.tools, handlings, entry_point, self.code, last)
        for guess in await speculation.propose(situation):
            for call in guess.calls:
                act = read_call(call, handlings)
                facts = classify_lone_call(ToolCall(name=call.tool, arguments=call.arguments), self.protocol.tools)
                reported = ReportedCall(find_lone_action(facts), call.tool)
                safe = act is not None and (act.handling == "submit" or facts.effect in _UNDONE)
                if not (act and safe and await self._workspace.begin_early(reported, act, speculation.sandbox)):
                    speculation.refused += 1

    async def _keep_wanted(self, reply: Reply) -> None:
        """Drop early runs that the reply does not ask for. Final judging is kept if the reply does not change the
        answer. In the session, only early runs of the first act are kept: a later act runs on the state after it, and
        its early run would delay the first."""
        if not self.speculates:
            return
        acts = [act for act in reply.acting if act.error is None]
        if all(act.handling in ("check", "submit") for act in acts):
            acts.append(Act(kind="final", span=(0, 0), handling="submit"))
        wanted, in_session = list[Operation](), False
        for act in acts:
            operations = self._workspace.list_operations(act)
            wanted += [one for one in operations if one.session is None or not in_session]
            in_session = in_session or any(one.session is not None for one in operations)
        await self._early.keep_only(wanted)

    async def step(self, completion: Completion) -> list[Result]:
        """Read a completion, carry out its acts, and add their results to the prompt or end the episode."""
        if self.done:
            raise ValueError("the episode is done")
        self.turns += 1
        asked_at = _write_time(time.time() - completion.seconds)
        reply = self.protocol.read(completion.text, cut=completion.finish == "length", before=tuple(self._acts))
        reply, completion, end_ids = await self._add_completion(reply, completion)
        calls = self._transcript.add_reply(reply, completion, continues=bool(self.prefill), started=asked_at)
        if completion.reasoning:
            self._acts.append(Act(kind="think", span=(0, 0), text=completion.reasoning))
        self._acts += reply.acts
        self._events.count_reply(reply, completion)
        await self._keep_wanted(reply)
        handled = await self._carry_out_all(reply, calls)
        results = [one.result for one in handled]
        self._results += results
        done = self.protocol.is_done(reply, self._results)
        last = self.turns >= self.max_turns
        messages = self._make_messages(handled, calls, last=done or last)
        if not handled and not done:
            messages = [EnvironmentMessage(self.protocol.nudge(reply))]
        if self._context is not None and not done and (self.protocol.continues or not last):
            messages = await self._add_to_context(self._context, messages, end_ids)
        self._transcript.add_environment(messages, injected=self.protocol.continues)
        if done or last:
            await self._finish("done" if done else "limit")
        else:
            await self._early.keep_only(())
            responses = [message.text for message in messages]
            if self.protocol.continues:
                self.prefill += reply.text + "".join(responses)
            else:
                self._chat += [ChatMessage("assistant", reply.text), ChatMessage("user", "\n".join(responses))]
        return results

    async def _add_completion(self, reply: Reply, completion: Completion) -> tuple[Reply, Completion, int]:
        """The reply and completion as added to the context, and how many ids only end the turn."""
        if self._context is None:
            return reply, completion, 0
        try:
            added, end_ids = await self._context.add_completion(completion, reply.text)
        except ForetraceError:
            # The trace still shows the reply.
            self._transcript.add_reply(reply, completion, continues=bool(self.prefill))
            raise
        return msgspec.structs.replace(reply, text=added.text), added, end_ids

    async def end(self, reason: str) -> None:
        """End the episode because of an external limit, and judge the answer so far."""
        await self._finish("limit", reason)

    async def fail(self, kind: str, message: str) -> None:
        """End the episode because something failed: its trace has an error and no reward."""
        self._outcome = self._workspace.make_failure(kind, message, self._events.make_totals())
        self.done = True
        await self._workspace.close()

    async def _carry_out_all(self, reply: Reply, calls: list[ToolCall]) -> list[_HandledAct]:
        """Carry out the acts that do something. An answer is not submitted if an act before it in the same reply
        failed, because the model has not seen that failure yet."""
        handled: list[_HandledAct] = []
        for act, call in zip(reply.acting, calls, strict=True):
            start, begun_at = self._early.start_call(), _write_time(time.time())
            if act.error is not None:
                result = Result(act=act, error=act.error)
            elif act.handling == "submit" and any(one.result.failed for one in handled):
                result = Result(act=act, error="not handed in: what stands before it in this reply failed")
            else:
                result = await self._workspace.carry_out(act)
                counts = self.settings.feedback == "counts" and self.problem.hidden_tests
                if counts and act.handling in ("test", "check") and not result.broken:
                    result = msgspec.structs.replace(result, hidden=await self._workspace.count_hidden())
            seconds = self._early.measure(start)
            if self.speculates and act.error is None and act.handling != "submit":  # counted with the final judging
                facts = classify_lone_call(call, self.protocol.tools)
                self._early.count(ReportedCall(find_lone_action(facts), call.name), start, seconds)
            handled.append(_HandledAct(result, seconds, begun_at))
            self._events.count_result(result, handled[-1].seconds)
        return handled

    def _make_messages(
        self, handled: list[_HandledAct], calls: list[ToolCall], *, last: bool
    ) -> list[EnvironmentMessage]:
        """A message about each result, except for an answer that was submitted."""
        hints = self.settings.hints
        return [
            EnvironmentMessage(
                self.protocol.respond(one.result, hints=hints, last=last),
                call.id,
                one.result.failed,
                one.seconds,
                one.started,
            )
            for one, call in zip(handled, calls, strict=True)
            if one.result.act.handling != "submit" or one.result.error is not None
        ]

    async def _add_to_context(
        self, context: TokenContext, messages: list[EnvironmentMessage], end_ids: int
    ) -> list[EnvironmentMessage]:
        """The messages with their ids in the context; in a joined turn the first message has all ids."""
        if not self.protocol.continues:
            ids = await context.add_user_turn("\n".join(message.text for message in messages))
            return [message._replace(token_ids=ids) for message in messages[:1]] + messages[1:]
        context.drop_last(end_ids)
        self._transcript.drop_last_ids(end_ids)
        return [one._replace(token_ids=await context.add_injection(one.text)) for one in messages]

    async def _finish(self, status: Status, reason: str | None = None) -> None:
        start = self._early.start_call()
        evaluation = await self._workspace.evaluate()
        judging = ReportedCall(ActionType.FINAL_ANSWER, TOOL_NAMES["submit"])
        self._early.count(judging, start, self._early.measure(start))
        metrics = compute_metrics(self._events, self._acts, evaluation, self.protocol)
        self.reward = compute_reward(evaluation, metrics, self.settings)
        self._outcome = self._workspace.make_outcome(status, evaluation, self.reward, metrics, reason)
        self.done = True
        await self._workspace.close()

    def trace(self) -> Trace:
        """The finished episode as a Trace, without an id."""
        if self._outcome is None:
            raise ValueError("the episode is not done")
        problem, identity = self.problem, self.identity
        mode = {"feedback": self.settings.feedback, "hints": self.settings.hints, "max_turns": self.max_turns}
        return Trace(
            key=self.key,
            task=make_task(problem),
            tools=self.protocol.tools,
            messages=self._transcript.messages,
            outcome=self._outcome,
            provenance=Provenance(
                origin="generated",
                source=problem.source or "problems",
                raw_id=problem.id,
                license=problem.license,
                agent="foretrace",
                model=identity.model or None,
                protocol=self.protocol.name,
                sampling={**identity.sampling, **mode},
                seed=identity.seed,
                sample=identity.sample,
                run=identity.run,
                capabilities=identity.capabilities,
                tool_versions=identity.tool_versions,
                created_at=identity.created_at,
            ),
            extra={"reward_formula": describe_reward(self.settings)},
        )

    async def close(self) -> None:
        await self._workspace.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


def _write_time(stamp: float) -> str:
    return datetime.fromtimestamp(stamp, UTC).isoformat()


def make_view(problem: Problem) -> ProblemView:
    """What a model may see of a problem, which never includes hidden tests."""
    return ProblemView(
        statement=problem.statement,
        entry_point=problem.entry_point,
        prompt=problem.prompt,
        public_tests=tuple(
            test.code if test.stdin is None else f"input:\n{test.stdin}\noutput:\n{test.stdout or ''}"
            for test in problem.public_tests
        ),
    )
