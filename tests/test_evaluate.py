"""The evaluation of any models: figures by hand and by enumeration, what is stored and resumed, and the command line."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

import numpy as np
import pytest

from algorithms.config import TrainingConfig
from algorithms.evaluation import evaluate, summarize
from algorithms.policy import load_policy, load_renderer, load_tokenizer
from algorithms.pools import embedded_path
from algorithms.rollouts.sampling import SamplingConfig
from benchmarks.evaluate import collect
from benchmarks.evaluate.__main__ import main
from benchmarks.evaluate.collect import Evaluation, policy_configs, read_stored, settings_hash
from benchmarks.evaluate.scores import Answered, Spoken, agreement, figure, metrics, pass_sizes, policy_figures
from benchmarks.evaluate.show import draw_rescue
from benchmarks.evaluate.vllm import VllmPolicy
from mrl_env.problems import load_problems
from mrl_env.types import FinishReason, Problem, user_message
from verifiers import Verdict

# Figures ------------------------------------------------------------------------------------------------------------------


def spoken(answer: str | None, score: float | None, length: int = 1, finish_reason: FinishReason = "stop") -> Spoken:
    reason: Any = "error" if score is None else "right" if score == 1 else "partial" if score else "wrong"
    return Spoken(Verdict(score, answer, reason), length, finish_reason)


RIGHT, WRONG, HALF, UNJUDGED = spoken("2", 1.0), spoken("3", 0.0), spoken("5", 0.5), spoken("4", None)


def answered(name: str, greedy: Spoken, *samples: Spoken, **metadata: Any) -> Answered:
    return Answered(Problem(name, user_message(name), "2", metadata=metadata), greedy, samples)


MADE_UP = [
    answered("a", RIGHT, RIGHT, WRONG, WRONG, RIGHT, RIGHT, subject="algebra", level=10),
    answered("b", WRONG, WRONG, HALF, WRONG, UNJUDGED, WRONG, subject="geometry", level=2),
    answered("c", WRONG, WRONG, WRONG, RIGHT, WRONG, UNJUDGED, subject="algebra", level=2),
    answered("d", UNJUDGED, RIGHT, RIGHT, RIGHT, RIGHT, RIGHT),
]
"""Successes of five: 3, 0, 1, 5."""


def values(figures: dict[str, Any]) -> dict[str, float]:
    return {name: one["value"] for name, one in figures.items() if isinstance(one, dict)}


def test_figures_by_hand() -> None:
    found = policy_figures(MADE_UP, seed=0)
    assert values(found["all"]) == pytest.approx(
        {
            "reward@1": 1 / 4,
            "mean@5": (0.6 + 0.1 + 0.2 + 1.0) / 4,
            # A half is no success. Two of five draws are all wrong in 1, 10, 6, 0 of 10 ways; four in 0, 5, 1, 0 of 5.
            "pass@1": (0.6 + 0 + 0.2 + 1) / 4,
            "pass@2": (0.9 + 0 + 0.4 + 1) / 4,
            "pass@4": (1 + 0 + 0.8 + 1) / 4,
            "pass@5": 3 / 4,
            "maj@5": 2 / 4,
        }
    )
    assert list(found["subject"]) == ["algebra", "geometry"]
    assert [group["problems"] for group in found["subject"].values()] == [2, 1]
    assert found["subject"]["algebra"]["mean@5"]["value"] == pytest.approx(0.4)
    # Levels are ordered as numbers; a problem without one is in no group.
    assert list(found["level"]) == ["2", "10"]
    assert values(found["level"]["2"])["mean@5"] == pytest.approx(0.15)
    assert found["reasons"] == {"right": 9 / 20, "wrong": 8 / 20, "partial": 1 / 20, "error": 2 / 20}
    assert found["greedy"] == [1.0, 0.0, 0.0, 0.0]
    assert found["successes"] == [3, 0, 1, 5]


def test_pass_at_k_is_the_share_of_draws_with_a_success() -> None:
    rng = np.random.default_rng(7)
    problems = [
        answered(str(p), WRONG, *(RIGHT if hit else WRONG for hit in rng.random(6) < rate))
        for p, rate in enumerate([0.0, 0.2, 0.5, 0.9])
    ]
    found = values(metrics(problems, seed=0))
    for k in (1, 2, 4, 6):
        shares = [
            np.mean([any(one.verdict.success for one in draw) for draw in itertools.combinations(p.samples, k)])
            for p in problems
        ]
        assert found[f"pass@{k}"] == pytest.approx(float(np.mean(shares)), abs=1e-12)


@pytest.mark.parametrize(("k", "sizes"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])])
def test_pass_is_given_for_powers_of_two_and_k(k: int, sizes: list[int]) -> None:
    assert pass_sizes(k) == sizes


def test_length_by_hand() -> None:
    samples = [
        *(spoken("2", 1.0, length) for length in (1, 2, 3, 4)),
        *(spoken("3", 0.0, length) for length in (5, 6)),
        spoken("2", 1.0, 7),
        *(spoken(None, 0.0, 10, "length") for _ in range(3)),
    ]
    found = policy_figures([answered("a", RIGHT, *samples)], seed=0)["length"]
    assert (found["mean"], found["right"], found["wrong"], found["cut"]) == pytest.approx(
        (58 / 10, 17 / 5, 41 / 5, 3 / 10)
    )
    # Edges between the fifths of ten lengths: the three tens stay together, so that the last group is empty and left out.
    assert [tuple(group.values()) for group in found["quantiles"]] == [
        (1, 2, 2, 1.0),
        (3, 4, 2, 1.0),
        (5, 6, 2, 0.0),
        (7, 10, 4, 0.25),
    ]


def test_length_without_wrong_or_right_ones() -> None:
    assert policy_figures([answered("a", RIGHT, RIGHT)], seed=0)["length"]["wrong"] is None
    assert policy_figures([answered("a", RIGHT, WRONG)], seed=0)["length"]["right"] is None


def test_agreement_by_hand() -> None:
    solved = {"x": "110010", "y": "100110", "z": "000000"}
    policies = {
        # One success among two samples is enough; the greedy answer has no say.
        name: [answered(str(p), RIGHT, WRONG, RIGHT if hit == "1" else WRONG) for p, hit in enumerate(hits)]
        for name, hits in solved.items()
    }
    found = agreement(policies, seed=0)
    rescue = {(learner, peer): one["value"] for learner, row in found["rescue"].items() for peer, one in row.items()}
    assert rescue == pytest.approx(
        {("x", "y"): 1 / 6, ("x", "z"): 0, ("y", "x"): 1 / 6, ("y", "z"): 0, ("z", "x"): 1 / 2, ("z", "y"): 1 / 2}
    )
    pairs = {tuple(pair["policies"]): pair for pair in found["pairs"]}
    assert {names: (pair["both"]["value"], pair["neither"]["value"]) for names, pair in pairs.items()} == {
        ("x", "y"): pytest.approx((2 / 6, 2 / 6)),
        ("x", "z"): pytest.approx((0, 3 / 6)),
        ("y", "z"): pytest.approx((0, 3 / 6)),
    }
    assert pairs["x", "y"]["jaccard"] == 0.5
    assert pairs["x", "z"]["jaccard"] == 0
    nothing = agreement({"x": policies["z"], "y": policies["z"]}, seed=0)
    assert nothing["pairs"][0]["jaccard"] is None


def test_interval_of_a_share_is_the_binomial_one() -> None:
    hits = np.arange(400) < 120
    found = figure(hits, seed=0)
    assert found["value"] == pytest.approx(0.3)
    # Normal approximation: 1.96 standard errors of sqrt(.3 * .7 / 400).
    assert found["low"] == pytest.approx(0.3 - 0.0449, abs=0.006)
    assert found["high"] == pytest.approx(0.3 + 0.0449, abs=0.006)
    assert figure(hits, seed=0) == found
    assert figure(hits, seed=1) != found


def test_where_all_problems_agree_there_is_no_interval() -> None:
    assert figure([0.0] * 12, seed=0) == {"value": 0.0, "low": None, "high": None}


# What is stored -----------------------------------------------------------------------------------------------------------


def lines(batch: int, size: int, written: int, key: str = "s") -> list[dict[str, Any]]:
    common = {"settings": key, "batch": batch, "batch_size": size, "text": "2", "token_ids": [1], "tokens": 1}
    return [{**common, "sample": i} for i in range(written)]


def test_a_batch_that_was_not_written_to_its_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    whole = "".join(json.dumps(line) + "\n" for line in [*lines(0, 2, 2), *lines(0, 1, 1, "other")])
    torn = "".join(json.dumps(line) + "\n" for line in lines(1, 3, 2))
    for rest in ("", torn, torn[:-9], '{"sett'):
        path.write_text(whole + rest)
        stored = read_stored(path)
        assert {key: len(found) for key, found in stored.items()} == {("s", 0): 2, ("other", 0): 1}
        assert "text" not in stored["s", 0][0]
        assert path.read_text() == whole
    path.write_text(torn)
    assert read_stored(path) == {}
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("no json\n", "line 1, is no completion"),
        ('{"step": 1}\n', "KeyError.*settings"),
        ("[1]\n", "line 1, is no completion"),
        ("".join(json.dumps(line) + "\n" for line in lines(0, 2, 3)), "line 3.*two evaluations wrote"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_stored(path)
    assert path.read_text() == content


def evaluation(**changes: Any) -> Evaluation:
    source = load_problems("arithmetic", split="test")
    config = TrainingConfig(**changes)
    return Evaluation([source[i] for i in range(5)], 4, config, "transformers", "cpu")


def test_settings_hash_knows_all_that_decides() -> None:
    def of(asked: Evaluation, **changes: Any) -> str:
        return settings_hash(asked, replace(TrainingConfig().policies()[0], **changes))

    asked = evaluation()
    same = [
        of(asked),
        of(replace(asked, device="cuda:0")),
        of(asked, name="other"),
        # A folder counts by what it holds, wherever it lies.
        of(asked, model_name_or_path=str(embedded_path("tiny-llama"))),
    ]
    different = [
        of(asked, model_name_or_path="tiny-qwen3"),
        of(asked, dtype="bf16"),
        of(asked, chat_template="plain"),
        of(asked, chat_template_kwargs={"enable_thinking": False}),
        of(replace(asked, problems=asked.problems[:4])),
        of(replace(asked, samples=3)),
        of(replace(asked, backend="vllm")),
        of(evaluation(temperature=0.9)),
        of(evaluation(generation_batch_size=8)),
        of(evaluation(seed=1)),
        of(evaluation(verifier="exact")),
        of(evaluation(verifier="math", verifier_options={"fallback": True})),
        of(evaluation(verifier="math")),
    ]
    assert len(set(same)) == 1
    assert len({same[0], *different}) == 1 + len(different)


def test_batches_fill_the_rows_and_cover_the_problems() -> None:
    assert evaluation(generation_batch_size=8).batches == [range(2), range(2, 4), range(4, 5)]
    assert evaluation(generation_batch_size=2).batches == [range(i, i + 1) for i in range(5)]


def test_a_checkpoint_stands_for_its_policies(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-20"
    for name, model in (("policy_0", "tiny-llama"), ("policy_1", "tiny-qwen3")):
        folder = embedded_path(model)
        assert folder is not None
        shutil.copytree(folder, checkpoint / name)
    (checkpoint / "optimizer").mkdir()
    found = policy_configs(TrainingConfig(model_name_or_path=(str(checkpoint), "tiny-llama")))
    assert [policy.name for policy in found] == ["policy_0", "policy_1", "tiny-llama"]
    assert [policy.model_name_or_path for policy in found] == [
        str(checkpoint / "policy_0"),
        str(checkpoint / "policy_1"),
        "tiny-llama",
    ]


# The command line ---------------------------------------------------------------------------------------------------------

COMMAND = [
    *("--policies", "tiny-llama", "tiny-qwen3", "--problems", "arithmetic", "--limit", "12", "--samples", "4"),
    *("--generation_batch_size", "16", "--device", "cpu"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an evaluation on the command line: 3 batches of 4 problems for each of 2 policies."""
    output = tmp_path_factory.mktemp("evaluation")
    assert main([*COMMAND, "--output_dir", str(output)]) == 0
    return output


