"""vmap and compile. Operands are whole numbers: results are exact and equal those of mx.matmul."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import pytest
from reference import integers

import mlx_gemm
from mlx_gemm import _ext


def whole(shape: tuple[int, ...], seed: int) -> mx.array:
    return mx.array(integers(shape, seed))


def matmul_with(kernel: str | None) -> Callable[[mx.array, mx.array], mx.array]:
    return lambda a, b: mlx_gemm.matmul(a, b, kernel=kernel)


VMAPS = [
    ((6, 3, 4), (4, 5), (0, None), 0),
    ((3, 4), (6, 4, 5), (None, 0), 0),
    ((6, 3, 4), (6, 4, 5), (0, 0), 0),
    ((3, 6, 4), (4, 5, 6), (1, 2), 0),
    ((3, 4, 6), (6, 4, 5), (2, 0), 2),
    ((6, 4), (4,), (0, None), 0),
    ((4,), (4, 6), (None, 1), 0),
    ((6, 4), (6, 4), (0, 0), 0),
    ((6, 2, 3, 4), (4, 5), (0, None), 1),
    ((6, 2, 3, 4), (6, 4, 5), (0, 0), 0),
    ((6, 3, 4), (6, 2, 4, 5), (0, 0), 0),
    ((2, 3, 4), (6, 4, 5), (None, 0), 0),
]


@pytest.mark.parametrize(("a_shape", "b_shape", "in_axes", "out_axes"), VMAPS, ids=str)
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_vmap(a_shape: tuple, b_shape: tuple, in_axes: tuple, out_axes: int, kernel: str | None, seed: int) -> None:
    a, b = whole(a_shape, seed), whole(b_shape, seed + 1)
    ours = mx.vmap(matmul_with(kernel), in_axes, out_axes)(a, b)
    theirs = mx.vmap(mx.matmul, in_axes, out_axes)(a, b)
    assert ours.shape == theirs.shape
    assert mx.array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("shapes", "in_axes"),
    [
        (((6, 3, 4), (5, 4), (5,)), (0, None, None)),
        (((3, 4), (6, 5, 4), (5,)), (None, 0, None)),
        (((3, 4), (5, 4), (6, 5)), (None, None, 0)),
        (((6, 3, 4), (6, 5, 4), (6, 5)), (0, 0, 0)),
        (((3, 6, 4), (5, 4, 6), (5, 6)), (1, 2, 1)),
        (((6, 2, 3, 4), (5, 4), (6, 5)), (0, None, 0)),
        (((6, 4), (5, 4), (6, 5)), (0, None, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_vmap_of_linear(shapes: tuple, in_axes: tuple, kernel: str | None, seed: int) -> None:
    x, weight, bias = (whole(shape, seed + i) for i, shape in enumerate(shapes))

    def ours(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
        return mlx_gemm.linear(x, weight, bias, kernel=kernel)

    def theirs(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
        return x @ weight.T + bias

    assert mx.array_equal(mx.vmap(ours, in_axes)(x, weight, bias), mx.vmap(theirs, in_axes)(x, weight, bias))


def test_nested_vmap(seed: int) -> None:
    a, b = whole((2, 6, 3, 4), seed), whole((2, 4, 5), seed + 1)

    def twice(op: Callable) -> mx.array:
        return mx.vmap(mx.vmap(op, (0, None)), (0, 0))(a, b)

    assert mx.array_equal(twice(mlx_gemm.matmul), twice(mx.matmul))


def test_vmap_of_a_gradient(seed: int) -> None:
    x, weight = whole((6, 3, 4), seed), whole((5, 4), seed + 1)

    def per_example(op: Callable) -> mx.array:
        gradient = mx.grad(lambda weight, x: (op(x, weight.T) ** 2).sum())
        return mx.vmap(gradient, (None, 0))(weight, x)

    assert mx.array_equal(per_example(mlx_gemm.matmul), per_example(mx.matmul))


def test_gradient_of_a_vmap(seed: int) -> None:
    x, weight = whole((6, 3, 4), seed), whole((5, 4), seed + 1)

    def summed(op: Callable) -> mx.array:
        return mx.grad(lambda weight: (mx.vmap(lambda x: op(x, weight.T))(x) ** 2).sum())(weight)

    assert mx.array_equal(summed(mlx_gemm.matmul), summed(mx.matmul))


@pytest.mark.parametrize("kernel", [None, "tiled_16"])
@pytest.mark.parametrize("shapeless", [False, True])
def test_compile(kernel: str | None, shapeless: bool, seed: int) -> None:
    op = matmul_with(kernel)
    compiled = mx.compile(lambda a, b: op(a * 2, b) + 1, shapeless=shapeless)
    for size in (4, 9, 4):
        a, b = whole((size, 7), seed), whole((7, size + 1), seed + 1)
        before = _ext.counters()["gemm_evals"]
        out = compiled(a, b)
        assert mx.array_equal(out, (a * 2) @ b + 1)
        assert _ext.counters()["gemm_evals"] == before + 1


def test_shapeless_compile_broadcasts_anew(seed: int) -> None:
    compiled = mx.compile(lambda a, b: mlx_gemm.matmul(a, b), shapeless=True)
    for batch in (1, 3, 5):
        a, b = whole((batch, 4, 6), seed), whole((6, 5), seed + 1)
        assert mx.array_equal(compiled(a, b), a @ b)


def test_shapeless_compile_checks_the_shapes_it_meets(seed: int) -> None:
    compiled = mx.compile(lambda a, b: mlx_gemm.matmul(a, b, kernel="simdgroup_8x8"), shapeless=True)
    a = whole((8, 8), seed)
    assert mx.array_equal(compiled(a, a), a @ a)
    with pytest.raises(ValueError, match=r"expected a.shape\[-1\] == b.shape\[-2\], got a=\(8,8\) b=\(16,8\)"):
        compiled(a, whole((16, 8), seed))
    with pytest.raises(ValueError, match="simdgroup_8x8 needs M to be a multiple of 8, got M=9"):
        compiled(whole((9, 8), seed), a)


@pytest.mark.parametrize("shapeless", [False, True])
def test_compile_of_linear(shapeless: bool, seed: int) -> None:
    compiled = mx.compile(mlx_gemm.linear, shapeless=shapeless)
    weight, bias = whole((5, 4), seed), whole((5,), seed + 1)
    for rows in (3, 8):
        x = whole((rows, 4), seed + 2)
        assert mx.array_equal(compiled(x, weight, bias), x @ weight.T + bias)


def test_compiled_gradient(seed: int) -> None:
    a, b = whole((6, 4), seed), whole((4, 5), seed + 1)

    def gradient(op: Callable) -> Callable:
        return mx.grad(lambda a, b: (op(a, b) ** 2).sum(), argnums=(0, 1))

    ours, theirs = mx.compile(gradient(mlx_gemm.matmul))(a, b), gradient(mx.matmul)(a, b)
    assert all(mx.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))


def test_compile_runs_equal_products_once_and_different_kernels_apart(seed: int) -> None:
    a, b = whole((6, 4), seed), whole((4, 5), seed + 1)

    def evaluations(left: str | None, right: str | None) -> int:
        compiled = mx.compile(lambda a, b: matmul_with(left)(a, b) + matmul_with(right)(a, b))
        before = _ext.counters()["gemm_evals"]
        assert mx.array_equal(compiled(a, b), 2 * (a @ b))
        return _ext.counters()["gemm_evals"] - before

    assert evaluations(None, None) == evaluations("naive", "naive") == 1
    assert evaluations(None, "naive") == evaluations("naive", "tiled_16") == 2


def test_checkpoint_and_custom_function(seed: int) -> None:
    a, b = whole((6, 4), seed), whole((4, 5), seed + 1)
    checkpointed = mx.grad(lambda a: (mx.checkpoint(mlx_gemm.matmul)(a, b) ** 2).sum())(a)
    assert mx.array_equal(checkpointed, mx.grad(lambda a: ((a @ b) ** 2).sum())(a))
