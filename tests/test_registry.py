"""The registry as Python sees it: the ladder is complete, and every row keeps Metal's limits."""

from __future__ import annotations

import pytest
from shapes import NAMES, cases

import mlx_gemm
from mlx_gemm import _ext
from mlx_gemm.kernels import KernelInfo

LADDER = """
    naive
    tiled_16 tiled_32 tiled_32k16
    coarse_1d coarse_2d
    simdgroup_8x8 simdgroup_32x32 simdgroup_32x32_shared
    tensorops_64x64 tensorops_64x128 tensorops_128x64 tensorops_128x128
    tensorops_32x32_sg1 tensorops_32x64_sg1 tensorops_64x32_sg1
    tensorops_64x64_morton tensorops_32x32_sg1_morton
    tensorops_sync_64x64_k128 tensorops_sync_64x64_k256 tensorops_sync_64x64_k512 tensorops_sync_64x64_k1024
    tensorops_sync_64x128_k256 tensorops_sync_64x128_k512 tensorops_sync_64x128_k1024
    tensorops_sync_32x64_k512 tensorops_sync_128x128_k256
    tensorops_sync_64x64_k256_morton
""".split()

KERNELS = mlx_gemm.kernels()
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
every_tensorops = pytest.mark.parametrize(
    "kernel", [k for k in KERNELS if k.family == "tensorops"], ids=lambda k: k.name
)


def test_names_are_unique() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_the_ladder_is_complete_and_in_order() -> None:
    assert [kernel.name for kernel in KERNELS if kernel.role == "ladder"] == LADDER


@every_kernel
def test_limits_of_a_threadgroup(kernel: KernelInfo) -> None:
    assert kernel.threads[0] * kernel.threads[1] == 32 * kernel.simdgroups <= 1024
    assert kernel.simdgroups == kernel.wm * kernel.wn
    assert kernel.threadgroup_bytes <= 32 * 1024


@every_tensorops
def test_tile_rules_of_tensorops(kernel: KernelInfo) -> None:
    assert kernel.bm % 16 == 0
    assert kernel.bn % 32 == 0
    assert kernel.bk % 32 == 0
    assert kernel.threadgroup_bytes == 0
    assert kernel.min_os >= 2600


@every_kernel
def test_fields_have_known_values(kernel: KernelInfo) -> None:
    assert kernel.role in ("ladder", "automatic", "by_name")
    assert kernel.math in ("exact", "tf32", "split")
    assert kernel.order in ("row_major", "swizzle_1", "swizzle_2", "swizzle_3", "morton")
    assert kernel.dtype_accumulate == "float32"
    assert "float32" in kernel.dtypes
    assert kernel.layouts == (["nn"] if kernel.role == "ladder" else ["nn", "nt", "tn", "tt"])
    assert kernel.body.startswith(kernel.family)
    assert kernel.min_generation >= 13
    assert 0 < len(kernel.summary) <= 80
    assert not kernel.summary.endswith(".")
    assert repr(kernel) == f"KernelInfo({kernel.name})"


@every_kernel
def test_requested_bytes_follow_from_the_read_tile(kernel: KernelInfo) -> None:
    rows, columns = kernel.read_tile
    assert kernel.requested_read_bytes(1, 1, 1) == 8
    n = 4096
    assert kernel.requested_read_bytes(n, n, n) == 4 * n**3 * (rows + columns) // (rows * columns)


@every_kernel
def test_a_kernel_supports_its_own_tile(kernel: KernelInfo) -> None:
    assert all(_ext.unsupported(kernel.name, case.M, case.N, case.K) is None for case in cases(kernel))


@every_kernel
def test_unsupported_names_the_rule(kernel: KernelInfo) -> None:
    m, n, k = kernel.needs
    for axis, (name, need) in enumerate(zip("MNK", kernel.needs, strict=True)):
        shape = [m, n, k]
        shape[axis] += 1
        rule = _ext.unsupported(kernel.name, *shape)
        if need == 1:
            assert rule is None
        else:
            assert rule == f"{kernel.name} needs {name} to be a multiple of {need}, got {name}={need + 1}"
    types = ",".join(kernel.dtypes)
    assert f"{kernel.name} multiplies {types}, got float64" == _ext.unsupported(kernel.name, m, n, k, dtype="float64")
    if kernel.layouts == ["nn"]:
        assert "layout nn, got nt" in _ext.unsupported(kernel.name, m, n, k, layout="nt")
    assert "fit 32 bits with a tile to spare, got 2147483648" in _ext.unsupported(kernel.name, m, n, 2**31)


def test_unsupported_rejects_unknown_names() -> None:
    with pytest.raises(ValueError, match="no kernel is called 'naiv'; the nearest names are naive"):
        _ext.unsupported("naiv", 1, 1, 1)
    with pytest.raises(ValueError, match="'xx' is not one of nn, nt, tn, tt"):
        _ext.unsupported("naive", 1, 1, 1, layout="xx")


@pytest.mark.parametrize("kernel", ["tiled_16", "coarse_2d"])
def test_sizes_leave_room_for_one_more_tile(kernel: str) -> None:
    # The loops of these kernels step past K by up to a tile, in 32 bits.
    assert "a tile to spare" in _ext.unsupported(kernel, 1, 1, 2**31 - 1)
    step = next(k.bk for k in _ext.kernels() if k.name == kernel)
    assert _ext.unsupported(kernel, 1, 1, 2**31 - 1 - step) is None
