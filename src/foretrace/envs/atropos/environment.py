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

from foretrace.envs.optional import absent

try:
    from atroposlib.envs.base import APIServerConfig
except ImportError as missing:
    raise absent("atroposlib", "atropos", missing) from None

from foretrace.core.completion import Sampling
from foretrace.core.errors import ForetraceError, ModelError, StoreError, UsageError
from foretrace.core.files import cannot_write
from foretrace.core.problem import Problem
from foretrace.envs import problems
from foretrace.envs.atropos.config import CodeTraceEnvConfig, check_scores, check_servers, no_evals
from foretrace.envs.atropos.evaluation import sample_of, table
from foretrace.envs.atropos.groups import Sent, group_of, why_left_out
from foretrace.envs.atropos.load_balancer import Lanes
from foretrace.envs.atropos.model_server import server_for
from foretrace.envs.atropos.run import PatientEnv
from foretrace.envs.metrics import Measured
from foretrace.envs.rollouts import ROOM, Lane, Rolled, Rollouts, lane_of
from foretrace.envs.tokenizer import LocalTokens, demo_folder
from foretrace.envs.trace_sink import Kept
from foretrace.episodes.identity import Identity
from foretrace.models.base import Server
from foretrace.protocols.registry import make_protocol
from foretrace.sandbox.base import Sandbox, Settings
from foretrace.sandbox.registry import make_sandbox

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
        listed = server_configs if isinstance(server_configs, list) else [server_configs]
        check_servers(listed)
        if testing:
            raise UsageError("testing is not for this environment: give --env.backend demo")
        self.server_cls = server_for(config.backend, **_fields(config.server()))
        if not config.tokenizer_name:
            if config.backend.partition(":")[0] != "demo":
                raise UsageError("tokenizer_name is missing: give the folder of the model's own tokenizer")
            self._demo = tempfile.TemporaryDirectory(prefix="foretrace-demo-tokenizer-")
            config = config.model_copy(update={"tokenizer_name": str(demo_folder(Path(self._demo.name)))})
        try:
            super().__init__(config, listed, slurm=slurm, testing=testing)
        except (OSError, ValueError, ImportError) as error:
            raise self._unmade(config, error) from None
        self.tokens = LocalTokens(self.tokenizer, config.tokenizer_name)
        self.measured = Measured()
        self._eval_metrics: dict[str, float] = {}
        self._failures = 0
        """Groups in a row that could not be filled."""
        self._groups = self._told = 0
        self._sent = Sent(config.give_up_after)
        self._kept: Kept | None = None
        self._sandbox: Sandbox | None = None
        self._room = asyncio.Semaphore(config.max_rollouts)

    def _unmade(self, config: CodeTraceEnvConfig, error: Exception) -> Exception:
        """What went wrong in Atropos, which makes the servers, then the tokenizer, then the file of the groups."""
        if hasattr(self, "tokenizer") and isinstance(error, OSError):
            path = Path(str(config.data_path_to_save_groups))
            return StoreError(f"data_path_to_save_groups: {cannot_write(path, error)}; give a path that can be written")
        if not hasattr(self, "server"):
            return error
        why = str(error).strip().split("\n")[0]
        return UsageError(
            f"the tokenizer {config.tokenizer_name} cannot be loaded: {why}; give a local folder with a "
            "tokenizer.json and a chat template"
        )

    async def setup(self) -> None:
        """Load the problems, ask the model servers what they can do, start the sandbox.

        Raises:
            ForetraceError: what cannot be served; says what to do.
        """
        config = self.config
        if self.training:
            check_scores(config)
        found = problems.load(config.problems, config.problems_path, config.limit)
        self._train, self._eval = problems.split(found, config.eval_fraction, config.seed)
        self._by_id = {problem.id: problem for problem in found}
        protocol = make_protocol(config.protocol)
        self._kept = Kept(config.traces_dir, "atropos")
        settings = Settings(
            workers=config.sandbox_workers,
            min_level=config.min_level,
            allow_weak_isolation=config.min_level < 2,
            max_sessions=config.max_rollouts + config.max_eval_workers,
        )
        self._sandbox = make_sandbox(config.sandbox, settings)
        servers = self.server.servers
        lanes = [(await self._lane(server, server.sem, protocol), server) for server in servers]
        self._lanes = Lanes((lane, server.config.num_max_requests_at_once) for lane, server in lanes)
        self._eval_lanes = Lanes(
            (
                Lane(lane.model, self.tokens, server.eval_sem, ids=lane.ids, most=lane.most),
                server.config.num_requests_for_eval,
            )
            for lane, server in lanes
        )
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
        for lanes in (self._lanes, self._eval_lanes):
            lanes.limit(most)
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
        rooms = [most - ROOM - lengths[p.id] for p in (*self._train, *self._eval)]
        if tight := sum(room < self.config.max_tokens for room in rooms):
            _log.warning(
                "%d of %d problems leave less room for all their replies (%d tokens at least) than one may have "
                "(max_tokens %d): raise %s",
                *(tight, len(rooms), min(rooms), self.config.max_tokens, self._limits()),
            )
        self._order = problems.endless(self._train, self.config.seed)

    def _limits(self) -> str:
        """The settings that limit lengths, as a remedy names them."""
        trainers = f" and the trainer's max_token_len ({self.max_token_len})" if self.max_token_len > 0 else ""
        return f"max_token_length ({self.config.max_token_length}){trainers}"

    # --- training

    async def process_manager(self) -> None:
        """`process`.

        Raises:
            ForetraceError: also where Atropos left out every group, so that nothing was written.
        """
        await super().process_manager()
        if self._sent.left_out and not self._sent.groups:
            raise ForetraceError(
                f"no group was written: {self._sent.told()}; leave out --env.ensure_scores_are_not_same, or give more "
                "--env.total_steps"
            )

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
                group = self._whole(members)
                if self._groups % _TELL == 1:
                    self._tell()
                return group, []
        self._failures += 1
        reasons = ", ".join(f"{number} x {reason}" for reason, number in why.most_common())
        _log.warning("a group of %s was dropped: %s", item, reasons)
        if self._failures >= config.give_up_after:
            last = self._last_error
            self.fatal = ModelError(f"gave up: {self._failures} groups in a row could not be filled ({reasons}){last}")
            raise self.fatal
        return None, []

    def _whole(self, members: Sequence[Rolled]) -> dict[str, Any]:
        """A whole group; what Atropos will do with it is counted.

        Raises:
            ForetraceError: no group was ever sent, because of lengths.
        """
        config = self.config
        group = group_of(members, config.generation_params(), messages=config.include_messages)
        why = why_left_out(group, one_score=config.ensure_scores_are_not_same, most=self.max_token_len)
        limits = f"max_tokens ({config.max_tokens}), or {self._limits()}"
        try:
            warning = self._sent.add(members, why, limits)
        except ForetraceError as error:
            self.fatal = self.fatal or error
            raise
        if warning:
            _log.warning("%s", warning)
        return group

    def _tell_rest(self) -> None:
        if self._groups > self._told and self.measured.rollouts:
            self._tell()

    def _tell(self) -> None:
        """Say how training goes, also where no metrics are logged anywhere."""
        self._told = self._groups
        found = self.measured.means("")
        names = ("accuracy", "pass_rate", "mean_reward", "cut_rate", "ideal_rate", "recovery")
        told = [f"{name} {found[name]:.3f}" for name in names if name in found]
        told += [f"{name} {found[name]:.0f}" for name in found if name.startswith("failed/")]
        left_out = "".join(f", {number} left out ({why})" for why, number in self._sent.left_out.items())
        _log.info(
            "%d groups: %d passed on%s; of the last %d rollouts: %s",
            *(self._groups, self._sent.groups, left_out, found["rollouts"], ", ".join(told)),
        )

    async def _together(self, problem: Problem, count: int) -> list[Rolled]:
        tasks = [self._one(problem, self._lanes, self.config.sampling()) for _ in range(count)]
        done = await asyncio.gather(*tasks, return_exceptions=True)
        for one in done:
            if isinstance(one, (ModelError, UsageError, StoreError)):
                self.fatal = one
            if isinstance(one, BaseException):
                raise one
        return [one for one in done if isinstance(one, Rolled)]

    async def _one(self, problem: Problem, lanes: Lanes, sampling: Sampling, into: Measured | None = None) -> Rolled:
        async with self._room:
            with lanes.taken() as lane:
                rolled = await self._rollouts.run(problem, lane, sampling)
        if rolled.trace.outcome.error is None:
            (into or self.measured).add(rolled.trace)
        else:
            self._last_error = f"; the last error: {rolled.trace.outcome.error.message}"
        return rolled

    _last_error = ""

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

        async def one(problem: Problem) -> Rolled:
            async with places:
                return await self._one(problem, self._eval_lanes, sampling, measured)

        rolled = await asyncio.gather(*map(one, self._eval))
        failed = [r.trace.outcome.error for r in rolled if r.trace.outcome.error is not None]
        measured.failed.update(error.kind for error in failed)
        if failed and len(failed) == len(rolled):
            raise ModelError(f"the evaluation failed: none of {len(rolled)} rollouts came to its end{self._last_error}")
        self._eval_metrics = measured.means("eval/")
        if self.training:
            _log.info("the evaluation at step %d:\n%s", self.curr_step, table(self._eval_metrics))
        else:
            print(table(self._eval_metrics), flush=True)
        if config.data_dir_to_save_evals is None:
            return
        try:
            await self.evaluate_log(
                self._eval_metrics,
                model_name=self._eval_lanes.spec,
                start_time=begun,
                end_time=time.time(),
                generation_parameters=config.generation_params() | {"temperature": config.eval_temperature},
                samples=[sample_of(one) for one in rolled],
                verbose=False,
            )
        except OSError as error:
            raise no_evals(config.data_dir_to_save_evals, error) from None

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the rollouts since the last time under `train/`, and an evaluation under `eval/`."""
        if self.process_mode:  # of a training, a step is not worth a line
            self._tell_rest()
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
        self._tell_rest()
        if self._kept is not None:
            await self._kept.close()
            if self.config.traces_dir is not None:
                _log.info("the rollouts are in %s", self.config.traces_dir)
                self._kept = None


def _fields(server: Server) -> dict[str, Any]:
    return {name: getattr(server, name) for name in server.__struct_fields__}
