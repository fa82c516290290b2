"""Seeds and device for every test."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import settings

# Derandomised: a failing example is found again by running the test again.
settings.register_profile("seeded", derandomize=True, deadline=None)
settings.load_profile("seeded")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed that follows from the test's name, so that the name alone repeats a failure."""
    return zlib.crc32(request.node.nodeid.encode())


@pytest.fixture(scope="session")
def build_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where modules of the host runtime are built; tests with the same flags share its objects."""
    return tmp_path_factory.mktemp("host_modules")


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    """Tests run on the CPU, where every kernel runs through the host runtime."""
    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)
