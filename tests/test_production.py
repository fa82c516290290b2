"""The production kernels on the Metal host runtime: every layout, type, edge, batch and epilogue."""

from __future__ import annotations

import itertools
import math

import mlx.core as mx
import numpy as np
import pytest
from reference import (
    assert_exact,
    assert_float32_accuracy,
    assert_keeps_float32_bits,
    assert_within_bound,
    integers,
    normal,
)
from shapes import PRODUCTION, Case

import mlx_gemm
from mlx_gemm import _ext, host
from mlx_gemm.kernels import KernelInfo
from mlx_gemm.oracle import to_float64

LAYOUTS = ("nn", "nt", "tn", "tt")
MAIN = {k.name: k for k in PRODUCTION if k.name in ("simd_gemm_64x64_k16", "tensorops_gemm_64x64_k256")}
EXACT = [k for k in PRODUCTION if k.math == "exact"]
ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}

every_kernel = pytest.mark.parametrize("kernel", PRODUCTION, ids=lambda k: k.name)
every_exact_kernel = pytest.mark.parametrize("kernel", EXACT, ids=lambda k: k.name)


def types_of(kernel: KernelInfo) -> list[tuple[mx.Dtype, mx.Dtype]]:
    """Types of the operands and of the result."""
    halves = [getattr(mx, name) for name in kernel.dtypes if name != "float32"]
    return [(mx.float32, mx.float32), *[(half, out) for half in halves for out in (half, mx.float32)]]


def laid_out(x: mx.array, transposed: bool, pad: int = 3) -> mx.array:
    """The same matrices inside larger ones filled with NaN, as rows or as columns; an odd leading dimension."""
    stored = x.swapaxes(-1, -2) if transposed else x
    wide = mx.full((*stored.shape[:-2], stored.shape[-2] + 2, stored.shape[-1] + pad), float("nan"), x.dtype)
    wide[..., 1 : stored.shape[-2] + 1, 1 : stored.shape[-1] + 1] = stored
    mx.eval(wide)
    view = wide[..., 1 : stored.shape[-2] + 1, 1 : stored.shape[-1] + 1]
    return view.swapaxes(-1, -2) if transposed else view


def edges(kernel: KernelInfo) -> list[tuple[int, int, int]]:
    """Around a tile in each dimension; the last has a tail along K."""
    bm, bn, bk = kernel.bm, kernel.bn, kernel.bk or 32
    return [(1, 1, 1), (bm, bn, bk), (bm - 1, bn + 1, bk - 1), (bm + 1, bn - 1, bk + 1), (2 * bm + 3, 5, 2 * bk + 7)]


@pytest.mark.parametrize("layout", LAYOUTS)
@every_kernel
def test_exact_integers(kernel: KernelInfo, layout: str, seed: int) -> None:
    """In place, whatever lies around the operands."""
    before = _ext.counters()["copies"]
    for (M, N, K), (dtype, out_dtype) in itertools.product(edges(kernel), types_of(kernel)):
        a, b = np.clip(integers((M, K), seed), -3, 3), np.clip(integers((K, N), seed + 1), -3, 3)
        left = laid_out(mx.array(a).astype(dtype), layout[0] == "t")
        right = laid_out(mx.array(b).astype(dtype), layout[1] == "t")
        out = mlx_gemm.matmul(left, right, kernel=kernel.name, out_dtype=out_dtype)
        label = f"{kernel.name} {layout} {dtype} {out_dtype} {M=} {N=} {K=} {seed=}"
        assert out.dtype == out_dtype, label
        if out_dtype == mx.float32:
            assert_exact(out, a, b, label)
        else:
            assert mx.array_equal(out, mx.array((a @ b).astype(np.float32)).astype(out_dtype)).item(), label
    assert _ext.counters()["copies"] == before


