"""The environment: PettingZoo's and Gymnasium's own checks, a stricter one of ours, and what each agent may see."""

from __future__ import annotations

import itertools
import os
import pickle
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pettingzoo
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo import ParallelEnv
from pettingzoo.env_registry.registration import aec_registry, parallel_registry
from pettingzoo.test import api_test, parallel_api_test

import mrl_env
from mrl_env import (
    CHANNELS,
    Completion,
    Exchange,
    MutualEnv,
    Problem,
    Trace,
    peer_experiences,
    registration,
    user_message,
)
from mrl_env.env import agent_names, episode_indices, printable
from mrl_env.exchange import MemoryExchange
from mrl_env.spaces import CompletionText, Count, Optional, Real, UnicodeText, action_space, observation_space
from verifiers import BadGoldError, Verdict

IDS = mrl_env.registered()
GOLDEN = Path(__file__).parent / "golden"
UPDATE_GOLDEN = "MRL_UPDATE_GOLDEN"

SMALL: dict[str, Any] = {"problems_per_episode": 2, "generations": 3}
DATA = Path(__file__).parent / "data"
PROBLEMS: dict[str, dict[str, Any]] = {
    # By default these read datasets from the hub.
    "choice-mutual-v0": {"problems": str(DATA / "choice.jsonl")},
    "gsm8k-mutual-v0": {"problems": str(DATA / "gsm8k.jsonl")},
}
"""Arguments of the domains that have no problems of their own."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "one agent": {"agents": 1},
    "three agents": {"agents": 3, "channels": CHANNELS},
    "named agents": {"agents": ["qwen3-0.6b", "Llama_3"]},
    "one name": {"agents": "solo"},
    "one problem, one completion": {"problems_per_episode": 1, "generations": 1, "channels": CHANNELS},
    "ring": {"agents": 3, "topology": "ring"},
    "nobody reads": {"agents": 3, "topology": "none"},
    "explicit topology": {"agents": 3, "topology": {"policy_0": ["policy_2"], "policy_2": ["policy_0", "policy_1"]}},
    "channels per agent": {"channels": {"policy_0": ["traces"], "policy_1": []}},
    **{
        f"channels {'+'.join(subset) or 'none'}": {"channels": subset}
        for size in range(len(CHANNELS) + 1)
        for subset in itertools.combinations(CHANNELS, size)
    },
}


def small(id: str) -> dict[str, Any]:
    """Arguments for a small environment of that id."""
    return {**SMALL, **PROBLEMS.get(id, {})}


class Echo:
    """A verifier to be reckoned with by hand: a completion is the score that it asks for, or `none`, or `raise`."""

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        if completion == "raise":
            raise RuntimeError("no idea")
        if completion == "none":
            return Verdict(None, None, "refused")
        try:
            score = float(completion)
        except ValueError:
            return Verdict(0.0, None, "no_answer")
        return Verdict(score, completion, "right" if score == 1 else "partial" if score else "wrong")


def toy_problems(count: int) -> list[Problem]:
    return [Problem(f"toy-{i}", user_message(f"What is {i} + 1?"), str(i + 1)) for i in range(count)]


def toy_env(**kwargs: Any) -> MutualEnv:
    """Seven small problems, two a time, two completions each, judged by `Echo`."""
    defaults = {"problems": toy_problems(7), "verifier": Echo(), "problems_per_episode": 2, "generations": 2}
    return MutualEnv(**{**defaults, **kwargs})


def same_for_all(env: ParallelEnv, action: Any) -> dict[str, Any]:
    return dict.fromkeys(env.agents, action)


def sampled_actions(env: ParallelEnv, seed: int) -> dict[str, Any]:
    for n, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(1000 * seed + n)
    return {agent: env.action_space(agent).sample() for agent in env.possible_agents}


def asked(infos: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Ids of an episode's problems, which must be the same for everybody."""
    batches = {tuple(problem.id for problem in info["problems"]) for info in infos.values()}
    assert len(batches) == 1
    return batches.pop()


