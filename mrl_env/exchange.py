"""SEE, the Shared Experience Exchange: who publishes what, and who sees which part of it.

Policies publish typed records (`Experience`); a topology says whose records reach whom, and channels say which part of
a record a subscriber sees. A policy never sees its own records: it has the originals. (arXiv 2605.07244 describes
publish and subscribe of typed records and the channels; the topologies other than all-to-all are ours.)
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol, get_args, runtime_checkable

import numpy as np

from mrl_env.types import AGENT_NAME, Experience, FinishReason, Trace
from verifiers.lookup import did_you_mean
from verifiers.printing import shown
from verifiers.verdict import Verdict

Channel = Literal["rollouts", "rewards", "advantages", "traces"]

CHANNELS: tuple[Channel, ...] = get_args(Channel)

Topology = str | Mapping[str, Sequence[str]]
"""`"all"`, `"ring"`, `"none"`, or for each subscriber the agents that it reads."""

SCHEMA_VERSION = 1

LONGEST_LINE = 1 << 24
"""Bytes that a line of a file may have: a hundred times a completion of 100 kB without its trace, five times one with it."""

MOST_AUTHORS = 64
"""Authors that a replayed file may have: each has metrics of its own."""

ADVANTAGE_EPSILON = 1e-4
"""Added to the standard deviation before dividing, as in TRL."""


def group_advantages(scores: Sequence[float | None] | np.ndarray, *, scale: bool = True) -> np.ndarray:
    """Group-relative advantages A_i = (r_i - mean(r)) / (std(r) + 1e-4), with the sample standard deviation.

    Args:
        scores: (G,) rewards of one group; None or NaN where no judgement exists.
        scale: divide by the standard deviation (`scale_rewards` of TRL); otherwise only centre.

    Returns:
        (G,) float64; 0 where there is no judgement, and everywhere if fewer than two are judged.

    Example:
        >>> group_advantages([1.0, 0.0], scale=False).tolist()
        [0.5, -0.5]
    """
    rewards = np.asarray([np.nan if score is None else score for score in scores], dtype=np.float64)
    mean, std = pool_statistics(rewards)
    return standardise(rewards, mean, std if scale else None)


def pool_statistics(rewards: np.ndarray) -> tuple[float, float]:
    """Mean and sample standard deviation (n - 1, as in TRL) of the judged rewards; (0, 0) if none, std 0 if one.

    Args:
        rewards: (G,) float64 with NaN where no judgement exists.
    """
    # Sorted, so that the sum does not depend on who spoke first: permuting agents permutes results, exactly.
    judged = np.sort(rewards[~np.isnan(rewards)])
    if not judged.size:
        return 0.0, 0.0
    # A constant group has its own value as mean and no spread, exactly: rounding would leave an advantage of 1e-13, and
    # an optimizer that normalises gradients would make a full step of it.
    if judged[0] == judged[-1]:
        return float(judged[0]), 0.0
    return float(judged.mean()), float(judged.std(ddof=1))


def standardise(rewards: np.ndarray, mean: float, std: float | None) -> np.ndarray:
    """(r - mean) / (std + 1e-4), or r - mean if `std` is None; (G,) float64, 0 where the reward is NaN."""
    centred = np.where(np.isnan(rewards), 0.0, rewards - mean)
    return centred if std is None else centred / (std + ADVANTAGE_EPSILON)


def readers(topology: Topology, agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each agent the agents whose records it reads.

    Args:
        topology: `"all"` (every other agent), `"ring"` (the agent before it, cyclically), `"none"`, or a mapping
            from subscriber to the agents that it reads; agents that the mapping leaves out read nobody.
        agents: all agents, in order.

    Raises:
        ValueError: on an unknown topology or an unknown agent in a mapping, or an agent that reads itself.

    Example:
        >>> readers("ring", ["a", "b", "c"])
        {'a': ('c',), 'b': ('a',), 'c': ('b',)}
    """
    if isinstance(topology, Mapping):
        for subscriber, sources in topology.items():
            if isinstance(sources, str):
                raise ValueError(f"topology[{subscriber!r}]={sources!r} is no list; write [{sources!r}]")
            for name in (subscriber, *sources):
                if name not in agents:
                    raise ValueError(
                        f"topology names the agent {name!r}, who does not exist{did_you_mean(name, agents)}"
                    )
            if subscriber in sources:
                raise ValueError(f"topology lets {subscriber!r} read itself; list only other agents")
        return {agent: tuple(dict.fromkeys(topology.get(agent, ()))) for agent in agents}
    if topology == "all":
        return {agent: tuple(other for other in agents if other != agent) for agent in agents}
    if topology == "ring":
        return {agent: (agents[i - 1],) if len(agents) > 1 else () for i, agent in enumerate(agents)}
    if topology == "none":
        return dict.fromkeys(agents, ())
    raise ValueError(
        f"topology={topology!r} is unknown; use 'all', 'ring', 'none', or a mapping from agent to the agents it reads"
    )


