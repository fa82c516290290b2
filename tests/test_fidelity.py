"""MLX's own kernels, from the headers of the installed package, run unmodified on the host runtime.

They are known to compile with Apple's compiler and to be right on its GPUs. That they compile, run and are right here as
well shows how like the real thing the runtime is; that the checkers find nothing wrong with them, that they raise no
false alarm.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import mlx_kernels as mlx
import numpy as np
import pytest
from host_module import HostModule, build
from mlx_kernels import (
    BFLOAT16,
    DTYPES,
    FLOAT16,
    FLOAT32,
    FUSED_TILES,
    NAX_TILES,
    Addmm,
    Dtype,
    Kernel,
    Operands,
    Problem,
    Run,
    Tile,
)

TF32_ULP = 2.0**-10
KS = (1, 8, 16, 31, 64, 255, 256, 257, 1024)


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlx_kernels")


@pytest.fixture(scope="session")
def smoke(modules: Path) -> HostModule:
    return build([mlx.SOURCES / f"{name}_smoke.metal" for name in ("fused", "nax")], modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def fused(modules: Path) -> HostModule:
    return build([mlx.SOURCES / f"fused_{dtype.name}.metal" for dtype in DTYPES], modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def nax(modules: Path) -> HostModule:
    return build([mlx.SOURCES / f"nax_{dtype.name}.metal" for dtype in DTYPES], modules, mlx.mlx_build())


# ---- Oracles ----


def normal(problem: Problem, dtype: Dtype, seed: int) -> Operands:
    rng = np.random.default_rng(seed)
    return mlx.operands(problem, dtype, lambda shape: rng.standard_normal(shape))


def integers(problem: Problem, dtype: Dtype, seed: int) -> Operands:
    """So few and small that every sum is exact, in the result type too."""
    rng = np.random.default_rng(seed)
    dense = min(1.0, 64 / problem.k)
    return mlx.operands(problem, dtype, lambda shape: rng.integers(-1, 2, shape) * (rng.random(shape) < dense))


def assert_within_bound(run: Run, values: Operands, kernel: Kernel, problem: Problem) -> None:
    """The float64 result, but for float32 sums along K and the rounding of what is kept in the result type."""
    reference = values.result(problem.addmm)
    source = np.abs(values.c) if problem.addmm else 0.0
    magnitude = values.magnitude + source
    u32 = mlx.FLOAT32.roundoff
    bound = 1.25 * kernel.dtype.roundoff * np.abs(reference) + kernel.dtype.smallest
    bound += 4 * np.sqrt(problem.k + 1) * u32 * 2 * magnitude
    wrong = ~(np.abs(run.result - reference) <= bound)
    assert not wrong.any(), f"{kernel} {problem}: {wrong.sum()} of {wrong.size} wrong, first at {np.argwhere(wrong)[0]}"


def assert_tf32_class(run: Run, values: Operands, kernel: Kernel, problem: Problem) -> None:
    """As wrong as operands of 11 bits make it: not less, which would mean that nothing was dropped."""
    reference = values.result(problem.addmm)
    scale = abs(problem.addmm.alpha) if problem.addmm else 1.0
    error = np.abs(run.result - reference)
    bound = 2.1 * scale * TF32_ULP * values.magnitude + 1e-5 * (np.abs(values.c) + 1)
    assert (error <= bound).all(), f"{kernel} {problem}: wrong by {error.max():.3g}"
    if values.a[0].size > 64 and values.b[0].size > 64:
        relative = np.linalg.norm(error) / np.linalg.norm(scale * (values.a @ values.b))
        assert TF32_ULP / 8 < relative < 2 * TF32_ULP, f"{kernel} {problem}: relative error {relative:.3g}"


def assert_exact(run: Run, values: Operands, kernel: Kernel, problem: Problem) -> None:
    wrong = ~(run.result == values.result(problem.addmm))
    assert not wrong.any(), f"{kernel} {problem}: {wrong.sum()} not exact, first at {np.argwhere(wrong)[0]}"


# ---- steel_gemm_fused ----


def edges(tile: int) -> tuple[int, ...]:
    return (1, tile - 1, tile, tile + 1, 2 * tile + 3)


def problems(tile: Tile, full: bool) -> Iterator[Problem]:
    """M and N around the edges of the tile with every K: all combinations, or each pair of values at least once."""
    ms, ns = edges(tile.bm), edges(tile.bn)
    if full:
        yield from (Problem(m, n, k) for m, n, k in itertools.product(ms, ns, KS))
    else:
        yield from (Problem(ms[(i + j) % len(ms)], ns[j], k) for i, k in enumerate(KS) for j in range(len(ns)))


def variants(tile: Tile) -> Iterator[Problem]:
    """Batches, padded rows, swizzled tiles and addmm, inside a tile and across its edges."""
    inside, across = (2 * tile.bm, tile.bn, 2 * tile.bk), (tile.bm + 2, 2 * tile.bn - 3, tile.bk + 5)
    for shape in (inside, across):
        yield Problem(*shape, batch=3, pad=4)
        yield Problem(*shape, batch=3, strides_given=True, pad=3, swizzle=1)
        yield Problem(*shape, pad=2, addmm=Addmm())
        yield Problem(*shape, batch=2, pad=1, addmm=Addmm(0.75, -1.5))
        yield Problem(*shape, batch=2, strides_given=True, swizzle=2, addmm=Addmm(2.0, 0.5))


def check_fused(module: HostModule, kernel: Kernel, problem: Problem, **how: object) -> None:
    seed = problem.m * 31 + problem.n * 7 + problem.k
    values = normal(problem, kernel.dtype, seed)
    assert_near = assert_tf32_class if kernel.tf32 else assert_within_bound
    assert_near(mlx.run_fused(module, kernel, problem, values, **how), values, kernel, problem)
    values = integers(problem, kernel.dtype, seed)
    if problem.addmm is None:
        assert_exact(mlx.run_fused(module, kernel, problem, values, **how), values, kernel, problem)


SMOKE = (
    Kernel("fused", "nt", FLOAT32, Tile(32, 32, 16, 2, 2)),
    Kernel("fused", "tn", BFLOAT16, Tile(32, 32, 16, 2, 2)),
    Kernel("nax", "nt", FLOAT16, NAX_TILES[0]),
    Kernel("nax", "tn", FLOAT32, NAX_TILES[0]),
)


@pytest.mark.parametrize("kernel", SMOKE, ids=str)
def test_fused_smoke(smoke: HostModule, kernel: Kernel) -> None:
    for problem in (Problem(33, 35, 31), Problem(64, 32, 64), *variants(kernel.tile)):
        check_fused(smoke, kernel, problem)


@pytest.mark.slow
@pytest.mark.parametrize("layout", mlx.LAYOUTS)
@pytest.mark.parametrize("tile", FUSED_TILES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_fused(fused: HostModule, dtype: Dtype, tile: Tile, layout: str) -> None:
    kernel = Kernel("fused", layout, dtype, tile)
    full = tile == FUSED_TILES[0] and layout == "nn"
    for problem in itertools.chain(problems(tile, full), variants(tile)):
        check_fused(fused, kernel, problem)


# ---- steel_gemm_fused_nax ----


@pytest.mark.slow
@pytest.mark.parametrize("layout", mlx.LAYOUTS)
@pytest.mark.parametrize("tile", NAX_TILES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_fused_nax(nax: HostModule, dtype: Dtype, tile: Tile, layout: str) -> None:
    kernel = Kernel("nax", layout, dtype, tile)
    full = tile == NAX_TILES[0] and layout == "nn"
    for problem in itertools.chain(problems(tile, full), variants(tile)):
        check_fused(nax, kernel, problem)
