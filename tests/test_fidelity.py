"""MLX's own kernels, from the headers of the installed package, run unmodified on the host runtime.

They are known to compile with Apple's compiler and to be right on its GPUs. That they compile, run and are right here
too shows how like the real thing the runtime is; that the checks find nothing in them, that they raise no false alarm.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx_kernels as mlx
import numpy as np
import pytest
from host_module import Constant, HostFault, HostModule, Writable, build
from mlx_kernels import (
    BFLOAT16,
    DTYPES,
    FLOAT16,
    FLOAT32,
    FUSED_TILES,
    NAX_TILES,
    TF32_ULP,
    Addmm,
    Dtype,
    Kernel,
    Operands,
    Problem,
    Run,
    Tile,
    VectorKernel,
)

KS = (1, 8, 16, 31, 64, 255, 256, 257, 1024)


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlx_kernels")


@pytest.fixture(scope="session")
def smoke(modules: Path) -> HostModule:
    return build(mlx.sources("fused_smoke", "nax_smoke"), modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def fused(modules: Path) -> HostModule:
    return build(mlx.sources(*(f"fused_{dtype.name}" for dtype in DTYPES)), modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def nax(modules: Path) -> HostModule:
    return build(mlx.sources(*(f"nax_{dtype.name}" for dtype in DTYPES)), modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def splitk(modules: Path) -> HostModule:
    return build(mlx.sources("splitk"), modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def splitk_nax(modules: Path) -> HostModule:
    return build(mlx.sources("splitk_nax"), modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def thin_nax(modules: Path) -> HostModule:
    return build(mlx.sources("thin_nax"), modules, mlx.mlx_build())


@pytest.fixture(scope="session")
def gemv(modules: Path) -> HostModule:
    return build(mlx.sources("gemv"), modules, mlx.mlx_build())


# ---- Oracles ----


def normal(problem: Problem, dtype: Dtype, seed: int) -> Operands:
    rng = np.random.default_rng(seed)
    return mlx.operands(problem, dtype, lambda shape: rng.standard_normal(shape))


def integers(problem: Problem, dtype: Dtype, seed: int) -> Operands:
    """So few and small that every sum is exact, in the result type too."""
    rng = np.random.default_rng(seed)
    dense = min(1.0, 64 / problem.k)
    return mlx.operands(problem, dtype, lambda shape: rng.integers(-1, 2, shape) * (rng.random(shape) < dense))


def assert_within_bound(run: Run, values: Operands, kernel: Kernel | VectorKernel, problem: Problem) -> None:
    """The float64 result, but for float32 sums along K and the rounding of what is kept in the result type.

    Kernels that compute alpha x + beta c in the result type round each of its terms.
    """
    reference = values.result(problem.addmm)
    source = np.abs(values.c) if problem.addmm else 0.0
    magnitude = values.magnitude + source
    u32 = mlx.FLOAT32.roundoff
    bound = 1.25 * kernel.dtype.roundoff * np.abs(reference) + kernel.dtype.smallest
    bound += 4 * np.sqrt(problem.k + 1) * u32 * 2 * magnitude
    if problem.addmm and kernel.family in ("splitk", "splitk_nax", "gemv", "gemv_t"):
        product = problem.addmm.alpha * values.product
        bound += 3 * kernel.dtype.roundoff * (np.abs(product) + np.abs(problem.addmm.beta * values.c))
    wrong = ~(np.abs(run.result - reference) <= bound)
    assert not wrong.any(), f"{kernel} {problem}: {wrong.sum()} of {wrong.size} wrong, first at {np.argwhere(wrong)[0]}"


def assert_tf32_class(run: Run, values: Operands, kernel: Kernel, problem: Problem) -> None:
    """As wrong as operands of 11 bits make it: not less, which would mean that nothing was dropped."""
    reference = values.result(problem.addmm)
    scale = abs(problem.addmm.alpha) if problem.addmm else 1.0
    error = np.abs(run.result - reference)
    bound = 2.1 * scale * TF32_ULP * values.magnitude + 1e-5 * (np.abs(values.c) + 1)
    assert (error <= bound).all(), f"{kernel} {problem}: wrong by {error.max():.3g}"
    if reference.size >= 64:  # with fewer, chance decides
        relative = np.linalg.norm(error) / np.linalg.norm(scale * values.product)
        assert TF32_ULP / 8 < relative < 2 * TF32_ULP, f"{kernel} {problem}: relative error {relative:.3g}"


def assert_exact(run: Run, values: Operands, kernel: Kernel | VectorKernel, problem: Problem) -> None:
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


def check(run: Callable[[Problem, Operands], Run], kernel: Kernel | VectorKernel, problem: Problem) -> None:
    seed = problem.m * 31 + problem.n * 7 + problem.k
    values = normal(problem, kernel.dtype, seed)
    assert_near = assert_tf32_class if kernel.tf32 else assert_within_bound
    assert_near(run(problem, values), values, kernel, problem)
    if problem.addmm is None:
        values = integers(problem, kernel.dtype, seed)
        assert_exact(run(problem, values), values, kernel, problem)


def check_fused(module: HostModule, kernel: Kernel, problem: Problem, **how: object) -> None:
    check(lambda problem, values: mlx.run_fused(module, kernel, problem, values, **how), kernel, problem)


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


# ---- steel_gemm_splitk, steel_gemm_splitk_nax and their accumulation ----

SPLITK = [
    *((layout, Tile(32, 32, 16, 2, 2)) for layout in mlx.LAYOUTS),
    ("nn", Tile(16, 16, 16, 2, 2)),
    ("nt", Tile(16, 32, 16, 2, 2)),
    ("tn", Tile(32, 16, 16, 2, 2)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "tile"), SPLITK, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_splitk(splitk: HostModule, dtype: Dtype, layout: str, tile: Tile) -> None:
    kernel = Kernel("splitk", layout, dtype, tile)
    shapes = [p for p in problems(tile, full=False) if p.k >= 64]  # MLX splits from 128 on
    across = (tile.bm + 2, 2 * tile.bn - 3, 9 * tile.bk + 5)
    for problem in (*shapes, Problem(*across, pad=3, addmm=Addmm()), Problem(*across, pad=1, addmm=Addmm(0.75, -1.5))):
        check(lambda problem, values: mlx.run_splitk(splitk, splitk, kernel, problem, values), kernel, problem)


@pytest.mark.slow
@pytest.mark.parametrize("layout", mlx.LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_splitk_nax(splitk: HostModule, splitk_nax: HostModule, dtype: Dtype, layout: str) -> None:
    tile = NAX_TILES[0]
    kernel = Kernel("splitk_nax", layout, dtype, tile)
    across = (tile.bm + 2, 2 * tile.bn - 3, 2 * tile.bk + 5)
    more = (Problem(*across, pad=3, swizzle=1), Problem(*across, pad=1, addmm=Addmm(0.75, -1.5)))
    for problem in (*problems(tile, full=False), *more):
        check(lambda problem, values: mlx.run_splitk(splitk_nax, splitk, kernel, problem, values), kernel, problem)


# ---- steel_gemm_thin_nax ----


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["nn", "nt"])
@pytest.mark.parametrize("tile", mlx.THIN_TILES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_thin_nax(thin_nax: HostModule, dtype: Dtype, tile: Tile, layout: str) -> None:
    """Tolerant: it masks K with a static k, and uses slots unasked."""
    kernel = Kernel("thin_nax", layout, dtype, tile)
    across = (tile.bm + 2, 2 * tile.bn - 3, 3 * tile.bk + 5)
    more = [Problem(*across, pad=3, addmm=addmm) for addmm in (Addmm(), Addmm(0.75, -1.5))]
    for problem in (*problems(tile, full=False), *more):
        check(lambda problem, values: mlx.run_thin(thin_nax, kernel, problem, values, tolerant=True), kernel, problem)


# ---- gemv and gemv_t ----

VECTOR_TILES = [("gemv", tile) for tile in mlx.GEMV_TILES] + [("gemv_t", tile) for tile in mlx.GEMV_T_TILES]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "tile"), VECTOR_TILES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_gemv(gemv: HostModule, dtype: Dtype, family: str, tile: mlx.VectorTile) -> None:
    """Tolerant: some lanes of a SIMD group pass by a barrier."""
    kernel = VectorKernel(family, dtype, tile)
    lengths = sorted({max(n, kernel.least) for n in edges(kernel.block)})
    shapes = [Problem(1, n, k) for n, k in itertools.product(lengths, KS)]
    more = [
        Problem(1, lengths[-1], 257, batch=3, pad=3),
        Problem(1, lengths[-1], 257, batch=2, addmm=Addmm(0.75, -1.5)),
        Problem(1, lengths[0], 65, batch=3, strides_given=True, addmm=Addmm(2.0, 0.5)),
    ]
    for problem in (*shapes, *more):
        check(lambda problem, values: mlx.run_gemv(gemv, kernel, problem, values, tolerant=True), kernel, problem)


# ---- The checked build ----


@pytest.fixture(scope="session")
def checked(modules: Path) -> HostModule:
    names = ("fused_smoke", "nax_smoke", "splitk", "splitk_nax", "thin_nax", "gemv", "findings")
    return build(mlx.sources(*names), modules, mlx.mlx_build(checked=True))


ADD = Addmm(0.75, -1.5)


@pytest.mark.slow
def test_no_false_alarm(checked: HostModule) -> None:
    """Nothing is found in kernels that Metal's rules allow, and where GPUs are known to bear a breach, only that."""
    for kernel in SMOKE:
        # An addmm whose last tile has all its rows: see test_reads_past_the_rows_of_c.
        for problem in (p for p in variants(kernel.tile) if p.addmm is None or p.m % kernel.tile.bm == 0):
            values = normal(problem, kernel.dtype, seed=1)
            assert mlx.run_fused(checked, kernel, problem, values).counters.warnings == []
    for layout, tile in SPLITK:
        kernel = Kernel("splitk", layout, FLOAT16, tile)
        for problem in (Problem(64, 64, 256), Problem(33, 35, 257, pad=3, addmm=ADD)):
            values = normal(problem, kernel.dtype, seed=1)
            assert mlx.run_splitk(checked, checked, kernel, problem, values).counters.warnings == []
    for layout in mlx.LAYOUTS:
        kernel = Kernel("splitk_nax", layout, FLOAT16, NAX_TILES[0])
        for problem in (Problem(64, 64, 512), Problem(65, 67, 517, pad=3, swizzle=1, addmm=ADD)):
            values = normal(problem, kernel.dtype, seed=1)
            assert mlx.run_splitk(checked, checked, kernel, problem, values).counters.warnings == []
    for layout, tile in itertools.product(("nn", "nt"), mlx.THIN_TILES):
        kernel = Kernel("thin_nax", layout, BFLOAT16, tile)
        for problem in (Problem(64, 128, 256), Problem(33, 69, 301, pad=3, addmm=ADD)):
            values = normal(problem, kernel.dtype, seed=1)
            warnings = mlx.run_thin(checked, kernel, problem, values, tolerant=True).counters.warnings
            assert all("static k" in w or "written again" in w for w in warnings), warnings
    for family, tile in VECTOR_TILES:
        kernel = VectorKernel(family, FLOAT32, tile)
        if tile.bn == 8:
            continue  # see test_sums_of_simd_groups_race
        for problem in (Problem(1, kernel.block, 256), Problem(1, kernel.block + 5, 257, pad=3, addmm=ADD)):
            values = normal(problem, kernel.dtype, seed=1)
            warnings = mlx.run_gemv(checked, kernel, problem, values, tolerant=True).counters.warnings
            assert all("some lanes" in w or "written again" in w for w in warnings), warnings


