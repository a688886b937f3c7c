"""RL environments: thin adapters that run the same episodes inside a trainer's library, a folder for each library.

They share: `problems` (reading and splitting), `rollout_model` (a model server as rollouts ask it, with `aligned_model`
where it gives no token ids), `rollouts` (a problem becomes a trace and a `train_sequence`), `tokenizer`, `trace_sink`
(traces on disk), `metrics`, `demo_files` (the demo model for other libraries), `messages` (settings as options).
"""
