"""Write docs/kernels.md from the registry.

    python tools/kernels_doc.py [--check]

--check changes nothing and fails when the file is stale.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

from mlx_gemm import KernelInfo, kernels
from mlx_gemm.ladder import REFERENCE_SIZE, tile

DOC = Path(__file__).resolve().parent.parent / "docs" / "kernels.md"

HEAD = f"""\
# Kernels

Written by `tools/kernels_doc.py` from `metal/shared/gemm_kernels.def`; do not edit.

- **tile**: output rows and columns of a threadgroup, and its step along K (K: one operation spans all of it).
- **multiples of**: M, N and K must be multiples of these; "any" means any M, N, K of at least 1.
- **memory**: bytes of threadgroup memory.
- **read GB**: 10^9 bytes of A and B asked of device memory at M = N = K = {REFERENCE_SIZE}, if nothing is cached.
- **FLOP/byte**: operations per byte read, at that size.
- **needs**: the first macOS and GPU generation (13 is M1, 17 is M5) that can run it. On a CPU all of them run.
"""

COLUMNS = ("kernel", "idea", "tile", "SIMD groups", "multiples of", "memory", "read GB", "FLOP/byte", "needs")


def render(rows: list[KernelInfo]) -> str:
    """The whole document."""
    parts = [HEAD]
    for (role, family), members in groupby(
        rows, key=lambda k: ("ladder" if k.role == "ladder" else "production", k.family)
    ):
        kernels_of_family = list(members)
        parts.append(f"\n## {family} ({role})\n\n{types(kernels_of_family)}\n\n")
        parts.append(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n")
        parts += [f"| {' | '.join(cells(kernel))} |\n" for kernel in kernels_of_family]
    return "".join(parts)


def types(rows: list[KernelInfo]) -> str:
    """Types, precision, layouts and repeatability that the family's rows share."""
    shared = {
        f"{', '.join(k.dtypes)} in, {k.dtype_accumulate} accumulated, the same or float32 out; {k.math} arithmetic; "
        f"layouts {', '.join(k.layouts)}; {'repeatable' if k.deterministic else 'not repeatable'}."
        for k in rows
    }
    return "\n".join(sorted(shared))


def cells(kernel: KernelInfo) -> tuple[str, ...]:
    n = REFERENCE_SIZE
    read = kernel.requested_read_bytes(n, n, n)
    needs = tuple(kernel.needs)
    return (
        f"`{kernel.name}`",
        kernel.summary,
        tile(kernel),
        str(kernel.simdgroups),
        "any" if needs == (1, 1, 1) else ", ".join(map(str, needs)),
        str(kernel.threadgroup_bytes),
        f"{read / 1e9:.2f}",
        f"{2 * n**3 / read:.2f}",
        f"macOS {kernel.min_os // 100}.{kernel.min_os % 100}, generation {kernel.min_generation}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/kernels.md from the registry.")
    parser.add_argument("--check", action="store_true", help="fail instead of writing when the file is stale")
    options = parser.parse_args()
    fresh = render(kernels())
    if not options.check:
        DOC.write_text(fresh)
    elif not DOC.exists() or DOC.read_text() != fresh:
        print("docs/kernels.md is stale: run python tools/kernels_doc.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
