"""Writes LIBRARY.lines: the place in the Metal source of every checked memory access of a module.

The checked build calls a hook named __tsan_* before each access. For the address that such a call returns to, the table
holds offset, line and file: the innermost inlined frame that is a kernel's source rather than a runtime header.
Needs objdump and addr2line, which come with the compiler's binutils, and debug information in LIBRARY; --strip removes
that afterwards.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

CALL = re.compile(r"^\s*[0-9a-f]+:\s.*\b(?:call|bl)\s+[0-9a-f]+ <__tsan_\w*(?:read|write)")
INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s")
KERNEL_SOURCE = re.compile(r"\.metal$|\bmetal/[\w./-]+\.h$")
# Paths inside the repository lose what the compiler put before them.
IN_REPOSITORY = re.compile(r"\b(?:tests/)?metal/[\w./-]+$")


def output(*command: str, text: str | None = None) -> str:
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def return_addresses(library: Path) -> list[int]:
    """Addresses of the instructions that follow a call of an access hook."""
    addresses = []
    after_call = False
    for line in output("objdump", "-d", "--no-show-raw-insn", str(library)).splitlines():
        instruction = INSTRUCTION.match(line)
        if instruction and after_call:
            addresses.append(int(instruction[1], 16))
        if instruction:
            after_call = bool(CALL.match(line))
    return addresses


def places(library: Path, addresses: list[int]) -> dict[int, tuple[str, int]]:
    # The byte before the return address belongs to the call.
    queries = "\n".join(f"{address - 1:#x}" for address in addresses)
    found: dict[int, tuple[str, int]] = {}
    current = 0
    for line in output("addr2line", "-a", "-i", "-e", str(library), text=queries).splitlines():
        if line.startswith("0x"):
            current = int(line, 16) + 1
            continue
        file, _, number = line.split(" ")[0].rpartition(":")
        if KERNEL_SOURCE.search(file) and number.isdigit() and current not in found:
            inside = IN_REPOSITORY.search(file)
            found[current] = (inside[0] if inside else file, int(number))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("--strip", action="store_true", help="remove the debug information afterwards")
    options = parser.parse_args()
    table = places(options.library, return_addresses(options.library))
    rows = [f"{address:x} {line} {file}\n" for address, (file, line) in sorted(table.items())]
    Path(f"{options.library}.lines").write_text("".join(rows))
    if options.strip:
        output("strip", "--strip-debug", str(options.library))
    return 0


if __name__ == "__main__":
    sys.exit(main())
