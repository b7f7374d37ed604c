"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def _folder(variable: str, holds: str, required: str) -> Path:
    """The folder that an environment variable names; without it the test is skipped, or fails where `required` is set."""
    folder = os.environ.get(variable, "")
    if folder and Path(folder).is_dir():
        return Path(folder)
    reason = f"{variable} does not name a folder: {holds} are not here"
    if os.environ.get(required):
        pytest.fail(f"{reason}, but {required} is set")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data (`MRL_SHARED`)."""
    return _folder("MRL_SHARED", "shared data, tokenizers and cases", "MRL_REQUIRE_SHARED")


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of the two real models as GGUF files (`MRL_MODELS`)."""
    return _folder("MRL_MODELS", "the real models", "MRL_REQUIRE_MODELS")


@pytest.fixture
def settled_heap() -> Iterator[None]:
    """Leaves all that the process holds already out of garbage collections, for tests that bound the CPU time of a call: going
    through the modules of PyTorch and its like once takes longer than such a call, and may fall into any.
    """
    gc.freeze()
    yield
    gc.unfreeze()
