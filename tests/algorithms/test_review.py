"""Mistakes and mishaps around a run that once went wrong silently."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import mrl_env
from algorithms import Trainer, TrainingConfig
from algorithms.checkpoints import list_checkpoints, resolve_checkpoint
from algorithms.cli import parse
from algorithms.setup import problem_arguments
from mrl_env.problems import load_problems

SMALL: dict[str, Any] = {
    "problems_per_step": 2,
    "num_generations": 2,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 1,
    "max_completion_length": 8,
    "eval_steps": 0,
    "save_steps": 1,
}


def config(folder: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**{**SMALL, "output_dir": str(folder), **changes})


def names(folder: Path) -> list[str]:
    return [path.name for path in list_checkpoints(folder)]


class TestResuming:
    def test_going_on_from_an_earlier_step_gives_up_the_later_checkpoints(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path, max_steps=4, save_total_limit=None)).train()
        again = config(tmp_path, max_steps=3, save_total_limit=2, resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
        Trainer(again).train()
        assert names(tmp_path) == ["checkpoint-2", "checkpoint-3"]
        newest = Trainer(config(tmp_path, max_steps=4, resume_from_checkpoint="auto"))
        assert newest.step == 3

    def test_the_command_takes_up_the_runs_own_settings(self, tmp_path: Path) -> None:
        Trainer(
            config(tmp_path, algorithm="sgt", algorithm_options={"sgt_weight": 0.2}, learning_rate=3e-4, max_steps=1)
        ).train()
        _, resumed = parse(
            "sgt", ["--resume_from_checkpoint", "auto", "--output_dir", str(tmp_path), "--max_steps", "2"]
        )
        assert resumed.learning_rate == (3e-4,)
        assert resumed.algorithms()[0].sgt_weight == 0.2  # type: ignore[attr-defined]
        assert (resumed.max_steps, resumed.resume_from_checkpoint) == (2, "auto")

    def test_other_settings_are_said(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        Trainer(config(tmp_path, max_steps=1)).train()
        with caplog.at_level(logging.WARNING):
            Trainer(config(tmp_path, max_steps=2, learning_rate=5e-4, resume_from_checkpoint="auto"))
        assert "learning_rate: [0.0001] is now [0.0005]" in caplog.text
        assert "max_steps" not in caplog.text

    def test_other_models_are_refused(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path, max_steps=1)).train()
        swapped = config(tmp_path, model_name_or_path=("tiny-qwen3", "tiny-llama"), resume_from_checkpoint="auto")
        with pytest.raises(ValueError, match="holds another model than policy_0"):
            Trainer(swapped)

    def test_auto_needs_a_folder_and_a_named_checkpoint_brings_it(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="name output_dir"):
            Trainer(TrainingConfig(**SMALL, resume_from_checkpoint="auto"))
        Trainer(config(tmp_path, max_steps=1)).train()
        resumed = Trainer(TrainingConfig(**SMALL, resume_from_checkpoint=str(tmp_path / "checkpoint-1")))
        assert resumed.output_dir == tmp_path and resumed.step == 1

    def test_a_half_deleted_checkpoint_is_none(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path, max_steps=2, save_total_limit=None)).train()
        (tmp_path / "checkpoint-2" / "trainer_state.json").unlink()
        assert resolve_checkpoint(tmp_path, "auto") == tmp_path / "checkpoint-1"

    def test_saving_a_step_twice_leaves_the_first(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path, max_steps=1))
        trainer.train_step()
        first = trainer.save()
        before = (first / "trainer_state.json").stat().st_mtime_ns
        assert trainer.save() == first
        assert (first / "trainer_state.json").stat().st_mtime_ns == before

    def test_a_source_that_fails_late_loses_no_step(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path, save_steps=0))
        trainer.train_step()

        class Gone:
            def __len__(self) -> int:
                return 100

            def __getitem__(self, index: int) -> Any:
                raise KeyError("row is gone")

        trainer.env.unwrapped.source = Gone()
        with pytest.raises(KeyError, match="row is gone"):
            trainer.train()
        assert names(tmp_path) == ["checkpoint-1"]


class TestTypes:
    def test_numbers_that_yaml_holds_as_text(self) -> None:
        values = yaml.safe_load("learning_rate: 1e-4\nbeta: 1e-3\nmax_steps: '60'")
        assert values["learning_rate"] == "1e-4"  # YAML 1.1 wants 1.0e-4
        made = TrainingConfig.from_dict(values)
        assert (made.learning_rate, made.beta, made.max_steps) == ((1e-4,), 1e-3, 60)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"max_steps": 1.5}, "max_steps=1.5 is no int"),
            ({"learning_rate": "fast"}, "learning_rate='fast' is no float"),
            ({"gradient_checkpointing": "false"}, "gradient_checkpointing='false' is no bool"),
            ({"temperature": float("nan")}, "temperature=nan is no float"),
            ({"algorithm": None}, "algorithm=None is no str"),
            ({"env": None}, "env=None is no str"),
        ],
    )
    def test_wrong_types_are_named(self, changes: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            TrainingConfig(**changes)


class TestChoices:
    @pytest.mark.parametrize("name", ["pool", "optimizer"])
    def test_names_that_a_run_uses_itself(self, name: str) -> None:
        with pytest.raises(ValueError, match=f"agents has the name '{name}'"):
            TrainingConfig(agents=(name, "b"))

    def test_channels_that_an_algorithm_cannot_do_without(self) -> None:
        with pytest.raises(ValueError, match="lack rewards, which sgt reads"):
            TrainingConfig(algorithm="sgt", exchange_channels=("rollouts",))

    def test_a_topology_on_the_command_line(self) -> None:
        _, made = parse("sgt", ["--exchange_topology", '{"policy_0": ["policy_1"]}'])
        assert made.exchange_topology == {"policy_0": ["policy_1"]}

    def test_a_module_that_trains_another_algorithm_says_so(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "run.yaml").write_text("algorithm: grpo\n")
        with caplog.at_level(logging.WARNING):
            parse("sgt", ["--config", str(tmp_path / "run.yaml")])
        assert "trains grpo" in caplog.text

    def test_another_optimizer_does_not_get_adams_arguments(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "a", optim="torch.optim:SGD"))
        assert isinstance(trainer.workers["policy_0"].learner.optimizer.optimizer, torch.optim.SGD)
        with pytest.raises(ValueError, match=r"optim='torch.optim:SGD' cannot be made with .*betas"):
            Trainer(config(tmp_path / "b", optim="torch.optim:SGD", optim_args={"betas": (0.9, 0.99)}))

    def test_a_registered_domain_keeps_its_problems_unless_told_otherwise(self) -> None:
        mrl_env.register(
            "only-products-v0", kwargs={"problems": "arithmetic", "problem_options": {"subjects": ["mult"]}}
        )
        assert problem_arguments(TrainingConfig(env="only-products-v0")) == {
            "problems": "arithmetic",
            "problem_options": {"subjects": ["mult"]},
        }
        told = problem_arguments(
            TrainingConfig(env="only-products-v0", problems="math", problem_options={"levels": [1]})
        )
        assert told == {"problems": "math", "problem_options": {"levels": [1]}}

    def test_an_environment_of_ones_own_is_not_evaluated_on_something_else(self, tmp_path: Path) -> None:
        env = mrl_env.make("arithmetic-mutual-v0", problems_per_episode=2, generations=2)
        with pytest.raises(ValueError, match="eval_problems must be named"):
            Trainer(config(tmp_path, eval_steps=1), env=env)

    def test_bad_answers_of_a_file_are_found_below_an_instruction_too(self, tmp_path: Path) -> None:
        (tmp_path / "bad.jsonl").write_text(
            "".join(json.dumps({"problem": f"{i}?", "answer": "2" if i else "$$"}) + "\n" for i in range(4))
        )
        options = {"instruction": "Put it in a box."}
        with pytest.raises(ValueError, match="problem bad-0"):
            Trainer(config(tmp_path / "run", problems=str(tmp_path / "bad.jsonl"), problem_options=options))

    def test_records_can_be_left_unwritten(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path, exchange_log=False, algorithm="prp", max_steps=1))
        assert trainer.train_step()["policy_0"]["exchange/peer_rows"] >= 0
        assert not (tmp_path / "exchange.jsonl").exists()

    def test_traces_are_kept_only_where_somebody_reads_them(self, tmp_path: Path) -> None:
        found = {}
        for algorithm in ("sgt", "prp"):
            Trainer(config(tmp_path / algorithm, algorithm=algorithm, max_steps=1)).train_step()
            lines = (tmp_path / algorithm / "exchange.jsonl").read_text().splitlines()
            found[algorithm] = any(json.loads(line)["trace"] is not None for line in lines)
        assert found == {"sgt": False, "prp": True}

    def test_runs_that_begin_in_one_second_get_folders_of_their_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from algorithms.trainer import new_output_dir

        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("algorithms.trainer.time.strftime", lambda form: "20260101-000000")
        made = [new_output_dir(TrainingConfig()) for _ in range(3)]
        assert len(set(made)) == 3 and all(folder.is_dir() for folder in made)


def test_other_questions_have_other_ids() -> None:
    easy, hard = (load_problems("arithmetic", levels=[level])[0] for level in (1, 3))
    assert easy.question != hard.question and easy.id != hard.id
    algebra, geometry = (load_problems("math", subjects=[subject])[0] for subject in ("algebra", "geometry"))
    assert algebra.id != geometry.id
    assert load_problems("math", subjects=["algebra"])[0].id == algebra.id
