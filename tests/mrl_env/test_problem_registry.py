"""`load_problems`: what a word for `problems=` is taken for, and what it is told if it is nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mrl_env.problems import load_problems, names, register, registry
from mrl_env.types import Problem, user_message


def toy_source(**options: Any) -> list[Problem]:
    """One problem, which shows what the factory was called with."""
    return [Problem("toy-0", user_message("What is 1 + 1?"), "2", metadata=options)]


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry with two names of this file's, so that what a test registers does not last."""
    monkeypatch.setattr(registry, "_registry", {"geography": toy_source, "history": toy_source})


class TestNames:
    def test_a_registered_name(self) -> None:
        register("biology", toy_source)
        assert names() == ("biology", "geography", "history")
        source = load_problems("biology", split="test", seed=7, levels=[1])
        assert source[0].metadata == {"split": "test", "seed": 7, "levels": [1]}

    def test_the_defaults(self) -> None:
        assert load_problems("history")[0].metadata == {"split": "train", "seed": 0}

    def test_a_taken_name(self) -> None:
        with pytest.raises(ValueError, match=r"name='history' is taken.*replace=True"):
            register("history", toy_source)
        register("history", lambda **_: [Problem("other", user_message("?"), "1")], replace=True)
        assert load_problems("history")[0].id == "other"

    def test_an_unknown_name(self) -> None:
        with pytest.raises(ValueError, match=r"problems='geografy' .*\.jsonl.*did you mean 'geography'\?"):
            load_problems("geografy")
        with pytest.raises(ValueError, match=r"problems='zzz' .*known: geography, history"):
            load_problems("zzz")

    def test_a_registered_name_wins_over_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("history").write_text("not a problem file")
        assert load_problems("history")[0].id == "toy-0"


class TestDottedPaths:
    @pytest.fixture(autouse=True)
    def user_module(self, monkeypatch: pytest.MonkeyPatch) -> None:
        module = ModuleType("users_own_problems")
        module.source = toy_source  # type: ignore[attr-defined]
        module.number = lambda **_: 3  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "users_own_problems", module)

    def test_it_is_called_like_a_registered_factory(self) -> None:
        source = load_problems("users_own_problems:source", split="test", seed=3, size=2)
        assert source[0].metadata == {"split": "test", "seed": 3, "size": 2}

    def test_a_missing_attribute(self) -> None:
        with pytest.raises(ValueError, match=r"has no 'sauce'; did you mean 'source'\?"):
            load_problems("users_own_problems:sauce")

    def test_a_missing_module(self) -> None:
        with pytest.raises(ValueError, match="'no_such_module_here' cannot be imported"):
            load_problems("no_such_module_here:source")

    def test_a_factory_of_something_else(self) -> None:
        with pytest.raises(
            ValueError, match="'users_own_problems:number' gives a int; it needs __len__ and __getitem__"
        ):
            load_problems("users_own_problems:number")


class TestReadyObjects:
    def test_a_list_is_taken_as_it_is(self) -> None:
        problems = toy_source()
        assert load_problems(problems) is problems

    def test_any_object_with_len_and_getitem(self) -> None:
        class Squares:
            def __len__(self) -> int:
                return 3

            def __getitem__(self, index: int, /) -> Problem:
                return Problem(f"square-{index}", user_message(f"What is {index} squared?"), str(index**2))

        source = load_problems(Squares())
        assert [source[index].answer for index in range(len(source))] == ["0", "1", "4"]

    @pytest.mark.parametrize("other", [3, iter([])])
    def test_anything_else(self, other: Any) -> None:
        with pytest.raises(ValueError, match="it needs __len__ and __getitem__"):
            load_problems(other)


@pytest.mark.parametrize("problems", [[], "nothing"])
def test_an_empty_source(problems: str | Sequence[Problem]) -> None:
    register("nothing", lambda **_: [])
    with pytest.raises(ValueError, match=r"has no problems in split 'test'"):
        load_problems(problems, split="test")