def check_parallel_env(make: Callable[..., ParallelEnv], episodes: int = 3) -> None:
    """A stricter conformance test than PettingZoo's, for any environment with the spaces of `MutualEnv`.

    PettingZoo 1.27 compares two equally seeded environments for one step only; this one plays several episodes, and
    also checks what the spaces promise, what resuming and pickling need, and that one episode is one step.

    Args:
        make: makes the environment anew; takes `seed`.
        episodes: how many to play.
    """
    env, twin, other = make(seed=5), make(seed=5), make(seed=6)
    everybody = list(env.possible_agents)
    assert env.agents == [], "nobody plays before reset()"
    assert len(set(everybody)) == len(everybody) >= 1
    for agent in everybody:
        for space in (env.observation_space, env.action_space):
            assert space(agent) is space(agent), "a space is one object, so that its seed lasts"
            assert pickle.loads(pickle.dumps(space(agent))) == space(agent)
        assert env.observation_space(agent) == twin.observation_space(agent)
        assert env.action_space(agent) == twin.action_space(agent)
        assert env.observation_space(agent).sample() in env.observation_space(agent)

    history, other_history = [], []
    for episode in range(episodes):
        begun = env.reset()
        assert begun == twin.reset(), "equal seeds give equal episodes"
        history.append(asked(begun[1]))
        other_history.append(asked(other.reset()[1]))
        assert env.agents == everybody
        assert len(set(history[-1])) == len(history[-1]), "no problem twice in one episode"
        _check_turn(env, everybody, *begun)
        jumped = make(seed=5)
        assert jumped.reset(options={"episode": episode}) == begun, "an episode can be reached directly"
        copy = pickle.loads(pickle.dumps(env))

        actions = sampled_actions(env, episode)
        assert actions == sampled_actions(twin, episode)
        assert all(actions[agent] in env.action_space(agent) for agent in everybody)
        stepped = env.step(actions)
        assert stepped == twin.step(actions), "equal actions give equal results"
        assert stepped == copy.step(actions), "a pickled environment goes on where it was"
        assert copy.render() == env.render()
        assert jumped.step(actions) == stepped
        observations, rewards, terminations, truncations, infos = stepped
        _check_turn(env, everybody, observations, infos)
        assert all(isinstance(reward, float) and 0 <= reward <= 1 for reward in rewards.values())
        assert list(rewards) == everybody
        assert terminations == dict.fromkeys(everybody, True)
        assert truncations == dict.fromkeys(everybody, False)
        assert env.agents == [], "an episode is one step"
        with pytest.raises(ValueError, match=r"call reset\(\)"):
            env.step(actions)
        following = asked(make(seed=5).reset(options={"episode": episode + 1})[1])
        assert asked(copy.reset()[1]) == asked(jumped.reset()[1]) == following

    assert history != other_history, "another seed gives another order"
    replayed = [asked(env.reset(seed=5)[1]), *(asked(env.reset()[1]) for _ in range(episodes - 1))]
    assert replayed == history, "reset(seed=...) begins anew"
    env.close()


def _check_turn(
    env: ParallelEnv, everybody: Sequence[str], observations: Mapping[str, Any], infos: Mapping[str, Any]
) -> None:
    assert list(observations) == list(infos) == list(everybody)
    for agent, observation in observations.items():
        assert observation in env.observation_space(agent), f"{agent}'s observation is outside its space"
        for records in peer_experiences(observation):
            assert all(record.agent != agent for record in records), f"{agent} sees its own records"


