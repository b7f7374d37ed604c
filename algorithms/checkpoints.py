"""Checkpoints: written to a temporary folder, put on the disk and renamed, so that there is a whole one or none.

    output_dir/checkpoint-20/
        policy_0/            loads with AutoModelForCausalLM.from_pretrained; an adapter with PEFT's AutoPeftModelForCausalLM
        policy_1/
        optimizer/policy_0.pt, policy_1.pt
        delayed.json         with exchange_staleness: the last steps, whose peers' records are not learnt yet
        trainer_state.json   step, counters, sizes of the record files
        config.yaml          the resolved configuration
        manifest.json        size and SHA-256 of each file; a checkpoint that does not agree with it is not loaded

No random state is stored: every draw is derived by hash from the seed, the step and the place where it is made.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from algorithms.errors import NonFiniteError, WorkerLostError

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"

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
        WorkerLostError: if a policy's process is lost meanwhile.
        OSError: if it cannot be written (disk full, read-only); what was half written is removed, earlier checkpoints stay.
        NonFiniteError: if there are weights that are not worth keeping.
        ValueError: if the run holds something that cannot be saved.
    """
    folder = output_dir / f"checkpoint-{step}"
    scratch = output_dir / f".checkpoint-{step}.part"
    if folder.exists():
        return folder
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        scratch.mkdir()
        save_policies(scratch)
        (scratch / "config.yaml").write_text(config_yaml, encoding="utf-8")
        (scratch / "trainer_state.json").write_text(json.dumps({"step": step, **state}, indent=2), encoding="utf-8")
        _write_manifest(scratch)
        sync(*(path for path in scratch.rglob("*")), scratch)
        scratch.rename(folder)
        sync(output_dir)
    except Exception as error:
        shutil.rmtree(scratch, ignore_errors=True)
        if isinstance(error, NonFiniteError | WorkerLostError | ValueError):
            raise
        raise OSError(
            f"{folder} cannot be written ({error}); earlier checkpoints are untouched. Free the disk or change output_dir, "
            "then go on with --resume_from_checkpoint auto"
        ) from error
    if limit is not None:
        for old in list_checkpoints(output_dir)[:-limit]:
            _remove(old)
    return folder