# What docs/host_runtime.md lists as found in MLX's kernels.


@pytest.mark.slow
def test_reads_past_the_rows_of_c(checked: HostModule) -> None:
    kernel, problem = SMOKE[0], Problem(31, 32, 16, addmm=Addmm())
    with pytest.raises(
        HostFault, match=r"mma.h:\d+: read of 4 bytes out of bounds, 16 bytes past the end of buffer\(2\)"
    ):
        mlx.run_fused(checked, kernel, problem, normal(problem, FLOAT32, seed=1))


@pytest.mark.slow
def test_sums_of_simd_groups_race(checked: HostModule) -> None:
    kernel = VectorKernel("gemv", FLOAT32, mlx.GEMV_TILES[0])
    problem = Problem(1, 4, 256)
    values = normal(problem, FLOAT32, seed=1)
    with pytest.raises(
        HostFault, match=r"gemv.h:\d+: race on threadgroup memory: read by thread 0, written by thread 32"
    ):
        mlx.run_gemv(checked, kernel, problem, values, tolerant=True)
    with pytest.raises(HostFault, match=r"gemv.h:\d+: divergence: .* wait at threadgroup_barrier"):
        mlx.run_gemv(checked, kernel, problem, values)


@pytest.mark.slow
def test_sixteen_columns_overrun_the_left_operand(checked: HostModule) -> None:
    kernel, problem = Kernel("nax", "nn", FLOAT16, Tile(64, 32, 256, 2, 2)), Problem(64, 32, 256)
    with pytest.raises(HostFault, match="slot 8 of . holds no element"):
        mlx.run_fused(checked, kernel, problem, normal(problem, FLOAT16, seed=1), tolerant=True)


