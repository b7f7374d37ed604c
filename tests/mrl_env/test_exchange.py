"""SEE: who reads whom, what is written to a file and read from it, peers of the past, and advantages by hand."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrl_env import (
    CHANNELS,
    Completion,
    DelayedExchange,
    Experience,
    JsonlExchange,
    MemoryExchange,
    MutualEnv,
    Problem,
    ReplayExchange,
    Trace,
    peer_experiences,
    user_message,
    visible,
)
from mrl_env.exchange import (
    channel_record,
    checked_channels,
    from_json,
    group_advantages,
    pool_statistics,
    read_jsonl,
    readers,
    standardise,
    to_json,
)
from verifiers import Verdict

FULL = Experience(
    problem_id="p/0",
    agent="policy_1",
    index=3,
    finish_reason="boxed",
    policy_version=17,
    text="so \\boxed{½}\n\ud800",
    verdict=Verdict(0.5, "½", "partial", "half"),
    advantage=-0.25,
    trace=Trace(((0, 4), (4, 9)), (-0.125, -3.0), None),
)
BARE = Experience("p1", "policy_0", 0, "stop", 0)


def record(
    problem_id: str = "p0", agent: str = "a", index: int = 0, policy_version: int = 0, **kwargs: Any
) -> Experience:
    return Experience(problem_id, agent, index, "stop", policy_version, **kwargs)


class TestReaders:
    def test_all(self) -> None:
        assert readers("all", ["a", "b", "c"]) == {"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")}

    def test_ring_reads_the_one_before(self) -> None:
        assert readers("ring", ["a", "b", "c"]) == {"a": ("c",), "b": ("a",), "c": ("b",)}
        assert readers("ring", ["a", "b"]) == {"a": ("b",), "b": ("a",)}

    @pytest.mark.parametrize("topology", ["all", "ring", "none", {}])
    def test_alone(self, topology: Any) -> None:
        assert readers(topology, ["a"]) == {"a": ()}

    def test_mapping(self) -> None:
        assert readers({"b": ["c", "a", "c"]}, ["a", "b", "c"]) == {"a": (), "b": ("c", "a"), "c": ()}


class TestChannels:
    def test_in_one_order_without_repeats(self) -> None:
        assert checked_channels(["traces", "rewards", "traces"]) == ("rewards", "traces")
        assert checked_channels("traces") == ("traces",)
        assert checked_channels(()) == ()

    @pytest.mark.parametrize(
        "subset", [s for size in range(1, 5) for s in itertools.combinations(CHANNELS, size)], ids="+".join
    )
    def test_peer_experiences_is_the_inverse_of_channel_record(self, subset: Any) -> None:
        observation = {
            "prompts": ((), ()),
            **{channel: ((channel_record(FULL, channel),), ()) for channel in subset},
        }
        hidden: dict[str, Any] = {
            field: None
            for channel, field in zip(CHANNELS, ("text", "verdict", "advantage", "trace"), strict=True)
            if channel not in subset
        }
        assert peer_experiences(observation) == ((replace(FULL, **hidden),), ())

    def test_no_channel_shows_nobody(self) -> None:
        assert peer_experiences({"prompts": ((), (), ())}) == ((), (), ())

    def test_a_record_without_a_verdict_is_no_success(self) -> None:
        seen = channel_record(BARE, "rewards")
        assert (seen["score"], seen["reason"]) == (None, "error")

    def test_records_share_nothing_that_can_be_changed(self) -> None:
        seen = channel_record(FULL, "traces")
        seen["trace"]["logprobs"] = ()
        channel_record(FULL, "rewards")["score"] = 1.0
        assert FULL.trace is not None
        assert FULL.trace.logprobs == (-0.125, -3.0)
        assert FULL.score == 0.5


class TestMemory:
    def test_the_order_of_agents_and_of_publication_permutes_nothing(self) -> None:
        records = [record(problem, agent, index) for problem in "pq" for agent in "abc" for index in range(2)]
        views = set()
        for order in itertools.permutations("abc"):
            exchange = MemoryExchange(order)
            exchange.publish(sorted(records, key=lambda r: (order.index(r.agent), -r.index)))
            views.add(exchange.view("b", ["q", "p"]))
        expected = tuple(
            tuple(record(problem, agent, index) for agent in "ac" for index in range(2)) for problem in "qp"
        )
        assert views == {expected}

    def test_ids_are_unique(self) -> None:
        records = [
            record(problem, agent, index, version)
            for problem in ("p", "p/0", "p/0/0", "0@1")
            for agent in ("a", "a-0", "replay:a")
            for index in (0, 1, 10)
            for version in (0, 1, 10)
        ]
        assert len({r.id for r in records}) == len(records)

    def test_clear(self) -> None:
        exchange = MemoryExchange(["a", "b"])
        exchange.publish([record()])
        exchange.clear()
        assert exchange.view("b", ["p0"]) == ((),)

    def test_strangers(self) -> None:
        exchange = MemoryExchange(["a", "b"])
        with pytest.raises(ValueError, match=r"agent='c' publishes .*\['a', 'b'\]"):
            exchange.publish([record(agent="c")])
        with pytest.raises(ValueError, match=r"agent='c' reads .*\['a', 'b'\]"):
            exchange.view("c", [])

    def test_records_travel_by_pickle(self) -> None:
        for each in (FULL, BARE, Completion("x", (1,), (-0.5,), trace=Trace(((0, 1),), (-0.5,)))):
            assert pickle.loads(pickle.dumps(each)) == each


TEXTS = st.text(st.characters(codec=None), max_size=20)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def traces(draw: Callable[..., Any]) -> Trace:
    lengths = draw(st.lists(st.integers(1, 5), max_size=4))
    ends = list(itertools.accumulate(lengths))
    logprobs = draw(st.lists(FINITE, min_size=len(lengths), max_size=len(lengths)))
    spans = tuple(zip([0, *ends], ends, strict=False))
    return Trace(spans, tuple(logprobs), draw(st.none() | FINITE))


EXPERIENCES = st.builds(
    Experience,
    problem_id=TEXTS,
    agent=TEXTS,
    index=st.integers(0, 10**6),
    finish_reason=st.sampled_from(["stop", "boxed", "length"]),
    policy_version=st.integers(0, 2**63),
    text=st.none() | TEXTS,
    verdict=st.none()
    | st.builds(
        Verdict,
        score=st.none() | st.floats(0, 1),
        extracted=st.none() | TEXTS,
        reason=st.sampled_from(["right", "wrong", "timeout"]),
        detail=TEXTS,
    ),
    advantage=st.none() | FINITE,
    trace=st.none() | traces(),
)


class TestJsonLines:
    @given(EXPERIENCES)
    @settings(max_examples=200, deadline=None)
    def test_round_trip(self, experience: Experience) -> None:
        line = to_json(experience)
        assert line.isascii()
        assert "\n" not in line
        assert from_json(line) == experience
        assert from_json(line.encode()) == experience

    def test_the_line_by_hand(self) -> None:
        assert json.loads(to_json(FULL)) == {
            "schema": 1,
            "problem_id": "p/0",
            "agent": "policy_1",
            "index": 3,
            "finish_reason": "boxed",
            "policy_version": 17,
            "text": "so \\boxed{½}\n\ud800",
            "verdict": {"score": 0.5, "extracted": "½", "reason": "partial", "detail": "half"},
            "advantage": -0.25,
            "trace": {"spans": [[0, 4], [4, 9]], "logprobs": [-0.125, -3.0], "eos_logprob": None},
        }

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("where", ["advantage", "logprob"])
    def test_numbers_that_json_lacks(self, bad: float, where: str, tmp_path: Path) -> None:
        spoilt = (
            replace(FULL, advantage=bad)
            if where == "advantage"
            else replace(FULL, trace=Trace(((0, 9),), (bad,), None))
        )
        with pytest.raises(ValueError, match=r"policy_1/p/0/3@17 .*not finite"):
            to_json(spoilt)
        path = tmp_path / "exchange.jsonl"
        with pytest.raises(ValueError, match="not finite"):
            JsonlExchange(["policy_1"], path=path).publish([replace(BARE, agent="policy_1"), spoilt])
        assert not path.exists()

    def test_written_while_running(self, tmp_path: Path) -> None:
        path = tmp_path / "run" / "exchange.jsonl"
        exchange = JsonlExchange(["policy_0", "policy_1"], path=path)
        exchange.publish([FULL])
        assert list(read_jsonl(path)) == [FULL]
        exchange.clear()
        assert exchange.view("policy_0", ["p/0"]) == ((),)
        exchange.publish(iter([BARE, FULL]))
        assert exchange.view("policy_0", ["p/0"]) == ((FULL,),)
        again = JsonlExchange(["policy_0", "policy_1"], "ring", path=path)
        again.publish([BARE])
        assert list(read_jsonl(path)) == [FULL, BARE, FULL, BARE]
        assert again.view("policy_1", ["p1"]) == ((BARE,),)

    def test_nothing_is_written_of_strangers(self, tmp_path: Path) -> None:
        path = tmp_path / "exchange.jsonl"
        with pytest.raises(ValueError, match="agent='policy_1'"):
            JsonlExchange(["policy_0"], path=path).publish([FULL])
        assert not path.exists()

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            (b"", "Expecting value"),
            (b"{", "Expecting"),
            (to_json(FULL)[:-7].encode(), "delimiter|Expecting"),
            (b"[1, 2]", "not a JSON object"),
            (b"{}", "schema=None, but this version reads 1"),
            (to_json(FULL).replace('"schema": 1', '"schema": 2').encode(), "schema=2, but this version reads 1"),
            (to_json(FULL).replace('"agent"', '"agents"').encode(), "fields are missing or unknown"),
            (to_json(FULL).replace('"verdict"', '"verdicts"').encode(), "fields are missing or unknown"),
            (to_json(FULL).replace('"reason": "partial"', '"reason": "lucky"').encode(), "reason='lucky'"),
            (to_json(FULL).replace('"score": 0.5', '"score": 5').encode(), "score=5"),
            (to_json(FULL).replace("[4, 9]", "[5, 9]").encode(), "continue at byte 4"),
            (to_json(FULL).replace("[4, 9]", "[4]").encode(), "pairs of whole numbers"),
            (to_json(FULL).replace("-0.125, ", "").encode(), "2 spans but 1 logprobs"),
            (to_json(FULL).replace("-0.125", "NaN").encode(), "NaN"),
            (to_json(FULL).replace("-0.25", "-Infinity").encode(), "-Infinity"),
            (to_json(FULL).encode().replace(b"half", b"\xff"), "utf-8"),
            # A surrogate as bytes: beside an escaped one it would be read as one character the next time.
            (to_json(FULL).encode().replace(b"half", b"\xed\xa0\x80\\udc69"), "utf-8"),
        ],
    )
    def test_a_corrupt_line(self, line: bytes, message: str, tmp_path: Path) -> None:
        path = tmp_path / "exchange.jsonl"
        path.write_bytes(b"\n".join([to_json(BARE).encode(), line, to_json(FULL).encode(), b""]))
        with pytest.raises(ValueError, match=rf"exchange\.jsonl, line 2: not an exchange record: .*(?:{message})"):
            list(read_jsonl(path))
        with pytest.raises(ValueError, match=r"exchange\.jsonl, line 2"):
            ReplayExchange(MemoryExchange(["a"]), path)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"path='.*nothing\.jsonl' is not a file; give"):
            list(read_jsonl(tmp_path / "nothing.jsonl"))


class TestReplay:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Two authors, version 1 and then 2 on `p0`; `p1` seen twice under one version, the second time shorter."""
        path = tmp_path / "exchange.jsonl"
        exchange = JsonlExchange(["old", "older"], path=path)
        for version in (1, 2):
            for agent in ("older", "old"):
                exchange.publish(record("p0", agent, i, version, text=f"{agent} {version} {i}") for i in (0, 1))
        exchange.publish(record("p1", "old", i, 2, text=f"first {i}") for i in (0, 1, 2))
        exchange.publish(record("p1", "old", i, 2, text=f"second {i}") for i in (0, 1))
        return path

    def test_a_peer_that_no_longer_exists(self, path: Path) -> None:
        exchange = ReplayExchange(MemoryExchange(["a", "b"]), path)
        exchange.publish([record("p0", "a", 0, 5, text="alive")])
        living, replayed = exchange.view("b", ["p0"])[0][:1], exchange.view("b", ["p0"])[0][1:]
        assert [r.text for r in living] == ["alive"]
        assert [(r.agent, r.text, r.policy_version) for r in replayed] == [
            ("replay:old", "old 2 0", 2),
            ("replay:old", "old 2 1", 2),
            ("replay:older", "older 2 0", 2),
            ("replay:older", "older 2 1", 2),
        ]
        assert exchange.view("a", ["p0"])[0] == replayed
        exchange.clear()
        assert exchange.view("b", ["p0"])[0] == replayed
        assert exchange.view("b", ["elsewhere"]) == ((),)

    def test_the_last_time_of_a_problem_whose_author_had_not_learnt(self, path: Path) -> None:
        (seen,) = ReplayExchange(MemoryExchange(["a"]), path).view("a", ["p1"])
        assert [r.text for r in seen] == ["second 0", "second 1"]
        assert len({r.id for r in seen}) == 2

    @pytest.mark.parametrize("agents", ["older", ["older"]])
    def test_chosen_authors(self, path: Path, agents: Any) -> None:
        exchange = ReplayExchange(MemoryExchange(["a"]), path, agents=agents, prefix="was-")
        assert [r.agent for r in exchange.view("a", ["p0"])[0]] == ["was-older"] * 2
        assert exchange.view("a", ["p1"]) == ((),)

    def test_unknown_authors(self, path: Path) -> None:
        with pytest.raises(ValueError, match=r"agents=\['old', 'oldest'\].*\['old', 'older'\]; name authors"):
            ReplayExchange(MemoryExchange(["a"]), path, agents=["old", "oldest"])

    def test_an_empty_file(self, tmp_path: Path) -> None:
        path = tmp_path / "exchange.jsonl"
        path.touch()
        with pytest.raises(ValueError, match=r"exchange\.jsonl' holds records of \[\]"):
            ReplayExchange(MemoryExchange(["a"]), path)

    def test_in_the_environment(self, tmp_path: Path) -> None:
        class Right:
            def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
                return Verdict(float(completion == answer), completion, "right" if completion == answer else "wrong")

        path = tmp_path / "exchange.jsonl"
        arguments: dict[str, Any] = {
            "problems": [Problem(f"p{i}", user_message(f"{i}?"), str(i)) for i in range(4)],
            "problems_per_episode": 2,
            "generations": 2,
            "verifier": Right(),
        }
        taught = MutualEnv(agents=["teacher"], exchange=JsonlExchange(["teacher"], path=path), **arguments)
        for _ in range(2):
            _, infos = taught.reset()
            taught.step({"teacher": [[problem.answer, "?"] for problem in infos["teacher"]["problems"]]})
        exchange = ReplayExchange(MemoryExchange(["pupil"]), path)
        env = MutualEnv(agents=["pupil"], exchange=exchange, seed=9, **arguments)
        for _ in range(2):
            begun, infos = env.reset()
            ended, *_ = env.step({"pupil": [["?", "?"]] * 2})
            for observations in (begun, ended):
                assert env.observation_space("pupil").contains(observations["pupil"])
                for problem, peers in zip(
                    infos["pupil"]["problems"], peer_experiences(observations["pupil"]), strict=True
                ):
                    assert [(peer.agent, peer.text, peer.success) for peer in peers] == [
                        ("replay:teacher", problem.answer, True),
                        ("replay:teacher", "?", False),
                    ]


