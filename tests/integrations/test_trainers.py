"""TRL's own trainers take steps on built datasets, and bear loss on exactly the tokens that they should.

What a batch should hold is written here without TRL, and without the chat template: from the rows' text. Batches are
those that the trainer's own data loader gives: the ones of the steps, and then all of one pass over the split.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import foretrace
from integrations.conftest import Built
from integrations.tiny import QUIET_ON_CPU, START, make_model, text_of, train_spaced_tokenizer, turns

pytestmark = pytest.mark.integration
GENERATION_PROMPT = f"{START}assistant\n"
STEPS = 3
TRL_DEFAULT_LENGTH = 1024
Case = tuple[str | bool, ...]
"""What one training example is: its text without loss, its text with loss, and what else tells it apart."""


class Sequence(NamedTuple):
    """One sequence of a batch, without padding."""

    ids: list[int]
    bears_loss: list[bool]


def sequences(batch: dict[str, Any]) -> list[Sequence]:
    """The sequences of a batch, with the loss as the trainer's own columns say it."""
    mask = batch["labels"] != -100 if "labels" in batch else batch["completion_mask"] == 1
    if "labels" in batch:
        assert (batch["labels"] == batch["input_ids"])[mask].all()
    real = batch["attention_mask"] == 1
    assert not (mask & ~real).any()
    return [
        Sequence(ids[kept].tolist(), bears[kept].tolist())
        for ids, bears, kept in zip(batch["input_ids"], mask, real, strict=True)
    ]


