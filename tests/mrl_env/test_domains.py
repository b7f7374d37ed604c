"""The domains with data from outside: word problems, multiple choice, and reasoning-gym's tasks."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import string
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pettingzoo.env_registry.registration import aec_registry, parallel_registry

import mrl_env
import verifiers
from algorithms import Trainer, TrainingConfig
from mrl_env import Problem, ProblemSource, registration, user_message
from mrl_env.problems import load_problems, registry
from mrl_env.problems.choice import is_anchor, names_letters, option_order, shuffled
from mrl_env.problems.files.rows import RowError, lettered

DATA = Path(__file__).parent / "data"

MULTIPLE_CHOICE = (
    "arc_challenge_test",
    "arc_challenge_train",
    "arc_easy_test",
    "arc_easy_train",
    "commonsenseqa_dev",
    "commonsenseqa_train",
    "openbookqa_test",
    "openbookqa_train",
)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def all_of(source: ProblemSource) -> list[Problem]:
    return [source[i] for i in range(len(source))]


def score(problem: Problem, completion: str) -> float | None:
    return verifiers.get(problem.verifier).verify(completion, problem.answer, **problem.evidence).score


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


class TestNaming:
    """A domain reads what the user names: a file, alone or behind the domain's name."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> str:
        return write_jsonl(tmp_path / "mine.jsonl", [{"question": "q", "answer": "so #### 1,080"}])

    def test_the_same_by_every_way(self, file: str) -> None:
        expected = Problem(
            "mine-0",
            user_message("q\nPut the final answer in \\boxed{}."),
            "1080",
            metadata={"solution": "so #### 1,080"},
        )
        sources = [
            load_problems(f"gsm8k:{file}"),
            load_problems(file, domain="gsm8k"),
            load_problems(Path(file), domain="gsm8k"),
            load_problems(f"gsm8k:{file}", domain="choice"),
            mrl_env.make("gsm8k-mutual-v0", problems=file, problems_per_episode=1).source,
            mrl_env.make("gsm8k-mutual-v0", problems=Path(file), problems_per_episode=1).source,
        ]
        for source in sources:
            assert all_of(source) == [expected]
            assert all_of(pickle.loads(pickle.dumps(source))) == [expected]

    def test_sources_of_their_own_are_left_alone(self) -> None:
        for problems in ("arithmetic", "mrl_env.problems:Arithmetic"):
            env = mrl_env.make("choice-mutual-v0", problems=problems)
            assert env.source[0] == load_problems("arithmetic")[0]
        ready = [Problem("p", user_message("?"), "1")]
        assert mrl_env.make("choice-mutual-v0", problems=ready, problems_per_episode=1).source is ready

    def test_data_is_no_option(self, file: str) -> None:
        """It would be one file for both splits, and held-out problems would be those of the training."""
        with pytest.raises(
            ValueError, match=r"data='x\.jsonl' is no option of 'gsm8k'; write problems='gsm8k:x\.jsonl'"
        ):
            load_problems("gsm8k", data="x.jsonl")
        with pytest.raises(ValueError, match="data='x' is no option"):
            load_problems(f"gsm8k:{file}", data="x")

    def test_a_domain_that_reads_no_data(self) -> None:
        with pytest.raises(ValueError, match="'arithmetic:Numbers'"):
            load_problems("arithmetic:Numbers")

    @pytest.mark.parametrize("domain", ["gsm8", "arithmetic"])
    def test_an_unknown_domain(self, domain: str, file: str) -> None:
        with pytest.raises(ValueError, match=rf"domain='{domain}' is no source that reads data.*(gsm8k|choice)"):
            load_problems(file, domain=domain)

    def test_a_slip_in_the_path_or_name(self, file: str) -> None:
        with pytest.raises(ValueError, match=r"did you mean 'mine\.jsonl'\?"):
            load_problems(file.replace("mine", "mien"), domain="gsm8k")
        with pytest.raises(ValueError, match=r"problems='choice:openbokqa'.*did you mean 'openbookqa'\?"):
            mrl_env.make("choice-mutual-v0", problems="openbokqa")

    def test_the_users_instruction_takes_the_place_of_the_domains(self, file: str) -> None:
        assert load_problems(f"gsm8k:{file}", instruction="Go.")[0].question == "q\nGo."
        assert load_problems(file, domain="gsm8k", instruction="Go.")[0].question == "q\nGo."
        with pytest.raises(ValueError, match="instruction=''"):
            load_problems(f"gsm8k:{file}", instruction="")

    def test_options_of_files(self, tmp_path: Path) -> None:
        rows = [{"question": f"q{i}", "answer": str(i), "level": i % 2} for i in range(6)]
        file = write_jsonl(tmp_path / "mine.jsonl", rows)
        assert [p.answer for p in all_of(load_problems(f"gsm8k:{file}", levels=[1], limit=2))] == ["1", "3"]
        with pytest.raises(ValueError, match=r"limt=2.*did you mean 'limit'"):
            load_problems(f"gsm8k:{file}", limt=2)


