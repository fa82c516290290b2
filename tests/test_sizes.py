"""Arrays of more than 2^31 elements and 4 GiB: offsets beyond 32 bits, in every position of a product.

The large array is u x^T + v y^T + c of small whole numbers, so that all products with it are known and exact. What no
test machine has the memory for is checked in tests/cpp/check_layout.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlx_gemm
from mlx_gemm import _ext

ROWS, COLUMNS = 2**16, 2**15 + 16
NEEDED_GIB = 15

Vector = np.ndarray


def available_gib() -> float:
    text = Path("/proc/meminfo").read_text() if Path("/proc/meminfo").exists() else ""
    found = re.search(r"MemAvailable: *(\d+) kB", text)
    return int(found[1]) / 2**20 if found else 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(available_gib() < NEEDED_GIB, reason=f"needs {NEEDED_GIB} GiB of free memory"),
]


def small(length: int, seed: int) -> Vector:
    return np.random.default_rng(seed).integers(-1, 2, length).astype(np.float32)


U, V, X, Y, C = small(ROWS, 1), small(ROWS, 2), small(COLUMNS, 3), small(COLUMNS, 4), small(COLUMNS, 5)


def known(rows: slice = slice(None), columns: slice = slice(None)) -> list[tuple[Vector, Vector]]:
    """The part of the large array as pairs of a column and a row whose products add up to it."""
    ones = np.ones(ROWS, np.float32)
    return [(left[rows], right[columns]) for left, right in ((U, X), (V, Y), (ones, C))]


@pytest.fixture(scope="module")
def large() -> Iterator[mx.array]:
    """Made by addmm: its result and its epilogue are the first that reach beyond 2^31 elements."""
    mx.set_default_device(mx.cpu)
    out = mlx_gemm.addmm(mx.array(C), mx.array(np.stack([U, V], 1)), mx.array(np.stack([X, Y])))
    mx.eval(out)
    assert out.size > 2**31
    yield out
    del out
    mx.clear_cache()


def assert_is(result: mx.array, reference: np.ndarray) -> None:
    assert np.array_equal(np.array(result), reference)


def test_a_large_result(large: mx.array) -> None:
    for at in (0, 1, 2**15 - 1, 2**15, ROWS - 2, ROWS - 1):
        assert_is(large[at], sum(u[at] * x for u, x in known()))
    for at in (0, COLUMNS - 1):
        assert_is(large[:, at], sum(u * x[at] for u, x in known()))


@pytest.mark.parametrize("width", [1, 3])
def test_a_large_operand_on_either_side(large: mx.array, width: int) -> None:
    """nn and tn on the left, nn and nt on the right; a width of 1 is a product with a vector."""
    down, across = (small(length * width, 7).reshape(length, width) for length in (COLUMNS, ROWS))
    before = _ext.counters()["copies"]
    assert_is(mlx_gemm.matmul(large, mx.array(down)), sum(np.outer(u, x @ down) for u, x in known()))
    assert_is(mlx_gemm.matmul(large.T, mx.array(across)), sum(np.outer(x, u @ across) for u, x in known()))
    assert_is(mlx_gemm.matmul(mx.array(across.T), large), sum(np.outer(across.T @ u, x) for u, x in known()))
    assert_is(mlx_gemm.linear(mx.array(down.T), large), sum(np.outer(down.T @ x, u) for u, x in known()))
    assert _ext.counters()["copies"] == before


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        (slice(2**15 + 1, None), slice(None)),  # starts beyond 4 GiB
        (slice(ROWS - 40, None), slice(COLUMNS - 33, None)),
        (slice(1, None, 2), slice(5, -7)),
        (slice(None, None, 2**12), slice(None)),  # rows of one product up to 8 GiB apart
    ],
    ids=str,
)
def test_slices_of_a_large_operand(large: mx.array, rows: slice, columns: slice) -> None:
    parts, view = known(rows, columns), large[rows, columns]
    other = small(view.shape[1] * 3, 8).reshape(-1, 3)
    before = _ext.counters()["copies"]
    assert_is(mlx_gemm.matmul(view, mx.array(other)), sum(np.outer(u, x @ other) for u, x in parts))
    assert_is(mlx_gemm.matmul(mx.array(other.T), view.T), sum(np.outer(other.T @ x, u) for u, x in parts))
    assert _ext.counters()["copies"] == before


def test_a_batch_whose_steps_exceed_4_gib(large: mx.array) -> None:
    other = small(COLUMNS * 3, 9).reshape(-1, 3)
    halves = mx.unflatten(large, 0, (2, ROWS // 2))
    wanted = sum(np.outer(u, x @ other) for u, x in known()).reshape(2, ROWS // 2, 3)
    assert_is(mlx_gemm.matmul(halves, mx.broadcast_to(mx.array(other), (2, COLUMNS, 3))), wanted)
    assert_is(mlx_gemm.matmul(halves[::-1], mx.broadcast_to(mx.array(other), (2, COLUMNS, 3))), wanted[::-1])


def test_a_copy_from_beyond_4_gib(large: mx.array) -> None:
    rows, columns = slice(2**15 + 1, None, 7), slice(None, None, 2)
    other = small(COLUMNS // 2 * 3, 10).reshape(-1, 3)
    before = _ext.counters()["copies"]
    out = mlx_gemm.matmul(large[rows, columns], mx.array(other))
    assert_is(out, sum(np.outer(u, x @ other) for u, x in known(rows, columns)))
    assert _ext.counters()["copies"] == before + 1


def test_a_kernel_names_its_limit(large: mx.array) -> None:
    with pytest.raises(ValueError, match=r"\[mlx_gemm.matmul\] naive takes matrices of at most \d+ elements, A spans"):
        mlx_gemm.matmul(large, mx.zeros((COLUMNS, 3)), kernel="naive")
