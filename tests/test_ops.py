"""matmul, linear and explain: the semantics of mx.matmul, and what runs beneath."""

from __future__ import annotations

from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import assert_product, assert_within_bound, integers, normal

import mlx_gemm
from mlx_gemm import _ext

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((1, 3, 4), (7, 4, 5)),
    ((7, 1, 1, 3, 4), (2, 1, 4, 5)),
    ((1, 1), (1, 1)),
    ((1, 64), (64, 48)),
    ((48, 64), (64, 1)),
]
EMPTY_SHAPES = [
    ((0, 4), (4, 5)),
    ((3, 0), (0, 5)),
    ((3, 4), (4, 0)),
    ((0,), (0,)),
    ((0,), (0, 5)),
    ((2, 0, 3, 4), (4, 5)),
    ((0, 3, 4), (1, 4, 5)),
    ((2, 3, 0), (2, 0, 5)),
]

# Ways to hold the same [rows, columns] values in memory.
VIEWS: dict[str, Callable[[np.ndarray], mx.array]] = {
    "rows": mx.array,
    "columns": lambda x: mx.array(np.ascontiguousarray(x.T)).T,
    "part of wider rows": lambda x: mx.array(np.pad(x, ((2, 1), (3, 7))))[2:-1, 3:-7],
    "part of longer columns": lambda x: mx.array(np.pad(x, ((2, 1), (3, 7))).T.copy())[3:-7, 2:-1].T,
    "every second column": lambda x: mx.array(np.repeat(x, 2, axis=1))[:, ::2],
    "every second row": lambda x: mx.array(np.repeat(x, 2, axis=0))[::2],
    "backwards": lambda x: mx.array(x[::-1, ::-1].copy())[::-1, ::-1],
}


def count(name: str) -> int:
    return _ext.counters()[name]


@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES + EMPTY_SHAPES, ids=str)
@pytest.mark.parametrize("kernel", [None, "naive"])
def test_shapes_are_those_of_matmul(a_shape: tuple, b_shape: tuple, kernel: str | None, seed: int) -> None:
    a, b = integers(a_shape, seed), integers(b_shape, seed + 1)
    out = mlx_gemm.matmul(mx.array(a), mx.array(b), kernel=kernel)
    theirs = mx.matmul(mx.array(a), mx.array(b))
    assert out.shape == theirs.shape
    assert out.dtype == theirs.dtype
    assert np.array_equal(np.array(out), np.matmul(a, b))


@pytest.mark.parametrize("left", VIEWS)
@pytest.mark.parametrize("right", VIEWS)
def test_layouts(left: str, right: str, seed: int) -> None:
    a, b = normal((33, 41), seed), normal((41, 29), seed + 1)
    out = mlx_gemm.matmul(VIEWS[left](a), VIEWS[right](b))
    assert_within_bound(out, a, b, f"{left} @ {right} {seed=}")


@pytest.mark.parametrize("left", ["rows", "columns", "part of wider rows", "part of longer columns"])
@pytest.mark.parametrize("right", ["rows", "columns", "part of wider rows", "part of longer columns"])
def test_operands_that_can_be_addressed_are_not_copied(left: str, right: str, seed: int) -> None:
    a, b = VIEWS[left](normal((33, 41), seed)), VIEWS[right](normal((41, 29), seed + 1))
    mx.eval(a, b)
    before = count("copies")
    mx.eval(mlx_gemm.matmul(a, b))
    assert count("copies") == before
    assert mlx_gemm.explain(a, b).copies == 0


@pytest.mark.parametrize("dtype", [mx.float64, mx.complex64], ids=["float64", "complex64"])
def test_one_blas_call_multiplies_transposes(dtype: mx.Dtype) -> None:
    with mx.stream(mx.cpu):
        a, b = mx.ones((41, 33), dtype=dtype).T, mx.ones((29, 41), dtype=dtype).T
        mx.eval(a, b)
        before = count("blas_calls"), count("copies")
        mx.eval(mlx_gemm.matmul(a, b))
    assert (count("blas_calls"), count("copies")) == (before[0] + 1, before[1])


