"""MWRA, Multi-Worker Resource Allocation, on one machine: which policy runs where, what it needs, and whether it fits.

The plan is made from the models' configurations alone and printed before any weights are loaded. `shared` lets the policies
take turns on the devices; `dedicated` gives each policy its own.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from algorithms.adapters import add_adapter, has_adapter, is_adapter_folder
from algorithms.config import PolicyConfig, TrainingConfig
from algorithms.policy import TORCH_DTYPES, load_model_config, model_source
from algorithms.tracking import table

GIB = 1024**3

_BYTES = {"fp32": 4, "bf16": 2}

_BYTES_IN_4BIT = 0.5625
"""Bytes of a weight in four bits, with a float32 scale for every 64."""

_TINY = 5_000_000
"""Parameters below which a second CPU thread costs more than it brings."""

_SECONDS_PER_LAYER = 5e-4
"""What a layer of a tiny model takes on a CPU: the overhead of its calls."""


@dataclass(frozen=True)
class Need:
    """What one policy takes, estimated from its architecture.

    Attributes:
        parameters: of the model, an adapter included.
        trained: how many of them are trained.
        weights: bytes of weights, gradients, optimizer state and (with beta > 0) the initial policy.
        training: bytes of activations and logits of one micro-batch.
        rollout: bytes of the key-value cache and logits of one batch of rows.
        flops: floating-point operations of one step: 2 per parameter and token to sample, 6 to learn (4 if frozen).
        layer_calls: layers executed one after another in one step, each of which takes some time however small it is.
    """

    parameters: int
    trained: int
    weights: int
    training: int
    rollout: int
    flops: float
    layer_calls: int

    @property
    def total(self) -> int:
        """Bytes at the peak: rollout and update alternate, so the larger of the two counts."""
        return self.weights + max(self.training, self.rollout)


@dataclass(frozen=True)
class Placement:
    """One line of the plan: a policy, its device and its share of the step.

    Attributes:
        policy: its settings.
        device: where it runs.
        need: what it takes.
        share: its part of the step's floating-point operations, in [0, 1].
    """

    policy: PolicyConfig
    device: str
    need: Need
    share: float


@dataclass(frozen=True)
class Plan:
    """Where every policy runs.

    Attributes:
        placements: one per policy, in order.
        capacity: bytes of memory of each device.
        threads: CPU threads of PyTorch.
    """

    placements: tuple[Placement, ...]
    capacity: dict[str, int]
    threads: int

    def device(self, name: str) -> str:
        """The device of a policy."""
        return next(placement.device for placement in self.placements if placement.policy.name == name)

    def seconds_per_step(self) -> float:
        """A rough guess of a step's time; the policies take turns.

        Each device is asked for its speed at matrix products; models reach about a third of it.
        """
        seconds = 0.0
        for placement in self.placements:
            need, dtype = placement.need, TORCH_DTYPES[placement.policy.dtype]
            seconds += 3 * need.flops / matmul_speed(placement.device, dtype) + need.layer_calls * _SECONDS_PER_LAYER
        return seconds

    def __str__(self) -> str:
        rows = [
            (
                p.policy.name,
                p.policy.model_name_or_path,
                p.policy.algorithm,
                p.device,
                p.policy.dtype,
                _millions(p.need),
                str(p.policy.per_device_train_batch_size),
                _readable(p.need.total),
                f"{p.share:.0%}",
            )
            for p in self.placements
        ]
        header = ("policy", "model", "algorithm", "device", "dtype", "parameters", "micro-batch", "memory", "compute")
        used = ", ".join(
            f"{device}: {_readable(sum(p.need.total for p in self.placements if p.device == device))} of {_readable(size)}"
            for device, size in self.capacity.items()
        )
        return f"{table(header, rows)}\nestimated memory on {used}; CPU threads: {self.threads}"


def make_plan(config: TrainingConfig) -> Plan:
    """Place the policies of a run.

    Raises:
        ValueError: if a device does not exist, there are too few for `dedicated`, or the policies do not fit.
    """
    policies = config.policies()
    devices = available_devices(config.device)
    if config.placement == "dedicated" and len(devices) < len(policies):
        raise ValueError(
            f"placement='dedicated' needs one device for each of {len(policies)} policies, but device={devices}; "
            "list more devices, or use placement='shared'"
        )
    needs = [
        estimate(policy, load_model_config(policy), config, devices[i % len(devices)])
        for i, policy in enumerate(policies)
    ]
    total = sum(need.flops for need in needs)
    placements = tuple(
        Placement(policy, devices[i % len(devices)], need, need.flops / total)
        for i, (policy, need) in enumerate(zip(policies, needs, strict=True))
    )
    capacity = {device: memory_of(device) for device in devices}
    plan = Plan(placements, capacity, config.num_threads or threads_for(placements))
    refuse_overload(plan)
    return plan


def refuse_overload(plan: Plan) -> None:
    """Refuse a plan that cannot fit.

    Raises:
        ValueError: naming the device, what it would need, and what would help.
    """
    load: defaultdict[str, int] = defaultdict(int)
    for placement in plan.placements:
        load[placement.device] += placement.need.total
    for device, needed in load.items():
        if needed > plan.capacity[device]:
            raise ValueError(
                f"device={device!r} has {_readable(plan.capacity[device])}, but its policies need about {_readable(needed)}; "
                "lower per_device_train_batch_size, generation_batch_size or max_completion_length, use dtype bf16 or "
                "gradient_checkpointing, or add devices\n"
                f"{plan}"
            )


def threads_for(placements: Sequence[Placement]) -> int:
    """CPU threads that pay: one for a pool of tiny models, whose calls are shorter than waking a second thread."""
    tiny = all(p.device == "cpu" and p.need.parameters < _TINY for p in placements)
    return 1 if tiny else torch.get_num_threads()


def available_devices(wanted: Sequence[str]) -> list[str]:
    """The devices that `device` means.

    Raises:
        ValueError: if one does not exist here.
    """
    cuda = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if tuple(wanted) == ("auto",):
        return cuda or ["cpu"]
    for device in wanted:
        if device != "cpu" and device not in cuda:
            raise ValueError(
                f"device={device!r} does not exist here; use one of cpu{''.join(', ' + d for d in cuda)}, or auto"
            )
    return list(wanted)


def memory_of(device: str) -> int:
    """Bytes of memory that a device has in all."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(torch.cuda.get_device_properties(device).total_memory)


