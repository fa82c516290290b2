"""The copy kernel of GPUs on the host runtime, checked, against NumPy: any strides, any width of element."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from host_module import Build, Constant, HostModule, Writable, build
from numpy.lib.stride_tricks import as_strided

SOURCE = Path(__file__).resolve().parent.parent / "metal" / "strided_copy.metal"
# CopyParams of metal/shared/params.h.
PARAMS = np.dtype([
    ("origin", np.int64), ("first_row", np.int64), ("rows", np.int64), ("columns", np.int64),
    ("column_stride", np.int64), ("row_lengths", np.int64, 8), ("row_strides", np.int64, 8),
])  # fmt: skip
UNTOUCHED = 0x5A


@pytest.fixture(scope="module")
def module(build_folder: Path) -> HostModule:
    return build([SOURCE], build_folder, Build(checked=True))


def memory_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, int]:
    """Just the elements from the lowest to the highest in memory, all different where their type allows, and where
    the first lies."""
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    lowest, highest = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return np.arange(1, highest - lowest + 2).astype(dtype), -lowest


def copied(
    module: HostModule, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, **how: object
) -> None:
    memory, origin = memory_of(shape, strides, dtype)
    params = np.zeros((), PARAMS)
    params["origin"], params["rows"], params["columns"] = origin, np.prod(shape[:-1], dtype=int), shape[-1]
    params["column_stride"] = strides[-1]
    params["row_lengths"][: len(shape) - 1] = shape[:-1]
    params["row_strides"][: len(shape) - 1] = strides[:-1]
    # The checked runtime faults outside of it, and behind it lie bytes of our own.
    guard = 64
    to = np.full(np.prod(shape, dtype=int) * dtype.itemsize + guard, UNTOUCHED, np.uint8)
    grid = (-(-shape[-1] // 32), -(-int(params["rows"]) // 8), 1)
    counted = module.run(
        f"strided_copy_{8 * dtype.itemsize}", grid, (32, 8, 1),
        {0: memory, 1: Writable(to), 2: Constant(params)}, constants={0: len(shape) - 1}, **how,
    )  # fmt: skip
    expected = as_strided(memory[origin:], shape, tuple(stride * dtype.itemsize for stride in strides))
    np.testing.assert_array_equal(to[:-guard].view(dtype).reshape(shape), expected)
    assert (to[-guard:] == UNTOUCHED).all()
    assert counted.device_read_bytes == counted.device_write_bytes == expected.size * dtype.itemsize
    assert counted.warnings == []


# Shape and strides, in elements.
LAYOUTS = [
    ((1,), (1,)),
    ((33,), (1,)),
    ((33,), (-1,)),
    ((65,), (0,)),
    ((7, 31), (0, 1)),
    ((9, 33), (1, 9)),
    ((9, 33), (-33, -1)),
    ((8, 32), (67, 2)),
    ((17, 5), (0, 0)),
    ((3, 5, 7), (-1, 21, 3)),
    ((3, 1, 7, 2), (0, 5, -2, 40)),
    ((2, 3, 2, 1, 3, 2, 2, 2, 3), (-1, 2, 6, 0, 12, -36, 72, 144, 288)),
]
DTYPES = [np.dtype(name) for name in ("float16", "float32", "complex64")]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "strides"), LAYOUTS, ids=str)
def test_copy_is_numpys(module: HostModule, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> None:
    copied(module, shape, strides, dtype)
    copied(module, shape, strides, dtype, seed=1)


def test_random_layouts(module: HostModule) -> None:
    rng = np.random.default_rng(2)
    for seed in range(60):
        shape = tuple(int(n) for n in rng.integers(1, 12, rng.integers(1, 5)))
        strides = tuple(int(n) for n in rng.integers(-20, 21, len(shape)))
        print(f"seed {seed}: shape={shape} strides={strides}")
        copied(module, shape, strides, DTYPES[seed % 3])


def test_it_asks_for_lanes(module: HostModule) -> None:
    # Each thread has an element of its own: there is no mode with one fiber for all of a SIMD group.
    assert not module.allows_uniform("strided_copy_32")


def test_a_launch_may_start_at_a_later_row(module: HostModule) -> None:
    rows, columns = 21, 3
    memory, to = np.arange(1, rows * columns + 1, dtype=np.float32), np.zeros((rows, columns), np.float32)
    params = np.zeros((), PARAMS)
    params["first_row"], params["rows"], params["columns"], params["column_stride"] = 16, rows, columns, 1
    params["row_lengths"][0], params["row_strides"][0] = rows, columns
    buffers = {0: memory, 1: Writable(to), 2: Constant(params)}
    module.run("strided_copy_32", (1, 1, 1), (32, 8, 1), buffers, constants={0: 1})
    assert not to[:16].any()
    np.testing.assert_array_equal(to[16:], memory.reshape(rows, columns)[16:])
