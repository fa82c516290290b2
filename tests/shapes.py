"""Shapes to test a kernel with, derived from its own row of the registry."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlx_gemm import kernels
from mlx_gemm.kernels import KernelInfo


@dataclass(frozen=True)
class Case:
    """One kernel at one shape."""

    kernel: KernelInfo
    M: int
    N: int
    K: int

    def __str__(self) -> str:
        return f"{self.kernel.name}-{self.M}x{self.N}x{self.K}"


def lengths(step: int, multiple: int) -> list[int]:
    """Lengths at and beside the edge of a tile; where a kernel needs multiples, the first few of those."""
    if multiple > 1:
        return sorted({multiple, step, 2 * step, 3 * step})
    return sorted({1, step - 1, step, step + 1, 2 * step + 1} - {0})


def cases(kernel: KernelInfo) -> Iterator[Case]:
    """Each of M, N and K through all its lengths while the others fill one tile, and all three through them at once."""
    # A kernel without a step along K, or with a step of 1, is tested around the width of a SIMD group.
    steps = (kernel.bm, kernel.bn, kernel.bk if kernel.bk > 1 else 32)
    choices = [lengths(step, multiple) for step, multiple in zip(steps, kernel.needs, strict=True)]
    shapes = {steps}
    for axis, values in enumerate(choices):
        shapes |= {(*steps[:axis], value, *steps[axis + 1 :]) for value in values}
    longest = max(map(len, choices))
    shapes |= {tuple(values[min(i, len(values) - 1)] for values in choices) for i in range(longest)}
    return (Case(kernel, *shape) for shape in sorted(shapes))


ALL_CASES = [case for kernel in kernels() for case in cases(kernel)]
ANY_SHAPE_KERNELS = [kernel.name for kernel in kernels() if tuple(kernel.needs) == (1, 1, 1)]
NAMES = [kernel.name for kernel in kernels()]
