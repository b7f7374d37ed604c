"""The second tier's workers from every kind of caller: right verdicts, no exceptions, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import verifiers
from verifiers.isolation import Pool
from verifiers.math import verifier as math_verifier
from verifiers.math.verifier import MathVerifier

ROOT = Path(__file__).resolve().parents[2]

HARD = [
    (r"\sin 2x", r"2\sin x\cos x", "right"),
    (r"\sin 2x", r"2\sin x\cos x+10^{-20}", "wrong"),
    (r"2\arcsin\sqrt a", r"\arccos(1-2a)", "right"),
    (r"\sqrt2+\sqrt3", r"\sqrt{5+2\sqrt6}", "right"),
    (r"\cos 2x", r"1-2\sin^2 x+10^{-20}", "wrong"),
]
"""Gold, answer, reason: identities of school books, and the same with an error that double precision does not see."""

BOMB = ("(a+)+b", r"\boxed{" + "a" * 40 + "c}")
"""A pattern and an answer on which backtracking takes 2^40 steps."""


def judged(case: tuple[str, str, str]) -> str:
    """The reason from a verifier that remembers no other case, so that the second tier is asked."""
    gold, answer, _ = case
    return MathVerifier().verify(rf"\boxed{{{answer}}}", gold).reason


def bombed() -> str:
    """The reason for the bomb."""
    pattern, completion = BOMB
    return verifiers.get("regex").verify(completion, pattern).reason


def marked(mark: str) -> list[str]:
    """Command lines of all processes that inherited an environment variable with this value."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it ended meanwhile, or is somebody else's
            continue
    return found


def left_behind(mark: str, seconds: float = 10) -> list[str]:
    """What `marked` still finds after `seconds`, or as soon as it finds nothing."""
    end = time.monotonic() + seconds
    while (found := marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    return found


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch) -> str:
    """A value in the environment of every process that the test starts."""
    value = uuid.uuid4().hex
    monkeypatch.setenv("MUTUAL_RL_TEST", value)
    return value


def run_script(folder: Path, source: str) -> list[str]:
    """The lines that a script prints; it finds `HARD`, `judged` and `bombed` in the module `test_concurrency`."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source), encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


EXPECTED = [reason for *_, reason in HARD]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_start_method(method: str, mark: str, tmp_path: Path) -> None:
    script = f"""
        import multiprocessing
        from test_concurrency import HARD, bombed, judged

        if __name__ == "__main__":
            print(*map(judged, HARD))  # the workers of this process run when the others start
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                bombs = [pool.apply_async(bombed) for _ in range(2)]
                print(*pool.map(judged, HARD, chunksize=1))
                print(*(bomb.get() for bomb in bombs))
            print(*map(judged, HARD))
    """
    assert [line.split() for line in run_script(tmp_path, script)] == [EXPECTED, EXPECTED, ["timeout"] * 2, EXPECTED]
    assert left_behind(mark) == []


def test_a_main_without_a_guard(mark: str, tmp_path: Path) -> None:
    script = """
        import verifiers
        from test_concurrency import HARD

        print("main")
        found = verifiers.verify_batch("math", [rf"\\boxed{{{pred}}}" for _, pred, _ in HARD], [gold for gold, *_ in HARD])
        print(*(verdict.reason for verdict in found))
    """
    assert run_script(tmp_path, script) == ["main", " ".join(EXPECTED)]
    assert left_behind(mark) == []


def test_a_killed_process_takes_its_workers_with_it(mark: str, tmp_path: Path) -> None:
    script = """
        import os, signal, threading, time
        from test_concurrency import HARD, bombed, judged

        child = os.fork()
        if child == 0:
            judged(HARD[0])
            threading.Thread(target=bombed).start()  # its worker reads no end of input before its CPU limit
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGKILL)  # no handler of `atexit` runs
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert run_script(tmp_path, script) == ["-9"]
    assert left_behind(mark) == []


def test_eight_threads_at_once_with_bombs_among_them() -> None:
    together = threading.Barrier(8)

    def work(index: int) -> list[str]:
        together.wait()
        return [bombed()] if index < 2 else [judged(case) for case in HARD]

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(8)))
    assert found == [["timeout"]] * 2 + [EXPECTED] * 6


def test_asyncio_by_to_thread_and_executors() -> None:
    async def many() -> list[list[str]]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(4) as threads:
            return await asyncio.gather(
                asyncio.gather(*(asyncio.to_thread(judged, case) for case in HARD)),
                asyncio.gather(*(loop.run_in_executor(None, judged, case) for case in HARD)),
                asyncio.gather(*(loop.run_in_executor(threads, judged, case) for case in HARD)),
            )

    assert asyncio.run(many()) == [EXPECTED] * 3


def test_waiting_for_a_worker_is_not_the_cases_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Pool(size=1)
    pool.warm_up("verifiers.math.symbolic:ready", [])
    monkeypatch.setattr(math_verifier, "shared_pool", lambda: pool)
    busy = threading.Event()

    def occupy() -> None:
        with pool.lend():
            busy.set()
            time.sleep(1.5 * math_verifier.DEADLINE_SECONDS)

    occupant = threading.Thread(target=occupy)
    occupant.start()
    busy.wait()
    # two questions for the second tier, the first of which waits for longer than all of them may take
    verdict = MathVerifier().verify(r"\boxed{(2\sin x\cos x, 1-2\sin^2 x)}", r"(\sin 2x, \cos 2x)")
    occupant.join()
    pool.close()
    assert verdict.reason == "right"


def test_ray_actors(mark: str, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray (extra `ray`) is not installed")
    script = f"""
        import time
        import ray
        from test_concurrency import HARD, bombed, judged, marked

        @ray.remote(num_cpus=0)
        class Judge:
            def hard(self):
                return [judged(case) for case in HARD]

            def bomb(self):
                return bombed()

        def workers(expected):
            end = time.monotonic() + 10
            while (found := sum("verifiers.worker" in line for line in marked({mark!r}))) != expected:
                if time.monotonic() > end:
                    break
                time.sleep(0.05)
            return found

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
        actors = [Judge.remote() for _ in range(2)]
        calls = [call for actor in actors for call in (actor.hard.remote(), actor.bomb.remote(), actor.hard.remote())]
        for first, bomb, second in zip(*[iter(ray.get(calls, timeout=120))] * 3):
            print(*first, bomb, *second)
        print(workers(2))
        ray.kill(actors[0])
        print(workers(1))
        ray.shutdown()
    """
    line = " ".join([*EXPECTED, "timeout", *EXPECTED])
    assert run_script(tmp_path, script) == [line, line, "2", "1"]
    assert left_behind(mark, 30) == []
