"""Checkpoints and folders when things go wrong around a run: damage, kills, rivals, signals, weights that are none."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from algorithms import Trainer, TrainingConfig
from algorithms.checkpoints import FolderLock, damage, list_checkpoints, resolve_checkpoint, save_checkpoint
from algorithms.cli import run
from algorithms.errors import NonFiniteError
from algorithms.interruption import Interruption
from algorithms.optimization import all_finite
from algorithms.samples import make_sample
from algorithms.tracking import EventFile, Tracker, read_jsonl


def config(folder: Path, **changes: Any) -> TrainingConfig:
    small: dict[str, Any] = {
        "problems_per_step": 2, "num_generations": 2, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 1,
        "max_completion_length": 8, "eval_steps": 0, "save_steps": 1, "output_dir": str(folder),
    }  # fmt: skip
    return TrainingConfig(**{**small, **changes})


def save(folder: Path, step: int, text: str = "weights", limit: int | None = None) -> Path:
    """A checkpoint of one policy whose model is a text."""

    def save_policies(scratch: Path) -> None:
        (scratch / "policy_0").mkdir()
        (scratch / "policy_0" / "model").write_text(text)

    return save_checkpoint(folder, step, save_policies, {}, "seed: 0\n", limit)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncate, "policy_0/model has 6 bytes instead of 7"),
    "a bit flipped": (flip_a_bit, "policy_0/model has another SHA-256"),
    "gone": (Path.unlink, "policy_0/model is missing"),
}


class TestDamage:
    def test_the_manifest_holds_what_sha256_gives(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 1)
        files = json.loads((folder / "manifest.json").read_text())["files"]
        assert set(files) == {"policy_0/model", "config.yaml", "trainer_state.json"}
        assert files["policy_0/model"] == {"bytes": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}
        assert damage(folder) is None

    @pytest.mark.parametrize("how", DAMAGES)
    def test_auto_goes_back_to_the_newest_whole_one_and_says_so(
        self, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        whole, hurt = save(tmp_path, 1), save(tmp_path, 2)
        break_it, said = DAMAGES[how]
        break_it(hurt / "policy_0" / "model")
        assert resolve_checkpoint(tmp_path, "auto") == whole
        assert f"DAMAGED CHECKPOINT: {hurt}: {said}" in caplog.text

    @pytest.mark.parametrize("how", DAMAGES)
    def test_a_damaged_one_is_refused(self, tmp_path: Path, how: str) -> None:
        hurt = save(tmp_path, 2)
        break_it, said = DAMAGES[how]
        break_it(hurt / "policy_0" / "model")
        with pytest.raises(ValueError, match=f"resume_from_checkpoint=.*is damaged: {said}"):
            resolve_checkpoint(tmp_path, str(hurt))
        with pytest.raises(ValueError, match=r"no checkpoint of .* is whole.*--overwrite_output_dir"):
            resolve_checkpoint(tmp_path, "auto")

    @pytest.mark.parametrize("content", ["", "{", "[]", '{"files": {"config.yaml": 3}}', "\x00"])
    def test_a_garbled_manifest(self, tmp_path: Path, content: str) -> None:
        folder = save(tmp_path, 1)
        (folder / "manifest.json").write_text(content)
        assert damage(folder) == "manifest.json is garbled"

    def test_without_a_manifest_it_is_half_written(self, tmp_path: Path) -> None:
        folder = save(tmp_path, 1)
        (folder / "manifest.json").unlink()
        assert damage(folder) == "manifest.json is missing (earlier versions wrote none)"

    def test_where_nothing_was_saved_a_run_begins_anew(self, tmp_path: Path) -> None:
        assert resolve_checkpoint(tmp_path, "auto") is None

    def test_a_run_goes_on_from_the_whole_one_and_makes_the_other_again(self, tmp_path: Path) -> None:
        Trainer(config(tmp_path, max_steps=2)).train()
        before = (tmp_path / "checkpoint-2" / "policy_0" / "model.safetensors").read_bytes()
        lines = (tmp_path / "exchange.jsonl").read_bytes()
        truncate(tmp_path / "checkpoint-2" / "policy_0" / "model.safetensors")
        resumed = Trainer(config(tmp_path, max_steps=2, resume_from_checkpoint="auto"))
        assert resumed.step == 1
        resumed.train()
        assert (tmp_path / "checkpoint-2" / "policy_0" / "model.safetensors").read_bytes() == before
        assert (tmp_path / "exchange.jsonl").read_bytes() == lines
        assert damage(tmp_path / "checkpoint-2") is None


class TestWriting:
    def test_old_ones_go_and_leave_nothing(self, tmp_path: Path) -> None:
        for step in (1, 2, 3):
            save(tmp_path, step, limit=2)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-2", "checkpoint-3"]

    def test_everything_is_on_the_disk_before_it_has_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[str] = []
        real_fsync, real_rename = os.fsync, Path.rename

        def fsync(descriptor: int) -> None:
            events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            real_fsync(descriptor)

        def rename(path: Path, target: Path) -> Path:
            events.append(f"rename to {target.name}")
            return real_rename(path, target)

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(Path, "rename", rename)
        save(tmp_path, 1)
        named = events.index("rename to checkpoint-1")
        inside = {"model", "policy_0", "config.yaml", "trainer_state.json", "manifest.json", ".checkpoint-1.part"}
        assert set(events[:named]) == inside
        assert events[named + 1 :] == [tmp_path.name]

    def test_a_step_that_fails_leaves_no_records_of_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer = Trainer(config(tmp_path, save_steps=0, max_steps=3))
        trainer.train_step()
        before = (tmp_path / "exchange.jsonl").read_bytes()

        def torn(actions: Any) -> Any:
            with (tmp_path / "exchange.jsonl").open("ab") as file:
                file.write(b'{"schema": 1, "problem_id"')
            raise RuntimeError("the verifier is gone")

        monkeypatch.setattr(trainer.env, "step", torn)
        with pytest.raises(RuntimeError, match="the verifier is gone"):
            trainer.train()
        Trainer(config(tmp_path, resume_from_checkpoint="auto"))
        assert (tmp_path / "exchange.jsonl").read_bytes() == before


class TestLock:
    def test_a_second_run_is_refused_and_names_the_first(self, tmp_path: Path) -> None:
        first = Trainer(config(tmp_path, max_steps=1))
        for way in ({}, {"overwrite_output_dir": True}, {"resume_from_checkpoint": "auto"}):
            with pytest.raises(ValueError, match=rf"output_dir=.*another run \(process {os.getpid()} on "):
                Trainer(config(tmp_path, **way))
        first.train()
        assert Trainer(config(tmp_path, resume_from_checkpoint="auto")).step == 1

    def test_a_run_that_could_not_begin_holds_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"nowhere\.jsonl"):
            Trainer(config(tmp_path, exchange_replay="nowhere.jsonl"))
        first = Trainer(config(tmp_path))
        first.train_step()
        first.close()
        with pytest.raises(ValueError, match="already holds a run"):
            Trainer(config(tmp_path))
        Trainer(config(tmp_path, overwrite_output_dir=True)).close()

    def test_a_dead_process_holds_nothing(self, tmp_path: Path) -> None:
        code = "import sys, time, pathlib; from algorithms.checkpoints import FolderLock\n"
        code += "lock = FolderLock(pathlib.Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
        holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=f"process {holder.pid} on"):
            FolderLock(tmp_path)
        holder.kill()
        holder.wait()
        FolderLock(tmp_path).release()


class TestInterruption:
    @pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
    @pytest.mark.parametrize(
        "before", [signal.default_int_handler, signal.SIG_IGN]
    )  # that of a shell's background jobs
    def test_a_second_signal_of_another_kind_stops_at_once(self, first: signal.Signals, before: Any) -> None:
        term, outside = signal.getsignal(signal.SIGTERM), signal.signal(signal.SIGINT, before)
        try:
            with Interruption() as interruption:
                signal.raise_signal(first)
                assert interruption.requested
                with pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) == before
            assert signal.getsignal(signal.SIGTERM) == term
        finally:
            signal.signal(signal.SIGINT, outside)

    def test_ctrl_c_while_models_load_is_no_traceback(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(*_: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("algorithms.trainer.make_plan", interrupted)
        with pytest.raises(SystemExit) as leaving:
            run(config(tmp_path))
        assert leaving.value.code == 130
        assert capsys.readouterr().err == "stopped at once; the last checkpoint is whole\n"


class TestWeights:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_one_bad_element_is_enough(self, dtype: torch.dtype) -> None:
        for value in (float("nan"), float("inf"), float("-inf")):
            weights = [torch.zeros(3, dtype=dtype), torch.ones(2, 5, dtype=dtype), torch.empty(0, dtype=dtype)]
            assert all_finite(weights)
            weights[1][1, 4] = value
            assert not all_finite(weights)

    def test_an_update_that_overflows_stops_the_run(self, make_llama: Any, make_learner: Any) -> None:
        # A finite gradient times this rate is beyond float32.
        learner = make_learner(make_llama(), torch.optim.SGD, learning_rate=3e38)
        row = make_sample([3, 4], [5, 6, 7], nll_weight=1e4, source="me")
        with pytest.raises(
            NonFiniteError, match="me: weights are no longer finite after 1 updates; they are not saved"
        ):
            learner.update([[row]])

    def test_broken_weights_are_not_saved(self, tmp_path: Path) -> None:
        trainer = Trainer(config(tmp_path, max_steps=3))
        trainer.train_step()
        trainer.save()
        trainer.train_step()
        next(trainer.policies["policy_1"].model.parameters()).data[0, 0] = float("nan")
        with pytest.raises(NonFiniteError, match="policy_1: weights are no longer finite"):
            trainer.save()
        with pytest.raises(NonFiniteError):
            trainer.train()
        assert sorted(path.name for path in tmp_path.glob("*checkpoint*")) == ["checkpoint-1"]
        assert [damage(folder) for folder in list_checkpoints(tmp_path)] == [None]


class TestCurves:
    def points(self, folder: Path) -> list[tuple[int, float]]:
        events = EventAccumulator(str(folder))
        events.Reload()
        return [(event.step, event.value) for event in events.Scalars("train/loss")]

    def test_steps_that_are_made_again_stand_once(self, tmp_path: Path) -> None:
        first = Tracker(tmp_path)
        for step in (1, 2, 3):
            first.metrics(step, "pool", "train", {"loss": float(step)})
        first.close()
        resumed = Tracker(tmp_path, start_step=1)
        for step in (2, 3, 4):
            resumed.metrics(step, "pool", "train", {"loss": 10.0 * step})
        resumed.close()
        assert self.points(tmp_path / "tensorboard" / "pool") == [(1, 1.0), (2, 20.0), (3, 30.0), (4, 40.0)]

    def test_a_clock_that_went_back_changes_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "events.out.tfevents.1790000000.host.1.0").touch()  # as other writers name them
        for step, clock in ((1, 2e9), (2, 1e9)):
            monkeypatch.setattr("algorithms.tracking.time.time", lambda clock=clock: clock)
            file = EventFile(tmp_path, start_step=step - 1)
            file.scalar("train/loss", step, step)
            file.close()
        assert self.points(tmp_path) == [(1, 1.0), (2, 2.0)]

    def test_a_full_disk_is_an_error_at_once(self, tmp_path: Path) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        file = EventFile(tmp_path)
        file.flush()
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
        file.scalar("a tag of some length, so that two of them are too much", 1.0, 1)
        file.scalar("a tag of some length, so that two of them are too much", 1.0, 2)
        try:
            with pytest.raises(OSError, match="File too large"):
                file.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            file.close()


def test_a_torn_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": ')
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2 is no JSON"):
        read_jsonl(tmp_path / "metrics.jsonl")


def test_a_full_disk_is_one_sentence_that_says_how_to_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "metrics.jsonl")

    monkeypatch.setattr("algorithms.tracking.append_jsonl", full)
    with caplog.at_level(logging.CRITICAL), pytest.raises(SystemExit) as leaving:
        run(config(tmp_path, max_steps=1))
    assert leaving.value.code == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: [Errno 28] No space left on device: 'metrics.jsonl'; what was saved is untouched")
    assert "--resume_from_checkpoint auto" in said
