"""How operands lie in memory: what is used in place, what is copied, and how much memory a product takes."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from reference import assert_within_bound, integers, normal

import mlx_gemm
from mlx_gemm import _ext

B, M, K, N = 4, 6, 10, 5
MIB = 2**20


def array(shape: tuple[int, ...], seed: int) -> mx.array:
    return mx.array(integers(shape, seed))


def odd(x: mx.array, strides: tuple[int, ...]) -> mx.array:
    """The array with other strides, which only axes of length 1 may have."""
    view = mx.as_strided(x, x.shape, strides)
    assert mx.array_equal(view, x)
    return view


# Left operands [..., M, K] that lie in memory as a product can address them.
IN_PLACE: dict[str, Callable[[int], mx.array]] = {
    "rows": lambda s: array((M, K), s),
    "columns": lambda s: array((K, M), s).T,
    "slice with offset": lambda s: array((M + 3, K + 7), s)[2:-1, 3:-4],
    "columns, slice with offset": lambda s: array((K + 7, M + 3), s)[3:-4, 2:-1].T,
    "every second row": lambda s: array((2 * M, K), s)[::2],
    "every second column of a column-contiguous matrix": lambda s: array((2 * K, M), s)[::2].T,
    "one row of many": lambda s: array((M, K), s)[2:3],
    "one column of many": lambda s: array((K, M), s)[:, 2:3],
    "one row, every second element": lambda s: array((1, 2 * K), s)[:, ::2],
    "batch": lambda s: array((B, M, K), s),
    "batch of columns": lambda s: array((B, K, M), s).swapaxes(1, 2),
    "batch between rows": lambda s: array((M, B, K), s).swapaxes(0, 1),
    "batch, every second": lambda s: array((2 * B, M, K), s)[::2],
    "batch backwards": lambda s: array((B, M, K), s)[::-1],
    "batch of slices": lambda s: array((B, M + 3, K + 7), s)[:, 2:-1, 3:-4],
    "two batch axes swapped": lambda s: array((3, B, M, K), s).swapaxes(0, 1),
    "repeated": lambda s: mx.broadcast_to(array((M, K), s), (B, M, K)),
    "repeated inside": lambda s: mx.broadcast_to(array((B, 1, M, K), s), (B, 3, M, K)),
    "repeated columns": lambda s: mx.broadcast_to(array((K, M), s).T, (B, M, K)),
    "one repeated row": lambda s: mx.broadcast_to(array((1, K), s), (B, 1, K)),
    "single rows backwards": lambda s: array((B, 1, K), s)[::-1],
    "single rows that overlap": lambda s: mx.as_strided(array((B + K,), s), (B, 1, K), (1, K, 1)),
    "odd strides, one row": lambda s: odd(array((1, K), s), (-3, 1)),
    "odd strides, one column": lambda s: odd(array((M, 1), s), (1, 77)),
    "odd strides, one matrix": lambda s: odd(array((1, M, K), s), (-5, K, 1)),
    "odd strides, one element": lambda s: odd(array((1, 1, 1), s), (-5, 0, 9)),
    "diagonal blocks": lambda s: mx.as_strided(array((B * M, B * K), s), (B, M, K), (M * B * K + K, B * K, 1)),
}
# And as it cannot.
COPIED: dict[str, Callable[[int], mx.array]] = {
    "every second element": lambda s: array((M, 2 * K), s)[:, ::2],
    "rows backwards": lambda s: array((M, K), s)[::-1],
    "columns backwards": lambda s: array((M, K), s)[:, ::-1],
    "repeated rows": lambda s: mx.broadcast_to(array((1, K), s), (M, K)),
    "repeated columns": lambda s: mx.broadcast_to(array((M, 1), s), (M, K)),
    "rows that overlap": lambda s: mx.as_strided(array((M + K,), s), (M, K), (1, 1)),
    "batch innermost": lambda s: array((M, K, B), s).transpose(2, 0, 1),
    "repeated, every second element": lambda s: mx.broadcast_to(array((M, 2 * K), s)[:, ::2], (B, 3, M, K)),
    "partly repeated": lambda s: mx.broadcast_to(array((B, 1, M, 2 * K), s)[..., ::2], (B, 3, M, K)),
}


def copies_of(call: Callable[[], mx.array]) -> tuple[mx.array, int]:
    before = _ext.counters()["copies"]
    out = call()
    mx.eval(out)
    return out, _ext.counters()["copies"] - before


def swapped(x: mx.array) -> mx.array:
    return x.swapaxes(-1, -2)


@pytest.mark.parametrize("name", IN_PLACE)
def test_addressable_operands_are_used_in_place(name: str, seed: int) -> None:
    x = IN_PLACE[name](seed)
    other = array((*x.shape[:-2], x.shape[-1], N), seed + 1)
    mx.eval(x, other)
    for a, b in ((x, other), (x, other[(0,) * (x.ndim - 2)]), (swapped(other), swapped(x))):
        out, copies = copies_of(lambda a=a, b=b: mlx_gemm.matmul(a, b))
        assert np.array_equal(np.array(out), np.array(a) @ np.array(b))
        assert copies == mlx_gemm.explain(a, b).copies == 0


@pytest.mark.parametrize("name", COPIED)
def test_other_operands_are_copied_and_counted(name: str, seed: int) -> None:
    x = COPIED[name](seed)
    other = array((x.shape[-1], N), seed + 1)
    mx.eval(x, other)
    for a, b in ((x, other), (swapped(other), swapped(x))):
        out, copies = copies_of(lambda a=a, b=b: mlx_gemm.matmul(a, b))
        assert np.array_equal(np.array(out), np.array(a) @ np.array(b))
        assert copies == mlx_gemm.explain(a, b).copies == 1


def test_a_named_kernel_copies_what_it_cannot_address(seed: int) -> None:
    a, b = array((K, M), seed).T, array((K, N), seed + 1)
    mx.eval(a, b)
    out, copies = copies_of(lambda: mlx_gemm.matmul(a, b, kernel="naive"))
    assert mx.array_equal(out, a @ b)
    assert copies == mlx_gemm.explain(a, b, kernel="naive").copies == 1


def test_explain_tells_the_layout_of_the_caller(seed: int) -> None:
    rows, columns = array((M, K), seed), array((N, K), seed).T
    assert mlx_gemm.explain(rows, columns).layout == "nt"
    assert mlx_gemm.explain(columns.T, rows.T).layout == "nt"
    assert mlx_gemm.explain(columns.T, rows.T, kernel="naive").layout == "nt"


# ---- Memory ----


def peak_over_operands(build: Callable[[], list[mx.array]]) -> tuple[float, mx.array, list[mx.array]]:
    """Peak memory while matmul runs, as a multiple of what inputs and output take."""
    mx.clear_cache()
    others = mx.get_active_memory()
    operands = build()
    mx.eval(operands)
    inputs = mx.get_active_memory() - others
    mx.reset_peak_memory()
    out = mlx_gemm.matmul(*operands)
    mx.eval(out)
    mx.synchronize()
    return (mx.get_peak_memory() - others) / (inputs + out.nbytes), out, operands


def normal_array(shape: tuple[int, ...], seed: int) -> mx.array:
    return mx.array(normal(shape, seed))


@pytest.mark.parametrize(
    "build",
    [
        lambda s: [normal_array((1024, 768), s).T, normal_array((1024, 512), s + 1)],
        lambda s: [normal_array((768, 1024), s), normal_array((512, 1024), s + 1).T],
        lambda s: [normal_array((1024, 768), s).T, normal_array((512, 1024), s + 1).T],
        lambda s: [normal_array((8, 512, 256), s).swapaxes(1, 2), normal_array((512, 128), s + 1)],
        lambda s: [normal_array((8, 256, 512), s), normal_array((512, 128), s + 1)],
        lambda s: [normal_array((256, 512), s), normal_array((8, 512, 128), s + 1)],
        lambda s: [mx.broadcast_to(normal_array((256, 512), s), (8, 256, 512)), normal_array((8, 512, 64), s + 1)],
        lambda s: [normal_array((8, 256, 512), s), mx.broadcast_to(normal_array((512, 64), s + 1), (8, 512, 64))],
        lambda s: [mx.broadcast_to(normal_array((1, 4096), s), (64, 1, 4096)), normal_array((4096, 128), s + 1)],
    ],
    ids="tn nt tt columns rows a-broadcast a-repeated b-repeated row-repeated".split(),
)
def test_peak_memory_of_transposed_and_broadcast_products(build: Callable[[int], list[mx.array]], seed: int) -> None:
    ratio, out, (a, b) = peak_over_operands(lambda: build(seed))
    assert_within_bound(out, np.array(a), np.array(b), f"{seed=}")
    assert ratio <= 1.05, f"peak memory is {ratio:.3f} times inputs and output"


def test_a_repeated_operand_is_copied_once(seed: int) -> None:
    def build() -> list[mx.array]:
        return [
            mx.broadcast_to(normal_array((256, 1024), seed)[:, ::2], (16, 256, 512)),
            normal_array((512, 8), seed + 1),
        ]

    ratio, out, (a, b) = peak_over_operands(build)
    assert_within_bound(out, np.array(a), np.array(b), f"{seed=}")
    # One copy of half a MiB, where the whole of a would be eight.
    assert ratio * (MIB + 16 * 256 * 8 * 4 + 512 * 8 * 4) < 2.2 * MIB
