"""Which functions multiply: `patch` sends MLX's own to this package, `disabled` sends this package's to MLX."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import mlx.core as mx

from mlx_gemm import _ext
from mlx_gemm.ops import addmm, matmul


class _Thread(threading.local):
    patches = 0  # scopes that the thread is in


_thread = _Thread()
_lock = threading.Lock()
_patches = 0  # scopes of all threads
_originals: list[tuple[Any, str, Any]] = []


def _imatmul(self: mx.array, other: mx.array) -> mx.array:
    _ext.assign(self, matmul(self, other))
    return self


def _routed(original: Callable[..., Any], ours: Callable[..., Any], *, operator: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **keywords: Any) -> Any:
        # What is no array the original operator refuses in Python's own way.
        here = _thread.patches and (not operator or isinstance(args[-1], mx.array))
        return (ours if here else original)(*args, **keywords)

    return call


def _install() -> None:
    for owner, name, ours in (
        (mx, "matmul", matmul),
        (mx, "addmm", addmm),
        (mx.array, "__matmul__", matmul),
        (mx.array, "__imatmul__", _imatmul),
    ):
        original = getattr(owner, name)
        _originals.append((owner, name, original))
        setattr(owner, name, _routed(original, ours, operator=owner is mx.array))


def _remove() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


@contextlib.contextmanager
def patch() -> Iterator[None]:
    """In this thread, `mx.matmul`, `mx.addmm`, `@` and `@=` are this package's, and so is what is built with them.

    Reaches whatever looks these names up when it is called: models, `mlx.nn` layers, gradients of what was built in
    the scope. Does not reach a function that took `mx.matmul` out of the module before, other operations of MLX with
    products inside (`mx.einsum`, attention, convolutions, quantized products), or a function that was compiled outside:
    `mx.compile` keeps what it was traced with, in the scope or out of it. Scopes nest; other threads are not affected.

    Example:
        >>> with patch():
        ...     (mx.ones((2, 3)) @ mx.ones((3, 4))).shape
        (2, 4)
    """
    global _patches
    with _lock:
        _patches += 1
        if _patches == 1:
            _install()
    _thread.patches += 1
    try:
        yield
    finally:
        _thread.patches -= 1
        with _lock:
            _patches -= 1
            if _patches == 0:
                _remove()


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """In this thread, every op of this package that is built in the scope is one of MLX's own.

    Functions that call `mlx_gemm.matmul` can then be exported by `mx.export_function`, which knows only MLX's own
    primitives. Inside the scope a named `kernel` raises ValueError. What was built or compiled before stays as it was.

    Example:
        >>> with disabled():
        ...     matmul(mx.ones((2, 3)), mx.ones((3, 4))).shape
        (2, 4)
    """
    _ext.disable(True)
    try:
        yield
    finally:
        _ext.disable(False)
