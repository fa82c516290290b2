"""The teaching ladder as tables: what each kernel asks of memory by formula, and what it does when it runs here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
