"""Builds any Metal source into a module of the host runtime and runs its kernels from Python.

    module = build([Path("kernel.metal")], folder)
    counters = module.run("kernel", grid=(4, 4, 1), threads=(32, 1, 1), buffers={0: a, 1: b, 2: Writable(c)})

Arrays are NumPy arrays, passed by address. A fault raises HostFault with the place in the Metal source.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "csrc" / "metal_host"
ISA_FLAGS = {"micro_kernel_avx2": ["-mavx2", "-mfma"], "micro_kernel_avx512": ["-mavx512f", "-mfma"]}
BUFFER_SLOTS = 31
MODES = {"auto": 0, "lanes": 1, "uniform": 2}


class HostFault(RuntimeError):
    """A kernel broke a rule that the host runtime checks."""


class CompileError(RuntimeError):
    """The translator or the C++ compiler rejected the source."""


@dataclass
class Writable:
    """A buffer that the kernel may write."""

    array: np.ndarray


@dataclass
class Constant:
    """A buffer in the constant address space: read-only and not counted as device traffic."""

    array: np.ndarray


@dataclass(frozen=True)
class Build:
    """How to compile: `checked` instruments every access; `flags` go to the kernels and the runtime alike.

    `compiler` is $CXX, and g++ without it; `includes` are folders of Metal headers.
    """

    checked: bool = False
    compiler: str = field(default_factory=lambda: os.environ.get("CXX", "g++"))
    flags: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    kernel_flags: tuple[str, ...] = field(default=())
    includes: tuple[Path, ...] = ()

    @property
    def common(self) -> list[str]:
        include = [f"-I{ROOT}", f"-I{RUNTIME / 'include'}"]
        return [self.compiler, "-std=c++20", "-O2", "-g1", "-fPIC", "-fvisibility=hidden", *include, *self.flags]


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("slot", ctypes.c_int32),
        ("writable", ctypes.c_int32),
        ("constant", ctypes.c_int32),
    ]


class _Constant(ctypes.Structure):
    _fields_ = [("value", ctypes.c_int64), ("id", ctypes.c_int32)]


class _Dispatch(ctypes.Structure):
    _fields_ = [
        ("kernel", ctypes.c_char_p),
        ("buffers", ctypes.POINTER(_Buffer)),
        ("constants", ctypes.POINTER(_Constant)),
        ("buffer_count", ctypes.c_int32),
        ("constant_count", ctypes.c_int32),
        ("grid", ctypes.c_uint32 * 3),
        ("threads", ctypes.c_uint32 * 3),
        ("grid_threads", ctypes.c_uint32 * 3),
        ("mode", ctypes.c_int32),
        ("workers", ctypes.c_int32),
        ("tolerant", ctypes.c_int32),
        ("shuffled", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
    ]


class _Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("capacity", ctypes.c_int32)]


class Counters(ctypes.Structure):
    """What a dispatch did; traffic is counted by checked modules only."""

    warnings: list[str]

    def __add__(self, other: Counters) -> Counters:
        """Of two dispatches together."""
        total = Counters(*(getattr(self, name) + getattr(other, name) for name, _ in self._fields_))
        total.threadgroup_bytes = max(self.threadgroup_bytes, other.threadgroup_bytes)
        total.warnings = self.warnings + other.warnings
        return total

    def __repr__(self) -> str:
        return f"Counters({', '.join(f'{name}={getattr(self, name)}' for name, _ in self._fields_)})"

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "threadgroups",
            "barriers",
            "multiplies",
            "threadgroup_bytes",
            "device_read_bytes",
            "device_write_bytes",
            "threadgroup_read_bytes",
            "threadgroup_write_bytes",
        )
    ]


class HostModule:
    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path), mode=ctypes.DEFAULT_MODE)

    def allows_uniform(self, kernel: str) -> bool:
        return bool(self._library.metal_host_allows_uniform(kernel.encode()))

    def run(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        threads: tuple[int, int, int],
        buffers: Mapping[int, np.ndarray | Writable | Constant],
        *,
        constants: Mapping[int, int] | None = None,
        mode: str = "auto",
        seed: int | None = None,
        workers: int = 0,
        tolerant: bool = False,
        grid_threads: tuple[int, int, int] | None = None,
    ) -> Counters:
        if any(not 0 <= slot < BUFFER_SLOTS for slot in buffers):
            raise ValueError(f"buffer slots lie in 0..{BUFFER_SLOTS - 1}, got {sorted(buffers)}")
        if any(not 0 <= extent < 2**32 for extent in (*grid, *threads)):
            raise ValueError(f"grid and threads are not negative and fit 32 bits, got {grid} and {threads}")
        bound = (_Buffer * max(1, len(buffers)))()
        for entry, (slot, buffer) in zip(bound, buffers.items(), strict=False):
            array = buffer if isinstance(buffer, np.ndarray) else buffer.array
            if not array.flags.c_contiguous:
                raise ValueError(f"buffer {slot} is not contiguous")
            entry.data, entry.bytes, entry.slot = array.ctypes.data, array.nbytes, slot
            entry.writable, entry.constant = isinstance(buffer, Writable), isinstance(buffer, Constant)
        values = (_Constant * max(1, len(constants or {})))(*[_Constant(v, k) for k, v in (constants or {}).items()])
        dispatch = _Dispatch(
            kernel.encode(), bound, values, len(buffers), len(constants or {}), grid, threads,
            grid_threads or (0, 0, 0), MODES[mode], workers,
            tolerant, seed is not None, seed or 0,
        )  # fmt: skip
        counters = Counters()
        text = ctypes.create_string_buffer(4096)
        room = _Text(ctypes.cast(text, ctypes.c_void_p), len(text) - 1)
        if self._library.metal_host_dispatch(ctypes.byref(dispatch), ctypes.byref(counters), room):
            raise HostFault(text.value.decode())
        counters.warnings = text.value.decode().splitlines()
        return counters


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(done.stderr)


def _fingerprint(*parts: object) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else repr(part).encode())
    return digest.hexdigest()[:16]


def _headers() -> list[Path]:
    include = [p for p in (RUNTIME / "include").rglob("*") if p.is_file()]
    return sorted([*include, *RUNTIME.glob("*.h")])


@dataclass(frozen=True)
class Object:
    """An object file, and what compiles `source` to it; its name says all that it depends on."""

    target: Path
    source: Path
    flags: tuple[str, ...]

    def compile(self, how: Build) -> None:
        if not self.target.exists():
            part = self.target.with_suffix(f".{os.getpid()}.o")  # a compiler may be killed, and others build as well
            _run([*how.common, *self.flags, "-c", str(self.source), "-o", str(part)])
            part.replace(self.target)


def runtime_objects(how: Build, folder: Path) -> list[Object]:
    entry = "hooks" if how.checked else "module"
    sources = [p for p in sorted(RUNTIME.glob("*.cpp")) if p.stem not in {"hooks", "module"} - {entry}]
    objects = []
    for source in sources:
        key = _fingerprint(how.common, source, *_headers())
        objects.append(Object(folder / f"{source.stem}-{key}.o", source, tuple(ISA_FLAGS.get(source.stem, ()))))
    return objects


def kernel_objects(source: Path, folder: Path, how: Build, root: Path) -> list[Object]:
    """For both lane modes."""
    instrument = ["-fsanitize=thread", "-fno-tree-vectorize", "-g"] if how.checked else []
    part = folder / f"{source.stem}-{_fingerprint(how, source, str(root), os.getpid())}.cpp"
    translate(source, part, how, root)
    key = _fingerprint(how, part, *_headers())
    translated = part.replace(folder / f"{source.stem}-{key}.cpp")
    flags = ("-Wno-unknown-pragmas", *instrument, *how.kernel_flags)
    return [
        Object(folder / f"{source.stem}-{key}-{lanes}.o", translated, (f"-DMETAL_HOST_LANES={lanes}", *flags))
        for lanes in (32, 1)
    ]


def translate(source: Path, target: Path, build: Build, root: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "metal_to_host.py"), str(source), str(target)]
    command += ["--root", str(root), "--compiler", build.compiler, *[f"-D{d}" for d in build.defines]]
    command += [f"-I{folder}" for folder in build.includes]
    _run(command)


def build(
    sources: Sequence[Path],
    folder: Path,
    how: Build = Build(),
    root: Path = ROOT,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> HostModule:
    """Compiles `sources` and links them with the runtime; what `folder` has already is not compiled again.

    Their own includes are relative to `root`. `progress` is told how many of the objects are done. Raises CompileError.
    """
    if shutil.which(how.compiler) is None:
        raise CompileError(f"there is no C++ compiler {how.compiler!r}: install g++, or set CXX")
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    objects = runtime_objects(how, folder)
    for source in sources:
        objects += kernel_objects(source.resolve(), folder, how, root)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        # The kernels, which come last, take longest.
        compiled = pool.map(lambda one: one.compile(how), reversed(objects))
        for done, _ in enumerate(compiled, 1):
            progress(done, len(objects))
    targets = [one.target for one in objects]
    library = folder / f"module-{_fingerprint(*targets)}.so"
    _run([how.compiler, "-shared", *how.flags, *map(str, targets), "-pthread", "-o", str(library)])
    if how.checked:
        _run([sys.executable, str(ROOT / "tools" / "source_lines.py"), str(library)])
    return HostModule(library)
