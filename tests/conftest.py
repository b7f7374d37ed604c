"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared data (`MRL_SHARED`); tests that ask for it are skipped where it is absent."""
    folder = os.environ.get("MRL_SHARED", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("MRL_SHARED does not name a folder: shared data, tokenizers and cases are not here")
    return Path(folder)
