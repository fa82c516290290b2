"""Rewrite the README's benchmark table from the results that are committed.

    python benchmarks/report.py [--check]

The tables stand between the two markers below: one for each run that is the latest of some case on its machine. Files
that git does not track are never quoted. --check changes nothing and fails when the README would change.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN = "<!-- benchmarks: begin (written by benchmarks/report.py) -->"
END = "<!-- benchmarks: end -->"


Record = dict[str, Any]

# What candidates are compared with: names in the records, and in the table.
REFERENCES = {"mx.matmul": "MLX", "mlx.nn.Linear": "MLX", "numpy": "NumPy", "torch": "PyTorch"}
COLUMNS = ["MLX", "NumPy", "PyTorch"]


def committed_results(root: Path) -> list[list[Record]]:
    """The runs that are the latest of a case, without the cases that ran again: by machine and suite, newest first."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "benchmarks/results/*.jsonl"], capture_output=True, text=True, check=True
    )
    runs: dict[tuple[str, str], list[list[Record]]] = {}
    for path in (Path(line) for line in listed.stdout.splitlines()):
        records = [json.loads(line) for line in (root / path).read_text().splitlines()]
        runs.setdefault((path.parent.name, records[0]["suite"]), []).append(records)
    result = []
    for key in sorted(runs):
        seen: set[str] = set()
        for records in sorted(runs[key], key=lambda run: run[0]["date"], reverse=True):
            if latest := [record for record in records if record["case"] not in seen]:
                result.append(latest)
            seen |= {record["case"] for record in records}
    return result


def render(runs: list[list[Record]]) -> str:
    """The Markdown between the markers."""
    return "\n".join(section(records) for records in runs)


def section(records: list[Record]) -> str:
    """One run: where it was made, and a row for each of our results with its speed relative to the others'."""
    first = records[0]
    machine = first["machine"]
    lines = [
        f"**{machine['cpu']}, {machine['cores']} cores**, {machine['os'].split()[0]}, MLX {machine['mlx']}, "
        f"NumPy {machine['numpy']} ({machine['numpy_blas']}), {pytorch(machine)}commit "
        f"{first['git_sha'][:10]}{' with changes' if first['git_dirty'] else ''}, {first['date'][:10]}. "
        f"`{first['command']}`; medians of samples taken in turns, every result checked against float64.",
        "",
        f"| M=N=K, float32 unless it says else | what | ms | GFLOP/s | {' | '.join(f'x {c}' for c in COLUMNS)} |",
        f"|---|---|{'---:|' * (2 + len(COLUMNS))}",
    ]
    cases: dict[str, list[Record]] = {}
    for record in records:
        cases.setdefault(record["case"], []).append(record)
    return "\n".join([*lines, *(row for case in cases.values() for row in rows(case))]) + "\n"


def pytorch(machine: dict[str, Any]) -> str:
    version = machine.get("torch", "none")
    return "" if version == "none" else f"PyTorch {version}, "


def rows(case: list[Record]) -> list[str]:
    """Our candidates of one case."""
    references = {REFERENCES[r["candidate"]]: r["median_s"] for r in case if r["candidate"] in REFERENCES}
    result = []
    for record in case:
        if record["candidate"] not in REFERENCES:
            ratios = [f"{references[c] / record['median_s']:.2f}" if c in references else "" for c in COLUMNS]
            cells = [size(record), f"`{record['candidate']}`", f"{record['median_s'] * 1e3:.3g}", speed(record)]
            result.append(f"| {' | '.join([*cells, *ratios])} |")
    return result


def size(record: dict[str, Any]) -> str:
    if "llama" in record:
        return f"llama, {record['tokens']} tokens"
    m, n, k = record["m"], record["n"], record["k"]
    parts = [str(m) if m == n == k else f"{m} x {n} x {k}"]
    if record.get("batch", 1) != 1:
        parts.insert(0, f"{record['batch']} of")
    parts += [record[key] for key, usual in (("layout", "nn"), ("dtype", "float32")) if record.get(key, usual) != usual]
    return " ".join(parts)


def speed(record: dict[str, Any]) -> str:
    return f"{record['gflops']:.1f}" if "gflops" in record else ""


def rewritten(readme: str, table: str) -> str:
    """The README with the text between the markers replaced.

    Raises:
        ValueError: a marker is missing or there are several.
    """
    for marker in (BEGIN, END):
        if readme.count(marker) != 1:
            raise ValueError(f"README.md must hold the line {marker!r} once")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table}{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Rewrite the README's benchmark table from committed results.")
    parser.add_argument("--check", action="store_true", help="fail instead of writing when the table is stale")
    options = parser.parse_args()
    path = ROOT / "README.md"
    readme = path.read_text()
    try:
        fresh = rewritten(readme, render(committed_results(ROOT)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if options.check and fresh != readme:
        print("README.md is stale: run python benchmarks/report.py", file=sys.stderr)
        return 1
    if not options.check:
        path.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
