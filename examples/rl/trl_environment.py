"""GRPO on episodes whose acts are tools that the model calls: three steps of the demo model, on a CPU, in a minute."""

from pathlib import Path

import trl
from transformers import AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from foretrace.envs.trl import EnvironmentFactory, ToolCalls, prompt_dataset, write_demo_model

model = write_demo_model("demo-model")
tokenizer = AutoTokenizer.from_pretrained(model)
# The demo model's own template has no tools; one of TRL's has. Leave this out for a model that calls tools.
tokenizer.chat_template = Path(trl.__file__).with_name("chat_templates").joinpath("qwen3.jinja").read_text()
rows = prompt_dataset("builtin", ToolCalls(), limit=4)
environments = EnvironmentFactory()
sizes = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 200, "max_steps": 3}
config = GRPOConfig("out", **sizes, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False)
trainer = GRPOTrainer(
    model, args=config, train_dataset=rows, processing_class=tokenizer, environment_factory=environments
)
trainer.train()
environments.close()
