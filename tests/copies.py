"""Copies by strided_copy on the host runtime, compared with NumPy."""

from __future__ import annotations

import numpy as np
from host_module import Constant, HostModule, Writable
from numpy.lib.stride_tricks import as_strided

# CopyParams of metal/shared/params.h.
PARAMS = np.dtype([
    ("origin", np.int64), ("first_row", np.int64), ("rows", np.int64), ("columns", np.int64),
    ("column_stride", np.int64), ("row_lengths", np.int64, 8), ("row_strides", np.int64, 8),
])  # fmt: skip
UNTOUCHED = 0x5A
GUARD = 64  # bytes

DTYPES = [np.dtype(name) for name in ("float16", "float32", "complex64")]
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


def memory_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, int]:
    """The elements from the lowest to the highest in memory and nothing else, and where the first lies."""
    reach = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    lowest, highest = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    return np.arange(1, highest - lowest + 2).astype(dtype), -lowest


def check_copy(
    module: HostModule,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: np.dtype,
    *,
    first_row: int = 0,
    seed: int | None = None,
) -> None:
    """Copies the rows from `first_row` on and raises AssertionError unless they, and nothing else, are as in NumPy."""
    memory, origin = memory_of(shape, strides, dtype)
    view = as_strided(memory[origin:], shape, tuple(stride * dtype.itemsize for stride in strides))
    expected = view.reshape(-1, shape[-1])
    rows, columns = expected.shape
    params = np.zeros((), PARAMS)
    params["origin"], params["first_row"], params["rows"], params["columns"] = origin, first_row, rows, columns
    params["column_stride"] = strides[-1]
    params["row_lengths"][: len(shape) - 1] = shape[:-1]
    params["row_strides"][: len(shape) - 1] = strides[:-1]
    to = np.full(expected.nbytes + GUARD, UNTOUCHED, np.uint8)
    counted = module.run(
        f"strided_copy_{8 * dtype.itemsize}",
        (-(-columns // 32), -(-(rows - first_row) // 8), 1),
        (32, 8, 1),
        {0: memory, 1: Writable(to), 2: Constant(params)},
        constants={0: len(shape) - 1},
        seed=seed,
    )
    result = to[:-GUARD].view(dtype).reshape(rows, columns)
    np.testing.assert_array_equal(result[first_row:], expected[first_row:])
    assert (result[:first_row].view(np.uint8) == UNTOUCHED).all(), "rows before the first are written"
    assert (to[-GUARD:] == UNTOUCHED).all(), "bytes behind the copy are written"
    assert counted.device_read_bytes == counted.device_write_bytes == (rows - first_row) * columns * dtype.itemsize
    assert counted.warnings == []


def check_far_copy(module: HostModule) -> None:
    """Two rows whose distance in memory does not fit 32 bits. What lies between is reserved and never touched."""
    distance, columns = 2**31 + 3, 5
    memory = np.empty(distance + columns, np.uint16)
    memory[:columns], memory[distance:] = np.arange(columns), np.arange(columns) + 10
    params = np.zeros((), PARAMS)
    params["rows"], params["columns"], params["column_stride"] = 2, columns, 1
    params["row_lengths"][0], params["row_strides"][0] = 2, distance
    to = np.zeros((2, columns), np.uint16)
    buffers = {0: memory, 1: Writable(to), 2: Constant(params)}
    module.run("strided_copy_16", (1, 1, 1), (32, 8, 1), buffers, constants={0: 1})
    np.testing.assert_array_equal(to, [memory[:columns], memory[distance:]])