class TestAdvantages:
    """By hand: A_i = (r_i - mean) / (std + 1e-4), std with n - 1."""

    @pytest.mark.parametrize(
        ("scores", "mean", "std"),
        [
            ([1.0, 0.0], 1 / 2, math.sqrt(1 / 2)),
            ([1.0, 0.0, 0.0, 0.0], 1 / 4, 1 / 2),
            ([1.0, 1.0, 0.0], 2 / 3, math.sqrt(1 / 3)),
            ([0.0, 0.25, 0.5, 1.0], 7 / 16, math.sqrt(35 / 192)),
        ],
    )
    def test_by_hand(self, scores: list[float], mean: float, std: float) -> None:
        expected = [(score - mean) / (std + 1e-4) for score in scores]
        assert group_advantages(scores).tolist() == pytest.approx(expected, abs=1e-12)
        assert group_advantages(scores, scale=False).tolist() == pytest.approx([r - mean for r in scores], abs=1e-15)

    def test_what_is_not_judged_is_left_out(self) -> None:
        # Judged: 1 and 0, mean 1/2, std 1/sqrt(2).
        expected = 0.5 / (math.sqrt(0.5) + 1e-4)
        for missing in (None, math.nan):
            assert group_advantages([1.0, missing, 0.0, missing]).tolist() == pytest.approx([expected, 0, -expected, 0])

    @pytest.mark.parametrize("scores", [[], [None], [None, None], [0.7], [0.7, None], [1.0] * 8, [0.1] * 3, [0.7] * 5])
    def test_exactly_nothing_without_a_difference(self, scores: list[float | None]) -> None:
        for scale in (True, False):
            assert group_advantages(scores, scale=scale).tolist() == [0.0] * len(scores)

    def test_none_and_nan_are_the_same(self) -> None:
        assert np.array_equal(group_advantages([1.0, None, 0.0]), group_advantages(np.array([1.0, np.nan, 0.0])))

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
    @settings(max_examples=100, deadline=None)
    def test_permuting_the_group_permutes_the_advantages_exactly(self, scores: list[float], random: Any) -> None:
        order = list(range(len(scores)))
        random.shuffle(order)
        assert group_advantages([scores[i] for i in order]).tolist() == [group_advantages(scores)[i] for i in order]

    def test_pool_statistics(self) -> None:
        assert pool_statistics(np.array([])) == (0.0, 0.0)
        assert pool_statistics(np.array([np.nan])) == (0.0, 0.0)
        assert pool_statistics(np.array([0.3, np.nan])) == (0.3, 0.0)
        assert pool_statistics(np.array([2.0, np.nan, 4.0])) == pytest.approx((3.0, math.sqrt(2)))

    def test_standardise(self) -> None:
        assert standardise(np.array([1.0, np.nan]), 0.5, None).tolist() == [0.5, 0.0]
        assert standardise(np.array([1.0, np.nan]), 0.5, 0.4999).tolist() == pytest.approx([1.0, 0.0])