class TestHub:
    """By default the data come from the hub, whose columns these rows have."""

    OPENBOOKQA = {  # noqa: RUF012
        "id": "8-343",
        "question_stem": "Which is hot?",
        "choices": {"text": ["ice", "fire", "snow", "rain"], "label": ["A", "B", "C", "D"]},
        "answerKey": "B",
    }

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")
        calls: list[Any] = []

        def load_dataset(name: str, config: str, *, split: str, revision: None) -> list[dict[str, Any]]:
            calls.append((name, config, split))
            return [{"question": "q", "answer": "a #### 1,000"}] if "gsm8k" in name else [self.OPENBOOKQA]

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        return calls

    def test_gsm8k(self, asked: list[Any]) -> None:
        env = mrl_env.make("gsm8k-mutual-v0", problems_per_episode=1)
        assert (env.source[0].id, env.source[0].answer) == ("gsm8k-train-0", "1000")
        assert load_problems("gsm8k", split="test")[0].id == "gsm8k-test-0"
        load_problems("gsm8k", config="socratic")
        assert asked == [
            ("openai/gsm8k", c, s) for c, s in (("main", "train"), ("main", "test"), ("socratic", "train"))
        ]

    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            ("arc_challenge", ("allenai/ai2_arc", "ARC-Challenge", "test")),
            ("arc_easy", ("allenai/ai2_arc", "ARC-Easy", "test")),
            ("openbookqa", ("allenai/openbookqa", "main", "test")),
            ("commonsenseqa", ("tau/commonsense_qa", "default", "validation")),
            ("hub:me/mine", ("me/mine", None, "test")),
        ],
    )
    def test_choice(self, asked: list[Any], data: str, expected: tuple[str, ...]) -> None:
        problem = load_problems(data, domain="choice", split="test")[0]
        assert asked == [expected]
        assert problem.question.startswith("Which is hot?\nA. ")
        assert problem.metadata["options"][string.ascii_uppercase.index(problem.answer)] == "fire"
        env = mrl_env.make("choice-mutual-v0", problems=data, problems_per_episode=1)
        assert all_of(env.source) == [problem]
        assert asked[1][2] == "train"

    def test_choice_by_default(self, asked: list[Any]) -> None:
        mrl_env.make("choice-mutual-v0", problems_per_episode=1)
        assert asked == [("allenai/ai2_arc", "ARC-Challenge", "train")]

    @pytest.mark.parametrize("id", ["gsm8k-mutual-v0", "choice-mutual-v0"])
    def test_without_a_connection(self, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")

        def load_dataset(*args: Any, **kwargs: Any) -> None:
            raise ConnectionError("no network")

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        with pytest.raises(ValueError, match=r"no network.*the connection, or give a file"):
            mrl_env.make(id)

    @pytest.mark.parametrize("id", ["gsm8k-mutual-v0", "choice-mutual-v0"])
    def test_without_datasets(self, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(ValueError, match=r"pip install 'mutual-rl\[data\]'"):
            mrl_env.make(id)


class TestGsm8k:
    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            ("Two steps.\n#### 72", "72"),
            ("#### 1,080", "1080"),
            ("#### 109,200,000", "109200000"),
            ("#### -8", "-8"),
            ("#### 2.5", "2.5"),
            ("12", "12"),
        ],
    )
    def test_the_number_behind_the_hashes(self, tmp_path: Path, answer: str, expected: str) -> None:
        file = write_jsonl(tmp_path / "a.jsonl", [{"question": "How many?", "answer": answer}])
        problem = load_problems(f"gsm8k:{file}")[0]
        assert problem.answer == expected
        for completion in (f"\\boxed{{{expected}}}", f"So:\n#### {expected}", f"The answer is {expected}."):
            assert score(problem, completion) == 1
        assert score(problem, "\\boxed{7}") == 0

    @pytest.mark.parametrize("answer", ["#### twelve", "#### 1,2", "#### 3/4", "#### 5 apples"])
    def test_an_answer_that_is_no_number(self, tmp_path: Path, answer: str) -> None:
        rows = [{"question": "p", "answer": "1"}, {"question": "q", "answer": answer}]
        file = write_jsonl(tmp_path / "a.jsonl", rows)
        with pytest.raises(ValueError, match=rf"line 2, the answer '{answer[5:]}' is no number; write one"):
            load_problems(f"gsm8k:{file}")
        with pytest.warns(UserWarning, match="1 malformed row \\(1 answer is no number\\)"):
            assert len(load_problems(f"gsm8k:{file}", skip_invalid=True)) == 1

    def test_near_misses_are_wrong(self) -> None:
        """Numbers are compared exactly, and "1,080" is one number."""
        problem = Problem("p", user_message("?"), "10000")
        assert score(problem, "\\boxed{10,000}") == score(problem, "\\boxed{\\$10{,}000}") == 1
        assert score(problem, "\\boxed{10001}") == score(problem, "\\boxed{10}") == 0

    @pytest.mark.parametrize(("name", "count"), [("gsm8k_train", 7473), ("gsm8k_test", 1319)])
    def test_the_dataset(self, shared: Path, name: str, count: int) -> None:
        path = shared / "data" / f"{name}.jsonl"
        env = mrl_env.make("gsm8k-mutual-v0", problems=str(path))
        problems, rows = all_of(env.source), rows_of(path)
        assert len(problems) == len(rows) == count
        for problem, row in zip(problems, rows, strict=True):
            assert problem.answer == row["solution"].rsplit("####")[-1].strip().replace(",", "")
            assert problem.question.startswith(row["problem"])
        for problem in problems[::20]:
            assert score(problem, f"\\boxed{{{problem.answer}}}") == 1
            assert score(problem, f"\\boxed{{{int(problem.answer) + 1}}}") == 0

    def test_nothing_held_out_is_trained_on(self, shared: Path) -> None:
        train, test = (
            {row["problem"] for row in rows_of(shared / "data" / f"gsm8k_{split}.jsonl")} for split in ("train", "test")
        )
        assert train.isdisjoint(test)


