"""The configuration of a run: one flat frozen dataclass of the sections in `options`, checked as a whole.

Fields that may differ between policies take one value for all or one per policy.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import yaml

import verifiers
from algorithms.algorithm import Algorithm, algorithm_class, make_algorithms, refuse_delay
from algorithms.losses import LossConfig
from algorithms.options import (
    PER_POLICY,
    PLACEMENTS,
    AdapterOptions,
    Dtype,
    ExchangeOptions,
    LearningOptions,
    PlacementOptions,
    PolicyOptions,
    ProblemOptions,
    RunOptions,
    SamplingOptions,
    VllmOptions,
)
from algorithms.rollouts.sampling import SamplingConfig
from mrl_env.env import agent_names
from mrl_env.exchange import CHANNELS, readers
from verifiers import Verifier

T = TypeVar("T")

RESERVED_NAMES = {"pool", "optimizer", "config.yaml", "trainer_state.json", "delayed.json"}
"""Names that no policy may have: a checkpoint and the records use them."""


@dataclass(frozen=True)
class TrainingConfig(
    PlacementOptions,
    RunOptions,
    VllmOptions,
    AdapterOptions,
    LearningOptions,
    SamplingOptions,
    ExchangeOptions,
    ProblemOptions,
    PolicyOptions,
):
    """Everything that a run depends on: the sections of `options` as one flat dataclass.

    Raises:
        ValueError: on an invalid value, naming the field, the value and the remedy.

    Example:
        >>> config = TrainingConfig(algorithm="sgt", learning_rate=(1e-4, 2e-4))
        >>> [policy.learning_rate for policy in config.policies()]
        [0.0001, 0.0002]
    """

    def __post_init__(self) -> None:
        for name in (*PER_POLICY, "agents", "exchange_channels", "lora_target_modules"):
            value = getattr(self, name)
            if name in ("agents", "exchange_channels") and value is None:
                continue
            object.__setattr__(self, name, tuple(value) if isinstance(value, list | tuple) else (value,))
        for name in ("use_peft", "load_in_4bit", "use_vllm"):
            if getattr(self, name) == ():  # a flag without a value
                object.__setattr__(self, name, (True,))
        if isinstance(self.exchange_topology, str) and self.exchange_topology.startswith("{"):
            object.__setattr__(self, "exchange_topology", _parsed_topology(self.exchange_topology))
        for item in fields(self):
            object.__setattr__(self, item.name, _typed(item.name, getattr(self, item.name), str(item.type)))
        self._check_policies()
        self._check_numbers()
        self.sampling()
        refuse_delay(self.algorithms(), self.exchange_staleness)
        for policy, algorithm in zip(self.policies(), self.algorithms(), strict=True):
            missing = set(algorithm.channels) - set(self.exchange_channels or algorithm.channels)
            if missing:
                raise ValueError(
                    f"exchange_channels={self.exchange_channels!r} lack {', '.join(sorted(missing))}, which {policy.algorithm} "
                    f"reads; add them, or leave exchange_channels out"
                )

    def _check_policies(self) -> None:
        count = len(self.model_name_or_path)
        if count == 0:
            raise ValueError("model_name_or_path is empty; name at least one model")
        for name in PER_POLICY:
            values = getattr(self, name)
            if name != "device" and len(values) not in (1, count):
                raise ValueError(
                    f"{name} has {len(values)} values for {count} policies; give one for all, or one per policy"
                )
        if self.agents is not None and len(self.agents) != count:
            raise ValueError(f"agents has {len(self.agents)} names for {count} policies; give one per policy")
        names = agent_names(self.agents if self.agents is not None else count)
        for name in RESERVED_NAMES & set(names):
            raise ValueError(f"agents has the name {name!r}, which a run's folder uses itself; choose another")
        try:
            readers(self.exchange_topology, names)
        except ValueError as error:  # which speaks of the environment's argument `topology`
            raise ValueError(f"exchange_{error}") from error
        if self.verifier_options and self.verifier is None:
            raise ValueError(f"verifier_options={self.verifier_options!r}, but no verifier is named; set verifier")
        for channel in self.exchange_channels or ():
            if channel not in CHANNELS:
                raise ValueError(f"exchange_channels names {channel!r}; use some of {', '.join(CHANNELS)}")
        for dtype in self.dtype:
            if dtype not in ("fp32", "bf16"):
                raise ValueError(f"dtype={dtype!r} is unknown; use 'fp32' or 'bf16'")
        if self.placement not in PLACEMENTS and not self.placement.endswith((".yaml", ".yml")):
            raise ValueError(
                f"placement={self.placement!r} is unknown; use one of {', '.join(PLACEMENTS)}, or a .yaml file that says who "
                "gets which devices"
            )
        for name, allowed in (
            ("backend", ("local", "ray")),
            ("loss_type", ("grpo", "bnpo", "dr_grpo", "dapo", "gspo")),
            ("lr_scheduler_type", ("constant", "linear", "cosine")),
            ("vllm_mode", ("colocate", "server")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown; use one of {', '.join(allowed)}")

    def _check_numbers(self) -> None:
        for name in (
            "problems_per_step", "num_generations", "gradient_accumulation_steps", "num_iterations", "max_steps",
            "logging_steps", "eval_size", "generation_batch_size", "max_skipped_updates",
        ):  # fmt: skip
            _require(name, getattr(self, name), getattr(self, name) >= 1, "give at least 1")
        for name in (
            "eval_steps", "save_steps", "warmup_steps", "eval_samples", "log_completions", "beta", "epsilon",
            "exchange_staleness", "max_restarts",
        ):  # fmt: skip
            _require(name, getattr(self, name), getattr(self, name) >= 0, "give at least 0")
        for name in ("learning_rate", "per_device_train_batch_size"):
            for value in getattr(self, name):
                _require(name, value, value > 0, "give more than 0")
        for name in ("lora_r", "lora_alpha"):
            for value in getattr(self, name):
                _require(name, value, value >= 1, "give at least 1")
        for value in self.lora_dropout:
            _require("lora_dropout", value, 0 <= value < 1, "give a share in [0, 1); 0 is off")
        targets = self.lora_target_modules
        _require(
            "lora_target_modules",
            targets,
            bool(targets) and ("all-linear" not in targets or len(targets) == 1),
            "give names of layers, or all-linear alone",
        )
        self._check_vllm()
        _require("max_grad_norm", self.max_grad_norm, self.max_grad_norm > 0, "give more than 0")
        _require("worker_timeout", self.worker_timeout, self.worker_timeout > 0, "give more than 0 seconds")
        _require("temperature", self.temperature, self.temperature > 0, "training needs more than 0")
        _require(
            "num_generations",
            self.num_generations,
            self.num_generations >= 2,
            "a group of one has no advantage; give at least 2",
        )
        if self.save_total_limit is not None:
            _require("save_total_limit", self.save_total_limit, self.save_total_limit >= 1, "give at least 1, or null")
        if self.delta is not None:
            _require("delta", self.delta, self.delta > 1 + self.epsilon_upper, "it must exceed 1 + epsilon_high")
        if self.num_train_epochs is not None:
            _require("num_train_epochs", self.num_train_epochs, self.num_train_epochs > 0, "give more than 0")
        for policy in self.policies():
            rows = policy.per_device_train_batch_size * self.gradient_accumulation_steps
            whole = rows % self.num_generations == 0 and (self.problems_per_step * self.num_generations % rows == 0)
            if not whole:
                raise ValueError(
                    f"per_device_train_batch_size={policy.per_device_train_batch_size} x gradient_accumulation_steps="
                    f"{self.gradient_accumulation_steps} = {rows} rows per update; it must be a multiple of num_generations="
                    f"{self.num_generations} and divide the step's {self.problems_per_step * self.num_generations} rows"
                )

    def _check_vllm(self) -> None:
        share = self.vllm_gpu_memory_utilization
        _require("vllm_gpu_memory_utilization", share, 0 < share <= 1, "give a share in (0, 1]")
        cap = self.vllm_importance_sampling_clip_max
        _require("vllm_importance_sampling_clip_max", cap, cap >= 1, "give at least 1")
        _require("vllm_server_timeout", self.vllm_server_timeout, self.vllm_server_timeout > 0, "give more than 0")
        if self.vllm_max_model_length is not None:
            longer = self.vllm_max_model_length > self.max_completion_length
            _require(
                "vllm_max_model_length", self.vllm_max_model_length, longer, "it must exceed max_completion_length"
            )
        for policy in self.policies():
            if policy.use_vllm and policy.load_in_4bit:
                raise ValueError(
                    f"use_vllm=True and load_in_4bit=True for {policy.name}: the engine would need the weights in full; leave "
                    "one of them out"
                )
            if policy.engine.server_base_url is not None and not (policy.use_vllm and policy.engine.mode == "server"):
                raise ValueError(
                    f"vllm_server_base_url={policy.engine.server_base_url!r}, but {policy.name} does not sample with a server; "
                    "set use_vllm and vllm_mode server"
                )
        here = [policy.name for policy in self.policies() if policy.use_vllm and self.backend == "local"]
        if self.vllm_enable_sleep_mode and self.vllm_mode == "colocate" and len(here) > 1:
            raise ValueError(
                f"vllm_enable_sleep_mode=True, but vLLM lets one engine of a process sleep, and {' and '.join(here)} are in "
                "one; leave it out, or set backend ray"
            )
        urls = [p.engine.server_base_url for p in self.policies() if p.engine.server_base_url is not None]
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or " " in url:
                raise ValueError(
                    f"vllm_server_base_url={url!r} is no server's address; give one such as http://localhost:8000"
                )
        if len({url.rstrip("/") for url in urls}) != len(urls):
            raise ValueError(
                f"vllm_server_base_url={self.vllm_server_base_url!r}: each policy needs a server of its own"
            )

    @property
    def epsilon_upper(self) -> float:
        """The upper clip."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high

    def policies(self) -> list[PolicyConfig]:
        """The settings of each policy."""
        names = agent_names(self.agents if self.agents is not None else len(self.model_name_or_path))
        return [
            PolicyConfig(
                name=name,
                model_name_or_path=self.model_name_or_path[i],
                algorithm=_nth(self.algorithm, i),
                dtype=_nth(self.dtype, i),
                learning_rate=_nth(self.learning_rate, i),
                optim=_nth(self.optim, i),
                per_device_train_batch_size=_nth(self.per_device_train_batch_size, i),
                chat_template=_nth(self.chat_template, i),
                use_peft=_nth(self.use_peft, i),
                lora_r=_nth(self.lora_r, i),
                lora_alpha=_nth(self.lora_alpha, i),
                lora_dropout=_nth(self.lora_dropout, i),
                lora_target_modules=self.lora_target_modules,
                load_in_4bit=_nth(self.load_in_4bit, i),
                use_vllm=_nth(self.use_vllm, i),
                engine=EngineConfig(
                    mode=self.vllm_mode,
                    server_base_url=_nth(self.vllm_server_base_url, i),
                    server_timeout=self.vllm_server_timeout,
                    server_weights_dir=self.vllm_server_weights_dir,
                    gpu_memory_utilization=self.vllm_gpu_memory_utilization,
                    max_model_length=self.vllm_max_model_length,
                    enable_sleep_mode=self.vllm_enable_sleep_mode,
                ),
                seed=self.seed,
                chat_template_kwargs=self.chat_template_kwargs,
                trust_remote_code=self.trust_remote_code,
            )
            for i, name in enumerate(names)
        ]

    def algorithms(self) -> list[Algorithm]:
        """Each policy's algorithm, with its options."""
        return make_algorithms([policy.algorithm for policy in self.policies()], self.algorithm_options)

    def source_options(self, *, held_out: bool = False) -> dict[str, Any]:
        """Arguments of the problem source, or of the held-out one."""
        options = self.eval_problem_options if held_out and self.eval_problem_options else self.problem_options
        return {**options, **({"skip_invalid": True} if self.skip_invalid else {})}

    def make_verifier(self) -> Verifier | None:
        """The verifier of all problems; None where each problem names its own.

        Raises:
            ValueError: if there is no such verifier, or it has no such option.
        """
        return None if self.verifier is None else verifiers.make(self.verifier, **self.verifier_options)

    def sampling(self) -> SamplingConfig:
        """How training completions are drawn."""
        return SamplingConfig(
            max_completion_length=self.max_completion_length,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            stop_at_boxed=self.stop_at_boxed,
        )

    def loss(self) -> LossConfig:
        """The learners' loss."""
        return LossConfig(
            loss_type=self.loss_type,
            epsilon=self.epsilon,
            epsilon_high=self.epsilon_upper,
            delta=self.delta,
            beta=self.beta,
            max_completion_length=self.max_completion_length,
            importance_cap=self.vllm_importance_sampling_clip_max if self.vllm_importance_sampling_correction else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """Flat keys and plain values, as a YAML file has them: the algorithms' options stand beside the others."""
        plain = {key: _plain(value) for key, value in asdict(self).items() if key != "algorithm_options"}
        for algorithm in self.algorithms():
            plain.update({key: _plain(value) for key, value in asdict(algorithm).items()})
        return plain

    def to_yaml(self) -> str:
        """The resolved configuration as YAML; `from_dict(yaml.safe_load(...))` gives it back."""
        return yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrainingConfig:
        """A configuration from flat keys.

        Raises:
            ValueError: on an unknown key, naming the nearest, or an invalid value.
        """
        known = {f.name for f in fields(cls)}
        algorithm = values.get("algorithm", "grpo")
        names = [algorithm] if isinstance(algorithm, str) else list(algorithm)
        options = {f.name for name in names for f in fields(algorithm_class(name))}
        for key in values:
            if key not in known and key not in options:
                near = difflib.get_close_matches(key, known | options, n=1)
                raise ValueError(f"unknown key {key!r}{f'; did you mean {near[0]!r}?' if near else ''}")
        return cls(
            **{key: value for key, value in values.items() if key in known - {"algorithm_options"}},
            algorithm_options={
                **values.get("algorithm_options", {}),
                **{key: value for key, value in values.items() if key in options},
            },
        )


@dataclass(frozen=True)
class EngineConfig:
    """How one policy's vLLM is set up; see the fields `vllm_*` of `TrainingConfig`."""

    mode: Literal["colocate", "server"] = "colocate"
    server_base_url: str | None = None
    server_timeout: float = 240.0
    server_weights_dir: str | None = None
    gpu_memory_utilization: float = 0.3
    max_model_length: int | None = None
    enable_sleep_mode: bool = False


@dataclass(frozen=True)
class PolicyConfig:
    """The settings of one policy; see the fields of `TrainingConfig`."""

    name: str
    model_name_or_path: str
    algorithm: str
    dtype: Dtype
    learning_rate: float
    optim: str
    per_device_train_batch_size: int
    chat_template: str | None
    use_peft: bool
    lora_r: int
    lora_alpha: int
    lora_dropout: float
    lora_target_modules: tuple[str, ...]
    load_in_4bit: bool
    use_vllm: bool
    engine: EngineConfig
    seed: int
    chat_template_kwargs: Mapping[str, Any]
    trust_remote_code: bool


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The keys of a configuration file.

    Raises:
        ValueError: if the file is missing, is no YAML, or holds no mapping.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"config={str(path)!r} is not a file; see configs/ for recipes")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"config={str(path)!r} is not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"config={str(path)!r} holds no mapping of keys to values")
    return values