def estimate(policy: PolicyConfig, architecture: PreTrainedConfig, config: TrainingConfig, device: str) -> Need:
    """What a policy needs, from its architecture and its adapter, on a device.

    Activations are counted as 16 values of the model's width and 3 of the feed-forward's per layer and token, a rule of thumb
    for a transformer's backward pass. The rows of a forward pass are counted as those of one prompt, which is computed once.
    Logits are never whole in the update; while sampling there is one row of them for each completion.
    """
    source = model_source(policy.model_name_or_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(architecture, trust_remote_code=policy.trust_remote_code)
        add_adapter(model, policy, source)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    if policy.load_in_4bit and not has_adapter(model):
        raise ValueError(
            f"load_in_4bit=True, but {policy.name} trains all of its weights; set use_peft too, or leave load_in_4bit out"
        )
    text = architecture.get_text_config()
    size = _BYTES[policy.dtype]
    # Two float32 moments of AdamW; bf16 models have float32 masters too. On a CPU all of it may lie in a file.
    state = 8 + (0 if policy.dtype == "fp32" else 4)
    if config.offload_optimizer and device == "cpu":
        state = 0
    gradients = 4  # float32, also for bf16 models
    weights = parameters * size + trained * (gradients + state)
    if policy.load_in_4bit:
        weights -= int(_linear_parameters(model) * (size - _BYTES_IN_4BIT))
    if config.beta and (not has_adapter(model) or is_adapter_folder(source)):
        weights += trained * size  # what was trained as it began; without a new adapter a model is as it began
    prompt = 256
    length = prompt + config.max_completion_length
    layers, width = text.num_hidden_layers, text.hidden_size
    feed_forward = getattr(text, "intermediate_size", 4 * width)
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or width // text.num_attention_heads
    per_token = size * layers * (2 * width if config.gradient_checkpointing else 16 * width + 3 * feed_forward)
    rows = policy.per_device_train_batch_size
    tokens_at_once = rows * (length if config.gradient_checkpointing else config.max_completion_length) + prompt
    training = tokens_at_once * per_token
    if not has_adapter(model):
        training += size * width * text.vocab_size  # the gradient of the head
    generated = config.problems_per_step * config.num_generations
    batch = min(config.generation_batch_size, generated)
    rollout = batch * (2 * size * layers * heads * head_size * length + size * text.vocab_size)
    tokens = generated * config.max_completion_length
    micro_batches = -(-generated // rows) * config.num_iterations
    return Need(
        parameters,
        trained,
        weights,
        training,
        rollout,
        flops=tokens * (2 * parameters + config.num_iterations * (4 * parameters + 2 * trained)),
        layer_calls=layers * (config.max_completion_length * -(-generated // batch) + 3 * micro_batches),
    )


def matmul_speed(device: str, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a device at matrix products, measured once in a fraction of a second."""
    size = 1024 if device == "cpu" else 8192
    left = torch.ones(size, size, device=device, dtype=dtype)
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        result = left @ left
        float(result[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def _linear_parameters(model: PreTrainedModel) -> int:
    """Parameters that are kept in four bits: those of the linear layers, but the head's and the adapter's."""
    head, adapter = model.get_output_embeddings(), {id(p) for p in model.parameters() if p.requires_grad}
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
    return sum(layer.weight.numel() for layer in linear if id(layer.weight) not in adapter)


def _millions(need: Need) -> str:
    """How many parameters there are, and how many of them are trained."""
    every = f"{need.parameters / 1e6:.1f} M"
    return every if need.trained == need.parameters else f"{need.trained / 1e6:.1f} M of {every}"


def _readable(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB / 10 else f"{size / 1024**2:.0f} MiB"
