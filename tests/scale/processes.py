"""Work for several processes, for test_fsdp.py: `python processes.py JOB SIZE FOLDER [ARGUMENT ...]`.

Everything is imported once and the processes are forked from it, which is quicker than `torchrun`; they see what it would show
them. Results go to FOLDER. Prints one line of JSON with the exit codes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    set_seed,
)

import algorithms.learner
from algorithms.cli import main
from algorithms.errors import EngineError, WorkerLostError
from algorithms.learner import Learner, LearnerConfig
from algorithms.losses import LossConfig
from algorithms.optimization import MasterOptimizer
from algorithms.ranks import Ranks, join_ranks
from algorithms.samples import Sample, make_sample
from algorithms.sharding import sharded_learner


class RecordingAdamW(torch.optim.AdamW):
    """Keeps the gradients of every step, whole."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gradients: list[list[torch.Tensor]] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.gradients.append([whole(p.grad).clone() for group in self.param_groups for p in group["params"]])
        super().step(closure)


def whole(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


# Models and rows


def llama(**changes: Any) -> LlamaForCausalLM:
    settings: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
    }
    set_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).eval()


def gemma() -> Gemma3ForCausalLM:
    """Sliding windows, norms with an offset, scaled and tied embeddings, sizes that 4 does not divide."""
    set_seed(0)
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            vocab_size=66,
            hidden_size=30,
            intermediate_size=50,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            sliding_window=4,
            layer_types=["sliding_attention", "full_attention"],
            initializer_range=0.3,
        )
    ).eval()


def adapted() -> LlamaForCausalLM:
    """A Llama with a LoRA adapter that has learnt something."""
    from peft import LoraConfig
    from peft.functional import inject_adapter_in_model

    model = llama()
    inject_adapter_in_model(
        LoraConfig(r=3, lora_alpha=6, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False),
        model,
    )
    return model


def checkpointed() -> LlamaForCausalLM:
    model = llama()
    model.activation_checkpointing_enable()
    return model


def problems(seed: int = 0, count: int = 4, longest: int = 9, peers: bool = False) -> list[list[Sample]]:
    """Own rows of different lengths; every other problem has an NLL row, or two of a peer without old log-probs."""
    rng = np.random.default_rng(seed)
    made = []
    for p in range(count):
        prompt = rng.integers(3, 64, rng.integers(1, 6)).tolist()
        rows = []
        for _ in range(3):
            completion = rng.integers(3, 64, rng.integers(1, longest)).tolist()
            old = rng.normal(-4, 0.5, len(completion)).tolist()
            advantage = float(rng.normal())
            rows.append(make_sample(prompt, completion, source="me", advantage=advantage, old_logprobs=old))
        if p % 2 and peers:
            for _ in range(2):
                completion = rng.integers(3, 64, 5).tolist()
                rows.append(make_sample(prompt, completion, source="peer", advantage=float(rng.normal())))
        elif p % 2:
            rows.append(make_sample(prompt, rng.integers(3, 64, 5).tolist(), source="peer", nll_weight=0.1 / 5))
        made.append(rows)
    return made


Case = tuple[Callable[[], PreTrainedModel], list[list[Sample]], dict[str, Any]]


def cases() -> dict[str, Case]:
    """Model, rows and settings of the learner, by name."""
    return {
        "sgt": (llama, problems(), {}),
        "tied": (lambda: llama(tie_word_embeddings=True), problems(1), {"loss": LossConfig("dapo")}),
        "gemma": (gemma, problems(2), {"max_grad_norm": 0.01}),
        # A snapshot, two minibatches, two iterations: the second one meets weights that have moved.
        "prp": (llama, problems(3, peers=True), {"problems_per_minibatch": 2, "num_iterations": 2}),
        "beta": (llama, problems(4), {"loss": LossConfig(beta=0.3), "problems_per_minibatch": 2}),
        # Some processes have tails of one token alone, which need no second pass.
        "short": (llama, problems(5, longest=3), {"micro_batch_size": 1}),
        "few": (llama, problems(6, count=1), {"micro_batch_size": 8}),
        "adapter": (adapted, problems(7), {"loss": LossConfig(beta=0.3)}),
        "checkpointing": (checkpointed, problems(8), {}),
    }


ADAMW = {"lr": 0.01, "eps": 1e-5, "fused": True}
"""Gradients that are rounding alone, which differs between CPUs, are below eps and move nothing."""


