"""Verdicts on made-up results whose effects are known: each claim must be confirmable, refutable and left undecided."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.compare.claims import judge, pays_where_policies_differ
from benchmarks.compare.findings import Finding, bracket, number
from benchmarks.compare.results import POOL, area, check, final, paired, trained, training, unreachable, values, weakest
from benchmarks.statistics import Interval

Make = Callable[..., dict[str, Any]]
Effects = dict[str, dict[str, Any]]


def verdicts(findings: list[Finding]) -> dict[str, str]:
    """By claim, and for the parts that there are of both kinds of PRP by claim and kind."""
    found = {}
    for f in findings:
        kind = f" {f.statement[4]}" if f.statement.startswith("PRP-") else ""
        found[f.claim + kind] = f.verdict
    return found


def test_all_claims_hold_where_the_effects_are_the_papers(made_up: Make, as_in_the_paper: Effects) -> None:
    found = verdicts(judge(made_up(as_in_the_paper)))
    steady = {"C3d S", "C3d T"}  # none of these curves falls
    assert {claim for claim, verdict in found.items() if verdict == "confirmed"} == set(found) - steady
    assert len(found) == 17


def test_all_claims_can_be_refuted(made_up: Make) -> None:
    """PRP widens the entropy, stays near, helps the weaker policy; the trace harms; SGT does what is claimed of PRP."""
    effects = {
        "grpo": {},
        "prp_s": {"reward": (0.56, 0.60), "kl": (0.05, 0.05), "entropy": (0.1, 0.05)},
        "prp_t": {"reward": (0.55, 0.58), "kl": (0.06, 0.06), "entropy": (0.1, 0.05)},
        "xgrpo": {"reward": (0.60, 0.60), "unreachable": (0.4, 0.5)},
        "sgt": {"reward": (0.5, 0.5), "kl": (0.3, 0.3), "entropy": (0.01, 0.01), "unreachable": (0.0, 0.0)},
    }
    found = verdicts(judge(made_up(effects)))
    undecided = {"C3d S", "C3d T"}
    assert {claim for claim, verdict in found.items() if verdict == "refuted"} == set(found) - undecided


def test_without_effects_one_verdict_in_twenty_is_wrong(made_up: Make) -> None:
    """Statements about which side of zero a difference lies on, with 5 % intervals and 40 draws of noise alone.

    240 verdicts, of which 12 are expected to be wrong; that 24 or more are has a chance below one in a thousand.
    """
    methods = ("grpo", "prp_s", "prp_t", "xgrpo", "sgt")
    sided = ("C3a S", "C3b T", "C3c S", "C3e", "C5a", "C5c")
    wrong = 0
    for draw in range(40):
        found = verdicts(judge(made_up({method: {} for method in methods}, noise=0.02, draw=draw)))
        wrong += sum(found[claim] != "undecided" for claim in sided)
    assert 0 < wrong < 24


def test_one_run_of_each_decides_nothing_however_large_the_effect(made_up: Make, as_in_the_paper: Effects) -> None:
    findings = judge(made_up(as_in_the_paper, pools=("only",), seeds=1))
    assert set(verdicts(findings).values()) == {"undecided"}
    assert all(math.isnan(f.p) for f in findings)


def test_without_runs_nothing_is_tested(made_up: Make) -> None:
    findings = judge(made_up({"grpo": {}}))
    assert set(verdicts(findings).values()) == {"not tested"}
    assert {f.test for f in findings if f.claim == "C1"} == {"no run of SGT"}


def test_no_common_seed_is_no_pair(made_up: Make) -> None:
    results = made_up({"grpo": {}, "sgt": {}, "xgrpo": {}})
    for run in results["runs"]:
        run["seed"] += {"grpo": 0, "sgt": 10, "xgrpo": 20}[run["method"]]
    assert set(verdicts(judge(results)).values()) == {"not tested"}


def c1(findings: list[Finding]) -> Finding:
    return next(f for f in findings if f.claim == "C1")


def test_c1_is_not_confirmed_if_another_method_is_better(made_up: Make) -> None:
    found = c1(judge(made_up({"grpo": {}, "sgt": {"reward": (0.58, 0.59)}, "prp_t": {"reward": (0.60, 0.60)}})))
    assert found.verdict == "refuted", "PRP-T is better with an interval that excludes 0"
    found = c1(judge(made_up({"grpo": {}, "sgt": {"reward": (0.58, 0.59)}, "sft_ungated": {"reward": (0.60, 0.60)}})))
    assert found.verdict == "confirmed", "controls are no rivals"


def test_c1_needs_virtually_every_checkpoint(made_up: Make, as_in_the_paper: Effects) -> None:
    results = made_up(as_in_the_paper)
    for run in results["runs"]:
        if run["method"] == "sgt":
            for data in run["policies"].values():
                data["reward"][1] = 0.0  # below GRPO at one of five checkpoints of every run
    found = c1(judge(results))
    assert found.figures["share of checkpoints at or above"] == pytest.approx(0.8)
    assert found.verdict == "undecided"


def test_c1_is_refuted_by_chance_in_one_study_of_twenty_at_most(made_up: Make) -> None:
    """SGT is GRPO up to noise, alone and among three more that are no better: 120 studies each, of which 5 % are 6."""
    for methods in (("grpo", "sgt"), ("grpo", "prp_s", "prp_t", "xgrpo", "sgt")):
        effects: Effects = {method: {} for method in methods}
        found = [c1(judge(made_up(effects, noise=0.02, draw=draw))).verdict for draw in range(120)]
        assert found.count("refuted") <= 6, methods


def test_c1_is_not_refuted_by_the_share_of_checkpoints(made_up: Make) -> None:
    """SGT a hair below GRPO everywhere but at the end, where it is level: the difference's interval holds 0."""
    results = made_up({"grpo": {}, "sgt": {}})
    for run in results["runs"]:
        if run["method"] == "sgt":
            for data in run["policies"].values():
                data["reward"][1:-1] = [value - 0.02 for value in data["reward"][1:-1]]
    found = c1(judge(results))
    assert found.figures["share of checkpoints at or above"] < 0.5
    assert found.verdict == "undecided"


