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

from foretrace.envs.messages import missing_library_error

try:
    from atroposlib.envs.base import APIServerConfig
except ImportError as missing:
    raise missing_library_error("atroposlib", "atropos", missing) from None

from foretrace.core.completion import Sampling
from foretrace.core.errors import ForetraceError, ModelError, Setting, StoreError, UsageError, find_first_line
from foretrace.core.files import describe_write_error
from foretrace.core.problem import Problem
from foretrace.envs.atropos.config import (
    CodeTraceEnvConfig,
    check_scores,
    check_servers,
    evals_error,
    render_error,
    write_option,
)
from foretrace.envs.atropos.groups import GroupMonitor, find_drop_reason, make_group
from foretrace.envs.atropos.lifecycle import ResilientEnv
from foretrace.envs.atropos.load_balancer import LoadBalancer
from foretrace.envs.atropos.model_server import server_for
from foretrace.envs.demo_files import write_demo_tokenizer
from foretrace.envs.metrics import RolloutMetrics, format_metrics
from foretrace.envs.problems import load_problems, repeat_shuffled, split_problems
from foretrace.envs.rollout_model import RESERVED_TOKENS, RolloutModel, connect_model
from foretrace.envs.rollouts import Rollout, RolloutRunner, RolloutSettings
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trace_sink import TraceSink
from foretrace.episodes.identity import Identity
from foretrace.protocols.base import InteractionProtocol
from foretrace.registry import make_protocol, make_sandbox
from foretrace.sandbox.base import Sandbox, SandboxSettings

_log = logging.getLogger("foretrace.envs.atropos")
_GROUPS_PER_LINE = 16
"""Groups from one line on how training goes to the next."""


