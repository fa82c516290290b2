"""mlx_gemm.nn: Linear is a drop-in, and swap can be undone."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers
import numpy as np
import pytest
from mlx.utils import tree_flatten
from reference import assert_within_bound, normal

import mlx_gemm
from mlx_gemm import _ext, demo_model


class Block(nn.Module):
    """Layers as attributes, in a list, and in a dict in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8, bias=False)
        self.heads = [nn.Linear(8, 8), nn.Linear(8, 8)]
        self.named = [{"out": nn.Linear(8, 4)}]

    def __call__(self, x: mx.array) -> mx.array:
        x = self.query(x)
        for head in self.heads:
            x = nn.relu(head(x))
        return self.named[0]["out"](x)


class Scaled(nn.Linear):
    def __call__(self, x: mx.array) -> mx.array:
        return 2 * super().__call__(x)


PATHS = ["query", "heads.0", "heads.1", "named.0.out"]


def parameters(model: nn.Module) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


def layers(model: nn.Module) -> dict[str, nn.Module]:
    return {path: module for path, module in model.named_modules() if isinstance(module, nn.Linear)}


def same_objects(left: dict[str, object], right: dict[str, object]) -> bool:
    return left.keys() == right.keys() and all(left[key] is right[key] for key in left)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_a_drop_in(bias: bool, seed: int) -> None:
    mx.random.seed(seed)
    theirs = nn.Linear(24, 16, bias)
    mx.random.seed(seed)
    ours = mlx_gemm.nn.Linear(24, 16, bias)
    assert repr(ours) == repr(theirs)
    assert isinstance(ours, nn.Linear)
    assert parameters(ours).keys() == parameters(theirs).keys()
    assert all(mx.array_equal(parameters(ours)[name], value) for name, value in parameters(theirs).items())


@pytest.mark.parametrize("bias", [True, False])
def test_linear_runs_our_primitive(bias: bool, seed: int) -> None:
    layer = mlx_gemm.nn.Linear(24, 16, bias)
    x = normal((5, 24), seed)
    before = _ext.counters()["gemm_evals"]
    y = layer(mx.array(x))
    mx.eval(y)
    assert _ext.counters()["gemm_evals"] == before + 1
    offset = np.array(layer.bias) if bias else np.zeros(16, np.float32)
    # The bias is one more step along K, with inputs of 1.
    assert_within_bound(y, np.c_[x, np.ones(5)], np.c_[np.array(layer.weight), offset].T, f"{bias=} {seed=}")


def test_swap_keeps_outputs_parameters_and_repr(seed: int) -> None:
    model = Block()
    x = mx.array(normal((5, 8), seed))
    y, text, arrays = model(x), repr(model), parameters(model)
    mx.eval(y)
    before = _ext.counters()["gemm_evals"]
    swapped = mlx_gemm.nn.swap(model)
    assert (swapped.count, sorted(swapped.paths)) == (4, sorted(PATHS))
    assert all(type(layer) is mlx_gemm.nn.Linear for layer in layers(model).values())
    assert same_objects(parameters(model), arrays)
    assert repr(model) == text
    assert mx.allclose(model(x), y, rtol=1e-5, atol=1e-6)
    assert _ext.counters()["gemm_evals"] == before + 4


def test_restore_brings_back_the_same_objects() -> None:
    model = Block()
    originals = layers(model)
    swapped = mlx_gemm.nn.swap(model)
    swapped.restore()
    assert same_objects(layers(model), originals)
    swapped.restore()
    assert same_objects(layers(model), originals)
    assert (swapped.count, sorted(swapped.paths)) == (4, sorted(PATHS))


