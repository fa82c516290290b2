"""The benchmark core: check every result first, then time candidates side by side on a machine that is quiet.

    timings = compare(Shape(1024, 1024, 1024), ["mlx_gemm", "mx.matmul", "numpy"])

A candidate is a name: "mlx_gemm" (the kernel that `matmul` picks), "mx.matmul", "numpy", "torch", or a kernel of the
registry.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_gemm.machine import usable_cores
from mlx_gemm.ops import matmul
from mlx_gemm.oracle import Oracle

# OpenBLAS's idle threads spin this long before they sleep, and would take cores from whoever is timed next.
BLAS_SETTLE_S = 0.1

Progress = Callable[[str], object]
StreamOrDevice = mx.Stream | mx.Device | None


class WrongResult(RuntimeError):
    """A candidate's result is further from the reference than the oracle's bound; nothing was timed."""


class MachineBusy(RuntimeError):
    """Something else used the cores during a measurement; its numbers mean nothing."""


@dataclass(frozen=True)
class Shape:
    """C[M, N] = A[M, K] B[K, N], `batch` times; in layout "nt" B is the transpose of an array in memory."""

    M: int
    N: int
    K: int
    dtype: str = "float32"
    layout: str = "nn"
    batch: int = 1

    @property
    def flops(self) -> int:
        return 2 * self.M * self.N * self.K * self.batch

    def operands(self, seed: int = 0) -> tuple[mx.array, mx.array]:
        """A and B, normally distributed.

        Raises:
            ValueError: another layout than "nn" or "nt".
        """
        if self.layout not in ("nn", "nt"):
            raise ValueError(f"[mlx_gemm.bench.Shape] layout must be 'nn' or 'nt', got {self.layout!r}")
        random = np.random.default_rng(seed)
        many = () if self.batch == 1 else (self.batch,)
        transposed = self.layout == "nt"
        b_shape = (self.N, self.K) if transposed else (self.K, self.N)
        with mx.stream(mx.cpu):
            a, b = (
                mx.array(random.standard_normal(many + shape, dtype=np.float32)).astype(getattr(mx, self.dtype))
                for shape in ((self.M, self.K), b_shape)
            )
            b = mx.swapaxes(b, -1, -2) if transposed else b
            mx.eval(a, b)
        return a, b


@dataclass(frozen=True)
class Candidate:
    """Something to time.

    Attributes:
        name: for the records.
        run: computes, waits for the result, and returns it.
        settle_s: seconds that its idle threads stay busy after `run` has returned.
        values: makes an array for the check of what `run` returns.
    """

    name: str
    run: Callable[[], Any]
    settle_s: float = 0.0
    values: Callable[[Any], Any] = lambda result: result


@dataclass(frozen=True)
class Timing:
    """Seconds per call of one candidate.

    Attributes:
        name: of the candidate.
        error_fraction: its largest error as a fraction of the bound in `mlx_gemm.oracle`; at most 1.
        samples_s: seconds per call, one for each round.
    """

    name: str
    error_fraction: float
    samples_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)

    @property
    def p10_s(self) -> float:
        return float(np.percentile(self.samples_s, 10))

    @property
    def p90_s(self) -> float:
        return float(np.percentile(self.samples_s, 90))


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    Attributes:
        warmup_s: least time for which a candidate runs before its first sample.
        sample_s: least length of a sample; shorter calls are repeated within it, after half as many untimed ones.
        rounds: samples of each candidate.
        budget_s: a candidate that has used this much time takes no more than `least_rounds` samples.
        least_rounds: samples of even the slowest candidate.
    """

    warmup_s: float = 0.2
    sample_s: float = 0.02
    rounds: int = 15
    budget_s: float = 10.0
    least_rounds: int = 3


