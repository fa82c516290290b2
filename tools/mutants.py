"""Mutation testing: seeds the bugs of tests/mutations.py, one at a time, and requires that a check finds each of them.

    make mutants                                        # all; fails when one survives that is not listed as equivalent
    PYTHONPATH=tests python tools/mutants.py NAME ...   # these only

A mutated kernel is compiled for both lane modes with every access checked, and must compute, count and synchronise on
the shapes of the test suite what the registry says; of the production kernels a sample of rows, in float32. Mutated
portable C++ must pass tests/cpp/check_select.cpp, and what plans launches of production kernels check_replay.cpp. The
sources as they are pass the same checks first, or nothing that follows means anything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
from copies import DTYPES, LAYOUTS, check_copy
from host_module import (
    Build,
    CompileError,
    Constant,
    Counters,
    HostFault,
    HostModule,
    Writable,
    build,
    kernel_objects,
    runtime_objects,
)
from mutations import MUTATIONS, Mutation
from reference import assert_product, normal
from shapes import ALL_CASES, LADDER_NAMES, PRODUCTION, Case
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "mutants"
HOST = WORK / "host"
DOC = ROOT / "docs" / "mutations.md"
CHECKED = Build(checked=True)
COMPILER = CHECKED.compiler

# Kernels of each production body that mutants are compiled for, in float32 only: half types take the same paths.
SAMPLE = ("simd_gemm_32x64_k16_1x2", "simd_gemm_direct_32x32", "tensorops_gemm_32x64_k256", "tensorops_gemm_64x64")
# Kernels that launches are replayed on, and what check_select does not run.
REPLAY_SAMPLE = ("naive", "tiled_16", "simd_gemm_64x64_k16")
REPLAY_METAL = ("ladder/naive", "ladder/tiled", "simd_gemm", "strided_copy")
REPLAYED = ("csrc/backends/fused_launch.cpp",)


def core_of(cmake: str) -> tuple[str, ...]:
    """The sources of mlx_gemm_core."""
    listed = re.search(r"add_library\(mlx_gemm_core OBJECT\s+([^)]*)\)", cmake)
    assert listed, "csrc/CMakeLists.txt has mlx_gemm_core"
    return tuple(f"csrc/{source}" for source in listed[1].split())


# The portable C++ with its check program; -O0, because compiling takes longer than running.
LIBRARY = core_of((ROOT / "csrc" / "CMakeLists.txt").read_text())
CORE = (*LIBRARY, "tests/cpp/check_select.cpp")
REPLAY = WORK / "replay"
COMPILE = (COMPILER, "-std=c++20", "-O0", "-MMD")

SEED = 1
MEMORY_KIB = 1 << 21
TIMEOUT = 240  # seconds; the slowest kernels need a tenth of it


@dataclass(frozen=True)
class Verdict:
    """What killed a mutant, and what the check said; or that nothing did."""

    by: str = ""
    detail: str = ""

    @property
    def killed(self) -> bool:
        return bool(self.by)


SURVIVED = Verdict()
NEVER_ENDS = Verdict("timeout", f"no end after {TIMEOUT} s")


class VoidRun(Exception):
    """The list of mutations does not fit the sources, or the sources fail without one."""


def rejected(error: CompileError) -> Verdict:
    messages = re.findall(r"error: (.*)", str(error))
    return Verdict("compile error", messages[0] if messages else str(error))


# ---- Kernels ----


class Examination:
    """Runs of the kernels of one module."""

    def __init__(self, module: HostModule) -> None:
        self.module = module
        # Looked at last: that a wrong kernel also reads too much says less than that its result is wrong.
        self.miscounted: list[Verdict] = []

    def check(self, case: Case) -> None:
        """Results and independence of the order of threads, in each mode. Raises on the first difference."""
        name, (M, N, K) = str(case), (case.M, case.N, case.K)
        for mode in ("lanes", "uniform") if self.module.allows_uniform(case.kernel.name) else ("lanes",):
            assert_product(lambda a, b, m=mode: self.multiply(case, np.array(a), np.array(b), m), M, N, K, SEED, name)
        a, b = normal((M, K), SEED), normal((K, N), SEED + 1)
        ordered, shuffled = (self.multiply(case, a, b, "lanes", seed) for seed in (None, SEED))
        assert ordered.tobytes() == shuffled.tobytes(), f"{name} depends on the order of threads"

    def multiply(self, case: Case, a: np.ndarray, b: np.ndarray, mode: str, seed: int | None = None) -> np.ndarray:
        """The product of matrices with gaps between their rows, which the kernel must not touch."""
        kernel, (M, N, K) = case.kernel, (case.M, case.N, case.K)
        lda, ldb, ldc = K + 3, N + 5, N + 7
        c = rows_apart(np.full((M, N), np.nan), ldc)
        params = np.array([M, N, K, lda, ldb, ldc], np.int32)
        buffers = {0: rows_apart(a, lda), 1: rows_apart(b, ldb), 2: Writable(c), 3: Constant(params)}
        grid = (*case.grid, 1) if kernel.order == "row_major" else (case.tiles, 1, 1)
        counted = self.module.run(kernel.name, grid, (*kernel.threads, 1), buffers, mode=mode, seed=seed, workers=1)
        self.compare(case, counted, case.tiles)
        rows = np.append(c, np.full(ldc - N, np.nan, np.float32)).reshape(M, ldc)
        assert np.isnan(rows[:, N:]).all(), f"{case} writes between the rows of C"
        return rows[:, :N]

    def compare(self, case: Case, counted: Counters, threadgroups: int) -> None:
        """Notes where the kernel did not do what the registry says."""
        expected = {
            "device_read_bytes": case.kernel.requested_read_bytes(case.M, case.N, case.K),
            "device_write_bytes": 4 * case.M * case.N,
            "threadgroup_bytes": case.kernel.threadgroup_bytes,
            "threadgroups": threadgroups,
            "barriers": case.barriers,
            "multiplies": case.multiplies,
        }
        for what, value in expected.items():
            if getattr(counted, what) != value:
                text = f"{case}: {getattr(counted, what)} {what.replace('_', ' ')}, not {value}"
                self.miscounted.append(Verdict("wrong count", text))
        self.miscounted += [Verdict("warning", warning) for warning in counted.warnings]


def rows_apart(matrix: np.ndarray, ld: int) -> np.ndarray:
    """The rows of `matrix` at a distance of `ld`, NaN between them and nothing after the last."""
    rows, columns = matrix.shape
    memory = np.full((rows, ld), np.nan, np.float32)
    memory[:, :columns] = matrix
    return memory.ravel()[: (rows - 1) * ld + columns].copy()


def included_by(file: str) -> set[str]:
    """`file` and the headers of metal/common that it includes, also through each other."""
    found = {file}
    for header in re.findall(r'#include "(metal/common/.*)"', (ROOT / file).read_text()):
        found |= included_by(header)
    return found


def kernel_sources(file: str) -> list[str]:
    """The kernels that a mutation of `file` changes."""
    kernels = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("metal/**/*.metal"))
    if file == "metal/common/tile_order.h":  # production kernels take it at run time: check_select.cpp does so, too
        return [kernel for kernel in kernels if f'#include "{file}"' in (ROOT / kernel).read_text()]
    return [kernel for kernel in kernels if file in included_by(kernel)]


# ---- Production kernels ----

# FusedGemmParams of metal/shared/params.h.
ADDEND = np.dtype([
    ("origin", np.int64), ("row_stride", np.int64), ("column_stride", np.int64), ("batch_strides", np.int64, 3),
])  # fmt: skip
PARAMS = np.dtype([
    ("a_origin", np.int64), ("b_origin", np.int64), ("a_batch_strides", np.int64, 3), ("b_batch_strides", np.int64, 3),
    ("c", ADDEND), ("residual", ADDEND), ("batch_shape", np.int32, 3),
    ("M", np.int32), ("N", np.int32), ("K", np.int32), ("lda", np.int32), ("ldb", np.int32),
    ("order", np.int32), ("activation", np.int32), ("alpha", np.float32), ("beta", np.float32),
])  # fmt: skip
ORDERS = ("row_major", "swizzle_1", "swizzle_2", "swizzle_3", "morton")
ACTIVATIONS = (
    lambda x: x,
    lambda x: np.maximum(x, 0),
    lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    lambda x: x / (1 + np.exp(-x)),
)


class Stored:
    """A batch [X, Y, rows, columns] in memory: NaN between its rows, nothing after the last; X may run backwards."""

    def __init__(self, values: np.ndarray, *, transposed: bool, gap: int, backwards: bool = False) -> None:
        stored = values.swapaxes(-1, -2) if transposed else values
        wide = np.full((*stored.shape[:-1], stored.shape[-1] + gap), np.nan, np.float32)
        wide[..., :-gap] = stored[::-1] if backwards else stored
        x, y, ld = (stride // 4 for stride in wide.strides[:-1])
        self.memory = wide.ravel()[:-gap].copy()
        self.ld = ld
        self.origin = (len(wide) - 1) * x if backwards else 0
        self.batch_strides = (0, -x if backwards else x, y if wide.shape[1] > 1 else 0)


@dataclass(frozen=True)
class Extras:
    """What a product is part of: a batch [2, 3] of them, and with `addends` C by columns and a residual whose rows run
    backwards."""

    activation: int = 0
    alpha: float = 2
    addends: bool = True


def check_fused(
    examination: Examination, case: Case, layout: str, order: str = "row_major", extras: Extras | None = None
) -> None:
    M, N, K = case.M, case.N, case.K
    activation, addends = (extras.activation, extras.addends) if extras else (0, False)
    X, Y = (2, 3) if extras else (1, 1)
    random = np.random.default_rng(SEED)
    shapes = ((X, Y, M, K), (X, 1, K, N), (X, Y, M, N), (X, Y, M, N))
    exact = activation < 2
    a, b, c, r = (
        random.integers(-4, 5, shape).astype(float)
        if exact
        else random.normal(size=shape).astype(np.float32).astype(float) / 4
        for shape in shapes
    )
    left = Stored(a, transposed=layout[0] == "t", gap=3, backwards=True)
    right = Stored(b, transposed=layout[1] == "t", gap=5)
    params = np.zeros((), PARAMS)
    for name, value in (("M", M), ("N", N), ("K", K), ("lda", left.ld), ("ldb", right.ld)):
        params[name] = value
    params["a_origin"], params["a_batch_strides"] = left.origin, left.batch_strides
    params["b_origin"], params["b_batch_strides"] = right.origin, right.batch_strides
    params["batch_shape"] = (1, X, Y)
    params["order"] = ORDERS.index(order)
    params["alpha"] = alpha = extras.alpha if extras else 1
    params["activation"] = activation
    product = np.full(X * Y * M * N, np.nan, np.float32)
    buffers = {0: left.memory, 1: right.memory, 2: Writable(product)}
    expected = alpha * (a @ b)
    if addends:
        addend, residual = Stored(c, transposed=True, gap=1), Stored(r[..., ::-1, :], transposed=False, gap=2)
        params["beta"] = 3
        params["c"] = (addend.origin, 1, addend.ld, addend.batch_strides)
        params["residual"] = ((M - 1) * residual.ld, -residual.ld, 1, residual.batch_strides)
        buffers |= {4: addend.memory, 5: residual.memory}
        expected += 3 * c
    expected = ACTIVATIONS[activation](expected) + (r if addends else 0)
    buffers[3] = Constant(params)
    columns, rows = case.grid
    swizzle = int(order.partition("_")[2]) if order.startswith("swizzle") else 0
    grid = (columns << swizzle, -(-rows >> swizzle), X * Y) if order != "morton" else (case.tiles, 1, X * Y)
    constants = {0: layout[0] == "t", 1: layout[1] == "t", 2: addends, 3: addends}
    function = f"{case.kernel.name}_float32_float32"
    name = f"{case} {layout} {order} {extras or ''}".rstrip()
    for mode in ("lanes", "uniform") if examination.module.allows_uniform(function) else ("lanes",):
        product[:] = np.nan
        counted = examination.module.run(
            function, grid, (*case.kernel.threads, 1), buffers, constants=constants, mode=mode, workers=1
        )
        shown = product.reshape(X, Y, M, N)
        assert np.allclose(shown, expected, rtol=0, atol=0 if exact else 4e-6), name
    if not extras:
        examination.compare(case, counted, threadgroups=math.prod(grid))
    examination.miscounted += [Verdict("warning", warning) for warning in counted.warnings]


def check_sample(examination: Examination, bodies: set[str]) -> None:
    for kernel in (k for k in PRODUCTION if k.name in SAMPLE and k.body in bodies):
        bm, bn, bk = kernel.bm, kernel.bn, kernel.bk or 32
        edge, whole = Case(kernel, bm + 3, bn + 5, bk + 7), Case(kernel, 2 * bm, bn, 2 * bk)
        for layout, extras in itertools.product(("nn", "nt", "tn", "tt"), (None, Extras(activation=1))):
            check_fused(examination, edge, layout, extras=extras)
            check_fused(examination, whole, layout, extras=extras)
        check_fused(examination, Case(kernel, bm, bn, bk + 1), "tt")
        check_fused(examination, Case(kernel, 1, 1, 1), "nt")
        for order in ORDERS[1:]:
            check_fused(examination, Case(kernel, 4 * bm, 3 * bn + 1, 8), "nn", order)
        for activation in range(len(ACTIVATIONS)):
            check_fused(examination, Case(kernel, 7, bn + 1, 9), "nn", extras=Extras(activation))
        for extras in (Extras(activation=1, alpha=1, addends=False), Extras(alpha=2, addends=False)):
            check_fused(examination, Case(kernel, 7, bn + 1, 9), "nn", extras=extras)


def sampled(tree: Path, kernels: Sequence[str], folder: Path | None = None) -> Path:
    """A copy of the kernels in `tree` in which only these are instantiated, production kernels in float32."""
    root = (folder or tree) / "sample"
    shutil.copytree(tree / "metal", root / "metal", dirs_exist_ok=True)
    rows = root / "metal" / "shared" / "gemm_kernels.def"
    row = re.compile(r"^GEMM_\w+\((\w+),.*\n.*\n", re.MULTILINE)
    rows.write_text(row.sub(lambda found: found[0] if found[1] in kernels else "", rows.read_text()))
    for source in (*root.glob("metal/*.metal"), root / "metal" / "common" / "instantiate.h"):
        source.write_text(re.sub(r"GEMM_INSTANTIATE\(NAME##_b?float16.*>\)", "", source.read_text()))
    return root


def check_copies(module: HostModule) -> None:
    for shape, strides in LAYOUTS:
        for dtype in DTYPES:
            check_copy(module, shape, strides, dtype)
    check_copy(module, (21, 3), (3, 1), DTYPES[0], first_row=16)


def check_kernels(file: str, tree: Path) -> Verdict:
    """Compiles and checks what a mutation of `file` changes, in this process."""
    sources = kernel_sources(file)
    bodies = {Path(source).stem for source in sources}
    root = sampled(tree, (*LADDER_NAMES, *SAMPLE))
    try:
        examination = Examination(build([root / source for source in sources], HOST, CHECKED, root=root))
        for case in sorted((c for c in ALL_CASES if c.kernel.body in bodies), key=lambda c: c.M * c.N * c.K):
            examination.check(case)
        if "strided_copy" in bodies:
            check_copies(examination.module)
        check_sample(examination, bodies)
    except CompileError as error:
        return rejected(error)
    except HostFault as fault:
        return Verdict("fault", re.sub(r"^\S+:\d+: ", "", str(fault)).partition(" [kernel")[0])
    except AssertionError as error:
        return Verdict("wrong result", str(error).partition("\n")[0])
    return examination.miscounted[0] if examination.miscounted else SURVIVED


def check_kernels_apart(file: str, tree: Path) -> Verdict:
    """`check_kernels` in a process of its own: a mutant may crash or never end."""
    command = [sys.executable, __file__, "--check-kernels", file, str(tree)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return NEVER_ENDS
    if done.returncode < 0:
        return Verdict("crash", f"signal {-done.returncode}")
    if done.returncode > 0:
        raise VoidRun(f"{tree.name}: {done.stderr}")
    return Verdict(**json.loads(done.stdout))


# ---- The portable C++ ----


def core_object(source: str) -> Path:
    return WORK / "core" / f"{Path(source).stem}.o"


def compile_core(source: Path, target: Path, *include: Path) -> None:
    command = [*COMPILE, *[f"-I{folder}" for folder in (*include, ROOT)], "-c", source, "-o", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(done.stderr)


def core_sources(file: str) -> list[str]:
    """The sources that a mutation of `file` changes: itself or whatever includes it."""
    dependencies = {source: core_object(source).with_suffix(".d").read_text().split() for source in CORE}
    return [source for source in CORE if str(ROOT / file) in dependencies[source]]


def check_core(file: str, tree: Path) -> Verdict:
    changed = core_sources(file)
    objects = {source: core_object(source) for source in CORE}
    try:
        for source in changed:
            objects[source] = tree / f"{Path(source).stem}.o"
            compile_core(tree / source if source == file else ROOT / source, objects[source], tree)
    except CompileError as error:
        return rejected(error)
    return check_program(tree / "check_select", objects.values())


def check_program(program: Path, objects: Iterable[Path]) -> Verdict:
    subprocess.run([COMPILER, *objects, "-pthread", "-o", program], check=True)
    try:
        # A loop that never ends may also eat memory.
        command = ["sh", "-c", f"ulimit -v {MEMORY_KIB}; exec {shlex.quote(str(program))}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return NEVER_ENDS
    if done.returncode < 0:
        return Verdict("crash", f"signal {-done.returncode}")
    return Verdict("failing check", done.stdout.partition("\n")[0]) if done.returncode else SURVIVED


# ---- Launches of production kernels ----


@cache
def replay_objects() -> list[Path]:
    """Everything of check_replay.cpp but REPLAYED, for a few kernels of each kind."""
    root = sampled(ROOT, REPLAY_SAMPLE, REPLAY)
    metal = [root / "metal" / f"{name}.metal" for name in REPLAY_METAL]
    amalgamated = REPLAY / "kernel_sources.cpp"
    command = [sys.executable, ROOT / "tools" / "amalgamate.py", amalgamated, *metal]
    subprocess.run([*command, "--root", root, "--compiler", COMPILER], check=True)
    objects = []
    for source in (*LIBRARY, "tests/cpp/check_replay.cpp", amalgamated):
        if source not in REPLAYED:
            objects.append(REPLAY / f"{Path(source).stem}.o")
            compile_core(ROOT / source, objects[-1], root)
    host = runtime_objects(CHECKED, HOST)
    host += [one for source in metal for one in kernel_objects(source, HOST, CHECKED, root)]
    for one in host:
        one.compile(CHECKED)
    return [*objects, *(one.target for one in host)]


def check_replay(file: str, tree: Path) -> Verdict:
    changed = tree / f"{Path(file).stem}.replay.o"
    compile_core(tree / file, changed, REPLAY / "sample")
    return check_program(tree / "check_replay", [changed, *replay_objects()])


# ---- One mutation ----


def patched(mutation: Mutation) -> str:
    text = (ROOT / mutation.file).read_text()
    found = text.count(mutation.old)
    if found != 1:
        raise VoidRun(f"{mutation.name}: {mutation.file} holds the text to replace {found} times, not once")
    return text.replace(mutation.old, mutation.new)


def run(mutation: Mutation) -> Verdict:
    """Seeds the mutation in a copy of the sources and runs the checks of what it changes."""
    tree = WORK / re.sub(r"\W+", "-", mutation.name)
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(ROOT / "metal", tree / "metal")
    file = tree / mutation.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(patched(mutation))
    verdict = check_kernels_apart(mutation.file, tree) if kernel_sources(mutation.file) else SURVIVED
    if not verdict.killed and core_sources(mutation.file):
        verdict = check_core(mutation.file, tree)
    if not verdict.killed and mutation.file in REPLAYED:
        verdict = check_replay(mutation.file, tree)
    return verdict


# ---- All of them ----


def original(file: str) -> Mutation:
    """Changes nothing: the sources as they are."""
    return Mutation(f"original {Path(file).name}", file, (ROOT / file).read_text(), (ROOT / file).read_text())


def prepare(replay: bool = False) -> None:
    """Compiles what mutants share; with `replay` what check_replay.cpp needs, too."""
    HOST.mkdir(parents=True, exist_ok=True)
    for one in runtime_objects(CHECKED, HOST):
        one.compile(CHECKED)
    core_object("").parent.mkdir(exist_ok=True)
    for source in CORE:
        compile_core(ROOT / source, core_object(source))
    if replay:
        REPLAY.mkdir(exist_ok=True)
        replay_objects.cache_clear()
        replay_objects()


def run_all(mutations: Sequence[Mutation], jobs: int) -> list[Verdict]:
    """The verdict on each mutation, after the sources that they change have passed without one. Raises VoidRun."""
    for mutation in mutations:
        patched(mutation)
    replayed = [file for file in REPLAYED if any(mutation.file == file for mutation in mutations)]
    prepare(replay=bool(replayed))
    kernels = sorted({source for mutation in mutations for source in kernel_sources(mutation.file)}, reverse=True)
    originals = [original(file) for file in (*kernels, "csrc/select.cpp", *replayed)]
    progress = tqdm(total=len(originals) + len(mutations), unit="mutant", disable=None)

    def noted(mutation: Mutation) -> Verdict:
        verdict = run(mutation)
        progress.set_postfix_str(mutation.name)
        progress.update()
        return verdict

    with progress, ThreadPoolExecutor(jobs) as pool:
        for mutation, verdict in zip(originals, pool.map(noted, originals), strict=True):
            if verdict.killed:
                raise VoidRun(f"{mutation.name}: {verdict.by}: {verdict.detail}")
        return list(pool.map(noted, mutations))


# ---- The report ----

HEAD = """\
# Mutations