def learn(name: str, ranks: Ranks, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """One update of a case: gradients of each optimizer step, weights, metrics, log-probs and state afterwards."""
    make, rows, changes = cases()[name]
    settings = {"loss": LossConfig(), "learning_rate": 0.01, "micro_batch_size": 4, "problems_per_minibatch": 4}
    config = LearnerConfig(**{**settings, "max_grad_norm": 1e9, **changes})
    model = make().to(dtype)
    if ranks.size > 1:
        learner = sharded_learner("me", model, config, ranks, RecordingAdamW, **ADAMW)
    else:
        learner = Learner("me", model, MasterOptimizer(model.parameters(), RecordingAdamW, **ADAMW), config)
    metrics = learner.update(rows)
    trained: list[list[torch.Tensor]] = learner.optimizer.optimizer.gradients  # type: ignore[attr-defined]
    return {
        "gradients": trained,
        "weights": {key: value.clone() for key, value in model.state_dict().items()},
        "metrics": metrics,
        "logprobs": learner.logprobs([(row.token_ids, 1) for problem in rows for row in problem]),
        "state": learner.state_dict(),
    }


# Jobs


def updates(folder: Path, *names: str) -> None:
    """`learn` each case, and save what the first and the last process have of it."""
    ranks = join_ranks()
    for name in names:
        case, _, dtype = name.partition("-")
        result = learn(case, ranks, getattr(torch, dtype or "float32"))
        if ranks.rank in (0, ranks.size - 1):
            torch.save(result, folder / f"{name}-{'first' if ranks.first else 'last'}.pt")
    ranks.close()


def command(folder: Path, *arguments: str) -> None:
    """`python -m algorithms.sgt`."""
    main("sgt", [*arguments, "--output_dir", str(folder)])


def broken(folder: Path, rank: str, number: str, *arguments: str) -> None:
    """The same, but one process gets a signal in its second step."""
    plain, called = Learner.update, 0

    def update(self: Learner, rows: list[list[Sample]]) -> dict[str, float]:
        nonlocal called
        called += 1
        if called == 3 and os.environ["RANK"] == rank:  # there are two policies
            os.kill(os.getpid(), signal.Signals(int(number)))
        return plain(self, rows)

    Learner.update = update  # type: ignore[method-assign]
    command(folder, *arguments)


def exhausted(folder: Path, rank: str, *arguments: str) -> None:
    """The same, but one process has no memory in the middle of an update, while the others go on."""
    plain, called = algorithms.learner.batch_loss, 0

    def loss(*given: Any) -> Any:
        nonlocal called
        called += 1
        if called == 2 and os.environ["RANK"] == rank:
            raise torch.OutOfMemoryError("made up: out of memory")
        return plain(*given)

    algorithms.learner.batch_loss = loss
    command(folder, *arguments)


def full(folder: Path, *arguments: str) -> None:
    """The same, on a disk that gets full; PyTorch then has an error of its own."""

    def save(*_: Any, **__: Any) -> None:
        raise RuntimeError("no space left on device")

    torch.save = save
    command(folder, *arguments)


def errors(folder: Path) -> None:
    """What `Ranks.together` raises where one process has an error, and what it gives afterwards, kind by kind."""
    ranks = join_ranks()
    heard = []
    for kind in (ValueError, EngineError, WorkerLostError):

        def act(kind: type[Exception] = kind) -> int:
            if ranks.rank == 1:
                raise kind("only here")
            return ranks.rank

        try:
            ranks.together(act)
        except kind as error:
            heard.append([type(error).__name__, str(error), ranks.gather(10 * ranks.rank)])
    (folder / f"{ranks.rank}.json").write_text(json.dumps(heard))
    ranks.close()


JOBS: dict[str, Callable[..., None]] = {
    "updates": updates,
    "command": command,
    "broken": broken,
    "exhausted": exhausted,
    "full": full,
    "errors": errors,
}


def fork(job: Callable[..., None], size: int, folder: Path, arguments: list[str], patience: float = 240) -> list[int]:
    """Exit codes of the processes; once one has failed, the others have half a minute, as `torchrun` gives them."""
    port = str(20000 + os.getpid() % 20000)
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            where = {
                "RANK": rank,
                "LOCAL_RANK": rank,
                "WORLD_SIZE": size,
                "LOCAL_WORLD_SIZE": size,
                "MASTER_PORT": port,
            }
            os.environ.update({key: str(value) for key, value in where.items()} | {"MASTER_ADDR": "127.0.0.1"})
            code = 1
            try:
                job(folder, *arguments)
                code = 0
            except SystemExit as leaving:
                code = int(leaving.code or 0)
            except Exception:
                traceback.print_exc()  # as Python does
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        children.append(child)
    codes: dict[int, int] = {}
    deadline = time.monotonic() + patience
    while len(codes) < size:
        for child in set(children) - set(codes):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[child] = os.waitstatus_to_exitcode(status)
                if codes[child] != 0:
                    deadline = min(deadline, time.monotonic() + 30)
        if time.monotonic() > deadline:
            for child in set(children) - set(codes):
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    return [codes[child] for child in children]


if __name__ == "__main__":
    torch.set_num_threads(1)
    job, size, folder, *rest = sys.argv[1:]
    print(json.dumps(fork(JOBS[job], int(size), Path(folder), rest)))
