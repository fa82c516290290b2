"""Many threads and streams at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import pytest
from reference import assert_within_bound, normal

import mlx_gemm
from mlx_gemm import host

THREADS = 4
REPEATS = 6


@pytest.mark.parametrize("kernel", [None, "naive", "tensorops_64x64"])
def test_threads_with_streams_of_their_own(kernel: str | None, seed: int) -> None:
    def work(thread: int) -> None:
        stream = mx.new_stream(mx.cpu)
        for repeat in range(REPEATS):
            a, b = normal((40 + thread, 50), seed + repeat), normal((50, 30 + repeat), seed + thread)
            out = mlx_gemm.matmul(mx.array(a), mx.array(b), kernel=kernel, stream=stream)
            mx.eval(out)
            assert_within_bound(out, a, b, f"{thread=} {repeat=} {seed=}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("mode", ["auto", "lanes"])
def test_host_runs_at_once(check: bool, mode: str, seed: int) -> None:
    names = ["naive", "tiled_16", "simdgroup_8x8", "tensorops_64x64"]

    def work(thread: int) -> int:
        name = names[thread % len(names)]
        a, b = normal((64, 72), seed + thread), normal((72, 64), seed)
        for repeat in range(REPEATS):
            out, report = host.run(name, mx.array(a), mx.array(b), check=check, mode=mode, seed=repeat)
            assert_within_bound(out, a, b, f"{name} {seed=}")
        return report.threadgroups

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [4, 16, 64, 1]


def test_products_on_several_streams_in_one_graph(seed: int) -> None:
    streams = [mx.new_stream(mx.cpu) for _ in range(3)]
    a = [normal((64, 64), seed + i) for i in range(4)]
    out = mx.array(a[0])
    for matrix, stream in zip(a[1:], streams, strict=True):
        out = mlx_gemm.matmul(out, mx.array(matrix), stream=stream)
    last = mlx_gemm.matmul(mlx_gemm.matmul(mx.array(a[0]), mx.array(a[1])), mx.array(a[2]))
    assert_within_bound(out, last, a[3], f"{seed=}")


def test_async_eval(seed: int) -> None:
    a, b = normal((128, 96), seed), normal((96, 80), seed + 1)
    outs = [mlx_gemm.matmul(mx.array(a) * 2**i, mx.array(b), kernel=k) for i, k in enumerate([None, "naive", None])]
    mx.async_eval(outs)
    for i, out in enumerate(outs):
        assert_within_bound(out, a * 2**i, b, f"{i=} {seed=}")


def test_results_outlive_their_operands(seed: int) -> None:
    a, b = normal((64, 64), seed), normal((64, 64), seed + 1)
    outs = []
    for _ in range(20):
        outs.append(mlx_gemm.matmul(mx.array(a) + 0, mx.array(b) + 0))
        mx.async_eval(outs[-1])
    for out in outs:
        assert_within_bound(out, a, b, f"{seed=}")
