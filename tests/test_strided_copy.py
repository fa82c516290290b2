"""The copy kernel of GPUs on the host runtime, every access checked, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from copies import DTYPES, LAYOUTS, check_copy, check_far_copy
from host_module import Build, HostModule, build

SOURCE = Path(__file__).resolve().parent.parent / "metal" / "strided_copy.metal"


@pytest.fixture(scope="module")
def module(build_folder: Path) -> HostModule:
    return build([SOURCE], build_folder, Build(checked=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "strides"), LAYOUTS, ids=str)
def test_layout(module: HostModule, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> None:
    check_copy(module, shape, strides, dtype)
    check_copy(module, shape, strides, dtype, seed=1)


def test_random_layouts(module: HostModule) -> None:
    rng = np.random.default_rng(2)
    for case in range(60):
        shape = tuple(int(n) for n in rng.integers(1, 12, rng.integers(1, 5)))
        strides = tuple(int(n) for n in rng.integers(-20, 21, len(shape)))
        print(f"check_copy(module, {shape}, {strides}, DTYPES[{case % 3}])")
        check_copy(module, shape, strides, DTYPES[case % 3])


def test_a_launch_may_start_at_a_later_row(module: HostModule) -> None:
    check_copy(module, (21, 3), (3, 1), DTYPES[1], first_row=16)


def test_offsets_beyond_32_bits(build_folder: Path) -> None:
    # Unchecked: a checked run would copy what lies between the rows.
    check_far_copy(build([SOURCE], build_folder))


def test_it_asks_for_lanes(module: HostModule) -> None:
    # Each thread has an element of its own: no mode has one fiber for all of a SIMD group.
    assert not module.allows_uniform("strided_copy_32")


def test_a_copy_that_is_not_as_in_numpy(module: HostModule) -> None:
    class Wrong:
        def run(self, kernel: str, grid: object, threads: object, buffers: dict, **how: object) -> object:
            counted = module.run(kernel, grid, threads, buffers, **how)
            buffers[1].array[self.byte] ^= 1
            return counted

    wrong = Wrong()
    for byte, message in ((0, "rows before the first"), (200, "not equal"), (-1, "behind the copy")):
        wrong.byte = byte
        with pytest.raises(AssertionError, match=message):
            check_copy(wrong, (21, 3), (3, 1), DTYPES[1], first_row=16)
