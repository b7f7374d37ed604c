"""The configuration: what it accepts, what it refuses, how it is written and read back."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from algorithms import TrainingConfig
from algorithms.algorithm import algorithm_class
from algorithms.cli import parse
from algorithms.sgt import SGT


class TestValues:
    def test_one_value_serves_all_policies_and_several_one_each(self) -> None:
        config = TrainingConfig(learning_rate=(1e-4, 2e-4), dtype="bf16", algorithm=["sgt", "grpo"])
        first, second = config.policies()
        assert (first.learning_rate, second.learning_rate) == (1e-4, 2e-4)
        assert (first.dtype, second.dtype) == ("bf16", "bf16")
        assert (first.algorithm, second.algorithm) == ("sgt", "grpo")
        assert (first.name, second.name) == ("policy_0", "policy_1")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"model_name_or_path": ()}, ["model_name_or_path is empty"]),
            ({"learning_rate": (1e-4, 1e-4, 1e-4)}, ["learning_rate has 3 values for 2 policies"]),
            ({"learning_rate": 0.0}, ["learning_rate=0.0", "more than 0"]),
            ({"agents": ("a",)}, ["agents has 1 names for 2 policies"]),
            ({"agents": ("a", "../b")}, ["'../b'"]),
            ({"dtype": "fp16"}, ["dtype='fp16'", "'bf16'"]),
            ({"algorithm": "sgd"}, ["algorithm='sgd'", "did you mean 'sgt'"]),
            ({"algorithm": "json:dumps"}, ["algorithm='json:dumps'", "subclass"]),
            ({"algorithm": "sgt", "algorithm_options": {"sgt_wait": 1}}, ["'sgt_wait'", "did you mean 'sgt_weight'"]),
            ({"algorithm": "sgt", "algorithm_options": {"sgt_weight": -1}}, ["sgt_weight=-1"]),
            ({"algorithm": "xgrpo", "algorithm_options": {"xgrpo_mix": 2}}, ["xgrpo_mix=2", "[0, 1]"]),
            ({"algorithm": "prp", "algorithm_options": {"prp_denominator": "S"}}, ["prp_denominator='S'", "'snapshot'"]),
            ({"num_generations": 1}, ["num_generations=1", "at least 2"]),
            ({"num_generations": 0}, ["num_generations=0"]),
            ({"problems_per_step": 0}, ["problems_per_step=0"]),
            ({"max_steps": 0}, ["max_steps=0"]),
            ({"temperature": 0.0}, ["temperature=0.0"]),
            ({"top_p": 0.0}, ["top_p=0.0"]),
            ({"max_completion_length": 0}, ["max_completion_length=0"]),
            ({"delta": 1.1}, ["delta=1.1", "epsilon_high"]),
            ({"loss_type": "ppo"}, ["loss_type='ppo'", "dapo"]),
            ({"placement": "cluster"}, ["placement='cluster'"]),
            ({"exchange_topology": "star"}, ["topology='star'"]),
            ({"exchange_topology": {"policy_0": ["policy_7"]}}, ["'policy_7'"]),
            ({"exchange_channels": ("thoughts",)}, ["'thoughts'", "rollouts"]),
            ({"per_device_train_batch_size": 3}, ["3 x gradient_accumulation_steps=2 = 6", "multiple of num_generations=8"]),
            ({"save_total_limit": 0}, ["save_total_limit=0"]),
            ({"num_train_epochs": 0.0}, ["num_train_epochs=0.0"]),
        ],
    )  # fmt: skip
    def test_mistakes_name_field_value_and_remedy(self, changes: dict[str, Any], words: list[str]) -> None:
        with pytest.raises(ValueError) as error:
            TrainingConfig(**changes)
        for word in words:
            assert word in str(error.value)


class TestYaml:
    def test_round_trip(self) -> None:
        config = TrainingConfig(
            algorithm=("sgt", "xgrpo"),
            algorithm_options={"sgt_weight": 0.3, "xgrpo_mix": 0.5},
            exchange_topology={"policy_0": ("policy_1",)},
            problem_options={"levels": [1]},
        )
        again = TrainingConfig.from_dict(yaml.safe_load(config.to_yaml()))
        assert again.to_dict() == config.to_dict()
        assert [getattr(a, "sgt_weight", None) for a in again.algorithms()] == [0.3, None]
        assert again.to_dict()["xgrpo_mix"] == 0.5

    def test_an_unknown_key(self) -> None:
        with pytest.raises(ValueError, match="unknown key 'learning_rat'; did you mean 'learning_rate'"):
            TrainingConfig.from_dict({"learning_rat": 1e-4})

    def test_an_option_of_another_algorithm(self) -> None:
        with pytest.raises(ValueError, match="unknown key 'sgt_weight'"):
            TrainingConfig.from_dict({"algorithm": "grpo", "sgt_weight": 0.1})


class TestCommandLine:
    def test_flags_win_over_the_file_and_the_file_over_the_defaults(self, tmp_path: Any) -> None:
        (tmp_path / "run.yaml").write_text("max_steps: 7\nlearning_rate: [0.001, 0.002]\nsgt_weight: 0.3\n")
        _, config = parse("sgt", ["--config", str(tmp_path / "run.yaml"), "--max_steps", "9"])
        assert config.max_steps == 9
        assert config.learning_rate == (0.001, 0.002)
        assert config.problems_per_step == TrainingConfig().problems_per_step
        assert config.algorithms() == [SGT(sgt_weight=0.3), SGT(sgt_weight=0.3)]

    def test_a_flag_wins_over_an_algorithm_option_of_the_file(self, tmp_path: Any) -> None:
        (tmp_path / "run.yaml").write_text("sgt_weight: 0.3\n")
        _, config = parse("sgt", [f"--config={tmp_path / 'run.yaml'}", "--sgt_weight", "0.1"])
        assert config.algorithms()[0] == SGT(sgt_weight=0.1)

    def test_mixed_algorithms_and_mappings(self) -> None:
        flags = ["--algorithm", "sgt", "grpo", "--problem_options", '{"levels": [1, 2]}', "--exchange_topology", "ring"]
        command, config = parse("sgt", [*flags, "--dry_run"])
        assert command.dry_run
        assert config.algorithm == ("sgt", "grpo")
        assert config.problem_options == {"levels": [1, 2]}
        assert config.exchange_topology == "ring"

    def test_a_missing_and_a_broken_file(self, tmp_path: Any) -> None:
        with pytest.raises(ValueError, match=r"config='nowhere.yaml' is not a file"):
            parse("sgt", ["--config", "nowhere.yaml"])
        (tmp_path / "broken.yaml").write_text("a: [1")
        with pytest.raises(ValueError, match="is not valid YAML"):
            parse("sgt", ["--config", str(tmp_path / "broken.yaml")])

    def test_an_unknown_flag_exits_with_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as error:
            parse("sgt", ["--sgt_wait", "1"])
        assert error.value.code == 2
        assert "--sgt_weight" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["grpo", "prp", "xgrpo", "sgt"])
    def test_help_shows_the_equation_the_options_and_their_groups(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            parse(name, ["--help"])
        shown = capsys.readouterr().out
        assert f"python -m algorithms.{name}" in shown
        assert "rho_t" in shown or "A_i" in shown or "NLL" in shown
        for group in ("policy options", "problem options", "exchange options", "learning options", "run options"):
            assert group in shown
        if name != "grpo":
            assert f"--{name}_" in shown

    def test_algorithms_say_how_they_differ_from_grpo(self) -> None:
        import sys

        for name in ("prp", "xgrpo", "sgt"):
            module = sys.modules[algorithm_class(name).__module__]
            assert "Differs from GRPO in" in (module.__doc__ or "")


class TestProblemFiles:
    def test_malformed_rows_stop_the_run_or_are_counted(self, tmp_path: Any) -> None:
        from algorithms.setup import load_eval_problems

        rows = [
            '{"problem": "1 + 1", "answer": "2"}',
            '{"problem": "1 + 2", "answer": ""}',
            '{"problem": "2 + 2", "answer": "4"}',
        ]
        (tmp_path / "mine.jsonl").write_text("\n".join(rows))
        flags = ["--eval_problems", str(tmp_path / "mine.jsonl"), "--problems", str(tmp_path / "mine.jsonl")]
        _, strict = parse("grpo", flags)
        with pytest.raises(ValueError, match=r"mine.jsonl: 1 malformed row(.|\n)*line 2, column 'answer'"):
            load_eval_problems(strict)
        _, lenient = parse("grpo", [*flags, "--skip_invalid"])
        with pytest.warns(UserWarning, match="left out 1 malformed row"):
            assert [problem.answer for problem in load_eval_problems(lenient)] == ["2", "4"]

    def test_a_file_has_no_held_out_split_of_its_own(self, tmp_path: Any) -> None:
        from algorithms.setup import load_eval_problems

        (tmp_path / "mine.jsonl").write_text('{"problem": "1 + 1", "answer": "2"}\n')
        with pytest.raises(ValueError, match="eval_problems is not set"):
            load_eval_problems(TrainingConfig(problems=str(tmp_path / "mine.jsonl")))

    @pytest.mark.parametrize("problems", ["hub:me/mine", "gsm8k:hub:me/mine"])
    def test_a_dataset_of_the_hub_has_a_held_out_split(self, problems: str, monkeypatch: pytest.MonkeyPatch) -> None:
        import algorithms.setup

        asked = []

        def load(name: str, **options: Any) -> list[Any]:
            asked.append((name, options["split"]))
            return []

        monkeypatch.setattr(algorithms.setup, "load_problems", load)
        assert algorithms.setup.load_eval_problems(TrainingConfig(problems=problems)) == []
        assert asked == [(problems, "test")]
