"""RL environments: thin adapters that run foretrace's episodes in a trainer's library, with a folder per library.

They share: `problems` (reading and splitting), `rollout_model` (a model server for rollouts, with `aligned_model` if it
does not return token ids), `rollouts` (from a problem to a trace and a `train_sequence`), `tokenizer`, `trace_sink`
(traces on disk), `metrics`, `demo_files` (the demo model for other libraries), `messages` (settings as options).
"""