@every_exact_kernel
def test_accuracy(kernel: KernelInfo, seed: int) -> None:
    M, N, K = kernel.bm + 3, kernel.bn + 5, 2 * (kernel.bk or 32) + 9
    a, b = normal((M, K), seed), normal((K, N), seed + 1)
    out = mlx_gemm.matmul(mx.array(a), mx.array(b), kernel=kernel.name)
    assert_within_bound(out, a, b, f"{kernel.name} {seed=}")
    assert_float32_accuracy(out, a, b, f"{kernel.name} {seed=}")
    assert_keeps_float32_bits(lambda x, y: mlx_gemm.matmul(x, y, kernel=kernel.name), M, N, K, f"{kernel.name} {seed=}")
    for dtype in ("float16", "bfloat16"):
        left, right = mx.array(a).astype(getattr(mx, dtype)), mx.array(b).astype(getattr(mx, dtype))
        out = mlx_gemm.matmul(left, right, kernel=kernel.name)
        assert_within_bound(out, to_float64(left), to_float64(right), f"{kernel.name} {dtype} {seed=}", dtype=dtype)


def test_tf32_is_what_it_says(seed: int) -> None:
    """Within the bound of operands cut to 11 bits, and worse than float32 can be."""
    a, b = normal((70, 300), seed), normal((300, 90), seed + 1)
    out = to_float64(mlx_gemm.matmul(mx.array(a), mx.array(b), kernel="tensorops_gemm_64x64_k256_tf32"))
    exact, scale = to_float64(a) @ to_float64(b), np.abs(to_float64(a)) @ np.abs(to_float64(b))
    error = np.abs(out - exact)
    assert (error <= 2.0**-9 * scale).all()
    assert np.linalg.norm(error) > 2.0**-14 * np.linalg.norm(exact)


@pytest.mark.parametrize("mode", ["lanes", "auto"])
@every_kernel
def test_report(kernel: KernelInfo, mode: str, seed: int) -> None:
    """Checked, what the kernel did is what the registry says: one barrier and one operation per step, at edges too."""
    for M, N, K in edges(kernel):
        case = Case(kernel, M, N, K)
        for dtype in {types[0] for types in types_of(kernel)}:
            a = mx.array(integers((M, K), seed)).astype(dtype)
            b = mx.array(integers((K, N), seed + 1)).astype(dtype)
            _, report = host.run(kernel.name, a, b, mode=mode)
            bytes_read = kernel.requested_read_bytes(M, N, K) * dtype.size // 4
            label = f"{case} {dtype} {seed=}"
            assert not report.warnings, label
            assert report.requested_read_bytes == bytes_read, label
            assert report.requested_write_bytes == dtype.size * M * N, label
            assert report.threadgroups == case.threadgroups, label
            assert report.barriers == case.barriers, label
            assert report.multiplies == case.multiplies, label
            if dtype == mx.float32:
                assert report.threadgroup_bytes == kernel.threadgroup_bytes, label


@every_kernel
def test_same_bits_in_every_order(kernel: KernelInfo, seed: int) -> None:
    M, N, K = kernel.bm + 1, 2 * kernel.bn + 3, 2 * (kernel.bk or 32) + 5
    for dtype in {types[0] for types in types_of(kernel)}:
        a, b = mx.array(normal((M, K), seed)).astype(dtype), mx.array(normal((K, N), seed + 1)).astype(dtype)
        first, _ = host.run(kernel.name, a, b, check=False)
        for options in ({"mode": "lanes"}, {"mode": "lanes", "seed": seed}, {"mode": "lanes", "seed": seed + 1}):
            again, _ = host.run(kernel.name, a, b, check=False, **options)
            assert mx.array_equal(first, again).item(), f"{kernel.name} {dtype} {options}"


