"""Metrics by hand: what a step says of completions, and of what crossed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from algorithms.metrics import UpdateMeter, completion_metrics, exchange_metrics
from algorithms.samples import Group, make_sample
from mrl_env.tokenization import Retokenizer, TextTokenizer
from mrl_env.types import Experience

MakeGroup = Callable[..., Group]


def test_completions_by_hand(make_group: MakeGroup) -> None:
    solved = make_group([1.0, 0.0, 0.0, 0.0])
    # Three times 0.1 has no spread, though a naive deviation of it is 1.7e-17; one completion was cut off.
    constant = make_group([0.1, 0.1, 0.1, None])
    shortened = replace(constant.completions[0], token_ids=(5,), logprobs=(-1.0,), finish_reason="length", entropy=2.0)
    constant = replace(constant, completions=(shortened, *constant.completions[1:]))
    metrics = completion_metrics([solved, constant])
    assert metrics == pytest.approx(
        {
            "reward": (1.0 + 0.3) / 7,
            # Sample deviation of 1, 0, 0, 0 is a half.
            "reward_std": 0.25,
            "frac_reward_zero_std": 0.5,
            "success": 0.5,
            "completions/mean_length": (7 * 3 + 1) / 8,
            "completions/min_length": 1,
            "completions/max_length": 3,
            "completions/clipped_ratio": 1 / 8,
            "completions/mean_terminated_length": 3,
            # Only one completion has an entropy.
            "entropy": 2.0,
            "verdicts/right": 1 / 8,
            "verdicts/wrong": 6 / 8,
            "verdicts/error": 1 / 8,
        }
    )


def test_what_crossed_by_hand(byte_text: TextTokenizer, make_record: Callable[..., Experience]) -> None:
    def row(source: str, nll_weight: float = 0.0) -> object:
        return make_sample((3,), (4, 5), source=source, advantage=0.0, nll_weight=nll_weight)

    problems = [
        [row("me"), row("me")],
        [row("me"), row("a", 0.1)],
        [row("me"), row("b", 0.1), row("a")],
        [row("me"), row("a", 0.1), row("b", 0.1)],
    ]
    retokenize = Retokenizer(byte_text, 6)
    for i, text in enumerate(["right", "far too long", "also far too long", "ok"]):
        retokenize(make_record(text, 1.0, index=i))
    metrics = exchange_metrics("me", problems, retokenize)  # type: ignore[arg-type]
    assert metrics == {
        "exchange/peer_rows": 5.0,
        "exchange/rescue_rate": 0.75,
        "exchange/rescue_rate/from_a": 0.5,
        "exchange/rescue_rate/from_b": 0.5,
        "exchange/drop_rate": 0.5,
        "exchange/drop_rate/too_long": 0.5,
        "exchange/residual_bound": 0.0,
    }


def test_means_are_weighted() -> None:
    meter = UpdateMeter()
    meter.mean("kl", 1.0, weight=3)
    meter.mean("kl", 5.0, weight=1)
    meter.count("rows", 2)
    meter.count("rows", 3)
    assert meter.result() == {"kl": 2.0, "rows": 5.0}


def test_ratios_of_peers_by_hand() -> None:
    # Tokens with ratios 1, 1, 1 and 5 in two micro-batches of three and one.
    meter = UpdateMeter()
    meter.mean("exchange/ratio_mean", 1.0, weight=3)
    meter.mean("exchange/ratio_square_mean", 1.0, weight=3)
    meter.mean("exchange/ratio_mean", 5.0, weight=1)
    meter.mean("exchange/ratio_square_mean", 25.0, weight=1)
    # (1 + 1 + 1 + 5)^2 / (4 (1 + 1 + 1 + 25)) = 64 / 112
    assert meter.result() == pytest.approx(
        {"exchange/ratio_mean": 2.0, "exchange/ratio_variance": 3.0, "exchange/effective_sample_size": 64 / 112}
    )


def test_ratios_that_all_underflow_have_no_sample_size() -> None:
    meter = UpdateMeter()
    meter.mean("exchange/ratio_mean", 0.0)
    meter.mean("exchange/ratio_square_mean", 0.0)
    assert meter.result() == {"exchange/ratio_mean": 0.0, "exchange/ratio_variance": 0.0}
