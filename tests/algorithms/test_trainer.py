"""Whole runs of the embedded pool: resume, determinism, interruption, faults, and what a run leaves behind."""

from __future__ import annotations

import json
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import mrl_env
from algorithms import Trainer, TrainingConfig
from algorithms.checkpoints import list_checkpoints
from algorithms.tracking import TIME_KEYS, read_jsonl

SMALL: dict[str, Any] = {
    "problems_per_step": 4,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "max_completion_length": 24,
    "max_steps": 4,
    "eval_steps": 2,
    "eval_size": 4,
    "eval_samples": 2,
    "save_steps": 2,
    "save_total_limit": None,
}
FLAGS = [word for key, value in SMALL.items() for word in (f"--{key}", str(value))]


def config(output_dir: Path, **changes: Any) -> TrainingConfig:
    return TrainingConfig(**{**SMALL, "output_dir": str(output_dir), "algorithm": "sgt", **changes})


def untimed(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what is measured in seconds."""
    return [
        {k: v for k, v in line.items() if not k.removeprefix("train/").startswith(TIME_KEYS)}
        for line in read_jsonl(run / "metrics.jsonl")
    ]


def weights(checkpoint: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in sorted(checkpoint.glob("*/model.safetensors"))}


def optimizers(checkpoint: Path) -> dict[str, Any]:
    return {p.name: torch.load(p, weights_only=True) for p in sorted(checkpoint.glob("optimizer/*.pt"))}


def assert_same_run(left: Path, right: Path, last: int = 4) -> None:
    """Records, weights and optimizers agree to the bit."""
    assert untimed(left) == untimed(right)
    for name in ("exchange.jsonl", "completions.jsonl"):
        assert (left / name).read_bytes() == (right / name).read_bytes()
    assert weights(left / f"checkpoint-{last}") == weights(right / f"checkpoint-{last}") != {}
    for mine, yours in zip(
        optimizers(left / f"checkpoint-{last}").values(), optimizers(right / f"checkpoint-{last}").values(), strict=True
    ):
        torch.testing.assert_close(mine, yours, rtol=0, atol=0)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of four steps."""
    folder = tmp_path_factory.mktemp("straight") / "run"
    Trainer(config(folder, num_threads=1)).train()
    return folder


class TestRepeatability:
    def test_two_runs_of_one_seed_agree(self, straight: Path, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "run", num_threads=1)).train()
        assert_same_run(straight, tmp_path / "run")

    def test_another_seed_differs(self, straight: Path, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "run", num_threads=1, seed=1, max_steps=1)).train()
        assert untimed(tmp_path / "run")[3:6] != untimed(straight)[3:6]

    def test_two_steps_and_two_more_are_four(self, straight: Path, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "run", num_threads=1, max_steps=2)).train()
        Trainer(config(tmp_path / "run", num_threads=1, resume_from_checkpoint="auto")).train()
        assert_same_run(straight, tmp_path / "run")

    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_a_killed_run_resumes_to_the_same_bits(self, straight: Path, tmp_path: Path, seed: int) -> None:
        run = tmp_path / "run"
        command = [sys.executable, "-m", "algorithms.sgt", *FLAGS, "--output_dir", str(run)]
        command += ["--num_threads", "1", "--save_steps", "1"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        draw = random.Random(seed)
        log = (tmp_path / "stderr").open("w+")
        process = subprocess.Popen(command, env=environment, stderr=log, stdout=subprocess.DEVNULL)
        lines = draw.randrange(0, 13)
        while process.poll() is None and not _has_lines(run / "metrics.jsonl", lines):
            time.sleep(0.01)
        time.sleep(draw.random() * 0.2)
        process.kill()
        process.wait()
        assert process.returncode == -signal.SIGKILL, log.seek(0) or log.read()
        subprocess.run([*command, "--resume_from_checkpoint", "auto"], env=environment, check=True, capture_output=True)
        assert_same_run(straight, run)

    def test_bf16_resumes_to_the_same_bits(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path / "a", dtype="bf16", num_threads=1, max_steps=3, save_steps=1)).train()
        Trainer(config(tmp_path / "b", dtype="bf16", num_threads=1, max_steps=1)).train()
        Trainer(config(tmp_path / "b", dtype="bf16", num_threads=1, max_steps=3, resume_from_checkpoint="auto")).train()
        assert weights(tmp_path / "a" / "checkpoint-3") == weights(tmp_path / "b" / "checkpoint-3") != {}


