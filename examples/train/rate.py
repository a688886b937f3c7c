"""Rate predictions with a reward model: `python rate.py REWARD_MODEL DATASET PREDICTIONS SCORES`.

REWARD_MODEL is what `trl reward` wrote. Each line of SCORES has the key, step and rank of a prediction, and its score;
`foretrace verify --scores` adds them to the predictions.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import datasets
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from foretrace.core.predictions import read_predictions
from foretrace.evaluation.verify import make_guess_text


def main(reward_model: str, dataset: str, predictions: str, scores: str) -> None:
    """Rate all predictions, one at a time."""
    tokenizer = AutoTokenizer.from_pretrained(reward_model)
    model = AutoModelForSequenceClassification.from_pretrained(reward_model, num_labels=1).eval()
    prompts = {(row["key"], row["step"]): row["prompt"] for row in datasets.load_dataset(dataset, "eval", split="test")}
    with Path(scores).open("w") as out:
        for guess in read_predictions(Path(predictions)).rows:
            answer = {"role": "assistant", "content": make_guess_text(guess, "call")}
            chat = [*prompts[guess.key, guess.step], answer]
            ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)
            with torch.no_grad():
                score = model(**ids.to(model.device)).logits[0, 0].item()
            line = {"key": guess.key, "step": guess.step, "rank": guess.rank, "score": score}
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
