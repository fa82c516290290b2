"""The CPU path: every type, layout, edge and epilogue against float64, denormals, memory, threads and lesser CPUs."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable

import mlx.core as mx
import mlx.nn
import numpy as np
import pytest
from reference import assert_exact, assert_within_bound, integers, normal

import mlx_gemm
from mlx_gemm import _ext
from mlx_gemm.oracle import ROUNDING, to_float64

REAL = [mx.float32, mx.float16, mx.bfloat16]
HALF = [mx.float16, mx.bfloat16]
LAYOUTS = ["nn", "nt", "tn", "tt"]

# Around panels of 32 lines and steps of 32 along K, strips of 8 panels, the few lines that meet whole operands where
# those are, and vectors; then float32 panels whose rows, columns, or neither stay in a cache.
SHAPES = [
    (1, 1, 1),
    (1, 40, 33),
    (40, 1, 33),
    (2, 300, 130),
    (300, 3, 1100),
    (8, 97, 2049),
    (9, 97, 300),
    (6, 290, 129),
    (32, 1100, 150),
    (2300, 7, 200),
    (550, 29, 31),
    (16, 16, 128),
    (17, 31, 33),
    (31, 32, 1),
    (33, 65, 31),
    (64, 64, 64),
    (257, 100, 100),
    (520, 48, 40),
    (130, 600, 257),
    (23, 300, 1100),
    (1100, 70, 600),
    (500, 500, 33),
    (340, 2100, 800),
]


HAS_FLOAT_PANELS = _ext.environment()["cpu_isa"] in ("avx512", "avx512_bf16", "amx")


def name(dtype: mx.Dtype) -> str:
    return str(dtype).rpartition(".")[2]


def held(x: np.ndarray, dtype: mx.Dtype, transposed: bool, pad: int = 0) -> mx.array:
    """`x` in memory as it is or as its transpose, perhaps as part of wider rows."""
    stored = np.swapaxes(x, -1, -2) if transposed else x
    width = stored.shape[-1]
    array = mx.array(np.pad(stored, [(0, 0)] * (x.ndim - 1) + [(pad, 2 * pad)]), dtype=dtype)
    part = array[..., pad : pad + width] if pad else array
    return mx.swapaxes(part, -1, -2) if transposed else part


def operands(a: np.ndarray, b: np.ndarray, dtype: mx.Dtype, layout: str, pad: int = 0) -> tuple[mx.array, mx.array]:
    return held(a, dtype, layout[0] == "t", pad), held(b, dtype, layout[1] == "t", pad)


def out_types(dtype: mx.Dtype) -> list[mx.Dtype]:
    return [mx.float32] if dtype == mx.float32 else [dtype, mx.float32]


@pytest.mark.parametrize("dtype", REAL, ids=name)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, int, int], layout: str, dtype: mx.Dtype, seed: int) -> None:
    M, N, K = shape
    for pad, out in itertools.product((0, 3), out_types(dtype)):
        a, b = operands(normal((M, K), seed), normal((K, N), seed + 1), dtype, layout, pad)
        result = mlx_gemm.matmul(a, b, out_dtype=out)
        assert result.dtype == out
        label = f"{name(dtype)} to {name(out)} {layout} {shape} {pad=} {seed=}"
        assert_within_bound(result, a, b, label, dtype=name(out))
        a, b = operands(integers((M, K), seed), integers((K, N), seed + 1), dtype, layout, pad)
        if out == mx.float32:
            assert_exact(mlx_gemm.matmul(a, b, out_dtype=out), a, b, label)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=name)
@pytest.mark.parametrize("M", range(16, 40))
def test_rows_that_do_not_fill_registers(M: int, dtype: mx.Dtype, seed: int) -> None:
    a, b = operands(integers((M, 700), seed), integers((700, 100), seed + 1), dtype, "nn")
    assert_exact(mlx_gemm.matmul(a, b, out_dtype=mx.float32), a, b, f"{M=} {name(dtype)} {seed=}")


@pytest.mark.parametrize("dtype", REAL, ids=name)
def test_the_longest_sums(dtype: mx.Dtype, seed: int) -> None:
    for K in (65536, 65537):
        a, b = operands(normal((20, K), seed), normal((K, 18), seed + 1), dtype, "nn")
        assert_within_bound(mlx_gemm.matmul(a, b), a, b, f"{K=} {name(dtype)} {seed=}", dtype=name(dtype))


@pytest.mark.parametrize("M", [12, 64])
@pytest.mark.parametrize("K", [190, 1200, 5000])
def test_products_that_are_all_alike(K: int, M: int, seed: int) -> None:
    """Their roundings do not cancel, so no sum may run on for all of a large K."""
    a, b = (mx.array(normal((lines, 1), seed + lines)) for lines in (M, 900))
    a, b = mx.contiguous(mx.broadcast_to(a, (M, K))), mx.contiguous(mx.broadcast_to(b, (900, K)).T)
    assert_within_bound(mlx_gemm.matmul(a, b), a, b, f"{M=} {K=} {seed=}")


@pytest.mark.skipif(not HAS_FLOAT_PANELS, reason="OpenBLAS sums in other orders for other shapes")
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16], ids=name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_does_not_depend_on_other_rows(layout: str, dtype: mx.Dtype, seed: int) -> None:
    """Whether the rows of A stay in a cache, are read where they are, or are packed strip by strip."""
    a, b = operands(normal((1100, 600), seed), normal((600, 700), seed + 1), dtype, layout)
    all_rows = mlx_gemm.matmul(a, b)
    for first, last in ((0, 1000), (37, 300), (500, 519)):
        assert mx.array_equal(mlx_gemm.matmul(a[first:last], b), all_rows[first:last]), f"{first}:{last} {seed=}"


@pytest.mark.parametrize("dtype", [mx.float64, mx.complex64], ids=name)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 40, 33), (40, 1, 33), (3, 300, 130), (33, 65, 31), (257, 100, 100)], ids=str)
def test_other_types(shape: tuple[int, int, int], layout: str, dtype: mx.Dtype, seed: int) -> None:
    M, N, K = shape
    a, b = normal((M, K), seed).astype(np.float64), normal((K, N), seed + 1).astype(np.float64)
    if dtype == mx.complex64:
        a, b = a + 1j * normal((M, K), seed + 2), b - 1j * normal((K, N), seed + 3)
    kind = np.float64 if dtype == mx.float64 else np.complex64
    unit = 2.0 ** (-53 if dtype == mx.float64 else -24)
    a, b = a.astype(kind), b.astype(kind)
    x, y = operands(a, b, dtype, layout)
    c = mx.array(2.0, dtype=dtype)
    products = {1.0: mlx_gemm.matmul(x, y), 0.5: mlx_gemm.addmm(c, x, y, alpha=0.5)}
    wide = np.longdouble if dtype == mx.float64 else np.complex128
    exact = a.astype(wide) @ b.astype(wide)
    for alpha, result in products.items():
        reference = exact if alpha == 1.0 else alpha * exact + 2
        error = np.abs(np.array(result).astype(wide) - reference)
        bound = 8 * math.sqrt(K) * unit * (np.abs(a) @ np.abs(b) + 2)
        assert (error <= bound).all(), f"{name(dtype)} {layout} {shape} {alpha=} {seed=}"


@pytest.mark.parametrize("dtype", REAL, ids=name)
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((5, 33, 40), (5, 40, 37)),
        ((64, 20, 24), (24, 40)),
        ((20, 40), (3, 40, 24)),
        ((2, 1, 64, 64), (1, 5, 64, 64)),
        ((40, 128, 128), (40, 128, 128)),
        ((7, 1, 65), (7, 65, 33)),
    ],
    ids=str,
)
def test_batches(a_shape: tuple, b_shape: tuple, dtype: mx.Dtype, seed: int) -> None:
    for layout in ("nn", "nt", "tn"):
        a, b = operands(normal(a_shape, seed), normal(b_shape, seed + 1), dtype, layout)
        label = f"{name(dtype)} {layout} {a_shape} {b_shape} {seed=}"
        assert_within_bound(mlx_gemm.matmul(a, b), a, b, label, dtype=name(dtype))


ACTIVATIONS: dict[str | None, Callable[[np.ndarray], np.ndarray]] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(x),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
# The activations' slopes are below this.
STEEPEST = 1.2


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", REAL, ids=name)
@pytest.mark.parametrize("shape", [(1, 50, 20), (2, 90, 200), (40, 3, 200), (70, 45, 64), (300, 290, 40)], ids=str)
def test_epilogues(shape: tuple[int, int, int], dtype: mx.Dtype, activation: str | None, seed: int) -> None:
    M, N, K = shape
    x, weight = normal((M, K), seed), normal((N, K), seed + 1) / math.sqrt(K)
    addends = {"row": (N,), "whole": (M, N), "column": (M, 1)}
    for (kind, c_shape), out in itertools.product(addends.items(), out_types(dtype)):
        a, b = mx.array(x).astype(dtype), mx.array(weight).astype(dtype)
        c, residual = (
            mx.array(normal(c_shape, seed + 2)).astype(dtype),
            mx.array(normal((M, N), seed + 3)).astype(dtype),
        )
        alpha, beta = 0.75, -1.5
        results = {
            (alpha, beta, 0): mlx_gemm.addmm(c, a, b.T, alpha, beta, activation=activation, out_dtype=out),
        }
        if kind == "row":
            results[1, 1, 1] = mlx_gemm.linear(a, b, c, activation=activation, residual=residual, out_dtype=out)
        for (alpha, beta, gamma), result in results.items():
            assert result.dtype == out
            label = f"{name(dtype)} to {name(out)} {shape} {activation} c={kind} {seed=}"
            _check_epilogue(result, (a, b, c, residual), (alpha, beta, gamma), activation, name(out), label)


def _check_epilogue(result, arrays, factors, activation, out, label) -> None:
    a, b, c, residual = map(to_float64, arrays)
    alpha, beta, gamma = factors
    unit = ROUNDING["float32"].unit
    before = alpha * (a @ b.T) + beta * c
    magnitude = abs(alpha) * (np.abs(a) @ np.abs(b.T)) + np.abs(beta * c)
    reference = ACTIVATIONS[activation](before) + gamma * residual
    inner = (4 * math.sqrt(a.shape[1]) + 4) * unit * magnitude
    # 1e-37: float32 has no exp(-x) for x < -88.7, where what is left of silu is less than this.
    bound = STEEPEST * inner + 8 * unit * (np.abs(before) + np.abs(gamma * residual)) + 1e-36
    bound += 1.25 * ROUNDING[out].unit * np.abs(reference) + ROUNDING[out].floor
    wrong = ~(np.abs(to_float64(result) - reference) <= bound)
    assert not wrong.any(), f"{label}: {int(wrong.sum())} of {wrong.size} wrong, first at {np.argwhere(wrong)[0]}"


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_activations_over_the_whole_range(activation: str) -> None:
    magnitudes = np.concatenate([np.logspace(-40, 2.3, 4000), np.linspace(0, 12, 4000)])
    x = np.concatenate([-magnitudes[::-1], magnitudes]).astype(np.float32)
    identity = mx.eye(1)
    result = to_float64(mlx_gemm.addmm(mx.zeros(1), mx.array(x)[:, None], identity, activation=activation))[:, 0]
    exact = ACTIVATIONS[activation](x.astype(np.float64))
    unit = ROUNDING["float32"].unit
    assert (np.abs(result - exact) <= 4 * unit * np.abs(x) + 1e-36).all()


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("dtype", REAL, ids=name)
def test_infinities_and_nan(dtype: mx.Dtype, activation: str | None, seed: int) -> None:
    M, N, K = 40, 50, 300
    a = normal((M, K), seed)
    a[3, 7], a[11, 250], a[20, 5] = np.nan, np.inf, -np.inf
    b = np.abs(normal((K, N), seed + 1)) + 0.5
    x, y = mx.array(a).astype(dtype), mx.array(b).astype(dtype)
    out = to_float64(mlx_gemm.addmm(mx.zeros(N, dtype), x, y, activation=activation))
    assert np.isnan(out[3]).all()
    assert np.isposinf(out[11]).all()
    assert np.isfinite(np.delete(out, [3, 11, 20], axis=0)).all()
    if activation in (None, "relu"):
        assert (np.isneginf(out[20]) if activation is None else out[20] == 0).all()


# Where 0 is not 0 x infinity: products and sums that are denormal in float32, or operands that are.
@pytest.mark.parametrize(
    ("a_scale", "b_scale"),
    [(2.0**-130, 1.0), (1.0, 2.0**-128), (2.0**-64, 2.0**-64), (2.0**-70, 2.0**-58), (2.0**-120, 2.0**60)],
)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(300, 70, 40), (9, 300, 40), (300, 9, 40)], ids=str)
def test_bfloat16_keeps_denormals(
    a_scale: float, b_scale: float, layout: str, shape: tuple[int, int, int], seed: int
) -> None:
    M, N, K = shape
    a, b = np.ones((M, K), np.float32), normal((K, N), seed + 1)
    a[::3] = normal((M, K), seed)[::3]
    rows = np.where(np.arange(M) % 2, 1.0, a_scale)[:, None].astype(np.float32)
    columns = np.where(np.arange(N) % 3, b_scale, 1.0)[None].astype(np.float32)
    x, y = operands(a * rows, b * columns, mx.bfloat16, layout)
    for out in (mx.bfloat16, mx.float32):
        result = mlx_gemm.matmul(x, y, out_dtype=out)
        assert_within_bound(result, x, y, f"{a_scale=} {b_scale=} {layout} {seed=}", dtype=name(out))


def test_float16_keeps_denormals(seed: int) -> None:
    a = mx.array(normal((40, 60), seed) * 2.0**-20).astype(mx.float16)
    b = mx.array(normal((60, 50), seed + 1)).astype(mx.float16)
    assert float(mx.abs(a).max()) < 2.0**-14
    assert_within_bound(mlx_gemm.matmul(a, b), a, b, f"{seed=}", dtype="float16")
    assert_within_bound(mlx_gemm.matmul(a, b, out_dtype=mx.float32), a, b, f"{seed=}")


@pytest.mark.parametrize("dtype", [*REAL, mx.complex64], ids=name)
@pytest.mark.parametrize("shape", [(1, 4000, 900), (5, 700, 900), (300, 300, 300), (520, 520, 64)], ids=str)
def test_the_same_product_twice_has_the_same_bits(shape: tuple[int, int, int], dtype: mx.Dtype, seed: int) -> None:
    M, N, K = shape
    a, b = operands(normal((M, K), seed), normal((K, N), seed + 1), dtype, "nt")
    first = mlx_gemm.matmul(a, b)
    for _ in range(5):
        assert mx.array_equal(mlx_gemm.matmul(a, b), first, equal_nan=False)


@pytest.mark.parametrize("shape", [(1, 1, 1), (17, 5, 3), (64, 64, 64), (300, 20, 301)], ids=str)
def test_results_begin_with_a_cache_line(shape: tuple[int, int, int]) -> None:
    """MLX's memory does not; vectors that are stored across two lines take longer."""
    m, k, n = shape
    result = mlx_gemm.matmul(mx.ones((m, k)), mx.ones((k, n)))
    view = np.array(result, copy=False)
    assert view.ctypes.data % 64 == 0
    assert (view == k).all()