def test_copies_are_counted_and_explained(seed: int) -> None:
    a = VIEWS["every second column"](normal((33, 41), seed))
    b = VIEWS["backwards"](normal((41, 29), seed + 1))
    mx.eval(a, b)
    before = count("copies")
    mx.eval(mlx_gemm.matmul(a, b))
    assert count("copies") == before + 2
    assert mlx_gemm.explain(a, b).copies == 2


@settings(max_examples=100)
@given(shape=st.tuples(*[st.integers(1, 80)] * 3), seed=st.integers(0, 2**31))
def test_automatic_products(shape: tuple[int, int, int], seed: int) -> None:
    assert_product(mlx_gemm.matmul, *shape, seed, "automatic")


@pytest.mark.parametrize("K", [2048, 65536])
def test_long_sums(K: int, seed: int) -> None:
    assert_product(mlx_gemm.matmul, 16, 24, K, seed, "automatic")


@pytest.mark.parametrize("left", ["float32", "float16", "bfloat16", "complex64", "int32", "bool_"])
@pytest.mark.parametrize("right", ["float32", "float16", "bfloat16", "complex64"])
def test_types_promote_like_matmul(left: str, right: str, seed: int) -> None:
    a = mx.array(integers((5, 7), seed)).astype(getattr(mx, left))
    b = mx.array(integers((7, 4), seed + 1)).astype(getattr(mx, right))
    out, theirs = mlx_gemm.matmul(a, b), mx.matmul(a, b)
    assert out.dtype == theirs.dtype
    assert mx.array_equal(out, theirs)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.complex64])
def test_every_type_runs_our_primitive(dtype: mx.Dtype) -> None:
    a = mx.ones((4, 4), dtype)
    before = _ext.counters()
    mx.eval(mlx_gemm.matmul(a, a), mlx_gemm.linear(a, a))
    after = _ext.counters()
    assert (after["gemm_evals"], after["lowered"]) == (before["gemm_evals"] + 2, before["lowered"])


def test_matmul_is_lazy() -> None:
    a = mx.ones((4, 4))
    before = count("gemm_evals")
    out = mlx_gemm.matmul(mlx_gemm.matmul(a, a), a)
    assert count("gemm_evals") == before
    mx.eval(out)
    assert count("gemm_evals") == before + 2


def test_a_result_feeds_mlx_ops(seed: int) -> None:
    a, b = integers((9, 9), seed), integers((9, 9), seed + 1)
    x, y = mx.array(a), mx.array(b)
    out = mlx_gemm.matmul(x + 1, mlx_gemm.matmul(x, y).T) * 2
    assert np.array_equal(np.array(out), (a + 1) @ (a @ b).T * 2)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("x_shape", [(7,), (3, 7), (2, 3, 7), (2, 1, 3, 7), (0, 7), (2, 0)], ids=str)
def test_linear(x_shape: tuple, bias: bool, seed: int) -> None:
    x, weight, offset = integers(x_shape, seed), integers((5, x_shape[-1]), seed + 1), integers((5,), seed + 2)
    out = mlx_gemm.linear(mx.array(x), mx.array(weight), mx.array(offset) if bias else None)
    assert np.array_equal(np.array(out), x @ weight.T + (offset if bias else 0))


def test_linear_joins_its_rows_into_one_product(seed: int) -> None:
    x, weight, bias = normal((3, 5, 32), seed), normal((24, 32), seed + 1), normal((24,), seed + 2)
    before = count("blas_calls")
    out = mlx_gemm.linear(mx.array(x), mx.array(weight), mx.array(bias))
    mx.eval(out)
    assert count("blas_calls") == before + 1
    # The bias is one more step along K, with inputs of 1.
    rows = np.concatenate([x, np.ones((3, 5, 1))], axis=-1)
    assert_within_bound(out, rows, np.c_[weight, bias].T, f"linear {seed=}")


