"""What a case must give, and whether it did.

The reference is MLX's own ops in float64. The same reference with the absolute value of every number is a majorant: it
bounds what any order of summation can come across, and with it the rounding of a correct result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlx.core as mx
import numpy as np

from mlx_gemm.oracle import ROUNDING, Oracle, to_float64

from .cases import Case, Layer, product_shape

Arrays = Sequence[mx.array]
Function = Callable[..., Sequence[mx.array]]

# Whole numbers whose sums stay below this are exact in float32, halves and quarters included.
EXACT_BELOW = 2.0**18
# Roundings to the type of the result, where the epilogue is a series of ops: linear parts, and those of an activation.
ROUNDINGS, SMOOTH_ROUNDINGS = 6, 12
# Longest sum of any case: a product of the lengths that one gradient adds over.
LONGEST_SUM = 4096

ACTIVATIONS: dict[str | None, Callable[[mx.array], mx.array]] = {
    None: lambda x: x,
    "relu": lambda x: mx.maximum(x, 0),
    "gelu": lambda x: x * (1 + mx.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x * mx.sigmoid(x),
}


def reference(case: Case, arrays: Arrays, *, majorant: bool = False) -> list[mx.array]:
    named = dict(zip(case.operands, arrays, strict=True))
    a, b = (named["x"], named["weight"].T) if case.op == "linear" else (named["a"], named["b"])
    result, addend = mx.matmul(a, b), named.get("c", named.get("bias"))
    factors = {name: case.keywords.get(name, 1.0) for name in ("alpha", "beta")}
    if addend is not None:
        mx.broadcast_shapes(result.shape, addend.shape)  # also where beta is 0
    if majorant:
        factors = {name: abs(value) for name, value in factors.items()}
    result = result * factors["alpha"] if factors["alpha"] else mx.zeros_like(result)
    if addend is not None and factors["beta"]:
        result = result + factors["beta"] * addend
    if not majorant:
        result = ACTIVATIONS[case.keywords.get("activation")](result)
    return [result + named["residual"] if "residual" in named else result]


def constant(like: mx.array, absolute: bool) -> mx.array:
    """A cotangent or tangent: small whole numbers."""
    values = np.arange(math.prod(like.shape)).reshape(like.shape) * 7 % 9 - 4
    return mx.array(np.abs(values) if absolute else values).astype(like.dtype)


def transformed(function: Function, layer: Layer, *, loops: bool, absolute: bool = False) -> Function:
    """The function under one transform; with `loops`, a vmap as the loop that it stands for, and nothing compiled."""

    def vjp(*arrays: mx.array) -> Arrays:
        outputs = function(*map(mx.stop_gradient, arrays))
        return mx.vjp(function, list(arrays), [constant(out, absolute) for out in outputs])[1]

    def jvp(*arrays: mx.array) -> Arrays:
        return mx.jvp(function, list(arrays), [constant(x, absolute) for x in arrays])[1]

    def loop(*arrays: mx.array) -> Arrays:
        length = next(x.shape[axis] for x, axis in zip(arrays, layer.axes, strict=True) if axis is not None)
        rows = [
            function(
                *(x if a is None else x[(slice(None),) * a + (i,)] for x, a in zip(arrays, layer.axes, strict=True))
            )
            for i in range(length)
        ]
        return [mx.stack(outputs) for outputs in zip(*rows, strict=True)]

    if layer.kind == "vmap":
        return loop if loops else mx.vmap(lambda *arrays: list(function(*arrays)), layer.axes)
    if layer.kind == "compile":
        return function if loops else mx.compile(lambda *arrays: list(function(*arrays)))
    return vjp if layer.kind == "vjp" else jvp


def through(layers: Sequence[Layer], function: Function, **how: bool) -> Function:
    for layer in layers:
        function = transformed(function, layer, **how)
    return function


# ---- Judging ----


def check(case: Case) -> None:
    """Raises AssertionError where a result is wrong, or a call that MLX refuses is not refused in our words."""
    arrays = [operand.array() for operand in case.operands.values()]
    promoted = mx.result_type(*arrays)
    wide = promoted if promoted == mx.complex64 else mx.float64
    with mx.stream(mx.cpu):
        wide_arrays = [x.astype(wide) for x in arrays]
    try:
        if not mx.issubdtype(promoted, mx.inexact):
            raise ValueError("no floating-point type")
        with mx.stream(mx.cpu):
            expected = through(case.layers, lambda *x: reference(case, x), loops=True)(*wide_arrays)
    except ValueError as error:
        check_refused(case, arrays, str(error))
        return
    if refused_by_contract(case, promoted):
        check_refused(case, arrays, "the contract")
        return
    results = through(case.layers, case.ours, loops=False)(*arrays)
    with mx.stream(mx.cpu):
        majorants = through(case.layers, lambda *x: reference(case, x, majorant=True), loops=True, absolute=True)(
            *(mx.abs(x).astype(wide) for x in wide_arrays)
        )
    assert len(results) == len(expected)
    for i, (result, exact, majorant) in enumerate(zip(results, expected, majorants, strict=True)):
        wanted = case.keywords.get("out_dtype", promoted)
        if any(layer.kind == "vjp" for layer in case.layers):
            wanted = arrays[i].dtype
        assert result.shape == exact.shape, f"output {i} has shape {result.shape}, not {exact.shape}"
        assert result.dtype == wanted, f"output {i} has type {result.dtype}, not {wanted}"
        check_values(case, arrays, result, exact, majorant, f"output {i}")


def refused_by_contract(case: Case, promoted: mx.Dtype) -> bool:
    """What MLX's ops would do, and ours refuse: an activation of complex numbers, addends larger than the product."""
    if "activation" in case.keywords and promoted == mx.complex64:
        return True
    if case.layers:
        return False  # the shapes fit
    shapes = {name: operand.shape for name, operand in case.operands.items()}
    if case.op == "linear":
        product, bias = (*shapes["x"][:-1], shapes["weight"][0]), shapes["weight"][:1]
    else:
        product, bias = product_shape(shapes["a"], shapes["b"]), ()
    addends = [shapes[name] for name in ("c", "bias", "residual") if name in shapes]
    return np.broadcast_shapes(product, *addends) != product or shapes.get("bias", bias) != bias