class TestFilesAndHub:
    def test_a_file_is_one_split_and_takes_options(self, tmp_path: Path) -> None:
        path = tmp_path / "mine.jsonl"
        path.write_text('{"problem": "p", "answer": "1"}\n{"problem": "q", "answer": "2"}\n')
        for split in ("train", "test"):
            source = load_problems(str(path), split=split, seed=5)
            assert [source[index].id for index in range(len(source))] == ["mine-0", "mine-1"]
        assert len(load_problems(str(path), limit=1)) == 1

    def test_a_missing_file(self, tmp_path: Path) -> None:
        (tmp_path / "train.jsonl").touch()
        with pytest.raises(ValueError, match=r"there is no such file; did you mean 'train\.jsonl'\?"):
            load_problems(str(tmp_path / "trian.jsonl"))

    def test_an_empty_file(self, tmp_path: Path) -> None:
        (tmp_path / "train.jsonl").touch()
        with pytest.raises(ValueError, match="has no rows"):
            load_problems(str(tmp_path / "train.jsonl"))

    def test_a_hub_id_without_its_prefix(self) -> None:
        with pytest.raises(ValueError, match=r"'hub:owner/name'"):
            load_problems("openai/gsm8k")

    def test_instruction_stands_below_the_question_of_any_source(self, tmp_path: Path) -> None:
        (tmp_path / "train.jsonl").write_text('{"problem": "What is 6 times 3?", "answer": "18"}')
        source = load_problems(str(tmp_path / "train.jsonl"), instruction="Put it in a box.")
        assert source[0].question == "What is 6 times 3?\nPut it in a box."
        chat = Problem("p", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}), "4")
        assert [m["content"] for m in load_problems([chat], instruction="Go.")[0].messages] == [
            "Be brief.",
            "2 + 2?\nGo.",
        ]
        with pytest.raises(ValueError, match=r"instruction=''"):
            load_problems([chat], instruction="")

    def test_demonstrations_come_before_each_problem_and_behind_its_system_message(self, tmp_path: Path) -> None:
        pairs = [["2 + 2?", "\\boxed{4}"], ["9 - 2?", "\\boxed{7}"]]
        chat = Problem("p", ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 5?"}), "6")
        (shown,) = load_problems([chat], instruction="Go.", demonstrations=pairs)  # type: ignore[misc]
        assert [(message["role"], message["content"]) for message in shown.messages] == [
            ("system", "Be brief."),
            ("user", "2 + 2?"),
            ("assistant", "\\boxed{4}"),
            ("user", "9 - 2?"),
            ("assistant", "\\boxed{7}"),
            ("user", "1 + 5?\nGo."),
        ]
        assert (shown.id, shown.answer, shown.question) == ("p", "6", "1 + 5?\nGo.")
        (tmp_path / "train.jsonl").write_text('{"problem": "What is 6 times 3?", "answer": "18"}')
        source = load_problems(str(tmp_path / "train.jsonl"), demonstrations=pairs)
        assert (len(source), [m["role"] for m in source[0].messages]) == (1, ["user", "assistant"] * 2 + ["user"])
        assert load_problems([chat], demonstrations=[])[0] == chat

    @pytest.mark.parametrize(
        "wrong", ["2 + 2?", ["2 + 2?", "4"], [["2 + 2?"]], [["2 + 2?", ""]], [["2 + 2?", 4]], [[]], 3]
    )
    def test_a_demonstration_that_is_no_pair_of_texts(self, wrong: Any) -> None:
        with pytest.raises(ValueError, match=r"demonstrations=.* is no question with its reply"):
            load_problems([Problem("p", user_message("?"), "1")], demonstrations=wrong)

    def test_an_option_that_the_source_does_not_take(self) -> None:
        def alphabet(split: str, seed: int, letters: int = 3) -> list[Problem]:
            return [Problem(f"p{i}", user_message("?"), "a") for i in range(letters)]

        register("alphabet", alphabet)
        assert len(load_problems("alphabet", letters=5)) == 5
        with pytest.raises(ValueError, match=r"problems='alphabet'.*'leters'.*it takes split, seed, letters"):
            load_problems("alphabet", leters=5)

    def test_the_hub(self, monkeypatch: pytest.MonkeyPatch) -> None:
        datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")
        asked: list[Any] = []

        def load_dataset(*args: Any, **kwargs: Any) -> list[dict[str, str]]:
            asked.append((args, kwargs))
            return [{"question": "q", "answer": "a #### 1"}]

        monkeypatch.setattr(datasets, "load_dataset", load_dataset)
        source = load_problems("hub:openai/gsm8k", split="test", seed=4, config="main", instruction="Go.")
        assert asked == [(("openai/gsm8k", "main"), {"split": "test", "revision": None})]
        assert (source[0].id, source[0].question) == ("gsm8k-test-0", "q\nGo.")
