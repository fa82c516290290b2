"""The host runtime itself: what it computes beyond the ladder, and the faults that it must report."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from host_module import ROOT, Build, CompileError, Constant, HostFault, HostModule, Writable, build

SOURCES = Path(__file__).parent / "metal"
NAN = np.float32("nan")
DTYPES = {"float": np.float32, "half": np.float16}


@pytest.fixture(scope="session")
def plain(build_folder: Path) -> HostModule:
    return build([SOURCES / f"{name}.metal" for name in ("bugs", "simdgroup_matrix", "matmul2d")], build_folder)


@pytest.fixture(scope="session")
def checked(build_folder: Path) -> HostModule:
    return build([SOURCES / "bugs.metal"], build_folder, Build(checked=True))


def lines_of(kernel: str, text: str) -> set[int]:
    """Lines with `text` inside a kernel of bugs.metal."""
    lines = (SOURCES / "bugs.metal").read_text().split("\n")
    start = next(i for i, line in enumerate(lines) if f" {kernel}(" in line)
    end = next(i for i, line in enumerate(lines) if i > start and line == "}")
    return {i + 1 for i in range(start, end) if text in lines[i]}


def run_bug(module: HostModule, kernel: str) -> tuple[np.ndarray, list[str]]:
    groups = 2 if "two_threadgroups" in kernel else 1
    a, b = np.ones((128, 128), np.float32), np.ones((128, 128), np.float32)
    c = np.full((128, 128), NAN)
    counters = module.run(kernel, (groups, 1, 1), (128, 1, 1), {0: a, 1: b, 2: Writable(c)}, mode="lanes")
    return c, counters.warnings


# Kernel, what the message says, and the source line that it must name.
FAULTS = [
    ("bug_barrier_in_half_the_threads", "64 of 128 threads wait at threadgroup_barrier", "threadgroup_barrier"),
    ("bug_two_barriers_in_one_simdgroup", "different SIMD-group calls", "threadgroup_barrier"),
    ("bug_early_exit", "others have left the kernel", "threadgroup_barrier"),
    ("bug_multiply_in_half_the_lanes", "wait at simdgroup_multiply", "simdgroup_multiply_accumulate"),
    ("bug_load_without_one_lane", "different SIMD-group calls", "threadgroup_barrier"),
    ("bug_load_from_two_addresses", "different SIMD-group calls", "simdgroup_store"),
    ("bug_run_in_one_simdgroup", "wait at matmul2d::run", "op.run"),
    ("bug_run_on_two_tiles", "with other arguments", "op.run"),
    ("bug_scope_of_two_simdgroups", "execution_simdgroups<2> in a threadgroup of 4", "op.run"),
    ("bug_static_slice_outside", r"static slice \[32, 64\) of dimension 0, which has extent 48", "a.slice<32, 32>"),
    ("bug_static_k_past_the_end", "static k=32, but the operands extend to 20", "op.run"),
    ("bug_tile_outside_its_buffer", "outside every bound buffer", "op.run"),
    ("bug_slice_two_gibibytes_in", "2 GiB or more", "a.slice"),
    ("bug_no_is_valid_element", "holds no element .* ask is_valid_element", "get_destination_cooperative_tensor"),
    ("bug_cooperative_tensor_not_initialised", r"accumulates .* element \(0, 0\) nobody has written", "op.run"),
    ("bug_store_of_an_unwritten_tensor", "stored with an element that nobody has written", "acc.store"),
    (
        "bug_threads_over_the_limit",
        r"max_total_threads_per_threadgroup\(96\) in a threadgroup of 128 threads",
        "uint thread_index",
    ),
    ("bug_threadgroup_memory_over_the_limit", "the limit is 32768", "second[193]"),
]


@pytest.mark.parametrize(("kernel", "message", "place"), FAULTS, ids=[f[0] for f in FAULTS])
def test_fault_names_the_rule_and_the_line(plain: HostModule, kernel: str, message: str, place: str) -> None:
    with pytest.raises(HostFault, match=message) as caught:
        run_bug(plain, kernel)
    named = re.match(r"tests/metal/bugs.metal:(\d+): ", str(caught.value))
    assert named and int(named[1]) in lines_of(kernel, place), str(caught.value)
    assert f"[kernel {kernel}, threadgroup (0, 0, 0)" in str(caught.value)


# What only the checked build sees.
CHECKED_FAULTS = [
    ("bug_read_past_the_end", r"read of 4 bytes out of bounds, 0 bytes past the end of buffer\(0\)", "= A["),
    ("bug_returned_half_past_the_end", r"write of 2 bytes out of bounds, 0 bytes past the end of buffer\(2\)", "C["),
    ("bug_returned_vector_past_the_end", r"write of 4 bytes out of bounds, 0 bytes past the end of buffer\(2\)", "C["),
    ("bug_write_before_the_start", r"write of 4 bytes out of bounds, 4 bytes before buffer\(2\)", "C[int"),
    ("bug_write_to_a_read_only_buffer", "write of 4 bytes to a read-only buffer", "A[thread_index]"),
    ("bug_threadgroup_read_past_the_end", "read of 4 bytes of threadgroup memory outside every variable", "C["),
    (
        "bug_threadgroup_write_past_the_end",
        "write of 4 bytes of threadgroup memory outside every variable",
        "shared[thread_index] =",
    ),
    ("bug_threadgroup_memory_not_written", "read of threadgroup memory that nobody has written", "C[thread_index]"),
    ("bug_padding_of_one_operand", "read of threadgroup memory that nobody has written", "sum +="),
    # The first thread to run meets memory that the others have yet to write.
    ("bug_missing_barrier", "threadgroup memory that nobody has written", "C[thread_index]"),
    ("bug_mem_none_where_memory_is_shared", "race on threadgroup memory: read by thread", "C[thread_index]"),
    ("bug_second_barrier_missing", "race on threadgroup memory: ", "sum += shared"),
    ("bug_simdgroup_barrier_across_simdgroups", "threadgroup memory that nobody has written", "C[thread_index]"),
    ("bug_write_among_readers", "write by thread 126, read by thread 125 with no barrier", "shared[0] = sum"),
    ("bug_two_threads_write_one_element", "race on device memory: write by thread 1, written by thread 0", "C["),
    ("bug_read_of_another_threads_output", "race on device memory: read by thread", "C[128 + thread_index]"),
    ("bug_refill_before_run_is_done", "race on threadgroup memory: write by thread", "shared[thread_index] = 0"),
    ("bug_two_threadgroups_write_one_element", "race on device memory: write by this threadgroup, written by", "C["),
    ("bug_unbound_buffer", r"write of 4 bytes, but nothing is bound to buffer\(7\)", "C[0] ="),
    ("bug_unbound_operand", r"nothing is bound to buffer\(7\)", "op.run"),
]


@pytest.mark.parametrize(("kernel", "message", "place"), CHECKED_FAULTS, ids=[f[0] for f in CHECKED_FAULTS])
def test_checked_fault(checked: HostModule, kernel: str, message: str, place: str) -> None:
    with pytest.raises(HostFault, match=message) as caught:
        run_bug(checked, kernel)
    named = re.match(r"tests/metal/bugs.metal:(\d+): ", str(caught.value))
    assert named and int(named[1]) in lines_of(kernel, place), str(caught.value)


def test_end_of_a_buffer_whose_neighbour_is_bound_too(checked: HostModule) -> None:
    memory = np.ones(3 * 128 * 128, np.float32)
    a, b, c = np.split(memory, 3)
    buffers = {0: a, 1: b, 2: Writable(c)}
    with pytest.raises(HostFault, match=r"0 bytes past the end of buffer\(0\)"):
        checked.run("bug_read_past_the_end", (1, 1, 1), (128, 1, 1), buffers)
    checked.run("fixed_read_past_the_end", (1, 1, 1), (128, 1, 1), buffers)


def test_buffers_that_overlap(checked: HostModule) -> None:
    memory = np.arange(2 * 128 * 128, dtype=np.float32)
    expected = memory.copy()
    expected[128 * 128 :][:128] = memory[128 * 128 - 128 : 128 * 128]
    buffers = {0: Writable(memory), 2: Writable(memory[128 * 128 :])}
    checked.run("fixed_read_past_the_end", (1, 1, 1), (128, 1, 1), buffers)
    np.testing.assert_array_equal(memory, expected)


def test_mem_none_before_a_write_is_a_warning(checked: HostModule) -> None:
    _, warnings = run_bug(checked, "warned_second_barrier_without_memory")
    assert len(warnings) == 1
    assert "only a mem_none barrier" in warnings[0]


def kernels_of_bugs(prefix: str) -> list[str]:
    return re.findall(rf"kernel void ({prefix}_\w+)\(", (SOURCES / "bugs.metal").read_text())


def test_every_bug_is_tested() -> None:
    tested = [f[0] for f in FAULTS] + [f[0] for f in CHECKED_FAULTS]
    assert sorted(kernels_of_bugs("bug")) == sorted(tested)


def test_every_bug_has_a_fixed_twin() -> None:
    twins = {f"fixed_{bug.removeprefix('bug_')}" for bug in kernels_of_bugs("bug")}
    assert twins <= set(kernels_of_bugs("fixed"))


def test_unbound_buffer(plain: HostModule, checked: HostModule) -> None:
    """Nobody needs to bind what no thread touches; without the checks, what the kernel never names."""
    for kernel in ("bug_unbound_buffer", "unbound_and_not_reached"):
        with pytest.raises(HostFault, match=r"nothing is bound to buffer\(7\)"):
            run_bug(plain, kernel)
    np.testing.assert_array_equal(run_bug(checked, "unbound_and_not_reached")[0][0], 1)


@pytest.mark.parametrize("kernel", kernels_of_bugs("fixed"))
def test_fixed_twin_passes(plain: HostModule, checked: HostModule, kernel: str) -> None:
    expected, _ = run_bug(plain, kernel)
    found, warnings = run_bug(checked, kernel)
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(expected.ravel()[0])
    assert not warnings


def test_runtime_stays_usable_after_a_fault(plain: HostModule) -> None:
    for _ in range(50):
        with pytest.raises(HostFault):
            run_bug(plain, "bug_early_exit")
    assert run_bug(plain, "fixed_early_exit")[0].ravel()[0] == 1.0


def test_dispatch_limits(plain: HostModule) -> None:
    c = np.zeros(128, np.float32)
    for threads, message in (((48, 1, 1), "multiple of 32"), ((1056, 1, 1), "32 to 1024")):
        with pytest.raises(HostFault, match=message):
            plain.run("fixed_early_exit", (1, 1, 1), threads, {2: Writable(c)})
    with pytest.raises(HostFault, match="0 threadgroups"):
        plain.run("fixed_early_exit", (0, 1, 1), (32, 1, 1), {2: Writable(c)})
    with pytest.raises(HostFault, match="not in this build"):
        plain.run("no_such_kernel", (1, 1, 1), (32, 1, 1), {2: Writable(c)})
    with pytest.raises(HostFault, match="one fiber cannot stand for a SIMD group"):
        plain.run("fixed_early_exit", (1, 1, 1), (128, 1, 1), {2: Writable(c)}, mode="uniform")


def test_uniform_mode_is_for_kernels_without_a_lane(plain: HostModule) -> None:
    assert plain.allows_uniform("fixed_scope_of_two_simdgroups")
    assert not plain.allows_uniform("fixed_early_exit")


# ---- simdgroup_matrix ----


def run_fragment(module: HostModule, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: str) -> None:
    module.run(kernel, (1, 1, 1), (32, 1, 1), {0: a, 1: b, 2: Writable(c)}, mode=mode)


# simdgroup_matrix.metal reads lanes in one kernel, so the file as a whole has no uniform build.
@pytest.mark.parametrize("mode", ["lanes"])
def test_simdgroup_matrix(plain: HostModule, mode: str) -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(-8, 8, (20, 20)).astype(np.float32)
    square = rng.integers(-8, 8, (8, 8)).astype(np.float32)
    c = np.full((8, 8), NAN)
    run_fragment(plain, "diagonal", a, a, c, mode)
    np.testing.assert_array_equal(c, 3 * np.eye(8, dtype=np.float32))
    run_fragment(plain, "transposed_copy", a, a, c, mode)
    np.testing.assert_array_equal(c, a[2:10, 3:11].T)
    wide = np.full((9, 24), NAN)
    run_fragment(plain, "store_transposed", square, square, wide, mode)
    np.testing.assert_array_equal(wide[1:9, 8:16], square.T)
    assert np.isnan(wide).sum() == wide.size - 64
    other = rng.integers(-8, 8, (8, 8)).astype(np.float32)
    run_fragment(plain, "product", square, other, c, mode)
    np.testing.assert_array_equal(c, square @ other)


def test_lane_layout_is_the_real_one(plain: HostModule) -> None:
    a = np.arange(64, dtype=np.float32).reshape(8, 8)
    c = np.full((8, 8), NAN)
    run_fragment(plain, "lane_layout", a, a, c, "lanes")
    np.testing.assert_array_equal(c, a)


def to_bfloat(x: np.ndarray) -> np.ndarray:
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("dtype", ["half", "bfloat"])
def test_half_types_multiply_into_float(plain: HostModule, dtype: str) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-8, 8, (8, 8)).astype(np.float32) for _ in range(2))
    stored = [x.astype(np.float16) if dtype == "half" else to_bfloat(x) for x in (a, b)]
    c = np.full((8, 8), NAN)
    run_fragment(plain, f"mixed_product_{dtype}", stored[0], stored[1], c, "lanes")
    np.testing.assert_array_equal(c, a @ b + 1)


# ---- SIMD functions and the rest of the language ----


@pytest.fixture(scope="session")
def language(build_folder: Path) -> HostModule:
    return build([SOURCES / "simd_functions.metal"], build_folder)


def run_lanes(module: HostModule, kernel: str, out: np.ndarray, **how: object) -> None:
    module.run(kernel, (1, 1, 1), (32, 1, 1), {2: Writable(out)}, **how)


@pytest.mark.parametrize("seed", [None, 1])
def test_simd_functions(language: HostModule, seed: int | None) -> None:
    out = np.zeros((11, 32), np.int32)
    run_lanes(language, "simd_functions", out, seed=seed)
    x = np.arange(1, 33)
    lanes = np.arange(32)
    expected = [
        x[::-1],
        x[lanes ^ 5],
        np.append(x[8:], [0] * 8),
        np.append([0] * 8, x[:-8]),
        np.roll(x, -3),
        np.append(x[4:], -x[:4]),
        np.full(32, 8),
        np.full(32, x.sum()),
        np.full(32, 32),
        np.cumsum(x) - x,
        np.cumsum(x),
    ]
    np.testing.assert_array_equal(out, expected)


def test_simd_functions_need_all_lanes_that_are_there(language: HostModule) -> None:
    out = np.zeros(32, np.int32)
    run_lanes(language, "sum_of_the_rest", out)
    np.testing.assert_array_equal(out, np.arange(32) % 2 * 256)
    with pytest.raises(HostFault, match="divergence: .* a simd_ function"):
        run_lanes(language, "bug_simd_sum_in_half_the_lanes", out)


def test_grid_of_threads(language: HostModule) -> None:
    out = np.zeros((3, 40), np.int32)
    language.run("count_threads", (2, 2, 1), (32, 2, 1), {2: Writable(out)}, grid_threads=(37, 3, 1))
    np.testing.assert_array_equal(out, np.tile(np.arange(40) < 37, (3, 1)))


def test_argument_of_a_false_function_constant(language: HostModule) -> None:
    out = np.zeros(1, np.float32)
    run_lanes(language, "optional_argument", out, constants={3: 0}, mode="lanes")
    assert out[0] == 7
    with pytest.raises(HostFault, match=r"nothing is bound to buffer\(4\)"):
        run_lanes(language, "optional_argument", out, constants={3: 1}, mode="lanes")


def test_arithmetic(language: HostModule) -> None:
    out = np.zeros(8, np.float32)
    run_lanes(language, "arithmetic", out)
    np.testing.assert_array_equal(out, np.array([2048, 2049, 256, 10, np.pi, 65504, 2, 7], np.float32))


def test_what_is_built_already_is_not_compiled_again(plain: HostModule, build_folder: Path) -> None:
    def objects() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in build_folder.glob("*.o")}

    before = objects()
    build([SOURCES / "bugs.metal"], build_folder)
    assert objects() == before


@pytest.mark.slow
def test_example_of_the_documents() -> None:
    document = (ROOT / "docs" / "host_runtime.md").read_text()
    example = re.search(r"^## Run a kernel of your own\n.*?```python\n(.*?)```", document, re.MULTILINE | re.DOTALL)
    assert example and len(example[1].splitlines()) == 10

    def run(code: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": "tools"}
        return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)

    done = run(example[1])
    assert "device_read_bytes=256, device_write_bytes=256" in done.stdout, done.stderr
    assert done.stdout.endswith("[0. 2. 4. 6.]\n")
    assert "twice.metal:2: read of 4 bytes out of bounds" in run(example[1].replace("(2, 1, 1)", "(3, 1, 1)")).stderr


# ---- matmul2d ----

SHAPES = [(64, 32, 64), (64, 32, 5), (1, 1, 1), (63, 31, 33), (17, 5, 300)]


def run_matmul2d(module: HostModule, kernel: str, a: np.ndarray, b: np.ndarray, out: np.ndarray, mode: str) -> None:
    (m, k), n = a.shape, b.shape[1]
    ta, tb = kernel.endswith(("_tn", "_tt")), kernel.endswith(("_nt", "_tt"))
    a = np.ascontiguousarray(a.T if ta else a)
    b = np.ascontiguousarray(b.T if tb else b)
    shape = np.array([m, n, k], np.int32)
    threads = (32, 1, 1) if kernel.endswith("_tile") else (128, 1, 1)
    module.run(kernel, (1, 1, 1), threads, {0: a, 1: b, 2: Writable(out), 3: Constant(shape)}, mode=mode)


@pytest.mark.parametrize("mode", ["lanes", "uniform"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "tile"])
@pytest.mark.parametrize("types", ["float", "half", "half_float", "bfloat", "bfloat_float", "float_half"])
def test_matmul2d_types_and_layouts(plain: HostModule, types: str, layout: str, mode: str) -> None:
    rng = np.random.default_rng(3)
    left, right = (types.split("_") * 2)[:2] if types == "float_half" else (types.split("_")[0],) * 2
    out = "float" if "_" in types else types
    stored = {"float": lambda x: x, "half": lambda x: x.astype(np.float16), "bfloat": to_bfloat}
    for m, n, k in SHAPES:
        # Integers this small are exact in every type, sums included.
        a = rng.integers(-2, 3, (m, k)).astype(np.float32)
        b = rng.integers(-1, 2, (k, n)).astype(np.float32)
        c = np.full((m, n), 0x7FFF, np.uint16) if out == "bfloat" else np.full((m, n), NAN, DTYPES[out])
        run_matmul2d(plain, f"{types}_{layout}", stored[left](a), stored[right](b), c, mode)
        got = from_bfloat(c) if out == "bfloat" else c.astype(np.float32)
        expected = (a @ b) * (2 if layout == "tile" else 1)
        if out != "float":
            # Sums over 256 are not exact in bfloat: one rounding per run.
            expected = stored[out](expected)
            expected = from_bfloat(expected) if out == "bfloat" else expected.astype(np.float32)
        np.testing.assert_array_equal(got, expected, err_msg=f"{types}_{layout} {mode} {m}x{n}x{k}")


def test_relaxed_precision_truncates_to_11_bits(plain: HostModule) -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal((64, 64)).astype(np.float32)
    b = np.eye(64, 32, dtype=np.float32)
    c = np.full((64, 32), NAN)
    run_matmul2d(plain, "float_relaxed", a, b, c, "auto")
    np.testing.assert_array_equal(c, (a.view(np.uint32) & 0xFFFFE000).view(np.float32)[:, :32])
    run_matmul2d(plain, "float_nn", a, b, c, "auto")
    np.testing.assert_array_equal(c, a[:, :32])


@pytest.mark.parametrize("mode", ["lanes", "uniform"])
def test_cooperative_coordinates_cover_the_tile_once(plain: HostModule, mode: str) -> None:
    out = np.full((48, 32), NAN)
    plain.run("coordinates", (1, 1, 1), (128, 1, 1), {2: Writable(out)}, mode=mode)
    np.testing.assert_array_equal(out, np.arange(48 * 32, dtype=np.float32).reshape(48, 32))


@pytest.fixture(scope="session")
def layouts(build_folder: Path) -> HostModule:
    return build([SOURCES / "cooperative_layout.metal"], build_folder)


def relaxed_position(lane: int, slot: int) -> tuple[int, int]:
    """Row and column of a slot in a row of 16 x 16 fragments, as measured on an Apple10 GPU."""
    quad = lane >> 2
    row = (quad & 4) | ((lane >> 1) & 3)
    column = ((quad & 2) | (lane & 1)) * 4
    return row + (slot >> 2 & 1) * 8, column + (slot & 3) + (slot >> 3) * 16


def strict_position(lane: int, slot: int, fragments: int) -> tuple[int, int]:
    quad = lane >> 2
    row = (quad & 4) | ((lane >> 1) & 3)
    column = (lane & 1) * 2 + (lane >> 3 & 1) * 4
    fragment = slot >> 2 & 1 if fragments == 2 else 0
    lower = slot >> (3 if fragments == 2 else 2)
    return row + lower * 8, column + (slot & 1) + (slot >> 1 & 1) * 8 + fragment * 16


# Of a transposed right operand the second fragment lies below the first.
@pytest.mark.parametrize("precision", ["relaxed", "strict"])
@pytest.mark.parametrize("operand", ["left", "right", "right transposed", "destination"])
def test_cooperative_layout_is_the_real_one(layouts: HostModule, operand: str, precision: str) -> None:
    maps = [np.zeros((32, 16, 2), np.int32) for _ in range(3)]
    transposed = operand == "right transposed"
    kernel = f"lane_maps_{precision}_float" if precision == "strict" else "lane_maps_relaxed_half"
    layouts.run(
        kernel + "_transposed" * transposed, (1, 1, 1), (32, 1, 1), {i: Writable(m) for i, m in enumerate(maps)}
    )
    found = maps[["left", "right", "destination"].index(operand.split()[0])]
    for lane in range(32):
        for slot in range(16):
            if operand == "left" and slot >= 8:
                assert tuple(found[lane, slot]) == (-1, -1)
                continue
            fragments = 1 if operand == "left" else 2
            relaxed = precision == "relaxed"
            row, column = relaxed_position(lane, slot) if relaxed else strict_position(lane, slot, fragments)
            if transposed:
                row, column = row + column // 16 * 16, column % 16
            assert tuple(found[lane, slot]) == (column, row), (lane, slot)


@pytest.mark.parametrize("isa", [0, 1])
def test_micro_kernels_and_fibers_of_lesser_machines(build_folder: Path, isa: int) -> None:
    flags = (f"-DMETAL_HOST_MAX_ISA={isa}", *(["-DMETAL_HOST_UCONTEXT"] if isa == 0 else []))
    module = build([SOURCES / "matmul2d.metal"], build_folder, Build(flags=flags))
    for mode in ("lanes", "uniform"):
        test_matmul2d_types_and_layouts(module, "float", "nn", mode)
        test_matmul2d_types_and_layouts(module, "half_float", "tile", mode)
        test_matmul2d_types_and_layouts(module, "bfloat", "tt", mode)


# ---- Sources that must not compile ----

PREAMBLE = """#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_stdlib>
#include <metal_tensor>
using namespace metal;
using namespace mpp::tensor_ops;
using Matrix = tensor<device float, dextents<int, 2>, tensor_inline>;
"""
OPERANDS = "device float* A [[buffer(0)]], device float* C [[buffer(2)]]"
TENSORS = """Matrix a(A, dextents<int, 2>(32, 32)); Matrix b(A, dextents<int, 2>(32, 32));
Matrix c(C, dextents<int, 2>(32, 32));"""

REJECTED = {
    "a parameter without an attribute": ("kernel void k(device float* A) { A[0] = 0; }", "has no attribute"),
    "an unknown attribute": (
        "kernel void k(device float* A [[buffer(0)]], uint x [[dispatch_threads_per_threadgroup]]) { A[0] = x; }",
        "unknown kernel parameter attribute",
    ),
    "two threadgroup variables at once": (
        "kernel void k(device float* A [[buffer(0)]]) { threadgroup float x[4], y[4]; A[0] = x[0] + y[0]; }",
        "one threadgroup variable at a time",
    ),
    "a threadgroup qualifier after the type": (
        "kernel void k(device float* A [[buffer(0)]]) { float threadgroup x[4]; A[0] = x[0]; }",
        "rejected.metal:7: write a threadgroup variable as",
    ),
    "a threadgroup variable after a label": (
        "kernel void k(device float* A [[buffer(0)]]) { switch (1) { case 1: threadgroup float x[4]; A[0] = x[0]; } }",
        "write a threadgroup variable as",
    ),
    "a template without an end": ("template <typename T", "a declaration without an end"),
    "an empty attribute": ("kernel void k(device float* A [[]]) {}", "unknown kernel parameter attribute"),
    "an instantiation of no kernel": (
        'template <typename T> void f(T x) {}\ntemplate [[host_name("f")]] [[kernel]] decltype(f<int>) f<int>;',
        "is not a kernel",
    ),
    "a write to constant memory": ("kernel void k(constant float* A [[buffer(0)]]) { A[0] = 1; }", "read-only"),
    "float to bfloat without a cast": ("kernel void k(device bfloat* A [[buffer(0)]]) { A[0] = 1.0f; }", "error"),
    "a const operand": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} tensor<device const float, dextents<int, 2>, tensor_inline> x(A, "
        "dextents<int, 2>(32, 32)); constexpr auto d = matmul2d_descriptor(32, 32, 32); "
        "matmul2d<d, execution_simdgroups<4>> op; op.run(x, b, c); }",
        "rejects tensors of const elements",
    ),
    "a temporary operand": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} constexpr auto d = matmul2d_descriptor(32, 32, 32); "
        "matmul2d<d, execution_simdgroups<4>> op; op.run(a.slice(0, 0), b, c); }",
        "cannot bind",
    ),
    "unsigned extents": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} tensor<device float, dextents<uint, 2>, tensor_inline> x(A, "
        "dextents<uint, 2>(32, 32)); constexpr auto d = matmul2d_descriptor(32, 32, 32); "
        "matmul2d<d, execution_simdgroups<4>> op; op.run(x, b, c); }",
        "indexed by int",
    ),
    "an illegal tile": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} constexpr auto d = matmul2d_descriptor(8, 32, 32); "
        "matmul2d<d, execution_simdgroups<4>> op; op.run(a, b, c); }",
        "m must be a multiple of 16",
    ),
    "a static k of 16": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} constexpr auto d = matmul2d_descriptor(32, 32, 16); "
        "matmul2d<d, execution_simdgroups<4>> op; op.run(a, b, c); }",
        "static k must be a multiple of 32",
    ),
    "a copy of a cooperative tensor": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} constexpr auto d = matmul2d_descriptor(32, 32, 32); "
        "matmul2d<d, execution_simdgroups<4>> op; "
        "auto x = op.get_destination_cooperative_tensor<Matrix, Matrix, float>(); auto y = x; y.store(c); }",
        "deleted",
    ),
    "get_mask": (
        f"kernel void k({OPERANDS}) {{ {TENSORS} constexpr auto d = matmul2d_descriptor(32, 32, 32); "
        "matmul2d<d, execution_simdgroups<4>> op; "
        "auto x = op.get_destination_cooperative_tensor<Matrix, Matrix, float>(); C[0] = x.get_mask(0); }",
        "no member named",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_rejected_source(name: str, tmp_path: Path, build_folder: Path) -> None:
    source, message = REJECTED[name]
    path = tmp_path / "rejected.metal"
    path.write_text(PREAMBLE + source + "\n")
    with pytest.raises(CompileError, match=message):
        build([path], build_folder)


def test_bad_dispatch_arguments(plain: HostModule) -> None:
    c = np.zeros(128, np.float32)
    for slot in (-1, 31):
        with pytest.raises(ValueError, match=r"buffer slots lie in 0..30"):
            plain.run("fixed_early_exit", (1, 1, 1), (128, 1, 1), {slot: Writable(c)})
    with pytest.raises(ValueError, match="not negative"):
        plain.run("fixed_early_exit", (-1, 1, 1), (128, 1, 1), {2: Writable(c)})
