"""foretrace's episodes for TRL's `GRPOTrainer`: a prompt dataset, a reward, and rollouts (see docs/rl.md)."""

from foretrace.envs.demo_files import write_demo_model
from foretrace.envs.trl.generation import GenerateFunc, Generation, TrainedModel, server_generate
from foretrace.envs.trl.prompts import prompt_dataset
from foretrace.envs.trl.rewards import RewardFunc, reward_fn, reward_from_rollout
from foretrace.envs.trl.rollouts import RolloutFunc, rollout_func

__all__ = [
    "GenerateFunc",
    "Generation",
    "RewardFunc",
    "RolloutFunc",
    "TrainedModel",
    "prompt_dataset",
    "reward_fn",
    "reward_from_rollout",
    "rollout_func",
    "server_generate",
    "write_demo_model",
]
