"""The rows of the four algorithms: what they contain, what crosses, and the equalities that must hold exactly."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from algorithms.advantages import group_advantages
from algorithms.algorithm import Algorithm, algorithm_class, make_algorithms
from algorithms.grpo import GRPO
from algorithms.prp import PRP
from algorithms.samples import Group, Sample, collate, make_sample
from algorithms.sgt import SGT
from algorithms.xgrpo import XGRPO
from mrl_env.exchange import MemoryExchange
from mrl_env.tokenization import Retokenizer, TextTokenizer
from mrl_env.types import Experience

MakeGroup = Callable[..., Group]
MakeRecord = Callable[..., Experience]

EVERY: list[Algorithm] = [
    GRPO(),
    PRP(),
    PRP(prp_denominator="trace"),
    PRP(prp_max_peer_rows=2),
    PRP(prp_drop_constant_groups=True),
    XGRPO(),
    XGRPO(xgrpo_mix=0.3),
    SGT(),
    SGT(sgt_select="shortest"),
]


@pytest.fixture
def retokenize(byte_text: TextTokenizer) -> Retokenizer:
    return Retokenizer(byte_text, 32)


def same(first: Sequence[Sample], second: Sequence[Sample]) -> bool:
    """Whether rows are equal in every stream, bit for bit."""

    def streams(row: Sample) -> list[Any]:
        old = None if row.old_logprobs is None else row.old_logprobs.tolist()
        return [
            row.token_ids.tolist(),
            row.loss_mask.tolist(),
            row.advantages.tolist(),
            old,
            row.nll_weights.tolist(),
            row.source,
        ]

    return [streams(row) for row in first] == [streams(row) for row in second]


def advantages(rows: Sequence[Sample]) -> list[float]:
    """One per row: the advantage of its completion."""
    return [float(row.advantages[row.loss_mask][0]) for row in rows]


# Rows and batches


def test_a_sample_by_hand() -> None:
    row = make_sample((5, 6), (7, 8, 1), source="policy_0", advantage=-0.5, old_logprobs=(-0.1, -0.2, -0.3))
    assert row.token_ids.tolist() == [5, 6, 7, 8, 1]
    assert row.loss_mask.tolist() == [False, False, True, True, True]
    assert row.advantages.tolist() == [0.0, 0.0, -0.5, -0.5, -0.5]
    assert row.old_logprobs is not None
    assert row.old_logprobs.tolist() == pytest.approx([0, 0, -0.1, -0.2, -0.3])
    assert not row.nll_weights.any()


@pytest.mark.parametrize(
    ("fields", "moves"),
    [
        ({"advantage": 0.5}, True),
        ({"advantage": 0.0}, False),
        ({"advantage": 0.0, "nll_weight": 0.1}, True),
        ({"nll_weight": 0.1}, True),
        ({}, False),
        ({"advantage": float("nan")}, True),
    ],
)
def test_what_moves_the_policy(fields: dict[str, float], moves: bool) -> None:
    assert make_sample((5,), (6,), source="me", **fields).has_gradient is moves


def test_rows_need_a_prompt_and_streams_of_one_length() -> None:
    with pytest.raises(ValueError, match="nothing predicts it"):
        make_sample((), (6, 7), source="me", advantage=1.0)
    with pytest.raises(ValueError, match="all must be one"):
        make_sample((5,), (6, 7), source="me", advantage=1.0, old_logprobs=(-0.1,))


def test_collate_pads_on_the_right() -> None:
    rows = [
        make_sample((5,), (0, 1), source="me", advantage=0.5, old_logprobs=(-1.0, -2.0)),
        make_sample((5, 6), (7, 8), source="peer", nll_weight=0.25),
    ]
    batch = collate(rows, [rows[0].old_logprobs, np.zeros(4)], "me", "cpu")
    assert batch.loss_mask.tolist() == [[False, True, True, False], [False] * 4]
    assert batch.advantages.tolist() == [[0, 0.5, 0.5, 0], [0] * 4]
    assert batch.old_logprobs.tolist() == [[0, -1, -2, 0], [0] * 4]
    assert batch.nll_weights.tolist() == [[0] * 4, [0, 0, 0.25, 0.25]]
    assert batch.own.tolist() == [True, False]
    assert batch.unrecorded.tolist() == [False, True]


def test_a_group_needs_a_verdict_per_completion(make_group: MakeGroup) -> None:
    group = make_group([1.0, 0.0])
    with pytest.raises(ValueError, match="2 completions but 1 verdicts"):
        Group(group.problem, "policy_0", group.prompt_ids, group.completions, group.verdicts[:1])


# GRPO


def test_grpo_keeps_ids_and_recorded_logprobs(make_group: MakeGroup, retokenize: Retokenizer) -> None:
    group = make_group([1.0, 0.0, None, 0.0])
    rows = GRPO().rows(group, (), retokenize)
    # Judged are 1, 0, 0: mean 1/3, sample variance (4/9 + 1/9 + 1/9) / 2 = 1/3.
    deviation = 3**-0.5 + 1e-4
    assert advantages(rows) == pytest.approx([2 / 3 / deviation, -1 / 3 / deviation, 0.0, -1 / 3 / deviation])
    for row, completion in zip(rows, group.completions, strict=True):
        assert row.token_ids.tolist() == [*group.prompt_ids, *completion.token_ids]
        assert row.old_logprobs is not None
        assert row.old_logprobs[row.loss_mask].tolist() == pytest.approx(completion.logprobs)
        assert row.loss_mask.sum() == len(completion.token_ids)
        assert row.source == "policy_0"


def test_grpo_without_scaling(make_group: MakeGroup, retokenize: Retokenizer) -> None:
    rows = GRPO(scale_rewards=False).rows(make_group([1.0, 0.0, 0.0, 0.0]), (), retokenize)
    assert advantages(rows) == [0.75, -0.25, -0.25, -0.25]


# What must be GRPO exactly

SCORES: list[list[float | None]] = [
    [1.0, 0.0, 0.0, 1.0],
    [0.0, 0.0, 0.0],
    [0.1, 0.7, 1 / 3, None, 0.2],
    [None, None],
    [1.0, 1.0],
    [0.7] * 7,
]


@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("scale", [True, False])
def test_one_policy_alone_gets_the_rows_of_grpo(
    scores: list[float | None], scale: bool, make_group: MakeGroup, retokenize: Retokenizer
) -> None:
    group = make_group(scores)
    expected = GRPO(scale_rewards=scale).rows(group, (), retokenize)
    for algorithm in EVERY:
        options = {**algorithm.__dict__, "scale_rewards": scale}
        assert same(type(algorithm)(**options).rows(group, (), retokenize), expected)


@pytest.mark.parametrize("scores", SCORES)
def test_weight_zero_is_grpo(scores: list[float | None], make_group: MakeGroup, make_record: MakeRecord) -> None:
    group = make_group(scores)
    peers = [make_record("b0", 1.0), make_record("b1", 0.0, index=1), make_record("b2", 0.3, index=2)]

    def never(experience: Experience) -> None:
        raise AssertionError("nothing is to be retokenized")

    expected = GRPO().rows(group, (), never)  # type: ignore[arg-type]
    assert same(SGT(sgt_weight=0.0).rows(group, peers, never), expected)  # type: ignore[arg-type]
    assert same(XGRPO(xgrpo_mix=0.0).rows(group, peers, never), expected)  # type: ignore[arg-type]


def test_a_pool_of_equals_changes_nothing_for_xgrpo(make_group: MakeGroup, make_record: MakeRecord) -> None:
    group = make_group([0.7, 0.7, 0.7])
    rows = XGRPO().rows(group, [make_record("b", 0.7, index=i) for i in range(4)], None)  # type: ignore[arg-type]
    assert advantages(rows) == [0.0] * 3
    assert not any(row.has_gradient for row in rows)


# XGRPO


def test_xgrpo_by_hand(make_group: MakeGroup, make_record: MakeRecord) -> None:
    """An unsolved group beside a peer that solves 3 of 4: the pool has mean 3/8 and sample variance 8 * 15/64 / 7."""
    group = make_group([0.0] * 4)
    peers = [make_record("b", score, index=i) for i, score in enumerate([1.0, 1.0, 1.0, 0.0])]
    deviation = (15 / 56) ** 0.5
    assert deviation == pytest.approx(0.5175492)
    rows = XGRPO().rows(group, peers, None)  # type: ignore[arg-type]
    assert advantages(rows) == pytest.approx([-0.375 / (deviation + 1e-4)] * 4, rel=1e-6)
    assert same(XGRPO().rows(group, [*peers, make_record("b", None, index=4)], None), rows)  # type: ignore[arg-type]
    # Half and half: mean 3/16, deviation half of it.
    rows = XGRPO(xgrpo_mix=0.5).rows(group, peers, None)  # type: ignore[arg-type]
    assert advantages(rows) == pytest.approx([-0.1875 / (deviation / 2 + 1e-4)] * 4, rel=1e-6)
    # Never a peer's row: no text crosses, and the channel `rollouts` is not even read.
    assert {row.source for row in rows} == {"policy_0"}
    assert XGRPO.channels == ("rewards",)


# PRP


def test_prp_pools_rows_under_one_advantage(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer, byte_text: TextTokenizer
) -> None:
    group = make_group([1.0, 0.0, 0.0, 0.0])
    peers = [make_record(f"b{i}", score, index=i) for i, score in enumerate([1.0, 1.0, 1.0, 0.0])]
    rows = PRP().rows(group, peers, retokenize)
    value = 0.5 / ((2 / 7) ** 0.5 + 1e-4)
    assert advantages(rows) == pytest.approx([value, -value, -value, -value, value, value, value, -value], rel=1e-6)
    assert [row.source for row in rows] == ["policy_0"] * 4 + ["policy_1"] * 4
    for row, peer in zip(rows[4:], peers, strict=True):
        assert peer.text is not None
        expected = [*group.prompt_ids, *byte_text.encode(peer.text), byte_text.eos_token_id]
        assert row.token_ids.tolist() == expected
        assert row.old_logprobs is None, "the learner takes its own snapshot"


def test_prp_with_the_trace_as_denominator(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer
) -> None:
    """With equal tokenizers the aligned trace is the peer's own, token by token."""
    peer = make_record("b c", 1.0)
    assert peer.trace is not None
    assert peer.trace.eos_logprob is not None
    rows = PRP(prp_denominator="trace").rows(make_group([0.0, 0.0]), [peer], retokenize)
    [row] = rows[2:]
    assert row.old_logprobs is not None
    recorded = np.asarray([*peer.trace.logprobs, peer.trace.eos_logprob], dtype=np.float32)
    assert row.old_logprobs[row.loss_mask].tolist() == recorded.tolist()


