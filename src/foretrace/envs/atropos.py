"""foretrace's episodes as an Atropos environment: `python -m foretrace.envs.atropos serve|process|evaluate`."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from atroposlib.envs.base import APIServerConfig

from foretrace.core.completion import Sampling
from foretrace.core.errors import ForetraceError, ModelError, StoreError, UsageError
from foretrace.core.problem import Problem
from foretrace.envs import _problems
from foretrace.envs._atropos_config import CodeTraceEnvConfig, check_scores
from foretrace.envs._atropos_runs import PatientEnv
from foretrace.envs._kept import Kept
from foretrace.envs._metrics import Measured
from foretrace.envs._rollouts import Lane, Rolled, Rollouts, lane_of
from foretrace.envs._setup import protocol_of, sandbox_of
from foretrace.envs._tokenizer import LocalTokens, demo_folder
from foretrace.envs.atropos_server import server_for
from foretrace.episodes._identity import Identity
from foretrace.models.base import Server
from foretrace.sandbox.base import Sandbox, Settings

_log = logging.getLogger("foretrace.envs.atropos")
_TELL = 16
"""Groups from one line on how training goes to the next."""


class CodeTraceEnv(PatientEnv):
    """Any protocol on any problem set; see docs/atropos.md.

    Raises:
        UsageError: a setting that cannot be served, or a tokenizer that cannot be loaded.
    """

    name = "code_trace"
    env_config_cls = CodeTraceEnvConfig

    @classmethod
    def config_init(cls) -> Any:
        """Atropos' way to ask for the defaults."""
        return cls.env_config_cls(), [APIServerConfig(health_check=False)]

    def __init__(self, config: CodeTraceEnvConfig, server_configs: Any, slurm: bool = False, testing: bool = False):
        config.check()
        if not config.tokenizer_name:
            if config.backend.partition(":")[0] != "demo":
                raise UsageError("tokenizer_name is missing: give the folder of the model's own tokenizer")
            self._demo = tempfile.TemporaryDirectory(prefix="foretrace-demo-tokenizer-")
            config = config.model_copy(update={"tokenizer_name": str(demo_folder(Path(self._demo.name)))})
        self.server_cls = server_for(config.backend, **_fields(config.server()))
        listed = server_configs if isinstance(server_configs, list) else [server_configs]
        try:
            super().__init__(config, listed, slurm=slurm, testing=testing)
        except (OSError, ValueError, ImportError) as error:
            why = str(error).strip().split("\n")[0]
            raise UsageError(
                f"the tokenizer {config.tokenizer_name} cannot be loaded: {why}; give a local folder with a "
                "tokenizer.json and a chat template"
            ) from None
        self.tokens = LocalTokens(self.tokenizer, config.tokenizer_name)
        self.measured = Measured()
        self._eval_metrics: dict[str, float] = {}
        self._failures = 0
        """Groups in a row that could not be filled."""
        self._groups = 0
        self._kept: Kept | None = None
        self._sandbox: Sandbox | None = None
        self._room = asyncio.Semaphore(config.max_rollouts)

    async def setup(self) -> None:
        """Load the problems, ask the model servers what they can do, start the sandbox.

        Raises:
            ForetraceError: what cannot be served; says what to do.
        """
        config = self.config
        if self.training:
            check_scores(config)
        found = _problems.load(config.problems, config.problems_path, config.limit)
        self._train, self._eval = _problems.split(found, config.eval_fraction, config.seed)
        self._by_id = {problem.id: problem for problem in found}
        protocol = protocol_of(config.protocol, forced=config.forced)
        self._kept = Kept(config.traces_dir, "atropos")
        settings = Settings(
            workers=config.sandbox_workers,
            min_level=config.min_level,
            allow_weak_isolation=config.min_level < 2,
            max_sessions=config.max_rollouts + config.max_eval_workers,
        )
        self._sandbox = sandbox_of(config.sandbox, settings)
        self._lanes = [await self._lane(server, server.sem, protocol) for server in self.server.servers]
        self._eval_lanes = [
            Lane(lane.model, self.tokens, server.eval_sem, ids=lane.ids, most=lane.most)
            for lane, server in zip(self._lanes, self.server.servers, strict=True)
        ]
        await self._sandbox.start()
        self._rollouts = Rollouts(
            protocol,
            self._sandbox,
            self.tokens,
            self._kept,
            settings=config.episode(),
            seed=config.seed,
            flag=config.on_mismatch == "flag",
            identity=Identity(
                run="atropos", tool_versions={name: version(name) for name in ("foretrace", "atroposlib")}
            ),
        )
        self._fit(config.max_token_length)

    async def _lane(self, server: Any, slots: Any, protocol: Any) -> Lane:
        config = self.config
        return await lane_of(
            server.model,
            self.tokens,
            protocol,
            slots,
            most=config.max_token_length,
            logprobs=self.training and config.on_mismatch == "drop",
            check=config.check_tokenizer,
        )

    def _fit(self, most: int) -> None:
        """Leave out the problems whose prompts leave no room in a sequence of that length.

        Raises:
            UsageError: none is left.
        """
        for lane in (*self._lanes, *self._eval_lanes):
            lane.most = most
        lengths = {p.id: self._rollouts.prompt_length(p) for p in (*self._train, *self._eval)}
        shortest = min(lengths.values(), default=0)
        self._train, self._eval = [[p for p in side if lengths[p.id] + 3 <= most] for side in (self._train, self._eval)]
        if not (self._train if self.training else self._eval):
            side = "to train on" if self.training else "to evaluate on (eval_fraction)"
            if lengths and shortest + 3 > most:
                raise UsageError(
                    f"max_token_length {most} is too small: the shortest prompt has {shortest} tokens, and the "
                    "replies must fit in, too"
                )
            raise UsageError(f"there is no problem {side}: change eval_fraction or limit")
        left_out = len(lengths) - len(self._train) - len(self._eval)
        if left_out:
            _log.warning("%d problems are left out: their prompts do not fit into %d tokens", left_out, most)
        self._order = _problems.endless(self._train, self.config.seed)

    # --- training

    async def get_next_item(self) -> str:
        """The id of the next problem."""
        return next(self._order).id

    async def collect_trajectories(self, item: str) -> tuple[dict[str, Any] | None, list[str]]:
        """One whole group, or none: members that failed are done again, for a few rounds.

        Raises:
            ForetraceError: no other group would fare better.
        """
        if self.fatal is not None:
            raise self.fatal
        config, why = self.config, Counter[str]()
        members: list[Rolled] = []
        for _ in range(config.max_group_tries):
            missing = config.group_size - len(members)
            rolled = await self._together(self._by_id[item], missing)
            members += [one for one in rolled if not one.why]
            why.update(one.why for one in rolled if one.why)
            self.measured.failed.update(one.why for one in rolled if one.why)
            if len(members) == config.group_size:
                self._failures = 0
                self._groups += 1
                if self._groups % _TELL == 1:
                    self._tell()
                return self._group(members), []
        self._failures += 1
        reasons = ", ".join(f"{number} x {reason}" for reason, number in why.most_common())
        _log.warning("a group of %s was dropped: %s", item, reasons)
        if self._failures >= config.give_up_after:
            last = self._last_error
            self.fatal = ModelError(f"gave up: {self._failures} groups in a row could not be filled ({reasons}){last}")
            raise self.fatal
        return None, []

    def _tell(self) -> None:
        """Say how training goes, also where no metrics are logged anywhere."""
        found = self.measured.means("")
        names = ("accuracy", "pass_rate", "mean_reward", "ideal_rate", "recovery")
        told = [f"{name} {found[name]:.3f}" for name in names if name in found]
        told += [f"{name} {found[name]:.0f}" for name in found if name.startswith("failed/")]
        _log.info("%d groups; of the last %d rollouts: %s", self._groups, found["rollouts"], ", ".join(told))

    async def _together(self, problem: Problem, count: int) -> list[Rolled]:
        lane = max(self._lanes, key=lambda lane: lane.slots._value)
        tasks = [self._one(problem, lane, self.config.sampling()) for _ in range(count)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for one in done:
            if isinstance(one, (ModelError, UsageError, StoreError)):
                self.fatal = one
            if isinstance(one, BaseException):
                raise one
        return [one for one in done if isinstance(one, Rolled)]

    async def _one(self, problem: Problem, lane: Lane, sampling: Sampling, into: Measured | None = None) -> Rolled:
        async with self._room:
            rolled = await self._rollouts.run(problem, lane, sampling)
        if rolled.trace.outcome.error is None:
            (into or self.measured).add(rolled.trace)
        else:
            self._last_error = f"; the last error: {rolled.trace.outcome.error.message}"
        return rolled

    _last_error = ""

    def _group(self, members: Sequence[Rolled]) -> dict[str, Any]:
        """A ScoredDataGroup. Keys without a value are left out: Atropos takes null for a value."""
        sequences = [one.sequence for one in members if one.sequence is not None]
        group: dict[str, Any] = {
            "tokens": [s.tokens for s in sequences],
            "masks": [s.masks for s in sequences],
            "scores": [max(-1.0, min(1.0, one.trace.outcome.reward or 0.0)) for one in members],
            "inference_logprobs": [s.logprobs for s in sequences],
            "generation_params": self.config.generation_params(),
        }
        overrides: list[dict[str, Any]] = [{} for _ in sequences]
        for mine, sequence in zip(overrides, sequences, strict=True):
            if sequence.cut or not sequence.trained:
                mine["set_advantage_to_zero"] = True
            if sequence.inexact:
                mine["inexact_tokens"] = sequence.inexact
        if any(overrides):
            group["overrides"] = overrides
        if self.config.include_messages:
            group["messages"] = [s.messages for s in sequences]
        return group

    # --- evaluation

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Attempt each problem that was kept for it once, and write down how that went. In a run that trains, an
        evaluation that fails is only said.

        Raises:
            ModelError: no rollout came to its end.
        """
        if not self._eval:
            _log.warning("no problem is kept for evaluation (eval_fraction)")
            return
        try:
            await self._evaluated()
        except ForetraceError as error:
            if not self.training:
                raise
            _log.warning("the evaluation at step %d failed: %s", self.curr_step, error)

    async def _evaluated(self) -> None:
        begun = time.time()
        config, measured = self.config, Measured()
        sampling = msgspec.structs.replace(config.sampling(), temperature=config.eval_temperature)
        places = asyncio.Semaphore(config.max_eval_workers)

        async def one(number: int, problem: Problem) -> Rolled:
            async with places:
                return await self._one(problem, self._eval_lanes[number % len(self._eval_lanes)], sampling, measured)

        rolled = await asyncio.gather(*(one(number, problem) for number, problem in enumerate(self._eval)))
        failed = [r.trace.outcome.error for r in rolled if r.trace.outcome.error is not None]
        measured.failed.update(error.kind for error in failed)
        if failed and len(failed) == len(rolled):
            raise ModelError(f"the evaluation failed: none of {len(rolled)} rollouts came to its end{self._last_error}")
        self._eval_metrics = measured.means("eval/")
        await self.evaluate_log(
            self._eval_metrics,
            model_name=self._eval_lanes[0].spec,
            start_time=begun,
            end_time=time.time(),
            generation_parameters=config.generation_params() | {"temperature": config.eval_temperature},
            samples=[_sample(one) for one in rolled],
        )

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the rollouts since the last time under `train/`, and an evaluation under `eval/`."""
        metrics = dict(wandb_metrics or {}) | self.measured.means("train/") | self._eval_metrics
        self.measured, self._eval_metrics = Measured(), {}
        await super().wandb_log(metrics)

    async def get_server_info(self) -> None:
        """Ask run-api for the trainer's limits; they hold for the sequences, too."""
        await super().get_server_info()
        if 0 < self.max_token_len < self.config.max_token_length:
            self._fit(self.max_token_len)

    async def close(self) -> None:
        """End what was opened, and seal the traces. May be called twice."""
        for server in self.server.servers:
            await server.model.close()
        if self._sandbox is not None:
            await self._sandbox.close()
        if self._kept is not None:
            await self._kept.close()


def _sample(rolled: Rolled) -> dict[str, Any]:
    """A rollout of the evaluation, for samples.jsonl."""
    trace = rolled.trace
    error = trace.outcome.error
    return {
        "problem": trace.task.id,
        "success": trace.outcome.success,
        "reward": trace.outcome.reward,
        "error": None if error is None else error.message,
        "messages": rolled.sequence.messages if rolled.sequence else [],
        "metrics": trace.outcome.metrics,
    }


def _fields(server: Server) -> dict[str, Any]:
    return {name: getattr(server, name) for name in server.__struct_fields__}


if __name__ == "__main__":
    CodeTraceEnv.cli()