@pytest.mark.parametrize(("reason", "verdict"), [("FloatingPointError: kl=nan", "undecided"), (None, "confirmed")])
def test_a_method_of_which_a_run_broke_off_is_not_confirmed(
    made_up: Make, as_in_the_paper: Effects, dropped: Callable[..., None], reason: str | None, verdict: str
) -> None:
    """One that is only not finished leaves the verdict to the others."""
    results = made_up(as_in_the_paper)
    dropped(results, "sgt", "start_1", 0, reason)
    findings = judge(results)
    check(results)
    assert {f.verdict for f in findings if f.claim in ("C1", "C4a", "C4b", "C5a", "C5c")} == {verdict}
    assert ("not confirmed, since runs broke off: 1 of SGT" in c1(findings).test) == (reason is not None)
    assert verdicts(findings)["C2"] == "confirmed", "not about SGT"


def test_what_is_left_of_prp_does_not_acquit_it(made_up: Make, dropped: Callable[..., None]) -> None:
    """The weaker policy gains in all runs that are left; C1, for which breaking off is no merit, stays refuted."""
    results = made_up({"grpo": {}, "prp_s": {"reward": (0.56, 0.60)}, "sgt": {"reward": (0.5, 0.5)}})
    assert verdicts(judge(results))["C3c S"] == "refuted"
    for method in ("prp_s", "sgt"):
        dropped(results, method, "start_0", 1, "nan")
    found = verdicts(judge(results))
    assert found["C3c S"] == "undecided" and found["C1"] == "refuted"


def test_c1_figures_by_hand(made_up: Make) -> None:
    """Without noise the difference is that of the levels: 5 and 2 points, 3.5 in the pool; the same in every run."""
    found = c1(judge(made_up({"grpo": {}, "sgt": {"reward": (0.60, 0.58)}}, noise=0)))
    assert found.figures["policy_0: reward, SGT - GRPO"] == pytest.approx(0.05)
    assert found.figures["policy_1: reward, SGT - GRPO"] == pytest.approx(0.02)
    assert found.figures["reward, SGT - GRPO"] == pytest.approx(0.035)
    assert found.verdict == "undecided", "equal differences say nothing about their spread"


def test_c2_margin(made_up: Make) -> None:
    def verdict(**effects: Any) -> str:
        return verdicts(judge(made_up({"grpo": {}, "xgrpo": effects})))["C2"]

    assert verdict(reward=(0.56, 0.57)) == "confirmed", "+1.0 points"
    assert verdict(reward=(0.58, 0.59)) == "refuted", "+3.0 points"
    assert verdict(reward=(0.565, 0.575)) == "undecided", "+1.5 points"
    assert verdict(kl=(0.2, 0.2)) == "refuted"
    assert verdict(entropy=(0.02, 0.01)) == "refuted"


