"""A small llama with random weights: mlx-lm's own where mlx-lm is installed, else the same layers in a few lines."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np

import mlx_gemm.nn as swap
from mlx_gemm import bench
from mlx_gemm.oracle import Oracle, to_float64

# Of the largest logit: float32 sums in another order, through all layers.
LOGIT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Config:
    """Sizes of the model."""

    layers: int = 4
    width: int = 512
    hidden: int = 1376
    heads: int = 8
    vocabulary: int = 1024


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj = nn.Linear(config.width, config.width, bias=False)
        self.k_proj = nn.Linear(config.width, config.width, bias=False)
        self.v_proj = nn.Linear(config.width, config.width, bias=False)
        self.o_proj = nn.Linear(config.width, config.width, bias=False)
        self.rope = nn.RoPE(config.width // config.heads)

    def __call__(self, x: mx.array) -> mx.array:
        batch, length, width = x.shape

        def split(y: mx.array) -> mx.array:
            return y.reshape(batch, length, self.heads, -1).transpose(0, 2, 1, 3)

        queries, keys, values = (split(project(x)) for project in (self.q_proj, self.k_proj, self.v_proj))
        scale = (width // self.heads) ** -0.5
        y = mx.fast.scaled_dot_product_attention(
            self.rope(queries), self.rope(keys), values, scale=scale, mask="causal"
        )
        return self.o_proj(y.transpose(0, 2, 1, 3).reshape(batch, length, width))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.width, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.width, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    """Attention and feed-forward network, each normalised before and added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.input_layernorm = nn.RMSNorm(config.width)
        self.post_attention_layernorm = nn.RMSNorm(config.width)

    def __call__(self, x: mx.array) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    """Tokens `[B, L]` to logits `[B, L, vocabulary]`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocabulary, config.width)
        self.layers = [Block(config) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(config.width)
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)

    def __call__(self, tokens: mx.array) -> mx.array:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


@dataclass(frozen=True)
class SwapPair:
    """Two equal models, one of them after `mlx_gemm.nn.swap`, as benchmark candidates with the same logits."""

    candidates: list[bench.Candidate]
    oracle: Oracle
    swapped: swap.Swap
    origin: str


def swap_pair(config: Config, tokens: tuple[int, int]) -> SwapPair:
    """The pair for random tokens `[B, L]`."""
    plain, origin = build(config)
    ours, _ = build(config)
    swapped = swap.swap(ours)
    text = mx.random.randint(0, config.vocabulary, tokens)
    candidates = [
        bench.Candidate("mlx.nn.Linear", lambda: bench.evaluated(plain(text))),
        bench.Candidate("mlx_gemm.nn.Linear", lambda: bench.evaluated(ours(text))),
    ]
    logits = to_float64(plain(text))
    oracle = Oracle(logits, np.full_like(logits, LOGIT_TOLERANCE * np.abs(logits).max()))
    return SwapPair(candidates, oracle, swapped, origin)


def build(config: Config = Config(), seed: int = 0) -> tuple[nn.Module, str]:
    """A llama with random float32 weights, and the name of the code that it comes from."""
    mx.random.seed(seed)
    if importlib.util.find_spec("mlx_lm"):
        model, origin = _of_mlx_lm(config), "mlx-lm"
    else:
        model, origin = Llama(config), "mlx_gemm.demo_model"
    mx.eval(model.parameters())
    return model, origin


def _of_mlx_lm(config: Config) -> nn.Module:
    from mlx_lm.models import llama

    model: nn.Module = llama.Model(
        llama.ModelArgs(
            model_type="llama",
            hidden_size=config.width,
            num_hidden_layers=config.layers,
            intermediate_size=config.hidden,
            num_attention_heads=config.heads,
            rms_norm_eps=1e-5,
            vocab_size=config.vocabulary,
            tie_word_embeddings=False,
        )
    )
    return model
