#!/usr/bin/env python3
"""The clang++ of CMake's Darwin rules, made of PyPI's ziglang package, which the first python3 on PATH must have."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

# Zig's linker crashes on -bundle. Python loads a dynamic library just as well.
LIBRARY_FLAGS = {"-bundle", "-dynamiclib", "-shared"}
WITH_VALUE = {"-framework", "-bundle_loader"}


def is_framework(argument: str) -> bool:
    """MLX's CMake files name frameworks, by their place in somebody's Xcode. The extension calls none."""
    return argument.startswith(("-F", "-iframework")) or argument.endswith(".framework")


def zig_arguments(given: Sequence[str]) -> list[str]:
    """The arguments of zig that do what `given` asks of clang++."""
    if {"-c", "-E", "-S"} & set(given):
        return ["c++", *(argument for argument in given if not is_framework(argument))]
    kept: list[str] = []
    arguments = iter(given)
    for argument in arguments:
        if argument in LIBRARY_FLAGS:
            output = given[given.index("-o") + 1]
            kept += ["-dynamiclib", f"-Wl,-install_name,@rpath/{Path(output).name}"]
        elif argument.startswith("-Wl,@"):
            kept += ["-undefined", "dynamic_lookup"]  # nanobind's list of CPython names; check_wheel.py compares
        elif argument in WITH_VALUE:
            next(arguments)
        elif not is_framework(argument):
            kept.append(argument)
    # As C: for C++ zig would link its own libc++ into the library, where libmlx's exceptions are strangers.
    return ["cc", *kept]


if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "ziglang", *zig_arguments(sys.argv[1:])])