def test_restore_keeps_what_happened_since(seed: int) -> None:
    model = Block()
    swapped = mlx_gemm.nn.swap(model)
    x = mx.array(normal((5, 8), seed))
    optimizer = mlx.optimizers.SGD(learning_rate=0.1)
    gradients = nn.value_and_grad(model, lambda x: model(x).square().sum())(x)[1]
    optimizer.update(model, gradients)
    model.heads[0].freeze()
    model.eval()
    trained, y = parameters(model), model(x)
    swapped.restore()
    assert same_objects(parameters(model), trained)
    assert mx.allclose(model(x), y, rtol=1e-5, atol=1e-6)
    assert "heads" not in dict(tree_flatten(model.trainable_parameters()))
    assert model.heads[0].trainable_parameters() == {}
    assert not any(module.training for module in model.modules())


def test_swap_keeps_frozen_and_training_state() -> None:
    model = Block().eval()
    model.freeze()
    model.heads[1].unfreeze(keys="bias")
    trainable = [path for path, _ in tree_flatten(model.trainable_parameters())]
    mlx_gemm.nn.swap(model)
    assert [path for path, _ in tree_flatten(model.trainable_parameters())] == trainable == ["heads.1.bias"]
    assert not any(module.training for module in model.modules())
    model.unfreeze()
    assert len(tree_flatten(model.trainable_parameters())) == 7


def test_freezing_after_a_swap_does_not_reach_the_original() -> None:
    model = Block()
    original = model.query
    mlx_gemm.nn.swap(model)
    model.freeze()
    assert original.trainable_parameters().keys() == {"weight"}


def test_predicate_chooses_layers() -> None:
    model = Block()
    seen: list[tuple[str, nn.Module]] = []

    def predicate(path: str, module: nn.Module) -> bool:
        seen.append((path, module))
        return path.startswith("heads")

    originals = layers(model)
    swapped = mlx_gemm.nn.swap(model, predicate)
    assert swapped.paths == ["heads.0", "heads.1"]
    assert same_objects(dict(seen), originals)
    assert model.query is originals["query"]


def test_a_failing_predicate_changes_nothing() -> None:
    model = Block()
    originals = layers(model)

    def predicate(path: str, module: nn.Module) -> bool:
        if path == "named.0.out":
            raise KeyError(path)
        return True

    with pytest.raises(KeyError):
        mlx_gemm.nn.swap(model, predicate)
    assert same_objects(layers(model), originals)


def test_only_plain_linear_layers_are_replaced() -> None:
    model = nn.Sequential(nn.Linear(64, 64), Scaled(64, 64), nn.Linear(64, 64).to_quantized(), nn.Embedding(4, 64))
    rest = model.layers[1:]
    swapped = mlx_gemm.nn.swap(model)
    assert swapped.paths == ["layers.0"]
    assert all(left is right for left, right in zip(model.layers[1:], rest, strict=True))
    assert mlx_gemm.nn.swap(model).count == 0


def test_a_shared_layer_stays_shared() -> None:
    shared = nn.Linear(8, 8)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    swapped = mlx_gemm.nn.swap(model)
    assert swapped.paths == ["layers.0", "layers.2"]
    assert model.layers[0] is model.layers[2]
    assert type(model.layers[0]) is mlx_gemm.nn.Linear
    swapped.restore()
    assert model.layers[0] is shared is model.layers[2]


def test_a_shared_block_is_swapped_once() -> None:
    block = Block()
    model = nn.Sequential(block, block)
    swapped = mlx_gemm.nn.swap(model)
    assert swapped.count == 4
    swapped.restore()
    assert all(type(layer) is nn.Linear for layer in layers(model).values())


def test_restore_leaves_a_place_that_was_taken_since() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    second = model.layers[1]
    swapped = mlx_gemm.nn.swap(model)
    nn.quantize(model, class_predicate=lambda path, module: path == "layers.0")
    quantized = model.layers[0]
    swapped.restore()
    assert model.layers[0] is quantized
    assert model.layers[1] is second


def test_attributes_survive_a_swap() -> None:
    model = nn.Sequential(nn.Linear(8, 8))
    model.layers[0].label = "first"
    swapped = mlx_gemm.nn.swap(model)
    assert model.layers[0].label == "first"
    model.layers[0].label = "renamed"
    swapped.restore()
    assert model.layers[0].label == "renamed"


