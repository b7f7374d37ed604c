"""The README and CONTRIBUTING do what they say: their Python is run, their commands are parsed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(document: str, language: str) -> list[str]:
    return [code for kind, code in BLOCK.findall((ROOT / document).read_text()) if kind == language]


def run(code: list[str], folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    done = subprocess.run([sys.executable, *code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_in_python(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("README.md", "python") if "Trainer" in block)
    shown = run(["-c", code], tmp_path)
    assert "policy_0 (tiny-llama)" in shown and "policy_1 (tiny-qwen3)" in shown
    assert (tmp_path / "runs/readme/checkpoint-2/policy_0/model.safetensors").exists()


def test_research_loop(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("README.md", "python") if "parallel" in block or "mrl_env.make" in block)
    assert code.count("\n") <= 40
    shown = run(
        ["-c", code + "\nprint(sum(p.grad is not None for m in models.values() for p in m.parameters()))"], tmp_path
    )
    assert "policy_0 #0" in shown and "policy_1 #3" in shown
    assert int(shown.splitlines()[-1]) > 0, "no peer success was learnt from"


def test_ones_own_verifier_and_problems(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("README.md", "python") if "Parity" in block)
    (tmp_path / "my_domain.py").write_text(code)
    flags = "--verifier my_domain:Parity --problems my_domain:Numbers --max_steps 3 --eval_size 8 --output_dir run"
    run(["-m", "algorithms.sgt", *flags.split()], tmp_path)
    assert "even or odd?" in (tmp_path / "run/completions.jsonl").read_text()
    assert '"reason": "no_answer"' in (tmp_path / "run/completions.jsonl").read_text()


def test_ones_own_verifier_and_problems_by_registering_them(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("README.md", "python") if "Parity" in block)
    (tmp_path / "my_domain.py").write_text(code)
    script = """
import mrl_env, verifiers
from algorithms import Trainer, TrainingConfig
from mrl_env import problems
from my_domain import Numbers, Parity

verifiers.register("parity", Parity)
problems.register("numbers", Numbers)
mrl_env.register("numbers-mutual-v0", kwargs={"problems": "numbers", "verifier": "parity"})
assert mrl_env.make("numbers-mutual-v0").reset(seed=0)[1]["policy_0"]["problems"][0].question.startswith("Is ")
config = TrainingConfig(algorithm="sgt", env="numbers-mutual-v0", problems="numbers", verifier="parity", max_steps=3,
                        eval_size=8, output_dir="run")
print(Trainer(config).train()["policy_1"]["reward"])
"""
    assert 0.0 <= float(run(["-c", script], tmp_path)) <= 1.0
    assert "even or odd?" in (tmp_path / "run/completions.jsonl").read_text()


def test_ones_own_algorithm(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "Imitate" in block)
    assert code.count("\n") < 60
    (tmp_path / "imitate.py").write_text(code)
    flags = "--max_steps 2 --eval_steps 0 --output_dir run --imitate_weight 0.1"
    run([str(tmp_path / "imitate.py"), *flags.split()], tmp_path)
    assert "imitate_weight: 0.1" in (tmp_path / "run/config.yaml").read_text()
    flags = "--algorithm imitate:Imitate grpo --max_steps 1 --eval_steps 0 --output_dir mixed"
    run(["-m", "algorithms.grpo", *flags.split()], tmp_path)
    assert "imitate:Imitate" in (tmp_path / "mixed/config.yaml").read_text()


def test_ones_own_environment(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "mrl_env.register" in block)
    shown = run(["-c", code + "\nprint(env.reset(seed=0)[1]['policy_0']['problems'][0].metadata['subject'])"], tmp_path)
    assert shown.strip() == "algebra"


COMMANDS = [
    line.split("#")[0].strip()
    for block in blocks("README.md", "bash")
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("python -m algorithms")
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command: str) -> None:
    from algorithms.cli import parse

    words = command.split()
    module, flags = words[2].removeprefix("algorithms."), words[3:]
    if flags == ["--help"]:
        with pytest.raises(SystemExit) as done:
            parse(module, flags)
        assert done.value.code == 0
    else:
        flags = [str(ROOT / word) if word.startswith("configs/") else word for word in flags]
        _, config = parse(module, flags)
        assert config.policies()


def test_there_are_commands_to_try() -> None:
    assert len(COMMANDS) >= 6


def test_the_two_set_up_commands_are_makefile_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target} " in (ROOT / "README.md").read_text()
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
