"""Random calls: a few hundred in every run of the suite, and proof that the fuzzer finds what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import mlx.core as mx
import pytest
from fuzz.__main__ import failures
from fuzz.cases import VIEWS, draw
from fuzz.judge import check
from hypothesis import given, settings
from hypothesis import strategies as st

import mlx_gemm

ROOT = Path(__file__).resolve().parent.parent
CASES = 400

matmul, addmm = mlx_gemm.matmul, mlx_gemm.addmm


@settings(max_examples=CASES)
@given(random=st.randoms(use_true_random=False))
def test_random_calls(random: Random) -> None:
    check(draw(random))


def test_the_generator_draws_everything() -> None:
    cases = [draw(Random(seed)) for seed in range(2000)]
    operands = [operand for case in cases for operand in case.operands.values()]
    assert {case.op for case in cases} == {"matmul", "addmm", "linear"}
    assert {layer.kind for case in cases for layer in case.layers} == {"vjp", "jvp", "vmap", "compile"}
    assert {view for operand in operands for view in operand.views} == set(VIEWS)
    assert {len(operand.shape) for operand in operands} >= {0, 1, 2, 3, 4, 5}
    assert any(operand.repeated for operand in operands)
    assert any(0 in operand.shape for operand in operands)
    assert {name for case in cases for name in case.keywords} == {"alpha", "beta", "activation", "out_dtype", "kernel"}
    assert {case.stream for case in cases} == {0, 1, 2}


def rounds_to_half(a: mx.array, b: mx.array, **keywords: object) -> mx.array:
    half = mx.bfloat16 if a.dtype == b.dtype == mx.float32 else a.dtype
    return matmul(a.astype(half).astype(a.dtype), b, **keywords)


def drops_the_last_of_seventeen(a: mx.array, b: mx.array, **keywords: object) -> mx.array:
    """What a kernel with a wrong edge along K does."""
    if a.ndim == b.ndim == 2 and a.shape[1] == b.shape[0] and a.shape[1] % 4 == 1 and a.shape[1] > 4:
        return matmul(a[:, :-1], b[:-1], **keywords)
    return matmul(a, b, **keywords)


def forgets_beta_in_jvp(
    c: mx.array, a: mx.array, b: mx.array, alpha: float = 1, beta: float = 1, **keywords: object
) -> mx.array:
    @mx.custom_function
    def op(c: mx.array, a: mx.array, b: mx.array) -> mx.array:
        return addmm(c, a, b, alpha, beta, **keywords)

    @op.vjp
    def op_vjp(primals: tuple, cotangent: mx.array, _: mx.array) -> tuple:
        return tuple(mx.vjp(lambda *x: addmm(*x, alpha, 1.0, **keywords), list(primals), [cotangent])[1])

    return op(c, a, b)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("matmul", rounds_to_half), ("matmul", drops_the_last_of_seventeen), ("addmm", forgets_beta_in_jvp)],
)
def test_a_planted_bug_is_found_and_found_again(
    name: str, wrong: Callable[..., mx.array], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as planted:
        planted.setattr(mlx_gemm, name, wrong)
        found = next(failures(0, 2000), None)
        assert found is not None, "the planted bug was not found"
        seed = found[0]
        assert [again for again, _, _ in failures(seed, 1)] == [seed]
    assert not list(failures(seed, 1))


def test_the_command() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "7", "--cases", "20"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_prints_a_repro(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import fuzz.__main__ as command

    monkeypatch.setattr(mlx_gemm, "matmul", drops_the_last_of_seventeen)
    seed = next(failures(0, 2000))[0]
    monkeypatch.setattr(sys, "argv", ["fuzz", "--seed", str(seed), "--cases", "1"])
    assert command.main() == 1
    assert capsys.readouterr().out.endswith(f"repeat: python -m tests.fuzz --seed {seed} --cases 1\n")
