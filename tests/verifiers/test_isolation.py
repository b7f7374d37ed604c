"""Workers: deadlines from outside, crashes, recycling and threads; `test_concurrency` has the other kinds of caller."""

from __future__ import annotations

import asyncio
import resource
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from verifiers.isolation import DeadlineError, Pool, WorkerError

ECHO = "verifiers.lookup:did_you_mean"


@pytest.fixture
def pool():
    pool = Pool(size=2)
    yield pool
    pool.close()


def test_a_call_returns_its_value(pool: Pool) -> None:
    assert pool.call(ECHO, ["mth", ["math", "choice"]], 20) == "; did you mean 'math'?"


def test_an_exception_comes_back_as_text(pool: Pool) -> None:
    with pytest.raises(WorkerError, match="ValueError"):
        pool.call("verifiers.lookup:import_dotted", ["nonsense"], 20)


def test_functions_outside_the_package_are_refused(pool: Pool) -> None:
    with pytest.raises(WorkerError, match="outside"):
        pool.call("os:getpid", [], 20)


def test_the_deadline_kills_and_the_next_call_works(pool: Pool) -> None:
    start = time.monotonic()
    with pytest.raises(DeadlineError):
        # thousands of close matches between strings of two letters take difflib far longer than the deadline
        pool.call(ECHO, ["ab" * 99, ["ba" * 95 + str(number) for number in range(3000)]], 0.5)
    assert time.monotonic() - start < 10
    assert pool.call(ECHO, ["mth", ["math"]], 20) == "; did you mean 'math'?"


def test_workers_are_replaced_after_enough_calls() -> None:
    pool = Pool(size=1, calls_per_worker=2)
    for _ in range(5):
        assert pool.call(ECHO, ["mth", ["math"]], 20)
    pool.close()


def test_threads_and_asyncio(pool: Pool) -> None:
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: pool.call(ECHO, ["mth", ["math"]], 20), range(32)))
    assert found == ["; did you mean 'math'?"] * 32

    async def many() -> list[str]:
        return await asyncio.gather(*(asyncio.to_thread(pool.call, ECHO, ["mth", ["math"]], 20) for _ in range(8)))

    assert asyncio.run(many()) == ["; did you mean 'math'?"] * 8


class TestWhatHappensAroundAWorker:
    """A worker is hurt from outside; the call has nothing to do with it, and gets its value."""

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
    def test_killed_or_frozen(self, pool: Pool, number: signal.Signals) -> None:
        with pool.lend() as worker:
            assert worker.call(ECHO, ["mth", ["math"]], 20)
            worker._process.send_signal(number)
            assert worker.call(ECHO, ["mth", ["math"]], 1) == "; did you mean 'math'?"

    def test_without_memory(self, pool: Pool) -> None:
        with pool.lend() as worker:
            resource.prlimit(worker._process.pid, resource.RLIMIT_AS, (1, 1))
            assert worker.call(ECHO, ["mth" * 100, ["math" * 100]], 20)

    def test_what_uses_up_its_own_time_is_not_tried_again(self, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("verifiers.isolation._WORKED", 0.05)  # of a second and more, even on a busy machine
        with pool.lend() as worker:
            hard = ["ab" * 99, ["ba" * 95 + str(number) for number in range(3000)]]
            with pytest.raises(DeadlineError):
                worker.call(ECHO, hard, 1)
            assert worker.calls == 1
