"""Gradients. Operands are whole numbers, so that every result is exact and float64 says what it must be."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from reference import assert_within_bound, integers, normal

import mlx_gemm
from mlx_gemm import _ext

Op = Callable[[mx.array, mx.array], mx.array]

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((6, 3, 4), (2, 1, 4, 5)),
    ((1, 3, 4), (7, 4, 5)),
    ((3, 0), (0, 5)),
    ((0, 4), (4, 5)),
]


def naive(a: mx.array, b: mx.array) -> mx.array:
    return mlx_gemm.matmul(a, b, kernel="naive")


OPS: dict[str, Op] = {"automatic": mlx_gemm.matmul, "naive": naive}


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES, ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_vjp_and_jvp_equal_those_of_matmul(op: Op, a_shape: tuple, b_shape: tuple, seed: int) -> None:
    a, b = mx.array(integers(a_shape, seed)), mx.array(integers(b_shape, seed + 1))
    da, db = mx.array(integers(a_shape, seed + 2)), mx.array(integers(b_shape, seed + 3))
    cotangent = mx.array(integers(mx.matmul(a, b).shape, seed + 4))
    for ours, theirs in zip(mx.vjp(op, [a, b], [cotangent]), mx.vjp(mx.matmul, [a, b], [cotangent]), strict=True):
        assert all(mx.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))
    for ours, theirs in zip(mx.jvp(op, [a, b], [da, db]), mx.jvp(mx.matmul, [a, b], [da, db]), strict=True):
        assert all(mx.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_backward_runs_our_primitive(argnums: int | tuple, seed: int) -> None:
    a, b = normal((17, 23), seed), normal((23, 31), seed + 1)
    weights = normal((17, 31), seed + 2)

    def loss(a: mx.array, b: mx.array) -> mx.array:
        return (mlx_gemm.matmul(a, b) * mx.array(weights)).sum()

    before = _ext.counters()
    gradients = mx.grad(loss, argnums=argnums)(mx.array(a), mx.array(b))
    mx.eval(gradients)
    after = _ext.counters()
    wanted = (argnums,) if isinstance(argnums, int) else argnums
    assert after["gemm_evals"] == before["gemm_evals"] + len(wanted)
    assert after["lowered"] == before["lowered"]
    gradients = (gradients,) if isinstance(argnums, int) else gradients
    for argument, gradient in zip(wanted, gradients, strict=True):
        left, right = ((weights, b.T), (a.T, weights))[argument]
        assert_within_bound(gradient, left, right, f"gradient of operand {argument} {seed=}")


def test_gradients_of_a_named_kernel_need_not_fit_it(seed: int) -> None:
    """64x64x256 suits the kernel; the gradient products, 64x256x64 and 256x64x64, do not."""
    a, b = mx.array(integers((64, 256), seed)), mx.array(integers((256, 64), seed + 1))
    cotangent = mx.array(integers((64, 64), seed + 2))

    def op(a: mx.array, b: mx.array) -> mx.array:
        return mlx_gemm.matmul(a, b, kernel="tensorops_sync_64x64_k256")

    (out,), gradients = mx.vjp(op, [a, b], [cotangent])
    assert mx.array_equal(out, a @ b)
    assert mx.array_equal(gradients[0], cotangent @ b.T)
    assert mx.array_equal(gradients[1], a.T @ cotangent)


@pytest.mark.parametrize("kernel", [None, "naive"])
def test_gradients_of_linear_without_rows(kernel: str | None) -> None:
    # Not compared with MLX, whose own sum over no rows can spin forever (0.32.4).
    primals = [mx.zeros((0, 4)), mx.ones((5, 4)), mx.ones(5)]
    (out,), gradients = mx.vjp(
        lambda x, weight, bias: mlx_gemm.linear(x, weight, bias, kernel=kernel), primals, [mx.zeros((0, 5))]
    )
    assert out.shape == (0, 5)
    for gradient, primal in zip(gradients, primals, strict=True):
        assert mx.array_equal(gradient, mx.zeros(primal.shape))


@pytest.mark.parametrize("x_shape", [(4,), (3, 4), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_gradients_of_linear(x_shape: tuple, kernel: str | None, seed: int) -> None:
    x, weight, bias = (mx.array(integers(s, seed + i)) for i, s in enumerate([x_shape, (5, 4), (5,)]))
    primals = [x, weight, bias]
    tangents = [mx.array(integers(p.shape, seed + 9)) for p in primals]

    def ours(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
        return mlx_gemm.linear(x, weight, bias, kernel=kernel)

    def theirs(x: mx.array, weight: mx.array, bias: mx.array) -> mx.array:
        return x @ weight.T + bias

    cotangent = mx.array(integers(theirs(*primals).shape, seed + 5))
    for left, right in (
        (mx.vjp(ours, primals, [cotangent]), mx.vjp(theirs, primals, [cotangent])),
        (mx.jvp(ours, primals, tangents), mx.jvp(theirs, primals, tangents)),
    ):
        for one, other in zip(left, right, strict=True):
            assert all(mx.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_jvp_of_one_operand(seed: int) -> None:
    a, b, tangent = (mx.array(integers((5, 5), seed + i)) for i in range(3))
    assert mx.array_equal(mx.jvp(lambda a: mlx_gemm.matmul(a, b), [a], [tangent])[1][0], tangent @ b)
    assert mx.array_equal(mx.jvp(lambda b: mlx_gemm.matmul(a, b), [b], [tangent])[1][0], a @ tangent)
    weight, bias = b, tangent[0]
    linear = mx.jvp(lambda bias: mlx_gemm.linear(a, weight, bias), [bias], [bias])[1][0]
    assert mx.array_equal(linear, mx.broadcast_to(bias, (5, 5)))


def test_second_derivatives(seed: int) -> None:
    a, b = mx.array(integers((3, 4), seed)), mx.array(integers((4, 2), seed + 1))

    def curvature(op: Op) -> mx.array:
        def loss(a: mx.array) -> mx.array:
            return (op(a, b) ** 2).sum()

        return mx.grad(lambda a: (mx.grad(loss)(a) * a).sum())(a)

    assert mx.array_equal(curvature(mlx_gemm.matmul), curvature(mx.matmul))


def test_the_same_array_on_both_sides(seed: int) -> None:
    a = mx.array(integers((6, 6), seed))
    ours = mx.grad(lambda a: mlx_gemm.matmul(a, a.T).sum())(a)
    assert mx.array_equal(ours, mx.grad(lambda a: (a @ a.T).sum())(a))


def test_finite_differences(seed: int) -> None:
    """Whole numbers again: the product is bilinear, so that a central difference is exact."""
    a, b, direction = (integers((5, 5), seed + i) for i in range(3))
    gradient = mx.grad(lambda a: mlx_gemm.matmul(a, mx.array(b)).sum())(mx.array(a))
    ahead, behind = (mlx_gemm.matmul(mx.array(a + step * direction), mx.array(b)).sum() for step in (1, -1))
    assert (ahead - behind).item() / 2 == np.sum(np.array(gradient) * direction)


def test_shapeless_gradients_keep_nothing_of_an_empty_first_trace() -> None:
    gradients = mx.compile(lambda x, w, b, ct: mx.vjp(mlx_gemm.linear, [x, w, b], [ct])[1], shapeless=True)
    for rows in (0, 3):
        operands = [mx.ones((rows, 4)), mx.ones((5, 4)), mx.ones(5)]
        dx, dw, db = gradients(*operands, mx.ones((rows, 5)))
        assert (dx.shape, dw.shape, db.shape) == ((rows, 4), (5, 4), (5,))
        if rows:
            assert mx.array_equal(db, mx.full(5, rows))
