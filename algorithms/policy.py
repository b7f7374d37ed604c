"""A policy: a language model with its tokenizer, its prompt template and its device; how it is loaded and how it speaks."""

from __future__ import annotations

import copy
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import torch
import transformers
from packaging.version import Version
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from algorithms.adapters import (
    add_adapter,
    base_source,
    has_adapter,
    is_adapter_folder,
    load_adapter,
    merged_weights,
    quantization,
    save_adapter,
)
from algorithms.attention import use_grouped_attention
from algorithms.config import PolicyConfig
from algorithms.norms import use_fused_norms
from algorithms.pools import EMBEDDED, embedded_path
from algorithms.precision import TORCH_DTYPES, warn_if_slow
from algorithms.rollouts.cache import is_cacheable
from algorithms.rollouts.engine import Engine
from algorithms.rollouts.sampling import SamplingConfig
from algorithms.rollouts.transformers import Rollout, generate
from algorithms.rollouts.vllm import make_engine
from mrl_env.tokenization import TextTokenizer
from mrl_env.types import Completion, Message

_TRANSFORMERS = Version("5.24")
"""The oldest version with the names that the models are called with."""

PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n\n{% endfor %}"
"""The template of a base model that has none: the messages, and an empty line."""


class PromptRenderer:
    """Chat messages to a policy's prompt, rendered once with its own template.

    Args:
        tokenizer: the policy's.
        chat_template: a Jinja template; None takes the tokenizer's own, or `PLAIN_TEMPLATE` if it has none.
        chat_template_kwargs: arguments of the template.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = chat_template or getattr(tokenizer, "chat_template", None) or PLAIN_TEMPLATE
        self._template_kwargs = dict(chat_template_kwargs or {})

    def text(self, messages: Sequence[Message]) -> str:
        """The prompt as text, with the place of the answer opened.

        Raises:
            ValueError: if the template is malformed, or refuses the messages.
        """
        try:
            rendered = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=True,
                **self._template_kwargs,
            )
        except jinja2.TemplateError as error:
            roles = ", ".join(message["role"] for message in messages)
            raise ValueError(
                f"chat_template cannot render messages of the roles {roles} ({error}); correct the template, or give "
                "chat_template 'plain'"
            ) from error
        return str(rendered)

    def token_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt as token ids, with exactly one beginning of sequence where the model has one.

        A chat template writes its own beginning of sequence; the plain one leaves it to the tokenizer.
        """
        encoded = self._tokenizer(self.text(messages), add_special_tokens=self._template == PLAIN_TEMPLATE)
        return tuple(encoded["input_ids"])


class Policy:
    """A model that answers chat messages.

    Args:
        name: the agent that it plays.
        model: a causal language model on its device.
        tokenizer: its fast tokenizer.
        renderer: turns messages into its prompts; by default with the tokenizer's own template.
        engine: samples instead of the model, with the model's weights; by default the model itself does.

    Raises:
        ValueError: if the tokenizer is unsuitable (see `TextTokenizer`) or has more tokens than the model, or if the model has
            another memory than keys and values.

    Attributes:
        version: optimizer updates so far; kept by the trainer, written into completions.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        renderer: PromptRenderer | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.model = model
        self.tokenizer = tokenizer
        self.renderer = renderer or PromptRenderer(tokenizer)
        self.text = TextTokenizer(tokenizer)
        self.version = 0
        self._engine_version: int | None = None
        limits = [getattr(model.config, "max_position_embeddings", None), None if engine is None else engine.max_length]
        self.context_length: int | None = min((limit for limit in limits if limit is not None), default=None)
        self.eos_token_ids = eos_token_ids(model.generation_config, self.text)
        embeddings = int(model.config.get_text_config().vocab_size)
        if not is_cacheable(model.config):
            raise ValueError(
                f"the model of {name} ({model.config.model_type}) carries more than keys and values from token to token, which "
                "cannot be sampled from here; choose a model with plain or sliding-window attention"
            )
        # Without added tokens: some models have one more, for images, than the language model embeds.
        if tokenizer.vocab_size > embeddings:
            raise ValueError(
                f"model and tokenizer of {name} do not belong together: the tokenizer has {tokenizer.vocab_size} tokens, the "
                f"model embeds {embeddings}; take both from one model"
            )
        if max(self.eos_token_ids) >= embeddings:
            raise ValueError(
                f"model and tokenizer of {name} do not belong together: token {max(self.eos_token_ids)} has no embedding "
                f"among the model's {embeddings}; take both from one model"
            )

    def check_prompt(self, prompt_ids: Sequence[int], max_completion_length: int) -> None:
        """Refuse a prompt that cannot be answered.

        Raises:
            ValueError: if prompt and completion do not fit the model's context, or the prompt is empty.
        """
        if not prompt_ids:
            raise ValueError(f"{self.name}: a prompt has no tokens; check the chat template")
        if self.context_length is not None and len(prompt_ids) + max_completion_length > self.context_length:
            raise ValueError(
                f"{self.name}: a prompt of {len(prompt_ids)} tokens and max_completion_length={max_completion_length} exceed "
                f"the model's context of {self.context_length}; lower max_completion_length or leave out long problems"
            )

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        generations: int,
        sampling: SamplingConfig,
        seeds: Sequence[int],
        batch_size: int = 512,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Completion]]:
        """Answer prompts.

        Args:
            prompts: P rendered prompts.
            generations: G completions per prompt.
            sampling: how to draw.
            seeds: P * G seeds, prompt by prompt.
            batch_size: rows sampled at a time; at least one prompt's.
            progress: called with the number of completions that were just finished.

        Returns:
            P lists of G completions.

        Raises:
            ValueError: if a prompt does not fit.
        """
        for prompt in prompts:
            self.check_prompt(prompt, sampling.max_completion_length)
        ends_answer = partial(closes_box, self.text) if sampling.stop_at_boxed else None
        if self.engine is None:
            groups = generate(
                self.model,
                prompts,
                generations,
                sampling,
                seeds,
                self.eos_token_ids,
                ends_answer,
                batch_size=batch_size,
                progress=progress,
            )
        else:
            self.update_engine()
            groups = self.engine.generate(
                prompts, generations, sampling, seeds, self.eos_token_ids, ends_answer, progress=progress
            )
        return [[spoken(rollout, self.text, self.version) for rollout in group] for group in groups]

    def update_engine(self) -> None:
        """Hand the model's weights to the engine, unless it has those of this version."""
        if self.engine is not None and self._engine_version != self.version:
            self.engine.load_weights(merged_weights(self.model))
            self._engine_version = self.version

    def save(self, folder: Path) -> None:
        """Write model and tokenizer, to be loaded by `from_pretrained`; of a model with an adapter the adapter alone."""
        if has_adapter(self.model):
            save_adapter(self.model, folder)
        else:
            self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def load_weights(self, folder: Path) -> None:
        """Take the weights that `save` wrote.

        Raises:
            RuntimeError: if they are another model's.
        """
        self._engine_version = None
        if has_adapter(self.model) != is_adapter_folder(folder):
            raise RuntimeError(f"one of {folder} and the model is an adapter, and the other is not")
        if has_adapter(self.model):
            load_adapter(self.model, folder)
            return
        saved = type(self.model).from_pretrained(folder, dtype=next(self.model.parameters()).dtype)
        self.model.load_state_dict(saved.state_dict())


