"""The verifier registered as "math"."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifiers.choice import read_letter
from verifiers.extraction import extract, extract_reference
from verifiers.isolation import DeadlineError, WorkerError, shared_pool
from verifiers.math.compare import Judge
from verifiers.math.forms import TooLargeError
from verifiers.math.lexer import ParseError
from verifiers.math.normalise import normalise
from verifiers.math.parser import parse
from verifiers.math.policy import Policy
from verifiers.math.tree import Finite, Group, Items, Node, Num, Quantity, Text, to_json, walk
from verifiers.verdict import BadGoldError, Reason, Verdict

LONGEST = 4000
"""Characters of an answer that is parsed; longer ones are compared only as text."""

DEADLINE_SECONDS = 0.8
"""For all questions that one case asks the second tier."""


@dataclass(frozen=True)
class Reading:
    """An answer's text, its normalised spelling, and its tree, or why it has none."""

    text: str
    spelling: str
    tree: Node | None
    problem: str = ""

    @property
    def compact(self) -> str:
        """The spelling without the blanks and braces that mean nothing."""
        return _BLANKS.sub("", self.spelling)

    @property
    def words(self) -> str:
        """The spelling as plain words, for comparison without regard to case and fonts."""
        plain = re.sub(r"[{}]|\\(?:text|textbf|textit|mathrm|mbox|mathbf|textnormal)(?![A-Za-z])", "", self.spelling)
        return _BLANKS.sub("", " ".join(plain.split())).casefold()

    @property
    def wordy(self) -> bool:
        """Whether words are part of the answer."""
        return self.tree is None or any(isinstance(node, (Text, Quantity)) for node in walk(self.tree))


_BLANKS = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")


@functools.lru_cache(maxsize=16_384)
def read(text: str) -> Reading:
    """Normalise and parse an answer; a failure is part of the result."""
    if len(text) > LONGEST:
        return Reading(text, " ".join(text.split()), None, f"longer than {LONGEST} characters")
    spelling = normalise(text)
    try:
        return Reading(text, spelling, parse(spelling))
    except ParseError as error:
        return Reading(text, spelling, None, str(error))


class MathVerifier:
    """Judges mathematical answers by meaning; see `docs/verifiers.md` for the order of extraction and the policies.

    Safe in threads; hard equalities are decided in worker processes under a deadline.
    """

    def __init__(self, policy: Policy | None = None, fallback: bool = False) -> None:
        """Make a verifier.

        Args:
            policy: what counts as the same where people differ.
            fallback: accept the last formula or number of a completion without any answer format. Off for training.
        """
        self.policy = policy or Policy()
        self.fallback = fallback
        self._decide = functools.lru_cache(maxsize=16_384)(self._decide_uncached)

    def warm_up(self) -> None:
        """Start the workers of the second tier now instead of with the first case that needs them."""
        shared_pool().warm_up("verifiers.math.symbolic:ready", [])

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError if there is nothing in `answer` that a completion could be compared with."""
        if not read(extract_reference(answer)).spelling:
            raise BadGoldError(f"answer={answer!r} is empty; drop the problem or give its answer")

    def verify(self, completion: str, answer: str, **metadata: Any) -> Verdict:
        """Judge one completion.

        Raises:
            BadGoldError: see `check_answer`.
        """
        self.check_answer(answer)
        found = extract(completion, self.fallback)
        if found is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        reason, detail = self._decide(extract_reference(answer), found.text)
        return Verdict(float(reason == "right"), found.text, reason, detail)

    def _decide_uncached(self, answer: str, candidate: str) -> tuple[Reason, str]:
        gold, pred = read(answer), read(candidate)
        if not pred.spelling:
            return "no_answer", "the answer is empty"
        if gold.compact == pred.compact:
            return "right", "spelled the same"
        if (gold.wordy or pred.wordy) and gold.words == pred.words:
            return "right", "the same words"
        letter, _ = read_letter(answer)
        if letter is not None and _is_choice(answer):
            chosen, _ = read_letter(candidate)
            return ("right" if chosen == letter else "wrong"), f"option {chosen}"
        if gold.tree is None or pred.tree is None:
            side = "reference" if gold.tree is None else "answer"
            return "wrong", f"the {side} cannot be read: {gold.problem if gold.tree is None else pred.problem}"
        return self._compare(gold, pred)

    def _compare(self, gold: Reading, pred: Reading) -> tuple[Reason, str]:
        assert gold.tree is not None and pred.tree is not None
        failures: list[tuple[Reason, str]] = []
        left = [DEADLINE_SECONDS]

        def oracle(first: Node, second: Node) -> bool:
            return self._ask(first, second, left, failures)

        judge = Judge(self.policy, oracle)
        try:
            if judge.same(gold.tree, pred.tree):
                return "right", "equal"
            for first, second in ((gold, pred), (pred, gold)):
                other = _other_reading(first, second, self.policy.decimal_comma)
                if other is not None and judge.same(other, second.tree):  # type: ignore[arg-type]
                    return "right", "equal, with the comma read the other way"
        except TooLargeError as error:
            return "refused", str(error)
        return failures[0] if failures else ("wrong", "different")

    @staticmethod
    def _ask(first: Node, second: Node, left: list[float], failures: list[tuple[Reason, str]]) -> bool:
        """The second tier's answer; a deadline or failure counts as "not shown to be equal" and is reported."""
        import time

        if left[0] <= 0:
            failures.append(("timeout", "no time left for another comparison"))
            return False
        start = time.monotonic()
        try:
            decided = shared_pool().call(
                "verifiers.math.symbolic:equal", [to_json(first), to_json(second)], left[0]
            )
        except DeadlineError as error:
            failures.append(("timeout", str(error)))
            return False
        except WorkerError as error:
            failures.append(("refused", str(error)))
            return False
        finally:
            left[0] -= time.monotonic() - start
        return decided is True

    def verify_batch(
        self, completions: Sequence[str], answers: Sequence[str], metadata: Sequence[Mapping[str, Any]]
    ) -> list[Verdict]:
        """One verdict per completion, in order; see `verifiers.verify_batch`."""
        from verifiers.batch import safely

        return [safely(self, *row) for row in zip(completions, answers, metadata, strict=True)]


def _is_choice(answer: str) -> bool:
    """Whether a reference is an option: a capital letter alone, in brackets, or with its text."""
    spelling = normalise(answer)
    return re.fullmatch(
        r"(?:\\(?:text|textbf|mathrm|mathbf|mbox)\{)?\s*(?:[A-Z]|\([A-Z]\)|[A-Z][.:)])\s*\}?(?:(?<=[).:}])\s*.*)?", spelling
    ) is not None


def _other_reading(candidate: Reading, other: Reading, decimal_comma: bool) -> Node | None:
    """A comma read the other way, where the other side's kind asks for it.

    `2,74` is a list of two, or a decimal if the other side is one number; `70,110` is a number, or a list of two if the
    other side is a list.
    """
    is_list = isinstance(other.tree, (Items, Group, Finite))
    if isinstance(candidate.tree, Items) and not is_list and decimal_comma:
        spelling = candidate.spelling.replace(",", ".") if _ONE_COMMA.fullmatch(candidate.spelling) else ""
    elif isinstance(candidate.tree, Num) and is_list and _THOUSANDS.fullmatch(candidate.spelling):
        spelling = candidate.spelling.replace(",", ", ")
    else:
        return None
    try:
        return parse(spelling)
    except ParseError:
        return None


_ONE_COMMA = re.compile(r"-?\d+,\d+")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")
