"""Every recipe in configs/ is a run: read as it stands, then trained for two steps on models of its kind that are at hand.

Where a recipe names hub models, random models of a few thousand parameters take their place, each with a real tokenizer of that
or a similar family, so that templates, tokenizers and the THL are the real ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from algorithms import Trainer, TrainingConfig
from algorithms.config import read_yaml

ROOT = Path(__file__).parents[1]

RECIPES = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))

TOKENIZERS = {
    "paper_pool": ("qwen2_5", "qwen3"),
    "llama_mistral": ("llama3_2", "mistral_nemo"),
    "qwen_phi": ("qwen2_5", "llama3_2"),
    "three_policies": ("qwen2_5", "llama3_2", "mistral_nemo"),
    "small_pool": ("llama3_2", "qwen3"),
}


@pytest.fixture(scope="session")
def stand_ins(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """For each real tokenizer the folder of a random model with it."""
    folders = {}
    for name in ("qwen2_5", "qwen3", "llama3_2", "mistral_nemo"):
        tokenizer = AutoTokenizer.from_pretrained(shared / "tokenizers" / name)
        sizes: dict[str, Any] = {
            "vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "tie_word_embeddings": True,
            "max_position_embeddings": 2048, "eos_token_id": tokenizer.eos_token_id,
        }  # fmt: skip
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(Qwen3Config(**sizes)) if "qwen" in name else LlamaForCausalLM(LlamaConfig(**sizes))
        folder = tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders[name] = str(folder)
    return folders


def test_there_are_four_to_six() -> None:
    assert 4 <= len(RECIPES) <= 6
    assert {*TOKENIZERS, "demo"} == set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_read(recipe: str) -> None:
    values = read_yaml(ROOT / "configs" / f"{recipe}.yaml")
    config = TrainingConfig.from_dict(values)
    # Nothing that the file says is lost or changed.
    written = config.to_dict()
    for key, value in values.items():
        expected = value if isinstance(value, list) or not isinstance(written[key], list) else [value]
        assert written[key] == expected, key


@pytest.mark.filterwarnings("ignore:.*left out 2 malformed rows")
@pytest.mark.parametrize("recipe", sorted(TOKENIZERS))
def test_a_recipe_trains(recipe: str, stand_ins: dict[str, str], shared: Path, tmp_path: Path) -> None:
    values = read_yaml(ROOT / "configs" / f"{recipe}.yaml")
    for key in ("problems", "eval_problems"):
        if str(values.get(key)).startswith("data/"):
            values[key] = str(shared / values[key])
    config = replace(
        TrainingConfig.from_dict(values),
        model_name_or_path=tuple(stand_ins[name] for name in TOKENIZERS[recipe]),
        device=("cpu",),
        placement="shared",
        problems_per_step=2,
        num_generations=4,
        per_device_train_batch_size=(4,),
        gradient_accumulation_steps=1,
        max_completion_length=16,
        max_steps=2,
        num_train_epochs=None,
        eval_steps=2,
        eval_size=4,
        # Random models solve nothing; peers' rows are what is to be seen.
        algorithm=("prp",),
        algorithm_options={"prp_denominator": "trace"},
        output_dir=str(tmp_path / "run"),
    )
    trainer = Trainer(config)
    trainer.train()
    for name in trainer.policies:
        assert (tmp_path / "run" / "checkpoint-2" / name / "config.json").exists()
        assert "reward" in trainer.results()[name]
