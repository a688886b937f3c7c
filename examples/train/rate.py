"""Rate actions with a reward model that `trl reward` wrote:

    python rate.py REWARD_MODEL DATASET --out FILE                     both actions of each test pair
    python rate.py REWARD_MODEL DATASET --predictions P --out FILE     each guess of a file of predictions

`foretrace score FILE DATASET` reads the first, `foretrace verify P DATASET --scores FILE` the second.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from foretrace.core.predictions import read_predictions
from foretrace.evaluation.verify import make_guess_text

Chat = list[dict[str, str]]


def load_rater(reward_model: str) -> Callable[[Chat], float]:
    """What gives a chat whose last message is an action its score: the higher, the better."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(reward_model)
    model = AutoModelForSequenceClassification.from_pretrained(reward_model, num_labels=1).to(device).eval()

    def rate(chat: Chat) -> float:
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True).to(device)
        with torch.no_grad():
            return model(**ids).logits[0, 0].item()

    return rate


def rate_pairs(rate: Callable[[Chat], float], dataset: str) -> Iterator[dict[str, Any]]:
    """Rate what the test pairs of a dataset hold."""
    for row in datasets.load_dataset(dataset, "verifier", split="test"):
        sides = {side: rate([*row["prompt"], *row[side]]) for side in ("chosen", "rejected")}
        yield {name: row[name] for name in ("key", "step", "family", "pair")} | sides


def rate_guesses(rate: Callable[[Chat], float], dataset: str, predictions: str) -> Iterator[dict[str, Any]]:
    """Rate the guesses that name an action, each behind the prompt of its row."""
    prompts = {(row["key"], row["step"]): row["prompt"] for row in datasets.load_dataset(dataset, "eval", split="test")}
    for guess in read_predictions(Path(predictions)).rows:
        if guess.action is not None and (guess.key, guess.step) in prompts:
            answer = {"role": "assistant", "content": make_guess_text(guess, "call")}
            score = rate([*prompts[guess.key, guess.step], answer])
            yield {"key": guess.key, "step": guess.step, "rank": guess.rank, "score": score}


def main() -> None:
    parser = argparse.ArgumentParser(description="Rate actions with a reward model.")
    parser.add_argument("reward_model")
    parser.add_argument("dataset")
    parser.add_argument("--predictions")
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    rate = load_rater(given.reward_model)
    if given.predictions is None:
        lines = rate_pairs(rate, given.dataset)
    else:
        lines = rate_guesses(rate, given.dataset, given.predictions)
    with given.out.open("w") as out:
        for line in lines:
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
