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


# ---- addmm, and linear with an activation and a residual ----

Primals = list[mx.array]


def both_ways(ours: Callable, theirs: Callable, primals: Primals, seed: int) -> None:
    """vjp and jvp of both are equal, for all arguments together and for each alone."""
    cotangent = mx.array(integers(theirs(*primals).shape, seed + 50))
    tangents = [mx.array(integers(p.shape, seed + 60 + i)) for i, p in enumerate(primals)]
    before = _ext.counters()
    results = [mx.vjp(ours, primals, [cotangent])[1], mx.jvp(ours, primals, tangents)[1]]
    mx.eval(results)
    after = _ext.counters()
    assert after["gemm_evals"] > before["gemm_evals"]
    assert after["lowered"] == before["lowered"]
    wanted = [mx.vjp(theirs, primals, [cotangent])[1], mx.jvp(theirs, primals, tangents)[1]]
    for i in range(len(primals)):

        def alone(op: Callable, i: int = i) -> Callable:
            return lambda x: op(*primals[:i], x, *primals[i + 1 :])

        results.append(mx.vjp(alone(ours), [primals[i]], [cotangent])[1])
        wanted.append(mx.vjp(alone(theirs), [primals[i]], [cotangent])[1])
        results.append(mx.jvp(alone(ours), [primals[i]], [tangents[i]])[1])
        wanted.append(mx.jvp(alone(theirs), [primals[i]], [tangents[i]])[1])
    for left, right in zip(results, wanted, strict=True):
        for x, y in zip(left, right, strict=True):
            assert x.shape == y.shape
            assert mx.array_equal(x, y)


@pytest.mark.parametrize("c_shape", [(), (1,), (5,), (3, 1), (3, 5), (2, 3, 5), (2, 1, 1)], ids=str)
@pytest.mark.parametrize("factors", [(1.0, 1.0), (2.0, -0.5), (-0.5, 1.0), (1.0, 4.0)], ids=str)
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_gradients_of_addmm(c_shape: tuple, factors: tuple, kernel: str | None, seed: int) -> None:
    """mx.addmm itself is no reference: its jvp ignores alpha and beta (0.32.4)."""
    alpha, beta = factors
    primals = [mx.array(integers(s, seed + i)) for i, s in enumerate([c_shape, (2, 3, 4), (4, 5)])]
    both_ways(
        lambda c, a, b: mlx_gemm.addmm(c, a, b, alpha, beta, kernel=kernel),
        lambda c, a, b: alpha * (a @ b) + beta * c,
        primals,
        seed,
    )


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "c_shape"), [((4,), (4,), ()), ((4,), (4, 5), (5,)), ((3, 4), (4,), (3,))]
)
def test_gradients_of_addmm_with_vectors(a_shape: tuple, b_shape: tuple, c_shape: tuple, seed: int) -> None:
    primals = [mx.array(integers(s, seed + i)) for i, s in enumerate([c_shape, a_shape, b_shape])]
    both_ways(lambda c, a, b: mlx_gemm.addmm(c, a, b, 2.0, 0.5), lambda c, a, b: 2 * (a @ b) + 0.5 * c, primals, seed)


