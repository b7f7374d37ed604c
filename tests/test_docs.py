"""README, CONTRIBUTING and the pages in docs/ do what they say.

Python is run, commands are parsed, quoted examples are equal to their files, and every metric that a run writes is explained.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from algorithms import Trainer, TrainingConfig
from algorithms.cli import parse
from algorithms.tracking import read_jsonl
from verifiers import REASONS

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "docs/results"
"""Pages that `benchmarks.compare` writes and checks itself."""

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").rglob("*.md")),
    )
    if GENERATED not in path.parents
}  # fmt: skip

BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)

NEEDS_A_NETWORK = ('problems="openbookqa"',)
"""Lines of Python that read from the hub; they are left out of what is run."""


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in a language, without those that quote a file."""
    return [code for kind, title, code in BLOCK.findall(PAGES[page]) if kind == language and not title]


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


QUOTES = [(page, title, code) for page, text in PAGES.items() for _, title, code in BLOCK.findall(text) if title]


@pytest.mark.parametrize(("page", "file", "code"), QUOTES, ids=[f"{page}: {file}" for page, file, _ in QUOTES])
def test_a_quoted_example_is_its_file(page: str, file: str, code: str) -> None:
    assert code == (ROOT / file).read_text(encoding="utf-8"), f"{page} quotes another {file} than there is"


def test_every_example_is_quoted_on_a_page() -> None:
    files = {f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".yaml")}
    assert len(files) >= 7
    assert files == {file for page, file, _ in QUOTES if page.startswith("docs/")}


TRIED_BELOW = ("Trainer(config)", "easy-algebra-v0", "AutoPeftModelForCausalLM")
"""What stands in blocks that have a test of their own."""

PYTHON = [
    (page, i, code)
    for page in PAGES
    for i, code in enumerate(blocks(page, "python"))
    if not any(part in code for part in TRIED_BELOW)
]