def spoken(rollout: Rollout, text: TextTokenizer, version: int = 0) -> Completion:
    """What was sampled, as the record that environment and algorithms read.

    Args:
        rollout: token ids and what was recorded of them.
        text: the tokenizer of the policy that sampled.
        version: its optimizer updates.
    """
    stopped = rollout.finish_reason == "stop"
    said = rollout.token_ids[:-1] if stopped else rollout.token_ids
    return Completion(
        text=text.decode(said).decode("utf-8", errors="replace"),
        token_ids=tuple(rollout.token_ids),
        logprobs=tuple(rollout.logprobs),
        finish_reason=rollout.finish_reason,
        policy_version=version,
        trace=text.trace(rollout.token_ids, rollout.logprobs, stopped=stopped),
        entropy=sum(rollout.entropies) / len(rollout.entropies) if rollout.entropies else None,
    )


def closes_box(text: TextTokenizer, token_ids: list[int]) -> bool:
    """Whether the last token has just closed a box."""
    if b"}" not in text.token_bytes(token_ids[-1]):
        return False
    return has_complete_box(text.decode(token_ids).decode("utf-8", errors="replace"))


def has_complete_box(text: str) -> bool:
    r"""Whether the text holds a `\boxed{...}` whose braces are balanced."""
    boxes: list[bool] = []
    for position, character in enumerate(text):
        if character == "{":
            boxes.append(text.endswith("\\boxed", 0, position))
        elif character == "}" and boxes and boxes.pop():
            return True
    return False


def load_policy(config: PolicyConfig, device: str, engine: Engine | None = None) -> Policy:
    """Load a policy as its configuration says.

    Args:
        config: the policy's settings.
        device: where its model is to be.
        engine: samples instead of the model; by default one is made, if the configuration asks for it.

    Raises:
        ValueError: if model, tokenizer, template or engine cannot be loaded or do not fit together.
    """
    if Version(transformers.__version__) < _TRANSFORMERS:
        # It would take the arguments of newer ones without a word, and compute something else.
        raise ValueError(
            f"transformers {transformers.__version__} is installed, and {_TRANSFORMERS} or newer is needed; install it with: "
            f"pip install --no-deps 'transformers>={_TRANSFORMERS}'"
        )
    warn_if_slow(config.dtype, torch.device(device).type)
    tokenizer = load_tokenizer(config)
    source = model_source(config.model_name_or_path)
    dtype = TORCH_DTYPES[config.dtype]
    bits = quantization(config, device, dtype)
    with _explained(config):
        model = AutoModelForCausalLM.from_pretrained(
            base_source(source), dtype=dtype, trust_remote_code=config.trust_remote_code, **bits
        )
    if not bits:
        model.to(torch.device(device))  # type: ignore[arg-type]
    use_grouped_attention(model)
    use_fused_norms(model)
    add_adapter(model, config, source)
    if engine is None:
        engine = make_engine(config, base_source(source), device)
    return Policy(config.name, model, tokenizer, load_renderer(config, tokenizer), engine)


