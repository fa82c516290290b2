"""MLX's own kernels beside ours: what is counted follows from their tiles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mlx_peers
import pytest

from mlx_gemm import __main__ as cli
from mlx_gemm import ladder

N = 512


@pytest.fixture(scope="module")
def rows() -> dict[str, ladder.Demands]:
    return {row.kernel: row for row in mlx_peers.demands(N)}


def expect(row: ladder.Demands, *, threads: int, memory: int, barriers: int, read_elements: int) -> None:
    assert row.threads == threads
    assert row.threadgroup_bytes == memory
    assert row.barriers == barriers
    assert row.requested_bytes == 4 * (read_elements + N * N)


@pytest.mark.slow
def test_fused_counts(rows: dict[str, ladder.Demands]) -> None:
    """Each tile stages its rows of A and columns of B, padded by four elements, between two barriers a step.

    One barrier more comes before all steps, and one after them.
    """
    steps, tiles = N // 16, (N // 64) ** 2
    expect(
        rows["steel_gemm_fused 64x64x16"],
        threads=4 * 32,
        memory=4 * (64 * (16 + 4) + 16 * (64 + 4)),
        barriers=tiles * (2 * steps + 2),
        read_elements=tiles * steps * (64 * 16 + 16 * 64),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("bm", "bn", "bk"), [(128, 128, 512), (64, 128, 256)])
def test_nax_counts(rows: dict[str, ladder.Demands], bm: int, bn: int, bk: int) -> None:
    """Each SIMD group reads the operands of its 32 x 32 outputs by itself.

    All of them wait for each other every bk, and once more at the start.
    """
    simdgroups, tiles = (bm // 32) * (bn // 32), (N // bm) * (N // bn)
    expect(
        rows[f"steel_gemm_fused_nax {bm}x{bn}x{bk}"],
        threads=32 * simdgroups,
        memory=0,
        barriers=tiles * (N // bk + 1),
        read_elements=tiles * simdgroups * N * (32 + 32),
    )


@pytest.mark.slow
def test_errors_are_measured_against_the_right_bound(rows: dict[str, ladder.Demands]) -> None:
    for row in rows.values():
        assert row.bound == ("TF32" if "nax" in row.kernel else "float32")
        assert 0 < row.error_fraction <= 1
        assert row.seconds > 0


@pytest.mark.slow
def test_the_command_shows_ours_and_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ladder", "--size", "64", "--peers"]) == 0
    text = capsys.readouterr().out
    table = text[text.index("What kernels ask of the machine") :].splitlines()
    assert all(len(line) <= 100 for line in table)
    assert "MLX's kernels on our host runtime" in table[0]
    named = [line.split()[0] for line in table[5:]]
    assert named[-len(mlx_peers.PEERS) :] == [peer.template for peer in mlx_peers.PEERS]
    assert set(named[: -len(mlx_peers.PEERS)]) <= {kernel.name for kernel in ladder.rungs()}
    assert "naive" in named


@pytest.mark.slow
def test_document_is_fresh() -> None:
    root = Path(mlx_peers.ROOT)
    done = subprocess.run([sys.executable, "tools/peers_doc.py", "--check"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_without_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ladder, "__file__", str(tmp_path / "mlx_gemm" / "ladder.py"))
    refused(capsys, "tools/ of a clone of mlx_gemm, and this is not one")


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    refused(capsys, "there is no C++ compiler 'no-such-compiler': install g++, or set CXX")


def refused(capsys: pytest.CaptureFixture[str], reason: str) -> None:
    assert cli.main(["ladder", "--peers"]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert len(error.splitlines()) == 1
    assert reason in error
