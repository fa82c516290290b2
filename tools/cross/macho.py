"""What the checks need to know of a Mach-O file: its load commands, what it imports and its signature."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from pathlib import Path

WEAK_LOOKUP = -3  # a library ordinal

POINTER_BYTES = 8
MAGIC_64 = 0xFEEDFACF
LC_CODE_SIGNATURE = 0x1D
SUPER_BLOB = 0xFADE0CC0
CODE_DIRECTORY = 0xFADE0C02
AD_HOC = 0x2
SHA256 = 2


@dataclass
class Image:
    """A Mach-O file for one processor."""

    file_type: str = "DYLIB"
    processor: str = "ARM64"
    platform: str = "MACOS"
    minimum_os: tuple[int, ...] = (14, 0)
    install_name: str = ""
    libraries: list[str] = field(default_factory=list)
    rpaths: list[str] = field(default_factory=list)
    imports: dict[str, set[str]] = field(default_factory=dict)  # by install name
    flat_imports: set[str] = field(default_factory=set)  # any loaded image may have them
    weak_imports: set[str] = field(default_factory=set)  # all images share one definition, and this one has none
    exports: set[str] = field(default_factory=set)


def read(path: Path) -> Image:
    import lief  # here: the checks are tested without it

    lief.logging.disable()  # it tells on stderr what it makes of tables that nothing here reads
    file = lief.MachO.parse(str(path))
    if file is None or file.size != 1:
        raise ValueError(f"{path.name} is not a Mach-O file for one processor")
    binary = file.at(0)
    build = binary.build_version
    image = Image(
        file_type=binary.header.file_type.name,
        processor=binary.header.cpu_type.name,
        platform=build.platform.name if build else "",
        minimum_os=tuple(build.minos[:2]) if build else (),
        libraries=[library.name for library in binary.libraries if library.command.name != "ID_DYLIB"],
        rpaths=[rpath.path for rpath in binary.rpaths],
        exports={symbol.name for symbol in binary.exported_symbols},
    )
    image.install_name = next((c.name for c in binary.commands if c.command.name == "ID_DYLIB"), "")
    opcodes = lief.MachO.DyldBindingInfo
    for binding in binary.bindings:
        name = binding.symbol.name
        if binding.has_library:
            image.imports.setdefault(binding.library.name, set()).add(name)
        elif isinstance(binding, opcodes) and binding.binding_class == opcodes.CLASS.WEAK:
            # Where no other image has a definition, the loader keeps the pointer to the image's own.
            if not any(binary.get_content_from_virtual_address(binding.address, POINTER_BYTES)):
                image.weak_imports.add(name)
        elif binding.library_ordinal == WEAK_LOOKUP:
            image.weak_imports.add(name)
        else:
            image.flat_imports.add(name)
    return image


def signature_fault(data: bytes) -> str | None:
    """Why macOS would not accept the ad-hoc signature of a 64-bit Mach-O file, or None."""
    command = _code_signature(data)
    if command is None:
        return "is not signed"
    offset, size = command
    if offset + size > len(data) or data[offset : offset + 4] != SUPER_BLOB.to_bytes(4, "big"):
        return "has no signature where its load command says"
    (count,) = struct.unpack_from(">I", data, offset + 8)
    blobs = (struct.unpack_from(">II", data, offset + 12 + 8 * i)[1] for i in range(count))
    directory = next((offset + b for b in blobs if data[offset + b :][:4] == CODE_DIRECTORY.to_bytes(4, "big")), None)
    if directory is None:
        return "has a signature without a code directory"
    flags, hashes, _, _, slots, limit = struct.unpack_from(">6I", data, directory + 12)
    hash_bytes, hash_type, _, page_shift = struct.unpack_from(">4B", data, directory + 36)
    page = 1 << page_shift
    if not flags & AD_HOC:
        return "has a signature that is not ad hoc"
    if (hash_type, hash_bytes) != (SHA256, hashlib.sha256().digest_size):
        return "has a signature of other hashes than SHA-256"
    if limit != offset or slots != -(-limit // page):
        return "has a signature that does not cover all of it"
    for slot in range(slots):
        expected = data[directory + hashes + slot * hash_bytes :][:hash_bytes]
        if hashlib.sha256(data[slot * page : min((slot + 1) * page, limit)]).digest() != expected:
            return f"was changed after it was signed, in its page {slot}"
    return None


def _code_signature(data: bytes) -> tuple[int, int] | None:
    """Offset and size that LC_CODE_SIGNATURE gives."""
    magic, _, _, _, count = struct.unpack_from("<5I", data)
    position = 32  # after mach_header_64
    for _ in range(count if magic == MAGIC_64 else 0):
        command, size = struct.unpack_from("<2I", data, position)
        if command == LC_CODE_SIGNATURE:
            return struct.unpack_from("<2I", data, position + 8)
        position += size
    return None
