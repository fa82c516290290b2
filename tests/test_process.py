"""What happens to work in flight when a process exits or forks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SET_UP = """
import os, sys, threading
import mlx.core as mx, mlx_gemm
mx.set_default_device(mx.cpu)
a = mx.random.normal((SIZE, SIZE))
mx.eval(a)
"""


def run(script: str, size: int, **variables: str) -> subprocess.CompletedProcess[str]:
    code = SET_UP.replace("SIZE", str(size)) + script
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **variables}
    )


@pytest.mark.parametrize(
    ("size", "call"),
    [(1200, "matmul(a, a)"), (304, "matmul(a, a, kernel='naive')"), (304, "matmul(a, a, kernel='tensorops_64x64')")],
)
def test_exit_with_products_in_flight(size: int, call: str) -> None:
    for _ in range(2):
        done = run(f"mx.async_eval([mlx_gemm.{call} for _ in range(3)])", size)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_has_workers_of_its_own() -> None:
    done = run(
        """
small = mx.ones((16, 16))
mx.eval(small)  # MLX itself does not survive a fork: the child must not need it
busy = threading.Thread(target=lambda: mlx_gemm.host.run("naive", a, a, check=False))
busy.start()
child = os.fork()
if child == 0:
    _, report = mlx_gemm.host.run("tiled_16", small, small)
    os._exit(0 if report.threadgroups == 1 else 1)
_, status = os.waitpid(child, 0)
busy.join()
sys.exit(os.waitstatus_to_exitcode(status))
""",
        256,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_exit_with_products_of_other_types_in_flight(dtype: str) -> None:
    for threads in ("1", "2", "5"):
        script = f"""
b = a.astype(mx.{dtype})
streams = [mx.new_stream(mx.cpu) for _ in range(3)]
mx.async_eval([mlx_gemm.matmul(b, b, stream=stream) for stream in streams for _ in range(3)])
"""
        done = run(script, 700, MLX_GEMM_NUM_THREADS=threads)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_multiplies_on_threads_of_its_own() -> None:
    # MLX itself is not fork-safe: the child uses a stream that the parent has not, while no stream is at work.
    done = run(
        """
import time
b = a.astype(mx.bfloat16)
mx.eval(b, mlx_gemm.matmul(a, a), mlx_gemm.matmul(b, b))
child = os.fork()
if child == 0:
    stream = mx.new_stream(mx.cpu)
    mx.eval(mlx_gemm.matmul(a, a, stream=stream), mlx_gemm.matmul(b, b, stream=stream))
    os._exit(0)
for _ in range(300):
    pid, status = os.waitpid(child, os.WNOHANG)
    if pid:
        break
    time.sleep(0.1)
else:
    os.kill(child, 9)
    sys.exit("the child hangs")
sys.exit(os.waitstatus_to_exitcode(status))
""",
        600,
    )
    assert done.returncode == 0, done.stderr


def test_spawned_processes_multiply(tmp_path: Path) -> None:
    script = tmp_path / "spawn.py"
    script.write_text(
        """
import multiprocessing
import mlx.core as mx, mlx_gemm

def product(n):
    mx.set_default_device(mx.cpu)
    a = mx.ones((n, n), mx.bfloat16)
    return float(mlx_gemm.matmul(a, a, out_dtype=mx.float32).sum())

if __name__ == "__main__":
    product(300)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(product, [300, 200, 100]) == [300.0**3, 200.0**3, 100.0**3]
"""
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_blas_products_are_lowered_with_one_warning() -> None:
    hide = "import importlib.util; found = importlib.util.find_spec\n"
    hide += (
        "importlib.util.find_spec = lambda name, *rest: None if name == 'scipy_openblas32' else found(name, *rest)\n"
    )
    code = hide + SET_UP.replace("SIZE", "40")
    code += """
for dtype in (mx.float32, mx.float16, mx.bfloat16, mx.complex64):
    b = a.astype(dtype)
    assert mx.array_equal(mlx_gemm.matmul(b, b), mx.matmul(b, b))
    assert mlx_gemm.linear(b, b, out_dtype=mx.float32 if dtype != mx.complex64 else None).shape == (40, 40)
assert mlx_gemm._ext.counters()["lowered"] == 8
assert mlx_gemm.explain(a, a).reason == "no BLAS is loaded"
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("mlx_gemm multiplies with mx.matmul on CPU streams") == 1
    assert "the package scipy-openblas32 is not installed" in done.stderr
