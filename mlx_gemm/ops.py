"""The ops, with Python's part of their checks: types and names of arguments. Everything else is in the extension."""

from __future__ import annotations

import mlx.core as mx

from mlx_gemm import _ext

_PRECISIONS = ("highest", "high", "medium")


def matmul(
    a: mx.array,
    b: mx.array,
    *,
    precision: str | None = None,
    kernel: str | None = None,
    stream: mx.Stream | mx.Device | None = None,
) -> mx.array:
    """Matrix product, C[..., m, n] = sum_k a[..., m, k] b[..., k, n], lazy like any MLX op.

    Shapes, type promotion, 1-D operands and broadcasting are those of `mx.matmul`.

    Args:
        a: `[..., M, K]`, or `[K]` for a row.
        b: `[..., K, N]`, or `[K]` for a column.
        precision: None or "highest": float32 is multiplied and accumulated in float32.
        kernel: name of the kernel that must run, from `kernels()`: float32, within the kernel's own rules. On a CPU it
            runs through the Metal host runtime, on an Apple GPU it is compiled at run time. None chooses; `explain`
            says what.
        stream: stream or device to run on.

    Returns:
        `[..., M, N]` in the type that the operands promote to.

    Raises:
        TypeError: an operand is not an `mlx.core.array`.
        ValueError: shapes or types do not fit, a kernel or precision that does not exist, or a kernel that cannot run
            these shapes.

    Operands may lie in memory in any way: row- or column-contiguous ones and slices of them are used in place, others
    are copied first. A named kernel copies whatever is not row-contiguous. Gradients choose their own kernels.

    Example:
        >>> matmul(mx.ones((2, 3)), mx.ones((3, 4))).shape
        (2, 4)
    """
    check_arrays("matmul", a=a, b=b)
    check_precision("matmul", precision)
    check_kernel("matmul", kernel)
    return _ext.matmul(a, b, kernel=kernel, stream=stream)


def linear(
    x: mx.array,
    weight: mx.array,
    bias: mx.array | None = None,
    *,
    precision: str | None = None,
    kernel: str | None = None,
    stream: mx.Stream | mx.Device | None = None,
) -> mx.array:
    """A linear layer, y = x weight^T + bias, lazy like any MLX op.

    Args:
        x: `[..., K]`.
        weight: `[N, K]`; used in place, not transposed in memory.
        bias: `[N]`, or None.
        precision: as for `matmul`.
        kernel: as for `matmul`.
        stream: as for `matmul`.

    Returns:
        `[..., N]` in the type that all operands promote to.

    Raises:
        TypeError: an operand is not an `mlx.core.array`.
        ValueError: as for `matmul`.

    Example:
        >>> linear(mx.ones((5, 3)), mx.ones((4, 3)), mx.zeros(4)).shape
        (5, 4)
    """
    check_arrays("linear", x=x, weight=weight)
    if bias is not None:
        check_arrays("linear", bias=bias)
    check_precision("linear", precision)
    check_kernel("linear", kernel)
    return _ext.linear(x, weight, bias, kernel=kernel, stream=stream)


def check_arrays(op: str, **operands: object) -> None:
    for name, operand in operands.items():
        if not isinstance(operand, mx.array):
            raise TypeError(f"[mlx_gemm.{op}] {name} must be an mlx.core.array, got {type(operand).__name__}")


def check_kernel(op: str, kernel: object) -> None:
    if kernel is not None and not isinstance(kernel, str):
        raise TypeError(f"[mlx_gemm.{op}] kernel must be the name of a kernel, got {type(kernel).__name__}")


def check_precision(op: str, precision: str | None) -> None:
    if precision is None or (isinstance(precision, str) and precision == "highest"):
        return
    if not isinstance(precision, str):
        raise TypeError(f"[mlx_gemm.{op}] precision must be None or 'highest', got {type(precision).__name__}")
    later = ", which has no kernel yet" if precision in _PRECISIONS else ""
    raise ValueError(f"[mlx_gemm.{op}] precision must be None or 'highest', got {precision!r}{later}")
