"""Checks a macOS arm64 wheel without a Mac: what it holds, what its extension loads and imports, and its signature.

    python tools/cross/check_wheel.py WHEEL... --mlx FOLDER...

FOLDER is an unpacked mlx-metal wheel. A symbol that MLX hides, or that only a newer macOS has, links silently and fails
when the extension is loaded; so does most of what else is checked here.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import importlib.util
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cross import macho
from cross.macho import Image

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "mlx_gemm"
PLATFORM_TAG = "macosx_14_0_arm64"
MINIMUM_OS = (14, 0)
MAX_WHEEL_BYTES = 10 << 20

LIBMLX = "@rpath/libmlx.dylib"
LIBSYSTEM = "/usr/lib/libSystem.B.dylib"
LIBRARIES = {LIBMLX, LIBSYSTEM, "/usr/lib/libc++.1.dylib", "/usr/lib/libobjc.A.dylib"}
RPATHS = ["@loader_path/../mlx/lib"]
# In every macOS, though MLX's own binaries do not import them from libSystem.
OLD_SYSTEM_NAMES = {"_erff", "_mprotect", "_pthread_atfork", "_strtol", "dyld_stub_binder"}

ELF = b"\x7fELF"
WHEEL_NAME = re.compile(rf"{PACKAGE}-[\w.]+-(cp\d+)-\1-(\w+)\.whl")


@dataclass
class Wheel:
    name: str
    bytes: int
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def python(self) -> str:
        """ "cp311", or nothing where the name is not that of a wheel for one Python."""
        match = WHEEL_NAME.fullmatch(self.name)
        return match[1] if match else ""

    @property
    def extension(self) -> str:
        return f"{PACKAGE}/_ext.cpython-{self.python[2:]}-darwin.so"


@dataclass
class Known:
    """What may be imported: names of CPython, and what MLX's own binaries export and import on each macOS."""

    cpython: set[str]
    libmlx: dict[str, Image]  # by a name for messages
    system: set[str]


def read_wheel(path: Path) -> Wheel:
    with zipfile.ZipFile(path) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    return Wheel(path.name, path.stat().st_size, files)


def package_files() -> set[str]:
    return {
        f"{PACKAGE}/{p.name}" for p in (ROOT / PACKAGE).iterdir() if p.suffix in (".py", ".pyi") or p.name == "py.typed"
    }


# ---- The checks: each yields what is wrong ----


def check_tag(wheel: Wheel) -> Iterator[str]:
    match = WHEEL_NAME.fullmatch(wheel.name)
    if match is None or match[2] != PLATFORM_TAG:
        yield f"is not named {PACKAGE}-VERSION-cpXY-cpXY-{PLATFORM_TAG}.whl"
        return
    expected = f"Tag: {wheel.python}-{wheel.python}-{PLATFORM_TAG}"
    tags = [line for name, data in wheel.files.items() if name.endswith(".dist-info/WHEEL")
            for line in data.decode().splitlines() if line.startswith("Tag:")]  # fmt: skip
    if tags != [expected]:
        yield f"says '{', '.join(tags)}' in WHEEL instead of '{expected}'"


def check_size(wheel: Wheel) -> Iterator[str]:
    if wheel.bytes > MAX_WHEEL_BYTES:
        yield f"has {wheel.bytes} bytes, {MAX_WHEEL_BYTES} are the limit"


def check_contents(wheel: Wheel, package: set[str]) -> Iterator[str]:
    """The package's files and the extension, nothing else, and nothing for Linux."""
    held = {name for name in wheel.files if ".dist-info/" not in name}
    expected = {*package, wheel.extension}
    yield from (f"lacks {name}" for name in sorted(expected - held))
    yield from (f"holds {name}" for name in sorted(held - expected))
    yield from (f"holds an ELF file, {name}" for name, data in sorted(wheel.files.items()) if data.startswith(ELF))