OPTIONS = st.lists(st.text(min_size=1), min_size=2, max_size=8)


def multiple_choice(options: list[str], answer: str, id: str = "p") -> Problem:
    return Problem(id, user_message(f"Which?\n{lettered(options)}"), answer, "choice", {"options": options})


class TestShuffling:
    @given(OPTIONS, st.integers(), st.data())
    def test_the_options_are_kept_and_the_right_one_stays_right(
        self, options: list[str], seed: int, data: st.DataObject
    ) -> None:
        gold = data.draw(st.integers(0, len(options) - 1))
        problem = shuffled(multiple_choice(options, string.ascii_uppercase[gold]), seed)
        permuted = problem.metadata["options"]
        assert sorted(permuted) == sorted(options)
        assert permuted[string.ascii_uppercase.index(problem.answer)] == options[gold]
        lines = [f"{letter}. {text}" for letter, text in zip(string.ascii_uppercase, permuted, strict=False)]
        assert problem.question == "\n".join(["Which?", *lines])
        assert problem == shuffled(multiple_choice(options, string.ascii_uppercase[gold]), seed)

    def test_seed_and_id_decide(self) -> None:
        options = ["red", "green", "blue", "grey"]
        by_seed = [tuple(option_order(options, seed, "p")) for seed in range(480)]
        by_id = [tuple(option_order(options, 0, f"p{i}")) for i in range(480)]
        for orders in (by_seed, by_id):
            # 24 orders, 20 times each: a count outside of 2 to 45 is farther than 4 deviations.
            counts = [orders.count(order) for order in itertools.permutations(range(4))]
            assert all(2 <= count <= 45 for count in counts)
        same = sum(option_order(options, 0, f"p{i}") == option_order(options, 1, f"p{i}") for i in range(480))
        assert same < 60  # 20 are expected

    @pytest.mark.parametrize(
        "anchor",
        [
            "all of the above",
            "None of the above.",
            "none of these",
            "All of these are correct",
            "all the above",
            "both",
            "Neither of them",
            "none of the other options",
            "any of these",
            "two of the above",
            "All are true.",
            "None",
        ],
    )
    def test_anchors_stay_last(self, anchor: str) -> None:
        assert is_anchor(anchor)
        orders = {tuple(option_order(["red", "green", "blue", anchor], seed, "p")) for seed in range(100)}
        assert orders == {(*order, 3) for order in itertools.permutations(range(3))}

    def test_an_anchor_that_speaks_of_all_others_goes_last(self) -> None:
        orders = {tuple(option_order(["none of these", "red", "both", "green"], seed, "p")) for seed in range(50)}
        assert orders == {(1, 3, 0, 2), (3, 1, 0, 2)}

    @pytest.mark.parametrize(
        "option",
        [
            "both parents",
            "all planets are round",
            "two",
            "none too well",
            "either",
            "above",
            "the answer",
            "options",
            "",
        ],
    )
    def test_other_options_are_no_anchors(self, option: str) -> None:
        assert not is_anchor(option)

    @pytest.mark.parametrize(
        "option",
        [
            "both A and B",
            "A and C",
            "B and D",
            "(a) and (b)",
            "Either A or B, but not both",
            "A, B, and C",
            "B only",
            "Neither A nor D is correct.",
            "A/B",
            "C",
            "option B",
        ],
    )
    def test_letters_keep_their_meaning(self, option: str) -> None:
        assert names_letters(option, 4)
        for seed in range(20):
            assert option_order(["red", option, "blue", "grey"], seed, "p") == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        "option", ["Cl, Br, and F", "vitamin C", "A dog", "E", "E and F", "both", "H2O", "ab", "K"]
    )
    def test_other_options_name_no_letters(self, option: str) -> None:
        assert not names_letters(option, 4)

    @pytest.mark.parametrize(
        "options",
        [
            ["red", "green", "all of the above", "blue"],
            ["none of the above", "red", "green"],
            ["red", "both of the above", "none of these", "blue"],
        ],
    )
    def test_what_stands_above_stays_above(self, options: list[str]) -> None:
        for seed in range(20):
            assert option_order(options, seed, "p") == list(range(len(options)))

    def test_all_agents_and_splits_see_the_same(self, tmp_path: Path) -> None:
        rows = [{"problem": "q", "options": list("vwxyz"), "answer": "C", "id": f"p{i}"} for i in range(30)]
        file = write_jsonl(tmp_path / "a.jsonl", rows)
        env = mrl_env.make("choice-mutual-v0", problems=file, seed=3, agents=3)
        observations, _ = env.reset()
        assert observations["policy_0"] == observations["policy_1"] == observations["policy_2"]
        assert all_of(env.source) == all_of(load_problems(f"choice:{file}", split="test", seed=3))
        assert all_of(env.source) != all_of(load_problems(f"choice:{file}", seed=4))

    def test_rows_without_options(self, tmp_path: Path) -> None:
        file = write_jsonl(tmp_path / "a.jsonl", [{"problem": "q", "answer": "1"}])
        with pytest.raises(ValueError, match=r"line 1, there is no column for the options \(options, choices\)"):
            load_problems(f"choice:{file}")
        with pytest.raises(RowError):
            shuffled(Problem("p", user_message("q"), "1"), 0)


