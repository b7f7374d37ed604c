"""Fixtures that every test may use."""

from __future__ import annotations

import os
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
