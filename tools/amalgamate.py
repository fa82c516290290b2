"""Writes the Metal source of every kernel as a C++ table, to be compiled at run time where no Metal toolchain is.

A run-time compiler sees one string and no files, so local includes are inlined. Each kernel gets the text of its
.metal file up to the macro that instantiates the registry, and its own instantiation: nothing else is compiled.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

INCLUDE = re.compile(r'^#include "(metal/[^"]+)"\n', re.MULTILINE)
# Where a .metal file instantiates its kernels: rows of the registry, or kernels beside it. What follows is kept.
INSTANTIATIONS = re.compile(r"(?ms)^(?:#define GEMM_\w+\(NAME|GEMM_INSTANTIATE\().*?(?=^#endif|\Z)")
INSTANTIATE = "metal/common/instantiate.h"
INSTANTIATION = re.compile(r'template \[\[host_name\("(\w+)"\)\]\].*?;')


@dataclass(frozen=True)
class Amalgamated:
    """A .metal file without local includes, and what each of its kernels puts between `body` and `end`."""

    body: str
    instantiations: dict[str, str]
    end: str


def inlined(text: str, root: Path, seen: set[str]) -> str:
    """`text` with every local include replaced by the file, the first time that it is met."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return inlined((root / match[1]).read_text().replace("#pragma once\n", ""), root, seen)

    return INCLUDE.sub(replacement, text)


def amalgamate(path: Path, root: Path, compiler: str) -> Amalgamated:
    """Raises ValueError when the file instantiates nothing."""
    text = path.read_text()
    tail = INSTANTIATIONS.search(text)
    if not tail:
        raise ValueError(f"{path.name} instantiates no kernel")
    source = f'#include "{INSTANTIATE}"\n{tail[0]}'
    command = [compiler, "-E", "-P", "-x", "c++", "-I", str(root), "-"]
    expanded = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    instantiations = {match[1]: match[0] for match in INSTANTIATION.finditer(expanded)}
    body = inlined(text[: tail.start()], root, {INSTANTIATE})
    return Amalgamated(body.rstrip() + "\n", instantiations, text[tail.end() :])


def cpp_table(sources: list[Amalgamated]) -> str:
    """C++ that defines kernel_source() of csrc/backends/metal/kernel_sources.h."""
    bodies = ",\n".join(f'R"metal({source.body})metal"' for source in sources)
    rows = "\n".join(
        f'    {{"{name}", {index}, R"metal({text}\n{source.end})metal"}},'
        for index, source in enumerate(sources)
        for name, text in source.instantiations.items()
    )
    return f"""// Written by tools/amalgamate.py.
#include "csrc/backends/metal/kernel_sources.h"

namespace mlx_gemm {{
namespace {{

constexpr std::string_view kBodies[] = {{
{bodies}}};

struct Row {{
  std::string_view kernel;
  int body;
  std::string_view instantiation;
}};

constexpr Row kRows[] = {{
{rows}
}};

}}  // namespace

std::string kernel_source(std::string_view kernel) {{
  for (const Row& row : kRows) {{
    if (row.kernel == kernel) {{
      return std::string(kBodies[row.body]) + std::string(row.instantiation);
    }}
  }}
  return "";
}}

}}  // namespace mlx_gemm
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("sources", type=Path, nargs="+", help=".metal files")
    parser.add_argument("--root", type=Path, required=True, help="folder that local includes are relative to")
    parser.add_argument("--compiler", default="c++", help="C++ compiler whose preprocessor expands the registry")
    options = parser.parse_args()
    root = options.root.resolve()
    sources = [amalgamate(path.resolve(), root, options.compiler) for path in options.sources]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(cpp_table(sources))
    return 0


if __name__ == "__main__":
    sys.exit(main())