def test_c2_has_the_largest_p_of_its_three_tests(made_up: Make) -> None:
    """The rewards are equal; the entropies lie beyond their margin, so that their test has a p of more than one half."""
    found = next(f for f in judge(made_up({"grpo": {}, "xgrpo": {"entropy": (0.02, 0.01)}})) if f.claim == "C2")
    assert found.p > 0.5
    found = next(f for f in judge(made_up({"grpo": {}, "xgrpo": {}})) if f.claim == "C2")
    assert found.p < 0.05


def test_c2_needs_enough_problems(made_up: Make) -> None:
    """1.5 points are four problems of 267, and three of 266."""
    for problems, expected in ((267, "confirmed"), (266, "undecided")):
        results = made_up({"grpo": {}, "xgrpo": {}})
        results["pools"]["start_1"]["problems"] = problems
        found = next(f for f in judge(results) if f.claim == "C2")
        assert found.verdict == expected
        assert ("266 held-out problems are too few" in found.test) == (problems == 266)


def test_c3_policies_of_opposite_sign_are_shown(made_up: Make) -> None:
    """The pool hides what happens to its policies: the verdict on the weaker one does not."""
    results = made_up({"grpo": {}, "prp_s": {"reward": (0.60, 0.51)}})
    found = next(f for f in judge(results) if f.claim == "C3c")
    assert found.verdict == "confirmed"
    assert found.figures["policy_0: reward"] == pytest.approx(0.05, abs=0.01)
    assert found.figures["policy_1: reward"] == pytest.approx(-0.05, abs=0.01)
    assert "policy_1 of start_0" in found.test


def test_c3_the_weaker_policy_is_that_of_each_warm_start(made_up: Make) -> None:
    results = made_up({"grpo": {}, "prp_s": {"reward": (0.60, 0.51)}})
    for run in results["runs"]:
        if run["pool"] == "start_2":
            run["policies"]["policy_0"]["mean"][0] = 0.0
    assert [weakest(results, pool) for pool in results["pools"]] == ["policy_1", "policy_1", "policy_0"]
    assert next(f for f in judge(results) if f.claim == "C3c").verdict == "undecided"


def test_c3_a_collapse_is_a_fall(made_up: Make, as_in_the_paper: Effects) -> None:
    results = made_up(as_in_the_paper)
    for run in results["runs"]:
        if run["method"] == "prp_s":
            for data in run["policies"].values():
                data["reward"][-1] -= 0.1 + 0.01 * run["seed"]
    assert verdicts(judge(results))["C3d S"] == "confirmed"


def test_c3_holds_the_ratios_of_both_kinds(made_up: Make, as_in_the_paper: Effects) -> None:
    figures = next(f for f in judge(made_up(as_in_the_paper)) if f.claim == "C3e").figures
    assert figures["pool: exchange/ratio_variance, PRP-T (trace)"] == pytest.approx(1.0, rel=0.2)
    assert figures["policy_1: exchange/ratio_variance, PRP-S (snapshot)"] == pytest.approx(1e-3, rel=0.2)


def test_c5_has_the_levels_and_the_subjects(made_up: Make, as_in_the_paper: Effects) -> None:
    figures = next(f for f in judge(made_up(as_in_the_paper)) if f.claim == "C5a").figures
    assert figures["policy_0: mean@k on peer-only problems, SGT"] == pytest.approx(0.4, abs=0.01)
    assert figures["pool: mean@k on peer-only problems, GRPO"] == pytest.approx(0.025, abs=0.01)
    assert figures["policy_0: poly, SGT - GRPO"] == pytest.approx(0.05, abs=0.01)


def test_c5_policies_without_such_problems_are_left_out(made_up: Make, as_in_the_paper: Effects) -> None:
    results = made_up(as_in_the_paper)
    for run in results["runs"]:
        run["policies"]["policy_1"]["unreachable"] = None
    finding = next(f for f in judge(results) if f.claim == "C5a")
    assert finding.verdict == "confirmed"
    assert finding.figures["pool: mean@k on peer-only problems"] == pytest.approx(0.38, abs=0.01)
    assert "policy_1: mean@k on peer-only problems" not in finding.figures


def heterogeneity(made_up: Make, different: float, same: float) -> dict[str, Any]:
    """A study of two pools in which SGT gains so much."""
    study = made_up({"grpo": {}, "sgt": {}}, pools=("different", "same"), seeds=3)
    for pool, gain in (("different", different), ("same", same)):
        study["pools"][pool]["same_tokenizer"] = pool == "same"
        for run in study["runs"]:
            if run["pool"] == pool and run["method"] == "sgt":
                for data in run["policies"].values():
                    data["reward"][-1] += gain
    return study