@pytest.mark.parametrize("activation", [None, "silu"])
def test_results_in_huge_pages(activation: str | None, seed: int) -> None:
    """Of more than 4 MiB, also where they end within such a page."""
    a, b = (mx.array(integers(shape, seed + i)) for i, shape in enumerate([(1500, 20), (20, 1301)]))
    expected = mx.matmul(a, b)
    zero = mx.zeros((1301,))
    result = mlx_gemm.addmm(zero, a, b, activation=activation)
    if activation is None:
        assert mx.array_equal(result, expected)
    else:
        assert mx.allclose(result, mlx.nn.silu(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("denormals", [False, True])
@pytest.mark.parametrize("dtype", HALF, ids=name)
def test_half_types_are_not_copied_to_float32(dtype: mx.Dtype, denormals: bool) -> None:
    """Beyond operands and result a product needs memory for blocks: much less than float32 copies of both operands."""
    n = 3000
    code = f"""
import mlx.core as mx, mlx_gemm
def kib(key):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(key))
mx.set_default_device(mx.cpu)
a, b = (mx.ones(({n}, {n}), mx.{name(dtype)}) for _ in "ab")
if {denormals}:
    a[::20, 0] = 2.0 ** {-130 if dtype == mx.bfloat16 else -20}
mx.eval(a, b)
mx.reset_peak_memory()
active, resident = mx.get_active_memory(), kib("VmRSS")
mx.eval(mlx_gemm.matmul(a, b))
print(mx.get_peak_memory() - active, 1024 * (kib("VmHWM") - resident))
"""
    ours, process = map(int, python(code, MLX_GEMM_NUM_THREADS="2").stdout.split())
    result, both_in_float32, blocks = 2 * n * n, 2 * 4 * n * n, 24 << 20
    assert ours <= result + 4096
    assert process <= result + blocks < both_in_float32


def test_no_copies_where_blas_can_address(seed: int) -> None:
    for dtype, layout in itertools.product(REAL, LAYOUTS):
        a, b = operands(normal((40, 50), seed), normal((50, 60), seed), dtype, layout, pad=2)
        mx.eval(a, b)
        before = _ext.counters()["copies"]
        mx.eval(mlx_gemm.matmul(a, b))
        assert _ext.counters()["copies"] == before


@pytest.mark.parametrize("dtype", REAL, ids=name)
def test_copies_of_every_type(dtype: mx.Dtype, seed: int) -> None:
    a, b = (
        mx.array(normal((40, 100), seed)).astype(dtype)[:, ::2],
        mx.array(normal((50, 90), seed)).astype(dtype)[:, ::3],
    )
    before = _ext.counters()["copies"]
    assert_within_bound(mlx_gemm.matmul(a, b), a, b, f"{seed=}", dtype=name(dtype))
    assert _ext.counters()["copies"] == before + 2


@pytest.mark.parametrize("dtype", REAL, ids=name)
def test_gradients_of_widened_products(dtype: mx.Dtype, seed: int) -> None:
    a, b = operands(normal((9, 20), seed), normal((20, 7), seed + 1), dtype, "nt")

    def ours(x: mx.array, y: mx.array) -> mx.array:
        return (mlx_gemm.matmul(x, y, out_dtype=mx.float32) ** 2).sum()

    def theirs(x: mx.array, y: mx.array) -> mx.array:
        return (mx.matmul(x.astype(mx.float32), y.astype(mx.float32)) ** 2).sum()

    for mine, reference in zip(mx.grad(ours, (0, 1))(a, b), mx.grad(theirs, (0, 1))(a, b), strict=True):
        assert mine.dtype == dtype
        assert mx.allclose(mine.astype(mx.float32), reference.astype(mx.float32), rtol=2.0**-6, atol=1e-2)


def test_gradients_of_complex_products(seed: int) -> None:
    a = mx.array(normal((5, 6), seed) + 1j * normal((5, 6), seed + 1)).astype(mx.complex64)
    b = mx.array(normal((6, 4), seed) - 1j * normal((6, 4), seed + 2)).astype(mx.complex64)
    cotangent = mx.ones((5, 4), mx.complex64) * (1 + 2j)
    mine = mx.vjp(mlx_gemm.matmul, [a, b], [cotangent])[1]
    theirs = mx.vjp(mx.matmul, [a, b], [cotangent])[1]
    for x, y in zip(mine, theirs, strict=True):
        assert mx.allclose(x, y, rtol=1e-5, atol=1e-5)


def environment(**variables: str) -> dict[str, str]:
    return {**os.environ, **variables}


def python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment(**variables)
    )


@pytest.mark.skipif("MLX_GEMM_ISA" in os.environ, reason="runs this file itself, once for each instruction set")
@pytest.mark.parametrize(
    "isa", ["avx2", "avx512_bf16", *(pytest.param(isa, marks=pytest.mark.slow) for isa in ("portable", "avx512"))]
)
def test_lesser_cpus(isa: str) -> None:
    """The tests above with the code for a CPU that has no more than this."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = subprocess.run(
        [*command, "-k", "not half_types and not counts and not instruction_sets"],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment(MLX_GEMM_ISA=isa),
    )
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize(
    ("variables", "threads"),
    [
        ({"MLX_GEMM_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "5"}, 3),
        ({"OPENBLAS_NUM_THREADS": "5"}, 5),
        ({"OPENBLAS_NUM_THREADS": "many"}, None),
        ({}, None),
    ],
)
def test_thread_counts(variables: dict[str, str], threads: int | None) -> None:
    code = """
import os
os.environ.get("PIN") and os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import mlx.core as mx, mlx_gemm
mx.set_default_device(mx.cpu)
a = mx.ones((700, 700))
assert mx.array_equal(mlx_gemm.matmul(a, a), 700 * a)
print(mlx_gemm._ext.environment()["threads"], len(os.sched_getaffinity(0)))
"""
    done = python(code, **variables)
    count, cpus = map(int, done.stdout.split())
    assert count == (cpus if threads is None else threads), done.stderr
    if threads is None:
        assert python(code, PIN="1", **variables).stdout.split() == ["1", "1"]


@pytest.mark.parametrize("value", ["0", "-2", "two", "", "3x"])
def test_thread_counts_that_are_none(value: str) -> None:
    done = python("import mlx_gemm", MLX_GEMM_NUM_THREADS=value)
    assert done.returncode != 0
    assert f"MLX_GEMM_NUM_THREADS must be a positive number, got '{value}'" in done.stderr


def test_instruction_sets_that_are_none() -> None:
    done = python("import mlx_gemm", MLX_GEMM_ISA="avx3")
    assert done.returncode != 0
    assert "MLX_GEMM_ISA must be one of portable, avx2, avx512, avx512_bf16, amx, got 'avx3'" in done.stderr