Written by `make mutants-doc` from tests/mutations.py; do not edit.

Each row is a bug that is seeded on purpose, alone, and what the checks say to it (tools/mutants.py): kernels run on the
host runtime with every access checked, production kernels a sample of their rows; the portable C++ runs
tests/cpp/check_select.cpp, and what plans launches of production kernels tests/cpp/check_replay.cpp.
"""


def code(text: str) -> str:
    shown = " ".join(text.split()).replace("|", "\\|")
    return f"`{shown}`" if shown else "nothing"


def summary(mutations: Sequence[Mutation], verdicts: Sequence[Verdict]) -> str:
    killed = sum(verdict.killed for verdict in verdicts)
    equivalent = sum(bool(mutation.equivalent) for mutation in mutations)
    real = len(mutations) - equivalent
    return f"{killed} of {real} mutants killed ({100 * killed / max(1, real):.0f} %), {equivalent} equivalent"


def outcome(mutation: Mutation, verdict: Verdict) -> str:
    if verdict.killed:
        return verdict.by
    return f"equivalent: {mutation.equivalent}" if mutation.equivalent else "survived"


def render(mutations: Sequence[Mutation], verdicts: Sequence[Verdict]) -> str:
    parts = [HEAD, f"\n**{summary(mutations, verdicts)}.**\n"]
    for file, group in groupby(zip(mutations, verdicts, strict=True), key=lambda pair: pair[0].file):
        parts.append(f"\n## {file}\n\n| mutant | was | becomes | killed by |\n|---|---|---|---|\n")
        parts += [f"| {m.name} | {code(m.old)} | {code(m.new)} | {outcome(m, v)} |\n" for m, v in group]
    return "".join(parts)


def names_in(document: str) -> list[str]:
    """The mutants that a rendered document lists."""
    return re.findall(r"^\| ([^|]+: [^|]+) \| ", document, re.MULTILINE)


def unexpected(mutations: Iterable[Mutation], verdicts: Iterable[Verdict]) -> list[str]:
    """Survivors that nobody explained, and explained ones that did not survive."""
    return [
        f"{m.name}: " + ("is listed as equivalent, but was killed" if v.killed else "survived")
        for m, v in zip(mutations, verdicts, strict=True)
        if v.killed == bool(m.equivalent)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants to run; all when none is named")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--write-doc", action="store_true", help="write docs/mutations.md after a run of all")
    parser.add_argument("--check-kernels", nargs=2, metavar=("FILE", "TREE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.check_kernels:
        file, tree = options.check_kernels
        print(json.dumps(asdict(check_kernels(file, Path(tree)))))
        return 0
    mutations = [m for m in MUTATIONS if not options.names or m.name in options.names]
    try:
        verdicts = run_all(mutations, options.jobs)
    except VoidRun as error:
        print(f"void: {error}", file=sys.stderr)
        return 1
    width = max(len(m.name) for m in mutations)
    for mutation, verdict in zip(mutations, verdicts, strict=True):
        print(f"{mutation.name:{width}}  {outcome(mutation, verdict)}  {verdict.detail}".rstrip())
    print(summary(mutations, verdicts))
    if options.write_doc and not options.names:
        DOC.write_text(render(mutations, verdicts))
    problems = unexpected(mutations, verdicts)
    print(*problems, sep="\n", end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
