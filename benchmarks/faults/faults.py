"""The faults: each is injected once into a run by a function that says what became of it."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from algorithms.checkpoints import damage, list_checkpoints
from algorithms.tracking import read_jsonl
from algorithms.trainer import Trainer
from benchmarks.faults import injecting, odd, tracing
from benchmarks.faults.injecting import (
    EVALUATION,
    GENERATION,
    JUDGING,
    PREPARATION,
    TRAINING,
    UPDATE,
    Happening,
    Place,
    at_moments,
    send,
)
from benchmarks.faults.running import Ending, Laboratory, config, finish, run, start


class Outcome(Enum):
    """What became of a run into which a fault was injected."""

    SURVIVED = "survived"
    """It went on by itself, or after a kill when it was started again, to the same bits as the undisturbed run."""
    STOPPED = "stopped cleanly"
    """It stopped or was refused with a clear sentence, and, started again without the fault, came to the same bits."""
    FAILED = "failed"
    """Anything else."""


class FaultError(AssertionError):
    """A fault did what it should not."""


Fault = Callable[[Laboratory, random.Random], Outcome]

_moments: dict[Place, int] = {}


def moments(lab: Laboratory, place: Place, **changes: Any) -> int:
    """How many events of a place an undisturbed run has; counted once.

    Args:
        lab: where.
        place: the method.
        **changes: of the configuration, for a place that is not reached with the usual one.
    """
    if place not in _moments:
        new, record = lab.new(), lab.folder / "moments"
        ending = run(config(new, **changes), lambda: at_moments(place, {}, record))
        _require(ending.status == 0 and not lab.differences(new), f"an undisturbed run did not end well: {ending.said}")
        _moments[place] = int(record.read_text())
    return _moments[place]


def _require(condition: bool, complaint: str) -> None:
    if not condition:
        raise FaultError(complaint)


def _explained(ending: Ending) -> None:
    _require(ending.explained, f"no clear sentence, but status {ending.status}: {ending.said[-1500:]}")


def _goes_on(lab: Laboratory, disturbed: Path) -> None:
    """Start a run again, without the fault, and compare."""
    for folder in list_checkpoints(disturbed):
        found = damage(folder)
        _require(found is None, f"{folder.name} was left damaged: {found}")
    _ends_alike(lab, disturbed, run(config(disturbed, resume_from_checkpoint="auto")))


def _ends_alike(lab: Laboratory, disturbed: Path, ending: Ending) -> None:
    _require(ending.status == 0, f"it did not come to its end, status {ending.status}: {ending.said[-1500:]}")
    differing = lab.differences(disturbed)
    _require(not differing, f"it ended with another {', '.join(differing)}")


def killed_in(place: Place, lab: Laboratory, draw: random.Random) -> Outcome:
    """SIGKILL anywhere in a method; started again."""
    moment = draw.randrange(moments(lab, place))
    new = lab.new()
    ending = run(config(new), lambda: at_moments(place, {moment: send(signal.SIGKILL)}))
    _require(ending.status == -signal.SIGKILL, f"it was not killed, but ended with {ending.status}")
    _goes_on(lab, new)
    return Outcome.SURVIVED


_calls: dict[int, int] = {}


def killed_while_saving(lab: Laboratory, draw: random.Random) -> Outcome:
    """SIGKILL at any system call of writing a checkpoint, the removal of an old one included; started again."""
    checkpoint = draw.choice([0, 2])  # the first, and one that takes the place of another
    if checkpoint not in _calls:
        settings = config(lab.new())
        process = start(settings, lambda: injecting.trace_saving(checkpoint))
        _calls[checkpoint] = tracing.count(process)
        _ends_alike(lab, Path(str(settings.output_dir)), finish(process, settings))
    settings = config(lab.new())
    process = start(settings, lambda: injecting.trace_saving(checkpoint))
    tracing.kill_at(process, draw.randrange(_calls[checkpoint]))
    ending = finish(process, settings)
    _require(ending.status == -signal.SIGKILL, f"it was not killed, but ended with {ending.status}")
    _goes_on(lab, Path(str(settings.output_dir)))
    return Outcome.SURVIVED


def signalled(numbers: Sequence[signal.Signals], place: Place, lab: Laboratory, draw: random.Random) -> Outcome:
    """Signals at any moments of a method; the last step is finished or not, but what is saved is whole."""
    chosen = sorted(draw.sample(range(moments(lab, place)), len(numbers)))
    new = lab.new()
    ending = run(config(new), lambda: at_moments(place, dict(zip(chosen, map(send, numbers), strict=True))))
    if ending.status == 0:  # the signal came in the last step, which was finished
        _ends_alike(lab, new, ending)
        return Outcome.SURVIVED
    if ending.status != -signal.SIGTERM:  # that a second SIGTERM leaves no last word is its purpose
        _require(ending.status == 130, f"status {ending.status}: {ending.said[-1500:]}")
        _require(
            "stopped" in ending.last_line and "Traceback" not in ending.said,
            f"no clear sentence: {ending.said[-1500:]}",
        )
    _goes_on(lab, new)
    return Outcome.STOPPED


def disk_full(lab: Laboratory, draw: random.Random) -> Outcome:
    """From any moment on no file can grow beyond a size; started again when it can."""
    # More than what the run prints, which goes into a file, too: the last word could not be written there.
    moment, size = draw.randrange(moments(lab, TRAINING)), int(10 ** draw.uniform(4, 6))
    new = lab.new()
    ending = run(config(new), lambda: at_moments(TRAINING, {moment: injecting.fill_disk(size)}))
    return _stopped_or_not(lab, new, ending)


def _stopped_or_not(lab: Laboratory, disturbed: Path, ending: Ending) -> Outcome:
    if ending.status == 0:
        _ends_alike(lab, disturbed, ending)
        return Outcome.SURVIVED
    _explained(ending)
    _goes_on(lab, disturbed)
    return Outcome.STOPPED


def device_full(lab: Laboratory, draw: random.Random) -> Outcome:
    """A small file system in memory, on which there is no room; started again when it is larger. Only root can do this."""
    new = lab.new()
    new.mkdir()
    _system("mount", "-t", "tmpfs", "-o", f"size={draw.randrange(100, 16_000)}k", "tmpfs", str(new))
    try:
        ending = run(config(new))
        _system("mount", "-o", "remount,size=64m", str(new))
        return _stopped_or_not(lab, new, ending)
    finally:
        _system("umount", str(new))


def _system(*command: str) -> None:
    subprocess.run(command, check=True)


def write_protected(lab: Laboratory, draw: random.Random) -> Outcome:
    """The output folder cannot be written, from the beginning or from any moment on; started again when it can."""
    new, at_once = lab.new(), draw.random() < 0.2
    moment = draw.randrange(moments(lab, TRAINING))
    new.mkdir()
    if os.geteuid() == 0:
        os.chown(new, _NOBODY, _NOBODY)
    if at_once:
        injecting.set_writable(new, False)

    def inject() -> None:
        _become_nobody()
        if not at_once:
            at_moments(TRAINING, {moment: injecting.protect(new)})

    ending = run(config(new), inject)
    injecting.set_writable(new, True)
    if ending.status == 0:  # in the very end there is nothing to write
        _ends_alike(lab, new, ending)
        return Outcome.SURVIVED
    _explained(ending)
    _ends_alike(lab, new, run(config(new, resume_from_checkpoint="auto"), _become_nobody))
    return Outcome.STOPPED


_NOBODY = 65534


def _become_nobody() -> None:
    """Root may write everywhere, so it has to become somebody else."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)


