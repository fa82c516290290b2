"""Text stubs (.tbd) to link against in place of macOS's libc++ and libobjc.

They list what MLX's own binaries import, so whatever links against them exists wherever those binaries run, and a few
names besides that every libc++ has had since its first release.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cross.macho import Image

STUBS = {"libc++": "/usr/lib/libc++.1.dylib", "libobjc": "/usr/lib/libobjc.A.dylib"}
# The C++ runtime's own names: operators new and delete, and std without an inline namespace. Images share one
# definition of them, so their imports name no library.
RUNTIME_NAMES = ("__Zn", "__Zd", "__ZTISt", "__ZTSSt", "__ZTVSt", "__ZNSt", "__ZNKSt")

OLD_NAMES = {
    "__ZNSt3__113basic_istreamIcNS_11char_traitsIcEEE6sentryC1ERS3_b",  # istream::sentry
    "__ZNSt3__113basic_istreamIcNS_11char_traitsIcEEErsERj",  # istream >> unsigned
    "__ZNSt3__113basic_istreamIcNS_11char_traitsIcEEErsERm",  # istream >> unsigned long
    "__ZNSt3__16thread6detachEv",  # thread::detach
    "__ZNSt3__19to_stringEj",  # to_string(unsigned)
    "__ZNSt3__19to_stringEx",  # to_string(long long)
    "__ZNSt3__19to_stringEy",  # to_string(unsigned long long)
    "__ZTINSt3__112system_errorE",  # the type of system_error, to catch it
}

TEXT = """\
--- !tapi-tbd
tbd-version: 4
targets: [ arm64-macos ]
install-name: '{install_name}'
exports:
  - targets: [ arm64-macos ]
    symbols: [ {symbols} ]
...
"""


def stub(install_name: str, images: Iterable[Image]) -> str:
    is_libcxx = install_name == STUBS["libc++"]
    names = set(OLD_NAMES) if is_libcxx else set()
    for image in images:
        names |= image.imports.get(install_name, set())
        if is_libcxx:
            names |= {name for name in image.weak_imports if name.startswith(RUNTIME_NAMES)}
    return TEXT.format(install_name=install_name, symbols=", ".join(f"'{name}'" for name in sorted(names)))


def write_stubs(folder: Path, images: Iterable[Image]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    images = list(images)
    for name, install_name in STUBS.items():
        (folder / f"{name}.tbd").write_text(stub(install_name, images))