def test_prp_leaves_out_what_it_cannot_use(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer
) -> None:
    group = make_group([1.0, 0.0])
    peers = [
        make_record("good", 1.0, index=0),
        make_record("unjudged", None, index=1),
        make_record("without trace", 1.0, index=2, traced=False),
        make_record("far too long for a learner of thirty-two tokens", 1.0, index=3),
    ]
    lengths = [len(row.token_ids) - len(group.prompt_ids) for row in PRP().rows(group, peers, retokenize)[2:]]
    assert lengths == [len("good") + 1, len("without trace") + 1]
    assert retokenize.dropped == {"too_long": 1}
    rows = PRP(prp_denominator="trace").rows(group, peers, retokenize)
    assert len(rows) == 3
    assert retokenize.dropped["no_trace"] == 1
    # The advantage is over those that are there: 1, 0 and 1.
    expected = group_advantages([1.0, 0.0, 1.0])
    assert advantages(rows) == pytest.approx(expected.tolist(), rel=1e-6)


def test_prp_draws_at_most_so_many_peer_rows_uniformly(make_group: MakeGroup, make_record: MakeRecord) -> None:
    class Everything:
        """Retokenizes by index, so that rows tell which record they are."""

        def __call__(self, experience: Experience, *, traced: bool = False) -> Any:
            from mrl_env.tokenization import Retokenized

            return Retokenized((100 + experience.index,), None, 0.0)

    peers = [make_record("b", 1.0, index=i) for i in range(5)]
    chosen: Counter[tuple[int, ...]] = Counter()
    for seed in range(2000):
        rows = PRP(prp_max_peer_rows=2).rows(make_group([0.0, 0.0], seed=seed), peers, Everything())  # type: ignore[arg-type]
        pair = tuple(int(row.token_ids[-1]) - 100 for row in rows[2:])
        assert len(pair) == 2
        chosen[pair] += 1
        assert advantages(rows) == pytest.approx([-0.5 / (3**-0.5 + 1e-4)] * 2 + [0.5 / (3**-0.5 + 1e-4)] * 2, rel=1e-6)
    # All 10 pairs equally often: chi-square with 9 degrees of freedom exceeds 27.9 once in a thousand.
    assert set(chosen) == set(itertools.combinations(range(5), 2))
    assert sum((n - 200) ** 2 / 200 for n in chosen.values()) < 27.9
    group = make_group([1.0, 0.0])
    assert len(PRP(prp_max_peer_rows=0).rows(group, peers, Everything())) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_prp_drops_peer_rows_of_constant_groups_if_asked(
    reward: float, make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer
) -> None:
    group, peers = make_group([reward] * 3), [make_record(f"b{i}", reward, index=i) for i in range(4)]
    assert advantages(PRP().rows(group, peers, retokenize)) == [0.0] * 7
    drop = PRP(prp_drop_constant_groups=True)
    assert same(drop.rows(group, peers, retokenize), GRPO().rows(group, (), retokenize))
    mixed = [*peers, make_record("b4", 0.5, index=4)]
    assert len(drop.rows(group, mixed, retokenize)) == 3 + 5
    # Without a judgement of one's own the peers may still differ.
    assert len(drop.rows(make_group([None, None]), mixed, retokenize)) == 2 + 5


