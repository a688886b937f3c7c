"""Train the network: the same examples and seed give the same weights on the same machine."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from demo_model.network import Network
from demo_model.tokens import Row
from foretrace.models.demo_model.network import NetworkConfig

BATCH_TOKENS = 3000
"""Tokens of a batch, its shared head counted once."""


def train(rows: Sequence[Row], shape: NetworkConfig, *, epochs: float, seed: int, rate: float) -> Network:
    """A trained network; prints how it goes."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    network = Network(shape)
    matrices = [w for n, w in network.named_parameters() if w.dim() == 2 and "embed" not in n]
    others = [w for n, w in network.named_parameters() if w.dim() != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    losses: list[float] = []
    batches = list(_batches(rows, epochs, seed))
    started = time.perf_counter()
    for number, batch in enumerate(batches):
        part = number / len(batches)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, (number + 1) / 20, 1.05 - part)
        loss = _loss(network, batch)
        losses.append(loss.item())
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        if number % 50 == 49 or number == len(batches) - 1:
            seconds, mean = time.perf_counter() - started, sum(losses[-50:]) / len(losses[-50:])
            print(f"step {number + 1} of {len(batches)}, {seconds:.0f} s: mean loss {mean:.4f}", flush=True)
    return network.eval()


def _batches(rows: Sequence[Row], epochs: float, seed: int) -> Iterator[list[Row]]:
    """Batches of one protocol each, of rows of about the same length, in a shuffled order."""
    rng = random.Random(seed)
    wanted = epochs
    while wanted > 0:
        batches: list[list[Row]] = []
        for protocol in dict.fromkeys(row.protocol for row in rows):
            found = [row for row in rows if row.protocol == protocol]
            found.sort(key=lambda row: len(row.ids) * rng.uniform(0.8, 1.2))
            batch: list[Row] = []
            for row in found:
                longest = max([len(row.ids), *(len(r.ids) for r in batch)])
                if batch and len(row.head) + longest * (len(batch) + 1) > BATCH_TOKENS:
                    batches.append(batch)
                    batch = []
                batch.append(row)
            batches.append(batch)
        rng.shuffle(batches)
        yield from batches[: max(1, round(len(batches) * min(1.0, wanted)))]
        wanted -= 1


def _loss(network: Network, batch: Sequence[Row]) -> Tensor:
    """Mean loss over the tokens that the model is to write; the shared head is read once."""
    _, past = network.states(torch.tensor([batch[0].head]))
    longest = max(len(row.ids) for row in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    wanted = torch.full((len(batch), longest), -100)
    for number, row in enumerate(batch):
        ids[number, : len(row.ids)] = torch.tensor(row.ids)
        mine = torch.tensor([i if own else -100 for i, own in zip(row.ids, row.own, strict=True)])
        wanted[number, : len(row.ids) - 1] = mine[1:]
    states, _ = network.states(ids, past)
    chosen = wanted != -100
    return functional.cross_entropy(network.logits(states[chosen]), wanted[chosen])
