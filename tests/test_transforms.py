"""vmap and compile. Operands are whole numbers: results are exact and equal those of mx.matmul."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
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


# ---- With everything that an epilogue adds ----

# Shapes of c, a, b (or bias, x, weight) and the residual without the mapped axis, and where it goes.
FUSED = {
    "matrices": {"c": ((3, 5), 1), "a": ((3, 4), 2), "b": ((4, 5), 0), "residual": ((3, 5), 2)},
    "batches": {"c": ((2, 1, 5), 0), "a": ((2, 3, 4), 1), "b": ((4, 5), 2), "residual": ((3, 1), 0)},
    "scalars": {"c": ((), 0), "a": ((3, 4), 0), "b": ((6, 4, 5), 3), "residual": ((), 0)},
}
SUBSETS = [[name for i, name in enumerate("a b c residual".split()) if bits >> i & 1] for bits in range(1, 16)]


def fused(op: Callable, c: mx.array, a: mx.array, b: mx.array, residual: mx.array, kernel: str | None) -> mx.array:
    """addmm, then a layer with a residual: both epilogues in one function of four operands."""
    if op is mlx_gemm.matmul:
        out = mlx_gemm.addmm(c, a, b, 2.0, -0.5, activation="relu", kernel=kernel)
        return mlx_gemm.linear(
            out,
            mx.array(np.eye(5, dtype=np.float32)),
            mx.array([1.0] * 5),
            activation="relu",
            residual=residual,
            kernel=kernel,
        )
    return mx.maximum(mx.maximum(2 * (a @ b) - 0.5 * c, 0) + 1, 0) + residual


@pytest.mark.parametrize("mapped", SUBSETS, ids="+".join)
@pytest.mark.parametrize("shapes", FUSED)
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_vmap_over_every_combination(mapped: list[str], shapes: str, kernel: str | None, seed: int) -> None:
    operands, axes = [], []
    for i, (name, (shape, axis)) in enumerate(FUSED[shapes].items()):
        full = (*shape[:axis], 7, *shape[axis:]) if name in mapped else shape
        operands.append(whole(full, seed + i))
        axes.append(axis if name in mapped else None)
    ours = mx.vmap(lambda *x: fused(mlx_gemm.matmul, *x, kernel), tuple(axes))(*operands)
    pairs = list(zip(operands, axes, strict=True))
    rows = [[x if axis is None else mx.take(x, i, axis) for x, axis in pairs] for i in range(7)]
    assert mx.array_equal(ours, mx.stack([fused(mx.matmul, *row, None) for row in rows]))


def test_vmap_inside_vmap_maps_axes_anywhere(seed: int) -> None:
    """MLX 0.32.4's expand_dims, which this could be made of, misplaces two new axes around a mapped one."""
    a, b = whole((7, 3, 2), seed), whole((1, 3, 3, 7, 6), seed + 1)
    assert mx.array_equal(
        mx.vmap(mx.vmap(mlx_gemm.matmul, (1, None)), (1, 2))(a, b), mx.vmap(mx.vmap(mx.matmul, (1, None)), (1, 2))(a, b)
    )


@pytest.mark.parametrize("kernel", [None, "naive"])
def test_shapeless_compile_with_everything_added(kernel: str | None, seed: int) -> None:
    compiled = mx.compile(lambda *x: fused(mlx_gemm.matmul, *x, kernel), shapeless=True)
    for c, a, residual in (
        ((5,), (3, 4), (3, 5)),
        ((5,), (9, 4), (9, 5)),
        ((5,), (3, 4), (3, 5)),
        ((5,), (0, 4), (1, 5)),
        ((1,), (8, 4), (8, 1)),
    ):
        operands = [whole(shape, seed) for shape in (c, a, (4, 5), residual)]
        assert mx.array_equal(compiled(*operands), fused(mx.matmul, *operands, None))


def test_shapeless_compile_refuses_an_addend_that_no_longer_fits(seed: int) -> None:
    compiled = mx.compile(lambda c, a, b: mlx_gemm.addmm(c, a, b), shapeless=True)
    c, a, b = whole((3, 5), seed), whole((3, 4), seed + 1), whole((4, 5), seed + 2)
    assert mx.array_equal(compiled(c, a, b), a @ b + c)
    with pytest.raises(ValueError, match=r"expected c that broadcasts to the product's shape \(3,5\), got c=\(2,5\)"):
        compiled(c[:2], a, b)


def test_shapeless_gradients_with_changing_shapes(seed: int) -> None:
    def gradients(op: Callable) -> Callable:
        return lambda *x: mx.grad(lambda *y: fused(op, *y, None).square().sum(), argnums=(0, 1, 2, 3))(*x)

    compiled = mx.compile(gradients(mlx_gemm.matmul), shapeless=True)
    # Not 1: MLX 0.32.4 crashes in the sum over an axis that had another length when the function was traced.
    for rows in (3, 7, 2, 3):
        operands = [whole(shape, seed + rows) for shape in ((5,), (rows, 4), (4, 5), (rows, 5))]
        for ours, theirs in zip(compiled(*operands), gradients(mx.matmul)(*operands), strict=True):
            assert mx.array_equal(ours, theirs)


# Two calls that differ in one attribute of the primitive, and share their inputs.
DIFFERENT = {
    "alpha": [{"alpha": 2.0}, {"alpha": 4.0}],
    "beta": [{"beta": 2.0}, {"beta": 4.0}],
    "activation": [{"activation": "gelu"}, {"activation": "gelu_tanh"}],
    "no activation": [{"activation": "relu"}, {}],
    "kernel": [{"kernel": "naive"}, {}],
    "names of kernels": [{"kernel": "naive"}, {"kernel": "tiled_16"}],
}


@pytest.mark.parametrize("attribute", DIFFERENT)
def test_compile_keeps_apart_what_differs_in_one_attribute(attribute: str, seed: int) -> None:
    c, a, b = whole((3, 5), seed), whole((3, 4), seed + 1), whole((4, 5), seed + 2)
    one, other = DIFFERENT[attribute]

    def both(c: mx.array, a: mx.array, b: mx.array, left: dict, right: dict) -> list[mx.array]:
        return [mlx_gemm.addmm(c, a, b, **left) + 1, mlx_gemm.addmm(c, a, b, **right) + 2]

    for left, right, wanted in ((one, other, 2), (other, one, 2), (one, one, 1), (other, other, 1)):
        before = _ext.counters()["gemm_evals"]
        outs = mx.compile(lambda *x, left=left, right=right: both(*x, left, right))(c, a, b)
        mx.eval(outs)
        assert _ext.counters()["gemm_evals"] == before + wanted
        assert all(mx.array_equal(x, y) for x, y in zip(outs, both(c, a, b, left, right), strict=True))


def test_compile_keeps_a_residual_apart_from_c(seed: int) -> None:
    a, b, added = whole((3, 4), seed), whole((5, 4), seed + 1), whole((5,), seed + 2)
    compiled = mx.compile(
        lambda a, b, added: [
            mlx_gemm.linear(a, b, added, activation="relu") * 1,
            mlx_gemm.linear(a, b, residual=added, activation="relu") * 1,
        ]
    )
    as_bias, as_residual = compiled(a, b, added)
    assert mx.array_equal(as_bias, mx.maximum(a @ b.T + added, 0))
    assert mx.array_equal(as_residual, mx.maximum(a @ b.T, 0) + added)
