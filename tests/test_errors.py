"""Every misuse is refused when the op is built, with a message that says what was wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

import mlx_gemm
from mlx_gemm import _ext, host


def zeros(*shape: int) -> mx.array:
    return mx.zeros(shape)


def raises(message: str, kind: type[Exception] = ValueError) -> AbstractContextManager[object]:
    return pytest.raises(kind, match=re.escape(message))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3, 4), (5, 6), "[mlx_gemm.matmul] expected a.shape[-1] == b.shape[-2], got a=(3,4) b=(5,6)"),
        ((4,), (5,), "[mlx_gemm.matmul] expected a.shape[-1] == b.shape[-2], got a=(1,4) b=(5,1)"),
        ((2, 3, 4), (3, 4, 5), "[mlx_gemm.matmul] expected batch dimensions that broadcast, got a=(2,3,4) b=(3,4,5)"),
        ((), (4, 5), "[mlx_gemm.matmul] expected operands with at least one dimension, got a=() b=(4,5)"),
    ],
)
def test_shapes_that_do_not_fit(a: tuple, b: tuple, message: str) -> None:
    with raises(message):
        mlx_gemm.matmul(zeros(*a), zeros(*b))
    with raises(message.replace("matmul", "explain")):
        mlx_gemm.explain(zeros(*a), zeros(*b))


@pytest.mark.parametrize(
    ("x", "weight", "bias", "message"),
    [
        ((3, 4), (5, 6), None, "[mlx_gemm.linear] expected x[..., K] and weight[N, K], got x=(3,4) weight=(5,6)"),
        ((3, 4), (4,), None, "[mlx_gemm.linear] expected x[..., K] and weight[N, K], got x=(3,4) weight=(4)"),
        ((), (5, 4), None, "[mlx_gemm.linear] expected x[..., K] and weight[N, K], got x=() weight=(5,4)"),
        ((3, 4), (5, 4), (4,), "[mlx_gemm.linear] expected bias[N] with N=5, got bias=(4)"),
        ((3, 4), (5, 4), (1, 5), "[mlx_gemm.linear] expected bias[N] with N=5, got bias=(1,5)"),
    ],
)
def test_linear_shapes_that_do_not_fit(x: tuple, weight: tuple, bias: tuple | None, message: str) -> None:
    with raises(message):
        mlx_gemm.linear(zeros(*x), zeros(*weight), None if bias is None else zeros(*bias))


@pytest.mark.parametrize("other", [[[1.0]], np.ones((2, 2)), 1.0, None], ids=lambda x: type(x).__name__)
def test_operands_must_be_arrays(other: object) -> None:
    kind = type(other).__name__
    a = zeros(2, 2)
    with raises(f"[mlx_gemm.matmul] a must be an mlx.core.array, got {kind}", TypeError):
        mlx_gemm.matmul(other, a)
    with raises(f"[mlx_gemm.matmul] b must be an mlx.core.array, got {kind}", TypeError):
        mlx_gemm.matmul(a, other)
    with raises(f"[mlx_gemm.linear] weight must be an mlx.core.array, got {kind}", TypeError):
        mlx_gemm.linear(a, other)
    with raises(f"[mlx_gemm.explain] a must be an mlx.core.array, got {kind}", TypeError):
        mlx_gemm.explain(other, a)
    with raises(f"[mlx_gemm.host.run] b must be an mlx.core.array, got {kind}", TypeError):
        host.run("naive", a, other)
    if other is not None:
        with raises(f"[mlx_gemm.linear] bias must be an mlx.core.array, got {kind}", TypeError):
            mlx_gemm.linear(a, a, other)


def test_integers_are_no_matrices() -> None:
    a = mx.ones((2, 2), mx.int32)
    message = "[mlx_gemm.matmul] expected operands that promote to a floating-point or complex type, got int32, int32"
    with raises(message):
        mlx_gemm.matmul(a, a)


def test_unknown_kernels_get_suggestions() -> None:
    with raises("[mlx_gemm.matmul] no kernel is called 'tiled16'; the nearest names are tiled_16"):
        mlx_gemm.matmul(zeros(2, 2), zeros(2, 2), kernel="tiled16")
    with raises("[mlx_gemm.host.run] no kernel is called ''"):
        host.run("", zeros(2, 2), zeros(2, 2))


def test_a_named_kernel_keeps_its_rules() -> None:
    message = "simdgroup_32x32 needs N to be a multiple of 32, got N=33"
    a, b = zeros(32, 8), zeros(8, 33)
    with raises(f"[mlx_gemm.matmul] {message}"):
        mlx_gemm.matmul(a, b, kernel="simdgroup_32x32")
    with raises(f"[mlx_gemm.linear] {message}"):
        mlx_gemm.linear(a, zeros(33, 8), kernel="simdgroup_32x32")
    with raises(f"[mlx_gemm.explain] {message}"):
        mlx_gemm.explain(a, b, kernel="simdgroup_32x32")
    with raises(f"[mlx_gemm.host.run] {message}"):
        host.run("simdgroup_32x32", a, b)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.complex64])
def test_a_named_kernel_takes_its_own_type(dtype: mx.Dtype) -> None:
    a = mx.zeros((8, 8), dtype)
    name = str(dtype).rpartition(".")[2]
    with raises(f"[mlx_gemm.matmul] naive multiplies float32, got {name}"):
        mlx_gemm.matmul(a, a, kernel="naive")
    with raises(f"[mlx_gemm.host.run] naive multiplies float32, got {name}"):
        host.run("naive", a, a)


@pytest.mark.parametrize("op", [mlx_gemm.matmul, mlx_gemm.linear, mlx_gemm.explain], ids=lambda op: op.__name__)
def test_precisions(op: Callable[..., object]) -> None:
    a = zeros(2, 2)
    for precision in ("high", "medium"):
        with raises(
            f"[mlx_gemm.{op.__name__}] precision must be None or 'highest', got '{precision}', which has no kernel yet"
        ):
            op(a, a, precision=precision)
    with raises(f"[mlx_gemm.{op.__name__}] precision must be None or 'highest', got 'fast'"):
        op(a, a, precision="fast")


def test_host_run_takes_matrices_that_are_not_empty() -> None:
    with raises("[mlx_gemm.host.run] expected a[M, K] and b[K, N], got a=(2,3,4) b=(4,5)"):
        host.run("naive", zeros(2, 3, 4), zeros(4, 5))
    with raises("[mlx_gemm.host.run] expected a.shape[-1] == b.shape[-2], got a=(3,4) b=(5,6)"):
        host.run("naive", zeros(3, 4), zeros(5, 6))
    with raises("[mlx_gemm.host.run] naive needs K to be at least 1, got K=0"):
        host.run("naive", zeros(3, 0), zeros(0, 6))


def test_host_run_modes() -> None:
    a = zeros(64, 64)
    with raises("[mlx_gemm.host.run] 'threads' is not one of auto, lanes, uniform"):
        host.run("naive", a, a, mode="threads")
    with raises("naive asks which lane it runs on: mode='uniform' cannot run it, mode='lanes' can"):
        host.run("naive", a, a, mode="uniform")
    assert host.run("tensorops_64x64", a, a, mode="uniform")[1].mode == "uniform"
    assert issubclass(host.HostFault, RuntimeError)


def test_host_run_says_that_a_build_has_no_checked_kernels() -> None:
    a = zeros(64, 64)
    path = str(Path(_ext.__file__).with_name("_checked.so"))
    _ext.load_checked("")
    try:
        assert not _ext.can_check()
        with raises("[mlx_gemm.host.run] this build has no checked kernels, they are built on Linux only"):
            host.run("naive", a, a)
        assert host.run("naive", a, a, check=False)[1].requested_read_bytes is None
    finally:
        _ext.load_checked(path)
    assert host.run("naive", a, a)[1].checked


def test_a_product_inside_a_graph_fails_where_it_is_built() -> None:
    x = mx.ones((4, 4)) + 1
    with raises("expected a.shape[-1] == b.shape[-2]"):
        mlx_gemm.matmul(x, x[:3])


@pytest.mark.parametrize("op", [mlx_gemm.matmul, mlx_gemm.linear, mlx_gemm.explain], ids=lambda op: op.__name__)
def test_kernels_and_precisions_of_a_wrong_type(op: Callable[..., object]) -> None:
    a = zeros(2, 2)
    with pytest.raises(TypeError, match=rf"\[mlx_gemm.{op.__name__}\] kernel must be a name or None, got int"):
        op(a, a, kernel=3)
    with pytest.raises(TypeError, match=rf"\[mlx_gemm.{op.__name__}\] precision must be None or 'highest', got list"):
        op(a, a, precision=[])


@pytest.mark.parametrize(
    ("argument", "error"),
    [
        ({"check": 1}, TypeError),
        ({"mode": None}, TypeError),
        ({"seed": "x"}, TypeError),
        ({"seed": -1}, ValueError),
        ({"seed": 2**64}, ValueError),
    ],
)
def test_host_run_arguments(argument: dict, error: type[Exception]) -> None:
    a = zeros(2, 2)
    with pytest.raises(error, match=r"\[mlx_gemm.host.run\]"):
        host.run("naive", a, a, **argument)


@pytest.mark.parametrize("stream", ["cpu", 0, object(), [mx.cpu]], ids=lambda x: type(x).__name__)
def test_streams_of_a_wrong_type(stream: object) -> None:
    a, kind = zeros(2, 2), type(stream).__name__
    for op in (mlx_gemm.matmul, mlx_gemm.linear, mlx_gemm.explain):
        with raises(f"[mlx_gemm.{op.__name__}] stream must be a stream, a device or None, got {kind}", TypeError):
            op(a, a, stream=stream)
    with raises(f"[mlx_gemm.addmm] stream must be a stream, a device or None, got {kind}", TypeError):
        mlx_gemm.addmm(a, a, a, stream=stream)


def test_every_kind_of_stream_is_taken() -> None:
    a = mx.ones((2, 2))
    for stream in (
        None,
        mx.cpu,
        mx.Device(mx.cpu, 0),
        mx.default_device(),
        mx.default_stream(mx.cpu),
        mx.new_thread_local_stream(mx.cpu),
    ):
        assert mlx_gemm.matmul(a, a, stream=stream).sum().item() == 8
        assert mlx_gemm.explain(a, a, stream=stream).route == mlx_gemm.explain(a, a).route


def test_activations() -> None:
    a = zeros(2, 2)
    known = "'tanh' is not one of none, relu, gelu, gelu_tanh, silu"
    with raises(f"[mlx_gemm.linear] {known}"):
        mlx_gemm.linear(a, a, activation="tanh")
    with raises(f"[mlx_gemm.addmm] {known}"):
        mlx_gemm.addmm(a, a, a, activation="tanh")
    with raises("[mlx_gemm.linear] activation must be a name or None, got list", TypeError):
        mlx_gemm.linear(a, a, activation=["relu"])
    c = mx.zeros((2, 2), mx.complex64)
    with raises("[mlx_gemm.addmm] expected real operands for the activation relu, got complex64"):
        mlx_gemm.addmm(c, a, a, activation="relu")


@pytest.mark.parametrize(
    ("c", "a", "b", "message"),
    [
        ((3, 4), (3, 4), (4, 5), "expected c that broadcasts to the product's shape (3,5), got c=(3,4)"),
        ((2, 3, 5), (3, 4), (4, 5), "expected c that broadcasts to the product's shape (3,5), got c=(2,3,5)"),
        ((0,), (3, 4), (4, 5), "expected c that broadcasts to the product's shape (3,5), got c=(0)"),
        ((3, 5), (3, 4), (5, 4), "expected a.shape[-1] == b.shape[-2], got a=(3,4) b=(5,4)"),
        ((3, 5), (), (4, 5), "expected operands with at least one dimension, got a=() b=(4,5)"),
    ],
)
def test_addmm_shapes_that_do_not_fit(c: tuple, a: tuple, b: tuple, message: str) -> None:
    with raises(f"[mlx_gemm.addmm] {message}"):
        mlx_gemm.addmm(zeros(*c), zeros(*a), zeros(*b))


def test_a_residual_that_does_not_fit() -> None:
    with raises("[mlx_gemm.linear] expected residual that broadcasts to the product's shape (3,5), got residual=(3,4)"):
        mlx_gemm.linear(zeros(3, 4), zeros(5, 4), residual=zeros(3, 4))
    with raises("[mlx_gemm.linear] residual must be an mlx.core.array, got float", TypeError):
        mlx_gemm.linear(zeros(3, 4), zeros(5, 4), residual=1.0)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_factors(name: str) -> None:
    a = zeros(2, 2)
    for factor in ("2", None, [2.0], mx.array(2.0), 1j):
        kind = type(factor).__name__
        with raises(f"[mlx_gemm.addmm] {name} must be a number, got {kind}", TypeError):
            mlx_gemm.addmm(a, a, a, **{name: factor})
    for factor in (10**400, 1e39, -1e300):
        with raises(f"[mlx_gemm.addmm] {name} must fit float32, which ends at 3.403e+38"):
            mlx_gemm.addmm(a, a, a, **{name: factor})
    assert mx.isnan(mlx_gemm.addmm(a, a, a, **{name: float("inf")})).all()


@pytest.mark.parametrize("dtype", ["float32", mx.zeros((1,)), np.float32, float], ids=repr)
def test_result_types_of_a_wrong_type(dtype: object) -> None:
    a = zeros(2, 2)
    with raises("[mlx_gemm.matmul] out_dtype must be an mlx.core.Dtype or None", TypeError):
        mlx_gemm.matmul(a, a, out_dtype=dtype)
