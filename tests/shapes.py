"""Shapes to test a kernel with, derived from its own row of the registry."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from mlx_gemm import kernels
from mlx_gemm.kernels import KernelInfo

# Threadgroup barriers per step along K: two where tiles are staged, one where SIMD groups are kept together.
BARRIERS = {
    "tiled": 2,
    "coarse_1d": 2,
    "coarse_2d": 2,
    "simdgroup_32x32_shared": 2,
    "tensorops_sync": 1,
    "simd_gemm": 2,
    "tensorops_gemm": 1,
    "tensorops_gemm_tf32": 1,
}


@dataclass(frozen=True)
class Case:
    """One kernel at one shape, and what it must do there."""

    kernel: KernelInfo
    M: int
    N: int
    K: int

    def __str__(self) -> str:
        return f"{self.kernel.name}-{self.M}x{self.N}x{self.K}"

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles across and down."""
        return math.ceil(self.N / self.kernel.bn), math.ceil(self.M / self.kernel.bm)

    @property
    def tiles(self) -> int:
        return math.prod(self.grid)

    @property
    def threadgroups(self) -> int:
        """Swizzled grids have whole groups of rows of tiles: threadgroups without a tile do nothing."""
        columns, rows = self.grid
        group = 2 ** int(self.kernel.order.partition("_")[2]) if self.kernel.order.startswith("swizzle") else 1
        return columns * group * math.ceil(rows / group)

    @property
    def steps(self) -> int:
        return math.ceil(self.K / self.kernel.bk) if self.kernel.bk else 1

    @property
    def barriers(self) -> int:
        return BARRIERS.get(self.kernel.body, 0) * self.steps * self.tiles if self.kernel.bk else 0

    @property
    def multiplies(self) -> int:
        """8x8x8 products of SIMD groups, or one operation per tile and step of TensorOps."""
        if self.kernel.family == "simdgroup":
            return self.M * self.N * self.K // 8**3
        if self.kernel.family == "simd":
            # Whole tiles, or where a SIMD group works for itself whole blocks of its own.
            rows, columns = self.kernel.read_tile
            blocks = math.ceil(self.M / rows) * math.ceil(self.N / columns)
            return blocks * (rows * columns // 64) * self.steps * (self.kernel.bk // 8)
        return self.steps * self.tiles if self.kernel.family == "tensorops" else 0


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
    if kernel.order == "morton":
        # The shapes above have too few tiles for the curve to turn twice.
        shapes.add((4 * steps[0], 4 * steps[1], steps[2]))
    longest = max(map(len, choices))
    shapes |= {tuple(values[min(i, len(values) - 1)] for values in choices) for i in range(longest)}
    return (Case(kernel, *shape) for shape in sorted(shapes))


LADDER = [kernel for kernel in kernels() if kernel.role == "ladder"]
PRODUCTION = [kernel for kernel in kernels() if kernel.role != "ladder"]
ALL_CASES = [case for kernel in LADDER for case in cases(kernel)]
ANY_SHAPE_KERNELS = [kernel.name for kernel in LADDER if tuple(kernel.needs) == (1, 1, 1)]
LADDER_NAMES = [kernel.name for kernel in LADDER]
NAMES = [kernel.name for kernel in kernels()]
