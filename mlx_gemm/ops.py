"""The ops, with Python's part of their checks: types and names of arguments. Everything else is in the extension."""

from __future__ import annotations

import math
import numbers
from typing import Any, TypeAlias

import mlx.core as mx

from mlx_gemm import _ext

_PRECISIONS = ("highest", "high", "medium")
_FLOAT32_MAX = 2.0**128 - 2.0**104

# What MLX's own ops take as `stream`; `mx.cpu` and `mx.gpu` are of the last type.
Stream: TypeAlias = mx.Stream | mx.ThreadLocalStream | mx.Device | mx.DeviceType


def matmul(
    a: mx.array,
    b: mx.array,
    *,
    precision: str | None = None,
    kernel: str | None = None,
    out_dtype: mx.Dtype | None = None,
    stream: Stream | None = None,
) -> mx.array:
    """Matrix product, C[..., m, n] = sum_k a[..., m, k] b[..., k, n], lazy like any MLX op.

    Shapes, type promotion, 1-D operands and broadcasting are those of `mx.matmul`.

    Args:
        a: `[..., M, K]`, or `[K]` for a row.
        b: `[..., K, N]`, or `[K]` for a column.
        precision: None or "highest": float32 is multiplied and accumulated in float32.
        kernel: name of the kernel that must run, from `kernels()`: types and shapes within the kernel's own rules. On a
            CPU it runs through the Metal host runtime, on an Apple GPU it is compiled at run time. None chooses;
            `explain` says what.
        out_dtype: type of the result: the type that the operands promote to, or float32 for operands that promote to
            float16 or bfloat16, whose products and sums are then never rounded to it. None is the promoted type.
        stream: stream or device to run on.

    Returns:
        `[..., M, N]` in `out_dtype`.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: shapes or types do not fit, a kernel or precision that does not exist, or a kernel that cannot run
            these shapes.

    Operands may lie in memory in any way: row- or column-contiguous ones and slices of them are used in place, others
    are copied first. A named kernel copies whatever is not row-contiguous. Gradients choose their own kernels.

    Example:
        >>> matmul(mx.ones((2, 3)), mx.ones((3, 4))).shape
        (2, 4)
    """
    if precision is not None or stream is not None:
        check_request("matmul", precision=precision, stream=stream)
    try:
        return _ext.matmul(a, b, kernel=kernel, out_dtype=out_dtype, stream=stream)
    except TypeError:
        # Only now: looking at every argument takes as long as a small product.
        check_arrays("matmul", a=a, b=b)
        check_request("matmul", kernel=kernel, out_dtype=out_dtype, stream=stream)
        raise


def addmm(
    c: mx.array,
    a: mx.array,
    b: mx.array,
    alpha: float = 1.0,
    beta: float = 1.0,
    *,
    activation: str | None = None,
    precision: str | None = None,
    kernel: str | None = None,
    out_dtype: mx.Dtype | None = None,
    stream: Stream | None = None,
) -> mx.array:
    """D = activation(alpha a b + beta c), lazy like any MLX op.

    Shapes, type promotion, 1-D operands and broadcasting are those of `mx.addmm`; complex operands too.

    Args:
        c: any shape that broadcasts to the product's, a scalar too.
        a: `[..., M, K]`, or `[K]` for a row.
        b: `[..., K, N]`, or `[K]` for a column.
        alpha: factor of the product, in float32. 0 ignores `a` and `b`, whatever they hold.
        beta: factor of `c`, in float32. 0 ignores `c`, whatever it holds.
        activation: None, "relu", "gelu", "gelu_tanh" or "silu", applied to the sum.
        precision: as for `matmul`.
        kernel: as for `matmul`.
        out_dtype: as for `matmul`; `c` takes part in the promotion.
        stream: as for `matmul`.

    Returns:
        `[..., M, N]` in `out_dtype`.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: as for `matmul`; `c` does not broadcast to the product; an unknown activation, or one of complex
            operands.

    Example:
        >>> addmm(mx.ones((4,)), mx.ones((2, 3)), mx.ones((3, 4)), alpha=2.0)[0, 0].item()
        7.0
    """
    check_arrays("addmm", c=c, a=a, b=b)
    alpha, beta = _factor("alpha", alpha), _factor("beta", beta)
    check_request(
        "addmm", activation=activation, precision=precision, kernel=kernel, out_dtype=out_dtype, stream=stream
    )
    return _ext.addmm(c, a, b, alpha, beta, activation=activation, kernel=kernel, out_dtype=out_dtype, stream=stream)


