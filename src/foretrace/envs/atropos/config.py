"""The settings of the Atropos environment: `--env.NAME`, or `NAME` under `env:` in YAML."""
# pyright: reportUntypedFunctionDecorator=false, reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from typing import Any, Literal

from atroposlib.envs.base import BaseEnvConfig
from pydantic import ConfigDict, Field, field_validator

from foretrace.core.completion import Sampling
from foretrace.core.errors import ForetraceError
from foretrace.core.pairs import parse_pairs
from foretrace.envs.messages import make_option_style
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.address import read_key
from foretrace.models.base import Server


class CodeTraceEnvConfig(BaseEnvConfig):
    """Atropos' own settings with other defaults, and the settings of episodes."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())  # fields may begin with `model_`

    group_size: int = Field(default=4, ge=1, description="Rollouts of a problem; with 1, a group has one score.")
    max_num_workers: int = Field(default=64, ge=1, description="Groups in flight.")
    max_token_length: int = Field(default=4096, description="Tokens of a whole sequence, all turns together.")
    tokenizer_name: str = Field(default="", description="Folder of the model's tokenizer; empty: the demo model's.")
    wandb_name: str | None = Field(default="code_trace", description="Name of the environment at run-api and W&B.")
    use_wandb: bool = Field(default=False, description="Log to Weights & Biases (WANDB_MODE=offline works).")

    protocol: str = Field(default="interleaved_tools", description="How model and executor talk (docs/protocols.md).")
    problems: str = Field(default="builtin", description="A problem set, or NAME:PATH (docs/problems.md).")
    problems_path: str | None = Field(default=None, description="File or folder of the problem set, else the Hub.")
    limit: int | None = Field(default=None, ge=1, description="Only the first N problems.")
    eval_fraction: float = Field(default=0.1, description="Share of the problems that is kept for evaluation.")
    seed: int = Field(default=0, description="Of the split, the order of the problems and the sampling.")

    max_turns: int | None = Field(
        default=None, ge=1, description="Completions of an episode; None: the protocol's own."
    )
    feedback: Literal["public", "counts"] = Field(default="public", description="What a model is told of its tests.")
    hints: bool = Field(default=False, description="Add hints after failures.")
    structure_bonus: bool = Field(default=True, description="Add the structure bonus to the reward.")
    flagged: Literal["zero", "report"] = Field(default="zero", description="The reward of code that cheats its tests.")

    temperature: float = Field(default=1.0, gt=0, description="Of the training rollouts; logprobs are those of 1.")
    top_p: float = Field(default=1.0, gt=0, le=1, description="Of the training rollouts.")
    max_tokens: int = Field(default=1024, ge=1, description="Tokens of one completion.")
    eval_temperature: float = Field(default=0.0, description="Of the evaluation.")

    sandbox: str = Field(default="local", description="Sandboxes in order of preference, e.g. docker,local.")
    sandbox_workers: int = Field(default=0, description="Runs of the sandbox at one time; 0 means one per core.")
    min_level: int = Field(default=2, description="Lowest isolation level to accept; below 2 it is weak.")
    max_rollouts: int = Field(default=256, ge=1, description="Episodes at one time.")

    model: str = Field(default="openai", description="KIND or KIND:NAME of the model server (docs/models.md).")
    context_length: int | None = Field(default=None, description="Context to ask the server for (Ollama's num_ctx).")
    model_options: str = Field(default="", description="Options of that kind of model: NAME=VALUE,NAME=VALUE.")
    model_timeout: float = Field(default=300.0, description="Longest silence of the model server, seconds.")
    model_retries: int = Field(default=4, description="How often a request is tried again.")
    api_key_env: str | None = Field(default=None, description="Environment variable with the server's key.")
    check_tokenizer: bool = Field(default=True, description="Hold the tokenizer against the server's at the start.")

    traces_dir: str | None = Field(default=None, description="Traces folder that the rollouts are added to.")
    on_mismatch: Literal["drop", "flag"] = Field(
        default="drop", description="Of a rollout with tokens that have no sure logprob: drop it, or mask these tokens."
    )
    tries: int = Field(default=3, ge=1, description="How often an episode is begun that fails.")
    give_up_after: int = Field(default=10, ge=1, description="Groups in a row without a full one, after which it ends.")

    @field_validator("thinking_mode", "reasoning_effort", "max_reasoning_tokens", "custom_thinking_prompt")
    @classmethod
    def _refuse(cls, value: Any) -> Any:
        if value:
            raise ValueError("not of this environment: leave it out (for Ollama give model_options think=VALUE)")
        return value

    def server(self) -> Server:
        """Settings of the model server, except the address and key, which are Atropos' (`openai.*`).

        Raises:
            UsageError: an option that is not NAME=VALUE, or a key that is not set.
        """
        pairs = filter(None, (pair.strip() for pair in self.model_options.split(",")))
        return Server(
            api_key=read_key(self.api_key_env) if self.api_key_env else None,
            context_length=self.context_length,
            timeout_s=self.model_timeout,
            retries=self.model_retries,
            options=parse_pairs("options", pairs, form="NAME=VALUE,NAME=VALUE", example="think=false"),
        )

    def episode(self) -> EpisodeSettings:
        """How episodes are run."""
        return EpisodeSettings(**{name: getattr(self, name) for name in EpisodeSettings.__struct_fields__})

    def sampling(self) -> Sampling:
        """How training rollouts are sampled."""
        return Sampling(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens)


_OPTIONS = {name: f"--env.{name}" for name in CodeTraceEnvConfig.model_fields} | {
    "allow_weak_isolation": "--env.min_level 0",
    "api_key": "--openai.api_key",
    "base_url": "--openai.base_url",
    "concurrency": "--openai.num_max_requests_at_once",
    "options": "--env.model_options",
    "path": "--env.problems_path",
    "retries": "--env.model_retries",
    "timeout": "--env.model_timeout",
    "timeout_s": "--env.model_timeout",
    "workers": "--env.sandbox_workers",
}
"""Name of a setting in Python -> the option that sets it here."""
_write_option = make_option_style(_OPTIONS)


def render_error(error: ForetraceError) -> str:
    """The message of an error, with settings as options of this environment."""
    return error.render(_write_option)
