"""What kernels exist, and which one runs: views of the registry and the selector in the C++ extension."""

from __future__ import annotations

import mlx.core as mx

from mlx_gemm import _ext
from mlx_gemm._ext import KernelInfo, Plan
from mlx_gemm.ops import Stream, check_arrays, check_optional_arrays, check_request

__all__ = ["KernelInfo", "Plan", "explain", "kernels"]


def kernels() -> list[KernelInfo]:
    """Every kernel of the registry, in its order.

    Returns:
        One `KernelInfo` per row of `metal/shared/gemm_kernels.def`: name, tile (`bm`, `bn`, `bk`), `simdgroups`,
        `threadgroup_bytes`, the multiples of M, N and K that it `needs`, types, role, summary. Its method
        `requested_read_bytes(M, N, K)` counts the bytes of A and B that it asks of device memory.

    Example:
        >>> [k.name for k in kernels()][:3]
        ['naive', 'tiled_16', 'tiled_32']
    """
    return list(_ext.kernels())


def explain(
    a: mx.array,
    b: mx.array,
    *,
    c: mx.array | None = None,
    bias: mx.array | None = None,
    activation: str | None = None,
    device: str | None = None,
    precision: str | None = None,
    kernel: str | None = None,
    out_dtype: mx.Dtype | None = None,
    stream: Stream | None = None,
) -> Plan:
    """Which implementation `matmul(a, b)` would run, and why not the others.

    Evaluates `a` and `b`, because the choice depends on how they lie in memory; computes no product.

    Args:
        a: `[..., M, K]`, as for `matmul`.
        b: `[..., K, N]`, as for `matmul`.
        c: what `addmm` adds, or None.
        bias: `[N]`, added to every row by `linear`, or None.
        activation: as for `addmm`.
        device: architecture of an Apple GPU, such as "applegpu_g17g" for an M5: what it would run under macOS 26.2,
            whether there is one here or not. None is the device of `stream`.
        precision: as for `matmul`.
        kernel: as for `matmul`.
        out_dtype: as for `matmul`.
        stream: stream or device that would run it.

    Returns:
        A `Plan`: `route` ("kernel", "blas" or "mlx"), `kernel` (its name or None), `reason`, `rejected` (pairs of a
        candidate and the reason against it), `copies` (operands that must be copied first). `str()` is readable.

    Raises:
        TypeError: an argument of a wrong type.
        ValueError: as for `matmul`.

    Example:
        >>> explain(mx.zeros((64, 64)), mx.zeros((64, 64)), kernel="naive").kernel
        'naive'
    """
    check_arrays("explain", a=a, b=b)
    check_optional_arrays("explain", c=c, bias=bias)
    check_request(
        "explain", activation=activation, precision=precision, kernel=kernel, out_dtype=out_dtype, stream=stream
    )
    if device is not None and not isinstance(device, str):
        raise TypeError(f"[mlx_gemm.explain] device must be the name of a GPU or None, got {type(device).__name__}")
    return _ext.explain(
        a, b, c=c, bias=bias, activation=activation, device=device, kernel=kernel, out_dtype=out_dtype, stream=stream
    )
