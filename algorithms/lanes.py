"""Policies that each go their own pace: a lane is a thread that takes one policy through its steps.

    reset -> generate -> env.step (verify, publish) -> hear what was said K steps ago -> learn

It is the trainer's step for a single policy. The lanes meet in the exchange alone: who is K steps ahead of the slowest waits
there (`mrl_env.exchange.DelayedExchange`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

from algorithms.algorithm import Algorithm
from algorithms.backends import Backend
from algorithms.config import TrainingConfig
from algorithms.delay import Delay
from algorithms.setup import channels_of, make_env
from algorithms.worker import Lesson
from mrl_env.exchange import DelayedExchange, Exchange, visible

_CALLS_BETWEEN_PUBLICATIONS = 3
"""Within so many times `worker_timeout` a policy that is not lost publishes: it learns, answers, and is verified."""


@dataclass(frozen=True)
class Played:
    """One policy's step.

    Attributes:
        lesson: what it answered, and how that was judged.
        metrics: of its learning.
        environment: seconds of verification and exchange, waiting not included.
    """

    lesson: Lesson
    metrics: Mapping[str, float]
    environment: float


class Lanes:
    """All policies of a run, each in a lane.

    Args:
        config: the run's.
        algorithms: each policy's.
        backend: reaches the workers; may be asked by several threads at once.
        exchange: gets the records of whole steps, in order.
        delay: what is kept of the last steps; after `run` as if the policies had taken turns.
        done: steps that are done.
    """

    def __init__(
        self,
        config: TrainingConfig,
        algorithms: Mapping[str, Algorithm],
        backend: Backend,
        exchange: Exchange,
        delay: Delay,
        done: int,
    ) -> None:
        self._backend = backend
        self._delay = delay
        self._channels = channels_of(config, algorithms)
        patience = _CALLS_BETWEEN_PUBLICATIONS * config.worker_timeout
        self._exchange = DelayedExchange(exchange, list(algorithms), done + 1, patience)
        self._envs = {name: make_env(config, algorithms, self._exchange, alone=name) for name in algorithms}
        self._lock = threading.Lock()
        self._begun = done
        self._last = done

    def run(self, first: int, last: int) -> Generator[dict[str, Played], None, None]:
        """Let all policies do some steps; each step is given when all have finished it, in order.

        Raises:
            WorkerLostError: if a policy is lost; all workers are ended then, as after any other error.
            TimeoutError: naming the policies that publish nothing.
        """
        self._last = last
        finished: queue.SimpleQueue[tuple[str, int, Played] | BaseException] = queue.SimpleQueue()
        threads = [threading.Thread(target=self._lane, args=(name, first, finished)) for name in self._envs]
        for thread in threads:
            thread.start()
        played: defaultdict[int, dict[str, Played]] = defaultdict(dict)
        step = first
        try:
            while step <= self._last:
                item = finished.get()
                if isinstance(item, BaseException):
                    raise item
                played[item[1]][item[0]] = item[2]
                while len(played[step]) == len(self._envs):
                    yield {name: played[step][name] for name in self._envs}
                    del played[step]
                    step += 1
        except BaseException:
            self._exchange.close()
            self._backend.close()
            raise
        finally:
            for thread in threads:
                thread.join()
        self._hear_all(first)

    def stop(self) -> None:
        """End the run behind the furthest step that a policy has begun."""
        with self._lock:
            self._last = min(self._last, self._begun)

    def _lane(
        self, name: str, first: int, finished: queue.SimpleQueue[tuple[str, int, Played] | BaseException]
    ) -> None:
        step = first
        try:
            while self._begins(step):
                finished.put((name, step, self._play(name, step, first)))
                step += 1
        except BaseException as error:  # the thread that reads the queue raises it
            finished.put(error)

    def _begins(self, step: int) -> bool:
        """Whether a policy still does this step."""
        with self._lock:
            if step > self._last:
                return False
            self._begun = max(self._begun, step)
            return True

    def _play(self, name: str, step: int, first: int) -> Played:
        """One policy's step."""
        env = self._envs[name]
        observations, _ = env.reset(options={"episode": step - 1})
        said = self._backend.rollout(step, {name: observations[name]["prompts"]})[name]
        answered = time.perf_counter()
        _, _, _, _, infos = env.step({name: said.completions})
        environment = time.perf_counter() - answered
        own = Lesson(infos[name]["problems"], said, infos[name]["verdicts"], [()] * len(said.completions))
        lesson = self._delay.swap(name, own)
        if lesson.delayed is not None and step - self._delay.steps >= first:
            lesson = replace(lesson, delayed=self._heard(name, step - self._delay.steps, lesson.delayed))
        return Played(own, self._backend.learn(step, {name: lesson})[name], environment)

    def _heard(self, name: str, step: int, lesson: Lesson) -> Lesson:
        """A lesson with what the peers said in its step."""
        return replace(lesson, peers=visible(self._exchange.heard(name, step), self._channels[name]))

    def _hear_all(self, first: int) -> None:
        """Add what the peers said to the lessons that are kept: all have published all steps."""
        for name, kept in self._delay.lessons.items():
            steps = range(self._last - len(kept) + 1, self._last + 1)
            self._delay.lessons[name] = deque(
                self._heard(name, step, lesson) if step >= first else lesson
                for step, lesson in zip(steps, kept, strict=True)
            )
