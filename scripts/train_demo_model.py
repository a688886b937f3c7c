"""Train the embedded demo model from traces that foretrace writes itself, and write it into the package.

A scripted author (`demo_model/author.py`) solves ten built-in problems in real episodes, with mistakes; the model
learns these texts by heart. Takes four to eight minutes of one core. The same machine and versions give the same bytes.

    python -m venv train-venv
    train-venv/bin/pip install -e . torch==2.13.0
    train-venv/bin/python scripts/train_demo_model.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
import torch
from demo_model import corpus, tokens, training
from demo_model.network import Network

from foretrace.models.demo_model import network as plain
from foretrace.models.demo_model.sampling import log_softmax
from foretrace.models.demo_model.tokenizer import ChatTokenizer

HERE = Path(__file__).parent
TARGET = HERE.parent / "src" / "foretrace" / "models" / "demo_model" / "checkpoint"
FIXTURE = HERE.parent / "tests" / "models" / "servers" / "demo_logprobs.json"
EACH = {"tools": 16, "interleaved_tools": 16, "inline": 16, "structured": 10, "interleaved": 10}
"""Episodes of each problem, by protocol."""
EPOCHS = 5.0
RATE = 4e-3
SEED = 1
VOCABULARY = 1024
CONTEXT = 4096
CLOSE = 1e-4
"""Largest difference of a logprob between torch and numpy."""


def main() -> None:
    """Write the traces, train, write the files, and hold numpy against torch."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    target.mkdir(parents=True, exist_ok=True)
    examples = asyncio.run(corpus.write(EACH, SEED))
    passed = sum(example.passed for example in examples)
    print(f"{len(examples)} episodes, {passed} of them pass")
    tokenizer = tokens.train_tokenizer(examples, VOCABULARY)
    text = ChatTokenizer(tokenizer)
    rows = [tokens.row_of(example, text) for example in examples]
    shape = plain.NetworkConfig(
        vocab_size=len(text.token_bytes),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        max_position_embeddings=CONTEXT,
    )
    network = training.train(rows, shape, epochs=EPOCHS, seed=SEED, rate=RATE)
    (target / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer), ensure_ascii=False), encoding="utf-8")
    (target / "config.json").write_text(json.dumps(config_of(shape, text), indent=1) + "\n", encoding="utf-8")
    (target / "model.safetensors").write_bytes(safetensors(network))
    compare(network, shape, target, rows[0])


def config_of(shape: plain.NetworkConfig, text: ChatTokenizer) -> dict[str, object]:
    """The `config.json` of a Qwen3 checkpoint."""
    sizes = {name: getattr(shape, name) for name in shape.__struct_fields__}
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "_name": "demo-model: it has ten problems by heart; never training data",
        **sizes,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "eos_token_id": text.end_id,
    }


def safetensors(network: Network) -> bytes:
    """The weights as 16-bit floats; rounds those of the network too."""
    head: dict[str, object] = {"__metadata__": {"format": "pt", "name": "demo-model"}}
    parts: list[bytes] = []
    at = 0
    with torch.no_grad():
        for name, weight in network.named_parameters():
            half = weight.half()
            weight.copy_(half)
            data = half.numpy().astype("<f2").tobytes()
            head[name] = {"dtype": "F16", "shape": list(weight.shape), "data_offsets": [at, at + len(data)]}
            parts.append(data)
            at += len(data)
    header = json.dumps(head).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + b"".join(parts)


def compare(network: Network, shape: plain.NetworkConfig, target: Path, row: tokens.Row) -> None:
    """Hold the numpy network against torch, and keep some of torch's logprobs for a test without torch."""
    ids = [*row.head, *row.ids]
    with torch.no_grad():
        states, _ = network.states(torch.tensor([ids]))
        wanted = torch.log_softmax(network.logits(states[0]).double(), -1).numpy()
    fast = plain.Network(plain.read_weights((target / "model.safetensors").read_bytes()), shape)
    cache = plain.KVCache(shape)
    chunks = [
        fast.forward(ids[begin : begin + plain.CHUNK_TOKENS], cache) for begin in range(0, len(ids), plain.CHUNK_TOKENS)
    ]
    difference = float(np.abs(log_softmax(np.concatenate(chunks)) - wanted).max())
    print(f"numpy and torch differ by {difference:.1e} at most, over {len(ids)} tokens and the whole vocabulary")
    if difference > CLOSE:
        raise SystemExit(f"the difference is larger than {CLOSE}: the numpy network is wrong")
    if target == TARGET:
        chosen = wanted[np.arange(len(ids) - 1), ids[1:]]
        kept = {"ids": ids, "logprobs": [round(float(value), 6) for value in chosen]}
        FIXTURE.write_text(json.dumps(kept) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
