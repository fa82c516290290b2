"""Rewrite the README's benchmark table from the results that are committed.

    python benchmarks/report.py [--check]

The table stands between the two markers below. For every machine it shows the latest run of each suite; files that git
does not track are never quoted. --check changes nothing and fails when the README would change.
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


def committed_results(root: Path) -> dict[str, list[dict[str, Any]]]:
    """Per machine folder, the records of the latest run of every suite."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "benchmarks/results/*.jsonl"], capture_output=True, text=True, check=True
    )
    latest: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for path in sorted(Path(line) for line in listed.stdout.splitlines()):
        records = [json.loads(line) for line in (root / path).read_text().splitlines()]
        key = (path.parent.name, records[0]["suite"])
        if key not in latest or latest[key][0]["date"] < records[0]["date"]:
            latest[key] = records
    machines: dict[str, list[dict[str, Any]]] = {}
    for (machine, _), records in sorted(latest.items()):
        machines.setdefault(machine, []).extend(records)
    return machines


def render(machines: dict[str, list[dict[str, Any]]]) -> str:
    """The Markdown between the markers."""
    return "\n".join(section(records) for records in machines.values())


def section(records: list[dict[str, Any]]) -> str:
    """One machine: what it is, and a table of its results."""
    first = records[0]
    machine = first["machine"]
    lines = [
        f"**{machine['cpu']}, {machine['cores']} cores**, {machine['os'].split()[0]}, MLX {machine['mlx']}, "
        f"NumPy {machine['numpy']} ({machine['numpy_blas']}), commit {first['git_sha'][:10]}"
        f"{' with changes' if first['git_dirty'] else ''}, {first['date'][:10]}. `{first['command']}`; medians of "
        "samples taken in turns, every result checked against float64.",
        "",
        "| M=N=K, float32 unless it says else | what | ms | GFLOP/s | ratio | to |",
        "|---|---|---:|---:|---:|---|",
    ]
    lines += [
        f"| {size(r)} | `{r['candidate']}` | {r['median_s'] * 1e3:.3g} | {speed(r)} | {r['ratio']:.2f} "
        f"| `{r['baseline']}` |"
        for r in records
    ]
    return "\n".join(lines) + "\n"


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
