"""foretrace's episodes as an environment of the verifiers library (see docs/rl.md)."""

# The verifiers library is an extra, so there may be no types to check against.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from foretrace.envs.messages import missing_library_error

try:
    import verifiers.v1 as vf
    from pydantic import Field, model_validator
except ImportError as missing:
    raise missing_library_error("the verifiers library", "verifiers", missing) from None

from foretrace.core.errors import ForetraceError, ProblemError, Setting, UsageError
from foretrace.core.problem import Problem
from foretrace.envs.problems import load_problems
from foretrace.envs.verifiers.attempts import (
    close_sandboxes,
    get_shared_sandbox,
    make_report,
    read_metrics,
    read_reward,
    read_sampling,
    run_attempt,
)
from foretrace.envs.verifiers.interception_model import InterceptionModel
from foretrace.envs.verifiers.setting_names import render_error, rewrite_error
from foretrace.episodes.episode import Episode
from foretrace.episodes.identity import Identity, make_task
from foretrace.episodes.settings import EpisodeSettings
from foretrace.registry import make_problem_set, make_protocol, make_sandbox, split_problem_spec
from foretrace.sandbox.base import Sandbox, SandboxSettings

ID = "foretrace-env"
REPORT = "foretrace"
"""Key of the report in `trace.info`."""
_MAX_SESSIONS = 128
"""Concurrent sessions of the sandbox: the library's own number of concurrent episodes."""
_INLINE_REFUSED = (
    "the protocol {name} goes on with a reply that was begun, and the verifiers library records whole turns only: its "
    "eval client would make a branch of every segment, and its train client cannot express it; take interleaved_tools, "
    "or generate traces with {name} outside of this library"
)


class ProblemsConfig(vf.TasksetConfig):
    """The problems used as rows."""

    problems: str = "builtin"
    """A set that `foretrace problems list` shows, `NAME:PATH`, or `module:Class`."""
    path: str | None = None
    """Read the set from this file or folder instead of the Hub."""

    @property
    def source(self) -> tuple[str, str | None]:
        """Name of the set, and the path to read it from."""
        name, path = split_problem_spec(self.problems, Path(self.path) if self.path else None)
        return name, str(path) if path else None

    @model_validator(mode="after")
    def _check(self) -> ProblemsConfig:
        name, path = _refuse_by_value_error(lambda: self.source)
        _refuse_by_value_error(lambda: make_problem_set(name))
        if path is not None and not Path(path).exists():
            raise ValueError(f"path {path}: no such file or folder")
        if self.system_prompt is not None:
            raise ValueError("the protocol writes the system prompt: leave taskset.system_prompt out")
        return self


class ProblemData(vf.TaskData):
    """A problem as the library records it: its location, but never its tests."""

    problems: str = ""
    path: str | None = None

    def problem(self) -> Problem:
        """The problem; a ProblemError if the set no longer has it."""
        try:
            return _read_set(self.problems, self.path)[self.id]
        except KeyError:
            raise ProblemError(f"{self.path or self.problems}: there is no problem {self.id!r} in it") from None


class EpisodeState(vf.State):
    """The episode of a rollout, for later steps."""

    episode: Any = Field(None, exclude=True)
    """An `Episode`; `None` before its start."""


class ProblemTask(vf.Task[ProblemData, EpisodeState, vf.TaskConfig]):
    """A problem, and the reward of an attempt at it."""

    @property
    def key(self) -> str:
        """Identifies the problem, regardless of its position among the rows."""
        return make_task(self.data.problem()).id

    async def finalize(self, trace: Any, runtime: Any) -> None:
        """Judge an attempt that was cut off by a deadline."""
        episode = trace.state.episode
        if episode is not None and not episode.done:
            await episode.end(trace.stop_condition or "stopped")
            trace.info[REPORT] = make_report(episode)

    @vf.reward
    async def reward(self, trace: Any) -> float:
        """From -1 to 1 by the share of hidden tests, and the bonuses (docs/protocols.md)."""
        return read_reward(trace.info.get(REPORT))

    @vf.metric
    async def episode_metrics(self, trace: Any) -> Mapping[str, float]:
        """All metrics, by name."""
        return read_metrics(trace.info.get(REPORT))