class Canary:
    """A fixed workload on every core. While the machine is quiet, it gets all the cores and always takes as long.

    Args:
        work: the workload; it must keep `cores` threads of this process busy.
        wall, cpu: clocks in seconds: real time, and processor time of this process.
        cores: number of cores that this process may use.
    """

    LEAST_SHARE = 0.7  # of the cores; quiet machines show 0.85 and more, one other busy process on two cores 0.5
    MOST_SLOWDOWN = 1.6  # over the fastest; quiet virtual machines show up to 1.3
    REPEATS = 5
    TRIES = 4  # another process stays; a hiccup of a virtual machine has passed by the next try

    def __init__(
        self,
        work: Callable[[], object] | None = None,
        *,
        wall: Callable[[], float] = time.perf_counter,
        cpu: Callable[[], float] = time.process_time,
        cores: int | None = None,
    ) -> None:
        self.cores = usable_cores() if cores is None else cores
        self._work = work or _hash_on_every_core(self.cores)
        self._wall, self._cpu = wall, cpu
        self.samples_s: list[float] = []
        self.shares: list[float] = []

    def sample(self) -> None:
        """Take a reading, again when it shows a busy machine, and keep the quietest."""
        readings = []
        for _ in range(self.TRIES):
            readings.append(self._reading())
            if readings[-1][0] >= self.LEAST_SHARE:
                break
        share, seconds = max(readings)
        self.shares.append(share)
        self.samples_s.append(seconds)

    def _reading(self) -> tuple[float, float]:
        """Medians, over a few runs of the workload, of the share of the cores that it got and of its seconds."""
        seconds, shares = [], []
        for _ in range(self.REPEATS):
            wall, cpu = self._wall(), self._cpu()
            self._work()
            seconds.append(self._wall() - wall)
            shares.append((self._cpu() - cpu) / (seconds[-1] * self.cores))
        return statistics.median(shares), statistics.median(seconds)

    @property
    def slowdown(self) -> float:
        """The slowest sample over the fastest."""
        return max(self.samples_s) / min(self.samples_s)

    def verify(self) -> None:
        """Raises MachineBusy unless every sample shows a quiet machine."""
        if min(self.shares) < self.LEAST_SHARE:
            raise MachineBusy(
                f"this process got {min(self.shares):.0%} of its {self.cores} cores: something else is running"
            )
        if self.slowdown > self.MOST_SLOWDOWN:
            raise MachineBusy(f"the same work took {self.slowdown:.2f} times as long at one time as at another")


def _hash_on_every_core(cores: int) -> Callable[[], object]:
    data = bytes(8 << 20)
    pool = ThreadPoolExecutor(cores)

    def work() -> object:
        return list(pool.map(lambda _: hashlib.sha256(data).digest(), range(cores)))

    return work


@dataclass
class _Run:
    """A candidate while it is being measured."""

    candidate: Candidate
    error_fraction: float
    calls: int = 1
    spent_s: float = 0.0
    samples_s: list[float] = field(default_factory=list)

    def warm_up(self, settings: Settings, clock: Callable[[], float]) -> None:
        start, calls = clock(), 0
        while calls == 0 or clock() - start < settings.warmup_s:
            self.candidate.run()
            calls += 1
        self.calls = max(1, round(settings.sample_s * calls / max(clock() - start, 1e-9)))

    def sample(self, clock: Callable[[], float]) -> None:
        # Whoever ran before, or nobody for a while, left other caches and clocks than a call finds after its like.
        for _ in range(self.calls // 2):
            self.candidate.run()
        start = clock()
        for _ in range(self.calls):
            self.candidate.run()
        taken = clock() - start
        self.samples_s.append(taken / self.calls)
        self.spent_s += taken

    def wants_more(self, settings: Settings) -> bool:
        return self.spent_s < settings.budget_s or len(self.samples_s) < settings.least_rounds


def measure(
    candidates: Sequence[Candidate],
    oracle: Oracle,
    *,
    settings: Settings = Settings(),
    canary: Canary | None = None,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[float], object] = time.sleep,
    progress: Progress = lambda name: None,
) -> list[Timing]:
    """Check every candidate, then time them in turns, so that a drift of the machine meets all of them.

    Args:
        candidates: what to time; every other round runs them in reverse order.
        oracle: says what the result must be.
        settings: how long to measure.
        canary: watches the machine, and refuses numbers from a busy one; None measures regardless.
        clock, wait: real time in seconds, and how to let it pass.
        progress: called with a candidate's name after each of its samples.

    Returns:
        One `Timing` per candidate, in their order.

    Raises:
        WrongResult: a candidate is wrong; no candidate has been timed then.
        MachineBusy: the canary found the machine busy before, during or after the measurement.
    """
    runs = [_Run(candidate, _error_fraction(candidate, oracle)) for candidate in candidates]
    for run in runs:
        run.warm_up(settings, clock)
        wait(run.candidate.settle_s)
    for turn in range(settings.rounds):
        if canary:
            canary.sample()
            canary.verify()
        for run in runs if turn % 2 == 0 else reversed(runs):
            if run.wants_more(settings):
                run.sample(clock)
                wait(run.candidate.settle_s)
            progress(run.candidate.name)
    if canary:
        canary.sample()
        canary.verify()
    return [Timing(run.candidate.name, run.error_fraction, tuple(run.samples_s)) for run in runs]