def test_the_command_agrees_with_the_trainers_evaluation(finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    source = load_problems("arithmetic", split="test")
    problems = [source[i] for i in range(12)]
    assert results["problems"] == [problem.id for problem in problems]
    for config, name in zip(
        TrainingConfig(model_name_or_path=("tiny-llama", "tiny-qwen3")).policies(),
        ("tiny-llama", "tiny-qwen3"),
        strict=True,
    ):
        policy = load_policy(config, "cpu")
        expected = summarize(evaluate(policy, problems, SamplingConfig(max_completion_length=64), 4, seed=0))
        found = results["policies"][name]
        assert found["all"]["reward@1"]["value"] == pytest.approx(expected["reward"])
        for key in ("mean@4", "pass@4", "maj@4"):
            assert found["all"][key]["value"] == pytest.approx(expected[key])
        for subject, group in found["subject"].items():
            assert group["mean@4"]["value"] == pytest.approx(expected[f"subject/{subject}"])


def test_every_completion_is_kept_with_its_verdict(finished: Path) -> None:
    records = [json.loads(line) for line in (finished / "completions.jsonl").read_text().splitlines()]
    assert len(records) == 2 * 12 * (1 + 4)
    results = json.loads((finished / "results.json").read_text())
    for name, figures in results["policies"].items():
        own = [record for record in records if record["policy"] == name]
        for i, problem in enumerate(results["problems"]):
            group = [record for record in own if record["problem"] == problem]
            assert [record["sample"] for record in group] == [0, 1, 2, 3, 4]
            assert figures["greedy"][i] == group[0]["score"]
            assert figures["successes"][i] == sum(record["reason"] == "right" for record in group[1:])
            assert all(record["tokens"] == len(record["token_ids"]) > 0 for record in group)
            assert {record["finish_reason"] for record in group} <= {"stop", "length"}


def test_report_and_picture_show_the_figures(finished: Path) -> None:
    results = json.loads((finished / "results.json").read_text())
    report = (finished / "report.md").read_text()
    first = results["policies"]["tiny-llama"]["all"]["mean@4"]
    assert f"| mean@4 | {first['value']:.3f} [{first['low']:.3f}, {first['high']:.3f}] |" in report
    rescue = results["agreement"]["rescue"]["tiny-qwen3"]["tiny-llama"]["value"]
    assert f"| tiny-qwen3 | {rescue:.3f}" in report
    assert (finished / "rescue.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("left", [0.0, 0.3, 0.72])
def test_an_interrupted_evaluation_goes_on_and_ends_alike(
    finished: Path, tmp_path: Path, left: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = (finished / "completions.jsonl").read_bytes()
    kept = whole[: int(left * len(whole))]
    assert not kept.endswith(b"\n")
    (tmp_path / "completions.jsonl").write_bytes(kept)
    asked = 0

    def counting(policy: Any, problems: Sequence[Problem], *arguments: Any) -> Any:
        nonlocal asked
        asked += len(problems)
        return answer(policy, problems, *arguments)

    answer = collect.answer
    monkeypatch.setattr(collect, "answer", counting)
    assert main([*COMMAND, "--output_dir", str(tmp_path), "--no_picture"]) == 0
    for name in ("results.json", "completions.jsonl", "report.md"):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()
    # Twenty lines are a batch of four problems; only those that were whole are not asked again.
    assert asked == 24 - 4 * (kept.count(b"\n") // 20)


def test_what_is_stored_needs_no_model(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(finished / "completions.jsonl", tmp_path)
    monkeypatch.setattr(collect, "load_policy", None)
    assert main([*COMMAND, "--output_dir", str(tmp_path), "--no_picture"]) == 0
    assert (tmp_path / "results.json").read_bytes() == (finished / "results.json").read_bytes()


def test_copies_of_one_model_share_their_completions(tmp_path: Path) -> None:
    folder = embedded_path("tiny-llama")
    assert folder is not None
    shutil.copytree(folder, tmp_path / "copy")
    command = ["--policies", "tiny-llama", str(tmp_path / "copy"), "--problems", "arithmetic", "--limit", "2"]
    command += ["--samples", "2", "--output_dir", str(tmp_path / "out"), "--device", "cpu"]
    assert main(command) == 0
    results = (tmp_path / "out" / "results.json").read_text()
    assert len((tmp_path / "out" / "completions.jsonl").read_text().splitlines()) == 2 * 3
    assert main(command) == 0
    assert (tmp_path / "out" / "results.json").read_text() == results


def test_problems_of_a_file_and_another_verifier(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": f"p{i}", "question": f"Multiply 6 by {i}.", "answer": str(6 * i)} for i in (3, 4)]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ["--policies", "tiny-llama", "--problems", str(path), "--samples", "3", "--output_dir", str(tmp_path)]
    command += ["--problem_options", '{"limit": 1}', "--verifier", "format", "--device", "cpu", "--no_picture"]
    assert main(command) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["problems"] == ["p3"]
    # Its answers are always boxed, right or wrong.
    assert results["policies"]["tiny-llama"]["all"]["mean@3"]["value"] == 1
    assert results["agreement"] == {"rescue": {"tiny-llama": {}}, "pairs": []}
    shown = capsys.readouterr().out
    assert "1 problem\n" in shown
    assert "by subject" not in shown
    assert "rescue" not in shown


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--problems", "arithmetics"], "problems='arithmetics'.*did you mean"),
        (["--policies"], "policies is empty; name at least one model"),
        (["--policies", "tiny-llama", "tiny-llama"], "policies names 'tiny-llama' twice"),
        (["--policies", "tiny-llama", "./no-such-model"], r"model_name_or_path='\./no-such-model' cannot be loaded"),
        (["--samples", "0"], "samples=0 is too small; give at least 1"),
        (["--limit", "0"], "limit=0 is too small; give at least 1"),
        (["--temperature", "0"], "temperature=0"),
        (["--generation_batch_size", "0"], "generation_batch_size=0 is invalid; give at least 1"),
        (["--verifier", "maths"], "maths"),
        (["--problem_options", '{"level": 3}'], "problems='arithmetic' cannot be made with"),
        (["--device", "cuda:99"], "device='cuda:99' does not exist here"),
        (["--max_completion_length", "100000"], "lower max_completion_length"),
        (["--backend", "vllm", "--device", "cpu"], "device='cpu' is not read by vLLM"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changes: list[str],
    message: str,
) -> None:
    command = ["--policies", "tiny-llama", "--problems", "arithmetic", "--limit", "2", "--output_dir", str(tmp_path)]
    assert main([*command, *changes]) == 2
    error = capsys.readouterr().err
    assert "error: " in error
    assert re.search(message, error), error
    assert not (tmp_path / "results.json").exists()


def test_an_interruption_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(collect, "answer", interrupted)
    assert main([*COMMAND, "--output_dir", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_without_matplotlib_the_remedy_is_named_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*COMMAND, "--output_dir", str(tmp_path / "out")]) == 2
    assert "mutual-rl[plots]" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_picture_of_policies_without_differences(tmp_path: Path) -> None:
    nothing = {"value": 0.0, "low": None, "high": None}
    draw_rescue({"x": {"y": nothing}, "y": {"x": nothing}}, tmp_path / "rescue.png")
    assert (tmp_path / "rescue.png").stat().st_size > 0


# vLLM ---------------------------------------------------------------------------------------------------------------------


@dataclass
class FakeParams:
    """`vllm.SamplingParams`: those of its fields that have to do with sampling, with its defaults."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        # vLLM hands it to torch.Generator, and its server allows what fits a signed integer.
        assert self.seed is None or 0 <= self.seed < 2**63


class FakeTokensPrompt(TypedDict):
    """`vllm.TokensPrompt`."""

    prompt_token_ids: list[int]


@dataclass
class FakeLogprob:
    """`vllm.logprobs.Logprob`."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclass
class FakeOutput:
    """`vllm.outputs.CompletionOutput`."""

    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, FakeLogprob]] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclass
class FakeRequestOutput:
    """`vllm.outputs.RequestOutput`."""

    outputs: list[FakeOutput]


class FakeLLM:
    """`vllm.LLM`: says the token `7` as often as its limit allows, or once and then the end of sequence if greedy."""

    last: FakeLLM
    finish_reason: str | None = None

    def __init__(
        self,
        model: str,
        *,
        skip_tokenizer_init: bool = False,
        trust_remote_code: bool = False,
        tensor_parallel_size: int = 1,
        dtype: str = "auto",
        seed: int = 0,
        gpu_memory_utilization: float = 0.9,
        enforce_eager: bool = False,
        enable_sleep_mode: bool = False,
        **options: Any,
    ) -> None:
        self.made = (model, skip_tokenizer_init, trust_remote_code, dtype)
        assert options == {
            "logprobs_mode": "processed_logprobs", "generation_config": "vllm", "enable_prefix_caching": True,
        }  # fmt: skip
        self.asked: list[tuple[list[FakeTokensPrompt], list[FakeParams]]] = []
        FakeLLM.last = self

    def generate(
        self,
        prompts: list[FakeTokensPrompt],
        sampling_params: list[FakeParams],
        *,
        use_tqdm: bool = True,
        lora_request: Any = None,
        priority: list[int] | None = None,
    ) -> list[FakeRequestOutput]:
        assert len(prompts) == len(sampling_params)
        self.asked.append((prompts, sampling_params))
        return [FakeRequestOutput([self._output(params)]) for params in sampling_params]

    def reset_prefix_cache(self) -> bool:
        return True

    def _output(self, params: FakeParams) -> FakeOutput:
        assert params.max_tokens is not None
        token_ids = [7, 1] if params.temperature == 0 else [7] * params.max_tokens
        logprobs = [
            {7: FakeLogprob(-0.5, 2), 9: FakeLogprob(-0.1, 1)} if t == 7 else {1: FakeLogprob(-0.25)} for t in token_ids
        ]
        reason = self.finish_reason or ("stop" if params.temperature == 0 else "length")
        return FakeOutput(0, "", token_ids, None, logprobs, reason)


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> type[FakeLLM]:
    module = ModuleType("vllm")
    module.__spec__ = ModuleSpec("vllm", None)
    module.LLM, module.SamplingParams, module.TokensPrompt = FakeLLM, FakeParams, FakeTokensPrompt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return FakeLLM


def test_vllm_gets_its_own_names_and_gives_our_records(fake_vllm: type[FakeLLM]) -> None:
    config = replace(TrainingConfig().policies()[0], dtype="bf16")
    policy = VllmPolicy(config)
    assert fake_vllm.last.made == (str(embedded_path("tiny-llama")), True, False, "bfloat16")

    tokenizer = load_tokenizer(config)
    question = user_message("Multiply 6 by 24.")
    prompt = policy.renderer.token_ids(question)
    assert prompt == load_renderer(config, tokenizer).token_ids(question)
    sampling = SamplingConfig(max_completion_length=3, temperature=0.7, top_p=0.9, top_k=5, min_p=0.1)
    finished: list[int] = []
    groups = policy.generate([prompt, (5,)], 2, sampling, [2**64 - 1, 2, 4, 6], progress=finished.append)
    prompts, params = fake_vllm.last.asked[1]  # the first one tries it out
    assert [request["prompt_token_ids"] for request in prompts] == [list(prompt), list(prompt), [5], [5]]
    drawn = FakeParams(
        temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, max_tokens=3, logprobs=0, detokenize=False, seed=2**63 - 1,
        stop_token_ids=[tokenizer.eos_token_id], ignore_eos=True,
    )  # fmt: skip
    assert params == [drawn, replace(drawn, seed=1), replace(drawn, seed=2), replace(drawn, seed=3)]
    assert sum(finished) == 4

    text = tokenizer.decode([7])
    assert [[one.text for one in group] for group in groups] == [[3 * text, 3 * text]] * 2
    cut = groups[0][0]
    assert (cut.token_ids, cut.logprobs, cut.finish_reason) == ((7, 7, 7), (-0.5, -0.5, -0.5), "length")
    assert cut.trace is not None
    assert (cut.trace.total, cut.trace.eos_logprob) == (-1.5, None)

    assert tokenizer.eos_token_id == 1
    ended = policy.generate([prompt], 1, replace(sampling, temperature=0.0), [0])[0][0]
    assert (ended.text, ended.token_ids, ended.finish_reason) == (text, (7, 1), "stop")
    assert ended.trace is not None
    assert (ended.trace.logprobs, ended.trace.eos_logprob) == ((-0.5,), -0.25)


def test_what_vllm_gives_up_is_no_completion(fake_vllm: type[FakeLLM], monkeypatch: pytest.MonkeyPatch) -> None:
    policy = VllmPolicy(TrainingConfig().policies()[0])
    monkeypatch.setattr(fake_vllm, "finish_reason", "abort")
    with pytest.raises(RuntimeError, match="finish_reason='abort'"):
        policy.generate([(5,)], 1, SamplingConfig(), [0])


def test_the_command_line_with_vllm(fake_vllm: type[FakeLLM], tmp_path: Path) -> None:
    command = ["--policies", "tiny-llama", "--problems", "arithmetic", "--limit", "2", "--samples", "2"]
    assert main([*command, "--backend", "vllm", "--output_dir", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["policies"]["tiny-llama"]["length"]["cut"] == 1
    assert results["policies"]["tiny-llama"]["all"]["reward@1"]["value"] == 0


def test_without_vllm_the_remedy_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert main([*COMMAND[:-2], "--backend", "vllm", "--output_dir", str(tmp_path)]) == 2
    assert "needs vLLM; install it as docs/scale.md says" in capsys.readouterr().err