@pytest.mark.parametrize(("page", "number", "code"), PYTHON, ids=[f"{page} {i}" for page, i, _ in PYTHON])
def test_python_runs(page: str, number: int, code: str, tmp_path: Path) -> None:
    rows = [{"problem": f"How much is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(9)]
    for name in ("train", "test", "gsm8k_train"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [line for line in code.splitlines() if not any(part in line for part in NEEDS_A_NETWORK)]
    run("\n".join(lines), tmp_path)


def test_there_is_python_to_try() -> None:
    assert {"docs/domains.md"} <= {page for page, _, _ in PYTHON}


def test_training_in_python(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("README.md", "python") if "Trainer" in block)
    shown = run(code, tmp_path)
    assert "policy_0 (tiny-llama)" in shown and "policy_1 (tiny-qwen3)" in shown
    assert (tmp_path / "runs/readme/checkpoint-2/policy_0/model.safetensors").exists()


def test_a_saved_adapter_is_merged(tmp_path: Path) -> None:
    """With the page's code, after a run of one step instead of sixty."""
    pytest.importorskip("peft")
    (code,) = (block for block in blocks("docs/adapters.md", "python") if "AutoPeftModelForCausalLM" in block)
    trained = (
        "from algorithms import Trainer, TrainingConfig\n"
        "config = TrainingConfig(use_peft=True, max_steps=1, problems_per_step=8, eval_steps=0, output_dir='runs/mine')\n"
        "Trainer(config).train()\n"
    )
    shown = run(trained + code.replace("checkpoint-60", "checkpoint-1") + "\nprint(type(model).__name__)", tmp_path)
    assert shown.split()[-1] == "LlamaForCausalLM"


def test_ones_own_environment(tmp_path: Path) -> None:
    (code,) = (block for block in blocks("CONTRIBUTING.md", "python") if "mrl_env.register" in block)
    shown = run(code + "\nprint(env.reset(seed=0)[1]['policy_0']['problems'][0].metadata['subject'])", tmp_path)
    assert shown.strip() == "algebra"


def commands() -> list[tuple[str, str]]:
    """Each `python -m MODULE ...` of a page, from its bash blocks and its indented lines."""
    found = []
    for page, text in PAGES.items():
        outside = BLOCK.sub("", text)
        code = [*blocks(page, "bash"), *re.findall(r"^    (python -m .*)", outside, re.MULTILINE)]
        code += re.findall(r"^```\n(python -m .*)", text, re.MULTILINE)
        for line in "\n".join(code).replace("\\\n", " ").splitlines():
            command = line.split(" #")[0].split("&&")[0].strip()
            if command.startswith("python -m "):
                found.append((page, command))
    return found


@functools.cache
def options_of(module: str) -> frozenset[str]:
    """The options that a module's help lists."""
    shown = subprocess.run([sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    return frozenset(re.findall(r"--[\w-]+", shown.stdout))


COMMANDS = commands()
TRAINING = [found for found in COMMANDS if re.match(r"python -m algorithms\.\w+( |$)", found[1])]
OTHERS = [found for found in COMMANDS if found not in TRAINING]


@pytest.mark.parametrize(("page", "command"), TRAINING, ids=[f"{page}: {command}" for page, command in TRAINING])
def test_a_training_command_is_understood(page: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    words = shlex.split(command)
    module, flags = words[2].removeprefix("algorithms."), words[3:]
    if flags == ["--help"]:
        with pytest.raises(SystemExit) as done, contextlib.redirect_stdout(io.StringIO()):
            parse(module, flags)
        assert done.value.code == 0
        return
    # A recipe is named from the repository's root, an example from its own folder.
    flags = [str(ROOT / word) if word.startswith("configs/") else word for word in flags]
    flags = [str(ROOT / "examples" / word) if word == "two_hub_models.yaml" else word for word in flags]
    _, config = parse(module, flags)
    assert config.policies()


@pytest.mark.parametrize(("page", "command"), OTHERS, ids=[f"{page}: {command}" for page, command in OTHERS])
def test_the_flags_of_another_command_exist(page: str, command: str) -> None:
    module, text = command.split()[2], command.partition(command.split()[2])[2]
    flags = re.findall(r"--[\w-]+", text)
    assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists() or (ROOT / module.replace(".", "/")).is_dir()
    for flag in flags:
        assert flag in options_of(module) or flag.replace("_", "-") in options_of(module)


def test_there_are_commands_to_try() -> None:
    assert len(TRAINING) >= 25 and len(OTHERS) >= 10


MAKE = re.findall(r"\bmake (\w+)\b", "\n".join(block for page in PAGES for block in blocks(page, "bash")))


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert {"demo", "test"} <= set(MAKE)
    for target in {*MAKE, "docs", "check"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_links_of_the_pages_outside_the_site_lead_somewhere() -> None:
    """`mkdocs build --strict` follows those within docs/; these are read on their own."""
    for page in ("README.md", "CONTRIBUTING.md", "examples/README.md"):
        targets = re.findall(r"\]\(([^)#:]+)\)", BLOCK.sub("", PAGES[page]))
        assert targets
        for target in targets:
            assert (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    def leaves(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
        return [leaf for part in parts for leaf in leaves(part)]

    navigation = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert sorted(navigation) == sorted(str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md"))


RUNS = {
    "sgt": {"algorithm": "sgt"},
    "sgt, late": {"algorithm": "sgt", "exchange_staleness": 1},
    "prp": {"algorithm": "prp", "beta": 0.01, "num_iterations": 2},
    "prp with the trace": {
        "algorithm": "prp", "algorithm_options": {"prp_denominator": "trace"}, "delta": 5.0, "max_completion_length": 24,
    },
    "xgrpo": {"algorithm": "xgrpo", "beta": 0.01},
}  # fmt: skip


def general(name: str) -> str:
    """A metric's name as the page has it: what stands for many is in angle brackets."""
    for pattern, replacement in (
        (r"^(eval/(?:mean|pass|maj)@)\d+$", r"\1<k>"),
        (r"^(eval/subject/).+$", r"\1<subject>"),
        (r"^(train/verdicts/).+$", r"\1<reason>"),
        (r"^(train/exchange/drop_rate/).+$", r"\1<reason>"),
        (r"^(train/exchange/rescue_rate/from_).+$", r"\1<policy>"),
    ):
        name = re.sub(pattern, replacement, name)
    return name


def test_every_metric_is_explained_and_every_explained_metric_exists(tmp_path: Path) -> None:
    written = set()
    for name, settings in RUNS.items():
        small = {"max_steps": 3, "problems_per_step": 8, "eval_size": 8, "output_dir": str(tmp_path / name)}
        trainer = Trainer(TrainingConfig(**{**small, **settings}))  # type: ignore[arg-type]
        trainer.train()
        written |= {key for line in read_jsonl(trainer.output_dir / "metrics.jsonl") for key in line}
    written -= {"step", "policy"}
    explained = set()
    for row in re.findall(r"^\| (`(?:train|eval)/.*?) \|", PAGES["docs/metrics.md"], re.MULTILINE):
        explained |= set(re.findall(r"`([^`]+)`", row))
    assert {general(name) for name in written} == explained
    for reason in REASONS:
        assert f"`{reason}`" in PAGES["docs/metrics.md"]