def _parsed_topology(text: str) -> Any:
    """A mapping that was written as text, on the command line.

    Raises:
        ValueError: if it is no YAML or JSON.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(
            f'exchange_topology={text!r} is no mapping; write JSON such as \'{{"policy_0": ["policy_1"]}}\''
        ) from error


def _nth(values: tuple[T, ...], i: int) -> T:
    return values[0] if len(values) == 1 else values[i]


def _require(name: str, value: Any, holds: bool, remedy: str) -> None:
    if not holds:
        raise ValueError(f"{name}={value!r} is invalid; {remedy}")


_KINDS = {"bool": "true or false", "int": "a whole number", "float": "a number", "str": "text"}
"""What a value of a type is called in messages."""

_NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}


def _typed(name: str, value: Any, annotation: str) -> Any:
    """The value if it is of the annotated kind; a number that a YAML file holds as text (1e-4) becomes one.

    Raises:
        ValueError: naming the field, the value and what is wanted.
    """
    kinds = annotation.replace("tuple[", "").replace(", ...]", "").split(" | ")
    if isinstance(value, tuple):
        return tuple(_typed(name, item, " | ".join(kinds)) for item in value)
    if value is None and "None" in kinds:
        return None
    for kind in kinds:
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind in _NUMBERS and not isinstance(value, bool):
            try:
                number = _NUMBERS[kind](value)
            except (TypeError, ValueError):
                continue
            if number == number and (isinstance(value, str) or number == value):
                return number
        if kind == "str" and isinstance(value, str):
            return value
    if set(kinds) <= {"bool", "int", "float", "str", "None"}:
        wanted = " or ".join(_KINDS[kind] for kind in kinds if kind != "None")
        types = " or ".join(kind for kind in kinds if kind != "None")
        raise ValueError(f"{name}={value!r} is no {types}; give {wanted}")
    return value


def _plain(value: Any) -> Any:
    """Tuples as lists, mappings as dicts, all the way down."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