class Tally:
    """What was seen in batches, against what should be."""

    def __init__(self, tokenizer: Any, expected: Iterable[Case]) -> None:
        self.tokenizer = tokenizer
        self.expected = Counter(expected)
        self.seen: Counter[Case] = Counter()

    def read(self, sequence: Sequence) -> tuple[str, str]:
        """Text without and with loss; their tokens are counted against our own tokenising of the two texts."""
        start = sequence.bears_loss.index(True) if True in sequence.bears_loss else len(sequence.ids)
        assert all(sequence.bears_loss[start:]), "loss on something before the completion's end"
        before, after = self.decode(sequence.ids[:start]), self.decode(sequence.ids[start:])
        assert len(sequence.ids) - start == self.count(before + after) - self.count(before)
        return before, after

    def take(self, case: Case) -> None:
        """Count a case, which must be one of those expected."""
        assert case in self.expected, f"not a row of the dataset: loss on {case[1]!r:.300}"
        self.seen[case] += 1

    def count(self, text: str) -> int:
        return len(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def check_plain(tally: Tally, batch: dict[str, Any]) -> None:
    """SFT: each sequence is a prompt and its completion."""
    for sequence in sequences(batch):
        tally.take(tally.read(sequence))


def check_pairs(tally: Tally, batch: dict[str, Any]) -> None:
    """DPO: the first half of the sequences are chosen, the other half rejected, of the same prompts."""
    read = [tally.read(sequence) for sequence in sequences(batch)]
    half = len(read) // 2
    for (prompt, chosen), (same_prompt, rejected) in zip(read[:half], read[half:], strict=True):
        assert prompt == same_prompt
        tally.take((prompt, chosen, rejected))


def check_unpaired(tally: Tally, batch: dict[str, Any]) -> None:
    """KTO: each sequence is a prompt and a completion, with a label."""
    for sequence, label in zip(sequences(batch), batch["label"].tolist(), strict=True):
        tally.take((*tally.read(sequence), label))


def check_trajectories(tally: Tally, batch: dict[str, Any]) -> None:
    """SFT on whole attempts: several trained messages in each sequence."""
    for sequence in sequences(batch):
        runs: list[list[int]] = []
        before = False
        for token, bears in zip(*sequence, strict=True):
            if bears and not before:
                runs.append([])
            if bears:
                runs[-1].append(token)
            before = bears
        texts = [tally.decode(run) for run in runs]
        assert [len(run) for run in runs] == [tally.count(text) for text in texts]
        tally.take((tally.decode(sequence.ids), *texts))


def expect(rows: Iterable[dict[str, Any]], *columns: str) -> list[Case]:
    """The cases of (prompt, completion) rows, written by hand."""

    def case(row: dict[str, Any]) -> Case:
        ends: list[str | bool] = []
        for column in columns:
            value = row[column]
            ends.append(value if isinstance(value, bool) else text_of(turns(value)).removeprefix(GENERATION_PROMPT))
        return (text_of(turns(row["prompt"])) + GENERATION_PROMPT, *ends)

    return [case(row) for row in rows]


def expect_trajectories(rows: Iterable[dict[str, Any]]) -> list[Case]:
    chats = [turns(row["messages"], row["tools"]) for row in rows]
    return [(text_of(chat), *(turn.body for turn in chat if turn.trained)) for chat in chats]


def longest(tokenizer: Any, cases: Iterable[Case]) -> int:
    """Tokens of the longest sequence, as a user has to find it."""
    texts = [prompt + end for prompt, *ends in cases for end in ends if isinstance(prompt, str) if isinstance(end, str)]
    return max(map(len, tokenizer(texts, add_special_tokens=False)["input_ids"]))


class Trained(NamedTuple):
    """A trainer that took its steps."""

    trainer: Any
    steps: list[dict[str, Any]]
    """The batches that its loss was computed on."""
    losses: list[float]


def train(kind: str, rows: Any, tokenizer: Any, folder: Path, **settings: Any) -> Trained:
    """Let TRL's trainer take its steps; what it feeds to its own loss is kept."""
    import trl

    config = getattr(trl, f"{kind}Config")(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=2,
        learning_rate=5e-3,
        lr_scheduler_type="constant",
        **QUIET_ON_CPU,
        **settings,
    )
    steps: list[dict[str, Any]] = []
    base = getattr(trl, f"{kind}Trainer")

    class Watched(base):
        def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            steps.append({name: value.clone() for name, value in inputs.items() if hasattr(value, "clone")})
            return super().compute_loss(model, inputs, *args, **kwargs)

    models = {"model": make_model(tokenizer)} | ({} if kind == "SFT" else {"ref_model": make_model(tokenizer)})
    trainer = Watched(**models, args=config, train_dataset=rows, processing_class=tokenizer)
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert trainer.state.global_step == len(losses) == len(steps) == STEPS
    assert all(math.isfinite(loss) for loss in losses)
    assert any((a != b).any() for a, b in zip(before, trainer.model.parameters(), strict=True)), "nothing was learned"
    return Trained(trainer, steps, losses)


def check_all(trained: Trained, tally: Tally, check: Callable[[Tally, dict[str, Any]], None]) -> None:
    """Check the batches of the steps, then one whole pass: every row once, nothing cut, nothing else."""
    for batch in trained.steps:
        check(tally, batch)
    tally.seen.clear()
    for batch in trained.trainer.get_train_dataloader():
        check(tally, batch)
    lost = tally.expected - tally.seen
    assert tally.seen == tally.expected, f"{lost.total()} rows of the dataset were not in the batches"


@pytest.mark.parametrize(
    ("kind", "config", "columns", "check"),
    [
        ("SFT", "proposer", ["completion"], check_plain),
        ("DPO", "verifier", ["chosen", "rejected"], check_pairs),
        ("KTO", "verifier_unpaired", ["completion", "label"], check_unpaired),
    ],
)
def test_each_row_of_a_config_bears_loss_on_its_completion(
    built: Built, tokenizer: Any, tmp_path: Path, kind: str, config: str, columns: list[str], check: Any
):
    rows = built.load(config)
    cases = expect(rows, *columns)
    length = longest(tokenizer, cases)
    trained = train(kind, rows, tokenizer, tmp_path, max_length=length)
    check_all(trained, Tally(tokenizer, cases), check)
    if kind == "SFT":
        assert length > TRL_DEFAULT_LENGTH, "prompts too short to show what a default limit cuts"
        assert trained.losses[-1] < trained.losses[0]


def test_sft_on_trajectories(built: Built, tokenizer: Any, tmp_path: Path):
    import datasets

    rows = built.load("trajectories")
    made = datasets.Dataset.from_list(list(foretrace.tokenize(rows, tokenizer)))
    assert made["key"] == rows["key"]
    length = max(map(len, made["input_ids"]))
    assert length > TRL_DEFAULT_LENGTH
    trained = train("SFT", made, tokenizer, tmp_path, max_length=length)
    check_all(trained, Tally(tokenizer, expect_trajectories(rows)), check_trajectories)
    assert trained.losses[-1] < trained.losses[0]


def test_a_tokenizer_that_puts_a_space_before_every_text(built: Built, corpus: list[str]):
    """Its texts cannot be cut; the labels are found by offsets, and the ids are those of the whole text."""
    rows = built.load("trajectories")
    spaced = train_spaced_tokenizer(corpus)
    assert spaced("\na")["input_ids"] != spaced("\n")["input_ids"] + spaced("a")["input_ids"]
    compared = 0
    for row, made in zip(rows, foretrace.tokenize(rows, spaced), strict=True):
        chat = turns(row["messages"], row["tools"])
        assert made["input_ids"] == spaced(text_of(chat), add_special_tokens=False)["input_ids"]
        pairs = zip(made["input_ids"], made["labels"], strict=True)
        runs = [[token for token, _ in run] for bears, run in groupby(pairs, lambda pair: pair[1] != -100) if bears]
        wanted = [turn.body for turn in chat if turn.trained]
        assert [spaced.decode(run, clean_up_tokenization_spaces=False) for run in runs] == wanted
        compared += len(wanted)
    assert compared > 100


# Controls: the checks above fail on what they are for.


def test_control_the_trainers_default_limit_is_seen(built: Built, tokenizer: Any, tmp_path: Path):
    """TRL cuts at 1,024 tokens where nothing is said, and says nothing."""
    rows = built.load("proposer").select(range(24))
    cases = expect(rows, "completion")
    trained = train("SFT", rows, tokenizer, tmp_path)
    assert trained.trainer.args.max_length == TRL_DEFAULT_LENGTH
    with pytest.raises(AssertionError):
        check_all(trained, Tally(tokenizer, cases), check_plain)


def test_control_newlines_merge_in_this_tokenizer_and_not_across_our_cuts(built: Built, tokenizer: Any):
    """Some trained messages begin with a newline: tokenized at once, they would share a token with the prompt."""
    rows = built.load("trajectories")
    bodies = [t.body for row in rows for t in turns(row["messages"]) if t.trained and t.body.startswith("\n")]
    assert bodies
    merged = tokenizer("assistant\n" + bodies[0])["input_ids"]
    assert merged != tokenizer("assistant\n")["input_ids"] + tokenizer(bodies[0])["input_ids"]
