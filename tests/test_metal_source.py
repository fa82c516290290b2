"""The Metal source that the extension holds for GPUs: complete, one kernel each, and the same kernel."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from host_module import Build, Constant, Writable, build
from lint.metal_lint import lint

from mlx_gemm import kernels
from mlx_gemm.kernels import KernelInfo

ROWS = {kernel.name: kernel for kernel in kernels()}


def function_of(kernel: KernelInfo) -> str:
    """Of production kernels, that of float32; a row that only orders tiles otherwise shares its function."""
    name = re.sub(r"_(swizzle\d|morton)$", "", kernel.name) if kernel.role != "ladder" else kernel.name
    return name if kernel.role == "ladder" else f"{name}_float32_float32"


@pytest.mark.parametrize("name", ROWS)
def test_source_is_one_complete_file(name: str) -> None:
    source = ROWS[name].metal_source
    assert re.findall(r'host_name\("(\w+)"\)', source) == [function_of(ROWS[name])]
    # A run-time compiler finds the system's headers only.
    assert set(re.findall(r"#include (\S+)", source)) <= {
        "<metal_stdlib>",
        "<metal_tensor>",
        "<metal_simdgroup_matrix>",
        "<MetalPerformancePrimitives/MetalPerformancePrimitives.h>",
        "<cstdint>",  # for C++, behind __METAL_VERSION__
    }
    assert "#pragma once" not in source


@pytest.mark.parametrize("name", ROWS)
def test_source_is_ascii(name: str) -> None:
    assert ROWS[name].metal_source.isascii()  # MLX's device gives it to Metal as such


@pytest.mark.parametrize("name", ROWS)
def test_toolchains_without_tensors_compile_the_rest(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.metal"
    path.write_text(re.sub(r"#include <.*", "", ROWS[name].metal_source))
    command = ["g++", "-E", "-P", "-undef", "-nostdinc", "-x", "c++", "-D__METAL_VERSION__=310", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ("host_name" in done.stdout) == (ROWS[name].family != "tensorops")


@pytest.mark.parametrize("name", ["simdgroup_32x32_shared", "tensorops_64x64_morton"])
def test_source_runs_like_the_kernel(name: str, tmp_path: Path, build_folder: Path) -> None:
    kernel = ROWS[name]
    path = tmp_path / f"{name}.metal"
    path.write_text(kernel.metal_source)
    module = build([path], build_folder, Build(checked=True))
    rng = np.random.default_rng(1)
    m, n, k = 64, 128, 32
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    c = np.full((m, n), np.nan, np.float32)
    params = np.array([m, n, k, k, n, n], np.int32)
    tiles = -(-n // kernel.bn), -(-m // kernel.bm)
    grid = (*tiles, 1) if kernel.order == "row_major" else (tiles[0] * tiles[1], 1, 1)
    module.run(name, grid, (*kernel.threads, 1), {0: a, 1: b, 2: Writable(c), 3: Constant(params)})
    np.testing.assert_array_equal(c, a @ b)


def test_sources_pass_the_lint(tmp_path: Path) -> None:
    paths = []
    for name, kernel in ROWS.items():
        paths.append(tmp_path / f"{name}.metal")
        paths[-1].write_text(kernel.metal_source)
    # An instantiation is written on one line, however long.
    assert [finding for finding in lint(paths) if finding.rule != "line-length"] == []