class CodeTraceEnv(ResilientEnv):
    """Any protocol on any problem set; see docs/rl.md.

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
            raise UsageError("testing is not for this environment: give ", Setting("model", "demo"))
        self.server_cls = server_for(config.model, config.server())
        if not config.tokenizer_name:
            if config.model.partition(":")[0] != "demo":
                raise UsageError(Setting("tokenizer_name"), " is missing: give the folder of the model's own tokenizer")
            self._demo_folder = tempfile.TemporaryDirectory(prefix="foretrace-demo-tokenizer-")
            config = config.model_copy(update={"tokenizer_name": write_demo_tokenizer(self._demo_folder.name)})
        try:
            super().__init__(config, listed, slurm=slurm, testing=testing)
        except (OSError, ValueError, ImportError) as error:
            raise self._explain_start(config, error) from None
        self.local_tokenizer = LocalTokenizer(self.tokenizer, config.tokenizer_name)
        self.metrics = RolloutMetrics()
        self._eval_metrics: dict[str, float] = {}
        self._failures = 0
        """Groups in a row that could not be filled."""
        self._last_error = ""
        """The last rollout's failure, as the end of a message."""
        self._groups = self._logged_groups = 0
        self._monitor = GroupMonitor(config.give_up_after)
        self._sink: TraceSink | None = None
        self._sandbox: Sandbox | None = None
        self._rollout_slots = asyncio.Semaphore(config.max_rollouts)

    def _explain_start(self, config: CodeTraceEnvConfig, error: Exception) -> Exception:
        """What went wrong in Atropos, which makes the servers, then the tokenizer, then the file of the groups."""
        if hasattr(self, "tokenizer") and isinstance(error, OSError):
            path = Path(str(config.data_path_to_save_groups))
            cause = describe_write_error(path, error)
            return StoreError(Setting("data_path_to_save_groups"), f": {cause}; give a path that can be written")
        if not hasattr(self, "server"):
            return error
        return UsageError(
            f"the tokenizer {config.tokenizer_name} cannot be loaded: {find_first_line(error)}; "
            "give a local folder with a tokenizer.json and a chat template"
        )

    async def setup(self) -> None:
        """Load the problems, ask the model servers what they can do, start the sandbox.

        Raises:
            ForetraceError: what cannot be served; says what to do.
        """
        config = self.config
        if self.training:
            check_scores(config)
        problems = load_problems(config.problems, config.problems_path, config.limit)
        self._train, self._eval = split_problems(problems, config.eval_fraction, config.seed)
        self._by_id = {problem.id: problem for problem in problems}
        protocol = make_protocol(config.protocol)
        self._sink = TraceSink(config.traces_dir, "atropos")
        settings = SandboxSettings(
            workers=config.sandbox_workers,
            min_level=config.min_level,
            allow_weak_isolation=config.min_level < 2,
            max_sessions=config.max_rollouts + config.max_eval_workers,
        )
        self._sandbox = make_sandbox(config.sandbox, settings)
        await self._connect_servers(protocol)
        await self._sandbox.start()
        versions = {name: version(name) for name in ("foretrace", "atroposlib")}
        rollout_settings = RolloutSettings(
            protocol=protocol,
            episode=config.episode(),
            identity=Identity(run="atropos", tool_versions=versions),
            seed=config.seed,
            keep_inexact=config.on_mismatch == "flag",
        )
        self._runner = RolloutRunner(rollout_settings, self._sandbox, self.local_tokenizer, self._sink)
        self._fit_problems(config.max_token_length)

    async def _connect_servers(self, protocol: InteractionProtocol) -> None:
        """Ask all model servers what they can do; each gets slots for training and slots for evaluation."""
        config = self.config
        models: list[tuple[RolloutModel, int]] = []
        eval_models: list[tuple[RolloutModel, int]] = []
        for server in self.server.servers:
            model = await connect_model(
                server.model,
                self.local_tokenizer,
                protocol,
                server.sem,
                max_sequence_tokens=config.max_token_length,
                need_logprobs=self.training and config.on_mismatch == "drop",
                compare_tokenizer=config.check_tokenizer,
            )
            eval_model = RolloutModel(
                server.model,
                self.local_tokenizer,
                server.eval_sem,
                gives_ids=model.gives_ids,
                max_sequence_tokens=config.max_token_length,
            )
            models.append((model, server.config.num_max_requests_at_once))
            eval_models.append((eval_model, server.config.num_requests_for_eval))
        self._models, self._eval_models = LoadBalancer(models), LoadBalancer(eval_models)

    def _fit_problems(self, max_tokens: int) -> None:
        """Leave out the problems whose prompts leave no room in a sequence of that length.

        Raises:
            UsageError: none is left.
        """
        for models in (self._models, self._eval_models):
            models.limit_sequences(max_tokens)
        lengths = {p.id: self._runner.count_prompt_tokens(p) for p in (*self._train, *self._eval)}
        shortest = min(lengths.values(), default=0)
        needed = RESERVED_TOKENS + 1  # one token of a reply
        self._train, self._eval = [
            [p for p in side if lengths[p.id] + needed <= max_tokens] for side in (self._train, self._eval)
        ]
        if not (self._train if self.training else self._eval):
            if lengths and shortest + needed > max_tokens:
                raise UsageError(
                    Setting("max_token_length", max_tokens),
                    f" is too small: the shortest prompt has {shortest} tokens, and the replies must fit in, too",
                )
            side = "to train on" if self.training else "to evaluate on"
            raise UsageError(f"there is no problem {side}: change ", Setting("eval_fraction"), " or ", Setting("limit"))
        left_out = len(lengths) - len(self._train) - len(self._eval)
        if left_out:
            _log.warning("%d problems are left out: their prompts do not fit into %d tokens", left_out, max_tokens)
        rooms = [max_tokens - RESERVED_TOKENS - lengths[p.id] for p in (*self._train, *self._eval)]
        if tight := sum(room < self.config.max_tokens for room in rooms):
            _log.warning(
                "%d of %d problems leave less room for all their replies (%d tokens at least) than one may have "
                "(max_tokens %d): raise %s",
                *(tight, len(rooms), min(rooms), self.config.max_tokens, self._name_limits()),
            )
        self._order = repeat_shuffled(self._train, self.config.seed)

    def _name_limits(self) -> str:
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
        if self._monitor.dropped and not self._monitor.sent:
            raise ForetraceError(
                f"no group was written: {self._monitor.describe_row()}; leave out ",
                Setting("ensure_scores_are_not_same"),
                ", or give more ",
                Setting("total_steps"),
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
        config, failures = self.config, Counter[str]()
        members: list[Rollout] = []
        for _ in range(config.max_group_tries):
            rollouts = await self._run_members(self._by_id[item], config.group_size - len(members))
            members += [one for one in rollouts if not one.why_unusable]
            failed = [one.why_unusable for one in rollouts if one.why_unusable]
            failures.update(failed)
            self.metrics.failed.update(failed)
            if len(members) == config.group_size:
                self._failures = 0
                self._groups += 1
                group = self._make_group(members)
                if self._groups % _GROUPS_PER_LINE == 1:
                    self._log_progress()
                return group, []
        self._failures += 1
        reasons = ", ".join(f"{number} x {reason}" for reason, number in failures.most_common())
        _log.warning("a group of %s was dropped: %s", item, reasons)
        if self._failures >= config.give_up_after:
            last = self._last_error
            self.fatal = ModelError(f"gave up: {self._failures} groups in a row could not be filled ({reasons}){last}")
            raise self.fatal
        return None, []

    def _make_group(self, members: Sequence[Rollout]) -> dict[str, Any]:
        """A full group; what Atropos will do with it is counted.

        Raises:
            ForetraceError: no group was ever sent, because of lengths.
        """
        config = self.config
        group = make_group(members, config.generation_params(), messages=config.include_messages)
        reason = find_drop_reason(
            group, drop_one_score=config.ensure_scores_are_not_same, max_tokens=self.max_token_len
        )
        limits = f"max_tokens ({config.max_tokens}), or {self._name_limits()}"
        try:
            warning = self._monitor.record(members, reason, limits)
        except ForetraceError as error:
            self.fatal = self.fatal or error
            raise
        if warning:
            _log.warning("%s", warning)
        return group

    def _log_rest(self) -> None:
        if self._groups > self._logged_groups and self.metrics.rollouts:
            self._log_progress()

    def _log_progress(self) -> None:
        """Say how training goes, also where no metrics are logged anywhere."""
        self._logged_groups = self._groups
        means = self.metrics.compute_means("")
        names = ("accuracy", "pass_rate", "mean_reward", "cut_rate", "ideal_rate", "recovery")
        shown = [f"{name} {means[name]:.3f}" for name in names if name in means]
        shown += [f"{name} {means[name]:.0f}" for name in means if name.startswith("failed/")]
        left_out = "".join(f", {number} left out ({reason})" for reason, number in self._monitor.dropped.items())
        _log.info(
            "%d groups: %d passed on%s; of the last %d rollouts: %s",
            *(self._groups, self._monitor.sent, left_out, means["rollouts"], ", ".join(shown)),
        )

    async def _run_members(self, problem: Problem, count: int) -> list[Rollout]:
        tasks = [self._run_one(problem, self._models, self.config.sampling()) for _ in range(count)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, (ModelError, UsageError, StoreError)):
                self.fatal = result
            if isinstance(result, BaseException):
                raise result
        return [result for result in results if isinstance(result, Rollout)]

    async def _run_one(
        self, problem: Problem, models: LoadBalancer, sampling: Sampling, metrics: RolloutMetrics | None = None
    ) -> Rollout:
        async with self._rollout_slots:
            with models.choose() as model:
                rollout = await self._runner.run(problem, model, sampling)
        error = rollout.trace.outcome.error
        models.record_end(model, None if error is None else error.kind)
        if error is None:
            (metrics or self.metrics).add(rollout.trace)
        else:
            self._last_error = f"; the last error: {error.message}"
        return rollout

    # --- evaluation

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Attempt each problem of the evaluation once, and write the metrics. In a run that trains, an
        evaluation that fails is only logged.

        Raises:
            ModelError: no rollout came to its end.
        """
        if not self._eval:
            _log.warning("no problem is kept for evaluation (%s)", write_option(Setting("eval_fraction")))
            return
        try:
            await self._evaluate()
        except ForetraceError as error:
            if not self.training:
                raise
            _log.warning("the evaluation at step %d failed: %s", self.curr_step, render_error(error))

    async def _evaluate(self) -> None:
        start_time = time.time()
        config, metrics = self.config, RolloutMetrics()
        sampling = msgspec.structs.replace(config.sampling(), temperature=config.eval_temperature)
        slots = asyncio.Semaphore(config.max_eval_workers)

        async def run(problem: Problem) -> Rollout:
            async with slots:
                return await self._run_one(problem, self._eval_models, sampling, metrics)

        rollouts = await asyncio.gather(*map(run, self._eval))
        failed = [r.trace.outcome.error for r in rollouts if r.trace.outcome.error is not None]
        metrics.failed.update(error.kind for error in failed)
        if failed and len(failed) == len(rollouts):
            count = len(rollouts)
            raise ModelError(f"the evaluation failed: none of {count} rollouts came to its end{self._last_error}")
        self._eval_metrics = metrics.compute_means("eval/")
        if self.training:
            _log.info("the evaluation at step %d:\n%s", self.curr_step, format_metrics(self._eval_metrics))
        else:
            print(format_metrics(self._eval_metrics), flush=True)
        if config.data_dir_to_save_evals is None:
            return
        try:
            await self.evaluate_log(
                self._eval_metrics,
                model_name=self._eval_models.spec,
                start_time=start_time,
                end_time=time.time(),
                generation_parameters=config.generation_params() | {"temperature": config.eval_temperature},
                samples=[_make_sample(one) for one in rollouts],
                verbose=False,
            )
        except OSError as error:
            raise evals_error(config.data_dir_to_save_evals, error) from None

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the rollouts since the last time under `train/`, and an evaluation under `eval/`."""
        if self.process_mode:  # of a training, a step is not worth a line
            self._log_rest()
        metrics = dict(wandb_metrics or {}) | self.metrics.compute_means("train/") | self._eval_metrics
        self.metrics, self._eval_metrics = RolloutMetrics(), {}
        await super().wandb_log(metrics)

    async def get_server_info(self) -> None:
        """Ask run-api for the trainer's limits; they hold for the sequences, too."""
        await super().get_server_info()
        if 0 < self.max_token_len < self.config.max_token_length:
            self._fit_problems(self.max_token_len)

    async def close(self) -> None:
        """End what was opened, and seal the traces. May be called twice."""
        for server in self.server.servers:
            await server.model.close()
        if self._sandbox is not None:
            await self._sandbox.close()
        self._log_rest()
        if self._sink is not None:
            await self._sink.close()
            if self.config.traces_dir is not None:
                _log.info("the rollouts are in %s", self.config.traces_dir)
                self._sink = None


def _make_sample(rollout: Rollout) -> dict[str, Any]:
    """A rollout of an evaluation, for `samples.jsonl`."""
    trace = rollout.trace
    error = trace.outcome.error
    return {
        "problem": trace.task.id,
        "success": trace.outcome.success,
        "reward": trace.outcome.reward,
        "error": None if error is None else error.message,
        "messages": rollout.sequence.messages if rollout.sequence else [],
        "metrics": trace.outcome.metrics,
    }
