"""Runs a Metal kernel on the CPU: the same `.metal` source, through the Metal host runtime."""

from __future__ import annotations

import mlx.core as mx

from mlx_gemm import _ext
from mlx_gemm._ext import HostFault, Report
from mlx_gemm.ops import check_arrays

__all__ = ["HostFault", "Report", "run"]


def run(
    kernel: str,
    a: mx.array,
    b: mx.array,
    *,
    check: bool = True,
    seed: int | None = None,
    mode: str = "auto",
) -> tuple[mx.array, Report]:
    """Multiply `a @ b` with one kernel, now, and report what the kernel did.

    Args:
        kernel: a name from `kernels()`.
        a: `[M, K]`, of a type that the kernel multiplies.
        b: `[K, N]`, of the same type.
        check: bounds-check and count every memory access of the kernel. Slower; without it the traffic in the report
            is None. Builds for macOS cannot.
        seed: shuffle the order in which threads and threadgroups run; None keeps a fixed order.
        mode: "lanes" runs every thread of the kernel on its own, as a GPU does; "uniform" runs each SIMD group as
            one, which only kernels allow that never ask for a lane; "auto" is "uniform" where it is allowed.

    Returns:
        The product, `[M, N]` of the type of the operands, accumulated in float32, and a `Report`: `flops`,
        `requested_read_bytes`, `requested_write_bytes`, `barriers`, `threadgroups`,
        `intensity` (FLOP per requested byte), `seconds`.

    Raises:
        TypeError: an operand is not an `mlx.core.array`.
        ValueError: no such kernel or mode, a shape or type that the kernel cannot run, or `check` in a build that
            cannot; says which rule is broken.
        HostFault: the kernel broke a rule of Metal, such as an access out of bounds or a data race.

    Example:
        >>> c, report = run("tiled_16", mx.ones((32, 32)), mx.ones((32, 32)))
        >>> report.requested_read_bytes
        16384
    """
    check_arrays("host.run", a=a, b=b)
    for name, value, kind in (("kernel", kernel, str), ("check", check, bool), ("mode", mode, str)):
        if not isinstance(value, kind):
            raise TypeError(f"[mlx_gemm.host.run] {name} must be a {kind.__name__}, got {type(value).__name__}")
    if seed is not None and not isinstance(seed, int):
        raise TypeError(f"[mlx_gemm.host.run] seed must be an int or None, got {type(seed).__name__}")
    if seed is not None and not 0 <= seed < 2**64:
        raise ValueError(f"[mlx_gemm.host.run] expected 0 <= seed < 2^64, got {seed}")
    return _ext.host_run(kernel, a, b, check=check, seed=seed, mode=mode)