def _has_lines(path: Path, number: int) -> bool:
    return path.exists() and len(path.read_bytes().splitlines()) >= number


class TestInterruption:
    def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(self, straight: Path, tmp_path: Path) -> None:
        run = tmp_path / "run"
        command = [sys.executable, "-m", "algorithms.sgt", *FLAGS, "--output_dir", str(run)]
        command += ["--num_threads", "1"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        # After the first evaluation (3 lines) training has begun.
        while process.poll() is None and not _has_lines(run / "metrics.jsonl", 4):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        message = process.stderr.read().decode()
        assert process.wait() == 130
        assert f"--resume_from_checkpoint auto --output_dir {run}" in message
        stopped = json.loads((list_checkpoints(run)[-1] / "trainer_state.json").read_text())["step"]
        assert 1 <= stopped < 4
        subprocess.run([*command, "--resume_from_checkpoint", "auto"], env=environment, check=True, capture_output=True)
        assert_same_run(straight, run)


class TestWhatARunLeaves:
    def test_checkpoints_load_in_plain_transformers_and_generate(self, straight: Path) -> None:
        for name in ("policy_0", "policy_1"):
            folder = straight / "checkpoint-4" / name
            model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
            prompt = tokenizer.apply_chat_template(
                [{"role": "user", "content": "Multiply 9 by 4."}],
                add_generation_prompt=True,
                return_tensors="pt",
                return_dict=True,
            )
            generated = model.generate(**prompt, max_new_tokens=8, do_sample=False)
            assert generated.shape[1] > prompt["input_ids"].shape[1]

    def test_training_moved_the_weights(self, straight: Path) -> None:
        first, last = weights(straight / "checkpoint-2"), weights(straight / "checkpoint-4")
        assert all(first[name] != last[name] for name in ("policy_0", "policy_1"))

    def test_metrics_have_their_names_for_each_policy_and_the_pool(self, straight: Path) -> None:
        lines = read_jsonl(straight / "metrics.jsonl")
        assert [(line["step"], line["policy"]) for line in lines[:6]] == [
            (0, "policy_0"), (0, "policy_1"), (0, "pool"), (1, "policy_0"), (1, "policy_1"), (1, "pool"),
        ]  # fmt: skip
        assert {"eval/reward", "eval/mean@2", "eval/pass@2", "eval/maj@2"} <= set(lines[0])
        expected = {
            "reward", "reward_std", "frac_reward_zero_std", "completions/mean_length", "entropy", "exchange/rescue_rate",
            "exchange/peer_rows", "exchange/drop_rate",
        }  # fmt: skip
        assert {f"train/{name}" for name in expected} <= set(lines[3])
        assert {"train/reward", "train/step_time"} <= set(lines[5])

    def test_tensorboard_has_one_folder_per_policy_and_the_pool_with_the_same_values(self, straight: Path) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        folders = sorted(path.name for path in (straight / "tensorboard").iterdir())
        assert folders == ["policy_0", "policy_1", "pool"]
        events = EventAccumulator(str(straight / "tensorboard" / "policy_0"))
        events.Reload()
        written = {line["step"]: line["train/reward"] for line in read_jsonl(straight / "metrics.jsonl")
                   if line["policy"] == "policy_0" and "train/reward" in line}  # fmt: skip
        assert {e.step: e.value for e in events.Scalars("train/reward")} == pytest.approx(written)

    def test_the_exchange_holds_every_completion_once(self, straight: Path) -> None:
        records = [json.loads(line) for line in (straight / "exchange.jsonl").read_text().splitlines()]
        # 4 steps x 2 policies x 4 problems x 4 completions
        assert len(records) == 4 * 2 * 4 * 4
        ids = {(r["agent"], r["problem_id"], r["index"]) for r in records}
        assert len(ids) == len(records)

    def test_the_configuration_says_everything(self, straight: Path) -> None:
        import yaml

        written = yaml.safe_load((straight / "config.yaml").read_text())
        assert TrainingConfig.from_dict(written).to_dict() == written
        assert written["sgt_weight"] == 0.1

    def test_a_finished_run_replays_as_a_peer(self, straight: Path, tmp_path: Path) -> None:
        trainer = Trainer(
            config(
                tmp_path / "run",
                model_name_or_path="tiny-llama",
                exchange_replay=str(straight / "exchange.jsonl"),
                algorithm="prp",
                max_steps=1,
                eval_steps=0,
            )
        )
        metrics = trainer.train_step()["policy_0"]
        # Both recorded policies answered these four problems four times; what was dropped is counted.
        kept = metrics["exchange/peer_rows"]
        assert kept == 32 * (1 - metrics["exchange/drop_rate"]) and kept > 16


class TestFaults:
    def test_disk_full_while_saving_loses_nothing(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "run", save_steps=1, eval_steps=0, max_steps=2))
        trainer.train_step()
        trainer.save()
        before = weights(tmp_path / "run" / "checkpoint-1")
        trainer.train_step()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # No file may grow beyond 64 KiB: the weights do not fit, as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
        try:
            with pytest.raises(OSError, match="earlier checkpoints are untouched"):
                trainer.save()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [path.name for path in list_checkpoints(tmp_path / "run")] == ["checkpoint-1"]
        assert not list((tmp_path / "run").glob(".checkpoint*"))
        assert weights(tmp_path / "run" / "checkpoint-1") == before
        assert trainer.save().name == "checkpoint-2"

    def test_a_folder_that_holds_a_run_is_not_overwritten(self, straight: Path) -> None:
        before = (straight / "metrics.jsonl").read_bytes()
        with pytest.raises(ValueError, match=r"output_dir=.*already holds a run.*--overwrite_output_dir"):
            Trainer(config(straight))
        assert (straight / "metrics.jsonl").read_bytes() == before

    def test_lost_lines_are_noticed_on_resuming(self, tmp_path: Path) -> None:
        run = tmp_path / "run"
        Trainer(config(run, max_steps=1, eval_steps=0, save_steps=1)).train()
        (run / "metrics.jsonl").write_text("")
        with pytest.raises(ValueError, match=r"metrics.jsonl has 0 bytes, but had \d+ at the checkpoint"):
            Trainer(config(run, max_steps=2, resume_from_checkpoint="auto"))

    def test_resuming_with_other_policies_is_refused(self, straight: Path) -> None:
        changed = config(straight, agents=("alice", "bob"), resume_from_checkpoint=str(straight / "checkpoint-4"))
        with pytest.raises(ValueError, match=r"has no policy 'alice' \(it has policy_0, policy_1\)"):
            Trainer(changed)

    def test_a_missing_checkpoint(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"resume_from_checkpoint=.*has no trainer_state.json"):
            Trainer(config(tmp_path, resume_from_checkpoint=str(tmp_path / "checkpoint-7")))

    def test_all_zero_rewards_are_said_loudly(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        trainer = Trainer(config(tmp_path / "run", verifier=f"{__name__}:Never", eval_steps=0))
        with caplog.at_level(logging.WARNING):
            trainer.train_step()
        assert "policy_0: every reward of step 1 is 0" in caplog.text
        assert "wrong 100%" in caplog.text

    def test_held_out_problems_that_are_trained_on_are_named(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Up to case, blanks and the order of options; another order of a sum's terms is another question."""

        def write(name: str, rows: list[dict[str, Any]]) -> str:
            (tmp_path / name).write_text("".join(json.dumps({"answer": "2", **row}) + "\n" for row in rows))
            return str(tmp_path / name)

        def chosen(*options: str) -> dict[str, Any]:
            return {"problem": "Which is two?", "options": options, "answer": "two"}

        train = [
            {"problem": "Compute 4 - 2."},
            {"problem": "Compute  3 - 1."},
            chosen("one", "two"),
            {"problem": "5 - 3"},
        ]
        test = [
            {"problem": "Compute 2 - 4."},
            {"problem": "compute 3 - 1."},
            chosen("two", "one"),
            chosen("two", "six"),
        ]
        settings = {
            "problems": write("train.jsonl", train),
            "eval_problems": write("test.jsonl", test),
            "output_dir": str(tmp_path / "run"),
        }
        with caplog.at_level(logging.WARNING):
            Trainer(TrainingConfig(**(SMALL | settings))).close()
            assert "2 of 4 held-out problems are trained on as well, such as test-1 ('compute 3 - 1.')" in caplog.text
            caplog.clear()
            settings["eval_problems"] = write("other.jsonl", [test[0]])
            settings["output_dir"] = str(tmp_path / "second")
            Trainer(TrainingConfig(**(SMALL | settings))).close()
            assert "trained on as well" not in caplog.text

    def test_a_failing_verifier_is_counted_and_shown(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        trainer = Trainer(config(tmp_path / "run", verifier=f"{__name__}:Broken", eval_steps=0))
        before = {n: p.detach().clone() for n, p in trainer.policies["policy_0"].model.named_parameters()}
        with caplog.at_level(logging.WARNING):
            metrics = trainer.train_step()
        assert metrics["policy_0"]["verdicts/error"] == 1.0
        assert "the verifier failed on 100 %" in caplog.text
        # Completions without a judgement carry no gradient.
        for name, parameter in trainer.policies["policy_0"].model.named_parameters():
            assert torch.equal(parameter, before[name])
        assert "ZeroDivisionError" in (tmp_path / "run" / "exchange.jsonl").read_text()

    def test_a_gate_that_never_opens_is_reported_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("algorithms.alarms.GATE_PATIENCE", 2)
        trainer = Trainer(config(tmp_path / "run", verifier=f"{__name__}:Never", eval_steps=0))
        with caplog.at_level(logging.WARNING):
            for _ in range(4):
                trainer.train_step()
        assert caplog.text.count("policy_1: no peer's completion has reached its rows in 2 steps") == 1

    def test_a_gate_is_given_the_steps_for_which_peers_are_late(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("algorithms.alarms.GATE_PATIENCE", 2)
        trainer = Trainer(config(tmp_path / "run", verifier=f"{__name__}:Never", eval_steps=0, exchange_staleness=2))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                trainer.train_step()
            assert "no peer's completion" not in caplog.text
            trainer.train_step()
        assert "policy_1: no peer's completion has reached its rows in 4 steps" in caplog.text

    def test_non_finite_loss_stops_with_the_policy_named(self, tmp_path: Path) -> None:
        from algorithms.errors import NonFiniteError

        trainer = Trainer(config(tmp_path / "run", max_skipped_updates=1, eval_steps=0, algorithm="grpo"))

        class Poisoned(type(trainer.workers["policy_1"].algorithm)):  # type: ignore[misc]
            def rows(self, group: Any, peers: Any, retokenize: Any) -> Any:
                rows = super().rows(group, peers, retokenize)
                rows[0].advantages[-1] = np.nan
                return rows

        trainer.workers["policy_1"].algorithm = Poisoned()
        with pytest.raises(NonFiniteError, match="policy_1: loss or gradient was not finite"):
            trainer.train()

    def test_a_prompt_longer_than_the_context(self, tmp_path: Path) -> None:
        (tmp_path / "long.jsonl").write_text(json.dumps({"problem": "1 + 1 " * 4000, "answer": "2"}) + "\n")
        trainer = Trainer(config(tmp_path / "run", problems=str(tmp_path / "long.jsonl"), eval_steps=0,
                                 problems_per_step=1, per_device_train_batch_size=2))  # fmt: skip
        with pytest.raises(ValueError, match=r"policy_0: a prompt of \d+ tokens .* exceed the model's context"):
            trainer.train_step()

    def test_an_answer_that_no_verifier_parses_is_found_before_training(self, tmp_path: Path) -> None:
        rows = [{"problem": "1 + 1", "answer": "2"}] * 5 + [{"problem": "1 + 2", "answer": "$$"}]
        (tmp_path / "bad.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(ValueError, match=r"problem bad-5: answer='\$\$'"):
            Trainer(config(tmp_path / "run", problems=str(tmp_path / "bad.jsonl"), eval_steps=0))

    def test_a_problem_that_turns_out_unusable_late_loses_no_step(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "run", eval_steps=0, save_steps=0))
        trainer.train_step()
        trainer.train_step()
        trained = {n: p.detach().clone() for n, p in trainer.policies["policy_0"].model.named_parameters()}
        trainer.env.unwrapped.verifier = Unreadable()
        with pytest.raises(ValueError, match="cannot be read"):
            trainer.train()
        again = Trainer(config(tmp_path / "run", eval_steps=0, resume_from_checkpoint="auto"))
        assert again.step == 2
        for name, parameter in again.policies["policy_0"].model.named_parameters():
            assert torch.equal(parameter, trained[name])


class Unreadable:
    """A verifier that accepts no reference answer."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Any:
        raise AssertionError("not reached")

    def check_answer(self, answer: str, **metadata: Any) -> None:
        from verifiers import BadGoldError

        raise BadGoldError(f"answer={answer!r} cannot be read")


class Never:
    """A verifier that no completion satisfies."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Any:
        from verifiers import Verdict

        return Verdict(0.0)


class Broken:
    """A verifier that fails."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Any:
        raise ZeroDivisionError("on purpose")


class TestMixtures:
    def test_each_policy_has_its_own_algorithm(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path / "run", algorithm=("sgt", "grpo"), eval_steps=0, max_steps=3))
        trainer.train()
        lines = [line for line in read_jsonl(tmp_path / "run" / "metrics.jsonl") if line["policy"] != "pool"]
        peer_rows = {name: sum(x["train/exchange/peer_rows"] for x in lines if x["policy"] == name)
                     for name in ("policy_0", "policy_1")}  # fmt: skip
        assert peer_rows["policy_1"] == 0 < peer_rows["policy_0"]

    def test_one_policy_alone_runs_every_algorithm_alike(self, tmp_path: Path) -> None:
        found = {}
        for algorithm in ("grpo", "prp", "xgrpo", "sgt"):
            run = tmp_path / algorithm
            Trainer(config(run, model_name_or_path="tiny-llama", algorithm=algorithm, eval_steps=0, max_steps=2,
                           num_threads=1)).train()  # fmt: skip
            found[algorithm] = weights(run / "checkpoint-2")
        assert found["grpo"] == found["prp"] == found["xgrpo"] == found["sgt"] != {}

    def test_three_policies_in_a_ring(self, tmp_path: Path) -> None:
        trainer = Trainer(
            config(
                tmp_path / "run",
                model_name_or_path=("tiny-llama", "tiny-qwen3", "tiny-llama"),
                agents=("a", "b", "c"),
                exchange_topology="ring",
                algorithm="prp",
                eval_steps=0,
            )
        )
        metrics = trainer.train_step()
        # In a ring of three everybody reads one peer: 4 problems x 4 completions, less what was dropped.
        for values in metrics.values():
            assert 0 < values["exchange/peer_rows"] <= 16

    @pytest.mark.parametrize(("algorithm", "delay"), [("sgt", 0), ("prp", 0), ("xgrpo", 0), ("sgt", 1), ("prp", 1)])
    def test_permuting_the_agents_permutes_the_results(self, tmp_path: Path, algorithm: str, delay: int) -> None:
        agents = {"a": "tiny-llama", "b": "tiny-qwen3", "c": "tiny-llama"}
        found = []
        for order in (("a", "b", "c"), ("c", "a", "b")):
            run = tmp_path / "".join(order)
            Trainer(config(run, agents=order, model_name_or_path=tuple(agents[name] for name in order),
                           algorithm=algorithm, eval_steps=0, max_steps=2, num_threads=1,
                           exchange_staleness=delay)).train()  # fmt: skip
            lines = {(line["step"], line["policy"]): line for line in untimed(run) if line["policy"] != "pool"}
            found.append((weights(run / "checkpoint-2"), lines))
        assert found[0] == found[1]
        assert set(found[0][0]) == {"a", "b", "c"}

    def test_weight_zero_gives_grpo_to_the_bit(self, tmp_path: Path) -> None:
        runs = {"grpo": ("grpo", {}), "sgt": ("sgt", {"sgt_weight": 0.0}), "xgrpo": ("xgrpo", {"xgrpo_mix": 0.0})}
        found = {}
        for name, (algorithm, options) in runs.items():
            Trainer(config(tmp_path / name, algorithm=algorithm, algorithm_options=options, eval_steps=0, max_steps=2,
                           num_threads=1)).train()  # fmt: skip
            found[name] = weights(tmp_path / name / "checkpoint-2")
        assert found["grpo"] == found["sgt"] == found["xgrpo"] != {}

    def test_an_environment_and_algorithms_of_ones_own(self, tmp_path: Path) -> None:
        from algorithms.xgrpo import XGRPO

        env = mrl_env.make("math-mutual-v0", problems="arithmetic", problems_per_episode=4, generations=4,
                           channels=("rewards",), problem_options={"subjects": ["mult"]})  # fmt: skip
        trainer = Trainer(config(tmp_path / "run", eval_steps=0), env=env, algorithms=[XGRPO(), XGRPO()])
        trainer.train_step()
        questions = {r["question"] for r in read_jsonl(tmp_path / "run" / "completions.jsonl")}
        assert questions and all(question.startswith("Multiply") for question in questions)

    def test_epochs_set_the_steps(self, tmp_path: Path) -> None:
        options = {"size": 20}
        trainer = Trainer(config(tmp_path / "run", num_train_epochs=1.5, problem_options=options, eval_size=2))
        assert trainer.total_steps == 7  # 1.5 x (20 // 4)