@pytest.mark.parametrize("layout", LAYOUTS)
@every_exact_kernel
def test_poison_keeps_to_its_row_and_column(kernel: KernelInfo, layout: str, seed: int) -> None:
    """NaN and infinity at the end of K reach the row and column that hold them, and nothing else."""
    M, N, K = kernel.bm + 3, kernel.bn + 5, (kernel.bk or 32) + 7
    a, b = integers((M, K), seed), integers((K, N), seed + 1)
    exact = to_float64(a) @ to_float64(b)
    for poison in (np.nan, np.inf):
        a[M - 1, K - 1] = b[K - 1, N - 1] = poison
        left, right = laid_out(mx.array(a), layout[0] == "t"), laid_out(mx.array(b), layout[1] == "t")
        out = to_float64(mlx_gemm.matmul(left, right, kernel=kernel.name))
        assert not np.isfinite(out[M - 1]).any()
        assert not np.isfinite(out[:, N - 1]).any()
        np.testing.assert_array_equal(out[:-1, :-1], exact[:-1, :-1])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kernel", MAIN.values(), ids=MAIN)
def test_activations(kernel: KernelInfo, activation: str, seed: int) -> None:
    a, b, c = normal((70, 40), seed), normal((40, 90), seed + 1), normal((90,), seed + 2)
    options = {"alpha": 0.25, "beta": 2.0, "activation": activation, "kernel": kernel.name}
    out = to_float64(mlx_gemm.addmm(mx.array(c), mx.array(a), mx.array(b), **options))
    expected = ACTIVATIONS[activation](0.25 * (to_float64(a) @ to_float64(b)) + 2 * to_float64(c))
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)


ADDENDS = {
    "scalar": (),
    "row": (90,),
    "column": (70, 1),
    "matrix": (70, 90),
    "batch of rows": (3, 1, 90),
    "outer batch": (2, 1, 1, 1),
    "all": (2, 3, 70, 90),
}


@pytest.mark.parametrize("addend", ADDENDS.values(), ids=ADDENDS)
@pytest.mark.parametrize("kernel", MAIN.values(), ids=MAIN)
def test_addends_of_any_shape(kernel: KernelInfo, addend: tuple[int, ...], seed: int) -> None:
    """C and the residual in every broadcast form, with rows of A that join and with rows that do not."""
    a, c = integers((2, 3, 70, 20), seed), integers(addend, seed + 1)
    weight = integers((90, 20), seed + 2)
    out = mlx_gemm.linear(mx.array(a), mx.array(weight), residual=mx.array(c), kernel=kernel.name)
    np.testing.assert_array_equal(to_float64(out), to_float64(a) @ to_float64(weight).T + to_float64(c))
    for b in (weight.T, integers((3, 20, 90), seed + 3)):
        out = mlx_gemm.addmm(mx.array(c), mx.array(a), mx.array(b), 2.0, 3.0, activation="relu", kernel=kernel.name)
        expected = np.maximum(2 * (to_float64(a) @ to_float64(b)) + 3 * to_float64(c), 0)
        np.testing.assert_array_equal(to_float64(out), expected)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("every_second", [False, True])
@pytest.mark.parametrize("shape", [(1, 3, 7, 4), (1, 3, 1, 4), (3, 7, 1), (7, 4)], ids=str)
@pytest.mark.parametrize("kernel", MAIN.values(), ids=MAIN)
def test_addends_where_b_has_more_dimensions_than_a(
    kernel: KernelInfo, shape: tuple[int, ...], every_second: bool, seed: int
) -> None:
    """The product has as many as B, all of length 1."""
    a, b = (mx.array(integers(s, seed + i)) for i, s in enumerate([(3, 7, 8), (1, 1, 8, 4)]))
    c = mx.array(integers((*shape[:-2], 2 * shape[-2], shape[-1]), seed + 2))
    c = c[..., ::2, :] if every_second else c[..., : shape[-2], :]
    expected = mx.matmul(a, b) + 2 * c
    assert mx.array_equal(mlx_gemm.addmm(c, a, b, beta=2.0, kernel=kernel.name), expected)


