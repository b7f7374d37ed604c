"""The likeliest mistakes of a user: each stops the command with one message that names the field, the value and the remedy."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from algorithms.cli import main
from algorithms.pools import embedded_path

SMALL = "--max_steps 1 --problems_per_step 2 --per_device_train_batch_size 8 --eval_size 2 --eval_samples 0"


def write_rows(path: str, *rows: dict[str, str]) -> None:
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))


def no_answers() -> None:
    write_rows("train.jsonl", {"problem": "1 + 1", "result": "2"})


def no_json() -> None:
    Path("train.jsonl").write_text("problem;answer\n1 + 1;2\n")


def one_problem() -> None:
    write_rows("train.jsonl", {"problem": "1 + 1", "answer": "2"})
    write_rows("test.jsonl", {"problem": "1 + 2", "answer": "3"})


def long_problem() -> None:
    write_rows("test.jsonl", {"problem": "one " * 2000, "answer": "2"})


def bad_reference() -> None:
    write_rows("train.jsonl", {"problem": "1 / 2", "answer": r"\frac{1}{2"})


def foreign_tokenizer() -> None:
    """A model that embeds fewer tokens than its tokenizer has."""
    model, tokenizer = embedded_path("tiny-qwen3"), embedded_path("tiny-llama")
    assert model is not None and tokenizer is not None
    shutil.copytree(model, "mixed")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, "mixed")


def finished_run() -> None:
    Path("mine").mkdir()
    Path("mine/metrics.jsonl").touch()


def module() -> None:
    """The user's own file; its name is used by no other test, since Python imports a module once."""
    Path("mistaken_module.py").write_text(
        "class Grader:\n    def grade(self, text): ...\n\n\n"
        "class Source:\n    def __init__(self, split, seed): ...\n    def __len__(self): return 9\n"
        "    def __getitem__(self, index): return {'problem': '1 + 1', 'answer': '2'}\n"
    )


def broken_module() -> None:
    Path("broken_module.py").write_text("class Grader\n    pass\n")


def broken_yaml() -> None:
    Path("run.yaml").write_text("max_steps: 3\n  seed: 1\n")


def misspelt_yaml() -> None:
    Path("run.yaml").write_text("learning_rat: 1.0e-4\n")


def wordy_yaml() -> None:
    Path("run.yaml").write_text("max_steps: many\n")


def broken_template() -> None:
    Path("mine.jinja").write_text("{% for message in messages %}{{ message['content'] }")


def nothing() -> None:
    """No files."""


