"""What a policy takes: bytes and seconds, counted from its architecture.

Memory is counted tensor by tensor: what the learner and the sampler of this repository keep (see docs/performance.md). Seconds
are operations over the share of the hardware's speed that was seen to be reached; they are good for comparing policies and
plans, and no more than an order of magnitude by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from algorithms.adapters import add_adapter, has_adapter, is_adapter_folder
from algorithms.config import PolicyConfig, TrainingConfig
from algorithms.planning.cluster import Cluster, Kind
from algorithms.policy import model_source
from algorithms.rollouts.vllm import cpu_cache_bytes

PROCESS_BYTES = {"cpu": 450 << 20, "cuda": 1 << 30}
"""What a process takes by itself: in memory for PyTorch and Transformers, as measured; on a GPU for CUDA's context."""

VLLM_BYTES = 600 << 20
"""What vLLM takes on a CPU by itself, as measured: its modules and its buffers."""

_TINY = 5_000_000
"""Parameters below which a second CPU thread costs more than it brings."""

_PROMPT = 128
"""Tokens that a prompt is taken to have."""

_BYTES = {"fp32": 4, "bf16": 2}

_BYTES_IN_4BIT = 0.5625
"""Bytes of a weight in four bits, with a float32 scale for every 64."""

_KEPT_LOGITS = 64 << 20
"""Bytes of logits that the learner's forward pass keeps for its backward pass."""

_TILE_BYTES = {"cpu": 2 * (1 << 20) * 4, "cuda": 2 * (1 << 27) * 4}
"""Bytes of the tile of logits that is worked on, and of its gradient, in float32."""

_COLUMNS = 32
"""Buffers of keys and values have a multiple of so many columns."""


@dataclass(frozen=True)
class Model:
    """An architecture in numbers.

    Attributes:
        parameters: of the model, an adapter included.
        trained: how many of them are trained.
        quantized: how many are kept in four bits.
        layers: decoder layers.
        width: of the hidden states.
        feed_forward: inner width of a feed-forward layer.
        heads, kv_heads: attention heads, and how many keys they have.
        head_size: width of a head.
        vocabulary: tokens.
        embeddings: parameters of the input embedding that are not used in products, 0 if the head shares them.
        max_length: longest sequence; None if any.
        adapter: whether an adapter is trained instead of the weights.
        resumed_adapter: whether the adapter was saved before, so that a KL needs a copy of it.
    """

    parameters: int
    trained: int
    quantized: int
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    embeddings: int
    max_length: int | None = None
    adapter: bool = False
    resumed_adapter: bool = False

    @property
    def head(self) -> int:
        """Parameters of the layer that makes logits."""
        return self.width * self.vocabulary

    @property
    def body(self) -> int:
        """Parameters of the decoder layers."""
        return max(0, self.parameters - self.embeddings - self.head)

    def splits_into(self, parts: int) -> bool:
        """Whether attention heads and their keys can be split over so many devices (keys may be repeated)."""
        return self.heads % parts == 0 and (self.kv_heads % parts == 0 or parts % self.kv_heads == 0)


@dataclass(frozen=True)
class Vllm:
    """A vLLM, on the learner's device or on others.

    Attributes:
        cache: bytes of keys and values, on a CPU.
        share: of the learner's GPU's memory, weights included.
        sleeps: whether it lets go of that GPU while the policy learns.
    """

    cache: int
    share: float
    sleeps: bool = False


@dataclass(frozen=True)
class Work:
    """What a policy does in a step, and how.

    Attributes:
        name: the policy's.
        dtype: of its weights, `fp32` or `bf16`.
        generated: completions of a step.
        groups: prompts of a step.
        completion: tokens of a completion, at most.
        batch: rows sampled at a time by one engine.
        micro_batch: rows of a forward pass on one device.
        update_rows: rows of one optimizer update.
        iterations: passes over the step's rows.
        checkpointing: whether activations are computed again in the backward pass.
        reference: whether the policy as it began is needed, for a KL.
        offload: whether masters and optimizer state are out of the way while they are not needed.
        threads: CPU threads, where they are given.
        vllm: what samples; None if the policy's own model does, or a server that runs already.
        model_name, algorithm: as configured, for the table.
    """

    name: str
    dtype: str
    generated: int
    groups: int
    completion: int
    batch: int
    micro_batch: int
    update_rows: int
    iterations: int = 1
    checkpointing: bool = False
    reference: bool = False
    offload: bool = False
    threads: int | None = None
    vllm: Vllm | None = None
    model_name: str = ""
    algorithm: str = ""

    @property
    def length(self) -> int:
        """Tokens of a prompt and its completion."""
        return _PROMPT + self.completion


@dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
        resting: at all times, while the policy waits, too.
        learning: more of them during an update.
        sampling: more of them during a rollout.
        host: in the memory of the device's node, where the device is a GPU.
    """

    resting: int
    learning: int = 0
    sampling: int = 0
    host: int = 0

    @property
    def transient(self) -> int:
        """What comes and goes, at its peak: update and rollout take turns."""
        return max(self.learning, self.sampling)

    @property
    def peak(self) -> int:
        """At the peak."""
        return self.resting + self.transient


def read_model(policy: PolicyConfig, architecture: PreTrainedConfig) -> Model:
    """The numbers of a policy's architecture, from its configuration alone.

    Raises:
        ValueError: if an adapter does not fit, or four bits are asked for without one.
    """
    source = model_source(policy.model_name_or_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(architecture, trust_remote_code=policy.trust_remote_code)
        add_adapter(model, policy, source)
    if policy.load_in_4bit and not has_adapter(model):
        raise ValueError(
            f"load_in_4bit=True, but {policy.name} trains all of its weights; set use_peft too, or leave load_in_4bit out"
        )
    text = architecture.get_text_config()
    width, heads = text.hidden_size, text.num_attention_heads
    embedding: Any = model.get_input_embeddings().weight
    head: Any = model.get_output_embeddings().weight
    return Model(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        trained=sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
        quantized=_linear_parameters(model) if policy.load_in_4bit else 0,
        layers=text.num_hidden_layers,
        width=width,
        feed_forward=getattr(text, "intermediate_size", 4 * width),
        heads=heads,
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_size=getattr(text, "head_dim", None) or width // heads,
        vocabulary=text.vocab_size,
        embeddings=0 if embedding is head else embedding.numel(),
        max_length=getattr(text, "max_position_embeddings", None),
        adapter=has_adapter(model),
        resumed_adapter=is_adapter_folder(source),
    )


def read_work(policy: PolicyConfig, config: TrainingConfig) -> Work:
    """What a policy has to do, as its configuration says."""
    generated = config.problems_per_step * config.num_generations
    return Work(
        name=policy.name,
        dtype=policy.dtype,
        generated=generated,
        groups=config.problems_per_step,
        completion=config.max_completion_length,
        batch=config.generation_batch_size,
        micro_batch=policy.per_device_train_batch_size,
        update_rows=policy.per_device_train_batch_size * config.gradient_accumulation_steps,
        iterations=config.num_iterations,
        checkpointing=config.gradient_checkpointing,
        reference=config.beta > 0,
        offload=config.offload_optimizer,
        threads=config.num_threads,
        vllm=_vllm(policy),
        model_name=policy.model_name_or_path,
        algorithm=policy.algorithm,
    )


# Memory


def weight_bytes(model: Model, work: Work) -> int:
    """Bytes of the weights that compute."""
    width = _BYTES[work.dtype]
    return model.parameters * width - int(model.quantized * (width - _BYTES_IN_4BIT))


def state_bytes(model: Model, work: Work) -> int:
    """Bytes of the two float32 moments of AdamW and, for bfloat16, of the float32 masters."""
    return model.trained * (8 if work.dtype == "fp32" else 12)


def reference_bytes(model: Model, work: Work) -> int:
    """Bytes of the policy as it began: of a new adapter nothing, of an older one a copy, else a second model."""
    if not work.reference or (model.adapter and not model.resumed_adapter):
        return 0
    return model.trained * _BYTES[work.dtype]


def activation_bytes(model: Model, work: Work, rows: int, kind: Kind) -> int:
    """Bytes that the forward pass of some rows keeps for the backward pass.

    A layer keeps of each token: the input of both norms (2 widths) and their outputs, which the projections keep (2 widths);
    queries and the attention's output (2 times the heads); keys and values before and after the prompt's are put in front of
    them (4 times the key heads, and 2 for each column of the prompt); the two halves of the feed-forward layer, the activated
    half and the product (4 inner widths). The grouped attention of short sequences on a CPU keeps its weights, too. Prompts
    are computed once for the rows of a group. With checkpointing a layer keeps its input, and one layer is whole at a time.
    """
    width = _BYTES[work.dtype]
    keys = model.kv_heads * model.head_size
    token = 4 * model.width + 2 * model.heads * model.head_size + 4 * keys + 4 * model.feed_forward
    groups = -(-rows * work.groups // work.generated)
    tokens = rows * work.completion + groups * _PROMPT
    layer = tokens * token + rows * _PROMPT * 2 * keys
    if kind == "cpu" and work.completion <= 4 * model.head_size:
        layer += rows * model.heads * work.completion * work.length
    kept = model.layers * layer
    if work.checkpointing:
        tokens = rows * work.length
        kept = model.layers * tokens * model.width + tokens * token
    # The hidden states in front of the head, and their gradient, which is summed in float32.
    head = rows * work.completion * model.width * (width + 4)
    logits = min(_KEPT_LOGITS, rows * work.completion * model.vocabulary * width)
    return width * kept + head + logits + min(_TILE_BYTES[kind], rows * work.completion * model.vocabulary * 8)


def cache_bytes(model: Model, work: Work, rows: int, parts: int = 1) -> int:
    """Bytes of keys, values and logits of rows that are sampled together, on one of the devices that share the model."""
    columns = -(-work.length // _COLUMNS) * _COLUMNS
    keys = 2 * model.layers * -(-model.kv_heads // parts) * model.head_size * columns * _BYTES[work.dtype]
    return rows * (keys + model.vocabulary * (_BYTES[work.dtype] + 4))


def learner_memory(model: Model, work: Work, devices: int, kind: Kind) -> Memory:
    """What the learner takes on each of the devices that its weights, gradients and optimizer state are sharded over.

    With several devices one layer's weights are whole at a time, and the next one's, which is fetched meanwhile; one layer's
    gradient is whole until it is summed over the devices; embeddings and head are whole throughout.
    """
    width = _BYTES[work.dtype]
    rows = micro_batch(work, devices)
    state = state_bytes(model, work)
    resting = weight_bytes(model, work) + reference_bytes(model, work)
    gradients = 4 * model.trained
    gathered = 0
    if devices > 1:
        layer = model.body // max(1, model.layers)
        gathered = width * (model.embeddings + model.head + 2 * layer) + 4 * min(layer, model.trained)
    # A gradient of the whole head, or of all embeddings; bfloat16 models on a CPU make none (see `MasterOptimizer`).
    whole = 0 if model.adapter or (kind == "cpu" and work.dtype == "bf16") else width * model.head
    learning = -(-gradients // devices) + gathered + whole + activation_bytes(model, work, rows, kind)
    aside = -(-state // devices) if work.offload else 0
    beside = 0 if work.offload else -(-state // devices)
    if kind == "cpu":  # a file takes it; what is in use is one parameter's
        return Memory(-(-resting // devices) + beside, learning)
    return Memory(-(-resting // devices) + beside, learning + aside, host=aside)


def sharded_memory(model: Model, work: Work, processes: int, kind: Kind) -> Memory:
    """What each of the processes takes over which a policy is sharded, and which have it whole, too, but in its updates.

    The policy as it began is a second model, in shards. What is trained has float32 shards, which are the masters, so there are
    none of a lower precision beside them.
    """
    shard, whole = learner_memory(model, work, processes, kind), weight_bytes(model, work)
    second = whole - reference_bytes(model, work) if work.reference else 0
    only_masters = 0 if work.dtype == "fp32" else model.trained * _BYTES[work.dtype]
    return Memory(shard.resting + whole - (only_masters - second) // processes, max(0, shard.learning - whole))


def sampling_memory(model: Model, work: Work, rows: int, kind: Kind) -> int:
    """What it takes to sample from the learner's own model: caches, and on a CPU the reordered weights of its layers."""
    copies = _BYTES[work.dtype] * (model.body + model.head) if kind == "cpu" else 0
    return cache_bytes(model, work, rows) + copies


