"""The identity of an attempt: its key, seed, sampling and task, and the provenance in its trace."""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.core.completion import Sampling
from foretrace.core.digest import digest, hash_fraction
from foretrace.core.problem import Problem
from foretrace.core.trace import Task
from foretrace.episodes.settings import EpisodeSettings
from foretrace.models.base import ChatModel, ConfiguredModel
from foretrace.problems.base import qualify_id
from foretrace.protocols.base import InteractionProtocol

_HASHED_NAMES = {"structure_bonus": "bonuses"}


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What distinguishes attempts at one problem, besides protocol and settings."""

    model: str = ""
    """As the user named it, e.g. `ollama:qwen3-coder`."""
    sampling: dict[str, Any] = {}
    """The sampling, with the model's own settings (see `models.base.ConfiguredModel`)."""
    seed: int | None = None
    sample: int = 0
    run: str | None = None
    capabilities: dict[str, Any] = {}
    tool_versions: dict[str, str] = {}
    created_at: str | None = None


def make_key(problem: Problem, protocol: InteractionProtocol, identity: Identity, settings: EpisodeSettings) -> str:
    """The attempt's key, determined by the problem, protocol, settings, model and its settings, sampling, seed and
    sample, but not by the server's address."""
    sampling = {k: v for k, v in sorted(identity.sampling.items()) if k != "seed"}
    tests = [problem.statement, problem.entry_point, problem.public_tests, problem.hidden_tests]
    attempt = _digest([protocol.name, _list_hashed_settings(settings), identity.model, sampling, identity.seed, tests])
    return f"generated/{qualify_id(problem)}/{attempt}/{identity.sample}"


def make_run_name(protocol: InteractionProtocol, identity: Identity, settings: EpisodeSettings) -> str:
    """The name of a run, determined by protocol, settings, model, sampling and seed."""
    return _digest([protocol.name, _list_hashed_settings(settings), identity.model, identity.sampling, identity.seed])


def _digest(parts: list[Any]) -> str:
    return digest(msgspec.json.encode(parts, order="sorted").decode())


def _list_hashed_settings(settings: EpisodeSettings) -> dict[str, Any]:
    """The settings under the names they had when the first keys were made, so that older attempts keep their keys. A
    setting added later is included only if it differs from its default."""
    values = msgspec.structs.asdict(settings)
    if settings.flagged == "zero":
        del values["flagged"]
    return {_HASHED_NAMES.get(name, name): value for name, value in values.items()}


def derive_seed(seed: int, problem: Problem, sample: int) -> int:
    """The seed of one attempt, 0 to 2**31 - 1."""
    return int(hash_fraction("attempt", str(seed), problem.source, problem.id, str(sample)) * (1 << 31))


def describe_sampling(sampling: Sampling, model: ChatModel | None = None) -> dict[str, Any]:
    """All settings of the sampling and of the model, as recorded, except for the seed, which is different for each
    attempt."""
    own = {name: getattr(sampling, name) for name in sampling.__struct_fields__ if name not in ("seed", "extra")}
    settings = dict(model.settings) if isinstance(model, ConfiguredModel) else {}
    return settings | {name: value for name, value in own.items() if value is not None} | sampling.extra


def make_task(problem: Problem) -> Task:
    """The problem as a task: all attempts at it are siblings, whatever their protocol."""
    name = qualify_id(problem)
    return Task(id=name, group=problem.group or name, kind="problem", statement=problem.statement)
