"""Adapters between verifiers and TRL's reward functions.

TRL calls a reward function with keyword lists (`prompts`, `completions`, and one list per dataset column) and expects a
list of floats, None where the sample is not to be judged. A completion is a string or a list of chat messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verifiers.batch import verify_batch
from verifiers.registry import resolve
from verifiers.verdict import Verdict, Verifier, reason_of

RewardFunction = Callable[..., list[float | None]]

_NOT_COLUMNS = frozenset({"prompts", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments"})


def completion_text(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """The text that a completion adds: itself, or the contents of its assistant messages."""
    if isinstance(completion, str):
        return completion
    return "\n".join(str(message.get("content") or "") for message in completion if message.get("role") == "assistant")


def as_reward_function(verifier: str | Verifier, answer_column: str = "answer") -> RewardFunction:
    """A TRL reward function that scores with a verifier.

    Args:
        verifier: a name, a dotted path, or a verifier.
        answer_column: the dataset's column with the reference answers. All other columns go to the verifier as metadata.

    Returns:
        A function of keyword lists; None for completions without a judgement (bad reference, failing verifier).

    Raises:
        ValueError: when called, if the column is missing.
    """
    chosen = resolve(verifier)

    def reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        if answer_column not in columns:
            raise ValueError(f"answer_column={answer_column!r} is not among the columns {sorted(columns)}")
        metadata = [
            {
                name: values[index]
                for name, values in columns.items()
                if name not in _NOT_COLUMNS and name != answer_column and isinstance(values, Sequence)
            }
            for index in range(len(completions))
        ]
        texts = [completion_text(completion) for completion in completions]
        answers = [str(answer) for answer in columns[answer_column]]
        return [verdict.score for verdict in verify_batch(chosen, texts, answers, metadata)]

    name = verifier if isinstance(verifier, str) else type(verifier).__name__
    reward.__name__ = name.replace(":", ".")  # TRL names its metrics after the function
    return reward


class RewardFunctionVerifier:
    """A verifier made from a TRL reward function.

    The function is called with one prompt and one completion at a time; the reference goes into `answer_column` and the
    metadata into columns of its own.
    """

    def __init__(self, function: RewardFunction, answer_column: str = "answer", conversational: bool = False) -> None:
        """Keep the function and how it is called.

        Args:
            function: takes keyword lists and returns one score per completion.
            answer_column: the name of the argument that takes the reference answers.
            conversational: give completions as chat messages instead of strings; TRL's own reward functions need it.
        """
        self._function = function
        self._answer_column = answer_column
        self._conversational = conversational

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """The function's value as a Verdict.

        Raises:
            ValueError: if the value lies outside [0, 1].
        """
        columns = {name: [value] for name, value in metadata.items()}
        prompts = columns.pop("prompt", [""])
        given = [{"role": "assistant", "content": completion}] if self._conversational else completion
        (score,) = self._function(prompts=prompts, completions=[given], **{self._answer_column: [answer]}, **columns)
        if score is None:
            return Verdict(None, completion, "error", "the reward function gave no score")
        return Verdict(float(score), completion, reason_of(score))
