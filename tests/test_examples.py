"""Each file in examples/ is run as a newcomer would run it: copied alone into an empty folder, on the embedded pool."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from algorithms import TrainingConfig
from algorithms.tracking import read_jsonl

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

SMALL = "--max_steps 2 --problems_per_step 8 --eval_size 8 --eval_samples 0 --output_dir run"


def run(name: str, command: Sequence[str], folder: Path) -> str:
    """Copy an example into a folder, start Python there, and return what it printed."""
    shutil.copy(EXAMPLES / name, folder)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train_lines(folder: Path, policy: str) -> list[dict[str, Any]]:
    return [
        line for line in read_jsonl(folder / "metrics.jsonl") if line["policy"] == policy and "train/reward" in line
    ]


def test_own_verifier(tmp_path: Path) -> None:
    shown = run("own_verifier.py", ["own_verifier.py"], tmp_path)
    assert re.findall(r"score=([\d.]+).*reason='(\w+)'", shown) == [
        ("1.0", "right"), ("0.5", "partial"), ("0.0", "wrong"), ("0.0", "no_answer"),
    ]  # fmt: skip
    options = ["--verifier", "own_verifier:Brief", "--verifier_options", '{"limit": 20}']
    run("own_verifier.py", ["-m", "algorithms.sgt", *options, *SMALL.split()], tmp_path)
    records = read_jsonl(tmp_path / "run/completions.jsonl")
    halves = [r for r in records if r["reason"] == "partial"]
    assert {r["score"] for r in halves} == {0.5}
    assert all(len(r["completion"]) > 20 and r["answer"] in r["completion"] for r in halves)


def test_own_domain(tmp_path: Path) -> None:
    run("own_domain.py", ["own_domain.py", *SMALL.split()], tmp_path)
    assert "env: bills-mutual-v0" in (tmp_path / "run/config.yaml").read_text()
    for record in read_jsonl(tmp_path / "run/completions.jsonl"):
        prices = [int(price) for price in re.findall(r"\d+", record["question"])]
        assert record["question"].startswith("Compute ") and int(record["answer"]) == sum(prices)
    flags = f"-m algorithms.grpo --problems own_domain:Bills --max_steps 1 {SMALL.partition('2')[2]}".replace(
        "run", "dotted"
    )
    run("own_domain.py", flags.split(), tmp_path)
    assert (tmp_path / "dotted/checkpoint-1").is_dir()


def test_the_splits_of_ones_own_domain_share_no_question(tmp_path: Path) -> None:
    script = "from own_domain import Bills\n" + "\n".join(
        f"print([Bills('{split}', 0)[i].question for i in range(500)])" for split in ("train", "test")
    )
    train, test = (set(ast.literal_eval(line)) for line in run("own_domain.py", ["-c", script], tmp_path).splitlines())
    assert len(train) > 400 and not train & test


def test_own_algorithm(tmp_path: Path) -> None:
    assert (EXAMPLES / "own_algorithm.py").read_text().count("\n") < 60
    run("own_algorithm.py", ["own_algorithm.py", "--imitate_weight", "0.1", *SMALL.split()], tmp_path)
    assert "imitate_weight: 0.1" in (tmp_path / "run/config.yaml").read_text()
    for policy in ("policy_0", "policy_1"):
        # It imitates without a gate: more rows from peers than problems.
        assert any(line["train/exchange/peer_rows"] > 8 for line in train_lines(tmp_path / "run", policy))
    flags = f"-m algorithms.grpo --algorithm own_algorithm:Imitate grpo {SMALL}".replace("run", "mixed")
    run("own_algorithm.py", flags.split(), tmp_path)
    assert all(line["train/exchange/peer_rows"] == 0 for line in train_lines(tmp_path / "mixed", "policy_1"))


def test_research_loop(tmp_path: Path) -> None:
    shown = run("research_loop.py", ["research_loop.py"], tmp_path)
    assert "policy_0 #0" in shown and "policy_1 #3" in shown
    learnt = [int(number) for number in re.findall(r"peer successes learnt from: (\d+)", shown)]
    assert len(learnt) == 6 and sum(learnt) > 0


def test_resume(tmp_path: Path) -> None:
    shown = run("resume.py", ["resume.py"], tmp_path)
    assert "exit code after Ctrl-C: 130" in shown
    assert re.search(r"saved: checkpoint-[123]\n", shown), "the run was not interrupted in the middle"
    assert "the same metrics: True" in shown
    steps = [line["step"] for line in train_lines(tmp_path / "runs/interrupted", "policy_0")]
    assert steps == [1, 2, 3, 4]


def test_compare_runs(tmp_path: Path) -> None:
    shown = run("compare_runs.py", ["compare_runs.py"], tmp_path)
    for algorithm in ("grpo", "sgt"):
        for policy in ("policy_0", "policy_1", "pool"):
            (curve,) = re.findall(rf"train/reward of {policy} with {algorithm}: (.*)", shown)
            lines = train_lines(tmp_path / "runs/compare" / algorithm, policy)
            assert json.dumps(ast.literal_eval(curve)) == json.dumps(
                [(line["step"], round(line["train/reward"], 3)) for line in lines]
            )


def test_two_hub_models(tmp_path: Path) -> None:
    config = TrainingConfig.from_dict(yaml.safe_load((EXAMPLES / "two_hub_models.yaml").read_text()))
    names = [policy.model_name_or_path for policy in config.policies()]
    assert len(names) == 2 and all(name.count("/") == 1 and not Path(name).exists() for name in names)
    # Without a network the tiny pool stands in for the models; all else is as the file says.
    flags = "--config two_hub_models.yaml --model_name_or_path tiny-llama tiny-qwen3 --dry_run"
    shown = run("two_hub_models.yaml", ["-m", "algorithms.sgt", *flags.split()], tmp_path)
    assert "200 steps" in shown and shown.count(r"put your final answer within \boxed{}.[") == 1


@pytest.mark.parametrize("path", sorted(path.name for path in EXAMPLES.iterdir()))
def test_every_file_is_tried_and_listed(path: str) -> None:
    if path != "README.md":
        assert f'run("{path}"' in Path(__file__).read_text()
        assert f"[{path}]({path})" in (EXAMPLES / "README.md").read_text()
