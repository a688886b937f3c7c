"""RL environments: thin adapters that run foretrace's episodes in a trainer's library, with a folder per library.

They share: `problems` (reading and splitting), `rollout_model` (a model server for rollouts), `rollouts` (from a
problem to a trace and a `train_sequence`), `tokenizer`, `trace_sink` (traces on disk), `metrics`, `messages` (settings
as options).
"""
