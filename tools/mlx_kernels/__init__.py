"""Launches MLX's own GEMM kernels on the host runtime, with the arguments that MLX's dispatch gives them.

The .metal files beside this one instantiate them from the headers of the installed mlx package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mlx.core as mx
import numpy as np
from host_module import Build, Constant, Counters, HostModule, Writable

SOURCES = Path(__file__).parent
HEADERS = Path(mx.__file__).parent / "include"
LAYOUTS = ("nn", "nt", "tn", "tt")
TF32_ULP = 2.0**-10  # of operands with 11 significant bits


def mlx_build(*, checked: bool = False) -> Build:
    return Build(checked=checked, includes=(HEADERS,))


def sources(*names: str) -> list[Path]:
    """The instantiations of these names."""
    return [SOURCES / f"{name}.metal" for name in names]


# ---- Element types ----


def bfloat_bits(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


@dataclass(frozen=True)
class Dtype:
    name: str
    storage: type
    roundoff: float  # half the distance from 1 to the next number
    smallest: float  # half the least subnormal number

    def store(self, x: np.ndarray) -> np.ndarray:
        return bfloat_bits(x) if self.name == "bfloat16" else x.astype(self.storage)

    def load(self, x: np.ndarray) -> np.ndarray:
        if self.name == "bfloat16":
            return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        return x.astype(np.float64)


FLOAT32 = Dtype("float32", np.float32, 2.0**-24, 2.0**-150)
FLOAT16 = Dtype("float16", np.float16, 2.0**-11, 2.0**-25)
BFLOAT16 = Dtype("bfloat16", np.uint16, 2.0**-8, 2.0**-134)
DTYPES = (FLOAT32, FLOAT16, BFLOAT16)


# ---- Kernels and problems ----


@dataclass(frozen=True)
class Tile:
    bm: int
    bn: int
    bk: int
    wm: int
    wn: int

    def __str__(self) -> str:
        return f"{self.bm}_{self.bn}_{self.bk}_{self.wm}_{self.wn}"


FUSED_TILES = (
    Tile(64, 64, 16, 2, 2),
    Tile(64, 64, 16, 1, 2),
    Tile(64, 32, 32, 2, 2),
    Tile(32, 64, 16, 1, 2),
    Tile(32, 32, 16, 2, 2),
)
NAX_TILES = (
    Tile(64, 64, 256, 2, 2),
    Tile(128, 128, 512, 4, 4),
    Tile(64, 128, 256, 2, 4),
    Tile(64, 128, 64, 2, 4),
)


@dataclass(frozen=True)
class Kernel:
    family: str
    layout: str
    dtype: Dtype
    tile: Tile

    def __str__(self) -> str:
        return f"{self.family}_{self.layout}_{self.dtype.name}_{self.tile}"

    @property
    def tf32(self) -> bool:
        """The matrix units read float32 operands with 11 significant bits."""
        return "nax" in self.family and self.dtype is FLOAT32


@dataclass(frozen=True)
class Addmm:
    """D = alpha A B + beta C; MLX has a kernel of its own for alpha = beta = 1."""

    alpha: float = 1.0
    beta: float = 1.0

    @property
    def axpby(self) -> bool:
        return (self.alpha, self.beta) != (1.0, 1.0)


@dataclass(frozen=True)
class Problem:
    m: int
    n: int
    k: int
    batch: int = 1
    strides_given: bool = False  # the kernel computes batch offsets from a shape and strides
    pad: int = 0  # elements between the rows of every matrix
    swizzle: int = 0
    addmm: Addmm | None = None

    def __str__(self) -> str:
        text = f"{self.m}x{self.n}x{self.k}"
        defaults = Problem(self.m, self.n, self.k)
        for name in ("batch", "strides_given", "pad", "swizzle", "addmm"):
            if getattr(self, name) != getattr(defaults, name):
                text += f" {name}={getattr(self, name)}"
        return text


@dataclass(frozen=True)
class Operands:
    """Values that the element type holds exactly, as float64: a is [batch, m, k], b [batch, k, n], c [batch, m, n]."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray

    @cached_property
    def product(self) -> np.ndarray:
        return self.a @ self.b

    @cached_property
    def magnitude(self) -> np.ndarray:
        return np.abs(self.a) @ np.abs(self.b)

    def result(self, addmm: Addmm | None) -> np.ndarray:
        return addmm.alpha * self.product + addmm.beta * self.c if addmm else self.product


Draw = Callable[[tuple[int, ...]], np.ndarray]


def operands(problem: Problem, dtype: Dtype, draw: Draw) -> Operands:
    def rounded(*shape: int) -> np.ndarray:
        return dtype.load(dtype.store(draw((problem.batch, *shape))))

    return Operands(rounded(problem.m, problem.k), rounded(problem.k, problem.n), rounded(problem.m, problem.n))


