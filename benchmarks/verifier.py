"""How good and how fast the mathematical verifier is on labelled cases: `python -m benchmarks.verifier --cases FILE`.

A case is a JSON line with `gold`, `pred`, `expected` and optionally `id`, `class`, `form` ("completion", or "answer" for a
bare answer, which is boxed first) and `disputed` (judged but not scored). `--against math-verify` runs Hugging Face's
Math-Verify on the same cases in the same process, if it is installed, alternating with ours so that both see the same
machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verifiers import BadGoldError, verify_batch
from verifiers.math.policy import Policy
from verifiers.math.verifier import MathVerifier
from verifiers.printing import printable_lines

Judge = Callable[[str, str], tuple[bool | None, str]]
"""(gold, completion) to whether it is right (None: it failed) and why."""

DEFAULT_FORM = "completion"


@dataclass(frozen=True)
class Case:
    """One labelled case; see the module's docstring."""

    identity: str
    kind: str
    gold: str
    pred: str
    form: str
    expected: bool
    disputed: bool

    @property
    def completion(self) -> str:
        """What a grader sees."""
        return self.pred if self.form == DEFAULT_FORM else rf"The final answer is $\boxed{{{self.pred}}}$."


@dataclass(frozen=True)
class Outcome:
    """One verdict on one case and the seconds that it took."""

    case: Case
    right: bool | None
    why: str
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether the verdict is the label; a failure counts as "not right"."""
        return (self.right is True) == self.case.expected


def load(path: Path) -> list[Case]:
    """All cases of a JSONL file.

    Raises:
        ValueError: at a line that is no case, naming file, line and field.
    """
    cases = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            cases.append(
                Case(
                    identity=str(row.get("id", number)),
                    kind=str(row.get("class", "")),
                    gold=row["gold"],
                    pred=row["pred"],
                    form=row.get("form", DEFAULT_FORM),
                    expected=bool(row["expected"]),
                    disputed=bool(row.get("disputed", False)),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}, line {number}: no case with gold, pred and expected ({error!r})") from error
    return cases


def ours(policy: Policy | None = None) -> Judge:
    """This package's verifier as a judge; evaluation, so with the fallback for completions without a format."""
    verifier = MathVerifier(policy, fallback=True)
    verifier.warm_up()

    def judge(gold: str, completion: str) -> tuple[bool | None, str]:
        try:
            verdict = verifier.verify(completion, gold)
        except BadGoldError as error:
            return False, f"bad_gold: {error}"
        return verdict.success, f"{verdict.reason}: {verdict.detail}; answer {verdict.extracted!r}"

    return judge


def math_verify() -> Judge:
    """Math-Verify with its default settings as a judge.

    Raises:
        ValueError: if it is not installed.
    """
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise ValueError(
            "--against math-verify needs it installed: pip install math-verify antlr4-python3-runtime==4.13.2"
        ) from error

    def judge(gold: str, completion: str) -> tuple[bool | None, str]:
        try:
            found = parse(completion)
            reference = parse(gold if "$" in gold or "boxed" in gold else f"${gold}$")
            return bool(verify(reference, found)), ""
        except Exception as error:  # its failures are part of what is measured
            return None, f"{type(error).__name__}: {error}"

    return judge


def alternate(judges: Sequence[Judge], case: Case) -> list[Outcome]:
    """The outcome of every judge on one case, one after the other."""
    outcomes = []
    for judge in judges:
        start = time.perf_counter()
        right, why = judge(case.gold, case.completion)
        outcomes.append(Outcome(case, right, why, time.perf_counter() - start))
    return outcomes


def summary(name: str, outcomes: Sequence[Outcome]) -> str:
    """The figures of one judge: accuracy and errors on undisputed cases, and speed on all."""
    scored = [outcome for outcome in outcomes if not outcome.case.disputed]
    wrong = [outcome for outcome in scored if not outcome.agrees]
    accepted = sum(outcome.right is True for outcome in wrong)
    seconds = sorted(outcome.seconds for outcome in outcomes)
    total = sum(seconds)

    def percentile(share: float) -> float:
        return 1000 * seconds[min(len(seconds) - 1, int(share * len(seconds)))]

    return "\n".join(
        [
            f"{name}",
            f"  accuracy          {100 * (1 - len(wrong) / max(1, len(scored))):.2f} % of {len(scored)} undisputed cases",
            f"  false positives   {accepted}",
            f"  false negatives   {len(wrong) - accepted}",
            f"  exceptions        {sum(outcome.right is None for outcome in outcomes)}",
            f"  cases per second  {len(outcomes) / total:.0f}",
            f"  p50 / p99 / max   {percentile(0.5):.2f} / {percentile(0.99):.2f} / {1000 * seconds[-1]:.1f} ms",
        ]
    )


