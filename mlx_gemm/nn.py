"""`mlx_gemm.linear` under every `mlx.nn.Linear` of a model, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as mlx_nn

from mlx_gemm.ops import check_precision, linear


class Linear(mlx_nn.Linear):
    """`mlx.nn.Linear` computed by `mlx_gemm.linear`: y = x weight^T + bias.

    Constructor, parameters (`weight` `[output_dims, input_dims]`, `bias` `[output_dims]`), initial values and repr are
    the same.

    Args:
        input_dims: size of the last axis of the input.
        output_dims: size of the last axis of the output.
        bias: whether the layer has a bias.
        precision: as for `mlx_gemm.linear`.

    Raises:
        ValueError: an unknown precision; when called, as for `mlx_gemm.linear`.
    """

    def __init__(self, input_dims: int, output_dims: int, bias: bool = True, *, precision: str | None = None) -> None:
        check_precision("nn.Linear", precision)
        super().__init__(input_dims, output_dims, bias)
        self._precision = precision

    def __call__(self, x: mx.array) -> mx.array:
        return linear(x, self["weight"], self.get("bias"), precision=self._precision)


@dataclass(frozen=True)
class _Place:
    """Where a container (a module, dict or list) holds a layer."""

    path: str
    container: Any
    key: Any
    layer: mlx_nn.Linear


class Swap:
    """The layers that one call of `swap` replaced."""

    def __init__(self, model: mlx_nn.Module, places: list[_Place], precision: str | None) -> None:
        self._paths = [place.path for place in places]
        self._model: mlx_nn.Module | None = model
        replacements = {id(place.layer): _replacement(place.layer, precision) for place in places}
        self._pairs = [(place.layer, replacements[id(place.layer)]) for place in places]
        for place in places:
            place.container[place.key] = replacements[id(place.layer)]

    def __repr__(self) -> str:
        return f"Swap(count={self.count}, {'restored' if self._model is None else 'in place'})"

    @property
    def count(self) -> int:
        """Number of places whose layer was replaced; a layer that the model holds in two places counts twice."""
        return len(self._paths)

    @property
    def paths(self) -> list[str]:
        """Path of every replaced layer, such as `"layers.0.attention.query"`."""
        return list(self._paths)

    def restore(self) -> None:
        """Put the original layers back, with the parameters and the training state that the model has now.

        The layers are looked for in the whole model, wherever they are now; those that are gone are left alone. A
        second call does nothing.
        """
        if self._model is None:
            return
        for place in list(_places(self._model, Linear)):
            for original, replacement in self._pairs:
                if place.layer is replacement:
                    _carry_state(replacement, original)
                    place.container[place.key] = original
        self._model = None


def swap(
    model: mlx_nn.Module,
    predicate: Callable[[str, mlx_nn.Module], bool] | None = None,
    *,
    precision: str | None = None,
) -> Swap:
    """Put `mlx_gemm.linear` under the `mlx.nn.Linear` layers of a model, in place, like `mlx.nn.quantize`.

    The new layers share the parameter arrays of the old ones and their place in the parameter tree, and keep frozen
    parameters frozen. Only layers whose type is exactly `mlx.nn.Linear` are replaced: quantized layers and subclasses
    compute something else. Layers are found where `Module.parameters()` finds them: in modules, dicts and lists.

    Args:
        model: the model to change.
        predicate: called with the path and the module of every candidate; a layer is replaced where it returns True.
        precision: as for `mlx_gemm.linear`, for every replaced layer.

    Returns:
        A handle: `count`, `paths`, and `restore()`, which undoes the swap.

    Raises:
        TypeError: `model` is not a `mlx.nn.Module`.
        ValueError: `model` is itself a `Linear`, which cannot be replaced in place; or an unknown precision.

    Example:
        >>> import mlx.nn
        >>> model = mlx.nn.Sequential(mlx.nn.Linear(8, 8), mlx.nn.ReLU(), mlx.nn.Linear(8, 2))
        >>> swapped = swap(model)
        >>> swapped.paths
        ['layers.0', 'layers.2']
        >>> swapped.restore()
    """
    check_precision("nn.swap", precision)
    if not isinstance(model, mlx_nn.Module):
        raise TypeError(f"[mlx_gemm.nn.swap] model must be an mlx.nn.Module, got {type(model).__name__}")
    if isinstance(model, mlx_nn.Linear):
        raise ValueError(
            "[mlx_gemm.nn.swap] the model is itself a Linear, which cannot be replaced in place: "
            "pass the module that holds it, or build an mlx_gemm.nn.Linear"
        )
    found = list(_places(model, mlx_nn.Linear))
    chosen = [place for place in found if predicate is None or predicate(place.path, place.layer)]
    return Swap(model, chosen, precision)


def _places(
    container: Any, kind: type[mlx_nn.Linear], path: str = "", seen: set[int] | None = None
) -> Iterator[_Place]:
    """Where layers of exactly this type are, as `Module.parameters()` walks: names with an underscore are private."""
    seen = set() if seen is None else seen
    if id(container) in seen:
        return
    seen.add(id(container))
    for key, value in container.items() if isinstance(container, dict) else enumerate(container):
        if isinstance(container, mlx_nn.Module) and str(key).startswith("_"):
            continue
        here = f"{path}.{key}" if path else str(key)
        if type(value) is kind:
            yield _Place(here, container, key, value)
        elif isinstance(value, (dict, list)):
            yield from _places(value, kind, here, seen)


def _replacement(original: mlx_nn.Linear, precision: str | None) -> Linear:
    layer = Linear.__new__(Linear)
    _carry_state(original, layer)
    layer._precision = precision
    return layer


def _carry_state(source: mlx_nn.Linear, target: mlx_nn.Linear) -> None:
    dict.clear(target)
    dict.update(target, source)
    attributes = {name: value for name, value in vars(source).items() if name != "_precision"}
    target.__dict__.update(attributes, _no_grad=set(source._no_grad))
