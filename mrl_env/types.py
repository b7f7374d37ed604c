"""The records that travel: a problem, a completion of it, and the experience that is shared about it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from verifiers.verdict import Verdict

FinishReason = Literal["stop", "boxed", "length"]
"""Why a completion ended: its end-of-sequence token, a complete boxed answer, or the length limit."""

AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""What an agent may be called: its name becomes a folder, a file and a part of metrics' names."""

Message = Mapping[str, str]
"""One chat message: `{"role": "user", "content": "..."}`."""


@dataclass(frozen=True)
class Problem:
    """A question with a verifiable answer.

    The question is a list of chat messages, never a rendered prompt: each policy renders it once with its own template,
    so no special token of one model reaches another.

    Attributes:
        id: unique within its source; records of different policies about one problem meet under it.
        messages: the conversation that asks the question.
        answer: the reference answer that the verifier gets.
        verifier: name of the verifier in the registry, or a dotted path `pkg.module:Class`.
        metadata: anything else, as JSON values; `subject` (str), `level` (int), `solution` (str) and `options`
            (list of str) are the names this suite knows.

    Example:
        >>> problem = Problem("p0", user_message("What is 1 + 1?"), "2", metadata={"subject": "prealgebra"})
        >>> problem.question
        'What is 1 + 1?'
    """

    id: str
    messages: tuple[Message, ...]
    answer: str
    verifier: str = "math"
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """The last message's content."""
        return self.messages[-1]["content"]

    @property
    def evidence(self) -> dict[str, Any]:
        """What a verifier gets beside completion and answer: the metadata, and the `question`, so as to know a copy of it."""
        return {"question": self.question, **self.metadata}


def user_message(content: str) -> tuple[Message, ...]:
    """A conversation of one user message."""
    return ({"role": "user", "content": content},)


@runtime_checkable
class ProblemSource(Protocol):
    """A sequence of problems: anything with `__len__` and `__getitem__` will do."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Problem: ...


@dataclass(frozen=True)
class Trace:
    """Sampling log-probs of one completion, laid over the bytes of its text: no token ids, no tensors.

    Attributes:
        spans: `(start, end)` byte offsets of each text token; in order they partition the UTF-8 encoding of the text.
        logprobs: log-prob in nats of each of these tokens, of equal length.
        eos_logprob: log-prob of the end-of-sequence token; None unless the completion really stopped with it.

    Raises:
        ValueError: if the lengths differ or the spans leave a gap or overlap.

    Example:
        >>> Trace(spans=((0, 2), (2, 5)), logprobs=(-0.25, -0.5), eos_logprob=-0.125).total
        -0.875
    """

    spans: tuple[tuple[int, int], ...]
    logprobs: tuple[float, ...]
    eos_logprob: float | None = None

    def __post_init__(self) -> None:
        if len(self.spans) != len(self.logprobs):
            raise ValueError(f"{len(self.spans)} spans but {len(self.logprobs)} logprobs; give one per token")
        position = 0
        for start, end in self.spans:
            if start != position or end <= start:
                raise ValueError(f"span ({start}, {end}) does not continue at byte {position}; spans must partition")
            position = end

    @property
    def total(self) -> float:
        """Sum of all log-probs, the end-of-sequence token included."""
        return math.fsum((*self.logprobs, self.eos_logprob or 0.0))


@dataclass(frozen=True)
class Completion:
    """One answer by one policy. A plain string is enough for the environment; a learner wants the rest.

    Attributes:
        text: the decoded completion, special tokens left out.
        token_ids: ids as sampled, the end-of-sequence token included if it was drawn; kept for ever, never re-encoded.
        logprobs: log-prob in nats of each id at sampling; same length as `token_ids`.
        finish_reason: why it ended.
        policy_version: number of optimizer steps of the policy that wrote it.
        trace: the same log-probs over byte spans, to be shared; None if not recorded, or the ids are not valid UTF-8.
        entropy: mean entropy in nats of the sampling distribution over the completion's tokens, if recorded.

    Raises:
        ValueError: if `token_ids` and `logprobs` differ in length.

    Example:
        >>> Completion("4", token_ids=(19, 2), logprobs=(-0.2, -0.1), finish_reason="stop").finish_reason
        'stop'
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: FinishReason = "stop"
    policy_version: int = 0
    trace: Trace | None = None
    entropy: float | None = None

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token_ids but {len(self.logprobs)} logprobs; give one per token")


@dataclass(frozen=True)
class Experience:
    """What one policy tells the others about one completion: the record of the Shared Experience Exchange.

    Attributes that a subscriber's channels do not carry are None in its view.

    Attributes:
        problem_id: the problem that it answers.
        agent: who wrote it.
        index: its place among this agent's completions of the problem.
        finish_reason: why it ended.
        policy_version: optimizer steps of its author at sampling.
        text: the completion (channel `rollouts`).
        verdict: the author's verifier's judgement (channel `rewards`).
        advantage: advantage within the author's own group (channel `advantages`).
        trace: log-probs over byte spans (channel `traces`).

    Example:
        >>> record = Experience("p0", "policy_1", 0, "stop", 3, text="2", verdict=Verdict(1.0, "2", "right"))
        >>> record.id, record.success
        ('policy_1/p0/0@3', True)
    """

    problem_id: str
    agent: str
    index: int
    finish_reason: FinishReason
    policy_version: int
    text: str | None = None
    verdict: Verdict | None = None
    advantage: float | None = None
    trace: Trace | None = None

    @property
    def id(self) -> str:
        """Unique name of the record among those of one round."""
        return f"{self.agent}/{self.problem_id}/{self.index}@{self.policy_version}"

    @property
    def score(self) -> float | None:
        """The verdict's score, if there is one and it is visible."""
        return None if self.verdict is None else self.verdict.score

    @property
    def success(self) -> bool:
        """A verified success: visible, judged, and a score of 1."""
        return self.verdict is not None and self.verdict.success


VERIFIER_ARGUMENTS = frozenset({"self", "verifier", "completion", "answer", "question"})
"""Names that a problem's metadata may not have: a verifier gets them as arguments already."""

Action = Sequence[Sequence[str | Completion]]
"""What an agent plays: for each problem of the episode, its completions."""
