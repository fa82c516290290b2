"""Many threads and streams at once."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


FIRST_USE = """
import threading
import mlx.core as mx, mlx_gemm

THREADS = 16
KERNELS = ["simdgroup_8x8", "naive", "tiled_16", None, "coarse_2d", "tensorops_64x64", "simdgroup_32x32", "tiled_32k16"]
start = threading.Barrier(THREADS)
a, b = mx.arange(64.0 * 64).reshape(64, 64) % 7 - 3, mx.arange(64.0 * 64).reshape(64, 64) % 5 - 2
mx.eval(a, b)
wanted = mx.matmul(a, b, stream=mx.cpu)
mx.eval(wanted)
failed = []

def work(thread):
    stream = mx.new_stream(mx.cpu)
    kernel = KERNELS[CHOICE]
    start.wait(60)
    out = mlx_gemm.matmul(a, b, kernel=kernel, stream=stream)
    if not mx.array_equal(out, wanted, stream=stream).item():
        failed.append((thread, kernel))
    if thread % 4 == 0:
        checked, _ = mlx_gemm.host.run("naive", a, b, seed=thread)
        if not mx.array_equal(checked, wanted, stream=stream).item():
            failed.append((thread, "checked"))

threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed, failed
print("done")
"""


@pytest.mark.parametrize("choice", ["0", "3", "thread % len(KERNELS)"], ids=["one kernel", "BLAS", "different kernels"])
def test_sixteen_threads_make_first_use_at_once(choice: str) -> None:
    for _ in range(3):
        done = run(FIRST_USE.replace("CHOICE", choice))
        assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)


def test_streams_come_and_go() -> None:
    """Nothing that belongs to a stream is kept beyond it: streams of ended threads, and all of them cleared."""
    done = run("""
import threading
import mlx.core as mx, mlx_gemm

a = mx.ones((40, 40))
mx.eval(a)

def work():
    for kernel in (None, "naive"):
        for stream in (mx.new_stream(mx.cpu), mx.new_thread_local_stream(mx.cpu), mx.cpu):
            assert mlx_gemm.matmul(a, a, kernel=kernel, stream=stream).sum(stream=stream).item() == 40.0**3
    mx.clear_streams()

for _ in range(20):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
work()
print("done")
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def cpu_time(thread: int) -> int:
    return int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[0])


def new_stream_and_thread() -> tuple[mx.Stream, int]:
    tasks = Path("/proc/self/task")
    before = {task.name for task in tasks.iterdir()}
    stream = mx.new_stream(mx.cpu)
    mx.eval(mx.add(1, 2, stream=stream))
    (thread,) = {task.name for task in tasks.iterdir()} - before
    return stream, int(thread)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs the CPU time of single threads")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16])
def test_every_product_runs_on_its_stream(dtype: mx.Dtype) -> None:
    """Also those of gradients and of mapped products, which are built when the caller names no stream any more."""
    mine, thread = new_stream_and_thread()
    x, w, c = mx.ones((4, 64, 64), dtype), mx.ones((64, 64), dtype), mx.ones((64,), dtype)
    mx.eval(x, w, c)

    def linear(*operands: mx.array) -> mx.array:
        return mlx_gemm.linear(*operands, activation="silu", residual=c, stream=mine)

    for call in (
        lambda: [linear(x, w, c)],
        lambda: mx.vjp(linear, [x, w, c], [x])[1],
        lambda: mx.jvp(linear, [x, w, c], [x, w, c])[1],
        lambda: [mx.vmap(linear, (0, None, None))(x, w, c)],
        lambda: [mlx_gemm.addmm(c, x, w, 2.0, stream=mine), mlx_gemm.matmul(x, w, stream=mine)],
    ):
        before = cpu_time(thread)
        mx.eval(call())
        # What a thread has used is known once it waits again; one that did nothing never gets there.
        while cpu_time(thread) == before:
            time.sleep(0.001)
