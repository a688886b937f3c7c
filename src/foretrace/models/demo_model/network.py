"""The demo model's network in numpy: a small transformer like Qwen3, with a cache of keys and values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
CHUNK_TOKENS = 64
"""Tokens of a prompt that are computed together, counted from its start. So the same prompt always gives the same bits,
regardless of what part of it is cached."""


class NetworkConfig(msgspec.Struct, frozen=True):
    """Sizes, named as in a `config.json`, whose other fields are ignored."""

    vocab_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int


class KVCache:
    """Keys and values of the tokens read so far, (layers, heads, tokens, head size)."""

    def __init__(self, shape: NetworkConfig) -> None:
        self.length = 0
        size = (shape.num_hidden_layers, shape.num_key_value_heads, shape.max_position_embeddings, shape.head_dim)
        self.keys = np.empty(size, np.float32)
        self.values = np.empty(size, np.float32)

    def copy_chunk(self, begin: int, end: int) -> tuple[Floats, Floats]:
        return self.keys[:, :, begin:end].copy(), self.values[:, :, begin:end].copy()

    def append_chunk(self, chunk: tuple[Floats, Floats]) -> None:
        """Append keys and values that `copy_chunk` returned."""
        keys, values = chunk
        begin, end = self.length, self.length + keys.shape[2]
        self.keys[:, :, begin:end], self.values[:, :, begin:end] = keys, values
        self.length = end


class _Layer:
    """Weights of one layer, with the scales of its norms already multiplied in."""

    def __init__(self, weights: Mapping[str, Floats], number: int, shape: NetworkConfig) -> None:
        def of(name: str) -> Floats:
            return weights[f"model.layers.{number}.{name}.weight"]

        scale = of("input_layernorm")
        self.qkv = _transpose(np.concatenate([of(f"self_attn.{n}_proj") for n in "qkv"]) * scale)
        self.out = _transpose(of("self_attn.o_proj"))
        scale = of("post_attention_layernorm")
        self.gate_up = _transpose(np.concatenate([of("mlp.gate_proj"), of("mlp.up_proj")]) * scale)
        self.down = _transpose(of("mlp.down_proj"))
        heads, shared = shape.num_attention_heads, shape.num_key_value_heads
        query = of("self_attn.q_norm") / np.float32(math.sqrt(shape.head_dim))
        self.norms = np.concatenate([np.tile(query, (heads, 1)), np.tile(of("self_attn.k_norm"), (shared, 1))])


class Network:
    """The network; `forward` changes only the cache."""

    def __init__(self, weights: Mapping[str, Floats], shape: NetworkConfig) -> None:
        self.config = shape
        self._embedding = np.ascontiguousarray(weights["model.embed_tokens.weight"])
        self._logits = _transpose(self._embedding * weights["model.norm.weight"])
        self._layers = [_Layer(weights, number, shape) for number in range(shape.num_hidden_layers)]
        half = shape.head_dim // 2
        turns = shape.rope_theta ** (-np.arange(half) / half)
        angles = np.arange(shape.max_position_embeddings)[:, None] * np.concatenate([turns, turns])
        self._cos = np.cos(angles).astype(np.float32)[:, None]
        self._sin = np.sin(angles).astype(np.float32)[:, None]

    def forward(self, ids: Sequence[int], cache: KVCache) -> Floats:
        """Compute tokens that follow those in the cache, and append them to it; returns the logits after each, (tokens,
        vocabulary)."""
        end = cache.length + len(ids)
        x = self._embedding[np.asarray(ids)]
        for number, layer in enumerate(self._layers):
            x += self._attend(_rms_norm(x, self.config.rms_norm_eps), number, layer, cache)
            gate_up = _rms_norm(x, self.config.rms_norm_eps) @ layer.gate_up
            half = gate_up.shape[-1] // 2
            x += _swiglu(gate_up[:, :half], gate_up[:, half:]) @ layer.down
        cache.length = end
        return _rms_norm(x, self.config.rms_norm_eps) @ self._logits

    def _attend(self, x: Floats, number: int, layer: _Layer, cache: KVCache) -> Floats:
        shape, count = self.config, len(x)
        heads, shared, size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        begin, end = cache.length, cache.length + count
        qkv = (x @ layer.qkv).reshape(count, heads + 2 * shared, size)
        qk = _rms_norm(qkv[:, : heads + shared], shape.rms_norm_eps) * layer.norms
        half = size // 2
        turned = np.concatenate([-qk[..., half:], qk[..., :half]], axis=-1)
        qk = qk * self._cos[begin:end] + turned * self._sin[begin:end]
        keys, values = cache.keys[number], cache.values[number]
        keys[:, begin:end] = qk[:, heads:].transpose(1, 0, 2)
        values[:, begin:end] = qkv[:, heads + shared :].transpose(1, 0, 2)
        # Heads that share keys and values are rows of one matrix.
        queries = qk[:, :heads].reshape(count, shared, heads // shared, size).transpose(1, 2, 0, 3)
        scores = queries.reshape(shared, -1, size) @ keys[:, :end].transpose(0, 2, 1)
        scores = scores.reshape(shared, heads // shared, count, end)
        if count > 1:
            scores[..., begin:] += np.triu(np.full((count, count), -np.inf, np.float32), 1)
        scores -= scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores, out=scores)  # in place: allocating arrays of this size takes longer than the sums
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = weights.reshape(shared, -1, end) @ values[:, :end]
        mixed = mixed.reshape(shared, heads // shared, count, size).transpose(2, 0, 1, 3)
        return mixed.reshape(count, heads * size) @ layer.out


def _rms_norm(x: Floats, epsilon: float) -> Floats:
    return x / np.sqrt(np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1]) + np.float32(epsilon))


def _swiglu(gate: Floats, up: Floats) -> Floats:
    smooth = gate / (np.float32(1) + np.exp(-gate))
    return smooth * up


def _transpose(weight: Floats) -> Floats:
    """The transposed matrix as a contiguous array, for `rows @ matrix`."""
    return np.ascontiguousarray(weight.T, dtype=np.float32)


def read_weights(data: bytes) -> dict[str, Floats]:
    """Arrays of a safetensors file with 16-bit floats, converted to 32 bits."""
    size = int.from_bytes(data[:8], "little")
    found: dict[str, Floats] = {}
    for name, entry in msgspec.json.decode(data[8 : 8 + size], type=dict[str, dict[str, object]]).items():
        if name == "__metadata__":
            continue
        tensor = msgspec.convert(entry, _Tensor)
        begin, end = tensor.data_offsets
        flat = np.frombuffer(data[8 + size + begin : 8 + size + end], "<f2")
        found[name] = flat.astype(np.float32).reshape(tensor.shape)
    return found


class _Tensor(msgspec.Struct):
    shape: list[int]
    data_offsets: tuple[int, int]
