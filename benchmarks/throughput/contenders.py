"""The contenders, each in a process of its own, so that neither memory nor caches are shared.

`python -m benchmarks.throughput.contenders NAME WORKLOAD STEPS` runs one (WORKLOAD is JSON) and prints its measurements as
JSON in the last line.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from algorithms.config import TrainingConfig
from algorithms.policy import load_policy, load_renderer, load_tokenizer, model_source
from algorithms.precision import TORCH_DTYPES, is_slow
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.tracking import POOL, read_jsonl
from algorithms.trainer import Trainer
from benchmarks.throughput.workload import RIGHT, Chance, Workload, planned_success, questions, write_problems
from mrl_env.types import Completion, user_message


@dataclass(frozen=True)
class Measurement:
    """What one process measured.

    Attributes:
        seconds: of each step after the first, which only warms up.
        peak_bytes: the process's largest resident memory, or the GPU's largest allocation.
        parts: for each part of a step its seconds, means over the steps; empty where the contender does not say.
        tokens: mean length of the completions, in tokens.
        extra: further figures by name.
    """

    seconds: list[float]
    peak_bytes: int
    parts: dict[str, float] = field(default_factory=dict)
    tokens: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


def our_config(workload: Workload, steps: int, folder: Path) -> TrainingConfig:
    """The run of a workload: so many steps after one to warm up, on the problems that `write_problems` put into the folder."""
    return TrainingConfig(
        model_name_or_path=workload.model,
        algorithm=(workload.algorithm,),
        dtype=(workload.dtype,),  # type: ignore[arg-type]
        env="math-mutual-v0",
        problems=str(folder / "problems.jsonl"),
        verifier=f"benchmarks.throughput.workload:{'Planned' if workload.planned else 'Chance'}",
        verifier_options={} if workload.planned else {"success": workload.success},
        problems_per_step=workload.problems,
        num_generations=workload.generations,
        max_completion_length=2 * workload.tokens if workload.planned else workload.tokens,
        per_device_train_batch_size=(workload.generations,),
        gradient_accumulation_steps=workload.problems,
        learning_rate=(1e-6,),
        offload_optimizer=workload.offload,
        max_steps=steps + 1,
        eval_steps=0,
        save_steps=0,
        output_dir=str(folder / "run"),
    )


def ours(workload: Workload, steps: int, folder: Path) -> Measurement:
    """Whole steps of the trainer, as a user runs them."""
    write_problems(workload, folder / "problems.jsonl")
    trainer = Trainer(our_config(workload, steps, folder))
    if workload.planned:
        for number, policy in enumerate(trainer.policies.values()):
            policy.generate = partial(_planned, policy.generate, number, workload.tokens)  # type: ignore[method-assign]
    seconds = []
    for _ in range(steps + 1):
        started = time.perf_counter()
        trainer.train_step()
        seconds.append(time.perf_counter() - started)
    trainer.close()
    lines = [line for line in read_jsonl(folder / "run" / "metrics.jsonl") if line["step"] > 1]
    policies = [line for line in lines if line["policy"] != POOL]

    def total(key: str) -> float:
        return float(sum(line.get(f"train/{key}", 0.0) for line in lines)) / steps

    return Measurement(
        seconds=seconds[1:],
        peak_bytes=peak_bytes(),
        parts={key: total(f"time/{key}") for key in ("generate", "environment", "rows", "update")},
        tokens=sum(line["train/completions/mean_length"] for line in policies) / len(policies),
        extra={
            "rescue_rate": sum(line["train/exchange/rescue_rate"] for line in policies) / len(policies),
            "zero_variance": sum(line["train/frac_reward_zero_std"] for line in policies) / len(policies),
        },
    )


def _planned(
    generate: Callable[..., list[list[Completion]]],
    policy: int,
    tokens: int,
    prompts: Sequence[Sequence[int]],
    generations: int,
    sampling: SamplingConfig,
    *arguments: Any,
) -> list[list[Completion]]:
    """A policy's completions of at most so many tokens, as if each had ended by itself, and right where it is planned."""
    groups = generate(prompts, generations, replace(sampling, max_completion_length=tokens), *arguments)
    return [
        [
            replace(c, finish_reason="stop", text=c.text + RIGHT if planned_success(policy, p, g) else c.text)
            for g, c in enumerate(group)
        ]
        for p, group in enumerate(groups)
    ]