def load_tokenizer(config: PolicyConfig) -> PreTrainedTokenizerBase:
    """A policy's tokenizer; of an adapter without one its model's.

    Raises:
        ValueError: if there is none.
    """
    source = model_source(config.model_name_or_path)
    if not (Path(source) / "tokenizer_config.json").is_file():
        source = base_source(source)
    with _explained(config):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source, trust_remote_code=config.trust_remote_code
        )
    return tokenizer


def has_tokenizer(config: PolicyConfig) -> bool:
    """Whether a policy's model has a tokenizer: False for a folder with an architecture alone, which is enough for a plan."""
    folder = Path(base_source(model_source(config.model_name_or_path)))
    files = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
    return not folder.is_dir() or any((folder / name).is_file() for name in files)


def load_renderer(config: PolicyConfig, tokenizer: PreTrainedTokenizerBase) -> PromptRenderer:
    """A policy's renderer, with the configured template.

    Raises:
        ValueError: if the template is neither `plain` nor a file.
    """
    return PromptRenderer(tokenizer, read_template(config.chat_template), config.chat_template_kwargs)


def load_model_config(config: PolicyConfig) -> PreTrainedConfig:
    """The architecture of a policy, without its weights.

    Raises:
        ValueError: if there is no such model.
    """
    with _explained(config):
        architecture: PreTrainedConfig = AutoConfig.from_pretrained(
            base_source(model_source(config.model_name_or_path)), trust_remote_code=config.trust_remote_code
        )
    return architecture


@contextmanager
def _explained(config: PolicyConfig) -> Iterator[None]:
    """Turn the errors of `from_pretrained` into one that names the field, the value and the remedy."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ValueError(
            f"model_name_or_path={config.model_name_or_path!r} cannot be loaded; give a hub id, a local folder, a .gguf file, "
            f"or an embedded model ({', '.join(EMBEDDED)}). The loader said: {error}"
        ) from error


def read_template(chat_template: str | None) -> str | None:
    """The template's text: None, `plain`, or the contents of a Jinja file.

    Raises:
        ValueError: if it is neither `plain` nor a file.
    """
    if chat_template is None:
        return None
    if chat_template == "plain":
        return PLAIN_TEMPLATE
    if not Path(chat_template).is_file():
        raise ValueError(f"chat_template={chat_template!r} is no file; give 'plain' or the path of a Jinja template")
    return Path(chat_template).read_text(encoding="utf-8")


def model_source(name: str) -> str:
    """What `from_pretrained` is to load for a name: embedded models and GGUF files become folders.

    Raises:
        ValueError: if a GGUF file is missing.
    """
    embedded = embedded_path(name)
    if embedded is not None:
        return str(embedded)
    if name.endswith(".gguf"):
        return str(dequantized(Path(name)))
    return name


def model_folders(folder: Path) -> list[str]:
    """The folders of models and adapters in a folder, such as a checkpoint of a run, in order."""
    return sorted(str(path) for path in folder.iterdir() if is_model_folder(path))


def is_model_folder(folder: Path) -> bool:
    """Whether a folder holds a model, or an adapter of one."""
    return (folder / "config.json").is_file() or is_adapter_folder(folder)


def dequantized(path: Path) -> Path:
    """A folder with the model and tokenizer of a GGUF file, as float32.

    Made once and cached, since it takes up to some minutes: under `MRL_CACHE`, by default `~/.cache/mutual-rl`. The folder is
    written beside its place and renamed, so that an interruption leaves no half model; of several processes that make it at
    once, the first one's stays.

    Raises:
        ValueError: if the file is missing.
    """
    if not path.is_file():
        raise ValueError(f"model_name_or_path={str(path)!r} is not a file; check the path of the .gguf file")
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()).hexdigest()[:16]
    cache = Path(os.environ.get("MRL_CACHE", "~/.cache/mutual-rl")).expanduser() / "gguf"
    folder = cache / f"{path.stem}-{key}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=cache, prefix=".part-"))
        try:
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
            loaded = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
            # Its weights are plain float32 by now, but it remembers GGUF and would refuse to be saved.
            architecture = copy.deepcopy(loaded.config)
            if hasattr(architecture, "quantization_config"):
                del architecture.quantization_config
            model = AutoModelForCausalLM.from_config(architecture, dtype=torch.float32)
            model.load_state_dict(loaded.state_dict())
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            try:
                scratch.rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return folder


def eos_token_ids(generation: GenerationConfig | None, text: TextTokenizer) -> frozenset[int]:
    """Tokens that end a completion: the tokenizer's own, and those that the model's generation settings name."""
    configured = getattr(generation, "eos_token_id", None)
    listed = configured if isinstance(configured, list) else [] if configured is None else [configured]
    return frozenset({text.eos_token_id, *listed})
