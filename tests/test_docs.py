"""Documents are derived: the kernel table from the registry, the README's numbers from committed results."""

from __future__ import annotations

import copy
import doctest
import importlib
import inspect
import json
import re
import subprocess
from pathlib import Path

import kernels_doc
import pytest
import report
from nanobind.stubgen import StubGen

import mlx_gemm
from mlx_gemm import _ext

ROOT = Path(__file__).resolve().parent.parent

RECORD = {
    "suite": "foundation", "case": "automatic-1024", "candidate": "mlx_gemm", "baseline": "mx.matmul",
    "m": 1024, "n": 1024, "k": 1024, "median_s": 0.0174, "gflops": 123.456, "ratio": 20.504,
    "date": "2026-01-02T03:04:05+00:00",
    "command": "python benchmarks/run.py foundation", "git_sha": "0123456789abcdef", "git_dirty": False,
    "machine": {"cpu": "Some CPU", "cores": 2, "os": "Linux 6 x86_64", "mlx": "0", "numpy": "1", "numpy_blas": "b 1"},
}  # fmt: skip


@pytest.mark.parametrize("module", ["ops", "kernels", "host", "nn", "bench", "routing"])
def test_examples_in_docstrings_run(module: str) -> None:
    # By name: the function `kernels` stands in the package where its module would.
    results = doctest.testmod(importlib.import_module(f"mlx_gemm.{module}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_stubs_are_fresh() -> None:
    stubs = StubGen(_ext)
    stubs.put(_ext)
    assert stubs.get() == (ROOT / "mlx_gemm" / "_ext.pyi").read_text(), "make stubs"


def test_help_says_what_every_public_function_takes_returns_and_raises() -> None:
    public = [getattr(mlx_gemm, name) for name in mlx_gemm.__all__ if not name.startswith("_")]
    functions = [f for f in public if inspect.isfunction(f)]
    assert len(functions) >= 7
    for function in functions:
        text = inspect.getdoc(function) or ""
        assert "Example:" in text or "Returns:" in text, function.__name__
        for parameter in inspect.signature(function).parameters:
            assert f"\n    {parameter}: " in text, f"{function.__name__}({parameter})"


def test_kernel_table_is_fresh() -> None:
    assert (ROOT / "docs" / "kernels.md").read_text() == kernels_doc.render(mlx_gemm.kernels())


def test_kernel_table_has_a_row_for_every_kernel() -> None:
    text = kernels_doc.render(mlx_gemm.kernels())
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [kernel.name for kernel in mlx_gemm.kernels()]


def test_readme_numbers_come_from_committed_results() -> None:
    readme = (ROOT / "README.md").read_text()
    assert report.rewritten(readme, report.render(report.committed_results(ROOT))) == readme


def test_committed_results_hold_nothing_private() -> None:
    for path in (ROOT / "benchmarks" / "results").rglob("*.jsonl"):
        for line in path.read_text().splitlines():
            assert not re.search(r'"/|"~|(?<!\w)/(home|root|Users|work|tmp)\b', line), f"{path.name} holds a path"
            record = json.loads(line)
            assert record["error_fraction"] <= 1
            assert record["git_sha"]


def test_a_section_quotes_the_records() -> None:
    references = [{**RECORD, "candidate": name, "median_s": s} for name, s in (("mx.matmul", 0.348), ("torch", 0.0087))]
    text = report.render([[RECORD, *references]])
    assert "| what | ms | GFLOP/s | x MLX | x NumPy | x PyTorch |" in text
    assert [line for line in text.splitlines() if line.startswith("| 1024")] == [
        "| 1024 | `mlx_gemm` | 17.4 | 123.5 | 20.00 |  | 0.50 |"
    ]
    assert "**Some CPU, 2 cores**" in text
    assert "commit 0123456789," in text


def test_only_tracked_files_and_the_latest_run_are_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks" / "results" / "some-cpu"
    folder.mkdir(parents=True)
    for name, date, tracked in (("a", "2026-01-03", True), ("b", "2026-01-02", True), ("c", "2026-01-04", False)):
        record = {**copy.deepcopy(RECORD), "date": date, "candidate": name}
        (folder / f"foundation-{name}.jsonl").write_text(json.dumps(record) + "\n")
        subprocess.run(["git", "init", "-q", tmp_path], check=True)
        if tracked:
            subprocess.run(["git", "-C", tmp_path, "add", folder / f"foundation-{name}.jsonl"], check=True)
    (run,) = report.committed_results(tmp_path)
    assert [record["candidate"] for record in run] == ["a"]

    cases = {"superseded": RECORD["case"], "latest": "another"}
    older = [{**copy.deepcopy(RECORD), "date": "2026-01-01", "candidate": n, "case": c} for n, c in cases.items()]
    path = folder / "foundation-d.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in older))
    subprocess.run(["git", "-C", tmp_path, "add", path], check=True)
    runs = report.committed_results(tmp_path)
    assert [[record["candidate"] for record in run] for run in runs] == [["a"], ["latest"]]  # of every case


def test_rewriting_keeps_the_rest_of_the_readme() -> None:
    readme = f"# before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    fresh = report.rewritten(readme, "new\n")
    assert fresh == f"# before\n{report.BEGIN}\nnew\n{report.END}\nafter\n"
    assert report.rewritten(fresh, "new\n") == fresh


def test_missing_markers_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"README\.md must hold the line"):
        report.rewritten("# no markers\n", "new\n")
