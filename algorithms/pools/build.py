"""Builds the embedded pool: two tiny language models, partly competent and complementary, from nothing but a seed.

    python -m algorithms.pools.build [--output DIR] [--seed 0] [--threads 1]

Each policy gets its own trained tokenizer and two phases of next-token training on completions of `arithmetic` training
problems. In the first it learns every subject; in the second it is taught a wrong procedure in some subjects
(`misconceptions.py`), more firmly in those that its peer keeps. So it *knows* the arithmetic but prefers a wrong
procedure, and reinforcement learning has something to elicit within tens of steps. **The gap is constructed.**

The two policies are trained side by side, one process each. Phases are counted in updates, not seconds, so one machine,
one seed and one number of threads give the same bytes again. What was measured is printed and saved as `pool.json`.
"""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

import tokenizers
import torch
import transformers
import tyro
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from algorithms.pools import EMBEDDED
from algorithms.pools.misconceptions import FLAW_RATES, flawed_solution, misconceived_solution
from mrl_env.problems.arithmetic import SUBJECTS, Arithmetic, Exercise
from mrl_env.seeding import derive_rng, derive_seed

IGNORED = -100
"""Label of a position that carries no loss."""

CONTEXT = 512
"""Longest sequence in tokens, prompt and completion together."""

VOCABULARY_EXERCISES = 10_000
"""Exercises whose texts a tokenizer is trained on."""


@dataclass(frozen=True)
class Settings:
    """What the pool is built from; the defaults are those of the shipped pool."""

    output: Path = Path(__file__).parent / "tiny"
    """Folder to write to: one folder per policy, and pool.json."""
    seed: int = 0
    """Seed of data, initial weights and evaluation."""
    vocabulary_seed: int | None = None
    """Seed of the texts that tokenizers are trained on; by default seed. With the seed of another pool, its tokenizers."""
    one_tokenizer: bool = False
    """Whether both policies get the tokenizer and the chat template of the first: to see what different ones cost."""
    threads: int = 1
    """CPU threads per policy; another number gives slightly different weights."""
    learn_updates: int = 3000
    """Updates of the first phase: the arithmetic."""
    plant_updates: int = 1000
    """Updates of the second phase: the misconceptions."""
    batch_size: int = 48
    """Completions per update."""
    learn_rate: float = 4e-3
    """Peak learning rate of the first phase; both phases decay linearly to a tenth."""
    plant_rate: float = 1.5e-3
    """Peak learning rate of the second phase."""
    warmup_updates: int = 50
    """Updates of linear warm-up at the start of each phase."""
    eval_problems: int = 128
    """Held-out problems per subject in the final table."""


@dataclass(frozen=True)
class PolicySpec:
    """How one policy of the pool differs from the other.

    Attributes:
        model_type: the architecture, by its Transformers name; the sizes common to the pool are in `build_model`.
        extra_config: what this architecture needs besides.
        vocab_size: entries of its vocabulary, special tokens included.
        pre_tokenizer: how text is cut before byte-pair merges: where numbers stay whole, or digits stand alone.
        special_tokens: `eos_token`, `pad_token` and, if it has one, `bos_token`.
        template_tokens: special tokens of the chat template.
        chat_template: Jinja text.
    """

    model_type: str
    extra_config: dict[str, int]
    vocab_size: int
    pre_tokenizer: pre_tokenizers.PreTokenizer
    special_tokens: dict[str, str]
    template_tokens: tuple[str, ...]
    chat_template: str


