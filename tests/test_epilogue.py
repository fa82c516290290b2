"""addmm, and linear with an activation and a residual: D = activation(alpha A B + beta C) + residual.

Operands are whole numbers and factors powers of two unless a test says otherwise: results are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from reference import integers, normal

import mlx_gemm
from mlx_gemm import _ext

ADDENDS = [(), (1,), (5,), (3, 1), (1, 5), (3, 5), (2, 3, 5), (2, 1, 1), (1, 1, 5), (2, 1, 5)]
KERNELS = [None, "naive"]
HALVES = [mx.float16, mx.bfloat16]
ACTIVATIONS: dict[str, Callable[[mx.array], mx.array]] = {
    "relu": nn.relu,
    "gelu": nn.gelu,
    "gelu_tanh": nn.gelu_approx,
    "silu": nn.silu,
}


def whole(shape: tuple[int, ...], seed: int, dtype: mx.Dtype = mx.float32) -> mx.array:
    return mx.array(integers(shape, seed)).astype(dtype)


def evaluations() -> int:
    return _ext.counters()["gemm_evals"]


@pytest.mark.parametrize("c_shape", ADDENDS, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_addmm_broadcasts_c(c_shape: tuple, kernel: str | None, seed: int) -> None:
    c, a, b = whole(c_shape, seed), whole((2, 3, 4), seed + 1), whole((4, 5), seed + 2)
    before = evaluations()
    out = mlx_gemm.addmm(c, a, b, 2.0, -0.5, kernel=kernel)
    assert out.shape == (2, 3, 5)
    assert mx.array_equal(out, 2 * (a @ b) - 0.5 * c)
    assert evaluations() == before + 1


@pytest.mark.parametrize(
    ("a_shape", "b_shape", "c_shapes"),
    [
        ((4,), (4,), [()]),
        ((4,), (4, 5), [(), (1,), (5,)]),
        ((3, 4), (4,), [(), (1,), (3,)]),
        ((2, 3, 4), (4,), [(), (3,), (2, 1), (2, 3)]),
        ((4,), (2, 4, 5), [(), (5,), (2, 1), (2, 5)]),
    ],
    ids=str,
)
def test_addmm_of_vectors(a_shape: tuple, b_shape: tuple, c_shapes: list[tuple], seed: int) -> None:
    a, b = whole(a_shape, seed), whole(b_shape, seed + 1)
    for c_shape in c_shapes:
        c = whole(c_shape, seed + 2)
        out = mlx_gemm.addmm(c, a, b, 2.0, 0.5)
        assert out.shape == (a @ b).shape, c_shape
        assert mx.array_equal(out, 2 * (a @ b) + 0.5 * c), c_shape


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [mx.float32, *HALVES, mx.complex64, mx.float64], ids=str)
def test_a_factor_of_zero_ignores_what_it_multiplies(poison: float, dtype: mx.Dtype, seed: int) -> None:
    a, b, c = whole((3, 4), seed, dtype), whole((4, 5), seed + 1, dtype), whole((3, 5), seed + 2, dtype)
    bad = mx.full((3, 5), poison, dtype)
    assert mx.array_equal(mlx_gemm.addmm(bad, a, b, 2.0, 0.0), 2 * (a @ b))
    assert mx.array_equal(mlx_gemm.addmm(c, bad[:, :4], b, 0.0, 2.0), 2 * c)
    assert mx.array_equal(mlx_gemm.addmm(c, a, mx.full((4, 5), poison, dtype), 0.0, 1.0), c)
    assert mx.array_equal(mlx_gemm.addmm(bad, bad[:, :4], b, 0.0, 0.0), mx.zeros((3, 5), dtype))
    # And not more: what is multiplied by another factor shows.
    assert not mx.isfinite(mlx_gemm.addmm(bad, a, b, 2.0, 0.5)).any()


def test_a_factor_of_zero_still_checks_what_it_ignores() -> None:
    with pytest.raises(ValueError, match="expected c that broadcasts"):
        mlx_gemm.addmm(mx.ones((4, 5)), mx.ones((3, 4)), mx.ones((4, 5)), beta=0.0)
    with pytest.raises(ValueError, match=r"expected a.shape\[-1\] == b.shape\[-2\]"):
        mlx_gemm.addmm(mx.ones(()), mx.ones((3, 4)), mx.ones((3, 5)), alpha=0.0)


@pytest.mark.parametrize("dtype", [mx.float32, *HALVES, mx.complex64, mx.float64], ids=str)
@pytest.mark.parametrize("beta", [1.0, 0.5, 0.0])
def test_a_sum_of_nothing_leaves_c(beta: float, dtype: mx.Dtype, seed: int) -> None:
    c = whole((5,), seed, dtype)
    out = mlx_gemm.addmm(c, mx.ones((2, 3, 0), dtype), mx.ones((0, 5), dtype), 2.0, beta)
    assert out.dtype == dtype
    assert mx.array_equal(out, mx.broadcast_to(beta * c, (2, 3, 5)))


@pytest.mark.parametrize("dtype", [mx.float32, *HALVES, mx.complex64, mx.float64], ids=str)
@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [((0, 4), (4, 5)), ((3, 4), (4, 0)), ((0, 3, 4), (4, 5)), ((2, 3, 4), (0, 2, 4, 5)), ((0, 3, 0), (0, 5))],
    ids=str,
)
def test_empty_results(a_shape: tuple, b_shape: tuple, dtype: mx.Dtype) -> None:
    a, b, c = mx.ones(a_shape, dtype), mx.ones(b_shape, dtype), mx.ones((1,), dtype)
    for out in (mlx_gemm.addmm(c, a, b, 2.0, 2.0), mlx_gemm.matmul(a, b)):
        mx.eval(out)
        assert (out.shape, out.dtype, out.size) == ((a @ b).shape, dtype, 0)


@pytest.mark.parametrize("left", ["float32", "float16", "bfloat16", "complex64", "float64", "int32", "bool_"])
@pytest.mark.parametrize("right", ["float32", "float16", "bfloat16", "complex64", "float64", "int32"])
@pytest.mark.parametrize("added", ["float32", "float16", "bfloat16", "complex64", "int32"])
def test_types_promote_like_addmm(left: str, right: str, added: str, seed: int) -> None:
    c, a, b = (
        mx.array(integers(shape, seed) % 3).astype(getattr(mx, name))
        for name, shape in ((added, (5,)), (left, (3, 2)), (right, (2, 5)))
    )
    promoted = mx.result_type(c, a, b)
    if promoted == mx.int32:
        for op in (mx.addmm, mlx_gemm.addmm):
            with pytest.raises(ValueError, match="addmm"):
                op(c, a, b, 2.0)
        return
    out = mlx_gemm.addmm(c, a, b, 2.0)
    assert out.dtype == promoted
    assert mx.array_equal(out, mx.addmm(*(x.astype(promoted) for x in (c, a, b)), 2.0))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [mx.float32, *HALVES], ids=str)
def test_linear_equals_the_composition(activation: str, dtype: mx.Dtype, seed: int) -> None:
    x, weight, bias, residual = (
        mx.array(normal(shape, seed + i)).astype(dtype) for i, shape in enumerate([(2, 9, 7), (5, 7), (5,), (9, 5)])
    )
    out = mlx_gemm.linear(x, weight, bias, activation=activation, residual=residual)
    wide = [v.astype(mx.float32) for v in (x, weight, bias, residual)]
    wanted = ACTIVATIONS[activation](wide[0] @ wide[1].T + wide[2]) + wide[3]
    assert out.dtype == dtype
    tolerance = {mx.float32: 1e-6, mx.float16: 4e-3, mx.bfloat16: 3e-2}[dtype]
    assert mx.allclose(out.astype(mx.float32), wanted, rtol=tolerance, atol=4 * tolerance)


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("residual", [(), (5,), (3, 5), (2, 3, 1), None], ids=str)
def test_linear_is_one_product_whatever_is_added(
    activation: str | None, bias: bool, residual: tuple | None, seed: int
) -> None:
    x, weight = whole((2, 3, 4), seed), whole((5, 4), seed + 1)
    added = whole((5,), seed + 2) if bias else None
    rest = None if residual is None else whole(residual, seed + 3)
    before = _ext.counters()
    out = mlx_gemm.linear(x, weight, added, activation=activation, residual=rest)
    mx.eval(out)
    after = _ext.counters()
    assert (after["gemm_evals"], after["lowered"]) == (before["gemm_evals"] + 1, before["lowered"])
    z = x @ weight.T + (added if bias else 0)
    wanted = (ACTIVATIONS[activation](z) if activation else z) + (0 if rest is None else rest)
    assert mx.allclose(out, wanted, rtol=1e-6, atol=1e-6)


def test_an_activation_passes_on_nan_and_infinity() -> None:
    x = mx.array([[np.nan], [np.inf], [-np.inf]])
    for activation, function in ACTIVATIONS.items():
        ours = mlx_gemm.linear(x, mx.ones((1, 1)), activation=activation)
        assert mx.array_equal(ours, function(x), equal_nan=True), activation


def test_none_is_an_activation(seed: int) -> None:
    a = whole((4, 4), seed)
    assert mx.array_equal(mlx_gemm.linear(a, a, activation="none"), mlx_gemm.linear(a, a))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_float32_result_of_half_operands_is_not_rounded(dtype: mx.Dtype, seed: int) -> None:
    a, b = (mx.array(normal(shape, seed)).astype(dtype) for shape in ((9, 300), (300, 7)))
    wide = a.astype(mx.float32), b.astype(mx.float32)
    for out in (
        mlx_gemm.matmul(a, b, out_dtype=mx.float32),
        mlx_gemm.linear(a, b.T, out_dtype=mx.float32),
        mlx_gemm.addmm(mx.zeros((), dtype), a, b, out_dtype=mx.float32),
    ):
        assert out.dtype == mx.float32
        assert mx.allclose(out, mlx_gemm.matmul(*wide), rtol=1e-5, atol=1e-4)
        assert not mx.array_equal(out, out.astype(dtype).astype(mx.float32))


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.complex64, mx.float64], ids=str)
def test_the_promoted_type_may_be_named(dtype: mx.Dtype, seed: int) -> None:
    a = whole((4, 4), seed, dtype)
    assert mx.array_equal(mlx_gemm.matmul(a, a, out_dtype=dtype), a @ a)


@pytest.mark.parametrize(
    ("operands", "asked", "message"),
    [
        ((mx.float32, mx.float32), mx.float16, "expected out_dtype float32 for operands that promote to float32"),
        ((mx.float16, mx.float16), mx.bfloat16, "expected out_dtype float16 or float32 for operands that promote to"),
        ((mx.float16, mx.bfloat16), mx.float16, "expected out_dtype float32 for operands that promote to float32"),
        ((mx.complex64, mx.float32), mx.float32, "expected out_dtype complex64 for operands that promote to complex64"),
        ((mx.float32, mx.float32), mx.int32, "expected out_dtype float32 for operands that promote to float32"),
    ],
)
def test_other_result_types_are_refused(operands: tuple, asked: mx.Dtype, message: str) -> None:
    a, b = (mx.ones((2, 2), dtype) for dtype in operands)
    for op in (mlx_gemm.matmul, mlx_gemm.linear, mlx_gemm.explain):
        with pytest.raises(ValueError, match=rf"\[mlx_gemm.{op.__name__}\] {message}"):
            op(a, b, out_dtype=asked)
    with pytest.raises(ValueError, match=rf"\[mlx_gemm.addmm\] {message}"):
        mlx_gemm.addmm(mx.ones((), a.dtype), a, b, out_dtype=asked)


def test_c_takes_part_in_the_promotion() -> None:
    half = mx.ones((2, 2), mx.float16)
    assert mlx_gemm.addmm(mx.ones(()), half, half).dtype == mx.float32
    assert mlx_gemm.linear(half, half, residual=mx.ones(())).dtype == mx.float32
    # Whole operands with a real c multiply as real numbers, as in mx.addmm.
    ones = mx.ones((2, 2), mx.int32)
    assert mx.array_equal(mlx_gemm.addmm(mx.ones(()), ones, ones), mx.full((2, 2), 3.0))


def test_strided_and_repeated_addends(seed: int) -> None:
    a, b = whole((6, 4), seed), whole((4, 5), seed + 1)
    c = whole((12, 10), seed + 2)
    for view in (c[::2, ::2], c[::-2, 9:4:-1], c.T[:6, 3:8], mx.broadcast_to(c[:1, :1], (6, 5))):
        assert mx.array_equal(mlx_gemm.addmm(view, a, b), a @ b + view)
        assert mx.array_equal(mlx_gemm.linear(a, b.T, residual=view), a @ b + view)


def test_factors_of_any_number_type(seed: int) -> None:
    a = whole((4, 4), seed)
    for two in (2, 2.0, Fraction(2), np.float32(2), np.int64(2), True + True):
        assert mx.array_equal(mlx_gemm.addmm(a, a, a, two, two), 2 * (a @ a) + 2 * a)


def test_where_mlx_differs() -> None:
    """The table of docs/semantics.md: what MLX 0.32.4 gives, and what is right."""
    a, b, nan = mx.ones((2, 3)), mx.ones((3, 2)), mx.full((2, 2), np.nan)
    nothing = mx.ones((2, 0)), mx.ones((0, 2))
    assert mx.isnan(mx.addmm(nan, *nothing, beta=0.0)).all()
    assert mx.array_equal(mlx_gemm.addmm(nan, *nothing, beta=0.0), mx.zeros((2, 2)))

    def tangent(op: Callable[..., mx.array]) -> mx.array:
        return mx.jvp(lambda c, a: op(c, a, b, 2.0, 4.0), [mx.ones((2, 2)), a], [mx.ones((2, 2)), a])[1][0]

    assert mx.array_equal(tangent(mx.addmm), mx.full((2, 2), 3.0 + 1.0))
    assert mx.array_equal(tangent(mlx_gemm.addmm), mx.full((2, 2), 2 * 3.0 + 4 * 1.0))

    batch = mx.arange(12.0).reshape(3, 2, 2)
    with pytest.raises(ValueError, match="input c must broadcast"):
        mx.vmap(lambda c: mx.addmm(c, a, b))(batch)
    assert mx.array_equal(mx.vmap(lambda c: mlx_gemm.addmm(c, a, b))(batch), batch + 3)

    operands = mx.array([1.0, 2.0, 3.0]), mx.ones((2, 3, 4)), mx.ones(4)
    with pytest.raises(ValueError, match="broadcast"):
        mx.addmm(*operands)
    assert mx.array_equal(mlx_gemm.addmm(*operands), mx.array([[5.0, 6.0, 7.0]] * 2))

    ones = mx.ones((2, 2), mx.int32)
    with pytest.raises(ValueError, match="inexact types"):
        mx.addmm(mx.array(1j), ones, ones)
    assert mx.array_equal(mlx_gemm.addmm(mx.array(1j), ones, ones), mx.full((2, 2), 2 + 1j))


@pytest.mark.parametrize("kernel", [None, "simd_gemm_64x64_k16"])
def test_gradients_of_addends_are_of_their_types(kernel: str | None) -> None:
    """Half operands into float32: what a kernel casts its addends to is not the type of their gradients."""
    a, c = mx.ones((2, 2), mx.bfloat16), mx.ones((2,), mx.bfloat16)
    options = {"kernel": kernel, "out_dtype": mx.float32}
    grad = mx.grad(lambda c: mlx_gemm.addmm(c, a, a, beta=2.0, **options).sum())(c)
    assert grad.dtype == mx.bfloat16
    assert grad.tolist() == [4.0, 4.0]
    grads = mx.grad(lambda x, r: mlx_gemm.linear(x, a, c, residual=r, **options).sum(), argnums=(0, 1))(a, a)
    assert [g.dtype for g in grads] == [mx.bfloat16, mx.bfloat16]
    assert grads[1].tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.float64])
def test_no_product_has_the_shape_of_the_call(dtype: mx.Dtype) -> None:
    """alpha = 0 in a function that is kept for other shapes."""
    with mx.stream(mx.cpu):
        f = mx.compile(lambda c, a, b: mlx_gemm.addmm(c, a, b, alpha=0.0, beta=2.0), shapeless=True)
        c = mx.ones((4,), dtype)
        for M in (2, 5):
            a = mx.full((M, 3), float("nan"), dtype)
            out = f(c, a, mx.ones((3, 4), dtype))
            assert out.shape == (M, 4)
            assert mx.array_equal(out, mx.full((M, 4), 2.0, dtype)).item()
        if dtype != mx.float64:  # lowered: MLX does not look at the shapes of a compiled product again
            with pytest.raises(ValueError, match=r"expected a.shape\[-1\] == b.shape\[-2\]"):
                f(c, mx.ones((5, 3), dtype), mx.ones((2, 4), dtype))


def test_factors_need_not_fit_a_half_type() -> None:
    zero, half = mx.zeros((1, 1), mx.float16), mx.full((1, 1), 0.5, dtype=mx.float16)

    def scaled(c: mx.array, alpha: float = 1.0) -> mx.array:
        return mlx_gemm.addmm(c, zero, zero, alpha, 7e4)

    assert scaled(half, 0.0).item() == 35008
    assert mx.vmap(scaled)(mx.stack([half, half])).tolist() == [[[35008]], [[35008]]]
    assert mx.jvp(scaled, [zero], [half])[1][0].item() == 35008
    assert mx.vjp(scaled, [zero], [half])[1][0].item() == 35008