def _error_fraction(candidate: Candidate, oracle: Oracle) -> float:
    worst, at = oracle.worst(candidate.values(candidate.run()))
    if worst > 1:
        raise WrongResult(f"{candidate.name} is wrong: its error at {at} is {worst:.3g} times the bound")
    return worst


def _held(x: mx.array, layout: str) -> Any:
    """A float32 operand as NumPy's array, which lies in memory as `x` does, where `x` does: NumPy itself would take
    other pages. Half types are widened for it."""
    wide = x.astype(mx.float32)
    return np.asarray(mx.swapaxes(wide, -1, -2)).swapaxes(-1, -2) if layout == "nt" else np.asarray(wide)


def candidate(name: str, a: mx.array, b: mx.array, stream: StreamOrDevice = None, layout: str = "nn") -> Candidate:
    """The candidate of that name for the product `a @ b`. NumPy's is for float32 alone.

    Raises:
        ImportError: "torch" where PyTorch is not installed.
        ValueError: the kernel does not exist or cannot run these shapes (when the candidate runs).
    """
    if name == "numpy":
        left, right = _held(a, "nn"), _held(b, layout)
        return Candidate(name, lambda: left @ right, BLAS_SETTLE_S)
    if name == "torch":
        import torch

        kind = getattr(torch, str(a.dtype).rpartition(".")[2])
        x, y = (torch.from_numpy(_held(*operand)).to(kind) for operand in ((a, "nn"), (b, layout)))
        return Candidate(name, lambda: x @ y, BLAS_SETTLE_S, lambda result: result.float().numpy())
    if name == "mx.matmul":
        return Candidate(name, lambda: evaluated(mx.matmul(a, b, stream=stream)))
    if name == "mlx_gemm":
        return Candidate(name, lambda: evaluated(matmul(a, b, stream=stream)))
    return Candidate(name, lambda: evaluated(matmul(a, b, kernel=name, stream=stream)))


def evaluated(result: mx.array) -> mx.array:
    """`result`, computed."""
    mx.eval(result)
    return result


def compare(
    shape: Shape,
    names: Iterable[str],
    *,
    seed: int = 0,
    stream: StreamOrDevice = None,
    settings: Settings = Settings(),
    canary: Canary | None = None,
    progress: Progress = lambda name: None,
) -> list[Timing]:
    """Measure the named candidates on one random product. See `measure` for the rest.

    Example:
        >>> quick = Settings(warmup_s=0, sample_s=0, rounds=3)
        >>> [t.name for t in compare(Shape(64, 64, 64), ["mlx_gemm", "numpy"], settings=quick)]
        ['mlx_gemm', 'numpy']
    """
    a, b = shape.operands(seed)
    candidates = [candidate(name, a, b, stream, shape.layout) for name in names]
    return measure(
        candidates, Oracle.of_product(a, b, shape.dtype), settings=settings, canary=canary, progress=progress
    )


def records(shape: Shape, timings: Sequence[Timing], baseline: str) -> list[dict[str, str | int | float]]:
    """One flat record per candidate, ready for JSON; `ratio` is the baseline's median over the candidate's.

    Raises:
        ValueError: `baseline` is not among the timings.
    """
    medians = {timing.name: timing.median_s for timing in timings}
    if baseline not in medians:
        raise ValueError(f"[mlx_gemm.bench.records] baseline {baseline!r} was not measured, only {sorted(medians)}")
    return [
        {
            "candidate": timing.name,
            "m": shape.M,
            "n": shape.N,
            "k": shape.K,
            "dtype": shape.dtype,
            "layout": shape.layout,
            "batch": shape.batch,
            "median_s": timing.median_s,
            "p10_s": timing.p10_s,
            "p90_s": timing.p90_s,
            "samples": len(timing.samples_s),
            "gflops": shape.flops / timing.median_s / 1e9,
            "baseline": baseline,
            "ratio": medians[baseline] / timing.median_s,
            "error_fraction": timing.error_fraction,
        }
        for timing in timings
    ]
