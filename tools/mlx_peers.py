"""MLX's own GEMM kernels on the product that the ladder runs: what they ask of the machine, and how right they are.

They are compiled from the headers of the installed mlx package and run on our host runtime.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import mlx_kernels as mlx
import numpy as np
from host_module import ROOT, CompileError, HostModule, build
from mlx_kernels import FLOAT32, TF32_ULP, Kernel, Operands, Problem, Run, Tile
from tqdm import tqdm

from mlx_gemm import bench
from mlx_gemm.ladder import QUICK, Demands
from mlx_gemm.oracle import Oracle

FOLDER = ROOT / "build" / "peers"

__all__ = ["PEERS", "CompileError", "demands"]


@dataclass(frozen=True)
class Peer:
    """A float32 kernel of MLX.

    Attributes:
        template: its name there.
        source: what instantiates it, in tools/mlx_kernels.
        taken: the machines and sizes n = M = N = K for which MLX 0.32.4 takes it.
        swizzle: log2 of how many rows of tiles MLX lets run together, by n.
    """

    template: str
    source: str
    tile: Tile
    taken: str
    run: Callable[..., Run] = mlx.run_fused
    swizzle: Callable[[int], int] = lambda n: 0

    def __str__(self) -> str:
        return f"{self.template} {self.tile.bm}x{self.tile.bn}x{self.tile.bk}"

    @property
    def kernel(self) -> Kernel:
        return Kernel(self.source.removeprefix("peer_"), "nn", FLOAT32, self.tile)


PEERS = (
    Peer(
        "steel_gemm_splitk",
        "peer_splitk",
        Tile(32, 32, 16, 2, 2),
        "base M1 to M4, n from 128 to 512",
        lambda module, *arguments: mlx.run_splitk(module, module, *arguments),
    ),
    Peer("steel_gemm_fused", "peer_fused", Tile(64, 64, 16, 2, 2), "base M1 to M4, n below 128 or above 512"),
    Peer(
        "steel_gemm_fused_nax",
        "peer_nax",
        Tile(128, 128, 512, 4, 4),
        "base M5",
        swizzle=lambda n: 0 if n <= 3 * 128 else 1,
    ),
    Peer("steel_gemm_fused_nax", "peer_nax", Tile(64, 128, 256, 2, 4), "larger M5", swizzle=lambda n: 2),
)


def build_module(*, checked: bool) -> HostModule:
    """Raises CompileError."""
    sources = mlx.sources(*dict.fromkeys(peer.source for peer in PEERS))
    with tqdm(desc=f"compiling MLX's kernels{', checked' if checked else ''}", leave=False, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        return build(sources, FOLDER, mlx.mlx_build(checked=checked), progress=progress)


def oracle(values: Operands, tf32: bool) -> Oracle:
    """Of kernels that read float32 operands with 11 significant bits, the bound is that much wider."""
    exact = Oracle.of_product(values.a[0], values.b[0])
    return dataclasses.replace(exact, bound=exact.bound + 2 * TF32_ULP * values.magnitude[0]) if tf32 else exact


def demands(size: int, *, seed: int = 0) -> list[Demands]:
    """Of every peer on the ladder's product, M = N = K = size.

    Raises:
        bench.WrongResult: a result is outside its bound.
    """
    checked, plain = build_module(checked=True), build_module(checked=False)
    a, b = (np.array(x, np.float64)[None] for x in bench.Shape(size, size, size).operands(seed))
    values = Operands(a, b, np.zeros_like(a))
    return [peer_demands(peer, values, checked, plain) for peer in tqdm(PEERS, leave=False, disable=None)]


def peer_demands(peer: Peer, values: Operands, checked: HostModule, plain: HostModule) -> Demands:
    size, kernel = values.a.shape[-1], peer.kernel
    problem = Problem(size, size, size, swizzle=peer.swizzle(size))
    candidate = bench.Candidate(str(peer), lambda: peer.run(plain, kernel, problem, values).result[0])
    timing = bench.measure([candidate], oracle(values, kernel.tf32), settings=QUICK)[0]
    counters = peer.run(checked, kernel, problem, values).counters
    return Demands(
        kernel=str(peer),
        threads=32 * kernel.tile.wm * kernel.tile.wn,
        threadgroup_bytes=counters.threadgroup_bytes,
        barriers=counters.barriers,
        requested_bytes=counters.device_read_bytes + counters.device_write_bytes,
        error_fraction=timing.error_fraction,
        bound="TF32" if kernel.tf32 else "float32",
        seconds=timing.median_s,
    )
