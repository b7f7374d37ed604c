"""The verifier registered as "math"."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, TypeAlias

from verifiers.choice import read_letter
from verifiers.extraction import extract, extract_reference
from verifiers.isolation import DeadlineError, WorkerError, shared_pool
from verifiers.math.compare import Judge, Oracle
from verifiers.math.evaluated import is_evaluated, is_plain_number
from verifiers.math.forms import TooLargeError
from verifiers.math.policy import Policy
from verifiers.math.reading import Reading, other_reading, read
from verifiers.math.tree import Node, Num, to_json
from verifiers.math.words import number
from verifiers.verdict import BadGoldError, Reason, Verdict

Decision: TypeAlias = tuple[Reason, str]

DEADLINE_SECONDS = 0.8
"""For all questions that one case asks the second tier."""

MOST_KNOWN = 50_000
"""Decisions kept; then they are forgotten all at once."""


_ESCAPED_BRACE = re.compile(r"\\[{}]")
_SPACING = re.compile(r"[\s$]|\\(?:left|right|[,;:!])")
_NUMERAL = re.compile(r"\d+")
_SHORT_FRACTION = re.compile(r"frac\s*(\d)\s*(\d)")
_FRACTION = re.compile(r"\\[dtc]?frac(?:\{([^{}]*)\}|(\w))(?:\{([^{}]*)\}|(\w))")
_ONE_TERM = re.compile(r"\w*")
_PLAIN_NUMBER = re.compile(r"[-+]?[\d.,]+")


def copies_question(reference: str, candidate: str, question: str) -> bool:
    r"""Whether an answer is a formula that the question spells out, and not the form that was asked for.

    "Simplify $\frac{6}{8}$" is not answered by $\frac{6}{8}$, nor "expand $(x+1)^2$" by $(x+1)^2$, though both are equal to
    what was asked for: without this rule, repeating the question would be rewarded. A number without an operation is no
    formula, and an answer with the reference's own numerals has its form, wherever it stands.
    """
    spelled = _linear(candidate)
    own, asked = (_NUMERAL.findall(_SHORT_FRACTION.sub(r"\1 \2", text)) for text in (candidate, reference))
    if own == asked or _PLAIN_NUMBER.fullmatch(spelled):
        return False
    return re.search(rf"(?<!\d){re.escape(spelled)}(?!\d)", _linear(question)) is not None


def _linear(text: str) -> str:
    r"""Text without blanks, its fractions on one line: `6/8` for `\frac{6}{8}`, `\dfrac68` and the like."""

    def bracketed(term: str) -> str:
        return term if _ONE_TERM.fullmatch(term) else f"({term})"

    return _FRACTION.sub(
        lambda found: f"{bracketed(found[1] or found[2] or '')}/{bracketed(found[3] or found[4] or '')}",
        _SPACING.sub("", text),
    )


class _SecondTierNeededError(Exception):
    """The first tier can neither prove nor refute; raised by the oracle of a batch's first pass."""


