"""Make a whole model of a LoRA adapter: `python merge.py FOLDER`.

The adapter in FOLDER, which TRL wrote with `use_peft`, is merged into the model that it was trained on, and the result
takes its place: it is trained on, served and loaded like any other model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from peft import AutoPeftModelForCausalLM, AutoPeftModelForSequenceClassification


def merge(folder: Path) -> None:
    """Replace the adapter in a folder by the whole model."""
    settings = folder / "adapter_config.json"
    if json.loads(settings.read_text())["task_type"] == "SEQ_CLS":
        model = AutoPeftModelForSequenceClassification.from_pretrained(folder, num_labels=1)
    else:
        model = AutoPeftModelForCausalLM.from_pretrained(folder)
    model.merge_and_unload().save_pretrained(folder)
    settings.unlink()
    (folder / "adapter_model.safetensors").unlink()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python merge.py FOLDER")
    merge(Path(sys.argv[1]))
