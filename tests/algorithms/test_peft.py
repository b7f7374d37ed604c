"""LoRA adapters: against PEFT's own wrapper, plain autograd and the base model; in whole runs of the embedded pool."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from algorithms import Trainer, TrainingConfig
from algorithms.adapters import AdapterReference, add_adapter, has_adapter, load_adapter, save_adapter
from algorithms.config import PolicyConfig
from algorithms.devices import Placement, make_plan
from algorithms.learner import Learner, LearnerConfig
from algorithms.logprobs import TokenLogProbs, plain_head
from algorithms.losses import LossConfig
from algorithms.optimization import MasterOptimizer
from algorithms.packing import pack
from algorithms.planning.estimates import operations
from algorithms.policy import Policy, load_policy
from algorithms.pools import embedded_path
from algorithms.rollouts.decoding import packed_weights
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import generate
from algorithms.samples import Sample, make_sample
from algorithms.tracking import TIME_KEYS, read_jsonl
from benchmarks.evaluate import collect
from benchmarks.evaluate.vllm import VllmPolicy

peft = pytest.importorskip("peft", reason="the extra peft is not installed")

MakeLlama = Callable[..., LlamaForCausalLM]

RUN: dict[str, Any] = {
    "use_peft": True,
    "lora_r": 4,
    "learning_rate": 1e-2,
    "problems_per_step": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 40,
    "max_steps": 2,
    "eval_steps": 0,
    "save_steps": 2,
    "save_total_limit": None,
    "num_threads": 1,
}


def run_config(output_dir: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**{**RUN, "output_dir": str(output_dir), "algorithm": "sgt", **changes})


def settings(**changes: Any) -> PolicyConfig:
    return replace(TrainingConfig(use_peft=True, lora_r=4).policies()[0], **changes)


def disturb(model: torch.nn.Module, seed: int = 0, scale: float = 0.3) -> None:
    """Give an adapter other weights, as training would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter_of(model).values():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def adapter_of(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if "lora_" in name}


def adapted(make_llama: MakeLlama, **changes: Any) -> LlamaForCausalLM:
    model = make_llama()
    add_adapter(model, settings(**changes), "")
    disturb(model)
    return model


def rows_of(seed: int = 0) -> list[Sample]:
    """Seven rows behind two prompts of different lengths."""
    rng = np.random.default_rng(seed)
    rows = []
    for length, count in ((7, 4), (2, 3)):
        prompt = rng.integers(3, 64, length).tolist()
        for i in range(count):
            completion = rng.integers(3, 64, int(rng.integers(2, 9))).tolist()
            rows.append(make_sample(prompt, completion, source="me", advantage=1.5 - i))
    return rows


def whole_logprobs(model: torch.nn.Module, rows: Sequence[Sample]) -> torch.Tensor:
    """Row by row, whole logits, no cache."""
    result = torch.zeros(len(rows), max(len(row.token_ids) for row in rows))
    for i, row in enumerate(rows):
        ids = torch.from_numpy(row.token_ids)
        logits = model(input_ids=ids[None], use_cache=False).logits[0, :-1]
        chosen = torch.log_softmax(logits, -1).gather(-1, ids[1:, None])[:, 0]
        result[i, 1 : len(ids)] = torch.where(torch.from_numpy(row.weighted)[1:], chosen, 0.0)
    return result


# A model with an adapter is PEFT's


def test_log_probs_are_those_of_pefts_own_wrapper(make_llama: MakeLlama, tmp_path: Path) -> None:
    model = adapted(make_llama, lora_alpha=7)
    save_adapter(model, tmp_path)
    theirs = peft.PeftModel.from_pretrained(make_llama(), tmp_path)
    rows = rows_of()
    found = TokenLogProbs(model)(pack(rows, "cpu"))
    assert plain_head(model) is model.lm_head, "logits are not made whole"
    with torch.no_grad():
        assert (found - whole_logprobs(theirs, rows)).abs().max() < 1e-5
        assert (found - whole_logprobs(make_llama(), rows)).abs().max() > 0.1, "the adapter does something"


