"""What a user may set, in sections; `TrainingConfig` has them all as one flat dataclass, and says which values fit together.

The text under a field is its help on the command line. Names are those of TRL and Transformers where they have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from algorithms.losses import LossType
from algorithms.optimization import ScheduleType

Dtype = Literal["fp32", "bf16"]

PLACEMENTS = ("shared", "dedicated", "colocated")
"""The modes of placement."""

PER_POLICY = (
    "algorithm",
    "model_name_or_path",
    "dtype",
    "device",
    "learning_rate",
    "optim",
    "per_device_train_batch_size",
    "chat_template",
    "use_peft",
    "lora_r",
    "lora_alpha",
    "lora_dropout",
    "load_in_4bit",
    "use_vllm",
    "vllm_server_base_url",
)
"""Fields that hold one value for all policies, or one per policy."""


@dataclass(frozen=True)
class PolicyOptions:
    """Who takes part."""

    model_name_or_path: tuple[str, ...] = ("tiny-llama", "tiny-qwen3")
    """One model per policy: hub id, local folder, .gguf file, or an embedded one (tiny-llama, tiny-qwen3)."""
    algorithm: tuple[str, ...] = ("grpo",)
    """grpo, prp, xgrpo, sgt, or a dotted path pkg.module:Class; one for all policies or one each."""
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the algorithms by name; on the command line they are flags of their own."""
    agents: tuple[str, ...] | None = None
    """Names of the policies; policy_0, policy_1, ... by default."""
    dtype: tuple[Dtype, ...] = ("fp32",)
    """Precision of weights and computation; with bf16 the optimizer keeps fp32 master weights."""
    chat_template: tuple[str | None, ...] = (None,)
    """Template: None takes the tokenizer's own (or plain, if it has none), plain joins the messages, or a Jinja file."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for the chat templates, such as enable_thinking: false."""
    trust_remote_code: bool = False
    """Run code that comes with a hub model."""


@dataclass(frozen=True)
class ProblemOptions:
    """What is asked."""

    env: str = "arithmetic-mutual-v0"
    """Environment id, or a dotted path pkg.module:Class."""
    problems: str | None = None
    """Problem source: arithmetic, math, a .jsonl/.json/.csv/.parquet file, hub:owner/name, or a dotted path; by default the
    environment's own."""
    problem_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the problem source, such as subjects and levels."""
    skip_invalid: bool = False
    """Leave malformed rows of a file or dataset out, and say how many; otherwise the first one stops the run."""
    eval_problems: str | None = None
    """Source of the held-out problems; by default the test split of problems."""
    eval_problem_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the held-out source; by default problem_options."""
    verifier: str | None = None
    """Verifier of all problems: a name or a dotted path; by default each problem names its own."""
    verifier_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of that verifier, such as fallback: true for math."""
    problems_per_step: int = 16
    """Problems that a step asks."""
    num_generations: int = 8
    """Completions per problem and policy."""


@dataclass(frozen=True)
class ExchangeOptions:
    """What the policies see of one another."""

    exchange_topology: str | Mapping[str, tuple[str, ...]] = "all"
    """Who reads whom: all, ring, none, or a mapping from policy to the policies that it reads."""
    exchange_channels: tuple[str, ...] | None = None
    """Channels of every policy; by default those that its algorithm reads."""
    exchange_log: bool = True
    """Keep every shared record in exchange.jsonl."""
    exchange_replay: str | None = None
    """exchange.jsonl of a finished run, whose policies take part as peers once more."""
    exchange_staleness: int = 0
    """K: steps after which a policy learns from what its peers said. With 0 it waits for them in every step; with more it may
    be that many steps ahead of the slowest policy (backend ray), and its peers' records are exactly K steps old."""


