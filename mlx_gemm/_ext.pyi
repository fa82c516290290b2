"""The C++ part of mlx_gemm."""

import mlx.core


class KernelInfo:
    """One kernel of the registry: a row of metal/shared/gemm_kernels.def."""

    @property
    def name(self) -> str: ...

    @property
    def body(self) -> str:
        """The template in metal/ that the kernel instantiates."""

    @property
    def family(self) -> str: ...

    @property
    def bm(self) -> int:
        """Rows of a threadgroup's output tile."""

    @property
    def bn(self) -> int:
        """Columns of a threadgroup's output tile."""

    @property
    def bk(self) -> int:
        """Step along K; 0 where one operation spans all of K."""

    @property
    def wm(self) -> int: ...

    @property
    def wn(self) -> int: ...

    @property
    def simdgroups(self) -> int: ...

    @property
    def threads(self) -> tuple[int, int]: ...

    @property
    def order(self) -> str: ...

    @property
    def needs(self) -> tuple[int, int, int]:
        """M, N and K must be multiples of these."""

    @property
    def read_tile(self) -> tuple[int, int]:
        """Output block whose device reads are shared."""

    @property
    def threadgroup_bytes(self) -> int: ...

    @property
    def min_generation(self) -> int:
        """Apple GPU generation: 13 is M1, 17 is M5."""

    @property
    def min_os(self) -> int:
        """macOS version, 100*major + minor."""

    @property
    def dtypes(self) -> list[str]:
        """Types of the operands; the result has the same, or float32."""

    @property
    def dtype_accumulate(self) -> str: ...

    @property
    def math(self) -> str: ...

    @property
    def layouts(self) -> list[str]: ...

    @property
    def deterministic(self) -> bool: ...

    @property
    def role(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def metal_source(self) -> str:
        """The Metal file that a GPU compiles at run time, for float32."""

    def requested_read_bytes(self, M: int, N: int, K: int) -> int:
        """
        Bytes of A and B that the kernel asks of device memory if nothing is cached.
        """

    def __repr__(self) -> str: ...

class Plan:
    """What a product runs, and why. str() is readable."""

    @property
    def route(self) -> str:
        """'kernel', 'blas' or 'mlx'."""

    @property
    def kernel(self) -> str | None: ...

    @property
    def reason(self) -> str: ...

    @property
    def rejected(self) -> list[tuple[str, str]]:
        """Pairs of a candidate and the reason against it."""

    @property
    def copies(self) -> int:
        """Operands that must be copied first."""

    @property
    def M(self) -> int: ...

    @property
    def N(self) -> int: ...

    @property
    def K(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def layout(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

class Report:
    """
    What a kernel did on the Metal host runtime. Counts of traffic need check=True.
    """

    @property
    def kernel(self) -> str: ...

    @property
    def checked(self) -> bool: ...

    @property
    def mode(self) -> str:
        """'lanes' or 'uniform'."""

    @property
    def flops(self) -> int:
        """2 M N K."""

    @property
    def threadgroups(self) -> int: ...

    @property
    def barriers(self) -> int:
        """Threadgroup barriers, once per threadgroup."""

    @property
    def multiplies(self) -> int:
        """Matrix multiplies that SIMD groups and TensorOps made."""

    @property
    def threadgroup_bytes(self) -> int: ...

    @property
    def requested_read_bytes(self) -> int | None: ...

    @property
    def requested_write_bytes(self) -> int | None: ...

    @property
    def threadgroup_read_bytes(self) -> int | None: ...

    @property
    def threadgroup_write_bytes(self) -> int | None: ...

    @property
    def intensity(self) -> float | None:
        """FLOP per requested byte of device memory."""

    @property
    def warnings(self) -> list[str]:
        """What works on GPUs without being guaranteed; found with check=True."""

    @property
    def seconds(self) -> float:
        """Wall time on the host; says nothing about a GPU."""

    def __repr__(self) -> str: ...

def matmul(a: mlx.core.array, b: mlx.core.array, *, kernel: str | None = None, out_dtype: mlx.core.Dtype | None = None, stream: mlx.core.Stream | mlx.core.ThreadLocalStream | mlx.core.Device | mlx.core.DeviceType | None = None) -> mlx.core.array: ...

def addmm(c: mlx.core.array, a: mlx.core.array, b: mlx.core.array, alpha: float = 1.0, beta: float = 1.0, *, activation: str | None = None, kernel: str | None = None, out_dtype: mlx.core.Dtype | None = None, stream: mlx.core.Stream | mlx.core.ThreadLocalStream | mlx.core.Device | mlx.core.DeviceType | None = None) -> mlx.core.array: ...

def linear(x: mlx.core.array, weight: mlx.core.array, bias: mlx.core.array | None = None, *, activation: str | None = None, residual: mlx.core.array | None = None, kernel: str | None = None, out_dtype: mlx.core.Dtype | None = None, stream: mlx.core.Stream | mlx.core.ThreadLocalStream | mlx.core.Device | mlx.core.DeviceType | None = None) -> mlx.core.array: ...

def explain(a: mlx.core.array, b: mlx.core.array, *, c: mlx.core.array | None = None, bias: mlx.core.array | None = None, activation: str | None = None, device: str | None = None, kernel: str | None = None, out_dtype: mlx.core.Dtype | None = None, stream: mlx.core.Stream | mlx.core.ThreadLocalStream | mlx.core.Device | mlx.core.DeviceType | None = None) -> Plan: ...

def assign(target: mlx.core.array, value: mlx.core.array) -> None:
    """
    Makes an array object stand for another value, as the in-place operators do.
    """

def disable(enter: bool) -> None:
    """
    Enters or leaves a scope in which the ops that this thread builds are MLX's own.
    """

def kernels() -> list[KernelInfo]:
    """Every kernel of the registry, in its order."""

def unsupported(kernel: str, M: int, N: int, K: int, *, layout: str = 'nn', dtype: str = 'float32') -> str | None:
    """
    The rule that keeps the kernel from running the problem on a CPU, or None.

    Raises:
        ValueError: an unknown kernel, layout or dtype.
    """

class HostFault(RuntimeError):
    pass

def host_run(kernel: str, a: mlx.core.array, b: mlx.core.array, *, check: bool, seed: int | None = None, mode: str = 'auto') -> tuple[mlx.core.array, Report]:
    """
    Runs one kernel on the Metal host runtime, now.

    Args:
        kernel: a name from kernels().
        a: [M, K], of a type that the kernel multiplies.
        b: [K, N], of the same type.
        check: bounds-check and count every memory access.
        seed: shuffles the order of threads and threadgroups.
        mode: 'auto', 'lanes' (one fiber per thread) or 'uniform' (one per SIMD group).

    Returns:
        The product [M, N] of that type, and a Report.

    Raises:
        ValueError: an unknown kernel or mode, or shapes, types or a mode that the kernel cannot run.
        HostFault: the kernel broke a rule of Metal.
    """

BUILT_FOR_MLX: str = '0.32.4'

def load_blas(path: str) -> None:
    """
    Loads the OpenBLAS of CPU streams, whose symbols carry the prefix scipy_.

    Raises:
        RuntimeError: it cannot be loaded; the loader's reason.
    """

def check_settings() -> None:
    """
    Reads the environment variables of the CPU path.

    Raises:
        ValueError: one has a value that means nothing.
    """

def load_checked(path: str) -> None:
    """
    Path of the checked kernels, which are loaded when they are first asked for; empty for a build without them.
    """

def can_check() -> bool:
    """Whether there are checked kernels."""

def counters() -> dict[str, int]:
    """Events since the process started."""

def wait_for_pending_products() -> None:
    """
    Returns when no CPU stream has a product of this package left to compute; called before the process exits.
    """

def environment() -> dict[str, str | None]:
    """
    What this build runs on: versions of MLX, BLAS, instruction set of the host runtime, GPU.
    """