class TestChoice:
    @pytest.mark.parametrize("name", MULTIPLE_CHOICE)
    def test_the_datasets(self, shared: Path, name: str) -> None:
        path = shared / "data" / f"mc_{name}.jsonl"
        rows = rows_of(path)
        problems = all_of(mrl_env.make("choice-mutual-v0", problems=str(path), seed=1).source)
        assert [problem.id for problem in problems] == [row["id"] for row in rows]
        assert len(problems) == path.read_bytes().count(b"\n")
        moved = 0
        for problem, row in zip(problems, rows, strict=True):
            options = problem.metadata["options"]
            assert sorted(options) == sorted(row["options"])
            gold = row["options"][string.ascii_uppercase.index(row["answer"])]
            assert options[string.ascii_uppercase.index(problem.answer)] == gold
            assert problem.question.endswith("\nPut the letter of the right option in \\boxed{}.")
            assert any(map(is_anchor, options[:-1])) <= (options == row["options"] or is_anchor(options[-1]))
            moved += options != row["options"]
        # One of 24 orders of four options, one of 120 of five, is the old one.
        assert moved / len(rows) > 0.9
        letters = [problem.answer for problem in problems]
        count = max(len(row["options"]) for row in rows[:20])
        for letter in string.ascii_uppercase[:count]:
            assert letters.count(letter) / len(letters) == pytest.approx(1 / count, abs=0.05)

    @pytest.mark.parametrize("name", MULTIPLE_CHOICE)
    def test_only_the_right_letter_is_right(self, shared: Path, name: str) -> None:
        for problem in all_of(load_problems(f"choice:{shared / 'data' / f'mc_{name}.jsonl'}", limit=400)):
            options = problem.metadata["options"]
            for letter, option in zip(string.ascii_uppercase, options, strict=False):
                expected = float(letter == problem.answer)
                assert score(problem, f"\\boxed{{{letter}}}") == expected
                assert score(problem, f"I think of it.\nThe answer is ({letter}).") == expected
                if options.count(option) == 1:
                    assert score(problem, f"<answer>{letter}. {option}</answer>") == expected

    @pytest.mark.parametrize(
        ("answer", "right"),
        [
            ("(B) not hungry", "B"),
            (r"\text{(B) not hungry}", "B"),
            ("b. Not hungry.", "B"),
            ("B not hungry", "B"),
            ("not hungry", "B"),
            ("C: and so on", "C"),
            ("(D) A or B", "D"),
            ("A or B", "D"),
            ("(A) not hungry", ""),
            ("(C) not hungry", ""),
            ("(B) hungry", ""),
            ("(D) and so on", ""),
            ("B. not", ""),
            ("A, B", ""),
            ("A and C", ""),
            ("A not B", ""),
            ("E hungry", ""),
        ],
    )
    def test_a_letter_with_its_own_text(self, answer: str, right: str) -> None:
        options = ["hungry", "not hungry", "and so on", "A or B"]
        for completion in (f"\\boxed{{{answer}}}", f"<answer>{answer}</answer>"):
            accepted = [
                letter
                for letter in "ABCD"
                if verifiers.get("choice").verify(completion, letter, options=options).success
            ]
            assert accepted == list(right)

    @pytest.mark.parametrize(
        ("answer", "right"),
        [
            ("A, B", ""),
            (r"\text{A, B}", ""),
            ("A B", ""),
            ("A. B", "A"),
            ("(A) B", "A"),
            ("C. O", "C"),
            ("(B) O", ""),
            ("A. A", ""),
        ],
    )
    def test_options_that_are_letters(self, answer: str, right: str) -> None:
        options = ["B", "A", "O"]
        judged = {
            letter: verifiers.get("choice").verify(f"\\boxed{{{answer}}}", letter, options=options) for letter in "ABC"
        }
        assert [letter for letter, verdict in judged.items() if verdict.success] == list(right)