def test_gradients_are_those_of_plain_autograd_on_pefts_own_wrapper(make_llama: MakeLlama, tmp_path: Path) -> None:
    model = adapted(make_llama)
    save_adapter(model, tmp_path)
    theirs = peft.PeftModel.from_pretrained(make_llama(), tmp_path, is_trainable=True)
    rows = rows_of()
    mine = TokenLogProbs(model)(pack(rows, "cpu"))
    weights = torch.linspace(0.3, 1.7, mine.numel()).view_as(mine)
    (mine * weights).sum().backward()
    (whole_logprobs(theirs, rows) * weights).sum().backward()
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.requires_grad}
    assert len(expected) == 2 * 2 * 7, "two matrices in seven layers of two blocks"
    for name, parameter in model.named_parameters():
        wanted = expected.get(f"base_model.model.{name}")
        assert (parameter.grad is None) is (wanted is None), name
        if parameter.grad is not None and wanted is not None:
            assert (parameter.grad - wanted).norm() <= 1e-5 * wanted.norm(), name


def test_a_new_adapter_is_drawn_by_hash_and_changes_nothing(make_llama: MakeLlama) -> None:
    ids = torch.tensor([[5, 6, 7]])
    drawn = []
    for changes in ({}, {}, {"seed": 1}, {"name": "policy_1"}):
        model = make_llama()
        torch.manual_seed(len(drawn))
        state = torch.get_rng_state()
        add_adapter(model, settings(**changes), "")
        assert torch.equal(torch.get_rng_state(), state), "PyTorch's generator is left alone"
        assert torch.equal(model(ids).logits, make_llama()(ids).logits)
        drawn.append(torch.cat([p.detach().flatten() for p in adapter_of(model).values()]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])


def test_recomputed_activations_change_nothing(make_llama: MakeLlama) -> None:
    model, rows = adapted(make_llama), rows_of()
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            model.activation_checkpointing_enable()
            model.train()
        TokenLogProbs(model)(pack(rows, "cpu")).sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in adapter_of(model).values() if p.grad is not None]))
        model.zero_grad()
    assert len(gradients[0]) == len(gradients[1]) > 0
    assert (gradients[0] - gradients[1]).norm() <= 1e-5 * gradients[0].norm()


def test_layers_inside_adapters_are_packed_and_compute_the_same(
    make_llama: MakeLlama, dtype_that_packs: torch.dtype
) -> None:
    model = make_llama(initializer_range=0.02).to(dtype_that_packs)
    add_adapter(model, settings(), "")
    disturb(model)
    attention: Any = model.model.layers[0].self_attn
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        exact = copy.deepcopy(model).double()(ids).logits
        usual = model(ids).logits
        with packed_weights(model):
            layers = (attention.q_proj, attention.k_proj, attention.v_proj)
            products = {layer.base_layer.__dict__["forward"].func for layer in layers}
            assert len(products) == 1, "layers with a common input are one product"
            assert "forward" not in attention.q_proj.__dict__, "the adapter itself is left alone"
            packed = model(ids).logits
    assert (packed - exact).abs().max() <= 1.5 * (usual - exact).abs().max() + 1e-5 * (
        dtype_that_packs == torch.float32
    )
    assert "forward" not in attention.q_proj.base_layer.__dict__


def test_recorded_log_probs_are_those_of_a_fresh_forward_pass() -> None:
    policy = load_policy(settings(model_name_or_path="tiny-llama"), "cpu")
    disturb(policy.model)
    prompts = [policy.text.encode("1+2="), policy.text.encode("13 - 4 =")]
    sampling = SamplingConfig(max_completion_length=20)
    groups = generate(policy.model, prompts, 4, sampling, list(range(8)), policy.eos_token_ids)
    with torch.no_grad():
        for prompt, group in zip(prompts, groups, strict=True):
            for rollout in group:
                row = make_sample(prompt, rollout.token_ids, source="me", nll_weight=1.0)
                fresh = whole_logprobs(policy.model, [row])[0, len(prompt) :]
                assert rollout.logprobs == pytest.approx(fresh.tolist(), abs=1e-4)