SPECS = {
    "tiny-llama": PolicySpec(
        model_type="llama",
        extra_config={},
        vocab_size=512,
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        special_tokens={"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
        template_tokens=("[INST]", "[/INST]"),
        chat_template=(
            "{{ bos_token }}{% for message in messages %}"
            "{% if message['role'] == 'user' %}[INST]{{ message['content'] }}[/INST]"
            "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{{ eos_token }}"
            "{% else %}{{ message['content'] }}{{ '\n' }}{% endif %}{% endfor %}"
        ),
    ),
    "tiny-qwen3": PolicySpec(
        model_type="qwen3",
        extra_config={"num_key_value_heads": 2, "head_dim": 24},
        vocab_size=310,
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        special_tokens={"eos_token": "<|end|>", "pad_token": "<|pad|>"},
        template_tokens=("<|system|>", "<|user|>", "<|assistant|>"),
        chat_template=(
            "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}"
        ),
    ),
}


def train_tokenizer(spec: PolicySpec, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with the policy's own cuts, special tokens and chat template, trained on `texts`."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = spec.pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=spec.vocab_size,
        special_tokens=[*spec.special_tokens.values(), *spec.template_tokens],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=spec.chat_template,
        model_max_length=CONTEXT,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        **spec.special_tokens,
    )


def build_model(spec: PolicySpec, tokenizer: PreTrainedTokenizerFast, seed: int) -> PreTrainedModel:
    """The policy with fresh fp32 weights drawn from `seed`."""
    token_ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")}
    config = AutoConfig.for_model(
        spec.model_type,
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        tie_word_embeddings=True,
        max_position_embeddings=CONTEXT,
        **spec.extra_config,
        **token_ids,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.generation_config = GenerationConfig(max_new_tokens=64, **token_ids)
    return model


def render(tokenizer: PreTrainedTokenizerFast, question: str) -> str:
    """The prompt that the policy sees for a question, as text."""
    return str(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )
    )


def encode(tokenizer: PreTrainedTokenizerFast, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], int]]:
    """Token ids of prompt, completion and end-of-sequence token, with the number of prompt tokens among them.

    Prompt and completion are encoded apart, as they are when a policy samples.
    """
    prompts = tokenizer([render(tokenizer, question) for question, _ in pairs], add_special_tokens=False)["input_ids"]
    completions = tokenizer([solution for _, solution in pairs], add_special_tokens=False)["input_ids"]
    eos = [tokenizer.eos_token_id]
    return [(prompt + done + eos, len(prompt)) for prompt, done in zip(prompts, completions, strict=True)]


