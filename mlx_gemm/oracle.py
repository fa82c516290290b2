"""The float64 reference of a matrix product, and the error that rounding allows.

A result computed from the rounded inputs A and B in accumulation precision u_acc and stored at precision u_out obeys

    |out - A B| <= 1.25 u_out |A B| + floor_out + 4 sqrt(K) u_acc (|A| |B|)        for every element,

with unit roundoffs u and floor_out half the least subnormal of the output type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rounding:
    """Unit roundoff of a floating-point type, and half its least subnormal."""

    unit: float
    floor: float


ROUNDING: Mapping[str, Rounding] = MappingProxyType(
    {
        "float32": Rounding(2.0**-24, 2.0**-150),
        "float16": Rounding(2.0**-11, 2.0**-25),
        "bfloat16": Rounding(2.0**-8, 2.0**-134),
    }
)


def to_float64(x: Any) -> Float64:
    """The exact values of a real MLX or NumPy array as float64."""
    if isinstance(x, mx.array) and x.dtype == mx.bfloat16:
        x = x.astype(mx.float32)
    return np.asarray(x).astype(np.float64)


@dataclass(frozen=True)
class Oracle:
    """What a result must be in float64, and how far from it a correct one may be.

    Attributes:
        reference: the exact values, float64.
        bound: the largest |result - reference| allowed for each of them, same shape.
    """

    reference: Float64
    bound: Float64

    @classmethod
    def of_product(cls, a: Any, b: Any, out: str = "float32") -> Oracle:
        """The oracle of `a @ b`.

        Args:
            a: `[..., M, K]`, the inputs as the kernel gets them (already rounded to their type).
            b: `[..., K, N]`.
            out: name of the output type; accumulation is float32.
        """
        a, b = to_float64(a), to_float64(b)
        rounding = ROUNDING[out]
        accumulation = 4 * math.sqrt(a.shape[-1]) * ROUNDING["float32"].unit
        reference = a @ b
        bound = 1.25 * rounding.unit * np.abs(reference) + rounding.floor + accumulation * (np.abs(a) @ np.abs(b))
        return cls(reference, bound)

    def fractions(self, result: Any) -> Float64:
        """|result - reference| / bound for every element; infinity where that is not a number.

        Raises:
            ValueError: `result` does not have the shape of the reference.
        """
        values = to_float64(result)
        if values.shape != self.reference.shape:
            raise ValueError(f"expected a result of shape {self.reference.shape}, got {values.shape}")
        fractions: Float64 = np.abs(values - self.reference) / self.bound
        return np.where(np.isnan(fractions), np.inf, fractions)

    def worst(self, result: Any) -> tuple[float, tuple[int, ...]]:
        """The largest of `fractions(result)` and where it is: a result is right when that is at most 1."""
        fractions = self.fractions(result)
        if fractions.size == 0:
            return 0.0, ()
        at = np.unravel_index(int(fractions.argmax()), fractions.shape)
        return float(fractions[at]), tuple(int(i) for i in at)