def list_checkpoints(output_dir: Path) -> list[Path]:
    """The checkpoint folders, oldest step first; whether they are whole is another question (see `damage`)."""
    if not output_dir.is_dir():
        return []
    found = [(int(match[1]), path) for path in output_dir.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def damage(folder: Path, names: Collection[str] | None = None) -> str | None:
    """What is wrong with a checkpoint, in a few words; None if it is whole.

    Args:
        folder: the checkpoint.
        names: the files to look at, relative to it; by default all.

    Raises:
        OSError: if a file is there and cannot be read: that may pass, and says nothing of the checkpoint.
    """
    try:
        files: dict[str, dict[str, Any]] = json.loads((folder / MANIFEST).read_bytes())["files"]
        for name, expected in files.items():
            if names is not None and name not in names:
                continue
            size = (folder / name).stat().st_size
            if size != expected["bytes"]:
                return f"{name} has {size} bytes instead of {expected['bytes']}"
            if _sha256(folder / name) != expected["sha256"]:
                return f"{name} has another SHA-256 than when it was written"
    except (FileNotFoundError, NotADirectoryError) as error:
        missing = str(Path(error.filename).relative_to(folder))
        return f"{missing} is missing{' (earlier versions wrote none)' if missing == MANIFEST else ''}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is garbled"
    return None


def resolve_checkpoint(
    output_dir: Path, resume_from_checkpoint: str | None, names: Collection[str] | None = None
) -> Path | None:
    """The checkpoint to resume from: None to begin anew, also for `auto` where nothing has been saved yet.

    Args:
        output_dir: the run's folder.
        resume_from_checkpoint: a checkpoint; `auto` for the newest whole one in `output_dir`; or None.
        names: the files that must be whole; by default all.

    Raises:
        ValueError: if a named folder is no checkpoint or is damaged, or if there are checkpoints and all are damaged.
    """
    if resume_from_checkpoint is None:
        return None
    if resume_from_checkpoint != "auto":
        folder = Path(resume_from_checkpoint)
        if not (folder / "trainer_state.json").is_file():
            raise ValueError(
                f"resume_from_checkpoint={str(folder)!r} has no trainer_state.json; give a checkpoint-N folder, or auto"
            )
        if (found := damage(folder, names)) is not None:
            raise ValueError(
                f"resume_from_checkpoint={str(folder)!r} is damaged: {found}; give an earlier one, or auto for the newest "
                "whole one"
            )
        return folder
    damaged: list[str] = []
    for folder in reversed(list_checkpoints(output_dir)):
        if (found := damage(folder, names)) is None:
            for complaint in damaged:
                logger.warning(
                    "DAMAGED CHECKPOINT: %s. Going back to %s: the steps behind it are lost", complaint, folder
                )
            return folder
        damaged.append(f"{folder}: {found}")
    if damaged:
        raise ValueError(
            f"resume_from_checkpoint='auto', but no checkpoint of {output_dir} is whole ({'; '.join(damaged)}); restore "
            "one, or begin anew with --overwrite_output_dir"
        )
    return None


def claim_folder(output_dir: Path, *, resuming: bool, overwrite: bool) -> FolderLock:
    """Make a run's folder and lock it, and refuse one that already holds a run.

    Returns:
        The lock; whoever holds it may write there.

    Raises:
        ValueError: if there is a run, and it is neither resumed nor to be overwritten; if another process is writing there;
            or if the folder cannot be made or written to.
    """
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(output_dir)
    except OSError as error:
        raise ValueError(
            f"output_dir={str(output_dir)!r} cannot be written to ({error.strerror}); name a folder that you may write to"
        ) from error
    occupied = (output_dir / "metrics.jsonl").exists() or bool(list_checkpoints(output_dir))
    if occupied and not resuming and not overwrite:
        lock.release()
        raise ValueError(
            f"output_dir={str(output_dir)!r} already holds a run; choose another, go on with --resume_from_checkpoint auto, "
            "or begin anew with --overwrite_output_dir"
        )
    return lock


class FolderLock:
    """The right to write to a run's folder, until it is released or the process ends, however it ends.

    The file `.lock` says whose it is. It may stay behind: what counts is the system's lock on it, which a dead process does not
    hold.

    Args:
        output_dir: the run's folder.

    Raises:
        ValueError: if somebody else holds it.
        OSError: if the folder cannot be written to.
    """

    def __init__(self, output_dir: Path) -> None:
        self._file = (output_dir / ".lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip()
            self._file.close()
            raise ValueError(
                f"output_dir={str(output_dir)!r} is being written by another run ({holder}); wait for it, stop it, or choose "
                "another folder"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            logger.warning("%s is on a file system without locks; see to it that no other run writes there", output_dir)
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        self._file.flush()

    def release(self) -> None:
        """Let others write; more than once does no harm."""
        self._file.close()


def clear_run(output_dir: Path) -> None:
    """Remove the checkpoints and event files of an earlier run, and nothing else."""
    for path in (*output_dir.glob("checkpoint-*"), *output_dir.glob(".checkpoint-*"), output_dir / "tensorboard"):
        shutil.rmtree(path, ignore_errors=True)


def forget_later_checkpoints(output_dir: Path, step: int) -> None:
    """Remove the checkpoints behind the step that a run goes on from, since they belong to a course that is given up, and what
    was half written or half removed when a run was killed.
    """
    for path in list_checkpoints(output_dir):
        if int(path.name.removeprefix("checkpoint-")) > step:
            _remove(path)
    for path in output_dir.glob(".checkpoint-*"):
        shutil.rmtree(path)


def read_state(folder: Path) -> dict[str, Any]:
    """What `save_checkpoint` got as state, and `step`."""
    state: dict[str, Any] = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
    return state


def sync(*paths: Path) -> None:
    """Wait until files and folders (the names in them) are on the disk, where a power cut leaves them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if (
                error.errno != errno.EINVAL
            ):  # a file system that knows of no such thing, as for folders on some networks
                raise
        finally:
            os.close(descriptor)


def _write_manifest(folder: Path) -> None:
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=2), encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remove(folder: Path) -> None:
    """Remove a checkpoint such that a kill on the way leaves no half one under its name."""
    gone = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)
