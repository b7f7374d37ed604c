"""Made-up results with known effects: no run stands behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

STEPS = [0, 20, 40, 60, 80, 100]
START = (0.31, 0.27)
"""mean@k and greedy reward at the start: policy_1 is the weaker one."""

Effects = Mapping[str, Mapping[str, Sequence[float]]]


def make_results(
    effects: Effects,
    pools: Sequence[str] = ("start_0", "start_1", "start_2"),
    seeds: int = 2,
    noise: float = 0.002,
    policies: Sequence[str] = ("policy_0", "policy_1"),
    draw: int = 5,
) -> dict[str, Any]:
    """Results in the schema of `benchmarks.compare.collect`.

    Args:
        effects: by method the final `reward`, `kl`, `entropy` and `unreachable` of each policy; what is left out is that of
            "default", below. `train` may hold constants of training metrics.
        pools: names of warm starts; each shifts all methods alike.
        seeds: runs of each method and warm start.
        noise: standard deviation of everything, of each run on its own.
        policies: names.
        draw: seed of the noise.
    """
    rng = np.random.default_rng(draw)
    count = len(policies)
    default = {"reward": (0.55, 0.56), "kl": (0.09, 0.07), "entropy": (0.075, 0.03), "unreachable": (0.02, 0.03)}
    rise = 1 - np.exp(-np.array(STEPS) / 30)
    rise /= rise[-1]
    runs = []
    for p, pool in enumerate(pools):
        for seed in range(seeds):
            for method, effect in effects.items():
                entry = {}
                for k, policy in enumerate(policies):
                    level = {key: (effect.get(key, value) * count)[k] for key, value in default.items()}
                    start = (START * count)[k]
                    reward = start + (level["reward"] + 0.02 * p - start) * rise
                    reward[1:] += rng.normal(0, noise, len(STEPS) - 1)
                    scale = 1 + rng.normal(0, 5 * noise, 2)
                    trained = list(range(1, STEPS[-1] + 1))
                    entry[policy] = {
                        "steps": STEPS,
                        "reward": reward.tolist(),
                        "mean": (reward - 0.03).tolist(),
                        "pass": (reward + 0.2).tolist(),
                        "kl": (level["kl"] * rise * scale[0]).tolist(),
                        "entropy": (0.08 + (level["entropy"] - 0.08) * rise * scale[1]).tolist(),
                        "subjects": {
                            subject: np.clip(reward + shift, 0, 1).tolist()
                            for subject, shift in (("addsub", 0.2), ("mult", 0.05), ("poly", -0.2))
                        },
                        "unreachable": float(level["unreachable"] + rng.normal(0, noise)),
                        "train": {
                            "steps": trained,
                            "reward": np.interp(trained, STEPS, reward).tolist(),
                            "entropy": np.full(len(trained), level["entropy"]).tolist(),
                            **{
                                key: (value * np.exp(rng.normal(0, 0.3, len(trained)))).tolist()
                                for key, value in effect.get("train", {}).items()
                            },
                        },
                    }
                runs.append(
                    {
                        "method": method, "pool": pool, "seed": seed, "hash": f"{method}{p}{seed}", "seconds": 95.123456789,
                        "commits": ["0123456789abcdef"],
                        "policies": entry,
                    }
                )  # fmt: skip
    return {
        "schema": 1,
        "study": "made-up",
        "command": "python -m benchmarks.compare --study made-up",
        "commit": "0123456789abcdef",
        "versions": {"python": "3.12.1", "torch": "2.13.0"},
        "machine": {"cpu": "x86_64 AVX2", "cores": 2, "gpu": None},
        "settings": {"env": "arithmetic-mutual-v0", "max_steps": 100, "eval_samples": 2},
        "baseline": "grpo",
        "planned": len(runs),
        "missing": [],
        "pools": {
            pool: {
                "problems": 288,
                "policies": list(policies),
                "models": {policy: {"model": f"{pool}/{policy}", "sha256": "00"} for policy in policies},
                "start": {policy: {"unreachable": ["a-1", "a-2"]} for policy in policies},
            }
            for pool in pools
        },
        "runs": runs,
    }


def drop(results: dict[str, Any], method: str, pool: str, seed: int, reason: str | None) -> None:
    """Make one of the runs a missing one, at step 43."""
    run = next(r for r in results["runs"] if (r["method"], r["pool"], r["seed"]) == (method, pool, seed))
    results["runs"].remove(run)
    results["missing"].append({"method": method, "pool": pool, "seed": seed, "steps": 43, "reason": reason})


@pytest.fixture(scope="session")
def dropped() -> Callable[..., None]:
    """`drop`."""
    return drop


@pytest.fixture(scope="session")
def made_up() -> Callable[..., dict[str, Any]]:
    """`make_results`."""
    return make_results


@pytest.fixture(scope="session")
def as_in_the_paper() -> Effects:
    """Effects under which every claim of the paper holds."""
    prp = {"exchange/ratio_variance": 1.0, "exchange/effective_sample_size": 0.3, "clip_ratio/region_mean": 0.05}
    hidden = {**prp, "exchange/ratio_variance": 1e-3}
    return {
        "grpo": {"train": {"exchange/rescue_rate": 0.0}},
        "prp_s": {"reward": (0.54, 0.50), "kl": (0.28, 0.14), "entropy": (0.04, 0.015), "train": hidden},
        "prp_t": {"reward": (0.55, 0.54), "kl": (0.14, 0.1), "entropy": (0.05, 0.02), "train": prp},
        "xgrpo": {"reward": (0.551, 0.559)},
        "sgt": {
            "reward": (0.60, 0.585),
            "kl": (0.095, 0.07),
            "entropy": (0.08, 0.032),
            "unreachable": (0.4, 0.25),
            "train": {"exchange/rescue_rate": 0.15},
        },
    }