# Training


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_update_is_plain_autograds_and_leaves_the_base_alone(
    make_llama: MakeLlama, dtype: torch.dtype, tmp_path: Path
) -> None:
    """One step of SGD at rate 1 against the gradient of -mean of A log p, GRPO's at a ratio of 1, on PEFT's own model."""
    model = make_llama(initializer_range=0.05).to(dtype)
    add_adapter(model, settings(), "")
    disturb(model, scale=0.1)
    save_adapter(model, tmp_path)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    rows = rows_of()
    theirs = peft.PeftModel.from_pretrained(
        make_llama(initializer_range=0.05).to(dtype), tmp_path, is_trainable=True
    ).float()
    advantages = torch.tensor([row.advantages[-1] for row in rows])
    tokens = sum(int(row.weighted.sum()) for row in rows)
    (-(whole_logprobs(theirs, rows).sum(-1) * advantages).sum() / tokens).backward()
    optimizer = MasterOptimizer(model.parameters(), torch.optim.SGD, lr=1.0)
    assert all(master.dtype == torch.float32 for master in optimizer.masters)
    assert len(optimizer.masters) == len(adapter_of(model))
    masters = dict(zip(adapter_of(model), [m.detach().clone() for m in optimizer.masters], strict=True))
    config = LearnerConfig(LossConfig(loss_type="bnpo"), learning_rate=1.0, micro_batch_size=4, max_grad_norm=1e9)
    Learner("me", model, optimizer, config).update([rows])
    moved = dict(zip(adapter_of(model), optimizer.masters, strict=True))
    gradients = dict(theirs.named_parameters())
    # The learner computes in bfloat16 there, the peer in float32.
    tolerance = 1e-4 if dtype == torch.float32 else 0.1
    for name, parameter in model.named_parameters():
        if name not in moved:
            assert torch.equal(parameter, before[name]), f"{name} keeps its bits"
            continue
        wanted = gradients[f"base_model.model.{name}"].grad
        assert wanted is not None and wanted.norm() > 0
        assert ((masters[name] - moved[name]) - wanted).norm() <= tolerance * wanted.norm(), name
        assert torch.equal(parameter, moved[name].to(dtype))


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithm": "grpo"},
        {"algorithm": "xgrpo", "beta": 0.1},
        {"algorithm": "sgt", "dtype": "bf16", "gradient_checkpointing": True},
        {"algorithm": "prp", "num_iterations": 2, "lora_dropout": 0.1},
        {
            "algorithm": "prp",
            "algorithm_options": {"prp_denominator": "trace"},
            "delta": 3.0,
            "offload_optimizer": True,
        },
    ],
    ids=["grpo", "xgrpo", "sgt", "prp-snapshot", "prp-trace"],
)
def test_every_algorithm_trains_adapters_alone(changes: dict[str, Any], tmp_path: Path) -> None:
    trainer = Trainer(run_config(tmp_path, **changes))
    before = {
        name: {key: p.detach().clone() for key, p in policy.model.named_parameters()}
        for name, policy in trainer.policies.items()
    }
    trainer.train()
    for name, policy in trainer.policies.items():
        assert trainer.workers[name].learner.version > 0
        changed = {key for key, p in policy.model.named_parameters() if not torch.equal(p, before[name][key])}
        assert changed and changed <= adapter_of(policy.model).keys()
    losses = [line for line in read_jsonl(tmp_path / "metrics.jsonl") if "train/loss" in line]
    assert losses and all(np.isfinite(line["train/loss"]) for line in losses)