def linear(
    x: mx.array,
    weight: mx.array,
    bias: mx.array | None = None,
    *,
    activation: str | None = None,
    residual: mx.array | None = None,
    precision: str | None = None,
    kernel: str | None = None,
    out_dtype: mx.Dtype | None = None,
    stream: Stream | None = None,
) -> mx.array:
    """A linear layer, y = activation(x weight^T + bias) + residual, lazy like any MLX op.

    Args:
        x: `[..., K]`.
        weight: `[N, K]`; used in place, not transposed in memory.
        bias: `[N]`, or None.
        activation: None, "relu", "gelu", "gelu_tanh" or "silu".
        residual: any shape that broadcasts to the result's, or None.
        precision: as for `matmul`.
        kernel: as for `matmul`.
        out_dtype: as for `matmul`; all operands take part in the promotion.
        stream: as for `matmul`.

    Returns:
        `[..., N]` in `out_dtype`.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: as for `addmm`.

    Example:
        >>> linear(mx.ones((5, 3)), mx.ones((4, 3)), mx.zeros(4), activation="relu").shape
        (5, 4)
    """
    if precision is not None or stream is not None:
        check_request("linear", precision=precision, stream=stream)
    try:
        return _ext.linear(
            x, weight, bias, activation=activation, residual=residual, kernel=kernel, out_dtype=out_dtype, stream=stream
        )
    except TypeError:
        check_arrays("linear", x=x, weight=weight)
        check_optional_arrays("linear", bias=bias, residual=residual)
        check_request("linear", activation=activation, kernel=kernel, out_dtype=out_dtype, stream=stream)
        raise


def _factor(name: str, value: object) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError(f"[mlx_gemm.addmm] {name} must be a number, got {type(value).__name__}")
    size: Any = abs(value)  # compared as it is: an int need not fit a float
    if _FLOAT32_MAX < size < math.inf:
        raise ValueError(f"[mlx_gemm.addmm] {name} must fit float32, which ends at {_FLOAT32_MAX:.4g}")
    return float(value)


def check_arrays(op: str, **operands: object) -> None:
    for name, operand in operands.items():
        if not isinstance(operand, mx.array):
            raise TypeError(f"[mlx_gemm.{op}] {name} must be an mlx.core.array, got {type(operand).__name__}")


def check_optional_arrays(op: str, **operands: object) -> None:
    check_arrays(op, **{name: operand for name, operand in operands.items() if operand is not None})


def check_request(
    op: str,
    *,
    precision: object = None,
    kernel: object = None,
    out_dtype: object = None,
    activation: object = None,
    stream: object = None,
) -> None:
    check_precision(op, precision)
    for name, value in {"kernel": kernel, "activation": activation}.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"[mlx_gemm.{op}] {name} must be a name or None, got {type(value).__name__}")
    if out_dtype is not None and not isinstance(out_dtype, mx.Dtype):
        raise TypeError(f"[mlx_gemm.{op}] out_dtype must be an mlx.core.Dtype or None, got {type(out_dtype).__name__}")
    if stream is not None and not isinstance(stream, Stream):
        raise TypeError(f"[mlx_gemm.{op}] stream must be a stream, a device or None, got {type(stream).__name__}")


def check_precision(op: str, precision: object) -> None:
    if precision is None or (isinstance(precision, str) and precision == "highest"):
        return
    if not isinstance(precision, str):
        raise TypeError(f"[mlx_gemm.{op}] precision must be None or 'highest', got {type(precision).__name__}")
    later = ", which has no kernel yet" if precision in _PRECISIONS else ""
    raise ValueError(f"[mlx_gemm.{op}] precision must be None or 'highest', got {precision!r}{later}")