def trl(workload: Workload, steps: int, folder: Path) -> Measurement:
    """Whole steps of TRL's GRPOTrainer on the same prompts, shapes and rewards, in bfloat16 without recomputed activations.

    Raises:
        ValueError: if TRL or Datasets is not installed.
    """
    try:
        from datasets import Dataset
        from transformers import TrainerCallback
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        raise ValueError("--against trl needs TRL: pip install 'trl>=1.16' datasets") from error
    from verifiers.trl import as_reward_function

    config = _policy_config(workload)
    tokenizer = load_tokenizer(config)
    renderer = load_renderer(config, tokenizer)
    rows = write_problems(workload, folder / "problems.jsonl")
    seconds: list[float] = []

    class Clock(TrainerCallback):
        started = 0.0

        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            self.started = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seconds.append(time.perf_counter() - self.started)

    trainer = GRPOTrainer(
        model=_plain_model(workload),
        processing_class=tokenizer,
        reward_funcs=as_reward_function(Chance(workload.success)),
        train_dataset=Dataset.from_list(
            [{"prompt": renderer.text(user_message(row["problem"])), "answer": row["answer"]} for row in rows]
        ),
        callbacks=[Clock()],
        args=GRPOConfig(
            output_dir=str(folder / "trl"),
            per_device_train_batch_size=workload.generations,
            gradient_accumulation_steps=workload.problems,
            num_generations=workload.generations,
            max_completion_length=workload.tokens,
            loss_type="grpo",
            learning_rate=1e-6,
            max_steps=steps + 1,
            # The weights have the type of the computation already; recomputing activations would only take longer.
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=not torch.cuda.is_available(),
            save_strategy="no",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    lengths = [
        line["completions/mean_length"] for line in trainer.state.log_history if "completions/mean_length" in line
    ]
    return Measurement(seconds[1:], peak_bytes(), tokens=sum(lengths[1:]) / steps)


def generation(workload: Workload, steps: int, folder: Path) -> Measurement:
    """Our generation and Transformers' in turn, in one process; `extra` has the others' median seconds."""
    policy, model = load_policy(_policy_config(workload), default_device()), _plain_model(workload).eval()
    prompts = [policy.renderer.token_ids(user_message(question)) for question in questions(workload.problems)]
    config = SamplingConfig(max_completion_length=workload.tokens)
    rows = workload.problems * workload.generations
    padding = policy.eos_token_ids
    policy.eos_token_ids = frozenset()  # every completion has its full length
    length = max(map(len, prompts))
    repeated = [prompt for prompt in prompts for _ in range(workload.generations)]
    token_ids = torch.tensor([[min(padding)] * (length - len(prompt)) + list(prompt) for prompt in repeated])
    mask = torch.tensor([[0] * (length - len(prompt)) + [1] * len(prompt) for prompt in repeated])

    def mine() -> None:
        policy.generate(prompts, workload.generations, config, list(range(rows)))

    def transformers() -> None:
        generated = model.generate(
            input_ids=token_ids.to(model.device),
            attention_mask=mask.to(model.device),
            do_sample=True,
            top_k=0,
            min_new_tokens=workload.tokens,
            max_new_tokens=workload.tokens,
            pad_token_id=min(padding),
        )
        assert generated.shape == (rows, length + workload.tokens)

    seconds: dict[Callable[[], None], list[float]] = {mine: [], transformers: []}
    for _ in range(steps + 1):
        for run, measured in seconds.items():
            started = time.perf_counter()
            run()
            measured.append(time.perf_counter() - started)
    theirs = sorted(seconds[transformers][1:])
    return Measurement(
        seconds[mine][1:], peak_bytes(), tokens=workload.tokens, extra={"transformers": theirs[len(theirs) // 2]}
    )


CONTENDERS: dict[str, Callable[[Workload, int, Path], Measurement]] = {
    "ours": ours,
    "trl": trl,
    "generation": generation,
}


def peak_bytes() -> int:
    """The largest memory so far: of the GPU's allocator, or of the process."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would also count what the process that started this one had before.
        [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS: in bytes


def default_device() -> str:
    """Where contenders compute: on the GPU, if there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def default_dtype() -> str:
    """What contenders compute in: `bf16`; `fp32` on a CPU that is slow in it."""
    return "fp32" if is_slow("bf16", default_device()) else "bf16"


def _plain_model(workload: Workload) -> PreTrainedModel:
    """The model as Transformers loads it: a policy's has our attention and norms."""
    config = _policy_config(workload)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        model_source(config.model_name_or_path), dtype=TORCH_DTYPES[config.dtype]
    )
    model.to(torch.device(default_device()))  # type: ignore[arg-type]
    return model


def _policy_config(workload: Workload) -> Any:
    [policy] = TrainingConfig(model_name_or_path=workload.model, dtype=(workload.dtype,)).policies()  # type: ignore[arg-type]
    return policy


def main() -> None:
    """The command line of one process."""
    name, workload, steps = sys.argv[1:]
    settings = json.loads(workload)
    # Here rather than where temporary files go, which may be in memory.
    with tempfile.TemporaryDirectory(prefix=".throughput-", dir=".") as folder:
        found = CONTENDERS[name](Workload(**{**settings, "model": tuple(settings["model"])}), int(steps), Path(folder))
    print(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