# What the user types, the files that there are, and what the message must say: field, value, remedy.
MISTAKES: dict[str, tuple[str, Callable[[], None], list[str]]] = {
    "a model path that does not exist": (
        "--model_name_or_path ./models/llama tiny-qwen3", nothing,
        ["model_name_or_path='./models/llama'", "give a hub id, a local folder, a .gguf file, or an embedded model"],
    ),
    "a misspelt embedded model": (
        "--model_name_or_path tiny-lama tiny-qwen3", nothing, ["model_name_or_path='tiny-lama'", "(tiny-llama, tiny-qwen3)"],
    ),
    "a missing GGUF file": (
        "--model_name_or_path small.gguf tiny-qwen3", nothing, ["model_name_or_path='small.gguf'", "check the path"],
    ),
    "model and tokenizer of two models": (
        "--model_name_or_path mixed tiny-qwen3", foreign_tokenizer,
        ["model and tokenizer of policy_0 do not belong together", "tokens", "take both from one model"],
    ),
    "a misspelt environment id": (
        "--env aritmetic-mutual-v0", nothing, ["env id='aritmetic-mutual-v0'", "did you mean 'arithmetic-mutual-v0'"],
    ),
    "a misspelt problem source": ("--problems aritmetic", nothing, ["problems='aritmetic'", "did you mean 'arithmetic'"]),
    "a misspelt option": ("--learning_rat 1e-4", nothing, ["--learning_rat", "Perhaps you meant", "--learning_rate"]),
    "a misspelt option of the algorithm": ("--sgt_wieght 1", nothing, ["--sgt_wieght", "Perhaps you meant", "--sgt_weight"]),
    "a word for a number": ("--max_steps ten", nothing, ["--max_steps", "'ten'", "Steps to train"]),
    "an unknown algorithm": ("--algorithm sgtt", nothing, ["algorithm='sgtt'", "did you mean 'sgt'"]),
    "one's own algorithm, not found": (
        "--algorithm no_such_module:Mine", nothing,
        ["algorithm='no_such_module:Mine'", "cannot be imported", "start from the folder that it lies in, or install it"],
    ),
    "a data file without answers": (
        "--problems train.jsonl --eval_steps 0", no_answers,
        ["train.jsonl", "line 1, no column for the answer", "'result'", "skip_invalid"],
    ),
    "a data file that is no JSON": (
        "--problems train.jsonl --eval_steps 0", no_json, ["train.jsonl", "near 'problem;answer'", "write one object a line"],
    ),
    "an answer that cannot be read": (
        "--problems train.jsonl --eval_steps 0 --problems_per_step 1 --per_device_train_batch_size 4", bad_reference,
        ["problem train-0", r"answer='\\frac{1}{2'", "correct it or drop the problem"],
    ),
    "a misspelt file of held-out problems": (
        "--eval_problems tst.jsonl", one_problem, ["tst.jsonl", "there is no such file", "did you mean 'test.jsonl'"],
    ),
    "a file without held-out problems": (
        "--problems train.jsonl --problems_per_step 1 --per_device_train_batch_size 4", one_problem,
        ["eval_problems is not set", "problems='train.jsonl'", "name a file of held-out problems"],
    ),
    "fewer problems than a step asks": (
        "--problems train.jsonl --eval_steps 0", one_problem, ["problems_per_step", "=2", "the 1 problems", "lower it"],
    ),
    "a misspelt option of the problems": (
        '--problem_options {"level":[1]}', nothing, ["problems='arithmetic'", "'level'", "it takes", "levels"],
    ),
    "a prompt that is too long": (
        "--eval_problems test.jsonl", long_problem,
        ["policy_0: a prompt of", "max_completion_length=64", "context of 512", "leave out long problems"],
    ),
    "batch sizes that do not divide": (
        "--per_device_train_batch_size 5", nothing,
        ["per_device_train_batch_size=5 x gradient_accumulation_steps=2 = 10", "multiple of num_generations=8"],
    ),
    "an output folder that holds a run": (
        "--output_dir mine", finished_run, ["output_dir='mine'", "--resume_from_checkpoint auto", "--overwrite_output_dir"],
    ),
    "an output folder that is a file": (
        "--output_dir train.jsonl", one_problem, ["output_dir='train.jsonl'", "name a folder that you may write to"],
    ),
    "a checkpoint that does not exist": (
        "--resume_from_checkpoint mine/checkpoint-7", nothing,
        ["resume_from_checkpoint='mine/checkpoint-7'", "give a checkpoint-N folder, or auto"],
    ),
    "a misspelt dtype": ("--dtype bfloat16", nothing, ["'bfloat16'", "--dtype", "Expected one of ('fp32', 'bf16')"]),
    "a topology of agents that do not exist": (
        '--exchange_topology {"policy_0":["policy_7"]}', nothing,
        ["exchange_topology", "'policy_7'", "did you mean 'policy_1'"],
    ),
    "a topology that is no JSON": (
        '--exchange_topology {policy_0', nothing, ["exchange_topology='{policy_0'", "write JSON such as"],
    ),
    "two policies of one name": ("--agents ada ada", nothing, ["agents=['ada', 'ada']", "give each agent its own"]),
    "three learning rates for two policies": (
        "--learning_rate 1e-4 1e-4 1e-4", nothing, ["learning_rate has 3 values for 2 policies", "one per policy"],
    ),
    "a negative beta": ("--beta -0.1", nothing, ["beta=-0.1", "at least 0"]),
    "greedy sampling": ("--temperature 0", nothing, ["temperature=0.0", "more than 0"]),
    "a misspelt verifier": ("--verifier maths", nothing, ["verifier='maths'", "did you mean 'math'"]),
    "a verifier that cannot verify": (
        "--verifier mistaken_module:Grader", module,
        ["verifier='mistaken_module:Grader'", "no verify(completion, answer)", "add that method"],
    ),
    "a verifier in a file that is no Python": (
        "--verifier broken_module:Grader", broken_module,
        ["verifier='broken_module:Grader'", "broken_module.py, line 1", "correct that line"],
    ),
    "a misspelt option of the verifier": (
        '--verifier math --verifier_options {"falback":true}', nothing, ["verifier='math'", "'falback'", "unexpected keyword"],
    ),
    "a source of something else than problems": (
        "--problems mistaken_module:Source", module, ["problems[0] is a dict", "mrl_env.Problem"],
    ),
    "a device that is not there": ("--device cuda:77", nothing, ["device='cuda:77'", "or auto"]),
    "a configuration file that is missing": ("--config run.yaml", nothing, ["config='run.yaml'", "see configs/"]),
    "a configuration file that is no YAML": ("--config run.yaml", broken_yaml, ["config='run.yaml'", "line 2"]),
    "a misspelt key": ("--config run.yaml", misspelt_yaml, ["'learning_rat'", "did you mean 'learning_rate'"]),
    "a word for a number in a file": ("--config run.yaml", wordy_yaml, ["max_steps='many'", "give a whole number"]),
    "a chat template that is no Jinja": (
        "--chat_template mine.jinja", broken_template, ["chat_template", "unexpected '}'", "correct the template"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_explained(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    typed, make_files, words = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        "huggingface_hub.constants.HF_HUB_OFFLINE", True
    )  # a misspelt model is not asked for in the network
    make_files()
    # The last of two equal flags counts, so that a mistake may also be made in the settings that keep the run small.
    with pytest.raises(SystemExit) as end:
        main("sgt", [*SMALL.split(), "--output_dir", "run", *typed.split(" ")])
    assert end.value.code in (1, 2), "a mistake is no success"
    shown = re.sub(r"[\s│╭╰─╮╯]+", " ", capsys.readouterr().err)
    for word in words:
        assert word in shown
    assert "Traceback" not in shown


def test_there_are_the_twenty_likeliest() -> None:
    assert len(MISTAKES) >= 20