class TestDelayedExchange:
    def record(self, agent: str, problem: str, text: str) -> Experience:
        return Experience(problem, agent, 0, "stop", 0, text=text)

    def test_rounds_reach_the_file_whole_and_in_order_whoever_was_first(self, tmp_path: Path) -> None:
        exchange = DelayedExchange(JsonlExchange(["a", "b"], path=tmp_path / "x.jsonl"), ["a", "b"], first=5)
        for agent, text in (("b", "b5"), ("b", "b6"), ("a", "a5"), ("a", "a6")):
            exchange.publish([self.record(agent, "p", text)])
        assert [record.text for record in read_jsonl(tmp_path / "x.jsonl")] == ["a5", "b5", "a6", "b6"]
        assert [[r.text for r in records] for records in exchange.heard("a", 6)] == [["b6"]]
        assert [[r.text for r in records] for records in exchange.heard("a", 5)] == [["b5"]]

    def test_an_agent_waits_for_the_round_and_hears_whom_it_reads(self) -> None:
        names = ["a", "b", "c"]
        exchange = DelayedExchange(MemoryExchange(names, "ring"), names)
        heard: list[Any] = []
        waiting = threading.Thread(target=lambda: heard.extend(exchange.heard("a", 1)))
        waiting.start()
        for agent in names:
            assert not heard
            exchange.publish([self.record(agent, "p", agent), self.record(agent, "q", agent + agent)])
        waiting.join()
        # In a ring `a` reads the one before it.
        assert [[r.text for r in records] for records in heard] == [["c"], ["cc"]]

    def test_the_running_round_shows_nothing(self) -> None:
        exchange = DelayedExchange(MemoryExchange(["a", "b"]), ["a", "b"])
        exchange.publish([self.record("a", "p", "2")])
        assert exchange.view("b", ["p", "q"]) == ((), ())

    def test_patience_ends_with_the_names_of_the_late(self) -> None:
        exchange = DelayedExchange(MemoryExchange(["a", "b", "c"]), ["a", "b", "c"], patience=0.05)
        exchange.publish([self.record("a", "p", "2")])
        with pytest.raises(TimeoutError, match="a has waited for b, c to publish round 1"):
            exchange.heard("a", 1)

    def test_closing_lets_nobody_wait(self) -> None:
        exchange = DelayedExchange(MemoryExchange(["a", "b"]), ["a", "b"])
        exchange.close()
        with pytest.raises(RuntimeError, match="closed"):
            exchange.heard("a", 1)

    @pytest.mark.parametrize("authors", [["a", "b"], ["nobody"], []])
    def test_publications_are_of_one_agent(self, authors: list[str]) -> None:
        exchange = DelayedExchange(MemoryExchange(["a", "b"]), ["a", "b"])
        with pytest.raises(ValueError, match="publish those of one of"):
            exchange.publish([self.record(author, "p", "2") for author in authors])

    def test_what_is_visible_is_what_an_environment_shows(self) -> None:
        record = Experience("p", "b", 0, "stop", 3, text="2", verdict=Verdict(1.0), advantage=0.5)
        assert visible([[record]], ("rewards",)) == ((replace(record, text=None, advantage=None),),)
        assert visible([[record], []], ()) == ((), ())
