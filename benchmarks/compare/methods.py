"""The methods that are compared: each a name for some settings of a run; all the others are the study's, alike for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verifiers.lookup import did_you_mean


@dataclass(frozen=True)
class Method:
    """What distinguishes a method from the others.

    Attributes:
        title: for tables and figures.
        settings: keys of `TrainingConfig`, and options of its algorithm.
        times_policies: keys whose value in the study is multiplied by the number of policies.
    """

    title: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    times_policies: Sequence[str] = ()


def _sgt(title: str, **settings: Any) -> Method:
    return Method(title, {"algorithm": "sgt", **settings})


METHODS: dict[str, Method] = {
    "grpo": Method("GRPO", {"algorithm": "grpo"}),
    "prp_s": Method("PRP-S (snapshot)", {"algorithm": "prp", "prp_denominator": "snapshot"}),
    "prp_t": Method("PRP-T (trace)", {"algorithm": "prp", "prp_denominator": "trace"}),
    "xgrpo": Method("XGRPO", {"algorithm": "xgrpo"}),
    "sgt": _sgt("SGT"),
    # Controls. As many completions as a policy and its peers draw together, in as many updates.
    "grpo_budget": Method("GRPO, N G", {"algorithm": "grpo"}, ("num_generations", "gradient_accumulation_steps")),
    "sft_ungated": Method("SGT without gate", {"algorithm": "benchmarks.compare.controls:UngatedTransfer"}),
    "sft_rescued": Method("rescues only", {"algorithm": "benchmarks.compare.controls:RescueOnly"}),
    "random_reward": Method(
        "random reward", {"algorithm": "grpo", "verifier": "benchmarks.compare.controls:RandomReward"}
    ),
    "format_reward": Method("format reward", {"algorithm": "grpo", "verifier": "format"}),
    # Strengths.
    "xgrpo_0": Method("XGRPO, 0", {"algorithm": "xgrpo", "xgrpo_mix": 0.0}),
    "xgrpo_05": Method("XGRPO, 0.5", {"algorithm": "xgrpo", "xgrpo_mix": 0.5}),
    "sgt_0": _sgt("SGT, 0", sgt_weight=0.0),
    "sgt_003": _sgt("SGT, 0.03", sgt_weight=0.03),
    "sgt_03": _sgt("SGT, 0.3", sgt_weight=0.3),
    "sgt_1": _sgt("SGT, 1", sgt_weight=1.0),
    # One way. Which of two policies is the stronger is seen from their start.
    "sgt_0_to_1": _sgt("SGT, 0 to 1", exchange_topology={"policy_1": ["policy_0"]}),
    "sgt_1_to_0": _sgt("SGT, 1 to 0", exchange_topology={"policy_0": ["policy_1"]}),
}
"""All methods by name; every setting that is left out is the algorithm's default."""


def method_settings(name: str, shared: Mapping[str, Any], policies: int) -> dict[str, Any]:
    """The settings of a run: the shared ones, changed as the method says.

    Args:
        name: of the method.
        shared: settings of the study; those in `times_policies` must be among them.
        policies: of the pool.

    Raises:
        ValueError: if there is no such method.
    """
    if name not in METHODS:
        raise ValueError(f"algorithms names {name!r}{did_you_mean(name, METHODS)}")
    method = METHODS[name]
    return {**shared, **method.settings, **{key: shared[key] * policies for key in method.times_policies}}