GEMV = VectorKernel("gemv", FLOAT32, mlx.GEMV_TILES[2])
GEMV_T = VectorKernel("gemv_t", FLOAT32, mlx.GEMV_T_TILES[1])
THIN = Kernel("thin_nax", "nn", BFLOAT16, mlx.THIN_TILES[0])
# With one row or column more than a block has.
EDGES_WRITTEN_TWICE = [
    (GEMV, Problem(1, GEMV.block + 1, 64), mlx.run_gemv, "gemv.h"),
    (GEMV_T, Problem(1, GEMV_T.block + 1, 64), mlx.run_gemv, "gemv.h"),
    (THIN, Problem(THIN.tile.bm + 1, THIN.tile.bn, 64), mlx.run_thin, "steel_gemm_thin_nax.h"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "problem", "run", "header"), EDGES_WRITTEN_TWICE, ids=["gemv", "gemv_t", "thin_nax"]
)
def test_edge_is_written_twice(
    checked: HostModule, kernel: Kernel | VectorKernel, problem: Problem, run: Callable[..., Run], header: str
) -> None:
    """Tolerant, since other breaches of gemv_t and thin_nax come first."""
    values = normal(problem, kernel.dtype, seed=1)
    done = run(checked, kernel, problem, values, tolerant=True)
    assert any(header in warning and "written again" in warning for warning in done.counters.warnings)
    assert_within_bound(done, values, kernel, problem)