class ForetraceTaskset(vf.Taskset[ProblemTask, ProblemsConfig]):
    """The problems of a set, in its order."""

    def load(self) -> Iterator[ProblemTask]:
        """A task for each problem. A set that cannot be read ends the run, for which the library has no other way."""
        name, path = self.config.source
        try:
            problems = _read_set(name, path)
        except ForetraceError as error:
            raise _end_run(error) from None
        for problem in problems.values():
            data = ProblemData(prompt=problem.statement, id=problem.id, name=problem.id, problems=name, path=path)
            yield ProblemTask(data, self.config.task)


class ForetraceHarnessConfig(vf.HarnessConfig):
    """How a problem is attempted."""

    protocol: str = "interleaved_tools"
    """How model and executor communicate (docs/protocols.md); all except `inline`."""
    feedback: Literal["public", "counts"] = "public"
    """What a model sees of its tests: the public ones, or also how many of the hidden ones pass."""
    hints: bool = False
    """Add hints after failures."""
    structure_bonus: bool = False
    """Add the structure bonus to the reward."""
    flagged: Literal["zero", "report"] = "zero"
    """Reward of code that cheats its tests: `zero` as if none had passed, or `report` like any other code."""
    max_turns: int | None = Field(None, ge=1)
    """Most completions of an attempt; `None` uses the protocol's own number."""
    sandbox: str = "local"
    """Sandboxes in order of preference, e.g. docker,local."""
    level: int | None = Field(None, ge=0, le=3)
    """Isolation level, even if a higher one is available; `None` uses the highest."""
    allow_weak_isolation: bool = False
    """Accept isolation levels 0 and 1."""
    workers: int = Field(0, ge=0)
    """Concurrent runs of the sandbox; 0 means one per core."""
    retries: int = Field(4, ge=0)
    """Number of retries of a request after a temporary failure."""
    timeout: float = Field(300.0, gt=0)
    """Longest silence of the endpoint, seconds."""

    @model_validator(mode="after")
    def _check(self) -> ForetraceHarnessConfig:
        protocol = _refuse_by_value_error(lambda: make_protocol(self.protocol))
        if protocol.continues:
            raise ValueError(_INLINE_REFUSED.format(name=protocol.name))
        _refuse_by_value_error(lambda: make_sandbox(self.sandbox, self.sandbox_settings))
        return self

    @property
    def sandbox_settings(self) -> SandboxSettings:
        """Settings of the sandbox."""
        given = {name: getattr(self, name) for name in ("workers", "allow_weak_isolation", "level")}
        return SandboxSettings(**given, max_sessions=_MAX_SESSIONS)

    @property
    def episode_settings(self) -> EpisodeSettings:
        """Settings of an episode."""
        return EpisodeSettings(**{name: getattr(self, name) for name in EpisodeSettings.__struct_fields__})