def check_record(wheel: Wheel) -> Iterator[str]:
    """RECORD names every file with its hash; installers refuse others."""
    record = next((name for name in wheel.files if name.endswith(".dist-info/RECORD")), None)
    if record is None:
        yield "has no RECORD"
        return
    listed = {row[0]: row[1] for row in csv.reader(wheel.files[record].decode().splitlines())}
    yield from (f"lists {name} in RECORD only" for name in sorted(listed.keys() - wheel.files.keys()))
    for name, data in sorted(wheel.files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        if name != record and listed.get(name) != f"sha256={digest}":
            yield f"does not have {name} as RECORD describes it"


def check_loading(image: Image, file_name: str) -> Iterator[str]:
    if (image.file_type, image.processor, image.platform) != ("DYLIB", "ARM64", "MACOS"):
        yield f"is a {image.file_type} for {image.processor} on {image.platform or 'no platform'}"
    if image.minimum_os != MINIMUM_OS:
        yield f"is for macOS {'.'.join(map(str, image.minimum_os))} or later instead of 14.0"
    if image.install_name != f"@rpath/{file_name}":
        yield f"has the install name '{image.install_name}'"
    if image.rpaths != RPATHS:  # from macOS 15.4 on a duplicate keeps it from loading
        yield f"has the rpaths {image.rpaths} instead of {RPATHS}"
    if sorted(image.libraries) != sorted(LIBRARIES):
        yield f"loads {sorted(image.libraries)} instead of {sorted(LIBRARIES)}"
    module = Path(file_name).name.split(".")[0]
    if f"_PyInit_{module}" not in image.exports:
        yield f"does not export _PyInit_{module}"


def check_imports(image: Image, known: Known) -> Iterator[str]:
    if strays := (image.flat_imports | image.weak_imports) - known.cpython:
        yield f"imports what neither CPython nor a library it names is known to have: {', '.join(sorted(strays))}"
    for name, libmlx in known.libmlx.items():
        if hidden := image.imports.get(LIBMLX, set()) - libmlx.exports:
            yield f"imports what libmlx hides in {name}: {', '.join(sorted(hidden))}"
    if untried := image.imports.get(LIBSYSTEM, set()) - known.system:
        yield f"imports from libSystem what MLX's binaries do not: {', '.join(sorted(untried))}"


def check_signature(data: bytes) -> Iterator[str]:
    if fault := macho.signature_fault(data):
        yield fault


# ---- All of them ----


def known_names(mlx: Sequence[Path]) -> Known:
    """From nanobind's list of CPython's names and unpacked mlx-metal wheels, the one for the oldest macOS first."""
    nanobind = importlib.util.find_spec("nanobind")
    assert nanobind and nanobind.origin
    names = Path(nanobind.origin).with_name("cmake").joinpath("darwin-ld-cpython.sym").read_text().split()
    oldest = [macho.read(path) for path in mlx[0].rglob("*") if path.suffix in (".dylib", ".so")]
    return Known(
        cpython={name for name in names if name.startswith("_")},
        libmlx={folder.name: macho.read(folder / "mlx" / "lib" / "libmlx.dylib") for folder in mlx},
        system=OLD_SYSTEM_NAMES.union(*(image.imports.get(LIBSYSTEM, set()) for image in oldest)),
    )


def check(wheel: Wheel, known: Known) -> Iterator[str]:
    """What is wrong with the wheel, as sentences without a subject."""
    yield from check_tag(wheel)
    yield from check_size(wheel)
    yield from check_contents(wheel, package_files())
    yield from check_record(wheel)
    data = wheel.files.get(wheel.extension)
    if data is None:
        return
    file_name = Path(wheel.extension).name
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file_name)
        path.write_bytes(data)
        image = macho.read(path)
    findings = [*check_loading(image, file_name), *check_imports(image, known), *check_signature(data)]
    yield from (f"holds {file_name}, which {finding}" for finding in findings)


def report(paths: Iterable[Path], mlx: Sequence[Path]) -> int:
    """Prints one line for each finding, or one for a wheel without. The exit status."""
    known = known_names(mlx)
    status = 0
    for path in paths:
        findings = list(check(read_wheel(path), known))
        for finding in findings:
            print(f"{path.name} {finding}")
        if findings:
            status = 1
        else:
            print(f"{path.name} passes, {path.stat().st_size} bytes")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--mlx", nargs="+", type=Path, required=True, help="the one for the oldest macOS first")
    options = parser.parse_args()
    return report(options.wheels, options.mlx)


if __name__ == "__main__":
    sys.exit(main())