# SGT


@pytest.mark.parametrize("own", ["none", "fails", "unjudged", "partial", "solves", "solves once"])
@pytest.mark.parametrize(
    "peer", ["absent", "fails", "partial", "unjudged", "truncated", "solves", "solves and fails", "boxed"]
)
def test_the_gate(own: str, peer: str, make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer) -> None:
    """Open exactly where no own completion and some untruncated peer completion has a score of 1."""
    scores: dict[str, list[float | None]] = {
        "none": [],
        "fails": [0.0, 0.0],
        "unjudged": [None, None],
        "partial": [0.99, None],
        "solves": [1.0, 1.0],
        "solves once": [0.0, 1.0],
    }
    records = {
        "absent": [],
        "fails": [make_record("b", 0.0)],
        "partial": [make_record("b", 0.99)],
        "unjudged": [make_record("b", None)],
        "truncated": [make_record("b", 1.0, finish_reason="length")],
        "solves": [make_record("b", 1.0)],
        "solves and fails": [make_record("b", 0.0), make_record("b", 1.0, index=1)],
        "boxed": [make_record("b", 1.0, finish_reason="boxed")],
    }
    opens = own not in ("solves", "solves once") and peer in ("solves", "solves and fails", "boxed")
    group = make_group(scores[own])
    rows = SGT().rows(group, records[peer], retokenize)
    assert len(rows) == len(scores[own]) + opens
    assert same(rows[: len(scores[own])], GRPO().rows(group, (), retokenize))