class TestTraining:
    """A step of a run in each domain, with the embedded policies, which know nothing of it."""

    def train(self, folder: Path, **arguments: Any) -> list[dict[str, Any]]:
        config = TrainingConfig(
            **arguments,
            max_steps=1,
            problems_per_step=2,
            num_generations=2,
            per_device_train_batch_size=(2,),
            max_completion_length=8,
            eval_size=3,
            eval_samples=1,
            output_dir=str(folder / "run"),
        )
        Trainer(config).train()
        return rows_of(folder / "run" / "completions.jsonl")

    def test_files(self, tmp_path: Path) -> None:
        for domain in ("choice", "gsm8k"):
            file = str(DATA / f"{domain}.jsonl")
            held_out = write_jsonl(tmp_path / "held-out.jsonl", rows_of(Path(file))[:3])
            arguments = {"env": f"{domain}-mutual-v0", "problems": file, "eval_problems": f"{domain}:{held_out}"}
            rows = self.train(tmp_path / domain, **arguments)
            assert len(rows) > 4
            assert all(row["question"].endswith("in \\boxed{}.") for row in rows)

    def test_drawn(self, tmp_path: Path) -> None:
        pytest.importorskip("reasoning_gym", reason="the extra 'reasoning' is not installed")
        rows = self.train(tmp_path, env="reasoning-gym-mutual-v0", problem_options={"dataset": "chain_sum"})
        assert len(rows) > 4
        assert all("<answer>" in row["question"] for row in rows)


