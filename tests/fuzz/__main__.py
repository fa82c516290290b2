"""Fuzzes the ops and prints one line per failure that repeats it.

python -m tests.fuzz --minutes 10            # from the root of the repository
python -m tests.fuzz --seed 1234 --cases 1   # what a failure prints
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random

import mlx.core as mx

from .cases import Case, draw
from .judge import check

# Cases of one process: a crash or a hang ends no more than these, and tells where it was.
CHUNK = 250
CHUNK_SECONDS = 600


def failures(seed: int, count: int) -> Iterator[tuple[int, Case, BaseException]]:
    """The cases that fail among those of `count` seeds from `seed` on."""
    for case_seed in range(seed, seed + count):
        case = draw(Random(case_seed))
        try:
            check(case)
        except Exception as error:
            yield case_seed, case, error


def run_here(seed: int, count: int) -> int:
    failed = 0
    for case_seed, case, error in failures(seed, count):
        failed += 1
        print(f"{type(error).__name__}: {error}\n  {case}\n  repeat: python -m tests.fuzz --seed {case_seed} --cases 1")
    return failed


def run_for(minutes: float, seed: int) -> int:
    end, start, failed = time.monotonic() + 60 * minutes, seed, 0
    while time.monotonic() < end:
        command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--cases", str(CHUNK)]
        try:
            status = subprocess.run(command, timeout=CHUNK_SECONDS).returncode
        except subprocess.TimeoutExpired:
            status = "no end"
        if status not in (0, 1):
            print(f"died with {status}\n  repeat: {' '.join(command[1:])}")
        failed += status != 0
        seed += CHUNK
    print(f"{seed - start} cases from seed {start}: {failed or 'no'} processes failed")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float)
    length.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the next ones count up from it")
    arguments = parser.parse_args()
    mx.set_default_device(mx.cpu)
    if arguments.minutes is not None:
        return int(run_for(arguments.minutes, arguments.seed) > 0)
    return int(run_here(arguments.seed, arguments.cases) > 0)


if __name__ == "__main__":
    sys.exit(main())