@dataclass(frozen=True)
class SamplingOptions:
    """How completions are drawn."""

    max_completion_length: int = 64
    """Tokens of a completion, end of sequence included."""
    temperature: float = 1.0
    """Sampling temperature."""
    top_p: float = 1.0
    """Nucleus sampling; 1 is off."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 is off."""
    min_p: float = 0.0
    """Only tokens with this share of the likeliest one's probability; 0 is off."""
    stop_at_boxed: bool = False
    """Stop a completion behind a complete boxed answer."""
    generation_batch_size: int = 512
    """Rows sampled at a time."""


@dataclass(frozen=True)
class LearningOptions:
    """How rows are learnt."""

    learning_rate: tuple[float, ...] = (1e-4,)
    """Peak learning rate."""
    lr_scheduler_type: ScheduleType = "constant"
    """Schedule after the warm-up."""
    warmup_steps: int = 5
    """Optimizer updates over which the learning rate rises."""
    optim: tuple[str, ...] = ("torch.optim:AdamW",)
    """Optimizer class as a dotted path."""
    optim_args: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the optimizer, but the learning rate; AdamW has betas 0.9, 0.99 and no weight decay by default."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    per_device_train_batch_size: tuple[int, ...] = (32,)
    """Rows per forward and backward pass."""
    gradient_accumulation_steps: int = 2
    """Passes per optimizer update, counted in the policy's own rows."""
    num_iterations: int = 1
    """Times that a step's rows are learnt."""
    beta: float = 0.0
    """Weight of the KL to the initial policy."""
    epsilon: float = 0.2
    """Lower clip of the ratio."""
    epsilon_high: float | None = None
    """Upper clip of the ratio; epsilon by default."""
    delta: float | None = None
    """Upper bound of the unclipped ratio (dual clip)."""
    loss_type: LossType = "bnpo"
    """How tokens are averaged: grpo, bnpo, dapo, dr_grpo, or gspo for ratios per sequence."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass, to save memory."""
    offload_optimizer: bool = False
    """Keep master weights and optimizer state out of the way: of a policy on a GPU in CPU memory while others have the GPU, of
    one on a CPU in a file in output_dir, of which only what an update just works on is in memory."""
    max_skipped_updates: int = 5
    """Stop after so many updates in a row whose loss or gradient is not finite."""


@dataclass(frozen=True)
class AdapterOptions:
    """What is trained: all weights, or a LoRA adapter beside them."""

    use_peft: tuple[bool, ...] = (False,)
    """Train a new LoRA adapter and leave the model's own weights as they are. Without a value: all policies. A model that is
    the folder of a saved adapter goes on with that one, whatever these options say."""
    lora_r: tuple[int, ...] = (16,)
    """Rank of the adapter's matrices."""
    lora_alpha: tuple[int, ...] = (32,)
    """The adapter's output is multiplied by lora_alpha / lora_r."""
    lora_dropout: tuple[float, ...] = (0.0,)
    """Share of the adapter's inputs that an update drops. Completions are sampled without, so any makes ratios noisy."""
    lora_target_modules: tuple[str, ...] = ("all-linear",)
    """Layers that get an adapter, by name, such as q_proj v_proj; all-linear takes all linear ones but the head."""
    load_in_4bit: tuple[bool, ...] = (False,)
    """Keep the model's own weights in four bits (needs bitsandbytes, and an adapter to train)."""


