"""Hand-written GEMM kernels for MLX.

`matmul`, `addmm` and `linear` are lazy, differentiable MLX ops. On a CPU stream of Linux every type runs on OpenBLAS or
micro-kernels of this package, or, when a kernel is named, on that very Metal kernel through the Metal host runtime.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

try:
    # First: it loads libmlx and registers the array type that the extension shares.
    import mlx.core as mx
except ImportError as error:
    raise ImportError(f"mlx_gemm needs MLX with a backend; on Linux: pip install 'mlx[cpu]' ({error})") from error

__version__ = "0.1.0"


_mlx_version: str = mx.__version__  # type: ignore[attr-defined]  # missing in MLX's stubs


def _import_extension() -> ModuleType:
    try:
        extension = importlib.import_module("mlx_gemm._ext")
    except ModuleNotFoundError as error:
        raise ImportError(
            f"the mlx_gemm in {Path(__file__).parent} has no extension compiled for this Python: it is a source tree, "
            "which hides the installed mlx_gemm if there is one. Run Python from another directory, or `make build` "
            "and .venv/bin/python."
        ) from error
    except ImportError as error:
        from importlib.metadata import requires

        built_for = next(r for r in requires("mlx_gemm") or [] if r.startswith("mlx=="))
        raise ImportError(
            f"mlx_gemm was built for {built_for}, the installed mlx is {_mlx_version}, and they do not fit: install "
            f"that version, or build mlx_gemm against the installed one ({error})"
        ) from error
    # With another version of nanobind's internals the types of mlx.core are unknown to the extension, and every call
    # would fail with a TypeError about its arguments.
    if _mlx_version != extension.BUILT_FOR_MLX or "mlx::core::array" in extension.matmul.__doc__:
        raise ImportError(
            f"mlx_gemm was built for mlx=={extension.BUILT_FOR_MLX}, the installed mlx is {_mlx_version}, and they "
            "do not fit: install that version, or build mlx_gemm against the installed one."
        )
    return extension


def _load_blas() -> None:
    # Not imported: the package's own import would load the library with global symbols.
    try:
        found = importlib.util.find_spec("scipy_openblas32")
        folder = Path(found.origin).parent if found and found.origin else None
        libraries = sorted(folder.glob("lib/libscipy_openblas*.so")) if folder else []
        if not libraries:
            raise RuntimeError("the package scipy-openblas32 is not installed")
        _ext.load_blas(str(libraries[0]))
    except (RuntimeError, ValueError) as error:
        warnings.warn(f"mlx_gemm multiplies with mx.matmul on CPU streams: {error}", RuntimeWarning, stacklevel=3)


_ext = _import_extension()
_ext.check_settings()
# A BLAS that is unloaded in the middle of a product never comes back.
atexit.register(_ext.wait_for_pending_products)
_checked = Path(str(_ext.__file__)).with_name("_checked.so")
_ext.load_checked(str(_checked) if _checked.exists() else "")
if sys.platform == "linux":
    _load_blas()

from mlx_gemm import host, nn  # noqa: E402
from mlx_gemm.kernels import KernelInfo, Plan, explain, kernels  # noqa: E402
from mlx_gemm.ops import addmm, linear, matmul  # noqa: E402
from mlx_gemm.routing import disabled, patch  # noqa: E402

__all__ = [
    "KernelInfo",
    "Plan",
    "__version__",
    "addmm",
    "disabled",
    "explain",
    "host",
    "kernels",
    "linear",
    "matmul",
    "nn",
    "patch",
]
