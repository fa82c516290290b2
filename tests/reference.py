"""Oracles for matrix products, and assertions whose message is enough to repeat the failure."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mlx_gemm.oracle import Oracle, to_float64

Float32 = npt.NDArray[np.float32]
Multiply = Callable[[mx.array, mx.array], Any]

# With fewer elements the Frobenius error of a correct result may by chance be more than twice the reference's.
FROBENIUS_ELEMENTS = 64

# The sum of so many operands of 1 + 2**-12 is exact in float32.
PROBE_TERMS = 1024


def normal(shape: tuple[int, ...], seed: int) -> Float32:
    """Standard normal float32 values."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def integers(shape: tuple[int, ...], seed: int) -> Float32:
    """Whole numbers from -8 to 8: every sum of up to 2**17 products is exact in float32."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def sequential_product(a: Float32, b: Float32) -> Float32:
    """The float32 product that adds along K one product at a time, in order."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T, b, strict=True):
        total += np.multiply.outer(column, row)
    return total


def assert_within_bound(out: Any, a: Any, b: Any, label: str, *, dtype: str = "float32") -> None:
    """Every element is as close to the float64 product of the inputs as rounding to `dtype` guarantees."""
    oracle = Oracle.of_product(a, b, dtype)
    worst, at = oracle.worst(out)
    if worst > 1:
        wrong = int((oracle.fractions(out) > 1).sum())
        raise AssertionError(
            f"{label}: {wrong} of {oracle.reference.size} elements are wrong; worst at {at}: "
            f"{to_float64(out)[at]!r}, reference {oracle.reference[at]!r}, bound {oracle.bound[at]:.3g}\n{repro()}"
        )


def assert_float32_accuracy(out: Any, a: Float32, b: Float32, label: str) -> None:
    """The relative Frobenius error is at most twice that of float32 sums in order of K.

    The elementwise bound grows with sqrt(K) and alone would let TF32 pass at large K.
    """
    reference = to_float64(a) @ to_float64(b)
    if reference.size < FROBENIUS_ELEMENTS:
        return
    error = np.linalg.norm(to_float64(out) - reference)
    allowed = 2 * np.linalg.norm(sequential_product(a, b) - reference)
    if not error <= allowed:
        raise AssertionError(f"{label}: Frobenius error {error:.4g}, a float32 product allows {allowed:.4g}\n{repro()}")


def assert_exact(out: Any, a: Any, b: Any, label: str) -> None:
    """For integer-valued inputs: the product is exact, to the last bit."""
    reference = to_float64(a) @ to_float64(b)
    result = to_float64(out)
    wrong = ~(result == reference)
    if result.shape != reference.shape or wrong.any():
        worst = np.argwhere(wrong)[0] if result.shape == reference.shape else ()
        at = tuple(map(int, worst))
        raise AssertionError(
            f"{label}: {int(wrong.sum())} of {wrong.size} elements are not exact; first at {at}: "
            f"{result[at]!r}, reference {reference[at]!r}\n{repro()}"
        )


def assert_keeps_float32_bits(multiply: Multiply, M: int, N: int, K: int, label: str) -> None:
    """Operands of 1 + 2**-12 keep their last bit, which TF32 and the half types drop."""
    fine, ones = 1 + 2.0**-12, 1.0
    for left, right in ((fine, ones), (ones, fine)):
        a, b = np.full((M, K), left, np.float32), np.full((K, N), right, np.float32)
        a[:, :-PROBE_TERMS] = 0
        assert_exact(multiply(mx.array(a), mx.array(b)), a, b, f"{label}, operands {left} and {right}")


def assert_product(multiply: Multiply, M: int, N: int, K: int, seed: int, label: str) -> None:
    """All of the above for an exact float32 product [M, K] @ [K, N]."""
    label = f"{label} M={M} N={N} K={K} seed={seed}"
    a, b = normal((M, K), seed), normal((K, N), seed + 1)
    out = multiply(mx.array(a), mx.array(b))
    assert_within_bound(out, a, b, label)
    assert_float32_accuracy(out, a, b, label)
    a, b = integers((M, K), seed), integers((K, N), seed + 1)
    assert_exact(multiply(mx.array(a), mx.array(b)), a, b, label)
    assert_keeps_float32_bits(multiply, M, N, K, label)


def repro() -> str:
    """The command that repeats the current test, if one runs; seeds follow from the test's name."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" ", 1)[0]
    return f"repeat: pytest '{test}'" if test else ""