# ---- Memory ----


@dataclass(frozen=True)
class Stored:
    """Matrices [batch, rows, columns] in one flat array that ends with the last element; NaN between the rows."""

    flat: np.ndarray
    ld: int
    batch_stride: int


def stored(x: np.ndarray, dtype: Dtype, pad: int, transposed: bool = False) -> Stored:
    if transposed:
        x = x.swapaxes(1, 2)
    padded = np.full((*x.shape[:2], x.shape[2] + pad), np.nan)
    padded[:, :, : x.shape[2]] = x
    flat = dtype.store(padded).reshape(-1)
    return Stored(flat[: flat.size - pad].copy(), x.shape[2] + pad, padded[0].size)


def unstored(matrices: Stored, shape: tuple[int, int, int], dtype: Dtype) -> np.ndarray:
    """The matrices again. What lies between their rows must still be NaN."""
    batch, rows, columns = shape
    flat = np.concatenate([dtype.load(matrices.flat), np.full(matrices.ld - columns, np.nan)])
    padded = flat.reshape(batch, rows, matrices.ld)
    assert np.isnan(padded[:, :, columns:]).all(), "written outside the result"
    return padded[:, :, :columns]


INT, LONG, FLOAT = np.int32, np.int64, np.float32


def struct(**fields: tuple[type, float]) -> np.ndarray:
    """A C++ struct of these members, in this order."""
    layout = np.dtype([(name, kind) for name, (kind, _) in fields.items()], align=True)
    return np.array([tuple(value for _, value in fields.values())], layout)


