"""Builds any Metal source into a module of the host runtime and runs its kernels from Python.

    module = build([Path("kernel.metal")], folder)
    counters = module.run("kernel", grid=(4, 4, 1), threads=(32, 1, 1), buffers={0: a, 1: b, 2: Writable(c)})

Arrays are NumPy arrays, passed by address. A fault raises HostFault with the place in the Metal source.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
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

    `includes` are folders of Metal headers.
    """

    checked: bool = False
    compiler: str = "g++"
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


def runtime_objects(build: Build, folder: Path) -> list[Path]:
    """The runtime compiled with the build's flags; the same flags compile it once."""
    entry = "hooks" if build.checked else "module"
    sources = [p for p in sorted(RUNTIME.glob("*.cpp")) if p.stem not in {"hooks", "module"} - {entry}]
    objects = []
    for source in sources:
        key = _fingerprint(build.common, source, *_headers())
        target = folder / f"{source.stem}-{key}.o"
        if not target.exists():
            _run([*build.common, *ISA_FLAGS.get(source.stem, []), "-c", str(source), "-o", str(target)])
        objects.append(target)
    return objects


def translate(source: Path, target: Path, build: Build, root: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "metal_to_host.py"), str(source), str(target)]
    command += ["--root", str(root), "--compiler", build.compiler, *[f"-D{d}" for d in build.defines]]
    command += [f"-I{folder}" for folder in build.includes]
    _run(command)


def build(sources: Sequence[Path], folder: Path, how: Build = Build(), root: Path = ROOT) -> HostModule:
    """Compiles `sources` for both lane modes and links them with the runtime. Raises CompileError.

    Their own includes are relative to `root`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    instrument = ["-fsanitize=thread", "-fno-tree-vectorize", "-g"] if how.checked else []
    objects = runtime_objects(how, folder)
    commands = []
    for source in sources:
        key = _fingerprint(how, source.resolve(), str(root), *_headers())
        translated = folder / f"{source.stem}-{key}.cpp"
        translate(source, translated, how, root)
        for lanes in (32, 1):
            target = folder / f"{source.stem}-{key}-{lanes}.o"
            flags = [f"-DMETAL_HOST_LANES={lanes}", "-Wno-unknown-pragmas", *instrument, *how.kernel_flags]
            commands.append([*how.common, *flags, "-c", str(translated), "-o", str(target)])
            objects.append(target)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, commands))
    library = folder / f"module-{_fingerprint(*objects)}.so"
    _run([how.compiler, "-shared", *how.flags, *map(str, objects), "-pthread", "-o", str(library)])
    if how.checked:
        _run([sys.executable, str(ROOT / "tools" / "source_lines.py"), str(library)])
    return HostModule(library)