def test_weights_load_across_a_swap(tmp_path: Path) -> None:
    model = Block()
    file = str(tmp_path / "weights.safetensors")
    model.save_weights(file)
    other = Block()
    mlx_gemm.nn.swap(other)
    other.load_weights(file)
    assert all(mx.array_equal(parameters(other)[name], value) for name, value in parameters(model).items())


def test_a_linear_itself_cannot_be_swapped() -> None:
    with pytest.raises(ValueError, match="the model is itself a Linear, which cannot be replaced in place"):
        mlx_gemm.nn.swap(nn.Linear(8, 8))


def test_a_model_must_be_a_module() -> None:
    with pytest.raises(TypeError, match=r"model must be an mlx\.nn\.Module, got list"):
        mlx_gemm.nn.swap([nn.Linear(8, 8)])  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["medium", "fast"])
def test_a_bad_precision_changes_nothing(precision: str) -> None:
    model = Block()
    originals = layers(model)
    with pytest.raises(ValueError, match="precision"):
        mlx_gemm.nn.swap(model, precision=precision)
    with pytest.raises(ValueError, match="precision"):
        mlx_gemm.nn.Linear(8, 8, precision=precision)
    assert same_objects(layers(model), originals)


def test_a_llama_gives_the_same_logits(seed: int) -> None:
    config = demo_model.Config(layers=2, width=64, hidden=96, heads=4, vocabulary=50)
    model, _ = demo_model.build(config, seed)
    tokens = mx.random.randint(0, config.vocabulary, (2, 9))
    logits = model(tokens)
    swapped = mlx_gemm.nn.swap(model)
    assert swapped.count == 7 * config.layers + 1
    assert mx.allclose(model(tokens), logits, rtol=1e-4, atol=1e-5)


def test_restore_finds_layers_that_have_moved() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    first, _, last = originals = list(model.layers)
    swapped = mlx_gemm.nn.swap(model)
    model.layers = [nn.ReLU(), *model.layers[:1]]  # shifted, and the last layer is gone
    swapped.restore()
    assert model.layers[1] is first
    model.layers = originals
    assert repr(swapped) == "Swap(count=2, restored)"
    assert last is model.layers[2]


def test_restore_of_a_copied_handle_restores_the_copy() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    swapped = mlx_gemm.nn.swap(model)
    other, other_handle = copy.deepcopy((model, swapped))
    other_handle.restore()
    assert type(other.layers[0]) is nn.Linear
    assert type(model.layers[0]) is mlx_gemm.nn.Linear


def test_private_layers_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model._private = nn.Linear(2, 2)
    assert mlx_gemm.nn.swap(model).paths == ["layers.0"]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["copy", "pickle"]
)
def test_linear_is_copied_and_pickled(clone: Callable, bias: bool, seed: int) -> None:
    layer = mlx_gemm.nn.Linear(7, 5, bias, precision="highest")
    layer.freeze(keys="weight")
    other = clone(layer)
    assert type(other) is mlx_gemm.nn.Linear
    assert repr(other) == repr(layer)
    assert parameters(other).keys() == parameters(layer).keys()
    assert all(mx.array_equal(parameters(other)[name], value) for name, value in parameters(layer).items())
    assert other.trainable_parameters().keys() == layer.trainable_parameters().keys()
    x = mx.array(normal((3, 7), seed))
    before = _ext.counters()["gemm_evals"]
    assert mx.array_equal(other(x), layer(x))
    assert _ext.counters()["gemm_evals"] == before + 2
    other.weight = other.weight * 2
    assert not mx.array_equal(other(x), layer(x))


def test_a_swapped_model_is_copied_and_pickled(seed: int) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    mlx_gemm.nn.swap(model)
    x = mx.array(normal((3, 8), seed))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(type(layer) is mlx_gemm.nn.Linear for layer in layers(other).values())
        assert mx.array_equal(other(x), model(x))
