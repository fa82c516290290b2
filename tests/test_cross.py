"""tools/cross: every check finds what it is there for, and the wheel that `make macos-wheels` built passes them all."""

from __future__ import annotations

import base64
import hashlib
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cross import check_wheel, link_stubs, macho, zig_cxx
from cross.check_wheel import ELF, LIBMLX, LIBSYSTEM, Known, Wheel
from cross.macho import Image

NAME = "mlx_gemm-1.0-cp311-cp311-macosx_14_0_arm64.whl"
EXTENSION = "mlx_gemm/_ext.cpython-311-darwin.so"
FILE = Path(EXTENSION).name
INFO = "mlx_gemm-1.0.dist-info"


def with_record(files: dict[str, bytes]) -> dict[str, bytes]:
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    record = f"{INFO}/RECORD"
    return {**files, record: "".join([*rows, f"{record},,\n"]).encode()}


def small_wheel() -> Wheel:
    tag = b"Wheel-Version: 1.0\nTag: cp311-cp311-macosx_14_0_arm64\n"
    files = {"mlx_gemm/__init__.py": b"", EXTENSION: b"code", f"{INFO}/WHEEL": tag}
    return Wheel(NAME, 1000, with_record(files))


def changed(wheel: Wheel, name: str, data: bytes) -> Wheel:
    return replace(wheel, files={**wheel.files, name: data})


# ---- The wheel's archive ----


def test_a_small_wheel_passes() -> None:
    wheel = small_wheel()
    assert not list(check_wheel.check_tag(wheel))
    assert not list(check_wheel.check_size(wheel))
    assert not list(check_wheel.check_contents(wheel, {"mlx_gemm/__init__.py"}))
    assert not list(check_wheel.check_record(wheel))


@pytest.mark.parametrize(
    "name",
    [
        "mlx_gemm-1.0-cp311-cp311-linux_x86_64.whl",
        "mlx_gemm-1.0-cp311-cp311-macosx_26_0_arm64.whl",
        "mlx_gemm-1.0-cp311-abi3-macosx_14_0_arm64.whl",
        "mlx_gemm-1.0-cp311-cp312-macosx_14_0_arm64.whl",
    ],
)
def test_a_name_with_another_tag(name: str) -> None:
    (finding,) = check_wheel.check_tag(replace(small_wheel(), name=name))
    assert "is not named" in finding


def test_a_tag_that_contradicts_the_name() -> None:
    (finding,) = check_wheel.check_tag(changed(small_wheel(), f"{INFO}/WHEEL", b"Tag: cp311-cp311-linux_x86_64\n"))
    assert finding.startswith("says 'Tag: cp311-cp311-linux_x86_64' in WHEEL")


def test_a_wheel_above_ten_mebibytes() -> None:
    assert not list(check_wheel.check_size(replace(small_wheel(), bytes=10 << 20)))
    (finding,) = check_wheel.check_size(replace(small_wheel(), bytes=(10 << 20) + 1))
    assert "10485760 are the limit" in finding


def test_contents_that_are_not_the_package() -> None:
    wheel = changed(small_wheel(), "mlx_gemm/_checked.so", ELF + b"\x02\x01")
    assert list(check_wheel.check_contents(wheel, {"mlx_gemm/__init__.py", "mlx_gemm/ops.py"})) == [
        "lacks mlx_gemm/ops.py",
        "holds mlx_gemm/_checked.so",
        "holds an ELF file, mlx_gemm/_checked.so",
    ]


def test_an_extension_for_another_python() -> None:
    wheel = replace(small_wheel(), name=NAME.replace("cp311", "cp312"))
    findings = list(check_wheel.check_contents(wheel, {"mlx_gemm/__init__.py"}))
    assert findings == ["lacks mlx_gemm/_ext.cpython-312-darwin.so", f"holds {EXTENSION}"]


def test_record_does_not_fit() -> None:
    wheel = small_wheel()
    edited = list(check_wheel.check_record(changed(wheel, EXTENSION, b"other code")))
    assert edited == [f"does not have {EXTENSION} as RECORD describes it"]
    added = list(check_wheel.check_record(changed(wheel, "mlx_gemm/new.py", b"")))
    assert added == ["does not have mlx_gemm/new.py as RECORD describes it"]
    without = {name: data for name, data in wheel.files.items() if name != EXTENSION}
    assert list(check_wheel.check_record(replace(wheel, files=without))) == [f"lists {EXTENSION} in RECORD only"]
    del without[f"{INFO}/RECORD"]
    assert list(check_wheel.check_record(replace(wheel, files=without))) == ["has no RECORD"]