def checked_channels(channels: Iterable[str]) -> tuple[Channel, ...]:
    """The channels without repeats, in the order of `CHANNELS`.

    Raises:
        ValueError: on an unknown channel.
    """
    if not isinstance(channels, Iterable):
        raise ValueError(f"channels={channels!r} is no list; give some of {', '.join(CHANNELS)}")
    wanted = (channels,) if isinstance(channels, str) else tuple(channels)
    for name in wanted:
        if name not in CHANNELS:
            raise ValueError(f"channels names {name!r}, which is unknown{did_you_mean(str(name), CHANNELS)}")
    return tuple(channel for channel in CHANNELS if channel in wanted)


def channel_record(experience: Experience, channel: Channel) -> dict[str, Any]:
    """The part of a record that a channel carries, as plain data: who wrote it, and the channel's own fields."""
    who = {
        "problem_id": experience.problem_id,
        "agent": experience.agent,
        "index": experience.index,
        "finish_reason": experience.finish_reason,
        "policy_version": experience.policy_version,
    }
    if channel == "rollouts":
        return {**who, "text": experience.text or ""}
    if channel == "rewards":
        return {
            **who,
            **vars(experience.verdict or Verdict(None, reason="error", detail="published without a verdict")),
        }
    if channel == "advantages":
        return {**who, "advantage": experience.advantage or 0.0}
    return {**who, "trace": None if experience.trace is None else dict(vars(experience.trace))}


def peer_experiences(observation: Mapping[str, Any]) -> tuple[tuple[Experience, ...], ...]:
    """What an observation says about the peers: for each problem their records, joined over the subscribed channels.

    The inverse of `channel_record`: fields of channels that the observation does not have are None.

    Args:
        observation: one agent's observation after a step.
    """
    channels = [channel for channel in CHANNELS if channel in observation]
    return tuple(
        tuple(
            _joined({channel: observation[channel][p][i] for channel in channels})
            for i in range(len(observation[channels[0]][p]) if channels else 0)
        )
        for p in range(len(observation["prompts"]))
    )


def visible(records: Iterable[Sequence[Experience]], channels: Sequence[Channel]) -> tuple[tuple[Experience, ...], ...]:
    """For each problem its records as a subscriber of some channels sees them; what `peer_experiences` gives where an
    environment stands between.

    Args:
        records: whole, for each problem.
        channels: that are subscribed to; without any, nothing is seen.
    """
    return tuple(
        tuple(_joined({channel: channel_record(record, channel) for channel in channels}) for record in of_problem)
        if channels
        else ()
        for of_problem in records
    )


def _joined(parts: Mapping[Channel, Mapping[str, Any]]) -> Experience:
    """One record from its channel parts, which all say who wrote it."""
    who = next(iter(parts.values()))
    rewards, traces = parts.get("rewards"), parts.get("traces")
    return Experience(
        problem_id=who["problem_id"],
        agent=who["agent"],
        index=who["index"],
        finish_reason=who["finish_reason"],
        policy_version=who["policy_version"],
        text=parts["rollouts"]["text"] if "rollouts" in parts else None,
        verdict=Verdict(**{field.name: rewards[field.name] for field in fields(Verdict)}) if rewards else None,
        advantage=parts["advantages"]["advantage"] if "advantages" in parts else None,
        trace=Trace(**traces["trace"]) if traces and traces["trace"] is not None else None,
    )


@runtime_checkable
class Exchange(Protocol):
    """Where records meet. Another kind of exchange (asynchronous, remote) is another class with these three methods."""

    def publish(self, experiences: Iterable[Experience]) -> None:
        """Make records available to those who read their authors."""
        ...

    def view(self, agent: str, problem_ids: Sequence[str]) -> tuple[tuple[Experience, ...], ...]:
        """For each problem, the records that `agent` may read, whole (channels are applied by the environment)."""
        ...

    def clear(self) -> None:
        """Forget the records of the finished round."""
        ...


