"""The teaching ladder as tables: what each kernel asks of memory by formula, and what it does when it runs here."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from tqdm import tqdm

from mlx_gemm import _ext, bench, host
from mlx_gemm.kernels import KernelInfo, kernels

REFERENCE_SIZE = 4096

# Enough for a ratio that repeats to a few per cent, and no more than two seconds for the slowest kernel.
QUICK = bench.Settings(warmup_s=0.05, sample_s=0.02, rounds=5, budget_s=0.3, least_rounds=1)


def rungs() -> list[KernelInfo]:
    """The ladder's kernels, from the simplest to the fastest."""
    return [kernel for kernel in kernels() if kernel.role == "ladder"]


def format_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, numbers to the right."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def tile(kernel: KernelInfo) -> str:
    """Output tile and step along K: "64x64x256", or "64x64xK" where one operation spans all of K."""
    return f"{kernel.bm}x{kernel.bn}x{kernel.bk or 'K'}"


def formula_table() -> str:
    """Tile, threadgroup memory and device reads of every rung at M = N = K = 4096."""
    n = REFERENCE_SIZE
    rows = []
    for kernel in rungs():
        read = kernel.requested_read_bytes(n, n, n)
        rows.append(
            (
                kernel.name,
                tile(kernel),
                f"{kernel.read_tile[0]}x{kernel.read_tile[1]}",
                str(kernel.simdgroups),
                str(kernel.threadgroup_bytes),
                f"{read / 1e9:.2f}",
                f"{2 * n**3 / read:.2f}",
            )
        )
    return format_table(("kernel", "tile", "TM x TN", "SIMD groups", "memory B", "read GB", "FLOP/byte"), rows)


@dataclass(frozen=True)
class Measured:
    """One candidate at one size; `report` is the checked host run of a kernel, None where there is none."""

    timing: bench.Timing
    report: host.Report | None


def measure(size: int, names: Sequence[str], seed: int = 0) -> list[Measured]:
    """Time the named candidates at M = N = K = size on the CPU, and count what kernels ask of memory if this build can.

    Raises:
        bench.WrongResult: a result is outside the float64 bound.
        host.HostFault: a kernel broke a rule of Metal.
    """
    shape = bench.Shape(size, size, size)
    known = {kernel.name for kernel in kernels()}
    counted = _ext.can_check()
    with tqdm(
        total=len(names) * (QUICK.rounds + 1), desc=f"{size} x {size} x {size}", leave=False, disable=None
    ) as bar:
        timings = bench.compare(
            shape, names, seed=seed, stream=mx.Device(mx.cpu), settings=QUICK, progress=lambda name: bar.update()
        )
        a, b = shape.operands(seed)
        measured = []
        for timing in timings:
            report = host.run(timing.name, a, b)[1] if counted and timing.name in known else None
            measured.append(Measured(timing, report))
            bar.update()
    return measured


def measured_table(size: int, measured: Sequence[Measured], baseline: str) -> str:
    """Speed, requested device bytes and accuracy of every candidate."""
    medians = {m.timing.name: m.timing.median_s for m in measured}
    flops = bench.Shape(size, size, size).flops
    rows = []
    for m in measured:
        megabytes, intensity = "-", "-"
        if m.report and m.report.requested_read_bytes is not None and m.report.requested_write_bytes is not None:
            megabytes = f"{(m.report.requested_read_bytes + m.report.requested_write_bytes) / 1e6:.2f}"
            intensity = f"{m.report.intensity:.2f}"
        rows.append(
            (
                m.timing.name,
                f"{flops / m.timing.median_s / 1e9:.2f}",
                f"{medians[baseline] / m.timing.median_s:.2f}x",
                megabytes,
                intensity,
                f"{m.timing.error_fraction:.2f}",
            )
        )
    return format_table(
        ("kernel or library", "GFLOP/s", f"vs {baseline}", "MB requested", "FLOP/byte", "error/bound"), rows
    )


@dataclass(frozen=True)
class Demands:
    """What one kernel asks of the machine for one product, and how right it is.

    Attributes:
        kernel: its name, with the tile where the name has none.
        threads: of a threadgroup.
        threadgroup_bytes: threadgroup memory.
        barriers: of all threadgroups together.
        requested_bytes: of device memory, read and written, as if nothing were cached.
        error_fraction: the largest error as a fraction of the bound of `bound`: "float32", or "TF32" for operands that
            are cut to 11 significant bits.
        seconds: median on the host, which says nothing about a GPU.
    """

    kernel: str
    threads: int
    threadgroup_bytes: int
    barriers: int
    requested_bytes: int
    error_fraction: float
    bound: str
    seconds: float

    def cells(self, flops: int) -> tuple[str, ...]:
        """All of it but the seconds: what is the same on every machine."""
        return (
            self.kernel,
            str(self.threads),
            str(self.threadgroup_bytes),
            str(self.barriers),
            f"{self.requested_bytes / 1e6:.2f}",
            f"{flops / self.requested_bytes:.2f}",
            f"{self.error_fraction:.2f} {self.bound}",
        )


DEMANDS = ("kernel", "threads", "memory B", "barriers", "MB", "FLOP/byte", "error")


def own_demands(measured: Iterable[Measured]) -> list[Demands]:
    """Of those that are kernels of ours, where this build can count."""
    simdgroups = {kernel.name: kernel.simdgroups for kernel in kernels()}
    return [
        Demands(
            m.timing.name,
            32 * simdgroups[m.timing.name],
            m.report.threadgroup_bytes,
            m.report.barriers,
            m.report.requested_read_bytes + m.report.requested_write_bytes,
            m.timing.error_fraction,
            "float32",
            m.timing.median_s,
        )
        for m in measured
        if m.report and m.report.requested_read_bytes is not None and m.report.requested_write_bytes is not None
    ]


def peer_demands(size: int) -> list[Demands]:
    """Of MLX's own kernels on our host runtime, compiled here from the headers of the installed mlx package.

    Raises:
        ValueError: not in a clone of mlx_gemm, or without a C++ compiler.
        bench.WrongResult: a result is outside its bound.
    """
    tools = Path(__file__).resolve().parent.parent / "tools"
    if not (tools / "mlx_peers.py").exists():
        raise ValueError("--peers compiles MLX's kernels with tools/ of a clone of mlx_gemm, and this is not one")
    sys.path.append(str(tools))
    mlx_peers = importlib.import_module("mlx_peers")
    try:
        demands: list[Demands] = mlx_peers.demands(size)
        return demands
    except mlx_peers.CompileError as error:
        raise ValueError(f"--peers compiles MLX's kernels: {error}") from error


def demands_table(size: int, rows: Iterable[Demands]) -> str:
    flops = bench.Shape(size, size, size).flops
    return format_table((*DEMANDS, "host s"), ((*row.cells(flops), f"{row.seconds:.3f}") for row in rows))


def split_by_support(size: int, rows: Iterable[KernelInfo]) -> tuple[list[str], list[str]]:
    """Names of the kernels that can run M = N = K = size, and the rules that keep the others from it."""
    able, rules = [], []
    for kernel in rows:
        rule = _ext.unsupported(kernel.name, size, size, size)
        if rule is None:
            able.append(kernel.name)
        else:
            rules.append(rule)
    return able, rules
