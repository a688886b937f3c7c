"""The demo model's network in torch, with the names of a Qwen3 checkpoint; only the training needs it."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrace.models.demo_model.network import NetworkConfig

Past = list[tuple[Tensor, Tensor]]
"""Keys and values of what was read before, by layer: (batch, heads, tokens, size)."""


class Attention(nn.Module):
    """Attention with shared keys and values, and normed queries and keys."""

    def __init__(self, shape: NetworkConfig) -> None:
        super().__init__()
        self.heads, self.shared, self.size = shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, self.heads * self.size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, self.shared * self.size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, self.shared * self.size, bias=False)
        self.o_proj = nn.Linear(self.heads * self.size, shape.hidden_size, bias=False)
        self.q_norm = nn.RMSNorm(self.size, eps=shape.rms_norm_eps)
        self.k_norm = nn.RMSNorm(self.size, eps=shape.rms_norm_eps)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], mask: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The mixed values, and the keys and values of these tokens."""
        batch, count, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(batch, count, self.heads, self.size)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(batch, count, self.shared, self.size)).transpose(1, 2)
        v = self.v_proj(x).view(batch, count, self.shared, self.size).transpose(1, 2)
        q, k = turned(q, turn), turned(k, turn)
        own = (k, v)
        if past is not None:
            k = torch.cat([past[0].expand(batch, -1, -1, -1), k], 2)
            v = torch.cat([past[1].expand(batch, -1, -1, -1), v], 2)
        repeats = self.heads // self.shared
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, count, -1)), own


class Mlp(nn.Module):
    """The gated part of a layer."""

    def __init__(self, shape: NetworkConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention, then the gated part."""

    def __init__(self, shape: NetworkConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)
        self.mlp = Mlp(shape)


class Body(nn.Module):
    """Embedding, layers and last norm."""

    def __init__(self, shape: NetworkConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.rms_norm_eps)


class Network(nn.Module):
    """The whole model; the embedding is the output matrix too."""

    def __init__(self, shape: NetworkConfig) -> None:
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(weight, std=0.02 if name.endswith("embed_tokens.weight") else 0.04 if deep else 0.09)
        half = shape.head_dim // 2
        turns = shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(shape.max_position_embeddings)[:, None] * torch.cat([turns, turns])
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def states(self, ids: Tensor, past: Past | None = None) -> tuple[Tensor, Past]:
        """States behind each token, (batch, tokens, hidden), and what was read, for tokens that follow.

        Args:
            past: of a beginning that all rows share (a batch of one).
        """
        before = past[0][0].shape[2] if past else 0
        count = ids.shape[1]
        turn = (self.cos[before : before + count], self.sin[before : before + count])
        mask = torch.ones(count, before + count, dtype=torch.bool).tril(before)
        x = self.model.embed_tokens(ids)
        read: Past = []
        for number, layer in enumerate(self.model.layers):
            mixed, own = layer.self_attn(layer.input_layernorm(x), turn, mask, past[number] if past else None)
            x = x + mixed
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            read.append(own)
        return self.model.norm(x), read

    def logits(self, states: Tensor) -> Tensor:
        """Logits of the token that follows."""
        return functional.linear(states, self.model.embed_tokens.weight)


def turned(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Queries or keys, turned by their positions."""
    low, high = x.chunk(2, -1)
    return x * turn[0] + torch.cat([-high, low], -1) * turn[1]
