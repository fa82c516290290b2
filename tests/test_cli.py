"""python -m mlx_gemm, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from shapes import LADDER_NAMES, NAMES

import mlx_gemm
from mlx_gemm import __main__ as cli
from mlx_gemm import bench, demo, demo_model, ladder

WIDTH = 100


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mlx_gemm", *arguments], capture_output=True, text=True, check=False)


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it fits the terminal, and nothing ends in blanks."""
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= WIDTH and line == line.rstrip() for line in text.splitlines())
    return text


def test_the_module_runs() -> None:
    done = run("list")
    assert done.returncode == 0
    assert done.stderr == ""
    assert all(name in done.stdout for name in NAMES)


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("demo", "list", "ladder", "env", "explain"):
        assert re.search(rf"^\s+{command}\s+\w", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: demo|list|ladder|env|explain"),
        (["dance"], "invalid choice: 'dance'"),
        (["ladder", "--size", "0"], "expected a whole number from 1 to 4096, got '0'"),
        (["ladder", "--size", "x"], "expected a whole number from 1 to 4096, got 'x'"),
        (["ladder", "--size", "4097"], "expected a whole number from 1 to 4096, got '4097'"),
        (["list", "naiv"], "no kernel is called 'naiv'"),
        (["explain", "1", "2"], "the following arguments are required: K"),
        (["explain", "1", "2", "-3"], "-3"),
        (["explain", "1", "2", "2147483648"], "expected a whole number from 1 to 2147483647, got '2147483648'"),
        (["explain", "1", "2", "3", "--kernel", "naiv"], "no kernel is called 'naiv'; the nearest names are naive"),
        (["explain", "1", "2", "3", "--kernel", "simdgroup_8x8"], "simdgroup_8x8 needs M to be a multiple of 8"),
        (["explain", "1", "2", "3", "--dtype", "int8"], "invalid choice: 'int8'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert done.stderr.startswith("python -m mlx_gemm")
    assert len(done.stderr.splitlines()) == 1


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "list").splitlines()
    assert [line.split()[0] for line in lines[1 : len(NAMES) + 1]] == NAMES


@pytest.mark.parametrize("kernel", mlx_gemm.kernels(), ids=NAMES)
def test_list_one_kernel(kernel: mlx_gemm.KernelInfo, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "list", kernel.name)
    assert kernel.name in text
    assert kernel.summary in text


def test_ladder(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "ladder", "--size", "64")
    for name in LADDER_NAMES:
        assert name in text
    assert re.search(r"^simdgroup_8x8 .* 68\.72 +2\.00$", text, re.MULTILINE)
    assert "tensorops_sync_64x64_k128 needs K to be a multiple of 128, got K=64" in text


def test_env(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "env")
    for fact in ("cpu", "cores", "mlx", "numpy", "blas", "gpu"):
        assert re.search(rf"^{fact} +\S", text, re.MULTILINE)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "explain", "64", "48", "32", "--layout", "tn")
    assert "M=64 N=48 K=32 tn float32" in text
    assert "naive" in text
    assert "simdgroup_8x8" in output(capsys, "explain", "64", "48", "32", "--kernel", "simdgroup_8x8")
    assert "float16" in output(capsys, "explain", "64", "48", "32", "--dtype", "float16")


def test_explain_allocates_no_operands(capsys: pytest.CaptureFixture[str]) -> None:
    assert "M=4000000 N=2 K=4000000" in output(capsys, "explain", "4000000", "2", "4000000")


def test_a_closed_pipe_is_no_traceback() -> None:
    command = f"{sys.executable} -m mlx_gemm list | true"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_wrong_kernel_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong() -> None:
        raise bench.WrongResult("naive is wrong")

    monkeypatch.setattr(demo, "run", wrong)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err == "python -m mlx_gemm demo: naive is wrong\n"


def test_demo_in_small(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "SIZES", (64, 128))
    monkeypatch.setattr(demo, "TENSOROPS_SIZE", 128)
    monkeypatch.setattr(demo, "MODEL", demo_model.Config(layers=1, width=64, hidden=96, heads=4, vocabulary=50))
    monkeypatch.setattr(ladder, "QUICK", bench.Settings(warmup_s=0, sample_s=0, rounds=1))
    text = output(capsys, "demo")
    assert text.count("M = N = K = ") == 3
    assert text.count("\nmx.matmul ") == 3
    assert "nn.swap replaced 8 layers in place; restore() has put them back." in text


@pytest.mark.slow
def test_demo_takes_less_than_two_minutes() -> None:
    done = run("demo")
    assert done.returncode == 0
    seconds = re.search(r"All of this took (\d+) s\.", done.stdout)
    assert seconds
    assert int(seconds[1]) < 120
    assert all(len(line) <= WIDTH for line in done.stdout.splitlines())