class MemoryExchange:
    """Records of the current round, in memory.

    Args:
        agents: all agents, in order.
        topology: see `readers`.

    Example:
        >>> exchange = MemoryExchange(["a", "b"])
        >>> exchange.publish([Experience("p0", "a", 0, "stop", 0, text="2")])
        >>> [record.text for record in exchange.view("b", ["p0"])[0]], exchange.view("a", ["p0"])
        (['2'], ((),))
    """

    def __init__(self, agents: Sequence[str], topology: Topology = "all") -> None:
        self._readers = readers(topology, agents)
        self._records: dict[str, dict[str, list[Experience]]] = {}

    def publish(self, experiences: Iterable[Experience]) -> None:
        """Add records.

        Raises:
            ValueError: if a record's author is not one of the agents.
        """
        for experience in experiences:
            if experience.agent not in self._readers:
                raise ValueError(f"agent={experience.agent!r} publishes but does not exist; agents: {[*self._readers]}")
            by_agent = self._records.setdefault(experience.problem_id, {})
            by_agent.setdefault(experience.agent, []).append(experience)

    def view(self, agent: str, problem_ids: Sequence[str]) -> tuple[tuple[Experience, ...], ...]:
        """For each problem the records of the agents that `agent` reads.

        Ordered by author's name, then by index: what a policy sees does not depend on the order of its peers.

        Raises:
            ValueError: if `agent` is not one of the agents.
        """
        if agent not in self._readers:
            raise ValueError(f"agent={agent!r} reads but does not exist; agents: {[*self._readers]}")
        sources = sorted(self._readers[agent])
        return tuple(
            tuple(
                record
                for source in sources
                for record in sorted(self._records.get(problem_id, {}).get(source, []), key=lambda r: r.index)
            )
            for problem_id in problem_ids
        )

    def clear(self) -> None:
        """Forget all records."""
        self._records.clear()


class JsonlExchange(MemoryExchange):
    """A memory exchange that also appends every published record to a JSON Lines file, closed after each publication.

    Args:
        agents, topology: as for `MemoryExchange`.
        path: the file; made if missing, appended to otherwise.
    """

    def __init__(self, agents: Sequence[str], topology: Topology = "all", *, path: str | os.PathLike[str]) -> None:
        super().__init__(agents, topology)
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def publish(self, experiences: Iterable[Experience]) -> None:
        """Add records, and append them to the file.

        Raises:
            ValueError: if a record's author is not one of the agents, or a number of it is not finite; none is written.
        """
        experiences = list(experiences)
        lines = "".join(to_json(experience) + "\n" for experience in experiences)
        super().publish(experiences)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(lines)


class ReplayExchange:
    """An exchange that also shows the records of a finished run: a peer that no longer exists.

    Args:
        inner: the exchange of the living agents.
        path: an `exchange.jsonl` of an earlier run.
        agents: which of its authors to replay; all of them by default.
        prefix: put before a replayed author's name, so that it is not taken for a living agent.

    A problem's records are shown to every agent, whenever that problem comes up again. Where the run saw a problem
    several times, the last time of each author is shown.

    Raises:
        ValueError: if the file is missing or malformed, holds no record of one of these authors, or has authors of names that
            no agent may have, or more than 64.
    """

    def __init__(
        self,
        inner: Exchange,
        path: str | os.PathLike[str],
        agents: Sequence[str] | None = None,
        prefix: str = "replay:",
    ) -> None:
        self._inner = inner
        rounds: dict[str, dict[str, dict[int, Experience]]] = {}
        for record in read_jsonl(path):
            by_author = rounds.setdefault(record.problem_id, {})
            seen = by_author.get(record.agent, {})
            # An index that comes again begins another round.
            by_author[record.agent] = {**({} if record.index in seen else seen), record.index: record}
        authors = {author for by_author in rounds.values() for author in by_author}
        # A name becomes a part of the names of metrics, and is shown.
        unfit = sorted(author for author in authors if AGENT_NAME.fullmatch(author) is None)
        if unfit or len(authors) > MOST_AUTHORS:
            problem = f"an author called {shown(unfit[0])}" if unfit else f"{len(authors)} authors"
            raise ValueError(f"path={str(path)!r} has {problem}; no run of this suite wrote it")
        wanted = authors if agents is None else set([agents] if isinstance(agents, str) else agents)
        if not authors or wanted - authors:
            raise ValueError(
                f"agents={agents!r}, but {str(path)!r} holds records of {sorted(authors)}; name authors that it has"
            )
        self._replayed = {
            problem_id: tuple(
                replace(by_index[index], agent=prefix + author)
                for author, by_index in sorted(by_author.items())
                if author in wanted
                for index in sorted(by_index)
            )
            for problem_id, by_author in rounds.items()
        }

    def publish(self, experiences: Iterable[Experience]) -> None:
        """Publish to the living agents' exchange."""
        self._inner.publish(experiences)

    def view(self, agent: str, problem_ids: Sequence[str]) -> tuple[tuple[Experience, ...], ...]:
        """The living agents' records, then the replayed ones."""
        living = self._inner.view(agent, problem_ids)
        return tuple(
            records + self._replayed.get(problem_id, ())
            for records, problem_id in zip(living, problem_ids, strict=True)
        )

    def clear(self) -> None:
        """Forget the living agents' records; the replayed ones stay."""
        self._inner.clear()