@pytest.mark.slow
def test_edge_written_twice_is_a_race(checked: HostModule) -> None:
    _, problem, _, _ = EDGES_WRITTEN_TWICE[0]
    with pytest.raises(HostFault, match=r"gemv.h:\d+: race on device memory: write by .*, written by"):
        mlx.run_gemv(checked, GEMV, problem, normal(problem, FLOAT32, seed=1))


@pytest.mark.slow
def test_tail_along_k_is_parted_by_mem_none(checked: HostModule) -> None:
    problem, tile = Problem(32, 32, 35), Tile(32, 32, 16, 2, 2)
    kernel = Kernel("fused", "nn", FLOAT32, tile)
    values = normal(problem, FLOAT32, seed=1)
    a, b, d = (mlx.stored(x, FLOAT32, 0) for x in (values.a, values.b, np.full_like(values.c, np.nan)))
    params = mlx.gemm_params(kernel, problem, a, b, d)
    counters = checked.run(
        "gemm_kernel_run", (1, 1, 1), (32, 2, 2), {0: a.flat, 1: b.flat, 3: Writable(d.flat), 4: Constant(params)}
    )
    assert counters.warnings and all("only a mem_none barrier" in w for w in counters.warnings)
    np.testing.assert_allclose(d.flat.reshape(32, 32), values.result(None)[0], rtol=1e-4, atol=1e-4)
