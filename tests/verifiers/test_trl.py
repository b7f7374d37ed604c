"""Verifiers as reward functions of TRL's trainer, and TRL's reward functions as verifiers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from algorithms.pools import embedded_path
from mrl_env.problems.arithmetic import Arithmetic
from verifiers import Verdict
from verifiers.trl import RewardFunctionVerifier, as_reward_function

REASON = "TRL (extra `dev`) is not installed"


def test_a_verifier_rewards_a_step_of_trls_trainer(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason=REASON)
    datasets = pytest.importorskip("datasets", reason=REASON)
    problems = [Arithmetic(subjects=["mult"])[i] for i in range(8)]
    columns = {
        "prompt": [[dict(message) for message in problem.messages] for problem in problems],
        "solution": [problem.answer for problem in problems],
    }
    spelled: list[float | None] = []

    def same_spelling(completions: list[list[dict[str, str]]], solution: list[str], **columns: Any) -> list[float]:
        """1 for the reference itself in a box: plain integers, so that no other answer is equal to it."""
        scores = [float(rf"\boxed{{{gold}}}" in c[0]["content"]) for c, gold in zip(completions, solution, strict=True)]
        spelled.extend(scores)
        return scores

    folder = embedded_path("tiny-qwen3")
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(folder),
        reward_funcs=[as_reward_function("math", answer_column="solution"), same_spelling],
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=16,
            num_generations=2,
            max_completion_length=64,
            max_steps=1,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
        ),
        train_dataset=datasets.Dataset.from_dict(columns),
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    assert len(spelled) == 16
    assert logged["rewards/math/mean"] == pytest.approx(sum(spelled) / 16)
    assert 0 < logged["rewards/math/mean"] < 1  # the model solves a part of these
    assert logged["reward"] == pytest.approx(2 * sum(spelled) / 16)


def test_trls_own_reward_functions_judge_as_verifiers() -> None:
    rewards = pytest.importorskip("trl.rewards", reason=REASON)
    verifier = RewardFunctionVerifier(rewards.think_format_reward, conversational=True)
    assert verifier.verify("<think>one and one</think>2", "2") == Verdict(1.0, "<think>one and one</think>2", "right")
    assert verifier.verify("one and one is 2", "2").reason == "wrong"


def test_trls_accuracy_reward_judges_as_a_verifier() -> None:
    rewards = pytest.importorskip("trl.rewards", reason=REASON)
    pytest.importorskip("math_verify", reason="Math-Verify, which this reward function calls, is not installed")
    verifier = RewardFunctionVerifier(rewards.accuracy_reward, answer_column="solution", conversational=True)
    assert verifier.verify(r"My answer is \boxed{0.5}", r"$\frac12$").success
    assert verifier.verify(r"My answer is \boxed{0.6}", r"$\frac12$").reason == "wrong"