@pytest.mark.parametrize("kernel", MAIN.values(), ids=MAIN)
def test_batches(kernel: KernelInfo, seed: int) -> None:
    """Broadcast, reversed and permuted batches in one launch each."""
    before = _ext.counters()["host_launches"]
    a, b = integers((2, 1, 5, 6), seed), integers((3, 6, 7), seed + 1)
    assert_batch(kernel, mx.array(a), mx.array(b), a, b)
    left = mx.array(np.ascontiguousarray(np.moveaxis(a, 0, 2)))
    assert_batch(kernel, mx.moveaxis(left, 2, 0), mx.array(b[::-1].copy())[::-1], a, b)
    assert _ext.counters()["host_launches"] == before + 2


def test_more_products_than_a_grid_is_deep(seed: int) -> None:
    before = _ext.counters()["host_launches"]
    a, b = integers((70000, 1, 3), seed), integers((70000, 3, 1), seed + 1)
    assert_batch(MAIN["tensorops_gemm_64x64_k256"], mx.array(a), mx.array(b), a, b)
    assert _ext.counters()["host_launches"] == before + 2


def assert_batch(kernel: KernelInfo, left: mx.array, right: mx.array, a: np.ndarray, b: np.ndarray) -> None:
    out = mlx_gemm.matmul(left, right, kernel=kernel.name)
    np.testing.assert_array_equal(to_float64(out), to_float64(a) @ to_float64(b))


def test_operands_that_are_copied(seed: int) -> None:
    """Neither stride is 1."""
    a, b = integers((40, 60), seed), integers((60, 50), seed + 1)
    before = _ext.counters()["copies"]
    left = mx.array(np.repeat(np.repeat(a, 2, axis=0), 2, axis=1))[::2, ::2]
    out = mlx_gemm.matmul(left, mx.array(b), kernel="tensorops_gemm_32x64_k256")
    assert_exact(out, a, b, f"{seed=}")
    assert _ext.counters()["copies"] == before + 1


def test_forced_outside_its_types() -> None:
    a = mx.zeros((4, 4), mx.float16)
    with pytest.raises(ValueError, match=r"\[mlx_gemm.matmul\] tensorops_gemm_64x64_k256_tf32 multiplies float32, got"):
        mlx_gemm.matmul(a, a, kernel="tensorops_gemm_64x64_k256_tf32")


@pytest.mark.parametrize("architecture", ["applegpu_g13g", "applegpu_g15d", "applegpu_g16s", "applegpu_g17g"])
def test_explain_for_any_gpu(architecture: str) -> None:
    a, b = mx.zeros((300, 200)), mx.zeros((100, 200)).T
    plan = mlx_gemm.explain(a, b, device=architecture, activation="gelu")
    assert plan.route == "kernel"
    assert plan.kernel.startswith("tensorops_gemm" if architecture == "applegpu_g17g" else "simd_gemm")
    assert plan.copies == 0
    plain = mlx_gemm.explain(a, b, device=architecture)
    assert plain.route == ("kernel" if architecture == "applegpu_g17g" else "mlx")


def test_explain_refuses_what_is_no_gpu() -> None:
    a = mx.zeros((2, 2))
    with pytest.raises(ValueError, match=r"\[mlx_gemm.explain\] expected a device such as 'applegpu_g17g', got 'M5'"):
        mlx_gemm.explain(a, a, device="M5")
    with pytest.raises(TypeError, match=r"\[mlx_gemm.explain\] device must be the name of a GPU or None, got int"):
        mlx_gemm.explain(a, a, device=5)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", MAIN.values(), ids=MAIN)
def test_every_small_shape(kernel: KernelInfo, seed: int) -> None:
    a, b = integers((40, 40), seed), integers((40, 40), seed + 1)
    left, right = mx.array(a), mx.array(b)
    for M, N, K in itertools.product(range(1, 41), repeat=3):
        out, _ = host.run(kernel.name, left[:M, :K], right[:K, :N], check=False)
        assert_exact(out, a[:M, :K], b[:K, :N], f"{kernel.name} {M=} {N=} {K=} {seed=}")
