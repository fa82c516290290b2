"""The benchmark core, on clocks that the tests drive."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference import normal

from mlx_gemm import bench, machine
from mlx_gemm.oracle import Oracle

SETTINGS = bench.Settings(warmup_s=1.0, sample_s=0.125, rounds=4, budget_s=10.0, least_rounds=2)


class Machine:
    """Real and processor time, which pass only when something runs."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0
        self.log: list[str] = []

    def candidate(self, name: str, seconds: float, result: object, settle_s: float = 0.0) -> bench.Candidate:
        def run() -> object:
            self.wall += seconds
            self.log.append(name)
            return result

        return bench.Candidate(name, run, settle_s)

    def canary(
        self, seconds: Callable[[], float] = lambda: 0.01, share: Callable[[], float] = lambda: 1.0
    ) -> bench.Canary:
        def work() -> None:
            taken = seconds()
            self.wall += taken
            self.cpu += taken * 2 * share()
            self.log.append("canary")

        return bench.Canary(work, wall=lambda: self.wall, cpu=lambda: self.cpu, cores=2)

    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.log.append(f"wait {seconds}")

    def measure(self, candidates: list[bench.Candidate], oracle: Oracle, **options: object) -> list[bench.Timing]:
        options = {"settings": SETTINGS, **options}
        return bench.measure(candidates, oracle, clock=lambda: self.wall, wait=self.wait, **options)


@pytest.fixture
def product(seed: int) -> tuple[np.ndarray, Oracle]:
    a, b = normal((16, 32), seed), normal((32, 16), seed + 1)
    return a @ b, Oracle.of_product(a, b)


