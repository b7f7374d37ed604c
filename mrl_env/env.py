"""Problems as a PettingZoo parallel environment: every language-model policy is an agent, an episode one problem batch.

`reset` shows all agents the same prompts. `step` takes each agent's completions, verifies them, publishes them to the
Shared Experience Exchange, and ends the episode; the last observation shows each agent its peers' records, on the
channels that it subscribes to.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from mrl_env.exchange import (
    Channel,
    Exchange,
    MemoryExchange,
    Topology,
    channel_record,
    checked_channels,
    group_advantages,
)
from mrl_env.problems import load_problems
from mrl_env.seeding import derive_rng
from mrl_env.spaces import action_space, observation_space
from mrl_env.types import AGENT_NAME, VERIFIER_ARGUMENTS, Action, Completion, Experience, Problem, ProblemSource
from verifiers import Verdict, Verifier, check_answer, get, verify_batch
from verifiers.printing import printable

Observation = dict[str, Any]


class MutualEnv(ParallelEnv[str, Observation, Action]):
    r"""N policies answer the same problems and see what the others made of them.

    Args:
        agents: how many policies (named `policy_0`, `policy_1`, ...), or their names.
        problems: whatever `mrl_env.problems.load_problems` takes: a name, a file, a hub dataset, or your own source.
        domain: name of the registered source that reads `problems` if they are a file or a hub dataset, such as
            `"choice"`; by default they are read as they are.
        split: `"train"` or `"test"`, for sources that have both.
        problems_per_episode: P, the problems that one episode asks.
        generations: G, the completions per problem that each agent plays.
        verifier: a name, a dotted path or an object that judges every problem; by default each problem names its own.
        channels: what the agents subscribe to, out of `rollouts`, `rewards`, `advantages`, `traces`; or a mapping from
            agent to its own channels.
        topology: who reads whom: `"all"`, `"ring"`, `"none"`, or a mapping from agent to the agents that it reads.
        exchange: a ready Exchange (to write a file, to replay a finished run); by default one in memory.
        seed: decides the order of the problems, and what a source draws.
        problem_options: passed to the problem source, e.g. `{"subjects": ["algebra"], "levels": [1, 2]}`.
        render_mode: `"ansi"` or None; `render()` gives a transcript either way.

    Raises:
        ValueError: on an invalid argument, naming it, its value and the remedy.

    Spaces: an observation is a dict with `prompts` (per problem a tuple of chat messages) and one entry per subscribed
    channel (per problem a tuple of the peers' records; empty before the step). An action is, per problem, G
    completions: strings, or `Completion` records, which carry log-probs for those who want the `traces` channel. The
    reward is the mean score of an agent's judged completions, 0 if none is judged. `infos` hold `problems`, and after
    the step `verdicts` (P tuples of G).

    Example:
        >>> env = MutualEnv(agents=2, problems="arithmetic", problems_per_episode=1, generations=2)
        >>> observations, infos = env.reset(seed=0)
        >>> action = [["I do not know.", "The answer is \\boxed{0}."]]
        >>> observations, rewards, *_ = env.step({agent: action for agent in env.agents})
        >>> len(observations["policy_0"]["rollouts"][0])
        2
    """

    metadata: ClassVar[dict[str, Any]] = {
        "name": "math-mutual-v0",
        "render_modes": ["ansi"],
        "is_parallelizable": True,
    }

    def __init__(
        self,
        agents: int | Sequence[str] = 2,
        problems: str | ProblemSource = "math",
        split: str = "train",
        problems_per_episode: int = 8,
        generations: int = 8,
        verifier: str | Verifier | None = None,
        channels: Sequence[str] | Mapping[str, Sequence[str]] = ("rollouts", "rewards"),
        topology: Topology = "all",
        exchange: Exchange | None = None,
        seed: int = 0,
        problem_options: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        domain: str | None = None,
    ) -> None:
        _require_integer("problems_per_episode", problems_per_episode, 1)
        _require_integer("generations", generations, 1)
        _require_integer("seed", seed)
        _require_verifier(verifier)
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode={render_mode!r} is unknown; use 'ansi' or None")
        if exchange is not None and not isinstance(exchange, Exchange):
            raise ValueError(f"exchange={exchange!r} lacks publish, view or clear; give an Exchange, or None")
        if exchange is not None and topology != "all":
            raise ValueError(f"topology={topology!r} was given beside an exchange, which has its own; leave it out")
        self.possible_agents = agent_names(agents)
        self.agents: list[str] = []
        self.render_mode = render_mode
        self.generations = generations
        self.problems_per_episode = problems_per_episode
        self.verifier = verifier
        self.source = load_problems(problems, split=split, seed=seed, domain=domain, **(problem_options or {}))
        if problems_per_episode > len(self.source):
            raise ValueError(
                f"problems_per_episode={problems_per_episode} (problems_per_step of a run) exceeds the {len(self.source)} "
                "problems of the source; lower it or give more problems"
            )
        self.channels = _channels_by_agent(channels, self.possible_agents)
        self.exchange = exchange if exchange is not None else MemoryExchange(self.possible_agents, topology)
        self.observation_spaces = {
            agent: observation_space(problems_per_episode, self.channels[agent]) for agent in self.possible_agents
        }
        self.action_spaces = {agent: action_space(problems_per_episode, generations) for agent in self.possible_agents}
        self._traced = any("traces" in subscribed for subscribed in self.channels.values())
        self._seed = seed
        self._next_episode = 0
        self._problems: tuple[Problem, ...] = ()
        self._played: dict[str, tuple[tuple[Experience, ...], ...]] = {}

    def observation_space(self, agent: str) -> spaces.Dict:
        """The observation space of an agent; the same object on every call."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Tuple[Any]:
        """The action space of an agent; the same object on every call."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observation], dict[str, dict[str, Any]]]:
        """Begin the next episode.

        Args:
            seed: start anew with this order of problems; without it the episodes go on.
            options: `{"episode": k}` jumps to the k-th episode of the current order; other keys are ignored.

        Raises:
            BadGoldError: if a problem's answer cannot be verified against.
            ValueError: if seed or episode is no such number, or the source gives something else than distinct problems.
        """
        if seed is not None:
            _require_integer("seed", seed)
            self._seed, self._next_episode = seed, 0
        episode = (options or {}).get("episode", self._next_episode)
        _require_integer("options['episode']", episode, 0)
        self._next_episode = episode + 1
        self._problems = self._draw(episode)
        self.agents = list(self.possible_agents)
        self._played = {}
        self.exchange.clear()
        return {agent: self._observe(agent) for agent in self.agents}, {agent: self._info() for agent in self.agents}

    def step(
        self, actions: Mapping[str, Action]
    ) -> tuple[
        dict[str, Observation],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Verify and publish everybody's completions, and end the episode.

        Args:
            actions: for each agent, per problem, G completions (strings or `Completion` records).

        Raises:
            ValueError: if the episode is over, an agent is missing or unknown, or an action has the wrong shape.
        """
        if not self.agents:
            raise ValueError("step() after the end of the episode; call reset() first")
        completions = {agent: self._checked_action(agent, actions) for agent in self.agents}
        for agent in actions:
            if agent not in completions:
                raise ValueError(f"actions name the agent {agent!r}, which does not exist; agents: {self.agents}")
        self._played = {
            agent: self._experiences(agent, completions[agent], verdicts)
            for agent, verdicts in self._verify(completions).items()
        }
        self.exchange.publish(record for played in self._played.values() for records in played for record in records)
        players, self.agents = self.agents, []
        return (
            {agent: self._observe(agent) for agent in players},
            {agent: self._reward(agent) for agent in players},
            dict.fromkeys(players, True),
            dict.fromkeys(players, False),
            {agent: self._info(agent) for agent in players},
        )

    def render(self) -> str:
        """A transcript of the episode: each problem, each agent's completions, and the verdicts on them.

        Control characters are shown escaped, whoever wrote them, so that a transcript cannot drive a terminal.
        """
        lines: list[str] = []
        for p, problem in enumerate(self._problems):
            about = ", ".join(
                f"{key} {problem.metadata[key]}" for key in ("subject", "level") if key in problem.metadata
            )
            lines += [
                f"[{problem.id}]{f' ({about})' if about else ''} {problem.question}",
                f"  answer: {problem.answer}",
            ]
            for agent, played in self._played.items():
                for record in played[p]:
                    assert record.verdict is not None
                    score = "-" if record.score is None else f"{record.score:g}"
                    lines += [f"  {agent} #{record.index} [{score} {record.verdict.reason}] {record.text}"]
        return "".join(printable(line) + "\n" for line in lines)

    def close(self) -> None:
        """Nothing to release."""

    def _draw(self, episode: int) -> tuple[Problem, ...]:
        """The P problems of an episode, checked."""
        indices = episode_indices(len(self.source), self.problems_per_episode, self._seed, episode)
        problems = tuple(self.source[i] for i in indices)
        for i, problem in zip(indices, problems, strict=True):
            if not isinstance(problem, Problem):
                raise ValueError(f"problems[{i}] is a {type(problem).__name__}; a source gives mrl_env.Problem records")
            for key in problem.metadata:
                if not isinstance(key, str) or key in VERIFIER_ARGUMENTS:
                    raise ValueError(
                        f"problems[{i}] has metadata named {key!r}, which a verifier gets already; rename it"
                    )
            check_answer(self._verifier_of(problem), problem.answer, **problem.evidence)
        # Records meet under their problem's id.
        repeated = [id for id, count in Counter(problem.id for problem in problems).items() if count > 1]
        if repeated:
            raise ValueError(f"problems has different problems with one id {repeated[0]!r}; give each its own")
        return problems

    def _verifier_of(self, problem: Problem) -> str | Verifier:
        return problem.verifier if self.verifier is None else self.verifier

    def _checked_action(self, agent: str, actions: Mapping[str, Action]) -> tuple[tuple[Completion, ...], ...]:
        """The agent's action as P tuples of G `Completion` records."""
        if agent not in actions:
            raise ValueError(f"actions lack the agent {agent!r}; give one action for each of {self.agents}")
        action = actions[agent]
        remedy = f"give {self.problems_per_episode} problems x {self.generations} completions"
        _require_entries(f"actions[{agent!r}]", action, self.problems_per_episode, remedy)
        for p, group in enumerate(action):
            _require_entries(f"actions[{agent!r}][{p}]", group, self.generations, remedy)
            for g, completion in enumerate(group):
                if not isinstance(completion, str | Completion):
                    raise ValueError(
                        f"actions[{agent!r}][{p}][{g}] is a {type(completion).__name__}; give a string or a Completion"
                    )
        return tuple(tuple(Completion(c) if isinstance(c, str) else c for c in group) for group in action)

    def _verify(
        self, completions: Mapping[str, tuple[tuple[Completion, ...], ...]]
    ) -> dict[str, tuple[tuple[Verdict, ...], ...]]:
        """Judge everything in one batch per problem's verifier; equal texts of a problem are judged once."""
        verdicts: dict[tuple[int, str], Verdict] = {}
        by_verifier: dict[str, dict[tuple[int, str], None]] = {}
        for p, problem in enumerate(self._problems):
            texts = by_verifier.setdefault(problem.verifier, {})
            texts.update(dict.fromkeys((p, c.text) for groups in completions.values() for c in groups[p]))
        for name, keys in by_verifier.items():
            judged = verify_batch(
                name if self.verifier is None else self.verifier,
                [text for _, text in keys],
                [self._problems[p].answer for p, _ in keys],
                [self._problems[p].evidence for p, _ in keys],
            )
            verdicts.update(zip(keys, judged, strict=True))
        return {
            agent: tuple(tuple(verdicts[p, c.text] for c in group) for p, group in enumerate(groups))
            for agent, groups in completions.items()
        }

    def _experiences(
        self,
        agent: str,
        completions: tuple[tuple[Completion, ...], ...],
        verdicts: tuple[tuple[Verdict, ...], ...],
    ) -> tuple[tuple[Experience, ...], ...]:
        """P tuples of G records."""
        return tuple(
            tuple(
                Experience(
                    problem_id=problem.id,
                    agent=agent,
                    index=g,
                    finish_reason=completion.finish_reason,
                    policy_version=completion.policy_version,
                    text=completion.text,
                    verdict=verdict,
                    advantage=float(advantage),
                    trace=completion.trace if self._traced else None,
                )
                for g, (completion, verdict, advantage) in enumerate(
                    zip(group, judged, group_advantages([v.score for v in judged]), strict=True)
                )
            )
            for problem, group, judged in zip(self._problems, completions, verdicts, strict=True)
        )

    def _observe(self, agent: str) -> Observation:
        views = self.exchange.view(agent, [problem.id for problem in self._problems])
        return {
            "prompts": tuple(tuple(dict(message) for message in problem.messages) for problem in self._problems),
            **{
                channel: tuple(tuple(channel_record(record, channel) for record in records) for records in views)
                for channel in self.channels[agent]
            },
        }

    def _reward(self, agent: str) -> float:
        scores = [record.score for records in self._played[agent] for record in records]
        judged = [score for score in scores if score is not None]
        return float(np.mean(judged)) if judged else 0.0

    def _info(self, agent: str | None = None) -> dict[str, Any]:
        info: dict[str, Any] = {"problems": self._problems}
        if agent is not None:
            info["verdicts"] = tuple(tuple(record.verdict for record in records) for records in self._played[agent])
        return info


class SoloEnv(gymnasium.Env[Observation, Action]):
    """One policy alone, as a Gymnasium environment.

    Takes the arguments of `MutualEnv` but for agents, channels and topology.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (Gymnasium declares it as a variable of instances)

    def __init__(self, render_mode: str | None = None, **kwargs: Any) -> None:
        self._env = MutualEnv(agents=1, channels=(), topology="none", render_mode=render_mode, **kwargs)
        self._agent = self._env.possible_agents[0]
        self.render_mode = render_mode
        self.observation_space = self._env.observation_space(self._agent)
        self.action_space = self._env.action_space(self._agent)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin the next episode; see `MutualEnv.reset`."""
        super().reset(seed=seed)
        observations, infos = self._env.reset(seed=seed, options=options)
        return observations[self._agent], infos[self._agent]

    def step(self, action: Action) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Verify the completions and end the episode; see `MutualEnv.step`."""
        observations, rewards, terminations, truncations, infos = self._env.step({self._agent: action})
        agent = self._agent
        return observations[agent], rewards[agent], terminations[agent], truncations[agent], infos[agent]

    def render(self) -> str:
        """A transcript of the episode; see `MutualEnv.render`."""
        return self._env.render()


def agent_names(agents: int | Sequence[str]) -> list[str]:
    """The agents' names.

    Args:
        agents: how many, or the names themselves.

    Raises:
        ValueError: if there are none, or a name is empty, repeated, or no plain word.
    """
    if not isinstance(agents, Sequence):
        _require_integer("agents", agents, 1)
        return [f"policy_{i}" for i in range(agents)]
    names = [agents] if isinstance(agents, str) else list(agents)
    if not names:
        raise ValueError("agents=[] names nobody; give at least one name")
    for name in names:
        # Names become folder names and metric tags.
        if not isinstance(name, str) or AGENT_NAME.fullmatch(name) is None:
            raise ValueError(
                f"agents has the name {name!r:.100}; use at most 64 letters, digits, '_', '-', '.', a letter or digit first"
            )
    if len(set(names)) < len(names):
        raise ValueError(f"agents={names!r} repeats a name; give each agent its own")
    return names


@functools.lru_cache(maxsize=4)
def _epoch_order(size: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(size))
    derive_rng(seed, "order", epoch).shuffle(order)
    return tuple(order)


def episode_indices(size: int, problems: int, seed: int, episode: int) -> tuple[int, ...]:
    """Which problems an episode asks: a pure function, so that a run resumes anywhere.

    Every epoch is a new permutation, cut into batches; what is left over at its end waits for another epoch's shuffle.

    Args:
        size: problems in the source.
        problems: P, problems per episode, at most `size`.
        seed: decides the permutations.
        episode: 0, 1, ...

    Returns:
        P distinct indices in [0, size).
    """
    epoch, batch = divmod(episode, size // problems)
    return _epoch_order(size, seed, epoch)[batch * problems : (batch + 1) * problems]


def _require_integer(name: str, value: Any, minimum: int | None = None) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or (minimum is not None and value < minimum):
        at_least = "" if minimum is None else f" of at least {minimum}"
        raise ValueError(f"{name}={value!r} is invalid; give an integer{at_least}")


def _require_verifier(verifier: Any) -> None:
    if isinstance(verifier, str):
        get(verifier)  # raises if there is none by that name
    elif verifier is not None and not isinstance(verifier, Verifier):
        raise ValueError(f"verifier={verifier!r} has no verify(completion, answer); give a name or a verifier")


def _require_entries(name: str, value: Any, length: int, remedy: str) -> None:
    if isinstance(value, str) or not hasattr(value, "__len__"):
        raise ValueError(f"{name} is a {type(value).__name__}; {remedy}")
    if len(value) != length:
        raise ValueError(f"{name} has {len(value)} entries; {remedy}")


def _channels_by_agent(
    channels: Sequence[str] | Mapping[str, Sequence[str]], agents: Sequence[str]
) -> dict[str, tuple[Channel, ...]]:
    if not isinstance(channels, Mapping):
        return dict.fromkeys(agents, checked_channels(channels))
    if set(channels) != set(agents):
        raise ValueError(
            f"channels names the agents {sorted(channels)}, but the agents are {sorted(agents)}; list each once"
        )
    return {agent: checked_channels(channels[agent]) for agent in agents}
