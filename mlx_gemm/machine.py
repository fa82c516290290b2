"""Facts about this machine and its software, for `python -m mlx_gemm env` and for benchmark records.

No path, host name or user name is among them: records are meant to be published.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from mlx_gemm import _ext

# CPU features that decide how fast a matrix product can be.
FEATURES = (
    "avx2", "fma", "f16c", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "asimd", "asimdhp", "bf16", "i8mm", "sve", "sve2", "sme",
)  # fmt: skip

Fact = str | int | list[str]


def usable_cores() -> int:
    """Number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def facts() -> dict[str, Fact]:
    """What a reader needs to know to judge a number measured here."""
    environment = _ext.environment()
    return {
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "isa": cpu_features(),
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "mlx_gemm": version("mlx-gemm"),
        "mlx": version("mlx"),
        "numpy": np.__version__,
        "numpy_blas": numpy_blas(),
        "torch": torch_version(),
        "blas": environment["blas"] or "none",
        "host_isa": environment["isa"],
        "cpu_isa": environment["cpu_isa"],
        "cpu_threads": environment["threads"],
        "gpu": environment["gpu"] or "none",
    }


def cpu_model() -> str:
    """The processor's name; the architecture where the system does not tell."""
    if sys.platform == "darwin":
        return _output_of("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return _cpuinfo("model name") or platform.machine()


def cpu_features() -> list[str]:
    """Those of FEATURES that the processor has, where the system tells."""
    flags = (_cpuinfo("flags") or _cpuinfo("Features") or "").split()
    return [feature for feature in FEATURES if feature in flags]


def numpy_blas() -> str:
    """Name and version of the BLAS that NumPy was built with."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}"


def torch_version() -> str:
    """Of the PyTorch that benchmarks compare with; "none" where it is not installed."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return "none"


def slug() -> str:
    """Short name of this kind of machine, such as "intel-xeon-processor-2-cores", for a folder of results."""
    words = re.sub(r"\((r|tm)\)|@.*|\d+-core", "", cpu_model().lower())
    return "-".join([*re.findall(r"[a-z0-9.]+", words), str(usable_cores()), "cores"])


def git_state(root: Path, but: str = ".git") -> dict[str, str | bool]:
    """Commit of the work tree at `root`, and whether any file differs from it; empty outside a git repository.

    Files that git ignores do not count, nor do those in the folder `but`.
    """
    sha = _output_of("git", "-C", str(root), "rev-parse", "HEAD")
    if not sha:
        return {}
    changes = _output_of("git", "-C", str(root), "status", "--porcelain", "--", ".", f":(exclude){but}")
    return {"git_sha": sha, "git_dirty": bool(changes)}


def _cpuinfo(key: str) -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except FileNotFoundError:
        return None
    match = re.search(rf"^{key}\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else None


def _output_of(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