# ---- The extension's load commands and imports ----

GOOD = Image(
    install_name=f"@rpath/{FILE}",
    libraries=sorted(check_wheel.LIBRARIES),
    rpaths=["@loader_path/../mlx/lib"],
    imports={LIBMLX: {"_matmul"}, LIBSYSTEM: {"_malloc"}},
    flat_imports={"_PyErr_Clear"},
    exports={"_PyInit__ext"},
)
METAL = "/System/Library/Frameworks/Metal.framework/Versions/A/Metal"
NOT_LOADABLE = [
    ({"file_type": "BUNDLE"}, "is a BUNDLE for ARM64 on MACOS"),
    ({"processor": "X86_64"}, "is a DYLIB for X86_64 on MACOS"),
    ({"platform": ""}, "is a DYLIB for ARM64 on no platform"),
    ({"minimum_os": (15, 0)}, "is for macOS 15.0 or later"),
    ({"install_name": "/somewhere/_ext.so"}, "has the install name '/somewhere/_ext.so'"),
    ({"rpaths": []}, "has the rpaths []"),
    ({"rpaths": GOOD.rpaths * 2}, "has the rpaths ['@loader_path/../mlx/lib', '@loader_path/../mlx/lib']"),
    ({"libraries": [*GOOD.libraries, METAL]}, "Metal.framework"),
    ({"libraries": [*GOOD.libraries, LIBMLX]}, "loads"),
    ({"libraries": GOOD.libraries[1:]}, "loads"),
    ({"exports": {"_PyInit_ext"}}, "does not export _PyInit__ext"),
]


def test_good_load_commands_pass() -> None:
    assert not list(check_wheel.check_loading(GOOD, FILE))


@pytest.mark.parametrize(("change", "message"), NOT_LOADABLE, ids=[message for _, message in NOT_LOADABLE])
def test_bad_load_commands(change: dict[str, object], message: str) -> None:
    (finding,) = check_wheel.check_loading(replace(GOOD, **change), FILE)
    assert message in finding


KNOWN = Known(
    cpython={"_PyErr_Clear"},
    libmlx={"macos-14": Image(exports={"_matmul"}), "macos-26": Image(exports={"_matmul", "_new"})},
    system={"_malloc"},
)
NOT_IMPORTABLE = [
    ({"flat_imports": {"__ZN3mlx4core6hiddenEv"}}, "neither CPython nor a library it names is known to have: __ZN3mlx"),
    ({"weak_imports": {"__ZTI5Error"}}, "is known to have: __ZTI5Error"),
    ({"imports": {LIBMLX: {"_matmul", "_new"}}}, "imports what libmlx hides in macos-14: _new"),
    ({"imports": {LIBSYSTEM: {"_added_in_macos_15"}}}, "imports from libSystem what MLX's binaries do not: _added_in"),
]


def test_known_imports_pass() -> None:
    assert not list(check_wheel.check_imports(GOOD, KNOWN))


@pytest.mark.parametrize(("change", "message"), NOT_IMPORTABLE, ids=[message for _, message in NOT_IMPORTABLE])
def test_imports_that_would_not_be_found(change: dict[str, object], message: str) -> None:
    (finding,) = check_wheel.check_imports(replace(GOOD, **change), KNOWN)
    assert message in finding


# ---- The signature, on the smallest file that has one ----

PAGE_SHIFT = 6
PAGE = 1 << PAGE_SHIFT
CODE_BYTES = 160  # two pages and a half