def results_of(case: Case, arrays: Arrays) -> Arrays:
    """What is differentiated, for its shape alone."""
    maps = [layer for layer in case.layers if layer.kind == "vmap"]
    return through(maps, lambda *x: reference(case, x), loops=True)(*(x.astype(mx.float32) for x in arrays))


def check_refused(case: Case, arrays: Arrays, reason: str) -> None:
    try:
        mx.eval(through(case.layers, case.ours, loops=False)(*arrays))
    except ValueError as error:
        assert str(error).startswith(f"[mlx_gemm.{case.op}] "), f"unhelpful refusal: {error}"
    else:
        raise AssertionError(f"not refused: {reason}")


def check_values(
    case: Case, arrays: Arrays, result: mx.array, expected: mx.array, majorant: mx.array, label: str
) -> None:
    if result.size == 0:
        return
    if not results_of(case, arrays)[0].size:
        # Gradients of nothing. MLX 0.32.4 must not be asked: it can spin forever in a sum of empty arrays.
        assert not result.any(), f"{label} is not zero, and nothing was multiplied"
        return
    if result.dtype == mx.complex64:
        assert mx.array_equal(result, expected), f"{label} is not exact"
        return
    values, exact, most = (np.asarray(to_float64(x)) for x in (result, expected, majorant))
    whole = all(operand.whole for operand in case.operands.values())
    precision = str(result.dtype).rpartition(".")[2]
    if whole and not case.smooth and precision in ("float32", "float64") and most.max() < EXACT_BELOW:
        bound = np.zeros(())
    elif case.op == "matmul" and not case.layers and precision in ROUNDING and min(map(len, map(np.shape, arrays))) > 1:
        bound = Oracle.of_product(*(x.astype(mx.float32) for x in arrays), out=precision).bound
    else:
        rounding = ROUNDING.get(precision, ROUNDING["float32"])
        steps = SMOOTH_ROUNDINGS if case.smooth else ROUNDINGS
        sums = 4 * math.sqrt(LONGEST_SUM) * ROUNDING["float32"].unit
        bound = (steps * rounding.unit + sums) * most + steps * rounding.floor
    wrong = ~(np.abs(values - exact) <= bound)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{label}: {int(wrong.sum())} of {wrong.size} elements are wrong; first at {at}: {values[at]!r}, "
            f"reference {exact[at]!r}, bound {np.broadcast_to(bound, wrong.shape)[at]:.3g}"
        )