@pytest.fixture
def quiet_checks() -> Any:
    """PettingZoo's and Gymnasium's warnings are failures, but for advice that text and free names cannot follow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Observation is not a NumPy array")
        warnings.filterwarnings("ignore", "(Observation|Action) space for each agent probably should be")
        warnings.filterwarnings("ignore", "We recommend agents to be named")
        warnings.filterwarnings("ignore", "Agents have different observation space sizes")
        yield


@pytest.mark.usefixtures("quiet_checks")
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("id", IDS)
class TestConformance:
    def test_pettingzoo_parallel(self, id: str, arguments: dict[str, Any]) -> None:
        parallel_api_test(mrl_env.make(id, **{**small(id), **arguments}), num_cycles=5)

    def test_pettingzoo_aec(self, id: str, arguments: dict[str, Any]) -> None:
        api_test(pettingzoo.make("aec", id, **{**small(id), **arguments}), num_cycles=5)

    def test_ours(self, id: str, arguments: dict[str, Any]) -> None:
        check_parallel_env(lambda **kwargs: mrl_env.make(id, **{**small(id), **arguments, **kwargs}))


def test_the_environments_are_registered() -> None:
    domains = ("math", "arithmetic", "gsm8k", "choice", "reasoning-gym")
    assert {f"{domain}-mutual-v0" for domain in domains} <= set(IDS)


class TestSolo:
    @pytest.mark.usefixtures("quiet_checks")
    def test_gymnasium(self) -> None:
        env = gymnasium.make("math-solo-v0", render_mode="ansi", **SMALL)
        check_env(env.unwrapped)
        assert env.spec is not None
        assert gymnasium.make(env.spec).reset(seed=3)[0] == env.reset(seed=3)[0]

    def test_it_is_the_mutual_environment_alone(self) -> None:
        solo = gymnasium.make("math-solo-v0", problems="arithmetic", **SMALL)
        mutual = mrl_env.make("math-mutual-v0", agents=1, problems="arithmetic", channels=(), **SMALL)
        for seed in (0, None, None):
            observation, info = solo.reset(seed=seed)
            observations, infos = mutual.reset(seed=seed)
            assert (observation, info) == (observations["policy_0"], infos["policy_0"])
            action = [["\\boxed{4}", "4", f"\\boxed{{{problem.answer}}}"] for problem in info["problems"]]
            results = mutual.step({"policy_0": action})
            assert solo.step(action) == tuple(result["policy_0"] for result in results)
            assert results[1]["policy_0"] > 0
            assert solo.render() == mutual.render()


class TestRegistry:
    @pytest.mark.parametrize("id", IDS)
    def test_spec_round_trip(self, id: str) -> None:
        spec = mrl_env.spec(id)
        assert spec.id == id
        assert pickle.loads(pickle.dumps(spec)) == spec
        arguments = small(id)
        made = [spec.make(**arguments), mrl_env.make(id, **arguments), pettingzoo.make("parallel", id, **arguments)]
        assert all(env.reset() == made[0].reset(options={"episode": 0}) for env in made[1:])

    def test_an_unknown_id(self) -> None:
        for call in (mrl_env.make, mrl_env.spec):
            with pytest.raises(ValueError, match=r"id='math-mutal-v0'.*did you mean 'math-mutual-v0'\?"):
                call("math-mutal-v0")
            with pytest.raises(ValueError, match=r"id='math-mutual-v9'.*did you mean 'math-mutual-v0'\?"):
                call("math-mutual-v9")

    def test_a_malformed_id(self) -> None:
        with pytest.raises(ValueError, match=r"id='two words-v0'.*as in"):
            mrl_env.register("two words-v0")

    @pytest.fixture
    def clean_registry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(registration, "_ours", [*registration._ours])
        for registry in (aec_registry, parallel_registry):
            for id in ("toy-v0", "toy-v1"):
                monkeypatch.setitem(registry, id, None)
                monkeypatch.delitem(registry, id)

    @pytest.mark.usefixtures("clean_registry")
    def test_a_new_domain_needs_arguments_only(self) -> None:
        mrl_env.register("toy-v0", kwargs={"problems": toy_problems(3), "verifier": Echo(), **SMALL})
        assert "toy-v0" in mrl_env.registered()
        observations, _ = mrl_env.make("toy-v0", agents=["a"]).reset()
        assert observations["a"]["prompts"][0][0]["content"].startswith("What is")
        aec = pettingzoo.make("aec", "toy-v0", generations=1)
        aec.reset()
        assert aec.possible_agents == ["policy_0", "policy_1"]
        assert len(aec.action_space("policy_0").spaces[0].spaces) == 1

    @pytest.mark.usefixtures("clean_registry")
    def test_an_environment_of_ones_own(self) -> None:
        class Mine(MutualEnv):
            pass

        mrl_env.register("toy_v1", Mine, kwargs={"problems": "arithmetic"})
        assert "toy-v1" in mrl_env.registered()
        assert isinstance(mrl_env.make("toy-v1"), Mine)
        assert isinstance(pettingzoo.make("aec", "toy-v1").unwrapped, Mine)


class TestOrder:
    @given(st.integers(1, 40), st.data(), st.integers(-(2**70), 2**70))
    @settings(max_examples=60, deadline=None)
    def test_epochs_are_permutations(self, size: int, data: st.DataObject, seed: int) -> None:
        problems = data.draw(st.integers(1, size))
        per_epoch = size // problems
        epochs = [
            [i for e in range(per_epoch) for i in episode_indices(size, problems, seed, epoch * per_epoch + e)]
            for epoch in range(3)
        ]
        for epoch in epochs:
            assert len(epoch) == per_epoch * problems
            assert len(set(epoch)) == len(epoch)
            assert set(epoch) <= set(range(size))
        if size >= 20:
            assert len({tuple(epoch) for epoch in epochs}) == 3

    def test_what_an_epoch_leaves_over_comes_later(self) -> None:
        seen = {i for episode in range(12) for i in episode_indices(7, 3, 0, episode)}
        assert seen == set(range(7))

    def test_the_seed_decides(self) -> None:
        orders = [[episode_indices(20, 5, seed, episode) for episode in range(4)] for seed in (0, 1, 2, -1)]
        assert all(a != b for a, b in itertools.combinations(orders, 2))
        assert asked(toy_env(seed=1).reset()[1]) == asked(toy_env(seed=0).reset(seed=1)[1])

    def test_agents_share_the_order_whatever_their_number(self) -> None:
        orders = {asked(toy_env(agents=agents).reset(seed=3)[1]) for agents in (1, 2, ["x", "y", "z"])}
        assert len(orders) == 1

    def test_the_source_is_asked_for_the_episode_only(self) -> None:
        asked: list[int] = []

        class Lazy:
            def __len__(self) -> int:
                return 100

            def __getitem__(self, index: int) -> Problem:
                asked.append(index)
                return Problem(str(index), user_message("?"), "1")

        toy_env(problems=Lazy()).reset()
        assert len(asked) == 2


class TestWhatIsSeen:
    WHO = frozenset({"problem_id", "agent", "index", "finish_reason", "policy_version"})
    OWN = {  # noqa: RUF012
        "rollouts": {"text"},
        "rewards": {"score", "extracted", "reason", "detail"},
        "advantages": {"advantage"},
        "traces": {"trace"},
    }

    @pytest.mark.parametrize(
        "subset", [s for size in range(5) for s in itertools.combinations(CHANNELS, size)], ids="+".join
    )
    def test_exactly_the_channels_subscribed(self, subset: tuple[str, ...]) -> None:
        env = toy_env(channels={"policy_0": subset, "policy_1": CHANNELS})
        before, _ = env.reset()
        after, *_ = env.step(same_for_all(env, [["1", "0"], ["0", "0"]]))
        for observation in (before["policy_0"], after["policy_0"]):
            assert set(observation) == {"prompts", *subset}
        assert set(after["policy_1"]) == {"prompts", *CHANNELS}
        for channel in subset:
            assert before["policy_0"][channel] == ((), ())
            for records in after["policy_0"][channel]:
                assert [record["agent"] for record in records] == ["policy_1", "policy_1"]
                assert all(set(record) == self.WHO | self.OWN[channel] for record in records)

    def test_the_records_by_hand(self) -> None:
        env = toy_env(channels=CHANNELS)
        _, infos = env.reset()
        first, second = asked(infos)
        trace = Trace(((0, 1),), (-0.5,), eos_logprob=-0.25)
        traced = Completion("1", (7, 2), (-0.5, -0.25), "stop", policy_version=9, trace=trace)
        cut = Completion("1", (7,), (-0.5,), "length")
        actions: dict[str, Any] = {"policy_0": [[traced, "0"], ["none", cut]], "policy_1": [["0", "0"], ["1", "1"]]}
        observations, rewards, _, _, infos = env.step(actions)
        seen = observations["policy_1"]
        who = {"problem_id": first, "agent": "policy_0", "index": 0, "finish_reason": "stop", "policy_version": 9}
        cut_who = {
            "problem_id": second,
            "agent": "policy_0",
            "index": 1,
            "finish_reason": "length",
            "policy_version": 0,
        }
        assert seen["rollouts"][0][0] == {**who, "text": "1"}
        assert seen["rollouts"][1][1] == {**cut_who, "text": "1"}
        assert seen["rewards"][0][0] == {**who, "score": 1.0, "extracted": "1", "reason": "right", "detail": ""}
        assert seen["rewards"][1][0]["score"] is None
        # One right and one wrong: mean 1/2, sample standard deviation 1/sqrt(2).
        assert seen["advantages"][0][0]["advantage"] == pytest.approx(0.5 / (0.5**0.5 + 1e-4), abs=1e-12)
        # One completion judged, one not: nothing to compare with.
        assert [record["advantage"] for record in seen["advantages"][1]] == [0.0, 0.0]
        assert seen["traces"][0][0] == {
            **who,
            "trace": {"spans": ((0, 1),), "logprobs": (-0.5,), "eos_logprob": -0.25},
        }
        assert seen["traces"][0][1]["trace"] is None
        # (1 + 0 + 1) / 3: the completion without a judgement does not count.
        assert rewards == {"policy_0": pytest.approx(2 / 3), "policy_1": pytest.approx(0.5)}
        assert [[v.score for v in group] for group in infos["policy_0"]["verdicts"]] == [[1.0, 0.0], [None, 1.0]]

    def test_peer_experiences_joins_the_channels_again(self) -> None:
        env = toy_env(agents=3, channels=CHANNELS)
        ids = asked(env.reset()[1])
        observations, *_ = env.step(same_for_all(env, [["1", "0"], ["none", "raise"]]))
        for records, problem_id in zip(peer_experiences(observations["policy_1"]), ids, strict=True):
            assert [(r.agent, r.index) for r in records] == [
                (agent, index) for agent in ("policy_0", "policy_2") for index in range(2)
            ]
            assert {record.problem_id for record in records} == {problem_id}
            assert len({record.id for record in records}) == 4

    @pytest.mark.parametrize(
        ("topology", "expected"),
        [
            ("all", {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}),
            ("ring", {"a": {"c"}, "b": {"a"}, "c": {"b"}}),
            ("none", {"a": set(), "b": set(), "c": set()}),
            ({"a": ["b", "b"], "c": ["a", "b"]}, {"a": {"b"}, "b": set(), "c": {"a", "b"}}),
        ],
        ids=["all", "ring", "none", "mapping"],
    )
    def test_topology(self, topology: Any, expected: dict[str, set[str]]) -> None:
        env = toy_env(agents=["a", "b", "c"], topology=topology)
        env.reset()
        observations, *_ = env.step(same_for_all(env, [["1", "0"], ["0", "0"]]))
        for agent, sources in expected.items():
            for channel in ("rollouts", "rewards"):
                for records in observations[agent][channel]:
                    assert {record["agent"] for record in records} == sources
                    assert len(records) == 2 * len(sources)

    def test_nothing_of_the_last_episode_remains(self) -> None:
        env = toy_env(problems=toy_problems(2))
        for _ in range(2):
            observations, infos = env.reset()
            assert observations["policy_0"]["rollouts"] == ((), ())
            assert set(infos["policy_0"]) == {"problems"}
            observations, *_ = env.step(same_for_all(env, [["1", "0"], ["0", "0"]]))
            assert [len(records) for records in observations["policy_0"]["rollouts"]] == [2, 2]

    def test_permuting_the_agents_permutes_nothing(self) -> None:
        names = ["a", "b", "c"]
        actions = {"a": [["1", "0"], ["0", "0"]], "b": [["0", "0.5"], ["1", "1"]], "c": [["none", "1"], ["0", "1"]]}
        results = []
        for order in itertools.permutations(names):
            env = toy_env(agents=order, channels=CHANNELS)
            env.reset()
            results.append(env.step({agent: actions[agent] for agent in order}))
        assert all(result == results[0] for result in results)

    def test_aec_and_parallel_agree(self) -> None:
        arguments = {"problems": "arithmetic", "channels": CHANNELS, "agents": 3, **SMALL}
        parallel, aec = (
            mrl_env.make("math-mutual-v0", **arguments),
            pettingzoo.make("aec", "math-mutual-v0", **arguments),
        )
        for _ in range(2):
            observations, infos = parallel.reset()
            aec.reset()
            actions = {
                agent: tuple((f"\\boxed{{{p.answer}}}", "?", f"\\boxed{{{n}}}") for p in infos[agent]["problems"])
                for n, agent in enumerate(parallel.agents)
            }
            for agent in aec.possible_agents:
                assert aec.agent_selection == agent
                assert aec.last()[0] == observations[agent]
                aec.step(actions[agent])
            observations, rewards, terminations, truncations, infos = parallel.step(actions)
            for agent in aec.possible_agents:
                expected = (observations, rewards, terminations, truncations, infos)
                assert aec.last() == tuple(result[agent] for result in expected)
                aec.step(None)
            assert aec.agents == []


class TestJudging:
    def test_rewards_are_means_over_what_was_judged(self) -> None:
        env = toy_env(agents=4, generations=3)
        env.reset()
        actions = {
            "policy_0": [["1", "0", "0.25"], ["1", "1", "1"]],
            "policy_1": [["none", "1", "none"], ["none", "none", "0"]],
            "policy_2": [["none"] * 3, ["raise"] * 3],
            "policy_3": [["0"] * 3, ["words"] * 3],
        }
        _, rewards, _, _, infos = env.step(actions)
        assert rewards == {"policy_0": 4.25 / 6, "policy_1": 0.5, "policy_2": 0.0, "policy_3": 0.0}
        failed = infos["policy_2"]["verdicts"][1][0]
        assert (failed.score, failed.reason, failed.detail) == (None, "error", "RuntimeError: no idea")

    def test_equal_texts_of_a_problem_are_judged_once(self) -> None:
        @dataclass
        class Counting(Echo):  # not hashable, as a user's dataclass is not
            judged: list[tuple[str, str]] = field(default_factory=list)

            def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
                self.judged.append((completion, answer))
                return super().verify(completion, answer)

        verifier = Counting()
        env = toy_env(verifier=verifier)
        _, infos = env.reset()
        env.step(same_for_all(env, [["1", "1"], ["1", "0"]]))
        first, second = (problem.answer for problem in infos["policy_0"]["problems"])
        assert sorted(verifier.judged) == sorted([("1", first), ("1", second), ("0", second)])

    def test_each_problem_may_name_its_verifier(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("users_own_verifiers")
        module.Echo = Echo  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "users_own_verifiers", module)
        options = {"options": ["red", "blue"]}
        problems = [
            Problem("echo", user_message("?"), "x", verifier="users_own_verifiers:Echo"),
            Problem("choice", user_message("?"), "B", verifier="choice", metadata=options),
            Problem("math", user_message("?"), "\\frac{1}{2}"),
        ]
        env = MutualEnv(agents=1, problems=problems, problems_per_episode=3, generations=2)
        _, infos = env.reset()
        answers = {
            "echo": ["0.25", "1"],
            "choice": ["\\boxed{B}", "\\boxed{red}"],
            "math": ["\\boxed{0.5}", "\\boxed{2}"],
        }
        *_, infos = env.step({"policy_0": [answers[id] for id in asked(infos)]})
        scores = {
            problem.id: [verdict.score for verdict in verdicts]
            for problem, verdicts in zip(infos["policy_0"]["problems"], infos["policy_0"]["verdicts"], strict=True)
        }
        assert scores == {"echo": [0.25, 1.0], "choice": [1.0, 0.0], "math": [1.0, 0.0]}

    def test_the_argument_wins_over_the_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("users_own_verifiers")
        module.Echo = Echo  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "users_own_verifiers", module)
        env = MutualEnv(1, "arithmetic", problems_per_episode=1, generations=1, verifier="users_own_verifiers:Echo")
        env.reset()
        assert env.step({"policy_0": [["0.75"]]})[1] == {"policy_0": 0.75}

    def test_an_unusable_answer_is_refused_before_it_is_asked(self) -> None:
        class Strict(Echo):
            def check_answer(self, answer: str, **metadata: Any) -> None:
                if answer == "3":
                    raise BadGoldError(f"answer={answer!r} is too odd")

        env = toy_env(verifier=Strict(), problems=toy_problems(4), problems_per_episode=1)
        outcomes = []
        for _ in range(4):
            try:
                outcomes.append(asked(env.reset()[1])[0])
            except BadGoldError as error:
                outcomes.append(str(error))
        assert sorted(outcomes) == ["answer='3' is too odd", "toy-0", "toy-1", "toy-3"]

    def test_metadata_reaches_the_verifier(self) -> None:
        class Tolerant(Echo):
            def verify(self, completion: str, answer: str, tolerance: float = 0.0, **metadata: Any) -> Verdict:
                return Verdict(float(abs(float(completion) - float(answer)) <= tolerance), completion, "right")

        problems = [Problem("p", user_message("?"), "3.14", metadata={"tolerance": 0.01})]
        env = toy_env(agents=1, problems=problems, verifier=Tolerant(), problems_per_episode=1)
        env.reset()
        assert env.step({"policy_0": [["3.145", "3.2"]]})[1] == {"policy_0": 0.5}


UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"agents": 0}, r"agents=0 .*at least 1"),
    ({"agents": -2}, r"agents=-2 .*at least 1"),
    ({"agents": True}, r"agents=True .*integer"),
    ({"agents": 2.0}, r"agents=2\.0 .*integer"),
    ({"agents": None}, r"agents=None .*integer"),
    ({"agents": []}, r"agents=\[\] .*at least one name"),
    ({"agents": ["a", "b", "a"]}, r"agents=\['a', 'b', 'a'\] repeats.*each agent its own"),
    ({"agents": ["a/b"]}, r"agents .*'a/b'.*use at most 64 letters"),
    ({"agents": ["", "b"]}, r"agents .*''.*use at most 64 letters"),
    ({"agents": [".."]}, r"agents .*'\.\.'.*use at most 64 letters"),
    ({"agents": "two words"}, r"agents .*'two words'.*use at most 64 letters"),
    ({"agents": ["a\n"]}, r"agents .*'a\\n'.*use at most 64 letters"),
    ({"agents": [1, 2]}, r"agents .*1.*use at most 64 letters"),
    ({"problems": "mth"}, r"problems='mth' .*did you mean 'math'\?"),
    ({"problems": "no/such/file.jsonl"}, r"'?no/such/file\.jsonl"),
    ({"problems": 5}, r"problems=5 .*__len__ and __getitem__"),
    ({"problems": []}, r"problems=\[\] .*at least one"),
    ({"split": "trian"}, r"split='trian' .*did you mean 'train'\?"),
    ({"problem_options": {"levels": [9]}}, r"levels=\[9\] .*1, 2, 3"),
    ({"problems": toy_problems(3), "problem_options": {"levels": [1]}}, r"problem_options=.*levels.*apply them"),
    ({"problems_per_episode": 0}, r"problems_per_episode=0 .*at least 1"),
    ({"problems_per_episode": 1.5}, r"problems_per_episode=1\.5 .*integer"),
    ({"problems_per_episode": "8"}, r"problems_per_episode='8' .*integer"),
    ({"problems": toy_problems(3), "problems_per_episode": 4}, r"problems_per_episode=4 .* 3 problems.*lower it"),
    ({"generations": 0}, r"generations=0 .*at least 1"),
    ({"generations": True}, r"generations=True .*integer"),
    ({"verifier": "mth"}, r"verifier='mth' .*did you mean 'math'"),
    ({"verifier": "no_such_module:Thing"}, r"no_such_module"),
    ({"verifier": 7}, r"verifier=7 .*give a name"),
    ({"channels": ["rollouts", "reward"]}, r"channels .*'reward'.*did you mean 'rewards'\?"),
    ({"channels": "trace"}, r"channels .*'trace'.*did you mean 'traces'\?"),
    ({"channels": None}, r"channels=None .*rollouts, rewards, advantages, traces"),
    ({"channels": [3]}, r"channels .*3.*rollouts"),
    ({"channels": {"policy_0": ["rewards"]}}, r"channels .*'policy_0'.*'policy_1'.*each once"),
    ({"channels": {"policy_0": [], "policy_1": [], "policy_2": []}}, r"channels .*'policy_2'.*each once"),
    ({"topology": "rings"}, r"topology='rings' .*'all', 'ring', 'none'"),
    ({"topology": 3}, r"topology=3 .*'all', 'ring', 'none'"),
    ({"topology": {"policy_0": ["policy_3"]}}, r"topology .*'policy_3'.*did you mean"),
    ({"topology": {"policy_7": []}}, r"topology .*'policy_7'.*did you mean"),
    ({"topology": {"policy_0": ["policy_0"]}}, r"topology .*'policy_0' read itself.*only other"),
    ({"topology": {"policy_0": "policy_1"}}, r"topology\['policy_0'\]='policy_1' .*write \['policy_1'\]"),
    ({"exchange": "memory"}, r"exchange='memory' .*give an Exchange"),
    ({"exchange": MemoryExchange(["policy_0"]), "topology": "ring"}, r"topology='ring' .*leave it out"),
    ({"seed": None}, r"seed=None .*integer"),
    ({"seed": 1.0}, r"seed=1\.0 .*integer"),
    ({"render_mode": "human"}, r"render_mode='human' .*'ansi'"),
]


GROUP = ("1", "0")


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"), UNUSABLE, ids=[f"{i}-{'-'.join(case)}" for i, (case, _) in enumerate(UNUSABLE)]
    )
    def test_an_unusable_argument(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            mrl_env.make("arithmetic-mutual-v0", **arguments)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"seed": "0"}, r"seed='0' .*integer"),
            ({"options": {"episode": -1}}, r"options\['episode'\]=-1 .*at least 0"),
            ({"options": {"episode": 1.0}}, r"options\['episode'\]=1\.0 .*at least 0"),
        ],
    )
    def test_an_unusable_reset(self, arguments: dict[str, Any], message: str) -> None:
        env = toy_env()
        with pytest.raises(ValueError, match=message):
            env.reset(**arguments)

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            ({}, r"lack the agent 'policy_0'.*\['policy_0', 'policy_1'\]"),
            ({"policy_0": (GROUP, GROUP)}, r"lack the agent 'policy_1'"),
            (
                {"policy_0": (GROUP, GROUP), "policy_1": (GROUP, GROUP), "policy_2": (GROUP, GROUP)},
                r"name the agent 'policy_2'.*agents: \['policy_0', 'policy_1'\]",
            ),
            *(
                ({"policy_0": (GROUP, GROUP), "policy_1": action}, rf"actions\['policy_1'\]{message}.*2 problems x 2")
                for action, message in [
                    (None, " is a NoneType"),
                    ("ab", " is a str"),
                    (3, " is a int"),
                    ((), " has 0 entries"),
                    ((GROUP,), " has 1 entries"),
                    ((GROUP, GROUP, GROUP), " has 3 entries"),
                    ((GROUP, "01"), r"\[1\] is a str"),
                    ((GROUP, ("1",)), r"\[1\] has 1 entries"),
                    ((("1", "2", "3"), GROUP), r"\[0\] has 3 entries"),
                    ((GROUP, None), r"\[1\] is a NoneType"),
                ]
            ),
            (
                {"policy_0": (GROUP, GROUP), "policy_1": (GROUP, ("1", None))},
                r"actions\['policy_1'\]\[1\]\[1\] is a NoneType; give a string or a Completion",
            ),
            (
                {"policy_0": (GROUP, GROUP), "policy_1": (GROUP, (b"1", "1"))},
                r"actions\['policy_1'\]\[1\]\[0\] is a bytes; give a string",
            ),
        ],
    )
    def test_an_unusable_action(self, actions: dict[str, Any], message: str) -> None:
        env = toy_env()
        env.reset()
        with pytest.raises(ValueError, match=message):
            env.step(actions)
        # Nothing was published or ended: the right actions are still welcome.
        observations, *_ = env.step(same_for_all(env, (GROUP, GROUP)))
        assert [len(records) for records in observations["policy_0"]["rollouts"]] == [2, 2]

    def test_step_without_an_episode(self) -> None:
        env = toy_env()
        with pytest.raises(ValueError, match=r"reset\(\) first"):
            env.step({})
        env.reset()
        env.step(same_for_all(env, [["1", "0"], ["0", "0"]]))
        with pytest.raises(ValueError, match=r"reset\(\) first"):
            env.step({})

    def test_a_source_of_something_else(self) -> None:
        env = toy_env(problems=[{"question": "1 + 1", "answer": "2"}] * 5)
        with pytest.raises(ValueError, match=r"problems\[\d\] is a dict; .*mrl_env\.Problem"):
            env.reset()

    def test_two_problems_with_one_id(self) -> None:
        env = toy_env(problems=[Problem("same", user_message(f"{i}?"), "2") for i in range(2)])
        with pytest.raises(ValueError, match=r"problems .*one id 'same'; give each its own"):
            env.reset()

    def test_an_exchange_of_other_agents(self) -> None:
        env = toy_env(exchange=MemoryExchange(["policy_0", "somebody"]))
        with pytest.raises(ValueError, match=r"agent='policy_1' .*\['policy_0', 'somebody'\]"):
            env.reset()


class TestNames:
    def test_numbered(self) -> None:
        assert agent_names(3) == ["policy_0", "policy_1", "policy_2"]

    def test_named(self) -> None:
        assert agent_names(["Qwen3-0.6B", "b"]) == ["Qwen3-0.6B", "b"]
        assert agent_names("solo") == ["solo"]


HOSTILE = {
    "escape sequence": "\x1b[2J\x1b[31mred",
    "eight-bit escape": "\x9b31m",
    "operating system command": "\x1b]0;title\x07",
    "backspaces": "right\b\b\b\b\bwrong",
    "carriage return": "safe\rEVIL",
    "newlines": "one\n  policy_1 #0 [1 right] forged\r\ntwo",
    "other line breaks": "a\x0bb\x0cc\x85d\u2028e\u2029f",
    "right-to-left override": "abc\u202egnp.exe",
    "isolates": "\u2066\u2069\u200f",
    "zero width": "a\u200bb\ufeffc",
    "lone surrogate": "x\ud800y\udfff",
    "delete and null": "\x00\x7f",
    "unassigned and private": "\u0378\ue000\U0010ffff",
    "tag characters": "\U000e0041",
}


def raw_control(text: str) -> list[str]:
    """Characters that would do something to a terminal, or cannot be written at all."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")]