def test_the_domain_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_ours", [*registration._ours])
    monkeypatch.setattr(registry, "_registry", {**registry._registry})
    for known in (aec_registry, parallel_registry):
        monkeypatch.setitem(known, "chemistry-mutual-v0", None)
        monkeypatch.delitem(known, "chemistry-mutual-v0")
    page = (Path(__file__).parents[2] / "docs" / "domains.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def " in block)
    exec(code, {})
    file = write_jsonl(tmp_path / "train.jsonl", [{"question": "How long is it?", "answer": r"2\text{ m}"}])
    env = mrl_env.make("chemistry-mutual-v0", problems=file, problems_per_episode=1)
    assert env.source[0].question == "How long is it?\nGive the unit as well. Put the answer in \\boxed{}."
    assert score(env.source[0], r"\boxed{200\text{ cm}}") == 1
    assert load_problems(f"chemistry:{file}")[0] == env.source[0]


class TestReasoningGym:
    DATASETS = ("leg_counting", "chain_sum", "spiral_matrix")

    @pytest.fixture(autouse=True)
    def _package(self) -> None:
        pytest.importorskip("reasoning_gym", reason="the extra 'reasoning' is not installed")

    @pytest.mark.parametrize("dataset", DATASETS)
    def test_nothing_held_out_is_trained_on(self, dataset: str) -> None:
        seen = {
            (split, seed): [
                p.question for p in all_of(load_problems("reasoning_gym", split, seed, dataset=dataset, size=300))
            ]
            for split in ("train", "test")
            for seed in (0, 1)
        }
        for seed, other in itertools.product((0, 1), repeat=2):
            assert set(seen["train", seed]).isdisjoint(seen["test", other])
        for split in ("train", "test"):
            # Neighbouring seeds share few questions, and none at a neighbouring place.
            assert len(set(seen[split, 0]) & set(seen[split, 1])) < 15
            assert len(set(seen[split, 0])) > 280

    def test_few_questions_are_parted_as_well(self) -> None:
        """Sums of two digits: 81 questions, so that a mere difference of seeds would not part them."""
        config = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
        train, test = (
            {
                p.question
                for p in all_of(load_problems("reasoning_gym", split, 0, dataset="chain_sum", config=config, size=300))
            }
            for split in ("train", "test")
        )
        assert train.isdisjoint(test)
        assert len(train) > len(test) > 10

    @pytest.mark.parametrize("dataset", [*DATASETS, "graph_color", "knights_knaves"])
    def test_deterministic_and_right(self, dataset: str) -> None:
        source, again = (load_problems("reasoning_gym", seed=7, dataset=dataset, size=5) for _ in range(2))
        problems = all_of(source)
        assert problems == all_of(again) == all_of(pickle.loads(pickle.dumps(source)))
        assert source[-1] == problems[-1]
        assert len({problem.id for problem in problems}) == 5
        for problem in problems:
            assert problem.metadata["subject"] == dataset
            assert problem.question.endswith("\nPut only the final answer between <answer> and </answer>.")
            verifiers.check_answer(problem.verifier, problem.answer, **problem.evidence)
            assert score(problem, "<answer>no idea</answer>") != 1
            if dataset == "graph_color":
                assert problem.answer == ""  # any proper colouring will do
            else:
                assert score(problem, f"<answer>{problem.answer}</answer>") == 1

    def test_the_settings_reach_the_data_set(self) -> None:
        problem = load_problems("reasoning_gym", dataset="leg_counting", config={"min_animals": 2, "max_animals": 2})[0]
        animals = problem.metadata["entry"]["metadata"]["animals"]
        assert len(animals) == 2
        assert all(f"{count} {animal}" in problem.question for animal, count in animals.items())

    def test_by_its_environment(self) -> None:
        options = {"dataset": "chain_sum", "config": {"max_terms": 3}}
        env = mrl_env.make("reasoning-gym-mutual-v0", problem_options=options, problems_per_episode=1, generations=2)
        _, infos = env.reset(seed=0)
        answer = infos["policy_0"]["problems"][0].answer
        _, rewards, *_ = env.step({"policy_0": [[f"<answer>{answer}</answer>", "?"]], "policy_1": [["?", "?"]]})
        assert rewards["policy_0"] == 0.5
        assert rewards["policy_1"] == 0

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"split": "dev"}, r"split='dev'"),
            ({"seed": 0.5}, r"seed=0\.5"),
            ({"size": 0}, r"size=0 is no positive integer"),
            ({"dataset": "leg_countin"}, r"dataset='leg_countin'.*did you mean 'leg_counting'\?"),
            ({"config": [1]}, r"config=\[1\] is no mapping"),
            ({"config": {"seed": 3}}, r"config has seed=3; give seed beside config"),
            ({"config": {"max_animal": 3}}, r"config=\{'max_animal': 3\} does not do for the data set 'leg_counting'"),
            ({"config": {"min_animals": -1}}, r"config=\{'min_animals': -1\} does not do"),
            ({"animals": 3}, r"it takes split, seed, dataset, config, size"),
        ],
    )
    def test_invalid_arguments(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            load_problems("reasoning_gym", **options)

    def test_too_few_questions(self) -> None:
        """With a single question one of the splits must be empty."""
        arguments: dict[str, Any] = {"dataset": "count_primes", "config": {"min_n": 5, "max_n": 5}}
        with pytest.raises(RuntimeError, match=r"no (train|test) question of 'count_primes' in 100 draws.*widen it"):
            [load_problems("reasoning_gym", split, **arguments)[0] for split in ("train", "test")]

    def test_out_of_range(self) -> None:
        source = load_problems("reasoning_gym", size=3)
        for index in (3, -4):
            with pytest.raises(IndexError, match="out of range for 3 problems"):
                source[index]

    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
        with pytest.raises(ValueError, match=r"run: pip install reasoning-gym"):
            mrl_env.make("reasoning-gym-mutual-v0")