class ForetraceHarness(vf.Harness[ForetraceHarnessConfig]):
    """Runs an episode in this process, with its code in the sandbox and its completions through the library."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def setup(self, runtime: Any) -> None:
        """Start the sandbox, unless `ForetraceEnv.start` has done so.

        Raises:
            UsageError: the library would run the episode elsewhere.
            SandboxError: the sandbox cannot start.
        """
        try:
            if (runs_in := runtime.config.type) != "subprocess":
                why = f"the episode runs in this process, with a sandbox of its own, and not in {runs_in!r}; give "
                raise UsageError(why, Setting("runtime", "subprocess"))
            await self._sandbox().start()
        except ForetraceError as error:
            raise rewrite_error(error) from None

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """Run one episode. Its report is in `trace.info["foretrace"]`, even if it failed.

        Raises:
            ModelError: the model server failed.
            SandboxError: the sandbox failed.
        """
        if not isinstance(data, ProblemData):
            raise UsageError(f"the harness {ID} attempts the problems of the taskset {ID}: leave harness.id out")
        arguments = ctx.sampling.model_dump(exclude_none=True)
        config = self.config
        episode = Episode(
            data.problem(),
            make_protocol(config.protocol),
            self._sandbox(),
            settings=config.episode_settings,
            identity=Identity(model=ctx.model, sampling=arguments),
        )
        trace.state.episode = episode
        async with InterceptionModel(
            ctx.model,
            endpoint,
            secret,
            splits_thinking=ctx.client.type == "train",
            upstream_url=ctx.client.base_url,
            retries=config.retries,
            timeout_s=config.timeout,
        ) as model:
            try:
                await run_attempt(episode, model, read_sampling(arguments), lambda: trace.stop_condition)
            finally:
                if episode.done:
                    trace.info[REPORT] = make_report(episode)
        return vf.ProgramResult(0, "", "")

    async def cleanup(self, trace: Any, runtime: Any) -> None:
        """End what an abandoned episode left running."""
        if (episode := getattr(trace.state, "episode", None)) is not None:
            await episode.close()

    def _sandbox(self) -> Sandbox:
        return get_shared_sandbox(self.config.sandbox, self.config.sandbox_settings)


class ForetraceEnvConfig(vf.EnvConfig):
    """One agent, with foretrace's harness."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """`harness.*` are the settings of an attempt. The runtime only has to be on this machine."""

    @model_validator(mode="before")
    @classmethod
    def _default_harness(cls, data: Any) -> Any:
        """Use foretrace's harness if settings of a harness do not name one."""
        agent = data.get("agent") if isinstance(data, dict) else None
        harness = agent.get("harness") if isinstance(agent, dict) else None
        if isinstance(harness, dict):
            harness.setdefault("id", ID)
        return data

    @model_validator(mode="after")
    def _add_stops(self) -> ForetraceEnvConfig:
        """Add the protocol's stop sequences here, since the train client sends only those of the run."""
        harness = self.agent.harness or ForetraceHarnessConfig(id=ID)
        if isinstance(harness, ForetraceHarnessConfig):
            sampling = self.agent.sampling.model_dump(exclude_unset=True) if self.agent.sampling else {}
            wanted = [*make_protocol(harness.protocol).stop, *sampling.get("stop", ())]
            stops = vf.SamplingConfig(**{**sampling, "stop": list(dict.fromkeys(wanted))})
            self.agent = self.agent.model_copy(update={"sampling": stops})
        return self


class ForetraceEnv(vf.Env[ForetraceEnvConfig]):
    """Each episode is one attempt at one problem."""

    async def start(self) -> None:
        """Start the sandbox before any episode. If it cannot start, the run ends with one line and exit code 1."""
        harness = self.config.agent.harness or ForetraceHarnessConfig(id=ID)
        if isinstance(harness, ForetraceHarnessConfig):
            try:
                await get_shared_sandbox(harness.sandbox, harness.sandbox_settings).start()
            except ForetraceError as error:
                raise _end_run(error) from None

    async def run(self, task: Any, agents: Any) -> None:
        """Let the agent attempt the problem."""
        await agents.agent.run(task)

    async def stop(self) -> None:
        """Close the sandboxes."""
        await close_sandboxes()


@functools.lru_cache(maxsize=4)
def _read_set(name: str, path: str | None) -> dict[str | None, Problem]:
    return {problem.id: problem for problem in load_problems(name, path)}


def _refuse_by_value_error(look_up: Any) -> Any:
    """The result of a look-up. Its UsageError becomes a ValueError, which the library shows as one line."""
    try:
        return look_up()
    except UsageError as error:
        raise ValueError(render_error(error)) from None


def _end_run(error: ForetraceError) -> SystemExit:
    """Ends a run like the library does: the line on stderr, and exit code 1."""
    return SystemExit(f"error: {render_error(error)}")