class TestRender:
    @pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
    def test_nothing_reaches_the_terminal_raw(self, hostile: str) -> None:
        problem = Problem(hostile, user_message(hostile), hostile, metadata={"subject": hostile, "level": hostile})
        env = toy_env(problems=[problem], problems_per_episode=1, channels=CHANNELS)
        env.reset()
        observations, *_ = env.step(same_for_all(env, [[hostile, "1"]]))
        transcript = env.render()
        lines = transcript.split("\n")
        assert len(lines) == 1 + 1 + 4 + 1  # question, answer, two agents with two completions, nothing
        assert raw_control("".join(lines)) == []
        transcript.encode("utf-8")
        assert observations["policy_0"]["rollouts"][0][0]["text"] == hostile, "only the transcript escapes"
        assert env.observation_space("policy_0").contains(observations["policy_0"])

    @given(st.text(st.characters(codec=None)))
    @settings(max_examples=200, deadline=None)
    def test_printable(self, text: str) -> None:
        shown = printable(text)
        assert raw_control(shown) == []
        assert "\n" not in shown
        shown.encode("utf-8")
        if text.isascii() and text.isprintable():
            assert shown == text

    def test_printable_by_hand(self) -> None:
        assert printable("a\n\x1b[1m\u202e\ud800 é\u00a0∞ \\n") == "a\\n\\x1b[1m\\u202e\\ud800 é\\xa0∞ \\n"

    def test_before_and_after_reset(self) -> None:
        env = toy_env()
        assert env.render() == ""
        env.reset()
        assert len(re.findall(r"What is \d \+ 1\?", env.render())) == 2
        env.step(same_for_all(env, [["1", "0"], ["0", "0"]]))
        assert env.render().count("policy_1 #1") == 2
        env.reset()
        assert "policy_1" not in env.render()

    @pytest.mark.parametrize("id", [*IDS, "math-solo-v0"])
    def test_golden_transcript(self, id: str) -> None:
        """`MRL_UPDATE_GOLDEN=1 python -m pytest tests/mrl_env/test_env.py -k golden` writes the transcripts anew."""
        transcript = golden_transcript(id)
        path = GOLDEN / f"{id}.txt"
        if os.environ.get(UPDATE_GOLDEN):
            path.write_text(transcript, encoding="utf-8", newline="\n")
        assert path.is_file(), f"no golden transcript of {id}; write it with {UPDATE_GOLDEN}=1"
        assert transcript == path.read_text(encoding="utf-8"), (
            f"if the change is meant, renew it with {UPDATE_GOLDEN}=1"
        )


