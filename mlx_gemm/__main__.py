"""python -m mlx_gemm demo | list | ladder | env | explain"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

import mlx.core as mx

from mlx_gemm import __version__
from mlx_gemm.host import HostFault
from mlx_gemm.kernels import KernelInfo, explain, kernels

try:
    from mlx_gemm import bench, demo, ladder, machine
except ModuleNotFoundError as missing:
    sys.exit(f"python -m mlx_gemm needs {missing.name}: pip install 'mlx-gemm[bench]'")

DTYPES = ("float32", "float16", "bfloat16", "complex64")
LAYOUTS = ("nn", "nt", "tn", "tt")


class Parser(argparse.ArgumentParser):
    """Reports a bad command line in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def length(most: int) -> Callable[[str], int]:
    """Parses a length from 1 to `most`."""

    def parse(text: str) -> int:
        value = int(text) if text.isdecimal() else 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {most}, got {text!r}")
        return value

    return parse


def run_demo(options: argparse.Namespace) -> None:
    demo.run()


def run_list(options: argparse.Namespace) -> None:
    rows = kernels()
    if options.kernel:
        print(describe(find(options.kernel)))
        return
    table = [
        (k.name, ladder.tile(k), str(k.simdgroups), needs(k), str(k.threadgroup_bytes), short_types(k), k.role)
        for k in rows
    ]
    print(ladder.format_table(("kernel", "tile", "SIMD", "M,N,K of", "bytes", "types", "role"), table))
    print("\nSIMD: SIMD groups of a threadgroup. Bytes: of threadgroup memory.", end="")
    print(f"\n{len(rows)} kernels; python -m mlx_gemm list NAME tells more about one.")


def run_ladder(options: argparse.Namespace) -> None:
    n = ladder.REFERENCE_SIZE
    peers = ladder.peer_demands(options.size) if options.peers else []
    print(f"By formula, float32, M = N = K = {n}: a block of TM x TN outputs that shares its reads takes")
    print("K (TM + TN) elements of A and B, so a byte read feeds TM TN / (2 (TM + TN)) operations.\n")
    print(ladder.formula_table())
    able, rules = ladder.split_by_support(options.size, ladder.rungs())
    measured = ladder.measure(options.size, [*able, "mx.matmul"])
    print(f"\nMeasured on the host runtime, M = N = K = {options.size}; FLOP/byte counts reads and writes.\n")
    print(ladder.measured_table(options.size, measured, "mx.matmul"))
    for rule in rules:
        print(f"not at this size: {rule}")
    if peers:
        print("\nWhat kernels ask of the machine; steel_* are MLX's kernels on our host runtime. MB: requested, read")
        print("and written. Error: the largest, as a fraction of the bound for float32 operands, or for operands")
        print("cut to 11 significant bits (TF32). Memory: of a threadgroup. Barriers: of all threadgroups.\n")
        print(ladder.demands_table(options.size, [*ladder.own_demands(measured), *peers]))


def run_env(options: argparse.Namespace) -> None:
    facts = machine.facts()
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:{width}}  {' '.join(fact) if isinstance(fact, list) else fact}")


def run_explain(options: argparse.Namespace) -> None:
    dtype = getattr(mx, options.dtype)
    left, right = options.layout
    a = operand((options.M, options.K), left, dtype)
    b = operand((options.K, options.N), right, dtype)
    stream = mx.Device(getattr(mx, options.device)) if options.device else None
    plan = explain(a, b, kernel=options.kernel, stream=stream)
    for line in str(plan).splitlines():
        print(textwrap.fill(line, 100, subsequent_indent="    "))


def operand(shape: tuple[int, int], layout: str, dtype: mx.Dtype) -> mx.array:
    """A matrix whose rows ("n") or columns ("t") are contiguous. Nothing reads it, so it holds one element only."""
    rows, columns = shape
    return mx.as_strided(mx.zeros(1, dtype), shape, (columns, 1) if layout == "n" else (1, rows))