@pytest.mark.parametrize("residual", [(), (5,), (3, 1), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_gradients_through_an_activation_and_a_residual(
    residual: tuple, bias: bool, kernel: str | None, seed: int
) -> None:
    shapes = [(2, 3, 4), (5, 4), residual, (5,)][: 4 if bias else 3]
    primals = [mx.array(integers(s, seed + i)) for i, s in enumerate(shapes)]

    def ours(x: mx.array, weight: mx.array, residual: mx.array, bias: mx.array | None = None) -> mx.array:
        return mlx_gemm.linear(x, weight, bias, activation="relu", residual=residual, kernel=kernel)

    def theirs(x: mx.array, weight: mx.array, residual: mx.array, bias: mx.array | None = None) -> mx.array:
        z = x @ weight.T
        return mx.maximum(z if bias is None else z + bias, 0) + residual

    both_ways(ours, theirs, primals, seed)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu"])
def test_gradients_of_smooth_activations_agree_with_differences(activation: str, seed: int) -> None:
    x, weight, bias, residual = (mx.array(normal(s, seed + i)) for i, s in enumerate([(3, 4), (5, 4), (5,), (3, 5)]))
    direction = [mx.array(normal(p.shape, seed + 9)) for p in (x, weight, bias, residual)]

    def function(*operands: mx.array) -> mx.array:
        return mlx_gemm.linear(*operands[:3], activation=activation, residual=operands[3])

    step = 2.0**-6
    ahead, behind = (
        function(*(p + sign * step * d for p, d in zip((x, weight, bias, residual), direction, strict=True)))
        for sign in (1, -1)
    )
    differences = (ahead - behind) / (2 * step)
    tangent = mx.jvp(function, [x, weight, bias, residual], direction)[1][0]
    assert mx.allclose(tangent, differences, rtol=1e-2, atol=1e-2)
    # And the vjp is the jvp's adjoint.
    cotangent = mx.array(normal((3, 5), seed + 7))
    gradients = mx.vjp(function, [x, weight, bias, residual], [cotangent])[1]
    inner = sum((g * d).sum() for g, d in zip(gradients, direction, strict=True))
    assert mx.allclose(inner, (tangent * cotangent).sum(), rtol=1e-4, atol=1e-4)


def test_second_derivatives_through_everything(seed: int) -> None:
    primals = [mx.array(integers(s, seed + i) / 4) for i, s in enumerate([(3, 4), (5, 4), (5,), (3, 5)])]

    def curvature(op: Callable, i: int) -> mx.array:
        def slope(x: mx.array) -> mx.array:
            gradient = mx.grad(lambda x: (op(*primals[:i], x, *primals[i + 1 :]) ** 2).sum())(x)
            return (gradient * gradient).sum()

        return mx.grad(slope)(primals[i])

    def ours(x: mx.array, weight: mx.array, bias: mx.array, residual: mx.array) -> mx.array:
        return mlx_gemm.linear(x, weight, bias, activation="silu", residual=residual)

    def theirs(x: mx.array, weight: mx.array, bias: mx.array, residual: mx.array) -> mx.array:
        z = x @ weight.T + bias
        return z * mx.sigmoid(z) + residual

    for i in range(4):
        assert mx.allclose(curvature(ours, i), curvature(theirs, i), rtol=1e-4, atol=1e-3), i


@pytest.mark.parametrize("activation", [None, "relu", "silu"])
def test_gradients_through_a_sum_of_nothing(activation: str | None, seed: int) -> None:
    c = mx.array(integers((5,), seed))
    primals = [c, mx.zeros((2, 3, 0)), mx.zeros((0, 5))]
    (out,), gradients = mx.vjp(
        lambda c, a, b: mlx_gemm.addmm(c, a, b, 2.0, 0.5, activation=activation), primals, [mx.ones((2, 3, 5))]
    )
    assert [g.shape for g in gradients] == [p.shape for p in primals]
    slope = {None: mx.ones(5), "relu": (c > 0).astype(mx.float32)}.get(activation)
    if slope is not None:
        assert mx.array_equal(gradients[0], 6 * 0.5 * slope)
    tangent = mx.jvp(lambda a, b: mlx_gemm.matmul(a, b), primals[1:], primals[1:])[1][0]
    assert mx.array_equal(tangent, mx.zeros((2, 3, 5)))


def test_the_sum_of_an_empty_strided_gradient_ends() -> None:
    """MLX 0.32.4 spins forever in the sum of an empty array that is not contiguous."""
    bias = mx.ones(5)

    def loss(bias: mx.array) -> mx.array:
        return mlx_gemm.addmm(bias, mx.ones((0, 4)), mx.ones((4, 5))).T.sum()

    for gradient in (mx.grad(loss), mx.compile(mx.grad(loss))):
        assert mx.array_equal(gradient(bias), mx.zeros(5))


@pytest.mark.parametrize("factors", [(0.0, 2.0), (2.0, 0.0), (0.0, 0.0)], ids=str)
def test_gradients_of_what_a_factor_of_zero_ignores_are_zero(factors: tuple, seed: int) -> None:
    alpha, beta = factors
    c, a, b = (mx.array(integers(s, seed + i)) for i, s in enumerate([(5,), (3, 4), (4, 5)]))
    nan = mx.full((3, 4), float("nan"))
    primals = [c if beta else mx.full((5,), float("nan")), a if alpha else nan, b]
    _, (dc, da, db) = mx.vjp(lambda *x: mlx_gemm.addmm(*x, alpha, beta), primals, [mx.ones((3, 5))])
    assert mx.array_equal(dc, mx.full((5,), 3 * beta))
    assert mx.array_equal(da, alpha * (mx.ones((3, 5)) @ b.T))
    assert mx.array_equal(db, alpha * (a.T @ mx.ones((3, 5))))


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_gradients_keep_the_type_of_their_operand(dtype: mx.Dtype, seed: int) -> None:
    primals = [mx.array(integers(s, seed + i) % 3).astype(dtype) for i, s in enumerate([(5,), (3, 4), (4, 5)])]
    primals[2] = primals[2].astype(mx.float32)
    cotangent = mx.ones((3, 5))
    ours = mx.vjp(lambda *x: mlx_gemm.addmm(*x, 2.0, 0.5), primals, [cotangent])[1]
    theirs = mx.vjp(lambda c, a, b: 2 * (a @ b) + 0.5 * c, primals, [cotangent])[1]
    assert [g.dtype for g in ours] == [p.dtype for p in primals]
    assert all(mx.array_equal(x, y) for x, y in zip(ours, theirs, strict=True))