_halfway: dict[Path, Path] = {}


def halfway(lab: Laboratory) -> Path:
    """A run that was interrupted in its third step, with the checkpoints 2 and 3; made once."""
    if lab.folder not in _halfway:
        new = lab.folder / "halfway"

        def interrupt(trainer: Any) -> None:
            if trainer.step == 2:
                os.kill(os.getpid(), signal.SIGTERM)

        ending = run(config(new), lambda: injecting.before((Trainer, "train_step"), interrupt))
        _require(ending.status == 130, f"it was not interrupted: {ending.said}")
        _halfway[lab.folder] = new
    return _halfway[lab.folder]


def checkpoint_damaged(how: str, lab: Laboratory, draw: random.Random) -> Outcome:
    """The newest checkpoint is damaged, or all are; resumed with `auto`, or by name."""
    new = lab.new(like=halfway(lab))
    checkpoints = list_checkpoints(new)
    victims = checkpoints if draw.random() < 0.2 else checkpoints[-1:]
    for folder in victims:
        hurt_checkpoint(how, folder, draw)
    if victims == checkpoints or draw.random() < 0.2:  # nothing to go back to, or nothing else asked for
        asked = "auto" if victims == checkpoints else str(checkpoints[-1])
        before = sorted(path.name for path in new.iterdir())
        ending = run(config(new, resume_from_checkpoint=asked))
        _explained(ending)
        _require(str(victims[-1]) in ending.last_line, f"the checkpoint is not named: {ending.last_line}")
        _require(sorted(path.name for path in new.iterdir()) == before, "something was removed")
        return Outcome.STOPPED
    ending = run(config(new, resume_from_checkpoint="auto"))
    _require(f"DAMAGED CHECKPOINT: {victims[0]}" in ending.said, f"it was not said: {ending.said[-1500:]}")
    _ends_alike(lab, new, ending)
    return Outcome.SURVIVED