class DelayedExchange:
    """An exchange for agents that go their own pace, each with an environment of its own in a thread of its own.

    Every publication is an agent's next round. A round is complete when all agents have published it; then, and in order, it
    goes to the inner exchange, author by author: what that writes and shows does not depend on who was first. The running
    round shows nothing (`view` is empty); what the others said in an earlier one is asked for with `heard`.

    Args:
        inner: the exchange of whole rounds, which says who reads whom.
        agents: all agents, in order.
        first: number of the first round.
        patience: seconds without any publication after which a waiting agent gives up; None lets it wait for ever.

    Example:
        >>> exchange = DelayedExchange(MemoryExchange(["a", "b"]), ["a", "b"])
        >>> exchange.publish([Experience("p0", "a", 0, "stop", 0, text="2")])
        >>> exchange.publish([Experience("p0", "b", 0, "stop", 0, text="3")])
        >>> [record.text for record in exchange.heard("a", 1)[0]]
        ['3']
    """

    def __init__(self, inner: Exchange, agents: Sequence[str], first: int = 1, patience: float | None = None) -> None:
        self._inner = inner
        self._patience = patience
        self._published: dict[str, int] = dict.fromkeys(agents, first - 1)
        self._waiting: dict[int, dict[str, list[Experience]]] = {}
        self._views: dict[tuple[str, int], tuple[tuple[Experience, ...], ...]] = {}
        self._changed = threading.Condition()
        self._closed = False

    def publish(self, experiences: Iterable[Experience]) -> None:
        """Add one agent's records of its next round; at least one.

        Raises:
            ValueError: if they are not all of one of the agents, or the inner exchange refuses them.
        """
        records = list(experiences)
        authors = {record.agent for record in records}
        if len(authors) != 1 or not authors <= self._published.keys():
            raise ValueError(f"the records are of {sorted(authors)}; publish those of one of {[*self._published]}")
        (author,) = authors
        with self._changed:
            number = self._published[author] + 1
            said = self._waiting.setdefault(number, {})
            said[author] = records
            if len(said) == len(self._published):
                self._complete(number, self._waiting.pop(number))
            self._published[author] = number
            self._changed.notify_all()

    def view(self, agent: str, problem_ids: Sequence[str]) -> tuple[tuple[Experience, ...], ...]:
        """Nothing: the running round is not complete."""
        return tuple(() for _ in problem_ids)

    def clear(self) -> None:
        """Nothing is forgotten but what was heard."""

    def heard(self, agent: str, number: int) -> tuple[tuple[Experience, ...], ...]:
        """What an agent may read of a round, for each problem, in the order of the problems; can be asked once.

        Waits until the round is complete.

        Raises:
            TimeoutError: naming those who are late, if nobody published anything for too long.
            RuntimeError: if the exchange was closed.
        """
        with self._changed:
            while (agent, number) not in self._views:
                if self._closed:
                    raise RuntimeError(f"{agent} waits for round {number}, but the exchange was closed")
                if not self._changed.wait(self._patience):
                    late = [name for name, last in self._published.items() if last < number]
                    raise TimeoutError(
                        f"{agent} has waited for {', '.join(late)} to publish round {number}, but nobody published anything "
                        f"for {self._patience:g} s"
                    )
            return self._views.pop((agent, number))

    def close(self) -> None:
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _complete(self, number: int, said: Mapping[str, list[Experience]]) -> None:
        self._inner.clear()
        self._inner.publish(record for agent in self._published for record in said[agent])
        problems = list(dict.fromkeys(record.problem_id for record in next(iter(said.values()))))
        for agent in self._published:
            self._views[agent, number] = self._inner.view(agent, problems)