def test_one_policy_may_have_an_adapter_and_another_none(tmp_path: Path) -> None:
    trainer = Trainer(run_config(tmp_path, use_peft=(True, False)))
    assert [has_adapter(policy.model) for policy in trainer.policies.values()] == [True, False]
    first, second = trainer.plan.placements
    assert first.model.trained < first.model.parameters
    assert second.model.trained == second.model.parameters
    trainer.train()
    files = {path.name for path in (tmp_path / "checkpoint-2" / "policy_0").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    assert "model.safetensors" not in files
    assert (tmp_path / "checkpoint-2" / "policy_1" / "model.safetensors").is_file()


# The reference


def test_the_reference_of_a_new_adapter_is_the_base(make_llama: MakeLlama) -> None:
    model, base = make_llama(), make_llama()
    add_adapter(model, settings(lora_dropout=0.5), "")
    reference = AdapterReference(model, 0.7)
    disturb(model)
    packed = pack(rows_of(), "cpu")
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    model.train()
    with torch.no_grad():
        assert torch.equal(reference(packed), TokenLogProbs(base, 0.7)(packed))
    assert model.training
    assert [parameter for parameter in model.parameters() if parameter.requires_grad] == trained
    model.eval()
    with torch.no_grad():
        assert not torch.allclose(TokenLogProbs(model, 0.7)(packed), TokenLogProbs(base, 0.7)(packed), atol=0.1)


def test_the_reference_of_a_loaded_adapter_is_that_adapter(make_llama: MakeLlama) -> None:
    model = adapted(make_llama)
    packed = pack(rows_of(), "cpu")
    with torch.no_grad():
        start = TokenLogProbs(model)(packed)
    reference = AdapterReference(model, 1.0)
    disturb(model, seed=1)
    after = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        assert torch.equal(reference(packed), start)
        assert not torch.allclose(TokenLogProbs(model)(packed), start, atol=0.1)
    assert all(torch.equal(parameter, after[name]) for name, parameter in model.named_parameters())


@pytest.mark.parametrize("loaded", [False, True])
def test_kl_is_to_the_policy_as_it_began(loaded: bool, tmp_path: Path) -> None:
    """0 in the first update and above it in the second; where adapters are loaded, too, and after a resume."""
    changes: dict[str, Any] = {"algorithm": "grpo", "beta": 0.1, "gradient_accumulation_steps": 4, "max_steps": 3}
    if loaded:
        Trainer(run_config(tmp_path / "first", algorithm="grpo", max_steps=1)).train()
        folders = tuple(str(tmp_path / "first" / "checkpoint-1" / f"policy_{i}") for i in range(2))
        changes |= {"model_name_or_path": folders, "use_peft": False}
    Trainer(run_config(tmp_path / "run", **changes)).train()
    lines = [line for line in read_jsonl(tmp_path / "run" / "metrics.jsonl") if "train/kl" in line]
    assert [line["train/kl"] for line in lines if line["step"] == 1] == [0, 0, 0], "two policies, and their mean"
    assert max(line["train/kl"] for line in lines if line["step"] == 3) > 1e-6
    Trainer(run_config(tmp_path / "again", **{**changes, "max_steps": 1})).train()
    Trainer(run_config(tmp_path / "again", **changes, resume_from_checkpoint="auto")).train()
    assert untimed(tmp_path / "again") == untimed(tmp_path / "run")


# Checkpoints


def untimed(run: Path) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in line.items() if not key.removeprefix("train/").startswith(TIME_KEYS)}
        for line in read_jsonl(run / "metrics.jsonl")
    ]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_two_steps_and_two_more_are_four(dtype: str, tmp_path: Path) -> None:
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    Trainer(run_config(straight, dtype=dtype, max_steps=4)).train()
    Trainer(run_config(halted, dtype=dtype)).train()
    Trainer(run_config(halted, dtype=dtype, max_steps=4, resume_from_checkpoint="auto")).train()
    assert untimed(straight) == untimed(halted)
    for name in ("policy_0", "policy_1"):
        mine, theirs = (run / "checkpoint-4" / name / "adapter_model.safetensors" for run in (straight, halted))
        assert mine.read_bytes() == theirs.read_bytes()
        states = [
            torch.load(run / "checkpoint-4/optimizer" / f"{name}.pt", weights_only=True) for run in (straight, halted)
        ]
        torch.testing.assert_close(states[0], states[1], rtol=0, atol=0)


