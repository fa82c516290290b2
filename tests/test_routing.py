"""patch() sends MLX's matmul here and takes it back exactly; disabled() sends this package's to MLX."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from reference import integers

import mlx_gemm
from mlx_gemm import _ext

PLACES = [(mx, "matmul"), (mx, "addmm"), (mx.array, "__matmul__"), (mx.array, "__imatmul__")]


def routed() -> list[object]:
    return [getattr(owner, name) for owner, name in PLACES]


def runs_here(call: Callable[[], object]) -> bool:
    before = _ext.counters()["gemm_evals"]
    mx.eval(call())
    return _ext.counters()["gemm_evals"] > before


@pytest.fixture(autouse=True)
def leaves_mlx_as_it_was() -> Iterator[None]:
    before = routed()
    yield
    assert all(left is right for left, right in zip(routed(), before, strict=True))


@pytest.fixture
def a(seed: int) -> mx.array:
    return mx.array(integers((4, 4), seed))


def test_every_form_is_routed(a: mx.array) -> None:
    forms: dict[str, Callable[[], mx.array]] = {
        "mx.matmul": lambda: mx.matmul(a, a),
        "mx.addmm": lambda: mx.addmm(a, a, a, 2.0, beta=0.5),
        "@": lambda: a @ a,
        "a stream": lambda: mx.matmul(a, a, stream=mx.cpu),
        "a stream of addmm": lambda: mx.addmm(a, a, a, stream=mx.new_stream(mx.cpu)),
    }
    plain = {name: form() for name, form in forms.items()}
    assert not any(runs_here(form) for form in forms.values())
    with mlx_gemm.patch():
        for name, form in forms.items():
            assert runs_here(form), name
            assert mx.array_equal(form(), plain[name]), name
    assert not any(runs_here(form) for form in forms.values())


def test_in_place_products_keep_the_object(a: mx.array) -> None:
    product = a @ a
    with mlx_gemm.patch():
        x = same = a + 0
        x @= a
        assert x is same
        assert runs_here(lambda: x)
    assert mx.array_equal(same, product)


def test_models_and_gradients_run_here(a: mx.array) -> None:
    layer = nn.Linear(4, 3)
    loss = nn.value_and_grad(layer, lambda x: layer(x).square().sum())
    value, gradients = loss(a)
    with mlx_gemm.patch():
        before = _ext.counters()
        patched_value, patched_gradients = loss(a)
        mx.eval(patched_value, patched_gradients)
        after = _ext.counters()
    assert after["gemm_evals"] == before["gemm_evals"] + 2  # forward, and the gradient of the weight
    assert mx.allclose(patched_value, value)
    assert all(mx.allclose(patched_gradients[name], gradients[name], atol=1e-5) for name in gradients)


def test_gradients_outside_the_scope_of_what_was_built_inside(a: mx.array) -> None:
    with mlx_gemm.patch():
        out, gradient = mx.value_and_grad(lambda x: (x @ a).sum())(a)
    before = _ext.counters()["gemm_evals"]
    mx.eval(out, gradient)
    assert _ext.counters()["gemm_evals"] == before + 2
    assert mx.array_equal(gradient, mx.ones((4, 4)) @ a.T)


def test_scopes_nest(a: mx.array) -> None:
    with mlx_gemm.patch():
        with mlx_gemm.patch():
            assert runs_here(lambda: a @ a)
        assert runs_here(lambda: a @ a)
    assert not runs_here(lambda: a @ a)


def test_the_scope_ends_with_an_exception(a: mx.array) -> None:
    before = routed()
    with pytest.raises(ZeroDivisionError), mlx_gemm.patch(), mlx_gemm.patch():
        assert routed() != before
        raise ZeroDivisionError
    assert routed() == before


def test_errors_inside_the_scope_are_ours_and_leave_it_intact(a: mx.array) -> None:
    with mlx_gemm.patch():
        with pytest.raises(ValueError, match=r"\[mlx_gemm.matmul\] expected a.shape"):
            a @ a[:3]
        with pytest.raises(TypeError, match=r"\[mlx_gemm.matmul\] b must be an mlx.core.array"):
            mx.matmul(a, 2.0)
        assert runs_here(lambda: a @ a)


@pytest.mark.parametrize("other", [2.0, None, "text", [[1.0]]], ids=repr)
def test_python_answers_operators_with_what_is_no_array(other: object, a: mx.array) -> None:
    def outcome() -> tuple[type, str]:
        with pytest.raises((TypeError, ValueError)) as error:
            a @ other
        return error.type, str(error.value)

    plain = outcome()
    with mlx_gemm.patch():
        assert outcome() == plain


def test_a_numpy_array_on_either_side_is_as_without_the_scope(a: mx.array) -> None:
    ones = np.ones((4, 4), np.float32)

    def outcome(call: Callable[[], object]) -> object:
        try:
            return np.array(call()).tolist()
        except (TypeError, ValueError) as error:
            return type(error)

    plain = [outcome(lambda: a @ ones), outcome(lambda: ones @ a)]
    with mlx_gemm.patch():
        assert [outcome(lambda: a @ ones), outcome(lambda: ones @ a)] == plain


def test_other_threads_are_not_affected(a: mx.array) -> None:
    seen: list[bool] = []
    with mlx_gemm.patch():
        thread = threading.Thread(target=lambda: seen.append(runs_here(lambda: mx.matmul(a, a, stream=mx.cpu))))
        thread.start()
        thread.join()
        assert runs_here(lambda: a @ a)
    assert seen == [False]


def test_scopes_of_several_threads_overlap(a: mx.array) -> None:
    """The first to come in is the first to go: the others stay routed."""
    before, inside, leave = routed(), threading.Barrier(2), threading.Event()
    seen: list[bool] = []

    def work() -> None:
        with mlx_gemm.patch():
            inside.wait(30)
            leave.wait(30)
            seen.append(mx.matmul is not before[0])
        seen.append(mx.matmul is before[0])

    thread = threading.Thread(target=work)
    with mlx_gemm.patch():
        thread.start()
        inside.wait(30)
    leave.set()
    thread.join()
    assert seen == [True, True]


def test_reach(a: mx.array) -> None:
    """As documented: names that are looked up at the call, and no other operation with a product inside."""
    matmul = mx.matmul
    with mlx_gemm.patch():
        assert not runs_here(lambda: matmul(a, a))
        assert not runs_here(lambda: mx.einsum("ij,jk->ik", a, a))
        assert not runs_here(lambda: mx.inner(a, a))
        assert runs_here(lambda: nn.Linear(4, 4)(a))


def test_compiled_functions_keep_what_they_were_traced_with(a: mx.array) -> None:
    def product(x: mx.array) -> mx.array:
        return x @ x

    outside, inside = mx.compile(product), mx.compile(lambda x: product(x))
    assert not runs_here(lambda: outside(a))
    with mlx_gemm.patch():
        assert not runs_here(lambda: outside(a))
        assert runs_here(lambda: inside(a))
    assert runs_here(lambda: inside(a))
    # New shapes are a new trace.
    assert not runs_here(lambda: inside(a[:2, :2]))


def test_the_scope_as_a_decorator(a: mx.array) -> None:
    @mlx_gemm.patch()
    def product() -> mx.array:
        return a @ a

    assert runs_here(product)
    assert runs_here(product)
    assert not runs_here(lambda: a @ a)


# ---- disabled() ----


def every_op(a: mx.array) -> list[mx.array]:
    return [
        mlx_gemm.matmul(a, a),
        mlx_gemm.addmm(a, a, a, 2.0, 0.5, activation="relu"),
        mlx_gemm.linear(a, a, a[0], activation="silu", residual=a),
        mlx_gemm.nn.Linear(4, 4)(a),
    ]


def test_disabled_lowers_every_op(a: mx.array) -> None:
    expected = every_op(a)[:3]
    with mlx_gemm.disabled():
        before = _ext.counters()
        outs = every_op(a)
        mx.eval(outs)
        after = _ext.counters()
        assert mlx_gemm.explain(a, a).reason == "mlx_gemm.disabled() is in force"
    assert (after["gemm_evals"], after["lowered"]) == (before["gemm_evals"], before["lowered"] + 4)
    assert all(mx.allclose(x, y, atol=1e-5) for x, y in zip(outs, expected, strict=False))
    assert runs_here(lambda: mlx_gemm.matmul(a, a))


def test_disabled_ends_with_an_exception_and_nests(a: mx.array) -> None:
    with pytest.raises(ZeroDivisionError), mlx_gemm.disabled():
        with mlx_gemm.disabled():
            pass
        assert not runs_here(lambda: mlx_gemm.matmul(a, a))
        raise ZeroDivisionError
    assert runs_here(lambda: mlx_gemm.matmul(a, a))


def test_disabled_refuses_a_named_kernel(a: mx.array) -> None:
    with mlx_gemm.disabled(), pytest.raises(ValueError, match=r"kernel naive is named, and mlx_gemm.disabled\(\)"):
        mlx_gemm.matmul(a, a, kernel="naive")


def test_disabled_wins_over_patch(a: mx.array) -> None:
    with mlx_gemm.patch(), mlx_gemm.disabled():
        assert not runs_here(lambda: a @ a)


def test_disabled_is_of_one_thread(a: mx.array) -> None:
    seen: list[bool] = []
    with mlx_gemm.disabled():
        thread = threading.Thread(target=lambda: seen.append(runs_here(lambda: mlx_gemm.matmul(a, a, stream=mx.cpu))))
        thread.start()
        thread.join()
    assert seen == [True]


def test_exporting(a: mx.array, tmp_path: Path) -> None:
    file = str(tmp_path / "function.mlxfn")
    weight, bias = mx.eye(4), mx.ones(4)
    mx.eval(weight, bias)

    def function(x: mx.array) -> mx.array:
        return mlx_gemm.linear(mlx_gemm.matmul(x, weight), weight, bias, activation="gelu_tanh", residual=x)

    with pytest.raises(ValueError, match=r"mlx_gemm\.disabled\(\)"):
        mx.export_function(file, function, a)
    with mlx_gemm.disabled():
        mx.export_function(file, function, a)
    imported = mx.import_function(file)
    assert mx.allclose(imported(a)[0], function(a), rtol=1e-5, atol=1e-4)