def test_c6_compares_kinds_of_pools(made_up: Make) -> None:
    def verdict(different: float, same: float) -> str:
        return verdicts(pays_where_policies_differ([heterogeneity(made_up, different, same)]))["C6a"]

    assert verdict(0.05, 0.01) == "confirmed"
    assert verdict(0.01, 0.05) == "refuted"
    assert verdict(0.03, 0.03) == "undecided"


def test_c6_with_one_warm_start_of_each_kind_pairs_the_seeds(made_up: Make) -> None:
    """Seeds shift both kinds alike by tens of points: unpaired, a difference of 3 points would drown."""
    study = heterogeneity(made_up, 0.05, 0.02)
    for run in study["runs"]:
        if run["method"] == "sgt":
            for data in run["policies"].values():
                data["reward"][-1] += 0.1 * run["seed"]
    found = pays_where_policies_differ([study])[0]
    assert found.verdict == "confirmed" and found.p < 0.05
    assert "paired by 3 seeds" in found.test
    assert (
        "one warm start with different tokenizers and one with one tokenizer, for which alone it speaks" in found.test
    )
    for run in study["runs"]:
        run["seed"] += 10 * (run["pool"] == "same")
    unpaired = pays_where_policies_differ([study])[0]
    assert unpaired.verdict == "undecided" and "(Welch)" in unpaired.test
    assert unpaired.figures["gain, different - same"] == pytest.approx(found.figures["gain, different - same"])


def test_c6_is_withheld_where_peers_have_more_to_tell_in_one_kind(made_up: Make) -> None:
    study = heterogeneity(made_up, 0.05, 0.01)
    start = study["pools"]["different"]["start"]
    start["policy_0"]["unreachable"] = ["a-1", "a-2", "a-3", "a-4"]
    start["policy_1"]["unreachable"] = ["b-1", "b-2", "b-3", "b-4"]  # 8 of both, against 4
    assert verdicts(pays_where_policies_differ([study]))["C6a"] == "confirmed"
    start["policy_1"]["unreachable"].append("b-5")
    found = pays_where_policies_differ([study])[0]
    assert found.verdict == "undecided"
    assert "not confirmed, since peers have more to tell in one kind of pool" in found.test


def test_c6_is_withheld_where_runs_broke_off(made_up: Make, dropped: Callable[..., None]) -> None:
    study = heterogeneity(made_up, 0.05, 0.01)
    dropped(study, "sgt", "same", 2, "nan")
    assert verdicts(pays_where_policies_differ([study]))["C6a"] == "undecided"


def test_c6_only_studies_with_both_kinds_count(made_up: Make) -> None:
    study = heterogeneity(made_up, 0.05, 0.01)
    unknown = copy.deepcopy(study)
    del unknown["pools"]["same"]["same_tokenizer"]
    assert verdicts(pays_where_policies_differ([unknown])) == {"C6a": "not tested", "C6b": "not tested"}
    both = pays_where_policies_differ([unknown, study])
    assert both[0].figures["gain, different tokenizers"] == pytest.approx(0.05, abs=0.005)
    assert "3 pairs" in both[0].test


@pytest.mark.parametrize(("reward", "expected"), [((0.60, 0.6), "confirmed"), ((0.5, 0.5), "refuted")])
def test_c6_multiple_choice(made_up: Make, reward: tuple[float, float], expected: str) -> None:
    choice = made_up({"grpo": {}, "sgt": {"reward": reward}})
    choice["settings"]["env"] = "choice-mutual-v0"
    arithmetic = made_up({"grpo": {}, "sgt": {}})
    assert verdicts(pays_where_policies_differ([arithmetic, choice]))["C6b"] == expected
    assert verdicts(pays_where_policies_differ([arithmetic]))["C6b"] == "not tested"


def test_numbers_as_text() -> None:
    assert number(-0.0004, 3) == "0.000" and number(-0.0004, 3, "+") == "+0.000" and number(math.nan, 2) == ""
    assert bracket(Interval(0.0351, -0.001, 0.0712, 6, 3), 100, 1, "+") == "+3.5 [-0.1, +7.1]"
    assert bracket(Interval(0.0351, math.nan, math.nan, 1, 1), 100, 1, "+") == "+3.5"