def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    Trainer(run_config(straight, max_steps=3)).train()
    plain = {key: value for key, value in RUN.items() if key not in ("use_peft", "save_total_limit")}
    flags = [f"--{key}={value}" for key, value in {**plain, "max_steps": 3, "save_steps": 1}.items()]
    command = [sys.executable, "-m", "algorithms.sgt", "--use_peft", *flags, "--output_dir", str(killed)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (killed / "checkpoint-1").is_dir():
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    subprocess.run([*command, "--resume_from_checkpoint", "auto"], env=environment, check=True, capture_output=True)
    assert untimed(straight) == untimed(killed)
    for name in ("policy_0", "policy_1"):
        files = [run / "checkpoint-3" / name for run in (straight, killed)]
        for file in ("adapter_model.safetensors", "adapter_config.json"):
            assert (files[0] / file).read_bytes() == (files[1] / file).read_bytes()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A run of one step whose adapters do something."""
    torch.set_num_threads(1)
    trainer = Trainer(run_config(tmp_path_factory.mktemp("finished") / "run", max_steps=1))
    for policy in trainer.policies.values():
        disturb(policy.model)
    trainer.train()
    return trainer


def test_checkpoints_load_with_peft_and_can_be_merged(finished: Trainer) -> None:
    folder = finished.output_dir / "checkpoint-1" / "policy_1"
    base = AutoModelForCausalLM.from_pretrained(embedded_path("tiny-qwen3"), dtype=torch.float32)
    whole = peft.AutoPeftModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([AutoTokenizer.from_pretrained(folder)("12 + 30 =")["input_ids"]])
    with torch.no_grad():
        expected = finished.policies["policy_1"].model.eval()(ids).logits
        assert (expected - base(ids).logits).abs().max() > 0.1
        assert torch.allclose(whole(ids).logits, expected, atol=1e-4)
        merged = peft.PeftModel.from_pretrained(base, folder).merge_and_unload()
        assert type(merged) is type(finished.policies["policy_1"].model)
        assert torch.allclose(merged(ids).logits, expected, atol=1e-3)


def test_a_saved_adapter_is_a_policy(finished: Trainer) -> None:
    """It answers as before, whatever the options of new adapters are, and without a tokenizer of its own, too."""
    folder = finished.output_dir / "checkpoint-1" / "policy_0"
    policy = load_policy(settings(model_name_or_path=str(folder), use_peft=False, lora_r=2), "cpu")
    former = finished.policies["policy_0"]
    prompt = policy.renderer.token_ids([{"role": "user", "content": "1 + 1"}])
    assert texts(policy, prompt) == texts(former, prompt)
    assert adapter_of(policy.model).keys() == {name for name, p in policy.model.named_parameters() if p.requires_grad}


def texts(policy: Policy, prompt: Sequence[int]) -> list[str]:
    [group] = policy.generate([prompt], 4, SamplingConfig(max_completion_length=12), list(range(4)))
    return [completion.text for completion in group]


def test_an_adapter_without_tokenizer_takes_its_models(finished: Trainer, tmp_path: Path) -> None:
    save_adapter(finished.policies["policy_0"].model, tmp_path)
    policy = load_policy(settings(model_name_or_path=str(tmp_path)), "cpu")
    assert policy.tokenizer.get_vocab() == finished.policies["policy_0"].tokenizer.get_vocab()


def test_a_checkpoint_of_adapters_is_evaluated(finished: Trainer) -> None:
    checkpoint = finished.output_dir / "checkpoint-1"
    assert collect._models_in(str(checkpoint)) == [str(checkpoint / "policy_0"), str(checkpoint / "policy_1")]
    assert collect._models_in(str(checkpoint / "policy_0")) == [str(checkpoint / "policy_0")]


def test_vllm_is_not_given_adapters(finished: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.evaluate.vllm.require_vllm", lambda *arguments: None)
    folder = str(finished.output_dir / "checkpoint-1" / "policy_0")
    with pytest.raises(ValueError, match=r"policy_0', an adapter, which backend='vllm' does not load"):
        VllmPolicy(settings(model_name_or_path=folder))


# What it takes


def resting(placement: Placement) -> int:
    """Bytes that are always there."""
    return placement.memory[0, "cpu"].resting


def peak(placement: Placement) -> int:
    """Bytes in an update."""
    return resting(placement) + placement.memory[0, "cpu"].learning


def test_the_plan_counts_gradients_and_moments_of_the_adapter_alone(tmp_path: Path) -> None:
    full, small, small_bf16, with_reference = (
        make_plan(TrainingConfig(device="cpu", **changes)).placements[0]
        for changes in (
            {},
            {"use_peft": True},
            {"use_peft": True, "dtype": "bf16"},
            {"use_peft": True, "beta": 0.1},
        )
    )
    policy = load_policy(TrainingConfig(use_peft=True).policies()[0], "cpu")
    trained, parameters = small.model.trained, small.model.parameters
    assert trained == sum(p.numel() for p in adapter_of(policy.model).values())
    assert parameters == full.model.parameters + trained == sum(p.numel() for p in policy.model.parameters())
    # fp32: weights 4; two moments 8 of the adapter. bf16: weights 2; master 4, moments 8. Gradients of 4 come and go.
    assert resting(small) == 4 * parameters + 8 * trained
    assert resting(small_bf16) == 2 * parameters + 12 * trained
    assert resting(with_reference) == resting(small), "the reference is the model itself"
    assert resting(full) == 12 * full.model.parameters
    # In an update float32 gradients, and one of the head before it is added to the former ones.
    gradients = 4 * (full.model.trained - trained + full.model.head)
    assert peak(full) - resting(full) - (peak(small) - resting(small)) == gradients
    assert operations(small.model, small.work) < operations(full.model, full.work)
    save_adapter(policy.model, tmp_path)
    loaded = make_plan(TrainingConfig(device="cpu", model_name_or_path=str(tmp_path), beta=0.1)).placements[0]
    assert resting(loaded) == resting(small) + 4 * trained, "a copy of the adapter as it began"


# Mistakes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"use_peft": (True, False, True)}, ["use_peft has 3 values for 2 policies"]),
        ({"use_peft": "yes"}, ["use_peft='yes' is no bool"]),
        ({"lora_r": 0}, ["lora_r=0", "at least 1"]),
        ({"lora_alpha": 0}, ["lora_alpha=0", "at least 1"]),
        ({"lora_dropout": 1.0}, ["lora_dropout=1.0", "[0, 1)"]),
        ({"lora_target_modules": ()}, ["lora_target_modules=()", "all-linear"]),
        ({"lora_target_modules": ("all-linear", "q_proj")}, ["lora_target_modules=", "all-linear alone"]),
    ],
)
def test_mistakes_name_field_value_and_remedy(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValueError) as error:
        TrainingConfig(**changes)
    for word in words:
        assert word in str(error.value)


def test_unknown_target_modules_are_named_before_anything_is_loaded() -> None:
    with pytest.raises(
        ValueError, match=r"lora_target_modules has 'q_prj', .*use some of .*q_proj.*, or all-linear alone"
    ):
        make_plan(TrainingConfig(use_peft=True, lora_target_modules=("v_proj", "q_prj")))
    with pytest.raises(ValueError, match=r"lora_target_modules has 'mlp'"):
        make_plan(TrainingConfig(use_peft=True, lora_target_modules="mlp"))


def test_only_the_named_layers_are_adapted(make_llama: MakeLlama) -> None:
    model = make_llama()
    add_adapter(model, settings(lora_target_modules=("q_proj", "lm_head")), "")
    assert {name.split(".lora_")[0].rpartition(".")[2] for name in adapter_of(model)} == {"q_proj", "lm_head"}
    assert plain_head(model) is None
    disturb(model)
    rows = rows_of()
    with torch.no_grad():
        found = TokenLogProbs(model)(pack(rows, "cpu"))
        assert (found - whole_logprobs(model, rows)).abs().max() < 1e-4


def test_without_peft_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, finished: Trainer) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"use_peft=True needs PEFT; install it with: pip install 'mutual-rl\[peft\]'"):
        make_plan(TrainingConfig(use_peft=True))
    folder = str(finished.output_dir / "checkpoint-1" / "policy_0")
    with pytest.raises(ValueError, match=r"policy_0' is an adapter, which needs PEFT"):
        make_plan(TrainingConfig(model_name_or_path=folder))


def test_adapters_that_do_not_fit_are_refused(finished: Trainer, make_llama: MakeLlama, tmp_path: Path) -> None:
    save_adapter(adapted(make_llama), tmp_path / "adapter")
    with pytest.raises(RuntimeError, match=r"weights are only in .* or only in the model"):
        load_adapter(finished.policies["policy_0"].model, tmp_path / "adapter")
    adapter_config = tmp_path / "adapter" / "adapter_config.json"
    adapter_config.write_text(json.dumps({**json.loads(adapter_config.read_text()), "base_model_name_or_path": None}))
    with pytest.raises(ValueError, match="names no base_model_name_or_path"):
        load_policy(settings(model_name_or_path=str(tmp_path / "adapter")), "cpu")
    own = finished.output_dir / "checkpoint-1" / "policy_0"
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "adapter_config.json").write_bytes((own / "adapter_config.json").read_bytes())
    with pytest.raises(ValueError, match=r"cannot get its adapter; check the files"):
        load_policy(settings(model_name_or_path=str(broken)), "cpu")


def test_a_run_is_not_resumed_with_another_kind_of_weights(finished: Trainer, tmp_path: Path) -> None:
    checkpoint = str(finished.output_dir / "checkpoint-1")
    for changes in ({"use_peft": False}, {"lora_r": 8}):
        with pytest.raises(ValueError, match=r"holds another model than policy_0 is; resume with the same models"):
            Trainer(run_config(tmp_path / "run", **changes, resume_from_checkpoint=checkpoint))


# Four bits


def test_four_bits_need_an_adapter_and_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"load_in_4bit=True, but policy_1 trains all of its weights; .*use_peft"):
        make_plan(TrainingConfig(load_in_4bit=True, use_peft=(True, False)))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else found(name))
    with pytest.raises(ValueError, match=r"load_in_4bit=True needs bitsandbytes; install it with"):
        load_policy(settings(load_in_4bit=True), "cpu")


def four_bit_run(make_llama: MakeLlama, device: str, tmp_path: Path) -> None:
    """With a model whose rows are whole blocks of 64, as bitsandbytes wants them on a CPU."""
    folder = str(tmp_path / "model")
    make_llama(vocab_size=512, hidden_size=64).save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_path("tiny-llama")).save_pretrained(folder)
    changes: dict[str, Any] = {"model_name_or_path": folder, "load_in_4bit": True, "dtype": "bf16", "device": device}
    config = run_config(tmp_path / "run", **changes, beta=0.1, algorithm="grpo")
    trainer = Trainer(config)
    policy = trainer.policies["policy_0"]
    model: Any = policy.model
    weight = model.model.layers[0].self_attn.q_proj.base_layer.weight
    assert weight.dtype == torch.uint8 and weight.device == torch.device(device)
    [whole] = make_plan(replace(config, load_in_4bit=(False,))).placements
    assert trainer.plan.placements[0].memory[0, device].resting < whole.memory[0, device].resting
    packed, reference = pack(rows_of(), device), trainer.workers["policy_0"].learner._reference
    assert reference is not None
    with torch.no_grad():
        before = reference(packed)
    trainer.train()
    with torch.no_grad():
        assert torch.equal(reference(packed), before), "the four bits stay as they are"
    TokenLogProbs(model)(packed).sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())
    assert sum(
        bool(master.grad.any())
        for master in trainer.workers["policy_0"].learner.optimizer.masters
        if master.grad is not None
    )
    again = Trainer(replace(config, max_steps=3, resume_from_checkpoint="auto"))
    again.train()
    assert (tmp_path / "run" / "checkpoint-3" / "policy_0" / "adapter_model.safetensors").is_file()


def test_four_bits_on_a_cpu(make_llama: MakeLlama, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    four_bit_run(make_llama, "cpu", tmp_path)


@pytest.mark.gpu
def test_four_bits_on_a_gpu(make_llama: MakeLlama, tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    four_bit_run(make_llama, "cuda:0", tmp_path)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_adapters_train_on_a_gpu(dtype: str, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    trainer = Trainer(run_config(tmp_path / "run", dtype=dtype, beta=0.1, device="cuda:0"))
    trainer.train()
    assert all(worker.learner.version > 0 for worker in trainer.workers.values())
    assert all(policy.model.device.type == "cuda" for policy in trainer.policies.values())