def golden_transcript(id: str) -> str:
    """Two episodes of seed 0, answered by a script."""

    def script(player: int, problem: Problem) -> tuple[str, str]:
        right, wrong = f"So it is \\boxed{{{problem.answer}}}.", "First\x1b[0m\nthen \\boxed{-12345}"
        return (right, wrong) if player == 0 else (wrong, "I cannot tell.")

    transcript = ""
    if id in IDS:
        env = mrl_env.make(id, **{**small(id), "problems_per_episode": 3, "generations": 2})
        for seed in (0, None):
            _, infos = env.reset(seed=seed)
            actions = {
                agent: [script(n, problem) for problem in infos[agent]["problems"]]
                for n, agent in enumerate(env.agents)
            }
            env.step(actions)
            transcript += env.render() + "\n"
        return transcript
    solo = gymnasium.make(id, problems_per_episode=3, generations=2, render_mode="ansi")
    for seed in (0, None):
        _, info = solo.reset(seed=seed)
        solo.step([script(0, problem) for problem in info["problems"]])
        rendered = solo.render()
        assert isinstance(rendered, str)
        transcript += rendered + "\n"
    return transcript


class TestSpaces:
    def test_text(self) -> None:
        assert "" in UnicodeText()
        assert "\ud800∞" in UnicodeText()
        assert Completion("x") not in UnicodeText()
        assert b"x" not in UnicodeText()
        assert Completion("x") in CompletionText()
        assert "x" in CompletionText()
        assert None not in CompletionText()

    def test_numbers(self) -> None:
        unit = Real(0.0, 1.0)
        assert all(x in unit for x in (0, 1, 0.5))
        assert all(x not in unit for x in (-0.1, 1.1, float("nan"), "0.5", None))
        assert all(x in Count() for x in (0, 7))
        assert all(x not in Count() for x in (-1, 0.5, None))
        assert None in Optional(unit)
        assert 0.5 in Optional(unit)
        assert 2 not in Optional(unit)

    def test_equality_tells_kinds_apart(self) -> None:
        different = [
            UnicodeText(),
            CompletionText(),
            Count(),
            Real(0, float("inf")),
            Real(0, 1),
            Optional(UnicodeText()),
            Optional(Count()),
        ]
        for i, space in enumerate(different):
            assert [space == other for other in different] == [i == j for j in range(len(different))]
            assert pickle.loads(pickle.dumps(space)) == space

    @pytest.mark.parametrize(
        "space",
        [
            UnicodeText(),
            CompletionText(),
            Real(-2.0, float("inf")),
            Count(),
            Optional(Real(0, 1)),
            action_space(2, 3),
            observation_space(2, CHANNELS),
        ],
        ids=["text", "completion", "real", "count", "optional", "action", "observation"],
    )
    def test_seeded_samples(self, space: gymnasium.Space[Any]) -> None:
        space.seed(3)
        samples = [space.sample() for _ in range(20)]
        space.seed(3)
        assert samples == [space.sample() for _ in range(20)]
        assert all(sample in space for sample in samples)
        assert any(sample != samples[0] for sample in samples)

    def test_shapes(self) -> None:
        space = action_space(2, 3)
        group = ("a", "b", Completion("c"))
        assert (group, group) in space
        assert [list(group), list(group)] in space
        assert (group,) not in space
        assert (group, group[:2]) not in space


def test_exchange_is_recognised_by_its_methods() -> None:
    class Own:
        def publish(self, experiences: Any) -> None: ...

        def view(self, agent: str, problem_ids: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
            return tuple(() for _ in problem_ids)

        def clear(self) -> None: ...

    assert isinstance(Own(), Exchange)
    env = toy_env(exchange=Own())
    env.reset()
    observations, *_ = env.step(same_for_all(env, [["1", "0"], ["0", "0"]]))
    assert observations["policy_0"]["rollouts"] == ((), ())