@pytest.mark.parametrize(("finish_reason", "stopped"), [("stop", True), ("boxed", False)])
def test_the_success_weighs_lambda_in_all_and_carries_no_policy_gradient(
    finish_reason: str,
    stopped: bool,
    make_group: MakeGroup,
    make_record: MakeRecord,
    retokenize: Retokenizer,
    byte_text: TextTokenizer,
) -> None:
    group = make_group([0.0, 0.0])
    peer = make_record("answer", 1.0, finish_reason=finish_reason)
    row = SGT(sgt_weight=0.3).rows(group, [peer], retokenize)[-1]
    success = [*byte_text.encode("answer"), *([byte_text.eos_token_id] if stopped else [])]
    assert row.token_ids.tolist() == [*group.prompt_ids, *success]
    assert row.nll_weights.tolist() == pytest.approx(
        [0.0] * len(group.prompt_ids) + [0.3 / len(success)] * len(success)
    )
    assert row.nll_weights.sum() == pytest.approx(0.3)
    assert not row.loss_mask.any()
    assert not row.advantages.any()
    assert row.old_logprobs is None
    assert row.source == "policy_1"


def test_a_success_that_does_not_fit_is_dropped_and_counted(
    make_group: MakeGroup, make_record: MakeRecord, byte_text: TextTokenizer
) -> None:
    group, long = make_group([0.0]), make_record("12345", 1.0)
    retokenize = Retokenizer(byte_text, 5)  # five bytes and the end of sequence are six
    assert same(SGT().rows(group, [long], retokenize), GRPO().rows(group, (), retokenize))
    assert retokenize.dropped == {"too_long": 1}
    rows = SGT().rows(group, [long, make_record("1234", 1.0, index=1)], retokenize)
    assert len(rows) == 2
    assert len(rows[1].token_ids) == len(group.prompt_ids) + 5


