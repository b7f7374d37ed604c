"""Number formats that this machine is slow in are warned of, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from algorithms import TrainingConfig
from algorithms.devices import make_plan
from algorithms.planning.cluster import described
from algorithms.policy import load_policy
from algorithms.precision import bfloat16_slowdown, is_slow, warn_if_slow


@pytest.fixture(autouse=True)
def nothing_said_yet() -> Iterator[None]:
    warn_if_slow.cache_clear()
    yield
    warn_if_slow.cache_clear()


def slowdown(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("algorithms.precision.bfloat16_slowdown", lambda: value)


def test_a_plan_and_its_policies_warn_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    slowdown(12.3, monkeypatch)
    config = TrainingConfig(dtype="bf16", device="cpu")
    make_plan(config)
    load_policy(config.policies()[0], "cpu")
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    for part in ("dtype='bf16'", "12 times", "set dtype fp32"):
        assert part in said[0].getMessage()


def test_a_policy_that_is_loaded_alone_warns(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    slowdown(12.3, monkeypatch)
    load_policy(replace(TrainingConfig().policies()[0], dtype="bf16"), "cpu")
    assert "dtype='bf16'" in caplog.text


@pytest.mark.parametrize(("dtype", "value"), [("fp32", 12.3), ("bf16", 0.6)])
def test_what_is_fast_is_not_warned_of(
    dtype: str, value: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slowdown(value, monkeypatch)
    make_plan(TrainingConfig(dtype=dtype, device="cpu"))
    assert not caplog.records


def test_another_cluster_says_nothing_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slowdown(12.3, monkeypatch)
    make_plan(TrainingConfig(dtype="bf16"), described({"gpus": 1, "gpu_memory": "80GiB"}))
    assert not caplog.records


def test_gpus_are_not_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    slowdown(12.3, monkeypatch)
    warn_if_slow("bf16", "cuda")
    assert not caplog.records


def test_the_slowdown_is_the_ratio_of_the_fastest_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only products move: 2 seconds in float32, 9 in bfloat16, and the first of each takes 100."""
    now, seen = 0.0, set()

    def product(inputs: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        nonlocal now
        first = inputs.dtype not in seen
        seen.add(inputs.dtype)
        now += 100 if first else {torch.float32: 2, torch.bfloat16: 9}[inputs.dtype]
        return inputs

    monkeypatch.setattr("algorithms.precision.time.perf_counter", lambda: now)
    monkeypatch.setattr("torch.nn.functional.linear", product)
    bfloat16_slowdown.cache_clear()
    try:
        assert bfloat16_slowdown() == 4.5
        assert is_slow("bf16", "cpu")
    finally:
        bfloat16_slowdown.cache_clear()
