"""What happens to work in flight when a process exits or forks."""

from __future__ import annotations

import subprocess
import sys

import pytest

SET_UP = """
import os, sys, threading
import mlx.core as mx, mlx_gemm
mx.set_default_device(mx.cpu)
a = mx.random.normal((SIZE, SIZE))
mx.eval(a)
"""


def run(script: str, size: int) -> subprocess.CompletedProcess[str]:
    code = SET_UP.replace("SIZE", str(size)) + script
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


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