def find(name: str) -> KernelInfo:
    found = [kernel for kernel in kernels() if kernel.name == name]
    if not found:
        nearest = difflib.get_close_matches(name.lower(), [kernel.name for kernel in kernels()])
        hint = f"the nearest names are {', '.join(nearest)}" if nearest else "python -m mlx_gemm list shows them all"
        raise ValueError(f"no kernel is called {name!r}; {hint}")
    return found[0]


def short_types(kernel: KernelInfo) -> str:
    return ",".join(name.replace("float", "f") for name in kernel.dtypes)


def needs(kernel: KernelInfo) -> str:
    return "any" if tuple(kernel.needs) == (1, 1, 1) else ",".join(map(str, kernel.needs))


def describe(kernel: KernelInfo) -> str:
    """Every field of a row of the registry, one a line."""
    fields = {
        "name": kernel.name,
        "summary": kernel.summary,
        "tile": f"{ladder.tile(kernel)}, visited in {kernel.order.replace('_', '-')} order",
        "threads": f"{kernel.threads[0]} x {kernel.threads[1]} ({kernel.simdgroups} SIMD groups)",
        "needs": f"multiples of {needs(kernel)} for M, N, K" if needs(kernel) != "any" else "any M, N, K",
        "memory": f"{kernel.threadgroup_bytes} bytes of threadgroup memory",
        "types": f"{', '.join(kernel.dtypes)} in, {kernel.dtype_accumulate} accumulated, the same or float32 out",
        "math": kernel.math,
        "layouts": ", ".join(kernel.layouts),
        "repeatable": "yes" if kernel.deterministic else "no",
        "role": kernel.role,
        "on a Mac": f"macOS {kernel.min_os // 100}.{kernel.min_os % 100}, GPU generation {kernel.min_generation}",
    }
    return "\n".join(f"{name:10}  {text}" for name, text in fields.items())


def parser() -> Parser:
    main = Parser(prog="python -m mlx_gemm", description="Hand-written GEMM kernels for MLX.")
    main.add_argument("--version", action="version", version=f"mlx_gemm {__version__}")
    commands = main.add_subparsers(
        dest="command", required=True, metavar="demo|list|ladder|env|explain", parser_class=Parser
    )

    command = commands.add_parser("demo", help="run and check every kernel, then a small llama (a minute)")
    command.set_defaults(run=run_demo)

    command = commands.add_parser("list", help="the kernels, or one of them in detail")
    command.add_argument("kernel", nargs="?", help="name of a kernel")
    command.set_defaults(run=run_list)

    command = commands.add_parser("ladder", help="the teaching ladder: formulae, and a run on this machine")
    command.add_argument(
        "--size", type=length(ladder.REFERENCE_SIZE), default=256, help="M = N = K of the run (default 256)"
    )
    command.add_argument("--peers", action="store_true", help="and MLX's own kernels, compiled here (in a clone)")
    command.set_defaults(run=run_ladder)

    command = commands.add_parser("env", help="versions, processor, BLAS and threads")
    command.set_defaults(run=run_env)

    command = commands.add_parser("explain", help="which kernel multiplies [M, K] by [K, N], and why")
    for name in "MNK":
        command.add_argument(name, type=length(2**31 - 1))
    command.add_argument("--dtype", choices=DTYPES, default="float32")
    command.add_argument("--layout", choices=LAYOUTS, default="nn", help="n: rows contiguous, t: columns (default nn)")
    command.add_argument("--kernel", help="force this kernel")
    command.add_argument("--device", choices=("cpu", "gpu"), help="default: MLX's default device")
    command.set_defaults(run=run_explain)
    return main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns 0, 1 when a kernel is wrong, 2 when the command line is."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        print(f"python -m mlx_gemm {options.command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"python -m mlx_gemm {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130  # as a shell reports it
    except (bench.WrongResult, HostFault) as error:
        print(f"python -m mlx_gemm {options.command}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
