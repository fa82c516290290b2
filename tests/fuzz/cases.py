"""One random call of an op: its operands in memory, its keywords, and the transforms around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any

import mlx.core as mx
import numpy as np

import mlx_gemm

FLOATS = ["float32", "float16", "bfloat16"]
TYPES = [*FLOATS, "complex64", "float64", "int32", "uint8", "bool_"]
SMOOTH = ["gelu", "gelu_tanh", "silu"]
FACTORS = [1.0, 1.0, 0.0, -1.0, 2.0, 0.5]


@dataclass(frozen=True)
class Operand:
    """An array: its values follow from the seed; `views` move them in memory, `repeated` axes have stride 0."""

    shape: tuple[int, ...]
    dtype: str
    seed: int
    whole: bool
    repeated: tuple[int, ...] = ()
    views: tuple[str, ...] = ()

    def array(self) -> mx.array:
        rng, random = np.random.default_rng(self.seed), Random(self.seed)
        shape = [1 if axis in self.repeated else length for axis, length in enumerate(self.shape)]
        values = rng.integers(-4, 5, shape) if self.whole else rng.standard_normal(shape)
        if self.dtype in ("bool_", "uint8"):
            values = np.abs(values)
        x = mx.array(np.asarray(values, np.float32)).astype(getattr(mx, self.dtype))
        if self.dtype == "complex64":
            x = x + 1j * mx.array(rng.integers(-4, 5, shape).astype(np.float32))
        for view in self.views:
            x = VIEWS[view](x, random)
        return mx.broadcast_to(x, self.shape)


@dataclass(frozen=True)
class Layer:
    """A transform: "vjp", "jvp", "compile", or "vmap" over one axis of some operands."""

    kind: str
    axes: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Case:
    op: str
    operands: dict[str, Operand]
    keywords: dict[str, Any]
    stream: int = 0
    layers: tuple[Layer, ...] = field(default=())

    @property
    def smooth(self) -> bool:
        return self.keywords.get("activation") in SMOOTH

    def ours(self, *arrays: mx.array) -> list[mx.array]:
        keywords = {**self.keywords, "stream": streams()[self.stream]}
        if self.op == "addmm":
            return [mlx_gemm.addmm(*arrays, **keywords)]
        if self.op == "linear":
            return [mlx_gemm.linear(**dict(zip(self.operands, arrays, strict=True)), **keywords)]
        return [mlx_gemm.matmul(*arrays, **keywords)]


def padded(x: mx.array, random: Random) -> mx.array:
    """Inside a larger array of NaN, which a result must not meet."""
    around = [(random.randint(0, 3), random.randint(0, 3)) for _ in x.shape]
    inner = tuple(slice(before, before + length) for (before, _), length in zip(around, x.shape, strict=True))
    return mx.pad(x, around, constant_values=mx.array(junk(x.dtype), x.dtype))[inner]


def permuted(x: mx.array, random: Random) -> mx.array:
    order = random.sample(range(x.ndim), x.ndim)
    return mx.contiguous(x.transpose(order)).transpose(np.argsort(order).tolist())


def spaced(x: mx.array, random: Random) -> mx.array:
    """Every second element along an axis, NaN between them."""
    axis = random.randrange(x.ndim)
    both = mx.stack([x, mx.full(x.shape, junk(x.dtype), x.dtype)], axis=axis + 1)
    return mx.contiguous(both.flatten(axis, axis + 1))[(slice(None),) * axis + (slice(None, None, 2),)]


def backwards(x: mx.array, random: Random) -> mx.array:
    index = (slice(None),) * random.randrange(x.ndim) + (slice(None, None, -1),)
    return mx.contiguous(x[index])[index]


def odd_strides(x: mx.array, random: Random) -> mx.array:
    """Axes of length 1 whose strides mean nothing."""
    strides = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    strides = [random.randint(-9, 999) if length == 1 else s for length, s in zip(x.shape, strides, strict=True)]
    return mx.as_strided(mx.contiguous(x), x.shape, strides)


VIEWS: dict[str, Callable[[mx.array, Random], mx.array]] = {
    function.__name__: function for function in (padded, permuted, spaced, backwards, odd_strides)
}


def junk(dtype: mx.Dtype) -> float:
    return math.nan if mx.issubdtype(dtype, mx.inexact) else 1


@lru_cache(1)
def streams() -> list[Any]:
    return [None, mx.cpu, mx.new_stream(mx.cpu)]


# ---- Drawing ----


def draw(random: Random) -> Case:
    op = random.choice(["matmul", "addmm", "addmm", "linear"])
    shapes = draw_shapes(op, random)
    misfit = random.random() < 0.04  # most of these do not fit
    if misfit:
        name = random.choice(list(shapes))
        shapes[name] = tuple(length + random.choice([0, 1]) for length in shapes[name])
    keywords: dict[str, Any] = {}
    if op == "addmm":
        keywords = {"alpha": random.choice(FACTORS), "beta": random.choice(FACTORS)}
    if op != "matmul" and random.random() < 0.5:
        keywords["activation"] = random.choice(["relu", *SMOOTH])
    types = draw_types(len(shapes), random)
    if set(types) <= {"float16"} | {"bfloat16"} and random.random() < 0.3 and len(set(types)) == 1:
        keywords["out_dtype"] = mx.float32
    if set(types) == {"float32"} and random.random() < 0.05:
        keywords["kernel"] = random.choice(any_shape_kernels())
    layers, shapes = ([], shapes) if misfit else draw_layers(types, keywords, shapes, random)
    # An activation is differentiated where its argument is exact: a rounding may not carry it across a kink.
    whole = bool(layers) or "complex64" in types or random.random() < 0.5
    operands = {
        name: draw_operand(shape, dtype, whole, random)
        for (name, shape), dtype in zip(shapes.items(), types, strict=True)
    }
    return Case(op, operands, keywords, random.randrange(3), tuple(layers))


@lru_cache(1)
def any_shape_kernels() -> list[str]:
    return [k.name for k in mlx_gemm.kernels() if k.needs == (1, 1, 1) and k.math == "exact"]


def draw_length(random: Random) -> int:
    kind = random.random()
    if kind < 0.04:
        return 0
    return 1 if kind < 0.2 else random.randint(2, 12) if kind < 0.95 else random.randint(13, 70)


def draw_shapes(op: str, random: Random) -> dict[str, tuple[int, ...]]:
    M, N, K = (draw_length(random) for _ in range(3))
    batch = tuple(
        random.choice([1, 2, 2, 3, 0] if random.random() < 0.1 else [1, 2, 3])
        for _ in range(random.choice([0, 0, 1, 1, 2, 3]))
    )
    a = (K,) if random.random() < 0.1 else (*broadcastable(batch, random), M, K)
    if op == "linear":
        shapes = {"x": a, "weight": (N, K)}
        if random.random() < 0.7:
            shapes["bias"] = (N,)
        if random.random() < 0.5:
            shapes["residual"] = broadcastable((*a[:-1], N), random)
        return shapes
    b = (K,) if random.random() < 0.1 else (*broadcastable(batch, random), K, N)
    if op == "matmul":
        return {"a": a, "b": b}
    return {"c": broadcastable(product_shape(a, b), random), "a": a, "b": b}


def product_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return np.broadcast_shapes(a[:-2], b[:-2]) + a[-2:-1] + (b[-1:] if len(b) > 1 else ())


def broadcastable(shape: tuple[int, ...], random: Random) -> tuple[int, ...]:
    """A shape that broadcasts to this one."""
    kept = shape[random.choice([0, 0, random.randint(0, len(shape))]) :]
    return tuple(1 if random.random() < 0.2 else length for length in kept)


def draw_types(count: int, random: Random) -> list[str]:
    kind = random.random()
    if kind < 0.55:
        return ["float32"] * count
    if kind < 0.75:
        return [random.choice(["float16", "bfloat16"])] * count
    return random.choices(FLOATS if kind < 0.85 else TYPES, k=count)


def draw_layers(
    types: list[str], keywords: dict[str, Any], shapes: dict[str, tuple[int, ...]], random: Random
) -> tuple[list[Layer], dict[str, tuple[int, ...]]]:
    """Transforms that the types have a meaning for, innermost first, and the shapes of the operands they leave."""
    if set(types) - set(FLOATS):
        return [], shapes
    layers: list[Layer] = []
    float32 = set(types) == {"float32"}
    smooth = keywords.get("activation") in SMOOTH
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        kinds = ["vmap"]
        if not smooth or (float32 and all(layer.kind == "vmap" for layer in layers)):
            kinds += ["vjp", "jvp"]
        if float32 and not layers:  # others would be compiled by the C++ compiler, case by case
            kinds.append("compile")
        kind = random.choice(kinds)
        axes: list[int | None] = []
        if kind == "vmap":
            mapped = random.sample(list(shapes), random.randint(1, len(shapes)))
            length = random.randint(1, 3)
            axes = [random.randint(0, len(shape)) if name in mapped else None for name, shape in shapes.items()]
            shapes = {
                name: shape if axis is None else (*shape[:axis], length, *shape[axis:])
                for (name, shape), axis in zip(shapes.items(), axes, strict=True)
            }
        layers.append(Layer(kind, tuple(axes)))
    return layers, shapes


def draw_operand(shape: tuple[int, ...], dtype: str, whole: bool, random: Random) -> Operand:
    repeated = tuple(axis for axis in range(len(shape)) if random.random() < 0.05)
    views = random.choices(list(VIEWS), k=random.choice([0, 0, 1, 1, 2])) if shape else []
    return Operand(shape, dtype, random.randrange(2**32), whole, repeated, tuple(views))