def by_class(outcomes: Sequence[Outcome]) -> str:
    """A table of cases, false positives and false negatives per class, classes with errors first."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        if outcome.case.disputed:
            continue
        counter = counts.setdefault(outcome.case.kind, Counter())
        counter["cases"] += 1
        if not outcome.agrees:
            counter["false positives" if outcome.right else "false negatives"] += 1
    rows = sorted(counts.items(), key=lambda item: (-(item[1].total() - item[1]["cases"]), item[0]))
    lines = [f"  {'class':24} {'cases':>6} {'false +':>8} {'false -':>8}"]
    for kind, counter in rows:
        lines.append(f"  {kind:24} {counter['cases']:6} {counter['false positives']:8} {counter['false negatives']:8}")
    return "\n".join(lines)


def failures(outcomes: Sequence[Outcome], width: int = 160) -> str:
    """The undisputed cases where the verdict is not the label, one a line."""

    def short(text: str) -> str:
        text = text.replace("\n", "\\n")
        return text if len(text) <= width else f"{text[: width // 2]} … {text[-width // 2 :]}"

    return "\n".join(
        f"  {o.case.identity} {o.case.kind} expected {o.case.expected}: gold {short(o.case.gold)!r} pred "
        f"{short(o.case.pred)!r}: {short(o.why)}"
        for o in outcomes
        if not o.case.disputed and not o.agrees
    )


def bombs() -> list[str]:
    """Completions that would take a careless grader minutes, or all of its memory."""
    power_tower, nested = "9^{9^{9^{9^9}}}", "{" * 10_000 + "1" + "}" * 10_000
    answers = [power_tower, "2^{2^{2^{2^{49}}}}", "10000000000!", nested, r"\left(\frac12\right)^{10^{10}}"]
    return [*(rf"\boxed{{{answer}}}" for answer in answers), "the quick brown 1 fox " * 100_000]


def slowdown(cases: Sequence[Case], size: int = 4096, repeats: int = 5) -> float:
    """How many times longer a batch takes when every hundredth of its completions is a bomb: the best of some repeats each.

    Args:
        cases: their references and completions fill the batch, in turn.
        size: completions of the batch.
        repeats: of both batches, alternating, each with a new verifier.
    """
    chosen = [cases[i % len(cases)] for i in range(size)]
    calm = [case.completion for case in chosen]
    hostile, placed = list(calm), bombs()
    for n, i in enumerate(range(0, size, 100)):
        hostile[i] = placed[n % len(placed)]
    seconds = {"calm": float("inf"), "hostile": float("inf")}
    for _ in range(repeats):
        for name, completions in (("calm", calm), ("hostile", hostile)):
            verifier = MathVerifier()
            verifier.warm_up()
            start = time.perf_counter()
            verify_batch(verifier, completions, [case.gold for case in chosen])
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds["hostile"] / seconds["calm"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, judge, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verifier", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=Path, required=True, help="JSONL file of labelled cases")
    parser.add_argument("--against", choices=["math-verify"], help="another grader to run on the same cases")
    parser.add_argument(
        "--bombs", action="store_true", help="also: how much longer a batch with one percent of bombs takes"
    )
    parser.add_argument("--first", type=int, default=None, help="only so many first cases")
    options = parser.parse_args(arguments)
    try:
        cases = load(options.cases)[: options.first]
        judges = {"verifiers.math": ours()}
        if options.against:
            judges["Math-Verify"] = math_verify()
    except (OSError, ValueError) as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2
    outcomes: dict[str, list[Outcome]] = {name: [] for name in judges}
    for case in cases:
        for name, outcome in zip(judges, alternate(list(judges.values()), case), strict=True):
            outcomes[name].append(outcome)
    for name, found in outcomes.items():
        print(summary(name, found))
        print()
    print("verifiers.math, by class")
    print(by_class(outcomes["verifiers.math"]))
    print("\nverifiers.math, rows that fail")
    print(failures(outcomes["verifiers.math"]) or "  none")
    if options.against:
        times = {name: sum(outcome.seconds for outcome in found) for name, found in outcomes.items()}
        print(f"\nspeed in this paired run: {times['Math-Verify'] / times['verifiers.math']:.1f} times Math-Verify's")
    if options.bombs:
        print(f"\na batch of 4,096 with one percent of bombs takes {slowdown(cases):.2f} times as long as without")
    return 0


if __name__ == "__main__":
    sys.exit(main())