def hurt_checkpoint(how: str, folder: Path, draw: random.Random) -> None:
    """Damage a checkpoint: `truncated`, `bit flipped`, `file missing`, or `half written`."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = draw.choice(files)
    content = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(content[: draw.randrange(len(content))])
    elif how == "bit flipped":
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
    elif how == "file missing":
        path.unlink()
    else:
        in_order = sorted(files, key=lambda file: file.stat().st_mtime_ns)
        for late in in_order[draw.randrange(len(in_order)) :]:
            late.unlink()


def second_run(lab: Laboratory, draw: random.Random) -> Outcome:
    """While a run is going on, at any moment, another one is begun on its folder, in one way or the other."""
    new, signs = lab.new(), lab.new()
    signs.mkdir()
    moment = draw.randrange(moments(lab, TRAINING))

    def wait(_: Any) -> None:
        (signs / "here").touch()
        while not (signs / "go").exists():
            time.sleep(0.005)

    settings = config(new)
    first = start(settings, lambda: at_moments(TRAINING, {moment: wait}))
    while not (signs / "here").exists():
        time.sleep(0.005)
    ways: list[dict[str, Any]] = [{"overwrite_output_dir": True}, {"resume_from_checkpoint": "auto"}]
    way = draw.choice(ways)
    rival = config(new, **way)
    log = new.with_name(f"{new.name}.begun.log")
    said = log.read_text()
    ending = run(rival)
    log.write_text(said)
    (signs / "go").touch()
    first_ending = finish(first, settings)
    _explained(ending)
    _require(f"process {first}" in ending.last_line, f"the holder is not named: {ending.last_line}")
    _ends_alike(lab, new, first_ending)
    return Outcome.STOPPED


def clock_turned(lab: Laboratory, draw: random.Random) -> Outcome:
    """The time of day goes back by up to a year at any moment, and again."""
    chosen = draw.sample(range(moments(lab, TRAINING)), 2)
    happenings: dict[int, Happening] = {m: injecting.turn_clock(-(10 ** draw.uniform(0, 7.5))) for m in chosen}
    new = lab.new()
    _ends_alike(lab, new, run(config(new), lambda: at_moments(TRAINING, happenings)))
    return Outcome.SURVIVED


def worker_hurt(how: str, lab: Laboratory, draw: random.Random) -> Outcome:
    """Workers of the verifier are hurt at any moments of their judging."""
    judging = {"verifier": "benchmarks.faults.judging:InWorker"}
    chosen = draw.sample(range(moments(lab, JUDGING, **judging)), 2)
    happenings = dict.fromkeys(chosen, injecting.hurt_worker(how))
    new = lab.new()
    settings = config(new, **judging)
    _ends_alike(lab, new, run(settings, lambda: at_moments(JUDGING, happenings)))
    return Outcome.SURVIVED


def not_finite(what: str, lab: Laboratory, draw: random.Random) -> Outcome:
    """A loss, a gradient or a weight is NaN or infinite; started again without."""
    new = lab.new()
    value = draw.choice([math.nan, math.inf, -math.inf])
    if what == "weight":
        moment = draw.randrange(moments(lab, UPDATE))
        inject = partial(at_moments, UPDATE, {moment: injecting.break_weight(draw)})
    else:
        breaking = injecting.break_loss if what == "loss" else injecting.break_gradient
        inject = partial(breaking, draw.randrange(8), value)
    ending = run(config(new, max_skipped_updates=1), inject)
    _require("finite" in ending.last_line, f"another sentence: {ending.said[-1500:]}")
    _explained(ending)
    _ends_alike(lab, new, run(config(new, max_skipped_updates=1, resume_from_checkpoint="auto")))
    return Outcome.STOPPED


def odd_policy(kind: str, lab: Laboratory, draw: random.Random) -> Outcome:
    """One of two policies says odd things only; there is no undisturbed run to compare with."""
    model, new = lab.new(), lab.new()
    odd.make(kind, model)
    algorithms = tuple(draw.choice(["grpo", "prp", "xgrpo", "sgt"]) for _ in range(2))
    models = [str(model), "tiny-llama"]
    draw.shuffle(models)
    settings = config(
        new, model_name_or_path=tuple(models), algorithm=algorithms, max_steps=2, max_completion_length=8,
        beta=draw.choice([0.0, 0.01]),
    )  # fmt: skip
    ending = run(settings)
    _require(ending.status == 0, f"status {ending.status}: {ending.said[-1500:]}")
    for line in read_jsonl(new / "metrics.jsonl"):
        words = {k: v for k, v in line.items() if isinstance(v, str) and k != "policy"}
        _require(not words, f"metrics that are not finite: {words}")
    _require(len(read_jsonl(new / "exchange.jsonl")) == 2 * 2 * 2 * 4, "records are missing")
    return Outcome.SURVIVED


def exchange_damaged(how: str, lab: Laboratory, draw: random.Random) -> Outcome:
    """The records of a finished run are damaged and given to another one as a peer's."""
    records, new = lab.folder / "peer.jsonl", lab.new()
    content = bytearray((lab.undisturbed / "exchange.jsonl").read_bytes())
    lines = content.splitlines()
    chosen = draw.randrange(len(lines))
    if how == "truncated":
        del content[draw.randrange(len(content)) :]
    elif how == "bit flipped":
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif how == "garbage":
        lines[chosen] = bytearray(draw.randbytes(100).replace(b"\n", b"n"))
        content = bytearray(b"\n".join(lines))
    else:
        record = json.loads(lines[chosen])
        record["schema"] = draw.choice([0, 2, "1", None])
        lines[chosen] = bytearray(json.dumps(record).encode())
        content = bytearray(b"\n".join(lines))
    records.write_bytes(content)
    ending = run(config(new, exchange_replay=str(records), max_steps=1, eval_steps=0))
    if ending.status == 0 and how in ("truncated", "bit flipped"):  # cut between lines, or only another text
        return Outcome.SURVIVED
    _explained(ending)
    _require(str(records) in ending.last_line, f"the file is not named: {ending.last_line}")
    return Outcome.STOPPED


