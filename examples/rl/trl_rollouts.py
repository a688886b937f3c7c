"""GRPO on whole episodes of many turns, token-exact: two steps of the demo model, on a CPU, in a minute."""

from trl import GRPOConfig, GRPOTrainer

from foretrace.envs.trl import prompt_dataset, reward_from_rollout, rollout_func, write_demo_model

rows = prompt_dataset("builtin", "tools", limit=4)
run = rollout_func("tools", problems="builtin", traces_dir="traces")
sizes = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 400, "max_steps": 2}
config = GRPOConfig("out", **sizes, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False)
model = write_demo_model("demo-model")
trainer = GRPOTrainer(model, reward_from_rollout, config, train_dataset=rows, rollout_func=run)
trainer.train()
run.close()