def signed(flags: int = macho.AD_HOC, hash_type: int = macho.SHA256, limit: int = CODE_BYTES) -> bytes:
    """A header, LC_CODE_SIGNATURE, some code and its signature."""
    pages = -(-CODE_BYTES // PAGE)
    directory_bytes = 44 + pages * 32
    signature_bytes = 20 + directory_bytes
    header = struct.pack("<8I", macho.MAGIC_64, 0x0100000C, 0, 6, 1, 16, 0, 0)
    command = struct.pack("<4I", macho.LC_CODE_SIGNATURE, 16, CODE_BYTES, signature_bytes)
    code = (header + command).ljust(CODE_BYTES, b"c")
    hashes = [hashlib.sha256(code[i : i + PAGE]).digest() for i in range(0, CODE_BYTES, PAGE)]
    directory = struct.pack(">9I", macho.CODE_DIRECTORY, directory_bytes, 0x20400, flags, 44, 0, 0, pages, limit)
    directory += struct.pack(">4BI", 32, hash_type, 0, PAGE_SHIFT, 0) + b"".join(hashes)
    return code + struct.pack(">5I", macho.SUPER_BLOB, signature_bytes, 1, 0, 20) + directory


def test_a_signature_passes() -> None:
    assert macho.signature_fault(signed()) is None


def test_signatures_that_do_not_hold() -> None:
    data = signed()
    for position, page in ((50, 0), (64, 1), (CODE_BYTES - 1, 2)):
        edited = data[:position] + b"X" + data[position + 1 :]
        assert macho.signature_fault(edited) == f"was changed after it was signed, in its page {page}"
    assert macho.signature_fault(signed(flags=0)) == "has a signature that is not ad hoc"
    assert macho.signature_fault(signed(hash_type=1)) == "has a signature of other hashes than SHA-256"
    assert macho.signature_fault(signed(limit=128)) == "has a signature that does not cover all of it"
    assert macho.signature_fault(data[:-1]) == "has no signature where its load command says"
    other = data.replace(struct.pack(">I", macho.CODE_DIRECTORY), struct.pack(">I", 0xFADE0B01))
    assert macho.signature_fault(other) == "has a signature without a code directory"
    unsigned = data.replace(struct.pack("<2I", macho.LC_CODE_SIGNATURE, 16), struct.pack("<2I", 0x1B, 16))
    assert macho.signature_fault(unsigned) == "is not signed"
    assert list(check_wheel.check_signature(unsigned)) == ["is not signed"]


# ---- Compiler and link stubs ----


def test_compiling_drops_the_frameworks_of_mlx() -> None:
    given = ["-O3", "-F/Xcode/Frameworks", "-c", "a.cpp", "-o", "a.o"]
    assert zig_cxx.zig_arguments(given) == ["c++", "-O3", "-c", "a.cpp", "-o", "a.o"]


def test_linking_becomes_what_zig_can_do() -> None:
    given = [
        "-bundle", "-Wl,@/nanobind/darwin-ld-cpython.sym", "-o", "build/_ext.so", "a.o",
        "-framework", "Metal", "/Xcode/Frameworks/Foundation.framework", "libmlx.dylib",
    ]  # fmt: skip
    assert zig_cxx.zig_arguments(given) == [
        "cc", "-dynamiclib", "-Wl,-install_name,@rpath/_ext.so", "-undefined", "dynamic_lookup",
        "-o", "build/_ext.so", "a.o", "libmlx.dylib",
    ]  # fmt: skip


def test_what_zig_caches_stays_in_the_clone(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$ZIG_GLOBAL_CACHE_DIR\n$ZIG_LOCAL_CACHE_DIR"\n')
    python.chmod(0o755)
    command = [check_wheel.ROOT / "tests" / "cpp" / "zig-c++"]
    folders = subprocess.run(command, env={"PYTHON": str(python)}, capture_output=True, text=True, check=True).stdout
    assert [Path(folder).resolve() for folder in folders.split()] == [check_wheel.ROOT / "build" / "zig"] * 2


def test_stubs_hold_what_mlx_imports() -> None:
    libcxx, libobjc = link_stubs.STUBS["libc++"], link_stubs.STUBS["libobjc"]
    image = Image(
        imports={libcxx: {"__ZNSt3__15mutex4lockEv"}, libobjc: {"_objc_msgSend"}, LIBSYSTEM: {"_malloc"}},
        weak_imports={"__Znwm", "__ZNK3mlx4core5array4ndimEv"},
    )
    text = link_stubs.stub(libcxx, [image])
    assert f"install-name: '{libcxx}'" in text
    for name in ("__ZNSt3__15mutex4lockEv", "__Znwm", *link_stubs.OLD_NAMES):
        assert f"'{name}'" in text
    assert "mlx" not in text and "malloc" not in text
    assert "symbols: [ '_objc_msgSend' ]" in link_stubs.stub(libobjc, [image])


# ---- The wheel that was built, and copies of its extension with one thing changed ----


@pytest.fixture(scope="module")
def built() -> Path:
    wheels = sorted((check_wheel.ROOT / "dist-macos").glob(f"*-cp{sys.version_info[0]}{sys.version_info[1]}-*.whl"))
    if not wheels:
        pytest.skip("needs the wheel of `make macos-wheels`")
    return wheels[-1]


@pytest.fixture(scope="module")
def known(built: Path) -> Known:
    return check_wheel.known_names([check_wheel.ROOT / "build" / "cross" / f"macos-{os}" for os in (14, 26)])


@pytest.fixture
def findings_with(built: Path, known: Known, tmp_path: Path) -> Iterator[Callable[..., list[str]]]:
    """Applies a change to the extension through lief, and checks the wheel with the result."""
    lief = pytest.importorskip("lief")
    wheel = check_wheel.read_wheel(built)

    def findings(change: Callable[..., None]) -> list[str]:
        path = tmp_path / "changed.so"
        path.write_bytes(wheel.files[wheel.extension])
        file = lief.MachO.parse(str(path))
        change(lief, file.at(0))
        file.write(str(path))
        return list(check_wheel.check(changed(wheel, wheel.extension, path.read_bytes()), known))

    yield findings


@pytest.mark.slow
def test_the_built_wheel_passes(built: Path, known: Known) -> None:
    assert not list(check_wheel.check(check_wheel.read_wheel(built), known))


# csrc/backends/apple_gpu.cpp concludes from it whether mx.matmul multiplies float32 at TF32 precision.
@pytest.mark.slow
def test_the_oldest_macos_tells_mlxs_builds_apart(known: Known) -> None:
    oldest = {name: image.minimum_os for name, image in known.libmlx.items()}
    assert oldest == {"macos-14": (14, 0), "macos-26": (26, 2)}


@pytest.mark.slow
def test_one_changed_byte_is_found(built: Path, known: Known) -> None:
    wheel = check_wheel.read_wheel(built)
    data = bytearray(wheel.files[wheel.extension])
    data[len(data) // 2] ^= 1
    findings = list(check_wheel.check(changed(wheel, wheel.extension, bytes(data)), known))
    assert any("was changed after it was signed" in finding for finding in findings)
    assert any("RECORD" in finding for finding in findings)


CHANGES = [
    ("has the rpaths", lambda lief, binary: binary.add(lief.MachO.RPathCommand.create("@loader_path/../mlx/lib"))),
    ("loads", lambda lief, binary: binary.add_library(METAL)),
    ("is for macOS 15.0 or later", lambda lief, binary: setattr(binary.build_version, "minos", [15, 0, 0])),
    ("has the install name '/_ext.so'", lambda lief, binary: rename(binary, "/_ext.so")),
    (
        "has a signature that does not cover all of it",
        lambda lief, binary: setattr(binary.build_version, "sdk", [13, 0, 0]),
    ),
    ("is not signed", lambda lief, binary: binary.remove_signature()),
]


def rename(binary: object, name: str) -> None:
    next(c for c in binary.commands if c.command.name == "ID_DYLIB").name = name


@pytest.mark.slow
@pytest.mark.parametrize(("message", "change"), CHANGES, ids=[message for message, _ in CHANGES])
def test_a_changed_extension_is_found(
    findings_with: Callable[..., list[str]], message: str, change: Callable[..., None]
) -> None:
    assert any(f"-darwin.so, which {message}" in finding for finding in findings_with(change))


@pytest.mark.slow
def test_a_name_that_mlx_hides_is_found(built: Path, known: Known) -> None:
    """With one of the names taken from what libmlx exports, the extension imports a hidden one."""
    wheel = check_wheel.read_wheel(built)
    # Of its overloads the one for a single axis.
    (used,) = (name for name in known.libmlx["macos-14"].exports if "expand_dimsERKNS0_5arrayEi" in name)
    hidden = replace(known.libmlx["macos-14"], exports=known.libmlx["macos-14"].exports - {used})
    without = replace(known, libmlx={**known.libmlx, "macos-14": hidden}, cpython=known.cpython - {"_PyErr_Clear"})
    findings = list(check_wheel.check(wheel, without))
    assert any("hides in macos-14" in finding and "expand_dims" in finding for finding in findings)
    assert any("_PyErr_Clear" in finding for finding in findings)