# What the claims read ---------------------------------------------------------------------------------------------------


def test_measures_by_hand() -> None:
    run = {
        "pool": "p",
        "policies": {
            "a": {
                "steps": [0, 10, 40], "reward": [0.0, 1.0, 1.0], "unreachable": None,
                "train": {"steps": [1, 5, 10, 11, 40], "reward": [0.0, 1.0, None, 3.0, 5.0],
                          "exchange/ratio_variance": [1.0, 2.0, 900.0, 7.0, None]},
            },
            "b": {"steps": [0, 10, 40], "reward": [0.0, 0.0, 0.5], "unreachable": 0.5, "train": {"steps": []}},
        },
    }  # fmt: skip
    assert final("reward")(run, "a") == 1.0 and final("reward")(run, POOL) == 0.75
    assert area("reward")(run, "a") == pytest.approx(0.875)
    assert area("reward")(run, POOL) == pytest.approx((0.875 + 0.1875) / 2)
    assert unreachable(run, "a") is None and unreachable(run, POOL) == 0.5
    assert final("reward")(run, "c") is None
    means = training(run, "a", "reward", [0, 10, 40])
    assert means is not None and means.tolist() == [0.5, 4.0]
    medians = training(run, "a", "exchange/ratio_variance", [0, 10, 40])
    assert medians is not None and medians.tolist() == [2.0, 7.0]
    assert trained("exchange/ratio_variance")(run, POOL) == 4.5, "the median of 1, 2, 900, 7; b has none"
    assert trained("entropy")(run, "a") is None


def test_pairs_are_made_by_warm_start_and_seed(made_up: Make) -> None:
    results = made_up({"grpo": {}, "sgt": {"reward": (0.6, 0.6)}}, noise=0)
    results["runs"] = [
        run for run in reversed(results["runs"]) if (run["method"], run["pool"], run["seed"]) != ("sgt", "start_1", 0)
    ]
    pairs = paired(results, "sgt", "grpo", "policy_0", final("reward"))
    assert {pool: list(seeds) for pool, seeds in pairs.items()} == {
        "start_0": [0, 1],
        "start_1": [1],
        "start_2": [0, 1],
    }
    assert all(value == pytest.approx(0.05) for seeds in pairs.values() for value in seeds.values())
    ratios = paired(results, "sgt", "grpo", "policy_0", final("reward"), math.log)
    assert ratios["start_0"][0] == pytest.approx(math.log(0.6 / 0.55))
    assert values(results, "grpo", "policy_0", final("reward"))["start_2"][0] == pytest.approx(0.59)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r.update(schema=2), "schema=2"),
        (lambda r: r.pop("baseline"), "no baseline"),
        (lambda r: r.update(runs=[]), "runs is empty"),
        (lambda r: r["runs"].append(r["runs"][0]), "run grpo of start_0, seed 0 is there twice"),
        (lambda r: r["pools"].pop("start_1"), "pools has no 'start_1'"),
        (lambda r: r["pools"]["start_1"].pop("problems"), r"no problems in pools\.start_1"),
        (lambda r: (r["runs"][1].pop("seed"), r["runs"][1].pop("pool")), r"no pool, seed in runs\[1\]"),
        (lambda r: r["runs"][1]["policies"]["policy_0"].pop("steps"), r"no steps in runs\[1\]\.policies\.policy_0"),
        (lambda r: r["runs"].append(3), r"runs\[6\] is int"),
        (lambda r: r["runs"].pop(), "planned=6, but 5 runs"),
        (lambda r: r["missing"].append({"method": "sgt"}), r"no pool, seed, steps, reason in missing\[0\]"),
        (lambda r: r["runs"][1]["policies"]["policy_0"].update(steps=[0, 50, 100]), r"evaluated at \[0, 50, 100\], others"),
        (lambda r: r["runs"][0]["policies"]["policy_1"]["kl"].pop(), "policy_1: kl=.* one finite number"),
        (lambda r: r["runs"][0]["policies"]["policy_1"].pop("entropy"), "policy_1: entropy=.* one finite number"),
        (lambda r: r["runs"][0]["policies"]["policy_0"].update(mean=[math.nan] * 6), "policy_0: mean=.* one finite number"),
    ],
)  # fmt: skip
def test_incomplete_results_are_refused(made_up: Make, spoil: Callable[[dict[str, Any]], Any], message: str) -> None:
    results = made_up({"grpo": {}})
    check(results)
    spoil(results)
    with pytest.raises(ValueError, match=message):
        check(results)
