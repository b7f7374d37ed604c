"""One Ray cluster for all tests of this folder, of two nodes with one CPU each; and what the tests of vLLM train."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from algorithms import TrainingConfig
from algorithms.policy import load_tokenizer


def ray_processes() -> set[int]:
    """Actors and other workers of Ray on this machine."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "cmdline").read_bytes().startswith(b"ray::"):
                    found.add(int(folder.name))
            except OSError:
                continue  # it has just ended
    return found


def wait_until(holds: Any, seconds: float = 60.0) -> bool:
    """Whether a condition comes to hold within some time."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A cluster of two nodes on this machine; nothing of it is left behind."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_worker_niceness", "0")  # as by default a busy machine would let the workers starve
    before = ray_processes()
    memory = {"object_store_memory": 80 * 1024**2}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory})
    cluster.one_cpu = lambda: cluster.add_node(num_cpus=1, **memory)
    cluster.one_cpu()
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    environment.undo()
    assert wait_until(lambda: ray_processes() <= before), "processes of Ray were left behind"


@pytest.fixture(scope="session")
def vllm_pool(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two random models with the embedded pool's tokenizers, and heads of 32, the smallest that vLLM computes on a CPU."""
    sizes: dict[str, Any] = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 32, "max_position_embeddings": 512, "initializer_range": 0.3,
    }  # fmt: skip
    folders = []
    for name, config_class, model_class, tied in (
        ("tiny-llama", LlamaConfig, LlamaForCausalLM, False),
        ("tiny-qwen3", Qwen3Config, Qwen3ForCausalLM, True),
    ):
        tokenizer = load_tokenizer(TrainingConfig(model_name_or_path=name).policies()[0])
        torch.manual_seed(0)
        config = config_class(
            vocab_size=len(tokenizer), eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=tied, **sizes
        )
        folder = tmp_path_factory.mktemp(name)
        model_class(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(str(folder))
    return folders[0], folders[1]


@pytest.fixture(scope="session")
def vllm_config(vllm_pool: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., TrainingConfig]:
    """Of a run of three steps of that pool, with changes."""

    def made(**changes: Any) -> TrainingConfig:
        small: dict[str, Any] = {
            "model_name_or_path": vllm_pool, "algorithm": "sgt", "use_vllm": True, "problems_per_step": 4, "num_generations": 4,
            "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_completion_length": 16, "max_steps": 3,
            "eval_steps": 0, "save_steps": 0, "learning_rate": 1e-2, "beta": 0.01, "num_threads": 1,
            "verifier": "tests.scale.even:EvenLength", "output_dir": str(tmp_path_factory.mktemp("vllm") / "run"),
        }  # fmt: skip
        return TrainingConfig(**{**small, **changes})

    return made


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a command that is started."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
