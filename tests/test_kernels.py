"""Every kernel of the registry on the Metal host runtime: results, traffic, memory and barriers."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_product, assert_within_bound, normal
from shapes import ALL_CASES, ANY_SHAPE_KERNELS, LADDER_NAMES, Case

import mlx_gemm
from mlx_gemm import _ext, host
from mlx_gemm.kernels import KernelInfo

Run = Callable[[str, mx.array, mx.array], mx.array]

RUNS: dict[str, Run] = {
    "op": lambda name, a, b: mlx_gemm.matmul(a, b, kernel=name),
    "lanes": lambda name, a, b: host.run(name, a, b, check=False, mode="lanes")[0],
    "checked": lambda name, a, b: host.run(name, a, b)[0],
    "checked lanes": lambda name, a, b: host.run(name, a, b, mode="lanes")[0],
}

# Device bytes read at M = N = K = 4096, in units of 10^9: the figures of the documents that the ladder comes from.
REFERENCE_GB = {
    "coarse_1d": "8.6",
    "coarse_2d": "4.3",
    "simdgroup_8x8": "68.7",
    "simdgroup_32x32": "34.4",
    "simdgroup_32x32_shared": "17.2",
    "tensorops_64x64": "8.59",
    "tensorops_64x128": "6.44",
    "tensorops_128x64": "6.44",
    "tensorops_128x128": "4.29",
    "tensorops_32x32_sg1": "17.2",
    "tensorops_32x64_sg1": "12.9",
    "tensorops_64x32_sg1": "12.9",
    "tensorops_64x64_morton": "8.59",
    "tensorops_32x32_sg1_morton": "17.2",
    "tensorops_sync_64x64_k256": "8.59",
    "tensorops_sync_64x128_k256": "6.44",
    "tensorops_sync_32x64_k512": "12.9",
    "tensorops_sync_128x128_k256": "4.29",
    "tensorops_sync_64x64_k256_morton": "8.59",
}


def kernel_named(name: str) -> KernelInfo:
    return next(kernel for kernel in mlx_gemm.kernels() if kernel.name == name)


def operands(M: int, N: int, K: int, seed: int) -> tuple[mx.array, mx.array]:
    return mx.array(normal((M, K), seed)), mx.array(normal((K, N), seed + 1))


def same_bits(left: mx.array, right: mx.array) -> bool:
    return np.array(left).tobytes() == np.array(right).tobytes()


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_product(case: Case, run: Run, seed: int) -> None:
    name = case.kernel.name
    assert_product(lambda a, b: run(name, a, b), case.M, case.N, case.K, seed, name)


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_report(case: Case, seed: int) -> None:
    """What the kernel did, counted as it ran, is what the registry says."""
    kernel = case.kernel
    a, b = operands(case.M, case.N, case.K, seed)
    _, report = host.run(kernel.name, a, b)
    assert report.checked
    assert not report.warnings
    assert report.requested_read_bytes == kernel.requested_read_bytes(case.M, case.N, case.K)
    assert report.requested_write_bytes == 4 * case.M * case.N
    assert report.flops == 2 * case.M * case.N * case.K
    assert report.intensity == report.flops / (report.requested_read_bytes + report.requested_write_bytes)
    assert report.threadgroup_bytes == kernel.threadgroup_bytes
    assert report.threadgroups == case.tiles
    assert report.barriers == case.barriers
    assert report.multiplies == case.multiplies


@pytest.mark.parametrize("case", ALL_CASES, ids=str)
def test_order_of_threads_does_not_matter(case: Case, seed: int) -> None:
    a, b = operands(case.M, case.N, case.K, seed)
    plain, _ = host.run(case.kernel.name, a, b, check=False, mode="lanes")
    for shuffle in (seed, seed + 1):
        shuffled, _ = host.run(case.kernel.name, a, b, check=False, mode="lanes", seed=shuffle)
        assert same_bits(plain, shuffled), f"{case}: another result with seed={shuffle}"


@pytest.mark.parametrize("name", LADDER_NAMES)
def test_same_bits_in_every_mode_and_every_time(name: str, seed: int) -> None:
    kernel = kernel_named(name)
    a, b = operands(kernel.bm, 2 * kernel.bn, 2 * max(kernel.bk, 32), seed)
    first, report = host.run(name, a, b, check=False)
    again, _ = host.run(name, a, b, check=False)
    lanes, _ = host.run(name, a, b, check=False, mode="lanes")
    assert kernel.deterministic
    assert same_bits(first, again)
    assert same_bits(first, lanes), f"{report.mode} and lanes differ"
    assert same_bits(first, mlx_gemm.matmul(a, b, kernel=name))


@pytest.mark.parametrize("name", LADDER_NAMES)
def test_plain_runs_count_no_traffic(name: str, seed: int) -> None:
    kernel = kernel_named(name)
    _, report = host.run(name, *operands(kernel.bm, kernel.bn, max(kernel.bk, 32), seed), check=False)
    assert not report.checked
    assert report.kernel == name
    assert report.seconds > 0
    assert report.requested_read_bytes is report.requested_write_bytes is report.intensity is None
    assert report.threadgroup_read_bytes is report.threadgroup_write_bytes is None


@pytest.mark.parametrize("name", REFERENCE_GB)
def test_requested_bytes_match_the_reference(name: str, seed: int) -> None:
    """At a size where whole tiles fit, traffic grows with the third power of the size."""
    kernel = kernel_named(name)
    n = max(kernel.bm, kernel.bn, kernel.bk)
    _, report = host.run(name, *operands(n, n, n, seed))
    figure = REFERENCE_GB[name]
    digits = len(figure.partition(".")[2])
    assert f"{report.requested_read_bytes * (4096 / n) ** 3 / 1e9:.{digits}f}" == figure
    assert f"{kernel.requested_read_bytes(4096, 4096, 4096) / 1e9:.{digits}f}" == figure


@pytest.mark.parametrize("name", [name for name in LADDER_NAMES if kernel_named(name).family == "tensorops"])
def test_tensorops_run_once_per_simd_group(name: str, seed: int) -> None:
    """The kernels never ask for a lane, so that the host runtime may run a SIMD group as one."""
    kernel = kernel_named(name)
    _, report = host.run(name, *operands(kernel.bm, kernel.bn, max(kernel.bk, 32), seed), check=False)
    assert report.mode == "uniform"


@pytest.mark.parametrize("name", ["naive", "tiled_16", "coarse_1d", "simdgroup_32x32_shared"])
def test_threadgroup_traffic(name: str, seed: int) -> None:
    """What is staged is written once per step; naive stages nothing."""
    kernel = kernel_named(name)
    case = Case(kernel, 2 * kernel.bm, kernel.bn, 64)
    _, report = host.run(name, *operands(case.M, case.N, case.K, seed))
    staged = 4 * kernel.bk * (kernel.bm + kernel.bn) * case.steps * case.tiles if kernel.threadgroup_bytes else 0
    assert report.threadgroup_write_bytes == staged
    assert (report.threadgroup_read_bytes > staged) == bool(staged)


@settings(max_examples=150)
@given(
    name=st.sampled_from(ANY_SHAPE_KERNELS),
    shape=st.tuples(*[st.integers(1, 40)] * 3),
    seed=st.integers(0, 2**31),
)
def test_small_shapes(name: str, shape: tuple[int, int, int], seed: int) -> None:
    assert_product(lambda a, b: mlx_gemm.matmul(a, b, kernel=name), *shape, seed, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANY_SHAPE_KERNELS)
def test_every_shape_around_a_tile(name: str, seed: int) -> None:
    kernel = kernel_named(name)
    near = {axis: [1, tile - 1, tile, tile + 1, 2 * tile + 1] for axis, tile in (("M", kernel.bm), ("N", kernel.bn))}
    for M in near["M"]:
        for N in near["N"]:
            for K in (1, 7, 8, 9, 31, 32, 33, 65):
                assert_product(lambda a, b: host.run(name, a, b)[0], M, N, K, seed, name)


@pytest.mark.parametrize("name", ANY_SHAPE_KERNELS)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_edges_keep_to_their_row_and_column(name: str, poison: float, seed: int) -> None:
    """A NaN or infinity reaches the row of A and the column of B that hold it, and nothing else."""
    kernel = kernel_named(name)
    M, N, K = kernel.bm + 3, kernel.bn + 5, 37
    a, b = normal((M, K), seed), normal((K, N), seed + 1)
    clean = np.array(mlx_gemm.matmul(mx.array(a), mx.array(b), kernel=name))
    a[M - 1, K - 1] = b[K - 1, N - 1] = poison
    out = np.array(mlx_gemm.matmul(mx.array(a), mx.array(b), kernel=name))
    assert not np.isfinite(out[M - 1]).any()
    assert not np.isfinite(out[:, N - 1]).any()
    assert np.array_equal(out[:-1, :-1], clean[:-1, :-1])


@pytest.mark.parametrize("name", LADDER_NAMES)
def test_operands_in_any_layout(name: str, seed: int) -> None:
    """A forced kernel gets what it can address: anything else is copied first, and the copies are counted."""
    kernel = kernel_named(name)
    M, N, K = kernel.bm, kernel.bn, max(kernel.bk, 32)
    a, b = normal((M, K), seed), normal((K, N), seed + 1)
    before = _ext.counters()["copies"]
    for left in (mx.array(a), mx.array(np.ascontiguousarray(a.T)).T):
        for right in (mx.array(b), mx.array(np.repeat(b, 2, axis=1))[:, ::2]):
            out = mlx_gemm.matmul(left, right, kernel=name)
            assert_within_bound(out, a, b, f"{name} {seed=}")
    assert _ext.counters()["copies"] == before + 4


@pytest.mark.parametrize("name", LADDER_NAMES)
def test_rows_of_a_wider_matrix_need_no_copy(name: str, seed: int) -> None:
    kernel = kernel_named(name)
    M, N, K = kernel.bm, kernel.bn, 2 * max(kernel.bk, 32)
    wide_a, wide_b = normal((M, K + 29), seed), normal((K, N + 39), seed + 1)
    a, b = mx.array(wide_a)[:, 5 : K + 5], mx.array(wide_b)[:, 3 : N + 3]
    plan = mlx_gemm.explain(a, b, kernel=name)
    assert plan.copies == 0
    before = _ext.counters()["copies"]
    out = mlx_gemm.matmul(a, b, kernel=name)
    assert_within_bound(out, wide_a[:, 5 : K + 5], wide_b[:, 3 : N + 3], f"{name} {seed=}")
    assert _ext.counters()["copies"] == before


@pytest.mark.parametrize("name", ["tiled_16", "simdgroup_8x8", "tensorops_32x64_sg1"])
def test_batches_run_the_kernel_for_every_matrix(name: str, seed: int) -> None:
    a, b = normal((3, 1, 16, 24), seed), normal((2, 24, 40), seed + 1)
    before = _ext.counters()["host_launches"]
    out = mlx_gemm.matmul(mx.array(a), mx.array(b), kernel=name)
    assert_within_bound(out, a, b, f"{name} {seed=}")
    assert _ext.counters()["host_launches"] == before + 6
