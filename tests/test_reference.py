"""The oracles can fail: a corrupted product is noticed, a correct one is not."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from reference import (
    Float32,
    assert_exact,
    assert_float32_accuracy,
    assert_keeps_float32_bits,
    assert_product,
    assert_within_bound,
    integers,
    normal,
    sequential_product,
)

from mlx_gemm.oracle import Oracle

KS = [16, 256, 4096, 65536]
Corruption = Callable[[Float32, Float32], Float32]


def truncated(x: Float32, bits: int) -> Float32:
    """x with only the first `bits` of its 23 mantissa bits."""
    mask = np.uint32(0xFFFFFFFF << (23 - bits) & 0xFFFFFFFF)
    return (x.view(np.uint32) & mask).view(np.float32)


def zeros(a: Float32, b: Float32) -> Float32:
    return np.zeros((a.shape[0], b.shape[1]), np.float32)


def one_wrong_tile(a: Float32, b: Float32) -> Float32:
    out = a @ b
    out[8:16, :8] = 0
    return out


def last_k_dropped(a: Float32, b: Float32) -> Float32:
    return a[:, :-1] @ b[:-1]


def halved(a: Float32, b: Float32) -> Float32:
    return a @ b * np.float32(0.5)


def one_nan(a: Float32, b: Float32) -> Float32:
    out = a @ b
    out[3, 5] = np.nan
    return out


def half_accumulation(a: Float32, b: Float32) -> Float32:
    total = np.zeros((a.shape[0], b.shape[1]), np.float16)
    for column, row in zip(a.T, b, strict=True):
        total += np.multiply.outer(column, row).astype(np.float16)
    return total.astype(np.float32)


def tf32(a: Float32, b: Float32) -> Float32:
    return sequential_product(truncated(a, 10), truncated(b, 10))


CORRUPTIONS = [zeros, one_wrong_tile, last_k_dropped, halved, one_nan, half_accumulation]


def multiply_with(corruption: Corruption) -> Callable[[mx.array, mx.array], Float32]:
    return lambda a, b: corruption(np.array(a), np.array(b))


@pytest.mark.parametrize("K", KS)
@pytest.mark.parametrize("product", [np.matmul, sequential_product])
def test_a_correct_product_passes(product: Corruption, K: int, seed: int) -> None:
    assert_product(multiply_with(product), 16, 24, K, seed, "correct")


@pytest.mark.parametrize("K", [16, 256, 4096])
@pytest.mark.parametrize("corruption", CORRUPTIONS)
def test_the_bound_catches(corruption: Corruption, K: int, seed: int) -> None:
    a, b = normal((16, K), seed), normal((K, 24), seed + 1)
    with pytest.raises(AssertionError, match=r"corrupted: \d+ of 384 elements are wrong; worst at"):
        assert_within_bound(corruption(a, b), a, b, "corrupted")


@pytest.mark.parametrize("corruption", CORRUPTIONS[:-1])
def test_exact_integers_catch(corruption: Corruption, seed: int) -> None:
    a, b = integers((16, 33), seed), integers((33, 24), seed + 1)
    with pytest.raises(AssertionError, match="are not exact; first at"):
        assert_exact(corruption(a, b), a, b, "corrupted")


@pytest.mark.parametrize("K", KS)
def test_frobenius_error_catches_tf32(K: int, seed: int) -> None:
    a, b = normal((16, K), seed), normal((K, 16), seed + 1)
    with pytest.raises(AssertionError, match="a float32 product allows"):
        assert_float32_accuracy(tf32(a, b), a, b, "tf32")


def test_the_bound_alone_would_let_tf32_pass(seed: int) -> None:
    a, b = normal((16, 65536), seed), normal((65536, 16), seed + 1)
    assert_within_bound(tf32(a, b), a, b, "tf32")


@pytest.mark.parametrize("product", [tf32, half_accumulation])
def test_the_probe_catches_lost_bits(product: Corruption) -> None:
    with pytest.raises(AssertionError, match="are not exact"):
        assert_keeps_float32_bits(multiply_with(product), 8, 8, 16, "lossy")


def test_a_failure_says_how_to_repeat_it(seed: int) -> None:
    a, b = normal((16, 16), seed), normal((16, 16), seed + 1)
    with pytest.raises(AssertionError) as failure:
        assert_within_bound(one_nan(a, b), a, b, f"kernel naive seed={seed}")
    message = str(failure.value)
    assert f"kernel naive seed={seed}: 1 of 256 elements are wrong; worst at (3, 5): " in message
    assert "repeat: pytest 'tests/test_reference.py::test_a_failure_says_how_to_repeat_it'" in message


def test_a_wrong_shape_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"expected a result of shape \(2, 4\), got \(4, 2\)"):
        Oracle.of_product(np.ones((2, 3)), np.ones((3, 4))).worst(np.ones((4, 2)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("K", [1, 64, 4096])
def test_half_outputs_have_their_own_bound(dtype: str, K: int, seed: int) -> None:
    a = mx.array(normal((16, K), seed)).astype(getattr(mx, dtype))
    b = mx.array(normal((K, 16), seed + 1)).astype(getattr(mx, dtype))
    out = (a.astype(mx.float32) @ b.astype(mx.float32)).astype(a.dtype)
    assert_within_bound(out, a, b, "correct", dtype=dtype)
    with pytest.raises(AssertionError):
        assert_within_bound(out.astype(mx.float32) * (1 + 2.0**-6), a, b, "scaled", dtype=dtype)