def test_medians_and_calls_per_sample(product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    host = Machine()
    fast, slow = host.measure([host.candidate("fast", 1 / 64, right), host.candidate("slow", 0.5, right)], oracle)
    assert (fast.name, slow.name) == ("fast", "slow")
    assert (fast.median_s, slow.median_s) == (1 / 64, 0.5)
    assert len(fast.samples_s) == len(slow.samples_s) == SETTINGS.rounds
    assert 0 < fast.error_fraction <= 1
    # The gate, the warm-up, and samples of eight calls, after four untimed ones, and of one.
    assert host.log.count("fast") == 1 + 64 + 4 * (4 + 8)
    assert host.log.count("slow") == 1 + 2 + 4


def test_percentiles() -> None:
    timing = bench.Timing("x", 0.5, tuple(float(i) for i in range(11)))
    assert (timing.p10_s, timing.median_s, timing.p90_s) == (1.0, 5.0, 9.0)


def test_candidates_take_turns_in_both_directions(product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    host = Machine()
    order: list[str] = []
    host.measure([host.candidate(name, 1.0, right) for name in "abc"], oracle, progress=order.append)
    assert "".join(order) == "abccbaabccba"


def test_idle_threads_may_settle_before_the_next_candidate(product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    host = Machine()
    host.measure([host.candidate("blas", 1.0, right, settle_s=0.25), host.candidate("x", 1.0, right)], oracle)
    log = " ".join(host.log)
    assert "blas x" not in log[log.index("wait") :]
    assert log.count("blas wait 0.25") == 1 + SETTINGS.rounds


def test_a_slow_candidate_stops_at_its_budget(product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    host = Machine()
    fast, slow = host.measure([host.candidate("fast", 1.0, right), host.candidate("slow", 60.0, right)], oracle)
    assert (len(fast.samples_s), len(slow.samples_s)) == (4, 2)


@pytest.mark.parametrize("wrong", ["nan", "off by one", "zeros"])
def test_the_gate_refuses_a_wrong_candidate(wrong: str, product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    result = right.copy()
    result[3, 5] = {"nan": np.nan, "off by one": result[3, 5] + 1, "zeros": 0}[wrong]
    host = Machine()
    with pytest.raises(bench.WrongResult, match=r"^bad is wrong: its error at \(3, 5\) is \S+ times the bound$"):
        host.measure([host.candidate("good", 0.01, right), host.candidate("bad", 0.01, result)], oracle)
    assert host.log == ["good", "bad"], "something was timed"


def test_a_quiet_machine_is_accepted(product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    host = Machine()
    canary = host.canary(share=lambda: 0.9)
    host.measure([host.candidate("x", 1.0, right)], oracle, canary=canary)
    assert len(canary.samples_s) == SETTINGS.rounds + 1
    assert canary.slowdown == pytest.approx(1)


@pytest.mark.parametrize("busy_from_s", [0.0, 3.5, 5.5])
def test_the_canary_refuses_a_machine_that_shares_its_cores(
    busy_from_s: float, product: tuple[np.ndarray, Oracle]
) -> None:
    right, oracle = product
    host = Machine()
    canary = host.canary(share=lambda: 0.5 if host.wall >= busy_from_s else 1.0)
    with pytest.raises(bench.MachineBusy, match="this process got 50% of its 2 cores: something else is running"):
        host.measure([host.candidate("x", 1.0, right)], oracle, canary=canary)


def test_the_canary_refuses_a_machine_that_slows_down(product: tuple[np.ndarray, Oracle]) -> None:
    right, oracle = product
    host = Machine()
    canary = host.canary(seconds=lambda: 0.02 if host.wall > 4 else 0.01)
    with pytest.raises(bench.MachineBusy, match=r"the same work took 2\.00 times as long"):
        host.measure([host.candidate("x", 1.0, right)], oracle, canary=canary)


def test_one_slow_repeat_is_not_a_busy_machine() -> None:
    host = Machine()
    seconds = iter([0.01, 0.09, 0.01, 0.01, 0.05] * 2)
    canary = host.canary(seconds=lambda: next(seconds))
    canary.sample()
    canary.sample()
    canary.verify()
    assert canary.slowdown == pytest.approx(1)


def test_records_carry_units_and_ratios() -> None:
    shape = bench.Shape(100, 200, 300)
    timings = [bench.Timing("mx.matmul", 0.1, (0.02, 0.03, 0.01)), bench.Timing("naive", 0.2, (0.04,))]
    base, naive = bench.records(shape, timings, "mx.matmul")
    assert base["median_s"] == 0.02
    assert base["gflops"] == pytest.approx(2 * 100 * 200 * 300 / 0.02 / 1e9)
    assert (base["ratio"], naive["ratio"]) == (1.0, 0.5)
    assert (naive["candidate"], naive["m"], naive["n"], naive["k"], naive["samples"]) == ("naive", 100, 200, 300, 1)
    with pytest.raises(ValueError, match=r"baseline 'numpy' was not measured, only \['mx.matmul', 'naive'\]"):
        bench.records(shape, timings, "numpy")


def test_compare_measures_real_candidates(seed: int) -> None:
    settings = bench.Settings(warmup_s=0, sample_s=0, rounds=3)
    names = ["mlx_gemm", "mx.matmul", "numpy", "naive"]
    timings = bench.compare(bench.Shape(33, 17, 40), names, seed=seed, settings=settings)
    assert [timing.name for timing in timings] == names
    assert all(timing.median_s > 0 and timing.error_fraction <= 1 for timing in timings)


def test_compare_passes_on_what_a_kernel_cannot_do() -> None:
    with pytest.raises(ValueError, match="simdgroup_8x8 needs M to be a multiple of 8, got M=33"):
        bench.compare(bench.Shape(33, 17, 40), ["simdgroup_8x8"])


def test_facts_are_fit_to_publish() -> None:
    facts = json.dumps(machine.facts())
    for private in (platform.node(), str(Path.home()), sys.prefix, str(Path.cwd())):
        assert private not in facts
    assert "/" not in machine.slug()
    assert machine.slug().endswith(f"{machine.usable_cores()}-cores")


def test_git_state_tells_clean_from_dirty(tmp_path: Path) -> None:
    assert machine.git_state(tmp_path) == {}

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "one")
    state = machine.git_state(tmp_path)
    assert len(state["git_sha"]) == 40
    assert state["git_dirty"] is False
    (tmp_path / "file").write_text("two")
    assert machine.git_state(tmp_path) == {**state, "git_dirty": True}
    git("checkout", "file")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "new").write_text("new")
    assert machine.git_state(tmp_path) == {**state, "git_dirty": True}
    assert machine.git_state(tmp_path, but="results") == state
