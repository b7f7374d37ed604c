"""LoRA adapters (arXiv 2106.09685): small matrices that are trained beside a model's own weights, which stay as they are.

PEFT's layers are put into the model, which remains the `PreTrainedModel` that it was, with the same body and the same head. So
whatever samples, computes log-probs or trains needs to know nothing of adapters; they are known here, and where models are
loaded and saved. PEFT is an extra, imported only where there is an adapter.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import BitsAndBytesConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.pytorch_utils import Conv1D

from algorithms.config import PolicyConfig
from algorithms.logprobs import TokenLogProbs
from algorithms.packing import Packed
from mrl_env.seeding import derive_seed

_NAME = "default"
"""PEFT's name of the adapter."""
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
"""PEFT's files."""
_PREFIX = "base_model.model."
"""In PEFT's files weights have the names that they have in its wrapper of the model."""


def has_adapter(model: torch.nn.Module) -> bool:
    """Whether there is an adapter in a model."""
    return hasattr(model, "peft_config")


def is_adapter_folder(source: str | Path) -> bool:
    """Whether a folder holds an adapter instead of a model."""
    return Path(source, _CONFIG).is_file()


def base_source(source: str) -> str:
    """What the model itself is loaded from: for an adapter's folder the model that it names, else the source.

    Raises:
        ValueError: if the adapter names none.
    """
    if not is_adapter_folder(source):
        return source
    base = json.loads(Path(source, _CONFIG).read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ValueError(
            f"model_name_or_path={source!r} is an adapter whose {_CONFIG} names no base_model_name_or_path; write there the "
            "model that it belongs to"
        )
    return str(base)


def add_adapter(model: PreTrainedModel, config: PolicyConfig, source: str) -> None:
    """Put an adapter into a model: the one of its folder, or else a new one if the policy is to have one. Only it is trainable.

    A new adapter changes nothing yet, since one of its two matrices is 0; the other one is drawn by hash from seed and policy.

    Args:
        model: a causal language model, on any device; on `meta` it gets the adapter's shapes alone.
        config: the policy's settings.
        source: what `model_source` says of it.

    Raises:
        ValueError: if PEFT is missing, the model has no such target modules, or the folder's adapter does not fit it.
    """
    saved = is_adapter_folder(source)
    if not saved and not config.use_peft:
        return
    if importlib.util.find_spec("peft") is None:
        needed = f"model_name_or_path={config.model_name_or_path!r} is an adapter, which" if saved else "use_peft=True"
        raise ValueError(f"{needed} needs PEFT; install it with: pip install 'mutual-rl[peft]'")
    from peft import PeftConfig
    from peft.functional import inject_adapter_in_model

    settings = PeftConfig.from_pretrained(source) if saved else _lora_config(model, config)
    settings.inference_mode = False
    base = base_source(source)
    settings.base_model_name_or_path = str(Path(base).resolve()) if Path(base).is_dir() else base
    try:
        with torch.random.fork_rng(devices=[]):  # it draws from PyTorch's own generator, which is to stay as it was
            torch.manual_seed(derive_seed(config.seed, "adapter", config.name))
            inject_adapter_in_model(settings, model, _NAME)
        if isinstance(settings.target_modules, set):
            settings.target_modules = sorted(settings.target_modules)  # the same file from every process
        if saved and model.device.type != "meta":
            load_adapter(model, Path(source))
    except (OSError, RuntimeError, ValueError) as error:
        remedy = f"check the files of that adapter, and that it belongs to {base!r}" if saved else "leave use_peft out"
        raise ValueError(
            f"model_name_or_path={config.model_name_or_path!r} cannot get its adapter; {remedy}. PEFT said: {error}"
        ) from error


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's adapter as PEFT's `save_pretrained` does: `adapter_config.json` and `adapter_model.safetensors`."""
    from peft.functional import get_peft_model_state_dict

    folder.mkdir(parents=True, exist_ok=True)
    model.peft_config[_NAME].save_pretrained(folder)
    weights = {f"{_PREFIX}{name}": weight.contiguous() for name, weight in get_peft_model_state_dict(model).items()}
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})


def merged_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A model's weights under the names that `save_pretrained` gives them, an adapter added to the weights that it belongs to.

    Returns:
        Weights by name, each in the model's dtype, and the head's also where it is tied to the embeddings. Those that no
        adapter changes share the model's memory.
    """
    weights: dict[str, Any] = {}
    for name, parameter in model.named_parameters():
        layer, _, kind = name.rpartition(".base_layer.")
        if layer:
            weight = parameter.detach()
            if kind == "weight":
                adapted: Any = model.get_submodule(layer)
                weight = (weight + adapted.get_delta_weight(_NAME)).to(weight.dtype)
            weights[f"{layer}.{kind}"] = weight
        elif ".lora_" not in name:
            weights[name] = parameter.detach()
    if (head := model.get_output_embeddings()) is not None:
        weights.setdefault("lm_head.weight", head.weight.detach())
    merged: dict[str, torch.Tensor] = revert_weight_conversion(model, weights)
    return merged


def load_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Take the weights of an adapter that was saved.

    Raises:
        OSError: if there are none.
        RuntimeError: if they are another adapter's than the model's.
    """
    from peft.functional import get_peft_model_state_dict, set_peft_model_state_dict

    weights = {name.removeprefix(_PREFIX): weight for name, weight in load_file(folder / _WEIGHTS).items()}
    differing = sorted(weights.keys() ^ get_peft_model_state_dict(model).keys())
    if differing:
        raise RuntimeError(
            f"{len(differing)} weights are only in {folder} or only in the model, such as {differing[0]}"
        )
    set_peft_model_state_dict(model, weights, _NAME)


def quantization(config: PolicyConfig, device: str, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `from_pretrained` that load a model in four bits (NF4, arXiv 2305.14314); none where it is not asked for.

    Args:
        config: the policy's settings.
        device: where the model is to be, since it cannot be moved afterwards.
        dtype: what it is computed in.

    Raises:
        ValueError: if bitsandbytes is missing.
    """
    if not config.load_in_4bit:
        return {}
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError(
            "load_in_4bit=True needs bitsandbytes; install it with: pip install bitsandbytes, or leave it out"
        )
    bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)
    return {"quantization_config": bits, "device_map": {"": device}}