def gemm_params(kernel: Kernel, problem: Problem, a: Stored, b: Stored, d: Stored) -> np.ndarray:
    tile = kernel.tile
    return struct(
        M=(INT, problem.m), N=(INT, problem.n), K=(INT, problem.k),
        lda=(INT, a.ld), ldb=(INT, b.ld), ldd=(INT, d.ld),
        tiles_n=(INT, math.ceil(problem.n / tile.bn)), tiles_m=(INT, math.ceil(problem.m / tile.bm)),
        batch_stride_a=(LONG, a.batch_stride), batch_stride_b=(LONG, b.batch_stride),
        batch_stride_d=(LONG, d.batch_stride),
        swizzle_log=(INT, problem.swizzle), gemm_k_iterations_aligned=(INT, problem.k // tile.bk),
        batch_ndim=(INT, 1),
    )  # fmt: skip


def addmm_params(addmm: Addmm, c: Stored) -> np.ndarray:
    return struct(
        ldc=(INT, c.ld), fdc=(INT, 1), batch_stride_c=(LONG, c.batch_stride),
        alpha=(FLOAT, addmm.alpha), beta=(FLOAT, addmm.beta),
    )  # fmt: skip


@dataclass(frozen=True)
class Run:
    result: np.ndarray  # [batch, m, n]
    counters: Counters


def run_fused(module: HostModule, kernel: Kernel, problem: Problem, values: Operands, **how: object) -> Run:
    """steel_gemm_fused and steel_gemm_fused_nax."""
    tile, dtype, addmm = kernel.tile, kernel.dtype, problem.addmm
    a = stored(values.a, dtype, problem.pad, kernel.layout[0] == "t")
    b = stored(values.b, dtype, problem.pad, kernel.layout[1] == "t")
    c = stored(values.c, dtype, 2 * problem.pad)
    d = stored(np.full_like(values.c, np.nan), dtype, problem.pad)
    buffers = {0: a.flat, 1: b.flat, 3: Writable(d.flat), 4: Constant(gemm_params(kernel, problem, a, b, d))}
    if addmm:
        buffers[2] = c.flat
        buffers[5] = Constant(addmm_params(addmm, c))
    if problem.strides_given:
        buffers[6] = Constant(np.array([problem.batch], INT))
        buffers[7] = Constant(np.array([a.batch_stride, b.batch_stride, c.batch_stride], LONG))
    constants = {
        10: problem.strides_given,
        100: addmm is not None,
        110: addmm is not None and addmm.axpby,
        200: problem.m % tile.bm == 0,
        201: problem.n % tile.bn == 0,
        202: problem.k % tile.bk == 0,
    }
    tiles_m, tiles_n = math.ceil(problem.m / tile.bm), math.ceil(problem.n / tile.bn)
    grid = (tiles_n << problem.swizzle, math.ceil(tiles_m / (1 << problem.swizzle)), problem.batch)
    counters = module.run(
        str(kernel), grid, (32, tile.wn, tile.wm), buffers, constants={k: int(v) for k, v in constants.items()}, **how
    )
    return Run(unstored(d, values.c.shape, dtype), counters)


# ---- steel_gemm_splitk ----


def accumulate(
    module: HostModule, dtype: Dtype, problem: Problem, partial: np.ndarray, c: Stored, **how: object
) -> tuple[np.ndarray, Counters]:
    """Adds the partial products [partitions, m, n] up, in the result type, with addmm where the problem asks for it."""
    m, n, addmm = problem.m, problem.n, problem.addmm
    d = dtype.store(np.full((1, m, n), np.nan))
    buffers = {0: partial, 1: Writable(d)}
    scalars: list[tuple[int, type, float]] = [(2, INT, len(partial)), (3, INT, m * n), (4, INT, n)]
    kernel = f"splitk_accum_{dtype.name}"
    if addmm:
        kernel = f"splitk_accum_axpby_{dtype.name}"
        buffers[5] = c.flat
        scalars += [(6, INT, c.ld), (7, INT, 1), (8, FLOAT, addmm.alpha), (9, FLOAT, addmm.beta)]
    buffers |= {slot: Constant(np.array([value], kind)) for slot, kind, value in scalars}
    grid = (math.ceil(n / 32), m, 1)
    counters = module.run(kernel, grid, (32, 1, 1), buffers, grid_threads=(n, m, 1), **how)
    return dtype.load(d), counters


def splitk_params(problem: Problem, tile: Tile, partitions: int, size: int, a: Stored, b: Stored) -> np.ndarray:
    return struct(
        M=(INT, problem.m), N=(INT, problem.n), K=(INT, problem.k), lda=(INT, a.ld), ldb=(INT, b.ld),
        ldc=(INT, problem.n),
        tiles_n=(INT, math.ceil(problem.n / tile.bn)), tiles_m=(INT, math.ceil(problem.m / tile.bm)),
        partitions=(INT, partitions), partition_stride=(INT, problem.m * problem.n), partition_size=(INT, size),
        swizzle_log=(INT, problem.swizzle), gemm_k_iterations_aligned=(INT, size // tile.bk),
    )  # fmt: skip


def next_power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else 0


def run_splitk(
    module: HostModule, accumulator: HostModule, kernel: Kernel, problem: Problem, values: Operands, **how: object
) -> Run:
    """steel_gemm_splitk or steel_gemm_splitk_nax, then the accumulation kernel."""
    tile, dtype = kernel.tile, kernel.dtype
    a = stored(values.a, dtype, problem.pad, kernel.layout[0] == "t")
    b = stored(values.b, dtype, problem.pad, kernel.layout[1] == "t")
    c = stored(values.c, dtype, problem.pad)
    tiles_m, tiles_n = math.ceil(problem.m / tile.bm), math.ceil(problem.n / tile.bn)
    aligned = (problem.m % tile.bm == 0, problem.n % tile.bn == 0, problem.k % tile.bk == 0)
    if kernel.family == "splitk":
        steps, tiles = problem.k // tile.bk, math.ceil(problem.m / 32) * math.ceil(problem.n / 32)
        partitions = min(max(2, next_power_of_two(steps // tiles)), 32)
        size = problem.k // tile.bk // partitions * tile.bk  # the last partition takes the rest as well
        name = f"{kernel}_{'true' if all(aligned[:2]) else 'false'}_{'true' if aligned[2] else 'false'}"
        grid, constants = (tiles_n, tiles_m, partitions), {}
    else:
        size = tile.bk
        partitions = math.ceil(problem.k / size)
        rows = math.ceil(tiles_m / (1 << problem.swizzle))
        name, grid = str(kernel), ((tiles_n << problem.swizzle) * rows * partitions, 1, 1)
        constants = {200: int(aligned[0]), 201: int(aligned[1])}
    partial = np.full((partitions, problem.m, problem.n), np.nan, np.float32)
    params = splitk_params(problem, tile, partitions, size, a, b)
    buffers = {0: a.flat, 1: b.flat, 2: Writable(partial), 3: Constant(params)}
    counters = module.run(name, grid, (32, tile.wn, tile.wm), buffers, constants=constants, **how)
    result, accumulation = accumulate(accumulator, dtype, problem, partial, c, **how)
    return Run(result, counters + accumulation)


# ---- steel_gemm_thin_nax ----

# Of a thin tile the last number is how many SIMD groups share K.
THIN_TILES = (Tile(32, 32, 64, 1, 4), Tile(32, 64, 64, 2, 2))


def run_thin(module: HostModule, kernel: Kernel, problem: Problem, values: Operands, **how: object) -> Run:
    tile, dtype, addmm = kernel.tile, kernel.dtype, problem.addmm
    a = stored(values.a, dtype, problem.pad)
    b = stored(values.b, dtype, problem.pad, kernel.layout[1] == "t")
    c = stored(values.c, dtype, problem.pad)
    d = stored(np.full_like(values.c, np.nan), dtype, problem.pad)
    params = gemm_params(kernel, problem, a, b, d)
    params["gemm_k_iterations_aligned"] = math.ceil(problem.k / (tile.bk * tile.wn))
    buffers = {0: a.flat, 1: b.flat, 3: Writable(d.flat), 4: Constant(params)}
    if addmm:
        buffers[2] = c.flat
        buffers[5] = Constant(addmm_params(addmm, c))
    constants = {
        100: addmm is not None,
        110: addmm is not None and addmm.axpby,
        200: problem.m % tile.bm == 0,
        201: problem.n % tile.bn == 0,
        202: problem.k % tile.bk == 0,
    }
    grid = (math.ceil(problem.m / tile.bm) * math.ceil(problem.n / tile.bn), 1, 1)
    counters = module.run(
        str(kernel), grid, (32 * tile.wm * tile.wn, 1, 1), buffers,
        constants={k: int(v) for k, v in constants.items()}, **how,
    )  # fmt: skip
    return Run(unstored(d, values.c.shape, dtype), counters)


# ---- gemv and gemv_t ----


@dataclass(frozen=True)
class VectorTile:
    """SIMD groups of a threadgroup, lanes of a SIMD group and elements of a lane, each as rows x columns."""

    bm: int
    bn: int
    sm: int
    sn: int
    tm: int
    tn: int

    def __str__(self) -> str:
        return f"{self.bm}_{self.bn}_{self.sm}_{self.sn}_{self.tm}_{self.tn}"


GEMV_TILES = (
    VectorTile(1, 8, 1, 32, 4, 4),
    VectorTile(1, 8, 1, 32, 1, 4),
    VectorTile(1, 1, 8, 4, 4, 4),
    VectorTile(1, 1, 8, 4, 1, 4),
    VectorTile(4, 1, 1, 32, 1, 4),
    VectorTile(4, 1, 1, 32, 4, 4),
    VectorTile(8, 1, 1, 32, 4, 4),
)
GEMV_T_TILES = (
    VectorTile(1, 2, 8, 4, 4, 1),
    VectorTile(1, 2, 8, 4, 4, 4),
    VectorTile(1, 4, 8, 4, 4, 4),
    VectorTile(1, 16, 8, 4, 4, 4),
    VectorTile(1, 16, 4, 8, 4, 4),
)


@dataclass(frozen=True)
class VectorKernel:
    family: str  # gemv: the matrix is [n, k]; gemv_t: [k, n]
    dtype: Dtype
    tile: VectorTile

    def __str__(self) -> str:
        return f"{self.family}_{self.dtype.name}_{self.tile}"

    @property
    def tf32(self) -> bool:
        return False

    @property
    def block(self) -> int:
        """Results of a threadgroup."""
        tile = self.tile
        return tile.bm * tile.sm * tile.tm if self.family == "gemv" else tile.bn * tile.sn * tile.tn

    @property
    def least(self) -> int:
        """A lane computes so many results at once, and MLX chooses another tile where there are fewer."""
        return self.tile.tm if self.family == "gemv" else self.tile.tn


def run_gemv(module: HostModule, kernel: VectorKernel, problem: Problem, values: Operands, **how: object) -> Run:
    """The problem's m is 1: a is the vector, b the matrix, c the bias."""
    dtype, addmm = kernel.dtype, problem.addmm
    vector, bias = stored(values.a, dtype, problem.pad), stored(values.c, dtype, problem.pad)
    matrix = stored(values.b, dtype, problem.pad, kernel.family == "gemv")
    out = dtype.store(np.full(values.c.shape, np.nan))
    addmm_values = addmm or Addmm()
    scalars: dict[int, tuple[type, float]] = {
        4: (INT, problem.k), 5: (INT, problem.n), 6: (INT, matrix.ld), 7: (FLOAT, addmm_values.alpha),
        8: (FLOAT, addmm_values.beta), 9: (INT, 1), 10: (INT, problem.batch), 11: (LONG, vector.batch_stride),
        12: (LONG, matrix.batch_stride), 13: (LONG, bias.batch_stride), 14: (INT, 1),
    }  # fmt: skip
    buffers = {0: matrix.flat, 1: vector.flat, 2: bias.flat, 3: Writable(out)}
    buffers |= {slot: Constant(np.array([value], kind)) for slot, (kind, value) in scalars.items()}
    name = f"{kernel}_{int(problem.strides_given)}_{int(addmm is not None)}"
    grid = (math.ceil(problem.n / kernel.block), 1, problem.batch)
    counters = module.run(name, grid, (32, kernel.tile.bn, kernel.tile.bm), buffers, **how)
    return Run(dtype.load(out), counters)
