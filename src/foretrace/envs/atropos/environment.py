"""foretrace's episodes as an Atropos environment: `python -m foretrace.envs.atropos serve|process|evaluate`."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec

from foretrace.envs.messages import missing_library_error

try:
    import yaml
    from atroposlib.envs.base import APIServerConfig, BaseEnv
    from atroposlib.envs.server_handling.server_baseline import APIServer
    from pydantic import ValidationError
    from tenacity import RetryError
except ImportError as missing:
    raise missing_library_error("atroposlib", "atropos", missing) from None

from foretrace.core.completion import Sampling
from foretrace.core.errors import ForetraceError, ModelError, Setting, StoreError, UsageError, find_first_line
from foretrace.core.plugins import plugin_names
from foretrace.core.problem import Problem
from foretrace.envs.atropos.config import CodeTraceEnvConfig, render_error
from foretrace.envs.atropos.groups import make_group
from foretrace.envs.metrics import RolloutMetrics, format_metrics
from foretrace.envs.problems import load_problems, repeat_shuffled, split_problems
from foretrace.envs.rollout_model import RESERVED_TOKENS, RolloutModel, check_model
from foretrace.envs.rollouts import Rollout, RolloutRunner, RolloutSettings, describe_failures
from foretrace.envs.tokenizer import LocalTokenizer
from foretrace.envs.trace_sink import TraceSink
from foretrace.episodes.identity import Identity
from foretrace.models.base import ChatModel, Server
from foretrace.models.demo_model import CHECKPOINT
from foretrace.protocols.base import InteractionProtocol
from foretrace.registry import make_model, make_protocol, make_sandbox, split_spec
from foretrace.sandbox.base import Sandbox, SandboxSettings

_log = logging.getLogger("foretrace.envs.atropos")
_UNSET = ("", "default", "none", "x", None)
"""Atropos' values for a server's name or key that was not given."""


class ForetraceServer(APIServer):
    """Atropos makes one per model server. It holds one of foretrace's models, which rollouts call directly."""

    spec: ClassVar[str]
    """KIND or KIND:NAME; if the name is missing, it is Atropos' `model_name`."""
    settings: ClassVar[Server]
    """All settings except the address, which is Atropos' `base_url`, and the key, which may be its `api_key`."""

    def __init__(self, config: Any, reasoning_config: Any = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        if config.num_max_requests_at_once < 1:
            raise UsageError(Setting("concurrency", config.num_max_requests_at_once), ": choose 1 or more")
        kind, _, named = self.spec.partition(":")
        is_named = named or kind == "demo" or config.model_name in _UNSET
        given: dict[str, Any] = {} if config.base_url in _UNSET else {"base_url": config.base_url}
        if self.settings.api_key is None and config.api_key not in _UNSET:
            given["api_key"] = config.api_key
        self.model: ChatModel = make_model(
            self.spec if is_named else f"{kind}:{config.model_name}", msgspec.structs.replace(self.settings, **given)
        )

    async def check_server_status_task(self, chat_completion: bool = True) -> NoReturn:
        """Refuse requests through Atropos."""
        raise UsageError("the rollouts of this environment ask the model itself, and not Atropos' server")

    _chat_completion_wrapper = _completion_wrapper = check_server_status_task
    _tokens_and_logprobs_completion_wrapper = check_server_status_task


class CodeTraceEnv(BaseEnv):
    """Any protocol on any problem set; see docs/rl.md.

    Raises:
        UsageError: an unsupported setting, or a tokenizer that cannot be loaded.
    """

    name = "code_trace"
    env_config_cls = CodeTraceEnvConfig
    training = True
    """False in `evaluate`, which needs no logprobs."""
    fatal: ForetraceError | None = None
    """The error with which the run is to end."""

    @classmethod
    def config_init(cls) -> Any:
        """The defaults, as Atropos asks for them."""
        return cls.env_config_cls(), [APIServerConfig(health_check=False)]

    def __init__(self, config: CodeTraceEnvConfig, server_configs: Any, slurm: bool = False, testing: bool = False):
        if testing:
            raise UsageError("testing is not for this environment: give ", Setting("model", "demo"))
        split_spec(config.model, plugin_names("model"))
        given = {"spec": config.model, "settings": config.server()}
        self.server_cls = type("ForetraceServer", (ForetraceServer,), given)
        if not config.tokenizer_name:
            if config.model.partition(":")[0] != "demo":
                raise UsageError(Setting("tokenizer_name"), " is missing: give the folder of the model's own tokenizer")
            config = config.model_copy(update={"tokenizer_name": str(CHECKPOINT)})
        listed = server_configs if isinstance(server_configs, list) else [server_configs]
        try:
            super().__init__(config, listed, slurm=slurm, testing=testing)
        except (OSError, ValueError, ImportError) as error:
            if not hasattr(self, "server") or hasattr(self, "tokenizer"):
                raise
            raise UsageError(
                f"the tokenizer {config.tokenizer_name} cannot be loaded: {find_first_line(error)}; "
                "give a local folder with a tokenizer.json and a chat template"
            ) from None
        self.local_tokenizer = LocalTokenizer(self.tokenizer, config.tokenizer_name)
        self.metrics = RolloutMetrics()
        self._eval_metrics: dict[str, float] = {}
        self._failures = 0
        """Number of consecutive groups that could not be filled."""
        self._sink: TraceSink | None = None
        self._sandbox: Sandbox | None = None
        self._rollout_slots = asyncio.Semaphore(config.max_rollouts)

    async def setup(self) -> None:
        """Load the problems, query the model servers' capabilities, and start the sandbox."""
        config = self.config
        if self.training and config.group_size == 1 and config.ensure_scores_are_not_same:
            unsent = ": Atropos drops groups in which all scores are the same; choose 2 or more, or "
            raise UsageError(Setting("group_size", 1), unsent, Setting("ensure_scores_are_not_same", False))
        problems = load_problems(config.problems, config.problems_path, config.limit)
        self._train, self._eval = split_problems(problems, config.eval_fraction, config.seed)
        self._by_id = {problem.id: problem for problem in problems}
        protocol = make_protocol(config.protocol)
        self._sink = TraceSink(config.traces_dir, "atropos")
        settings = SandboxSettings(
            workers=config.sandbox_workers,
            min_level=config.min_level,
            allow_weak_isolation=config.min_level < 2,
            max_sessions=config.max_rollouts,
        )
        self._sandbox = make_sandbox(config.sandbox, settings)
        self._models = [await self._connect(server, protocol) for server in self.server.servers]
        await self._sandbox.start()
        versions = {name: version(name) for name in ("foretrace", "atroposlib")}
        rollout_settings = RolloutSettings(
            protocol=protocol,
            episode=config.episode(),
            identity=Identity(run="atropos", tool_versions=versions),
            seed=config.seed,
            keep_inexact=config.on_mismatch == "flag",
            tries=config.tries,
        )
        self._runner = RolloutRunner(rollout_settings, self._sandbox, self.local_tokenizer, self._sink)
        self._fit_problems(config.max_token_length)

    async def _connect(self, server: Any, protocol: InteractionProtocol) -> RolloutModel:
        config, tokenizer = self.config, self.local_tokenizer
        gives_ids = await check_model(
            server.model,
            tokenizer,
            protocol,
            need_logprobs=self.training and config.on_mismatch == "drop",
            compare_tokenizer=config.check_tokenizer,
        )
        longest = config.max_token_length
        return RolloutModel(server.model, tokenizer, gives_ids=gives_ids, max_sequence_tokens=longest, slots=server.sem)

    def _fit_problems(self, max_tokens: int) -> None:
        """Leave out problems whose prompts leave no room in a sequence of this length; at least one must remain."""
        for model in self._models:
            model.max_sequence_tokens = max_tokens
        lengths = {p.id: len(self._runner.render_prompt(p)) for p in (*self._train, *self._eval)}
        room = max_tokens - RESERVED_TOKENS - 1  # at least one token of a reply
        self._train, self._eval = [[p for p in side if lengths[p.id] <= room] for side in (self._train, self._eval)]
        if lengths and min(lengths.values()) > room:
            why = f" is too small: the shortest prompt has {min(lengths.values())} tokens, and replies must fit in, too"
            raise UsageError(Setting("max_token_length", max_tokens), why)
        if not (self._train if self.training else self._eval):
            side = "to train on" if self.training else "to evaluate on"
            raise UsageError(f"there is no problem {side}: change ", Setting("eval_fraction"), " or ", Setting("limit"))
        if left_out := len(lengths) - len(self._train) - len(self._eval):
            _log.warning("%d problems are left out: their prompts do not fit into %d tokens", left_out, max_tokens)
        self._order = repeat_shuffled(self._train, self.config.seed)

    # --- the commands

    async def env_manager(self) -> None:
        """`serve`."""
        await self._run(super().env_manager)

    async def process_manager(self) -> None:
        """`process`, which fails if Atropos left out every group, so that nothing was written. Turns off W&B, which
        Atropos turns on here and which is only for `serve`."""
        self.config.use_wandb = False
        await self._run(super().process_manager)
        if not Path(self.config.data_path_to_save_groups).stat().st_size:
            why = "no group was written: all scores of each group are the same; leave out "
            raise ForetraceError(why, Setting("ensure_scores_are_not_same"), ", or give more ", Setting("total_steps"))

    async def _run_evaluate(self) -> None:
        self.training = self.config.use_wandb = False
        await self._run(super()._run_evaluate)

    async def _run(self, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        finally:
            tasks = [*self.workers, *self.eval_workers, *filter(None, [self.eval_runner])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self.jsonl_writer is not None:
                self.jsonl_writer.close()
            await self.close()

    async def get_status(self) -> None:
        """Ask run-api for the trainer's progress, and end the run if it is to end."""
        if self.fatal is not None:
            raise self.fatal
        await super().get_status()

    # --- training

    async def get_next_item(self) -> str:
        """The id of the next problem."""
        return next(self._order).id

    async def collect_trajectories(self, item: str) -> tuple[dict[str, Any] | None, list[str]]:
        """One whole group, or none. An exception ends the run, since other groups would fail too."""
        if self.fatal is not None:
            raise self.fatal
        config, sampling = self.config, self.config.sampling()
        runs = [self._run_one(self._by_id[item], sampling, self.metrics) for _ in range(config.group_size)]
        members = await asyncio.gather(*runs, return_exceptions=True)
        for member in members:
            if isinstance(member, (ModelError, UsageError, StoreError)):
                self.fatal = member
            if isinstance(member, BaseException):
                raise member
        rollouts = [member for member in members if isinstance(member, Rollout)]
        if not any(one.why_unusable for one in rollouts):
            self._failures = 0
            return make_group(rollouts, self._describe_sampling(), messages=config.include_messages), []
        self._failures += 1
        _log.warning("a group of %s was dropped: %s", item, describe_failures(rollouts))
        if self._failures >= config.give_up_after:
            why = describe_failures(rollouts)
            self.fatal = ModelError(f"gave up: {self._failures} groups in a row could not be filled, the last: {why}")
            raise self.fatal
        return None, []

    async def _run_one(self, problem: Problem, sampling: Sampling, metrics: RolloutMetrics) -> Rollout:
        async with self._rollout_slots:
            rollout = await self._runner.run(problem, self._models, sampling)
        metrics.add(rollout.trace, rollout.why_unusable)
        return rollout

    # --- evaluation

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Attempt each evaluation problem once, and write the metrics. While training, a failure is only logged."""
        try:
            if self._eval:
                await self._evaluate()
        except (ForetraceError, OSError) as error:
            if not self.training:
                raise
            why = render_error(error) if isinstance(error, ForetraceError) else error
            _log.warning("the evaluation at step %d failed: %s", self.curr_step, why)

    async def _evaluate(self) -> None:
        start_time, metrics = time.time(), RolloutMetrics()
        config, slots = self.config, asyncio.Semaphore(self.config.max_eval_workers)
        sampling = msgspec.structs.replace(config.sampling(), temperature=config.eval_temperature)

        async def run(problem: Problem) -> Rollout:
            async with slots:
                return await self._run_one(problem, sampling, metrics)

        rollouts = await asyncio.gather(*map(run, self._eval))
        if not metrics.rollouts:
            raise ModelError(f"none of {len(rollouts)} episodes came to its end: {describe_failures(rollouts)}")
        self._eval_metrics = metrics.compute_means("eval/")
        if self.training:
            _log.info("the evaluation at step %d:\n%s", self.curr_step, format_metrics(self._eval_metrics))
        else:
            print(format_metrics(self._eval_metrics), flush=True)
        if config.data_dir_to_save_evals is not None:
            await self.evaluate_log(
                self._eval_metrics,
                model_name=self._models[0].spec,
                start_time=start_time,
                end_time=time.time(),
                generation_parameters=self._describe_sampling() | {"temperature": config.eval_temperature},
                samples=[_make_sample(one) for one in rollouts],
                verbose=False,
            )

    def _describe_sampling(self) -> dict[str, Any]:
        return {name: getattr(self.config, name) for name in ("temperature", "top_p", "max_tokens")}

    async def wandb_log(self, wandb_metrics: dict[str, Any] | None = None) -> None:
        """Log the rollouts since the last call under `train/`, and an evaluation under `eval/`."""
        metrics = dict(wandb_metrics or {}) | self.metrics.compute_means("train/") | self._eval_metrics
        self.metrics, self._eval_metrics = RolloutMetrics(), {}
        await super().wandb_log(metrics)

    async def get_server_info(self) -> None:
        """Ask run-api for the trainer's limits. They also apply to sequences, and a group must not exceed a batch."""
        try:
            await super().get_server_info()
        except ValueError as error:
            raise UsageError(f"{error}: choose a smaller ", Setting("group_size"), " or a larger batch") from None
        if 0 < self.max_token_len < self.config.max_token_length:
            self._fit_problems(self.max_token_len)

    async def close(self) -> None:
        """Close everything that was opened, and seal the traces. May be called twice."""
        for server in self.server.servers:
            await server.model.close()
        if self._sandbox is not None:
            await self._sandbox.close()
        if self._sink is not None:
            await self._sink.close()

    @classmethod
    def cli(cls) -> None:
        """The command line. Exit codes: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
        if sys.argv[1:2] in ([], ["-h"], ["--help"]):  # without arguments, Atropos would print a traceback
            print("usage: serve|process|evaluate [--config FILE] [--env.NAME VALUE ...] [--openai.NAME VALUE ...]")
            print("all settings, and what they are: serve --help")
            sys.exit(0 if sys.argv[1:] else UsageError.exit_code)
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that everything is closed
        if not _log.handlers:  # foretrace logs few lines; show them whatever Atropos logs
            _log.addHandler(logging.StreamHandler())
            _log.setLevel(logging.INFO)
            _log.propagate = False
        try:
            super().cli()
        except ForetraceError as error:
            _end(render_error(error), error.exit_code)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            _end(f"setting {place}: {first['msg']}", UsageError.exit_code)
        except RetryError as error:
            cause = error.last_attempt.exception() or error
            _end(f"run-api does not answer ({cause}): start it and a trainer", ForetraceError.exit_code)
        except (OSError, yaml.YAMLError) as error:
            _end(str(error) or type(error).__name__, ForetraceError.exit_code)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            sys.exit(130)


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


def _end(message: str, code: int) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