def with_sampling(memory: Memory, model: Model, work: Work, rows: int, kind: Kind, device_memory: int) -> Memory:
    """A learner's memory on one device, and what sampling there adds: to its own model, or with a vLLM beside it.

    vLLM keeps its share while the policy learns, unless it sleeps: then its weights lie in the host's memory.
    """
    if work.vllm is None:
        return replace(memory, sampling=sampling_memory(model, work, rows, kind))
    if kind == "cpu":
        return replace(memory, resting=memory.resting + _vllm_on_cores(model, work, work.vllm))
    share = int(work.vllm.share * device_memory)
    if work.vllm.sleeps:
        return replace(memory, sampling=share, host=memory.host + model.parameters * _BYTES[work.dtype])
    return replace(memory, resting=memory.resting + share)


def engine_memory(model: Model, work: Work, rows: int, parts: int, kind: Kind) -> int:
    """What a vLLM with devices of its own takes on each of those that share one copy of the weights.

    Of a GPU it is what it cannot do without: it takes nearly all that there is.
    """
    if kind == "cpu":
        assert work.vllm is not None
        return _vllm_on_cores(model, work, work.vllm)
    weights = model.parameters * _BYTES[work.dtype]
    return -(-weights // parts) + cache_bytes(model, work, rows, parts)


def _vllm_on_cores(model: Model, work: Work, vllm: Vllm) -> int:
    """Weights, the head apart from the embeddings and a packed copy of it, keys and values, and `VLLM_BYTES`."""
    heads = (1 if model.embeddings else 2) * model.head
    return (model.parameters + heads) * _BYTES[work.dtype] + vllm.cache + VLLM_BYTES


def micro_batch(work: Work, devices: int) -> int:
    """Rows of a forward pass on each device: as configured, or fewer if an update has no more for each."""
    return max(1, min(work.micro_batch, -(-work.update_rows // devices)))


# Seconds


@dataclass(frozen=True)
class Speed:
    """What is reached on a device.

    Attributes:
        products: operations per second in large matrix products.
        bandwidth: bytes per second.
        start: seconds that a forward pass takes however small it is.
        call: seconds that a layer takes however small it is.
        draw: seconds to draw from one logit.
        moved: bytes of activations read and written per second, in small operations.
    """

    products: float
    bandwidth: float
    start: float
    call: float
    draw: float
    moved: float


def speed(cluster: Cluster, kind: Kind, dtype: str, threads: int = 1) -> Speed:
    """The speed of a GPU, or of so many cores.

    Shares of the peak: 0.4 on GPUs, as is usual in training, and 0.75 on CPUs, as measured; bandwidth and small operations of
    CPUs are those measured on a Zen 4 core.
    """
    half = 0.5 if dtype == "fp32" else 1.0
    if kind == "cuda":
        moved = 0.5 * cluster.gpu_bandwidth
        return Speed(0.4 * half * cluster.gpu_flops, 0.7 * cluster.gpu_bandwidth, 1e-3, 1e-4, 1e-11, moved)
    share = threads**0.9
    # Small operations in bfloat16 take twice as long as in float32.
    return Speed(
        0.75 * half * cluster.core_flops * share, 4e9 * share, 2e-3 * half, 6e-4 * half, 4e-9 / share, 1.5e9 * share
    )


_RECORD = 2e-5
"""Seconds to record a token that was drawn."""


def rollout_seconds(model: Model, work: Work, rate: Speed, parts: int, replicas: int) -> float:
    """Seconds to sample a step's completions at their full length, each engine on `parts` devices."""
    mine = share_of_rollouts(work, replicas)
    rows = min(work.batch, mine)
    used = model.body + model.head
    read = (used * _BYTES[work.dtype] + rows * cache_row_bytes(model, work) / 2) / (parts * rate.bandwidth)
    token = (
        max(2 * used * rows / (parts * rate.products), read)
        + rate.start
        + model.layers * rate.call * min(2, parts)  # a second one to add up what the devices have
        + rows * (model.vocabulary * rate.draw + _RECORD)
        + rows * model.layers * _moved(model, work) / (parts * rate.moved)
    )
    prompts = 2 * model.body * _PROMPT * -(-work.groups // replicas) / (parts * rate.products)
    return -(-mine // rows) * work.completion * token + prompts


def share_of_rollouts(work: Work, replicas: int) -> int:
    """Completions of the busiest of several that share the prompts."""
    return -(-work.groups // replicas) * (work.generated // work.groups)


def cache_row_bytes(model: Model, work: Work) -> int:
    """Bytes of a row's keys and values at its full length."""
    return 2 * model.layers * model.kv_heads * model.head_size * work.length * _BYTES[work.dtype]


def update_seconds(model: Model, work: Work, rate: Speed, devices: int) -> float:
    """Seconds to learn a step's rows on devices that share them.

    Operations per token and parameter: 2 forward, 2 for the gradient of activations, 2 for that of trained weights, and 2 to
    compute activations again; the head makes most of its logits twice.
    """
    rows, groups = -(-work.generated // devices), -(-work.groups // devices)
    tokens = rows * work.length if work.checkpointing else rows * work.completion + groups * _PROMPT
    trained = 0 if model.adapter else 1
    body = tokens * model.body * (4 + 2 * trained + 2 * work.checkpointing)
    head = rows * work.completion * model.head * (6 + 2 * trained)
    passes = -(-rows // micro_batch(work, devices))
    gathering = 0.0
    if devices > 1:  # weights are collected forward and backward, gradients summed; a tenth of the memory's bandwidth
        gathering = passes * 3 * _BYTES[work.dtype] * model.parameters / (0.1 * rate.bandwidth)
    moved = tokens * model.layers * _moved(model, work) * 3 / rate.moved
    optimizer = work.generated / work.update_rows * 32 * model.trained / devices / rate.bandwidth
    calls = passes * 3 * (rate.start + model.layers * rate.call)
    once = (body + head) / rate.products + moved + calls + gathering + optimizer
    return work.iterations * once


def offload_seconds(model: Model, work: Work, devices: int) -> float:
    """Seconds to fetch masters and state from the host's memory and to bring them back, at 20 GB/s."""
    return 2 * state_bytes(model, work) / devices / 20e9 if work.offload else 0.0


def useful_threads(model: Model, work: Work, cores: int) -> int:
    """Threads as given, or as many as pay: one for a tiny model, whose calls are shorter than waking a second thread."""
    return work.threads or (1 if model.parameters < _TINY else cores)


def operations(model: Model, work: Work) -> float:
    """Floating-point operations of a step: 2 per parameter and token to sample, and 6 to learn, 4 of frozen ones."""
    tokens = work.generated * work.completion
    return tokens * (2 * model.parameters + work.iterations * (4 * model.parameters + 2 * model.trained))


def _moved(model: Model, work: Work) -> int:
    """Bytes of activations that a layer reads and writes for a token."""
    return _BYTES[work.dtype] * (16 * model.width + 3 * model.feed_forward)


def _vllm(policy: PolicyConfig) -> Vllm | None:
    if not policy.use_vllm or policy.engine.server_base_url is not None:
        return None
    return Vllm(cpu_cache_bytes(), policy.engine.gpu_memory_utilization, policy.engine.enable_sleep_mode)


def _linear_parameters(model: PreTrainedModel) -> int:
    """Parameters that are kept in four bits: those of the linear layers, but the head's and the adapter's."""
    head, adapter = model.get_output_embeddings(), {id(p) for p in model.parameters() if p.requires_grad}
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
    return sum(layer.weight.numel() for layer in linear if id(layer.weight) not in adapter)
