"""GGUF files become folders, once, whoever else makes them at the same time. (The real files: `tests/test_models.py`.)"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from algorithms import policy
from algorithms.pools import embedded_path

TINY = str(embedded_path("tiny-llama"))


@pytest.fixture
def gguf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file in whose place Transformers' loader of GGUF files gives the first embedded model."""

    class Tokenizer:
        @staticmethod
        def from_pretrained(folder: Path, gguf_file: str) -> Any:
            return AutoTokenizer.from_pretrained(TINY)

    class Model:
        @staticmethod
        def from_pretrained(folder: Path, gguf_file: str, dtype: torch.dtype) -> Any:
            return AutoModelForCausalLM.from_pretrained(TINY, dtype=dtype)

        from_config = AutoModelForCausalLM.from_config

    monkeypatch.setattr(policy, "AutoTokenizer", Tokenizer)
    monkeypatch.setattr(policy, "AutoModelForCausalLM", Model)
    monkeypatch.setenv("MRL_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    load = policy.AutoModelForCausalLM.from_pretrained

    def loading(*args: Any, **options: Any) -> Any:
        happens()
        return load(*args, **options)

    monkeypatch.setattr(policy.AutoModelForCausalLM, "from_pretrained", loading)


def left(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache" / "gguf").iterdir())


def test_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gguf: Path) -> None:
    folder = policy.dequantized(gguf)
    weights = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    expected = AutoModelForCausalLM.from_pretrained(TINY).state_dict()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    assert (
        AutoTokenizer.from_pretrained(folder)("1 + 1").input_ids
        == AutoTokenizer.from_pretrained(TINY)("1 + 1").input_ids
    )
    before_the_model_is_loaded(monkeypatch, lambda: pytest.fail("it was there already"))
    assert policy.dequantized(gguf) == folder
    assert left(tmp_path) == [folder]


def test_of_two_processes_the_first_ones_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gguf: Path) -> None:
    expected = policy.dequantized(gguf)
    moved = expected.rename(tmp_path / "aside")
    before_the_model_is_loaded(monkeypatch, lambda: moved.rename(expected))
    (moved / "of the first").touch()
    assert policy.dequantized(gguf) == expected
    assert (expected / "of the first").is_file()
    assert left(tmp_path) == [expected]


def test_an_interruption_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gguf: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    before_the_model_is_loaded(monkeypatch, interrupt)
    with pytest.raises(KeyboardInterrupt):
        policy.dequantized(gguf)
    assert left(tmp_path) == []
