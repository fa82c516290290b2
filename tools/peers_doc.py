"""Write docs/peers.md: what MLX's own kernels ask of the machine, beside ours.

    python tools/peers_doc.py [--check]

Compiles and runs the kernels: a minute or two. --check changes nothing and fails when the file is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from mlx_peers import PEERS

from mlx_gemm import bench, ladder

DOC = Path(__file__).resolve().parent.parent / "docs" / "peers.md"
SIZE = 512

HEAD = f"""\
# Beside MLX's kernels

Written by `tools/peers_doc.py`, which runs the kernels; do not edit. `python -m mlx_gemm ladder --peers --size {SIZE}`
prints the same and the time on the host, which says nothing about a GPU.

One product, float32, M = N = K = {SIZE}, every operand row-contiguous.

- **threads**: of a threadgroup.
- **memory B**: bytes of threadgroup memory.
- **barriers**: of all threadgroups together.
- **MB**: 10^6 bytes asked of device memory, read and written, if nothing is cached. Counted, not computed.
- **FLOP/byte**: operations per byte of these.
- **error**: the largest, as a fraction of the bound for float32 operands, or of that for operands cut to 11 significant
  bits (TF32), which is hundreds of times wider.
"""

OURS = "\n## Ours\n\n"

MLX = """
## MLX's kernel on our host runtime

From the headers of the installed mlx package, unmodified ([how](host_runtime.md#mlxs-kernels-on-it)). Split-K includes
the kernel that adds the partial products up. **MLX takes it** tells on which machines, and for which n = M = N = K.

"""


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def render() -> str:
    """The whole document."""
    flops = bench.Shape(SIZE, SIZE, SIZE).flops
    able, _ = ladder.split_by_support(SIZE, ladder.rungs())
    ours = [row.cells(flops) for row in ladder.own_demands(ladder.measure(SIZE, able))]
    theirs = [(*row.cells(flops), peer.taken) for peer, row in zip(PEERS, ladder.peer_demands(SIZE), strict=True)]
    return HEAD + OURS + table(ladder.DEMANDS, ours) + MLX + table((*ladder.DEMANDS, "MLX takes it"), theirs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/peers.md from a run of the kernels.")
    parser.add_argument("--check", action="store_true", help="fail instead of writing when the file is stale")
    options = parser.parse_args()
    fresh = render()
    if not options.check:
        DOC.write_text(fresh)
    elif not DOC.exists() or DOC.read_text() != fresh:
        print("docs/peers.md is stale: run python tools/peers_doc.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