def test_the_success_is_drawn_uniformly(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer, byte_text: TextTokenizer
) -> None:
    peers = [
        make_record("b", 1.0, agent="policy_1", index=0),
        make_record("c", 0.0, agent="policy_1", index=1),
        make_record("d", 1.0, agent="policy_2", index=0),
        make_record("e", 1.0, agent="policy_2", index=1),
        make_record("f", 1.0, agent="policy_2", index=2, finish_reason="length"),
    ]
    drawn: Counter[str] = Counter()
    for seed in range(3000):
        row = SGT().rows(make_group([0.0], seed=seed), peers, retokenize)[-1]
        drawn[byte_text.decode(row.token_ids.tolist()).decode().removeprefix("1+1=")] += 1
    assert set(drawn) == {"b", "d", "e"}
    # Chi-square with 2 degrees of freedom exceeds 13.8 once in a thousand.
    assert sum((n - 1000) ** 2 / 1000 for n in drawn.values()) < 13.8


def test_draws_differ_between_policies_and_problems(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer
) -> None:
    peers = [make_record(f"b{i}", 1.0, index=i) for i in range(50)]

    def drawn(**who: Any) -> list[int]:
        return SGT().rows(make_group([0.0], **who), peers, retokenize)[-1].token_ids.tolist()

    assert drawn(seed=4) == drawn(seed=4)
    assert len({tuple(drawn(**who)) for who in ({}, {"seed": 1}, {"agent": "policy_7"}, {"problem": "p1"})}) == 4


def test_the_shortest_success(make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer) -> None:
    peers = [make_record(text, 1.0, index=i) for i, text in enumerate(["four", "si", "three"])]
    group = make_group([0.0])
    [_, row] = SGT(sgt_select="shortest").rows(group, peers, retokenize)
    assert len(row.token_ids) == len(group.prompt_ids) + 3