class MathVerifier:
    """Judges mathematical answers by meaning; see `docs/verifiers.md` for the order of extraction and the policies.

    The first tier runs in the calling thread, the second (hard equalities) in worker processes under a deadline; an
    instance may be used from many threads.
    """

    def __init__(self, policy: Policy | None = None, fallback: bool = False) -> None:
        """Make a verifier.

        Args:
            policy: what counts as the same where people differ.
            fallback: accept the last formula or number of a completion without any answer format. Off for training.
        """
        self.policy = policy or Policy()
        self.fallback = fallback
        self._known: dict[tuple[str, str], Decision] = {}

    def warm_up(self) -> None:
        """Start the workers of the second tier now instead of with the first case that needs them."""
        shared_pool().warm_up("verifiers.math.symbolic:ready", [])

    def check_answer(self, answer: str, **metadata: Any) -> None:
        """Raise BadGoldError if there is nothing in `answer` that a completion could be compared with.

        An answer in words is compared as words; one that is empty, or whose braces do not match, cannot be given at all.
        """
        self._reference(answer)

    def verify(self, completion: str, answer: str, question: str = "", **metadata: Any) -> Verdict:
        """Judge one completion.

        Args:
            completion: the model's text.
            answer: the reference.
            question: what was asked, if it is known: a formula copied from it is no answer (see `copies_question`), and
                where a number was asked for, neither is a computation (see `evaluated.is_evaluated`).
            **metadata: not read.

        Raises:
            BadGoldError: see `check_answer`.
        """
        reference = self._reference(answer)
        candidate = self._candidate(completion)
        if candidate is None:
            return Verdict(0.0, None, "no_answer", "no final answer in the completion")
        return _verdict(candidate, self._final(reference, candidate, self.decide(reference, candidate), question))

    def verify_batch(
        self, completions: Sequence[str], answers: Sequence[str], metadata: Sequence[Mapping[str, Any]]
    ) -> list[Verdict]:
        """One verdict per completion, in order; each pair of reference and candidate is decided once.

        What the first tier leaves open is decided in as many workers at a time as there are.
        """
        pairs: list[tuple[str | None, str | None, str]] = []
        for completion, answer in zip(completions, answers, strict=True):
            try:
                pairs.append((self._reference(answer), self._candidate(completion), ""))
            except BadGoldError as error:
                pairs.append((None, None, str(error)))
        open_pairs = []
        for pair in {(r, c) for r, c, _ in pairs if r is not None and c is not None}:
            try:
                self.decide(*pair, _ask_later)
            except _SecondTierNeededError:
                open_pairs.append(pair)
        decisions = dict[tuple[str, str], Decision]()
        if open_pairs:
            with ThreadPoolExecutor(shared_pool().size) as threads:
                decided = threads.map(lambda pair: self.decide(*pair), open_pairs)
                decisions = dict(zip(open_pairs, decided, strict=True))
        verdicts = []
        for (reference, candidate, problem), about in zip(pairs, metadata, strict=True):
            if reference is None:
                verdicts.append(Verdict(None, None, "bad_gold", problem))
            elif candidate is None:
                verdicts.append(Verdict(0.0, None, "no_answer", "no final answer in the completion"))
            else:
                decision = decisions.get((reference, candidate)) or self.decide(reference, candidate)
                final = self._final(reference, candidate, decision, str(about.get("question", "")))
                verdicts.append(_verdict(candidate, final))
        return verdicts

    def decide(self, reference: str, candidate: str, oracle: Oracle | None = None) -> Decision:
        """Compare an answer with a reference, both as bare answers: the reason and a sentence why.

        Args:
            reference: the reference answer.
            candidate: the extracted answer.
            oracle: decides what the first tier leaves open; the workers by default.
        """
        known = self._known.get((reference, candidate))
        if known is not None:
            return known
        failures: list[Decision] = []
        decision = self._decide(read(reference), read(candidate), oracle or _Workers(failures))
        if failures and decision[0] != "right":
            return failures[0]  # it may go better next time, so it is not remembered
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[reference, candidate] = decision
        return decision

    def _reference(self, answer: str) -> str:
        reference = extract_reference(answer)
        if not read(reference).spelling:
            raise BadGoldError(f"answer={answer[:200]!r} is empty; drop the problem or give its answer")
        unescaped = _ESCAPED_BRACE.sub("", reference)
        if unescaped.count("{") != unescaped.count("}"):
            raise BadGoldError(f"answer={answer[:200]!r} has braces that do not match; correct it or drop the problem")
        return reference

    @staticmethod
    def _final(reference: str, candidate: str, decision: Decision, question: str) -> Decision:
        """The decision, unless what is right by value is only a copy of the question, or a computation not carried out."""
        if decision[0] != "right" or not question:
            return decision
        if copies_question(reference, candidate, question):
            return "wrong", "a formula copied from the question"
        gold, pred = read(reference), read(candidate)
        same_spelling = gold.compact == pred.compact
        if (
            gold.tree is not None
            and is_plain_number(gold.tree)
            and not same_spelling
            and not is_evaluated(pred, question)
        ):
            return "wrong", "not evaluated"
        return decision

    def _candidate(self, completion: str) -> str | None:
        found = extract(completion, self.fallback)
        return None if found is None else found.text

    def _decide(self, gold: Reading, pred: Reading, oracle: Oracle) -> Decision:
        if not pred.spelling:
            return "no_answer", "the answer is empty"
        if gold.compact == pred.compact:
            return "right", "spelled the same"
        if (gold.wordy or pred.wordy) and gold.words == pred.words:
            return "right", "the same words"
        letter, _ = read_letter(gold.text)
        if gold.is_option and letter is not None:
            chosen, _ = read_letter(pred.text)
            return ("right" if chosen == letter else "wrong"), f"option {chosen} against {letter}"
        gold_tree, pred_tree = self._tree(gold), self._tree(pred)
        if gold_tree is None or pred_tree is None:
            side, problem = ("reference", gold.problem) if gold_tree is None else ("answer", pred.problem)
            return "wrong", f"the {side} cannot be read as mathematics: {problem}"
        try:
            return self._compare(gold, gold_tree, pred, pred_tree, oracle)
        except (TooLargeError, RecursionError) as error:
            return "refused", str(error)

    def _tree(self, reading: Reading) -> Node | None:
        spelled = number(reading.words) if self.policy.number_words else None
        return reading.tree if spelled is None else Num(Fraction(spelled))

    def _compare(self, gold: Reading, gold_tree: Node, pred: Reading, pred_tree: Node, oracle: Oracle) -> Decision:
        judge = Judge(self.policy, oracle)
        if judge.same(gold_tree, pred_tree):
            return "right", "equal"
        gold_other = other_reading(gold, pred, self.policy.decimal_comma)
        pred_other = other_reading(pred, gold, self.policy.decimal_comma)
        if (gold_other is not None and judge.same(gold_other, pred_tree)) or (
            pred_other is not None and judge.same(gold_tree, pred_other)
        ):
            return "right", "equal, with a comma read the other way"
        return "wrong", "different"


class _Workers:
    """The oracle that asks the second tier, within one deadline for all its questions.

    The time until a worker is free is not counted: how busy the others are is no property of the case.
    """

    def __init__(self, failures: list[Decision]) -> None:
        self._failures = failures
        self._left = DEADLINE_SECONDS

    def __call__(self, first: Node, second: Node) -> bool:
        """Whether the two are equal; a deadline or failure is "not shown to be equal", and noted."""
        if self._left <= 0:
            self._failures.append(("timeout", "no time left for another comparison"))
            return False
        arguments = [to_json(first), to_json(second)]
        try:
            with shared_pool().lend() as worker:
                try:
                    return worker.call("verifiers.math.symbolic:equal", arguments, self._left) is True
                finally:
                    self._left -= worker.seconds
        except DeadlineError as error:
            self._failures.append(("timeout", str(error)))
        except WorkerError as error:
            self._failures.append(("refused", str(error)))
        return False


def _ask_later(first: Node, second: Node) -> bool:
    raise _SecondTierNeededError


def _verdict(candidate: str, decision: Decision) -> Verdict:
    reason, detail = decision
    return Verdict(float(reason == "right"), candidate, reason, detail)
