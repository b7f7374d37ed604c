"""Every fault of `python -m benchmarks.faults` a few times; the command in a process of its own, since it forks runs."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tqdm.auto import tqdm

from algorithms.checkpoints import damage, save_checkpoint
from benchmarks.faults import tracing
from benchmarks.faults.faults import faults, hurt_checkpoint
from benchmarks.faults.injecting import at_moments
from benchmarks.faults.running import Ending, config, differences, finish, start


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    report = tmp_path_factory.mktemp("faults") / "report.json"
    command = [sys.executable, "-m", "benchmarks.faults", "--times", "1", "--report", str(report)]
    # What it says is not kept but passed on: so it is shown with a failure, even that of a time limit.
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert report.is_file()
    found: dict[str, dict[str, int]] = json.loads(report.read_text())
    assert done.returncode == any(outcomes["failed"] for outcomes in found.values())
    return found


@pytest.mark.parametrize("name", faults())
def test_is_survived_or_stops_cleanly(counts: dict[str, dict[str, int]], name: str) -> None:
    assert counts[name]["failed"] == 0
    assert counts[name]["survived"] + counts[name]["stopped cleanly"] == 1


class TestTheHarnessItself:
    """That it would notice."""

    @pytest.mark.parametrize("how", ["truncated", "bit flipped", "file missing", "half written"])
    def test_every_damage_is_one(self, tmp_path: Path, how: str) -> None:
        for seed in range(20):
            folder = save_checkpoint(
                tmp_path, seed, lambda scratch: (scratch / "model").write_bytes(b"w" * 99), {}, "a: 1\n"
            )
            hurt_checkpoint(how, folder, random.Random(seed))
            assert damage(folder) is not None

    def test_a_flipped_bit_in_the_weights_is_a_difference(self, tmp_path: Path) -> None:
        runs = []
        for name, weights in (("one", b"\x00"), ("same", b"\x00"), ("other", b"\x01")):
            run = tmp_path / name
            run.mkdir()
            for file in ("metrics.jsonl", "completions.jsonl", "exchange.jsonl"):
                # The times differ, which is no difference.
                (run / file).write_text(f'{{"train/step_time": {len(runs) if file == "metrics.jsonl" else 0}}}\n')
            save_checkpoint(run, 1, lambda scratch, weights=weights: (scratch / "model").write_bytes(weights), {}, "")
            runs.append(run)
        assert differences(runs[0], runs[1]) == []
        assert differences(runs[0], runs[2]) == ["model"]

    def test_things_happen_at_their_moment_only(self, tmp_path: Path) -> None:
        def leaf() -> None: ...

        class Thing:
            done = 0

            def work(self) -> None:
                for _ in range(3):
                    leaf()  # a call and a return
                    self.done += 1

        seen: list[int] = []
        # Event 0 is the call of `work`, 1 and 2 belong to the first `leaf`, 3 to the second.
        at_moments((Thing, "work"), {3: lambda thing: seen.append(thing.done)}, tmp_path / "events")
        Thing().work()
        assert seen == [1]
        # 2 events for `work`, 2 for each `leaf`, and the call that takes the watch away.
        assert (tmp_path / "events").read_text() == "9"

    @pytest.mark.parametrize("number", [0, 1, 2, None])
    def test_a_process_is_killed_before_its_nth_system_call(self, tmp_path: Path, number: int | None) -> None:
        process = os.fork()
        if process == 0:
            try:
                tracing.begin()
                for name in "abc":
                    os.mkdir(tmp_path / name)
                tracing.end()
                os.mkdir(tmp_path / "d")
            finally:
                os._exit(0)
        seen = tracing.kill_at(process, number)
        ending = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        made = len(list(tmp_path.iterdir()))
        if number is None:
            assert seen >= 3 and made == 4 and ending == 0
        else:
            assert seen == number and made <= number and ending == -signal.SIGKILL

    def test_a_child_killed_while_it_draws_a_bar_holds_up_no_other(self, tmp_path: Path) -> None:
        def die_drawing() -> None:
            tqdm.get_lock().acquire()
            os.kill(os.getpid(), signal.SIGKILL)

        def draw() -> None:
            signal.alarm(10)
            with tqdm.get_lock():
                sys.exit(0)

        tqdm.get_lock()  # what the laboratory's undisturbed run does; forks have it from there
        settings = config(tmp_path / "run")
        assert finish(start(settings, die_drawing), settings).status == -signal.SIGKILL
        assert finish(start(settings, draw), settings).status == 0

    @pytest.mark.parametrize(
        ("status", "said", "explained"),
        [
            (1, "INFO: x\nerror: the disk is full; free it", True),
            (2, "error: output_dir", True),
            (1, "Traceback (most recent call last):\nerror: x", False),
            (0, "error: x", False),
            (-9, "error: x", False),
            (1, "", False),
        ],
    )
    def test_what_counts_as_a_clear_end(self, status: int, said: str, explained: bool) -> None:
        assert Ending(status, said).explained is explained


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
