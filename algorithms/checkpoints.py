"""Checkpoints: written to a temporary folder and renamed, so that there is a whole one or none.

    output_dir/checkpoint-20/
        policy_0/            loads with AutoModelForCausalLM.from_pretrained; an adapter with PEFT's AutoPeftModelForCausalLM
        policy_1/
        optimizer/policy_0.pt, policy_1.pt
        trainer_state.json   step, counters, sizes of the record files
        config.yaml          the resolved configuration

No random state is stored: every draw is derived by hash from the seed, the step and the place where it is made.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_NAME = re.compile(r"checkpoint-(\d+)")


def save_checkpoint(
    output_dir: Path,
    step: int,
    save_policies: Callable[[Path], None],
    state: Mapping[str, Any],
    config_yaml: str,
    limit: int | None = None,
) -> Path:
    """Write `checkpoint-{step}`, unless it is there already, and remove the oldest ones beyond the limit.

    Args:
        output_dir: the run's folder.
        step: that is done.
        save_policies: writes models and optimizers into a folder.
        state: counters, as JSON.
        config_yaml: the resolved configuration.
        limit: checkpoints kept; None keeps all.

    Raises:
        OSError: if it cannot be written (disk full, read-only); what was half written is removed, earlier checkpoints stay.
    """
    folder = output_dir / f"checkpoint-{step}"
    scratch = output_dir / f".checkpoint-{step}.part"
    if folder in list_checkpoints(output_dir):
        return folder
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir()
        save_policies(scratch)
        (scratch / "config.yaml").write_text(config_yaml, encoding="utf-8")
        (scratch / "trainer_state.json").write_text(json.dumps({"step": step, **state}, indent=2), encoding="utf-8")
        scratch.rename(folder)
    except Exception as error:
        shutil.rmtree(scratch, ignore_errors=True)
        raise OSError(
            f"{folder} cannot be written ({error}); earlier checkpoints are untouched. Free the disk or change output_dir, "
            "then go on with --resume_from_checkpoint auto"
        ) from error
    if limit is not None:
        for old in list_checkpoints(output_dir)[:-limit]:
            shutil.rmtree(old)
    return folder


def list_checkpoints(output_dir: Path) -> list[Path]:
    """The whole checkpoint folders, oldest step first."""
    if not output_dir.is_dir():
        return []
    named = [(int(match[1]), path) for path in output_dir.iterdir() if (match := _NAME.fullmatch(path.name))]
    found = [(step, path) for step, path in named if (path / "trainer_state.json").is_file()]
    return [path for _, path in sorted(found)]


def resolve_checkpoint(output_dir: Path, resume_from_checkpoint: str | None) -> Path | None:
    """The checkpoint to resume from: None to begin anew, also for `auto` where nothing has been done yet.

    Raises:
        ValueError: if a named folder is no checkpoint.
    """
    if resume_from_checkpoint is None:
        return None
    if resume_from_checkpoint == "auto":
        checkpoints = list_checkpoints(output_dir)
        return checkpoints[-1] if checkpoints else None
    read_state(Path(resume_from_checkpoint))
    return Path(resume_from_checkpoint)


def claim_folder(output_dir: Path, *, resuming: bool, overwrite: bool) -> None:
    """Make a run's folder, and refuse one that already holds a run.

    Raises:
        ValueError: if it does, and the run is neither resumed nor to be overwritten; or if the folder cannot be made.
    """
    occupied = (output_dir / "metrics.jsonl").exists() or bool(list_checkpoints(output_dir))
    if occupied and not resuming and not overwrite:
        raise ValueError(
            f"output_dir={str(output_dir)!r} already holds a run; choose another, go on with --resume_from_checkpoint auto, "
            "or begin anew with --overwrite_output_dir"
        )
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"output_dir={str(output_dir)!r} cannot be made ({error.strerror}); name a folder that you may write to"
        ) from error


def clear_run(output_dir: Path) -> None:
    """Remove the checkpoints and event files of an earlier run, and nothing else."""
    for path in (*output_dir.glob("checkpoint-*"), *output_dir.glob(".checkpoint-*"), output_dir / "tensorboard"):
        shutil.rmtree(path, ignore_errors=True)


def forget_later_checkpoints(output_dir: Path, step: int) -> None:
    """Remove the checkpoints behind the step that a run goes on from: they belong to a course that is given up."""
    for path in list_checkpoints(output_dir):
        if int(path.name.removeprefix("checkpoint-")) > step:
            shutil.rmtree(path)


def read_state(folder: Path) -> dict[str, Any]:
    """What `save_checkpoint` got as state, and `step`.

    Raises:
        ValueError: if the folder is no checkpoint.
    """
    path = folder / "trainer_state.json"
    if not path.is_file():
        raise ValueError(
            f"resume_from_checkpoint={str(folder)!r} has no trainer_state.json; give a checkpoint-N folder, or auto"
        )
    state: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return state
