"""Measure a suite of benchmarks/suites.toml and write one JSON line per case and candidate.

    python benchmarks/run.py foundation

The lines go to benchmarks/results/<machine>/<suite>-<time>.jsonl; nothing is written when a result is wrong or the
machine is busy. benchmarks/report.py turns committed lines into the README's table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import mlx.core as mx
from tqdm import tqdm

from mlx_gemm import bench, demo_model, kernels, machine

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent

# For what else is running to finish.
RETRY_AFTER_S = 15


def names_of(case: dict[str, Any]) -> list[str]:
    """The candidates of a case: those named, then the families' kernels in the registry's order."""
    families = case.get("families", [])
    named = [name for name in case["candidates"] if name != "torch" or importlib.util.find_spec("torch")]
    return [*named, *(k.name for k in kernels() if k.family in families)]


def shape_of(case: dict[str, Any]) -> bench.Shape:
    """M, N, K and, where it is not the usual one, type, layout and batch."""
    lengths = [case["size"]] * 3 if "size" in case else [case[name] for name in ("m", "n", "k")]
    return bench.Shape(*lengths, **{name: case[name] for name in ("dtype", "layout", "batch") if name in case})


Measure = Callable[..., list[dict[str, Any]]]


def measure_products(case: dict[str, Any], suite: dict[str, Any], seed: int, **options: Any) -> list[dict[str, Any]]:
    """Records of the candidates for one product."""
    stream = mx.Device(getattr(mx, suite["device"]))
    timings = bench.compare(shape_of(case), names_of(case), seed=seed, stream=stream, **options)
    return bench.records(shape_of(case), timings, suite["baseline"])


def measure_llama(case: dict[str, Any], suite: dict[str, Any], seed: int, **options: Any) -> list[dict[str, Any]]:
    """Records of a llama before and after `nn.swap`; its time is that of a whole prefill."""
    with mx.stream(mx.Device(getattr(mx, suite["device"]))):
        pair = demo_model.swap_pair(demo_model.Config(**case["llama"]), (1, case["tokens"]))
        before, after = bench.measure(pair.candidates, pair.oracle, **options)
    return [
        {
            "candidate": timing.name,
            "llama": case["llama"],
            "tokens": case["tokens"],
            "median_s": timing.median_s,
            "p10_s": timing.p10_s,
            "p90_s": timing.p90_s,
            "samples": len(timing.samples_s),
            "error_fraction": timing.error_fraction,
            "baseline": before.name,
            "ratio": before.median_s / timing.median_s,
        }
        for timing in (before, after)
    ]


def measure_case(case: dict[str, Any], suite: dict[str, Any], seed: int, attempts: int) -> list[dict[str, Any]]:
    """Records of one case; a busy machine is given a few chances to calm down."""
    measure: Measure = measure_llama if "llama" in case else measure_products
    settings = bench.Settings(**suite.get("settings", {}))
    total = settings.rounds * (2 if "llama" in case else len(names_of(case)))
    for attempts_left in reversed(range(attempts)):
        canary = bench.Canary()
        with tqdm(total=total, desc=case["name"], leave=False, disable=None) as bar:
            try:
                records = measure(
                    case,
                    suite,
                    seed,
                    settings=settings,
                    canary=canary,
                    progress=lambda name, bar=bar: bar.update(),
                )
                break
            except bench.MachineBusy:
                if attempts_left == 0:
                    raise
                time.sleep(RETRY_AFTER_S)
    watch = {"canary_slowdown": canary.slowdown, "canary_least_share": min(canary.shares)}
    return [{"case": case["name"], **record, **watch} for record in records]


def run(suite_name: str, suite: dict[str, Any], seed: int, attempts: int) -> list[dict[str, Any]]:
    """Records of every case of a suite, each with what is needed to judge and to repeat it."""
    context = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": f"python benchmarks/run.py {shlex.join(sys.argv[1:])}",
        "seed": seed,
        **machine.git_state(FOLDER.parent, but="benchmarks/results"),
        "machine": machine.facts(),
    }
    measured = [record for case in suite["case"] for record in measure_case(case, suite, seed, attempts)]
    return [{"suite": suite_name, **record, **context} for record in measured]


def main() -> int:
    suites = tomllib.loads((FOLDER / "suites.toml").read_text())
    parser = argparse.ArgumentParser(description="Measure a suite of benchmarks/suites.toml.")
    parser.add_argument("suite", choices=sorted(suites))
    parser.add_argument("--case", nargs="+", metavar="NAME", help="only these cases of the suite")
    parser.add_argument("--seed", type=int, default=0, help="of the random operands (default 0)")
    parser.add_argument("--attempts", type=int, default=3, help="tries per case while the machine is busy (default 3)")
    options = parser.parse_args()
    suite = suites[options.suite]
    if options.case:
        known = {case["name"]: case for case in suite["case"]}
        if unknown := set(options.case) - set(known):
            parser.error(f"{options.suite} has no case {', '.join(sorted(unknown))}; its cases: {', '.join(known)}")
        suite = {**suite, "case": [known[name] for name in options.case]}
    try:
        records = run(options.suite, suite, options.seed, options.attempts)
    except (bench.WrongResult, bench.MachineBusy) as refusal:
        print(f"nothing recorded: {refusal}", file=sys.stderr)
        return 1
    folder = FOLDER / "results" / machine.slug()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{options.suite}-{records[0]['date'].replace(':', '').replace('+0000', 'Z')}.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    for record in records:
        print(
            f"{record['case']:20} {record['candidate']:28} {record['median_s'] * 1e3:10.4f} ms  {record['ratio']:6.2f}x"
        )
    print(f"wrote {path.relative_to(FOLDER.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
