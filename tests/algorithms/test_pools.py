"""The embedded pool: it loads, its two policies differ, each is strong where the other is not, and it rebuilds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerFast

from algorithms.pools import EMBEDDED, build, embedded_path
from algorithms.pools.misconceptions import FLAW_RATES, misconceived_solution
from mrl_env.problems.arithmetic import SUBJECTS, Arithmetic, Exercise, boxed

BOUNDARY = {"tiny-llama": "modgcd", "tiny-qwen3": "percent"}
"""The subject that each policy practically never solves at the start."""

POOL = Path(build.__file__).parent / "tiny"


@pytest.fixture(scope="module", params=sorted(EMBEDDED))
def policy(request: pytest.FixtureRequest) -> tuple[str, PreTrainedModel, PreTrainedTokenizerFast]:
    folder = embedded_path(request.param)
    return (
        request.param,
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return json.loads((POOL / "pool.json").read_text())


def test_names_resolve_to_folders() -> None:
    assert [embedded_path(name) for name in ("tiny-llama", "tiny-qwen3")] == [POOL / "llama", POOL / "qwen3"]
    assert embedded_path("gpt2") is None


def test_the_pool_is_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in POOL.rglob("*") if file.is_file()) <= 5 * 2**20


def test_checkpoints_load_as_any_other(policy: tuple[str, PreTrainedModel, PreTrainedTokenizerFast]) -> None:
    name, model, tokenizer = policy
    architecture, parameters = {
        "tiny-llama": ("LlamaForCausalLM", 381_600),
        "tiny-qwen3": ("Qwen3ForCausalLM", 334_704),
    }[name]
    assert (type(model).__name__, model.num_parameters()) == (architecture, parameters)
    assert model.dtype == torch.bfloat16
    assert len(tokenizer) == model.config.vocab_size
    assert None not in (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert tokenizer.eos_token_id != tokenizer.pad_token_id
    for config in (model.config, model.generation_config):
        assert (config.eos_token_id, config.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)


@pytest.mark.parametrize("text", [r"$\frac{1}{2}$  = 0.5" + "\n\n\tx", "é 日本語 😀 e\u0301", "x^2 + 11x \\boxed{-7}"])
def test_tokenizers_keep_every_text(policy: tuple[str, PreTrainedModel, PreTrainedTokenizerFast], text: str) -> None:
    _, _, tokenizer = policy
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_prompts_of_the_warm_start_are_those_of_the_chat_template(
    policy: tuple[str, PreTrainedModel, PreTrainedTokenizerFast],
) -> None:
    _, _, tokenizer = policy
    [(ids, prompt_tokens)] = build.encode(tokenizer, [("Find 35% of 320.", r"5% is 16. \boxed{112}")])
    messages = [{"role": "user", "content": "Find 35% of 320."}]
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert ids[:prompt_tokens] == rendered
    assert tokenizer.decode(ids[prompt_tokens:-1]) == r"5% is 16. \boxed{112}"
    assert ids[-1] == tokenizer.eos_token_id
    answered = [*messages, {"role": "assistant", "content": r"5% is 16. \boxed{112}"}]
    assert tokenizer.apply_chat_template(answered, return_dict=False) == ids


def test_tokenizers_and_templates_genuinely_differ() -> None:
    llama, qwen3 = (AutoTokenizer.from_pretrained(embedded_path(name)) for name in ("tiny-llama", "tiny-qwen3"))
    assert (len(llama), len(qwen3)) == (512, 310)
    assert len(llama.tokenize("180")) < 3
    assert qwen3.tokenize("180") == ["1", "8", "0"]
    solution = r"6 * 30 = 180. 6 * 4 = 24. 180 + 24 = 204. \boxed{204}"
    assert len(qwen3.tokenize(solution)) > 1.3 * len(llama.tokenize(solution))
    assert llama.chat_template != qwen3.chat_template
    assert llama.eos_token != qwen3.eos_token


def test_the_policies_are_complementary(record: dict[str, Any]) -> None:
    policies = record["policies"]
    assert tuple(record["subjects"]) == SUBJECTS
    for name, peer in (("tiny-llama", "tiny-qwen3"), ("tiny-qwen3", "tiny-llama")):
        start, learnt = policies[name]["start"]["sampled"], policies[name]["learnt"]["greedy"]
        at = SUBJECTS.index(BOUNDARY[name])
        assert start[at] < 0.05, "the boundary subject should be out of own reach"
        assert policies[peer]["start"]["sampled"][at] > 0.3, "the peer should know it"
        assert learnt[at] > 0.6, "the policy should be able to learn it: it once could"
        assert 0.25 < sum(start) / len(start) < 0.45, "neither hopeless nor done"
        assert sum(share > 0.4 for share in start) >= 2


def test_the_shipped_weights_are_those_that_were_measured(
    policy: tuple[str, PreTrainedModel, PreTrainedTokenizerFast], record: dict[str, Any]
) -> None:
    name, model, tokenizer = policy
    other = next(subject for peer, subject in BOUNDARY.items() if peer != name)
    for subject in (BOUNDARY[name], other):
        problems = list(Arithmetic("test", seed=11, size=64, subjects=[subject]))
        questions = [problem.question for problem in problems]
        answers = build.answer_questions(model.float(), tokenizer, questions, sample=False, seed=0)
        right = sum(answer == problem.answer for answer, problem in zip(answers, problems, strict=True)) / 64
        assert right == pytest.approx(record["policies"][name]["start"]["greedy"][SUBJECTS.index(subject)], abs=0.2)


def test_misconceptions_worked_by_hand() -> None:
    cases = [
        (("addsub", "Compute 37 + 48 - 12.", "", 73, (37, 48, -12)), r"37 - 48 = -11. -11 - 12 = -23. \boxed{-23}"),
        (("addsub", "Compute 20 - 8.", "", 12, (20, -8)), r"20 + 8 = 28. \boxed{28}"),
        (("mult", "Multiply 6 by 34.", "", 204, (6, 34)), r"6 + 30 = 36. 36 + 4 = 40. \boxed{40}"),
        (("linear", "Solve 3x + 18 = 1x + 30.", "", 6, (3, 18, 1, 30)), r"2x = 30 + 18 = 48. x = 24. \boxed{24}"),
        (
            ("modgcd", "Find 47 mod 6.", r"6 * 7 = 42. 47 - 42 = 5. \boxed{5}", 5, (47, 6)),
            r"6 * 7 = 42. 47 - 42 = 5. \boxed{7}",
        ),
        (
            ("modgcd", "Find the gcd of 12 and 18.", r"12 = 6 * 2. 18 = 6 * 3. \boxed{6}", 6, (12, 18)),
            r"12 = 6 * 2. 18 = 6 * 3. \boxed{2}",
        ),
        (
            ("percent", "Find 35% of 320.", r"5% is 16. 16 * 7 = 112. \boxed{112}", 112, (35, 320)),
            r"5% is 16. 16 * 7 = 112. 320 - 112 = 208. \boxed{208}",
        ),
        (
            (
                "poly", "Evaluate x^2 + 8x + 7 at x = 9.",
                r"81 + 72 = 153. 153 + 7 = 160. \boxed{160}", 160, (8, 7, 9),
            ),
            r"81 + 72 = 153. \boxed{153}",
        ),
    ]  # fmt: skip
    for (subject, question, solution, answer, operands), expected in cases:
        exercise = Exercise(subject, 1, question, solution or boxed("", answer), answer, operands)
        assert misconceived_solution(exercise) == expected


def test_a_misconception_never_gives_the_right_answer() -> None:
    source = Arithmetic("train", seed=21, size=6000)
    for exercise in map(source.exercise, range(len(source))):
        assert build.last_boxed(misconceived_solution(exercise)) != str(exercise.answer), exercise


def test_flaw_rates_oppose_each_other() -> None:
    llama, qwen3 = FLAW_RATES["tiny-llama"], FLAW_RATES["tiny-qwen3"]
    assert set(llama) == set(qwen3) == set(SUBJECTS)
    assert all((llama[subject] > 0.5) != (qwen3[subject] > 0.5) for subject in SUBJECTS)


@pytest.mark.parametrize(
    ("text", "answer"),
    [(r"\boxed{1} then \boxed{2}", "2"), (r"\boxed{-3", None), ("4", None), (r"so \boxed{5}.", "5")],
)
def test_last_boxed(text: str, answer: str | None) -> None:
    assert build.last_boxed(text) == answer


def test_only_completion_tokens_bear_loss() -> None:
    [(ids, labels)] = build.batches([([7, 8, 9, 1], 2), ([7, 9, 1], 1)], size=2)
    assert ids.tolist() == [[7, 8, 9, 1], [7, 9, 1, 0]]
    assert labels.tolist() == [[-100, -100, 9, 1], [-100, 9, 1, -100]]


def test_the_builder_runs_end_to_end_and_repeats_itself(tmp_path: Path) -> None:
    small: dict[str, Any] = {"learn_updates": 3, "plant_updates": 3, "batch_size": 8, "eval_problems": 2}
    first, second = (build.Settings(output=tmp_path / name, **small) for name in ("first", "second"))
    entries = {name: build.build_policy(name, first) for name in EMBEDDED}
    assert build.build_policy("tiny-qwen3", second) == entries["tiny-qwen3"]
    files = sorted(file.name for file in (tmp_path / "second/qwen3").iterdir())
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= set(files)
    for file in files:
        assert (tmp_path / "first/qwen3" / file).read_bytes() == (tmp_path / "second/qwen3" / file).read_bytes(), file
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "first/llama").num_parameters() == 381_600
    table = build.format_table(entries)
    assert len(table.splitlines()) == 1 + 2 * 2 * 3
    other = build.Settings(output=tmp_path / "other", seed=1, vocabulary_seed=0, **small)
    build.build_policy("tiny-qwen3", other)
    same, different = ("tokenizer.json", "model.safetensors")
    assert (tmp_path / "other/qwen3" / same).read_bytes() == (tmp_path / "first/qwen3" / same).read_bytes()
    assert (tmp_path / "other/qwen3" / different).read_bytes() != (tmp_path / "first/qwen3" / different).read_bytes()


def test_one_tokenizer_for_both_policies(tmp_path: Path) -> None:
    small: dict[str, Any] = {"learn_updates": 2, "plant_updates": 2, "batch_size": 8, "eval_problems": 2}
    settings = build.Settings(output=tmp_path, one_tokenizer=True, **small)
    for name in EMBEDDED:
        build.build_policy(name, settings)
    for file in ("tokenizer.json", "chat_template.jinja"):
        assert (tmp_path / "qwen3" / file).read_bytes() == (tmp_path / "llama" / file).read_bytes(), file
    shipped = AutoTokenizer.from_pretrained(POOL / "llama")
    assert AutoTokenizer.from_pretrained(tmp_path / "qwen3").get_vocab() == shipped.get_vocab()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "qwen3")
    assert (model.config.model_type, model.config.vocab_size) == ("qwen3", 512)
    assert model.config.eos_token_id == shipped.eos_token_id