def faults() -> dict[str, Fault]:
    """All faults by name."""
    term, interrupt = signal.SIGTERM, signal.SIGINT
    found: dict[str, Fault] = {
        "kill -9 in generation": partial(killed_in, GENERATION),
        "kill -9 in an update": partial(killed_in, UPDATE),
        "kill -9 in an evaluation": partial(killed_in, EVALUATION),
        "kill -9 anywhere in training": partial(killed_in, TRAINING),
        "kill -9 at a system call of saving": killed_while_saving,
        "disk full (no file may grow)": disk_full,
    }
    if os.geteuid() == 0 and shutil.which("mount"):
        found["disk full (small file system)"] = device_full
    found["output folder read-only"] = write_protected
    for how in ("truncated", "bit flipped", "file missing", "half written"):
        found[f"checkpoint {how}"] = partial(checkpoint_damaged, how)
    found |= {
        "two runs on one folder": second_run,
        "clock going backwards": clock_turned,
        "SIGTERM": partial(signalled, [term], TRAINING),
        "SIGTERM twice": partial(signalled, [term, term], TRAINING),
        "SIGINT": partial(signalled, [interrupt], TRAINING),
        "SIGINT twice": partial(signalled, [interrupt, interrupt], TRAINING),
        "SIGINT, then SIGTERM": partial(signalled, [interrupt, term], TRAINING),
        "SIGINT before training": partial(signalled, [interrupt], PREPARATION),
    }
    for how in ("killed", "frozen", "out of memory"):
        found[f"verifier worker {how}"] = partial(worker_hurt, how)
    for what in ("loss", "gradient", "weight"):
        found[f"NaN or inf in a {what}"] = partial(not_finite, what)
    for kind in odd.KINDS:
        found[f"policy emits {kind}"] = partial(odd_policy, kind)
    for how in ("truncated", "bit flipped", "garbage", "of another schema version"):
        found[f"exchange file {how}"] = partial(exchange_damaged, how)
    return found