class AdapterReference:
    """Log-probs under the policy as it began, from the model that is trained: there is no second one in memory.

    A new adapter changes nothing, so the model without it is the policy as it began. Of any other one a copy is kept, and put
    in its place.

    Args:
        model: a model with an adapter that was not trained yet.
        temperature: as of `TokenLogProbs`.
    """

    def __init__(self, model: PreTrainedModel, temperature: float) -> None:
        self._model = model
        self._logprobs = TokenLogProbs(model, temperature)
        adapter = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        is_new = all(".lora_A." in name or (".lora_B." in name and not p.any()) for name, p in adapter.items())
        self._start = None if is_new else [(p, p.detach().clone()) for p in adapter.values()]

    def __call__(self, packed: Packed) -> torch.Tensor:
        """(B, T) float32, nats, without dropout; see `TokenLogProbs`."""
        was_training = self._model.training
        self._model.eval()
        try:
            with self._without() if self._start is None else self._with(self._start):
                return self._logprobs(packed)
        finally:
            self._model.train(was_training)

    @contextmanager
    def _without(self) -> Iterator[None]:
        """Within it the model has no adapter."""
        from peft.tuners.tuners_utils import BaseTunerLayer

        layers = [module for module in self._model.modules() if isinstance(module, BaseTunerLayer)]
        for layer in layers:
            layer.enable_adapters(False)
        try:
            yield
        finally:
            for layer in layers:
                layer.enable_adapters(True)

    @contextmanager
    def _with(self, weights: Sequence[tuple[torch.nn.Parameter, torch.Tensor]]) -> Iterator[None]:
        """Within it these parameters have other values."""
        present = [parameter.data for parameter, _ in weights]
        for parameter, value in weights:
            parameter.data = value
        try:
            yield
        finally:
            for (parameter, _), value in zip(weights, present, strict=True):
                parameter.data = value


def _lora_config(model: PreTrainedModel, config: PolicyConfig) -> Any:
    """PEFT's settings of a new adapter.

    Raises:
        ValueError: if the model has no linear layer of a target's name.
    """
    from peft import LoraConfig

    targets = config.lora_target_modules
    linear = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear | Conv1D)]
    for target in targets if targets != ("all-linear",) else ():
        if not any(name == target or name.endswith(f".{target}") for name in linear):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise ValueError(
                f"lora_target_modules has {target!r}, which is no linear layer of {config.model_name_or_path!r}; use some of "
                f"{known}, or all-linear alone"
            )
    return LoraConfig(
        r=config.lora_r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        target_modules="all-linear" if targets == ("all-linear",) else list(targets),
        task_type="CAUSAL_LM",
    )