def to_json(experience: Experience) -> str:
    """One line of JSON; `from_json` gives the same record back.

    Lone surrogates, which no UTF-8 file can hold, are written as JSON escapes.

    Raises:
        ValueError: if a number of the record is not finite.
    """
    record = {"schema": SCHEMA_VERSION, **vars(experience)}
    try:
        return json.dumps(record, default=vars, ensure_ascii=True, allow_nan=False)
    except ValueError as error:
        raise ValueError(
            f"record {experience.id} has an advantage or log-prob that is not finite; check the model's weights"
        ) from error


def from_json(line: str | bytes) -> Experience:
    """The record that `to_json` wrote.

    Raises:
        ValueError: if the line is too long, no JSON object, or of another schema version, or if its fields are not those
            of a record, each of its own kind.
    """
    if len(line) > LONGEST_LINE:
        raise ValueError(f"a line of more than {LONGEST_LINE:,} bytes")
    try:
        # `json` would let lone surrogates pass in bytes, and two of them may be one character when they are read again.
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        record: Any = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("lists or objects within one another without end") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    schema = record.pop("schema", None)
    if schema != SCHEMA_VERSION:
        raise ValueError(f"schema={shown(schema)}, but this version reads {SCHEMA_VERSION}")
    try:
        _check_kinds(record, _RECORD)
        verdict, trace = record.pop("verdict"), record.pop("trace")
        _check_kinds(verdict or {}, _VERDICT)
        _check_kinds(trace or {}, _TRACE)
        return Experience(
            **record,
            verdict=None if verdict is None else Verdict(**verdict),
            trace=None
            if trace is None
            else Trace(
                spans=tuple((start, end) for start, end in trace["spans"]),
                logprobs=tuple(trace["logprobs"]),
                eos_logprob=trace["eos_logprob"],
            ),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"fields are missing or unknown ({error!s:.200})") from error


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 64


def _is_number(value: Any) -> bool:
    # 1e999 is read as infinity, and an integer may be one that no float can hold.
    return (type(value) is int and value.bit_length() < 1024) or (type(value) is float and math.isfinite(value))


def _is_span(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_count, value))


def _is_list(value: Any, item: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(item, value))


_RECORD: dict[str, tuple[Callable[[Any], bool], str]] = {
    "problem_id": (lambda value: isinstance(value, str), "text"),
    "agent": (lambda value: isinstance(value, str), "text"),
    "index": (_is_count, "a whole number from 0"),
    "finish_reason": (lambda value: isinstance(value, str) and value in get_args(FinishReason), "a reason to end"),
    "policy_version": (_is_count, "a whole number from 0"),
    "text": (lambda value: value is None or isinstance(value, str), "text"),
    "verdict": (lambda value: value is None or (isinstance(value, dict) and bool(value)), "an object"),
    "advantage": (lambda value: value is None or _is_number(value), "a finite number"),
    "trace": (lambda value: value is None or (isinstance(value, dict) and bool(value)), "an object"),
}
_VERDICT: dict[str, tuple[Callable[[Any], bool], str]] = {
    "score": (lambda value: value is None or _is_number(value), "a finite number"),
    "detail": (lambda value: isinstance(value, str), "text"),
}
_TRACE: dict[str, tuple[Callable[[Any], bool], str]] = {
    "spans": (lambda value: _is_list(value, _is_span), "a list of pairs of whole numbers"),
    "logprobs": (lambda value: _is_list(value, _is_number), "a list of finite numbers"),
    "eos_logprob": (lambda value: value is None or _is_number(value), "a finite number"),
}
"""What each field of a line must be; `Verdict` and `Trace` check the others themselves."""


def _check_kinds(values: Mapping[str, Any], kinds: Mapping[str, tuple[Callable[[Any], bool], str]]) -> None:
    """Raise ValueError for the first field that is of another kind; missing ones are seen elsewhere."""
    for name, (holds, kind) in kinds.items():
        if name in values and not holds(values[name]):
            raise ValueError(f"{name}={shown(values[name])} is not {kind}")


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def read_jsonl(path: str | os.PathLike[str]) -> Iterator[Experience]:
    """The records of an `exchange.jsonl`, in order.

    Raises:
        ValueError: if the file is missing, or naming the first line that is no record.
    """
    if not Path(path).is_file():
        raise ValueError(f"path={str(path)!r} is not a file; give the exchange.jsonl of a finished run")
    # As bytes, so that a line that is no UTF-8 is reported like any other.
    with Path(path).open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            try:
                yield from_json(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: not an exchange record: {error}") from error