@dataclass(frozen=True)
class VllmOptions:
    """What samples: the model that is trained, or a copy of it in vLLM that gets the weights after each update."""

    use_vllm: tuple[bool, ...] = (False,)
    """Sample with vLLM. Without a value: all policies."""
    vllm_mode: Literal["colocate", "server"] = "colocate"
    """colocate: the engine is in the process of the policy, on its device, or where the plan has engines on others; server: in
    a process of its own, a vLLM server, which is started with the run unless vllm_server_base_url names a running one."""
    vllm_server_base_url: tuple[str | None, ...] = (None,)
    """Address of a running vLLM server, one per policy, such as http://localhost:8000; see docs/scale.md for its command."""
    vllm_server_timeout: float = 240.0
    """Seconds to wait for a server to be ready, and for its answers."""
    vllm_server_weights_dir: str | None = None
    """Folder that the run and the servers both see, through which weights are handed over; by default a temporary one, for
    servers on this machine."""
    vllm_gpu_memory_utilization: float = 0.3
    """Share of the learner's GPU that the engine beside it may take, its weights included. On a CPU, VLLM_CPU_KVCACHE_SPACE
    (GiB) in the environment sets the memory of keys and values instead."""
    vllm_max_model_length: int | None = None
    """Longest prompt and completion together; by default the model's own, which can take much memory."""
    vllm_enable_sleep_mode: bool = False
    """colocate, on a GPU: while the model learns, the engine's weights lie in CPU memory, and keys and values are let go."""
    vllm_importance_sampling_correction: bool = True
    """Weigh each token by the learner's probability over the engine's, which differ a little even with the same weights."""
    vllm_importance_sampling_clip_max: float = 3.0
    """Upper bound of these weights."""


@dataclass(frozen=True)
class RunOptions:
    """How long, and what is kept."""

    max_steps: int = 60
    """Steps to train."""
    num_train_epochs: float | None = None
    """Passes over the problems; sets max_steps."""
    seed: int = 0
    """Decides the order of problems and every random draw."""
    output_dir: str | None = None
    """Where everything is written; by default runs/ALGORITHM-TIME."""
    overwrite_output_dir: bool = False
    """Begin anew in a folder that already holds a run."""
    resume_from_checkpoint: str | None = None
    """A checkpoint folder, or auto for the newest one in output_dir."""
    logging_steps: int = 1
    """Steps between lines of metrics."""
    log_completions: int = 2
    """Problems per step whose completions are kept in completions.jsonl."""
    eval_steps: int = 20
    """Steps between evaluations; 0 evaluates never. The initial and the final policy are evaluated too."""
    eval_size: int = 192
    """Held-out problems of an evaluation."""
    eval_samples: int = 4
    """k of mean@k, pass@k and maj@k; 0 leaves them out."""
    save_steps: int = 20
    """Steps between checkpoints; 0 saves only at the end."""
    save_total_limit: int | None = 2
    """Checkpoints kept."""


@dataclass(frozen=True)
class PlacementOptions:
    """Where policies run."""

    placement: str = "shared"
    """shared: each policy has one device, which others may have, too; dedicated: each has its own, and with vLLM some of
    several learn and others sample; colocated: each has its own, which all learn and all sample; or a YAML file that says who
    gets which devices."""
    device: tuple[str, ...] = ("auto",)
    """Devices to place policies on, such as cpu or cuda:0 cuda:1; auto takes all GPUs, or else the CPU."""
    num_threads: int | None = None
    """CPU threads of PyTorch, of each policy where they work at the same time. Bit-identical reruns need the same number."""
    backend: Literal["local", "ray"] = "local"
    """local: all policies in this process, where they take turns; ray: each in an actor of its own, all at once."""
    ray_address: str | None = None
    """Address of a running Ray cluster (backend ray); by default that of RAY_ADDRESS, or else a local one is started."""
    worker_timeout: float = 1800.0
    """Seconds within which a policy in another process must have answered (backend ray): rolled out a step, learnt it, been
    evaluated, saved or loaded. Then it is taken for dead."""
    max_restarts: int = 3
    """Times in a row that a run goes on from its last checkpoint after a policy's process was lost, without a step forward;
    the next loss stops it."""


SECTIONS: dict[str, type[Any]] = {
    "policy": PolicyOptions,
    "problem": ProblemOptions,
    "exchange": ExchangeOptions,
    "sampling": SamplingOptions,
    "learning": LearningOptions,
    "adapter": AdapterOptions,
    "vllm": VllmOptions,
    "run": RunOptions,
    "placement": PlacementOptions,
}
"""All of them by name, in the order of `--help`."""
