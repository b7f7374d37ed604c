"""Importing the light packages stays light: seen in a fresh process, since this one has loaded everything."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "tokenizers", "datasets", "pyarrow", "pandas", "tensorboard", "vllm", "ray", "peft")


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running `code`."""
    report = "\nimport sys, json; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    result = subprocess.run([sys.executable, "-c", code + report], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_the_report_sees_what_is_imported() -> None:
    assert "sympy" in modules_after("import sympy")


@pytest.mark.parametrize("code", ["import mrl_env", "import mrl_env, verifiers", "import mrl_env.tokenization"])
def test_mrl_env(code: str) -> None:
    loaded = modules_after(code)
    assert "mrl_env" in loaded
    assert loaded.isdisjoint({*HEAVY, "algorithms"})


def test_verifiers() -> None:
    loaded = modules_after("import verifiers")
    assert "verifiers" in loaded
    assert loaded.isdisjoint({*HEAVY, "sympy", "mrl_env", "algorithms", "gymnasium", "pettingzoo"})


def test_an_episode() -> None:
    """Nor does playing: models and their libraries are the caller's business."""
    code = (
        "import mrl_env\n"
        "env = mrl_env.make('arithmetic-mutual-v0', problems_per_episode=1, generations=1)\n"
        "env.reset(seed=0)\n"
        "env.step({agent: [['\\\\boxed{1}']] for agent in env.agents})\n"
    )
    assert modules_after(code).isdisjoint({*HEAVY, "algorithms"})
