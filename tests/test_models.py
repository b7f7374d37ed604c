"""The real small pool: SmolLM2-135M-Instruct and Gemma-3-270M from GGUF files (`MRL_MODELS`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from algorithms import Trainer, TrainingConfig
from algorithms.policy import Policy, load_policy
from algorithms.precision import is_slow
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.tracking import read_jsonl
from mrl_env.types import user_message

pytestmark = pytest.mark.models

GGUF = ("SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m.gguf")


def config(models: Path, **changes: object) -> TrainingConfig:
    values: dict[str, object] = {
        "model_name_or_path": tuple(str(models / name) for name in GGUF),
        "chat_template": (None, "plain"),
        "problems": "arithmetic",
        "problem_options": {"levels": [1]},
        "problems_per_step": 2,
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
        "max_completion_length": 24,
        "eval_steps": 0,
    }
    return TrainingConfig(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[0, 1], ids=["smollm2", "gemma3"])
def policy(request: pytest.FixtureRequest, models: Path) -> Policy:
    return load_policy(config(models).policies()[request.param], "cpu")


def test_the_prompt_has_one_beginning_of_sequence_and_no_more(policy: Policy) -> None:
    prompt = policy.renderer.token_ids(user_message("What is 7 + 5?"))
    bos = policy.tokenizer.bos_token_id
    if "gemma" in policy.model.config.model_type:
        assert prompt[0] == bos and prompt.count(bos) == 1
    else:
        # SmolLM2's template opens each message with <|im_start|>, which is also its beginning of sequence.
        assert policy.tokenizer.decode(prompt).endswith("<|im_start|>assistant\n")
        assert prompt.count(bos) == policy.renderer.text(user_message("What is 7 + 5?")).count("<|im_start|>")


def test_logprobs_recorded_while_sampling_are_those_of_a_fresh_forward_pass(policy: Policy) -> None:
    prompts = [policy.renderer.token_ids(user_message(text)) for text in ("What is 7 + 5?", "Name a prime above 10.")]
    groups = policy.generate(prompts, 3, SamplingConfig(max_completion_length=12), seeds=list(range(6)))
    for prompt, group in zip(prompts, groups, strict=True):
        for completion in group:
            ids = torch.tensor([[*prompt, *completion.token_ids]])
            with torch.inference_mode():
                logits = policy.model(input_ids=ids).logits[0, len(prompt) - 1 : -1].double()
            expected = torch.log_softmax(logits, -1).gather(-1, ids[0, len(prompt) :, None])[:, 0]
            np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=2e-4)


@pytest.mark.parametrize("algorithm", ["sgt", "prp"])
def test_both_train_and_load_in_plain_transformers(models: Path, tmp_path: Path, algorithm: str) -> None:
    # Rewards by the length of the answer, so that both models have groups with spread whatever they can do. A CPU without
    # instructions for bfloat16 would take many minutes; there, too, it is tested with small models.
    dtype = "fp32" if is_slow("bf16", "cpu") else "bf16"
    run = config(
        models, algorithm=algorithm, dtype=dtype, max_steps=1, output_dir=str(tmp_path / "run"),
        verifier=f"{__name__}:Short",
    )  # fmt: skip
    trainer = Trainer(run)
    trainer.train()
    lines = {line["policy"]: line for line in read_jsonl(tmp_path / "run" / "metrics.jsonl")}
    for name in ("policy_0", "policy_1"):
        assert lines[name]["train/policy_version"] > 0
        assert np.isfinite(lines[name]["train/grad_norm"]) and lines[name]["train/grad_norm"] > 0
        folder = tmp_path / "run" / "checkpoint-1" / name
        model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        tokens = model.generate(**tokenizer("2 + 2 =", return_tensors="pt"), max_new_tokens=4, do_sample=False)
        assert len(tokenizer.decode(tokens[0])) > 0


class Short:
    """Full marks for a completion of fewer than 60 characters."""

    def verify(self, completion: str, answer: str, **metadata: object) -> object:
        from verifiers import Verdict

        return Verdict(float(len(completion) < 60))