def test_linear_takes_a_strided_bias(seed: int) -> None:
    x, weight, bias = integers((3, 7), seed), integers((5, 7), seed + 1), integers((10,), seed + 2)
    out = mlx_gemm.linear(mx.array(x), mx.array(weight), mx.array(bias)[::2])
    assert np.array_equal(np.array(out), x @ weight.T + bias[::2])


def test_linear_with_a_named_kernel(seed: int) -> None:
    x, weight, bias = normal((16, 24), seed), normal((32, 24), seed + 1), normal((32,), seed + 2)
    before = count("host_launches")
    out = mlx_gemm.linear(mx.array(x), mx.array(weight), mx.array(bias), kernel="simdgroup_8x8")
    assert_within_bound(out, np.c_[x, np.ones(16)], np.c_[weight, bias].T, f"linear {seed=}")
    assert count("host_launches") == before + 1


def test_streams_of_the_cpu(seed: int) -> None:
    a, b = mx.array(normal((33, 41), seed)), mx.array(normal((41, 29), seed + 1))
    for stream in (mx.cpu, mx.default_stream(mx.cpu), mx.new_stream(mx.cpu)):
        for kernel in (None, "tiled_16"):
            assert_within_bound(mlx_gemm.matmul(a, b, kernel=kernel, stream=stream), a, b, f"{stream} {seed=}")


def test_highest_precision_may_be_named(seed: int) -> None:
    a = mx.array(normal((8, 8), seed))
    assert mx.array_equal(mlx_gemm.matmul(a, a, precision="highest"), mlx_gemm.matmul(a, a))
    assert mx.array_equal(mlx_gemm.linear(a, a, precision="highest"), mlx_gemm.linear(a, a))


def test_explain_the_automatic_choice() -> None:
    plan = mlx_gemm.explain(mx.zeros((64, 32)), mx.zeros((48, 32)).T)
    assert (plan.route, plan.kernel, plan.copies) == ("blas", None, 0)
    assert (plan.M, plan.N, plan.K, plan.batch, plan.layout, plan.dtype) == (64, 48, 32, 1, "nt", "float32")
    assert [name for name, _ in plan.rejected] == [kernel.name for kernel in mlx_gemm.kernels()]
    reasons = dict(plan.rejected)
    assert reasons["tensorops_sync_64x64_k256"].endswith("got N=48") or "layout" in reasons["tensorops_sync_64x64_k256"]
    text = str(plan)
    assert "M=64 N=48 K=32 nt float32" in text
    assert plan.reason in text
    assert "naive" in text


def test_explain_a_named_kernel() -> None:
    plan = mlx_gemm.explain(mx.zeros((64, 32)), mx.zeros((32, 48)), kernel="simdgroup_8x8")
    assert (plan.route, plan.kernel, plan.reason) == ("kernel", "simdgroup_8x8", "named by the caller")
    assert "simdgroup_8x8" in str(plan)


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16, mx.float64, mx.complex64])
def test_explain_names_the_type(dtype: mx.Dtype) -> None:
    plan = mlx_gemm.explain(mx.zeros((4, 4), dtype), mx.zeros((4, 4), dtype))
    assert (plan.route, plan.kernel) == ("blas", None)
    assert str(dtype).rpartition(".")[2] in plan.reason


def test_explain_evaluates_operands_and_computes_nothing(seed: int) -> None:
    before = _ext.counters()
    mlx_gemm.explain(mx.array(normal((8, 8), seed)).T + 1, mx.zeros((8, 8)))
    assert _ext.counters() == before


@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16])
def test_linear_with_nothing_to_sum_is_the_bias(dtype: mx.Dtype) -> None:
    out = mlx_gemm.linear(mx.ones((2, 2, 0), dtype), mx.ones((3, 0), dtype), mx.array([1, 2, 3], dtype))
    assert out.dtype == dtype
    assert mx.array_equal(out, mx.broadcast_to(mx.array([1, 2, 3], dtype), (2, 2, 3)))
