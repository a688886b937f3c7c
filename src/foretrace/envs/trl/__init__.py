"""foretrace's episodes for TRL's `GRPOTrainer`: a prompt dataset, and rollouts or an environment (see docs/rl.md)."""

from foretrace.envs.trl.environment import EnvironmentFactory, ToolCalls
from foretrace.envs.trl.generation import GenerateFunc, Generation, TrainedModel
from foretrace.envs.trl.prompts import prompt_dataset
from foretrace.envs.trl.rollouts import RolloutFunc, reward_from_rollout, rollout_func
from foretrace.models.demo_model import write_demo_model

__all__ = [
    "EnvironmentFactory",
    "GenerateFunc",
    "Generation",
    "RolloutFunc",
    "ToolCalls",
    "TrainedModel",
    "prompt_dataset",
    "reward_from_rollout",
    "rollout_func",
    "write_demo_model",
]
