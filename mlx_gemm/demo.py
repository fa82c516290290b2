"""The main job in two minutes: every rung of the ladder runs and is checked, then a small llama runs on mlx_gemm."""

from __future__ import annotations

import time

import mlx.core as mx
from tqdm import tqdm

from mlx_gemm import _ext, bench, demo_model, ladder, machine
from mlx_gemm.kernels import KernelInfo

BASELINE = "mx.matmul"
LIBRARIES = ["mlx_gemm", BASELINE, "numpy"]
SIZES = (256, 512)
TENSOROPS_SIZE = 1024
MODEL = demo_model.Config()
TOKENS = (2, 64)


def run() -> None:
    """Print the demo.

    Raises:
        bench.WrongResult: a result is outside its bound.
        host.HostFault: a kernel broke a rule of Metal.
    """
    start = time.perf_counter()
    canary = bench.Canary()
    canary.sample()
    print(f"mlx_gemm on {machine.cpu_model()}, {machine.usable_cores()} cores, MLX {_ext.BUILT_FOR_MLX}\n")
    print("The ladder: Metal kernels, float32, run on the CPU by the host runtime; how fast they are here says")
    print("nothing about a GPU. Every result is checked against float64 before it is timed. MB requested counts")
    print("every access, as if nothing were cached.\n")
    for size in SIZES:
        show_ladder(size, ladder.rungs())
    # The scalar and SIMD-group kernels would take minutes at this size.
    show_ladder(TENSOROPS_SIZE, [kernel for kernel in ladder.rungs() if kernel.family == "tensorops"])
    show_swap(MODEL)
    canary.sample()
    try:
        canary.verify()
    except bench.MachineBusy as busy:
        print(f"\nNote: {busy}; the times above are too long.")
    print(f"\nAll of this took {time.perf_counter() - start:.0f} s.")


def show_ladder(size: int, kernels: list[KernelInfo]) -> None:
    """One table: the kernels that can run M = N = K = size, beside MLX and NumPy."""
    able, rules = ladder.split_by_support(size, kernels)
    measured = ladder.measure(size, able + LIBRARIES)
    print(f"M = N = K = {size}")
    print(ladder.measured_table(size, measured, BASELINE))
    for rule in rules:
        print(f"not at this size: {rule}")
    print()


def show_swap(config: demo_model.Config) -> None:
    """Two equal llamas, one of them after `nn.swap`: the same logits, and how long they take.

    Raises:
        bench.WrongResult: the logits differ.
    """
    with mx.stream(mx.cpu):
        pair = demo_model.swap_pair(config, TOKENS)
        with tqdm(total=len(pair.candidates) * ladder.QUICK.rounds, desc="llama", leave=False, disable=None) as bar:
            timings = bench.measure(
                pair.candidates, pair.oracle, settings=ladder.QUICK, progress=lambda name: bar.update()
            )
    rows = [
        (t.name, f"{t.median_s * 1e3:.1f}", f"{timings[0].median_s / t.median_s:.2f}x", f"{difference(t):.1e}")
        for t in timings
    ]
    print(f"A llama of {pair.origin}: {config.layers} layers of width {config.width}, {TOKENS[0]} x {TOKENS[1]} tokens")
    print(ladder.format_table(("", "ms", "vs mlx.nn.Linear", "difference / largest logit"), rows))
    pair.swapped.restore()
    print(f"nn.swap replaced {pair.swapped.count} layers in place; restore() has put them back.")


def difference(timing: bench.Timing) -> float:
    """The largest difference of a logit, relative to the largest logit."""
    return timing.error_fraction * demo_model.LOGIT_TOLERANCE