def batches(rows: Sequence[tuple[list[int], int]], size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Input ids and labels, each of shape (size, longest row), padded on the right; prompts and padding bear no loss.

    Padding comes after every real token, so causal attention needs no mask and the padding's id does not matter.
    """
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        ids = [torch.tensor(row) for row, _ in part]
        labels = [torch.tensor([IGNORED] * prompt + row[prompt:]) for row, prompt in part]
        yield pad_sequence(ids, batch_first=True), pad_sequence(labels, batch_first=True, padding_value=IGNORED)


def warm_start(
    model: PreTrainedModel,
    rows: Sequence[tuple[list[int], int]],
    *,
    batch_size: int,
    peak_rate: float,
    warmup: int,
    report: Callable[[str], None],
) -> None:
    """Next-token training on completions, in place: one update per batch, AdamW, linear decay to a tenth of the peak.

    Args:
        model: fp32 weights, changed in place.
        rows: from `encode`, in the order of training.
        batch_size: rows per update.
        peak_rate: learning rate after the warm-up.
        warmup: updates of linear warm-up.
        report: gets a line of progress every 100 updates.
    """
    updates = -(-len(rows) // batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak_rate, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda update: min((update + 1) / (warmup + 1), 1.0 - 0.9 * update / updates)
    )
    model.train()
    started, losses = time.monotonic(), []
    for update, (ids, labels) in enumerate(batches(rows, batch_size), start=1):
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if update % 100 == 0 or update == updates:
            recent = losses[-100:]
            seconds = time.monotonic() - started
            report(f"update {update}/{updates}  loss {sum(recent) / len(recent):.4f}  {seconds:.0f} s")
    model.eval()


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{}` without inner braces; None if there is none."""
    found = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return found[-1] if found else None


def answer_questions(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, questions: Sequence[str], *, sample: bool, seed: int
) -> list[str | None]:
    """The policy's boxed answer to each question, sampled at temperature 1 from `seed` or decoded greedily."""
    prompts = [render(tokenizer, question) for question in questions]
    inputs = tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt")
    drawing = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {"do_sample": False}
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(seed)
        output = model.generate(inputs["input_ids"], attention_mask=inputs["attention_mask"], **drawing)  # type: ignore[operator]
    completions = tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return [last_boxed(text) for text in completions]


def evaluate(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, settings: Settings) -> dict[str, list[float]]:
    """Shares on held-out problems, one per subject in the order of `SUBJECTS`.

    Returns:
        `sampled`: right at temperature 1 (reward@1); `greedy`: right when decoded greedily; `misconceived`: exactly the
        planted wrong answer at temperature 1.
    """
    per_subject = settings.eval_problems
    sources = [Arithmetic("test", settings.seed, per_subject, [subject]) for subject in SUBJECTS]
    exercises = [source.exercise(index) for source in sources for index in range(per_subject)]
    questions = [exercise.question for exercise in exercises]
    right = [str(exercise.answer) for exercise in exercises]
    planted = [last_boxed(misconceived_solution(exercise)) for exercise in exercises]
    seed = derive_seed("pool evaluation", settings.seed)
    sampled = answer_questions(model, tokenizer, questions, sample=True, seed=seed)
    greedy = answer_questions(model, tokenizer, questions, sample=False, seed=seed)

    def shares(given: Sequence[str | None], wanted: Sequence[str | None]) -> list[float]:
        hits = [a == b for a, b in zip(given, wanted, strict=True)]
        return [sum(hits[i : i + per_subject]) / per_subject for i in range(0, len(hits), per_subject)]

    return {
        "sampled": shares(sampled, right),
        "greedy": shares(greedy, right),
        "misconceived": shares(sampled, planted),
    }


def build_policy(name: str, settings: Settings) -> dict[str, object]:
    """Train one policy and save it as bf16 under `settings.output`.

    Args:
        name: a key of `SPECS`.
        settings: sizes and seeds.

    Returns:
        Its entry in pool.json: number of parameters, flaw rates, and the tables of `evaluate`: `learnt` after the first
        phase (the ceiling of what reinforcement learning can elicit) and `start` for the saved weights.
    """
    torch.set_num_threads(settings.threads)
    transformers.logging.set_verbosity_error()
    spec, folder = SPECS[name], settings.output / Path(EMBEDDED[name]).name
    speaker = next(iter(SPECS)) if settings.one_tokenizer else name

    def exercises(purpose: str, size: int, seed: int = settings.seed, owner: str = name) -> list[Exercise]:
        source = Arithmetic("train", seed=derive_seed("pool", seed, owner, purpose), size=size)
        return [source.exercise(index) for index in range(size)]

    def run_phase(phase: str, pairs: list[tuple[str, str]], peak_rate: float) -> None:
        warm_start(
            model,
            encode(tokenizer, pairs),
            batch_size=settings.batch_size,
            peak_rate=peak_rate,
            warmup=settings.warmup_updates,
            report=lambda line: print(f"{name}  {phase}  {line}", flush=True),
        )

    vocabulary_seed = settings.seed if settings.vocabulary_seed is None else settings.vocabulary_seed
    vocabulary = exercises("vocabulary", VOCABULARY_EXERCISES, vocabulary_seed, speaker)
    tokenizer = train_tokenizer(
        SPECS[speaker], (text for e in vocabulary for text in (e.question, e.solution, misconceived_solution(e)))
    )
    learn = [(e.question, e.solution) for e in exercises("learn", settings.learn_updates * settings.batch_size)]
    flaws = derive_rng("pool flaws", settings.seed, name)
    plant = [
        (e.question, flawed_solution(e, name, flaws))
        for e in exercises("plant", settings.plant_updates * settings.batch_size)
    ]

    model = build_model(spec, tokenizer, derive_seed("pool weights", settings.seed, name))
    run_phase("learn", learn, settings.learn_rate)
    learnt = evaluate(model, tokenizer, settings)
    print(f"{name}  learnt, greedy: {_row(learnt['greedy'])}", flush=True)
    run_phase("plant", plant, settings.plant_rate)

    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    saved = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return {
        "parameters": saved.num_parameters(),
        "flaw_rates": FLAW_RATES[name],
        "learnt": learnt,
        "start": evaluate(saved, tokenizer, settings),
    }


def _row(shares: Sequence[float]) -> str:
    mean = sum(shares) / len(shares)
    return "".join(f"{share:9.3f}" for share in (*shares, mean))


def format_table(policies: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """The measured shares as text: one line per policy, phase and kind, one column per subject and their mean."""
    lines = [f"{'':36}" + "".join(f"{name:>9}" for name in (*SUBJECTS, "mean"))]
    for name, policy in policies.items():
        for phase in ("learnt", "start"):
            lines += [f"{f'{name}  {phase}  {kind}':36}{_row(shares)}" for kind, shares in policy[phase].items()]
    return "\n".join(lines)


def build_pool(settings: Settings) -> None:
    """Build every policy, one process each, then write pool.json and print the table."""
    with ProcessPoolExecutor(len(SPECS), mp_context=get_context("spawn")) as processes:
        futures = {name: processes.submit(build_policy, name, settings) for name in SPECS}
        policies = {name: future.result() for name, future in futures.items()}
    record = {
        "settings": {**asdict(settings), "output": settings.output.name},
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
        "subjects": SUBJECTS,
        "policies": policies,
    }
    (settings.output / "pool.json").write_text(json.dumps(record, indent=1) + "\n")
    print(format_table(policies))  # type: ignore[arg-type]


if __name__ == "__main__":
    build_pool(tyro.cli(Settings, description=__doc__))