def test_the_likeliest_success(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer, byte_text: TextTokenizer
) -> None:
    asked: list[list[int]] = []

    def scorer(candidates: Sequence[Sequence[int]]) -> list[float]:
        asked.extend(list(candidate) for candidate in candidates)
        return [-3.0, -0.5, -1.0]

    peers = [make_record(text, 1.0, index=i) for i, text in enumerate(["aa", "bb", "cc"])]
    group = make_group([0.0], mean_logprobs=scorer)
    [_, row] = SGT(sgt_select="likeliest").rows(group, peers, retokenize)
    expected = [[*byte_text.encode(text), byte_text.eos_token_id] for text in ("aa", "bb", "cc")]
    assert asked == expected
    assert row.token_ids.tolist() == [*group.prompt_ids, *expected[1]]
    with pytest.raises(ValueError, match="needs the learner's log-probs"):
        SGT(sgt_select="likeliest").rows(make_group([0.0]), peers, retokenize)


# Order and channels


def test_the_order_of_agents_and_records_changes_nothing(
    make_group: MakeGroup, make_record: MakeRecord, retokenize: Retokenizer
) -> None:
    records = [
        make_record(f"{agent[-1]}{i}", score, agent=agent, index=i)
        for agent in ("policy_1", "policy_2", "policy_3")
        for i, score in enumerate([1.0, 0.1, 1 / 3, 1.0])
    ]
    group = make_group([0.0, 0.1, 1 / 3], seed=5)
    expected = [algorithm.rows(group, records, retokenize) for algorithm in EVERY]
    shuffler = random.Random(0)
    for _ in range(10):
        agents = ["policy_0", "policy_1", "policy_2", "policy_3"]
        shuffled = list(records)
        shuffler.shuffle(agents)
        shuffler.shuffle(shuffled)
        exchange = MemoryExchange(agents)
        exchange.publish(shuffled)
        for peers in (shuffled, exchange.view("policy_0", ["p0"])[0]):
            for algorithm, rows in zip(EVERY, expected, strict=True):
                assert same(algorithm.rows(group, peers, retokenize), rows)


@pytest.mark.parametrize("algorithm", EVERY, ids=lambda a: type(a).__name__)
def test_rows_are_a_pure_function(
    algorithm: Algorithm, make_group: MakeGroup, make_record: MakeRecord, byte_text: TextTokenizer
) -> None:
    group = make_group([0.0, 0.0], seed=3)
    peers = [make_record(f"b{i}", 1.0, index=i) for i in range(5)]
    first = algorithm.rows(group, peers, Retokenizer(byte_text, 32))
    assert same(algorithm.rows(group, peers, Retokenizer(byte_text, 32)), first)


# Names and options


def test_algorithms_by_name_and_by_path() -> None:
    assert [algorithm_class(name) for name in ("grpo", "prp", "xgrpo", "sgt")] == [GRPO, PRP, XGRPO, SGT]
    assert algorithm_class("algorithms.sgt:SGT") is SGT
    with pytest.raises(ValueError, match="sgt"):
        algorithm_class("sgtt")
    with pytest.raises(ValueError, match=r"subclass of algorithms\.Algorithm"):
        algorithm_class("algorithms.samples:Group")


def test_options_go_to_those_that_have_them() -> None:
    made = make_algorithms(["sgt", "grpo"], {"sgt_weight": 0.5, "scale_rewards": False})
    assert made == [SGT(scale_rewards=False, sgt_weight=0.5), GRPO(scale_rewards=False)]
    with pytest.raises(ValueError, match=r"'sgt_wieght' belongs to none of sgt, grpo; did you mean 'sgt_weight'"):
        make_algorithms(["sgt", "grpo"], {"sgt_wieght": 0.5})


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        (SGT, {"sgt_weight": -0.1}, "sgt_weight=-0.1 is negative"),
        (SGT, {"sgt_select": "longest"}, "sgt_select='longest' is unknown"),
        (XGRPO, {"xgrpo_mix": 1.5}, r"xgrpo_mix=1.5 lies outside \[0, 1\]"),
        (PRP, {"prp_denominator": "peer"}, "prp_denominator='peer' is unknown"),
        (PRP, {"prp_max_peer_rows": -1}, "prp_max_peer_rows=-1 is negative"),
    ],
)
def test_bad_options_are_refused(algorithm: type[Algorithm], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        algorithm(**options)
