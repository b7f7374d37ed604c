"""What the mathematical verifier accepts among different reference answers: `python -m benchmarks.gold_pairs --data FILE...`.

References of one subject are each other's most natural wrong answers. Every pair of two different spellings that is accepted
is printed, to be read by hand: equal by value, equal by a policy of `docs/verifiers.md`, or a false positive. Each reference
is also compared with itself, boxed; here every one that is not accepted is printed.

A line of the data is a JSON object with `answer` and, optionally, the subject as `type`; empty answers are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path

from mrl_env.problems.files.readers import read_jsonl
from mrl_env.problems.files.rows import RowError
from mrl_env.seeding import derive_rng
from verifiers import Verdict, verify_batch
from verifiers.batch import CHUNK
from verifiers.math.verifier import MathVerifier
from verifiers.printing import printable, printable_lines

Pair = tuple[str, str]
"""A reference, and the other reference that is given as the answer to it."""


def load(paths: Iterable[Path]) -> list[tuple[str, str]]:
    """Subject and answer of every line with an answer.

    Raises:
        ValueError: at a line that is no object with an answer, naming file and line.
        OSError: if a file cannot be read.
    """
    golds = []
    for path in paths:
        for place, row in read_jsonl(path):
            if isinstance(row, RowError) or "answer" not in row:
                raise ValueError(f"{path}, {place}: no object with an answer")
            answer = str(row["answer"])
            if answer.strip():
                golds.append((str(row.get("type", "")), answer))
    return golds


def sample_pairs(golds: Iterable[tuple[str, str]], count: int, seed: int) -> list[Pair]:
    """At most `count` ordered pairs of different answers to one subject, no pair twice, each as likely as any other."""
    answers: dict[str, list[str]] = {}
    for subject, answer in dict.fromkeys(golds):
        answers.setdefault(subject, []).append(answer)
    subjects = list(answers)
    ends = list(accumulate(len(answers[subject]) * (len(answers[subject]) - 1) for subject in subjects))
    total = ends[-1] if ends else 0

    def pair(number: int) -> Pair:
        """The pair with this number, where they are counted subject by subject."""
        index = next(i for i, end in enumerate(ends) if number < end)
        own = answers[subjects[index]]
        gold, pred = divmod(number - (ends[index - 1] if index else 0), len(own) - 1)
        return own[gold], own[pred + (pred >= gold)]  # the answer itself is skipped

    return [pair(number) for number in derive_rng(seed, "gold pairs").sample(range(total), min(count, total))]


def judge(pairs: Sequence[Pair]) -> Iterator[tuple[Pair, Verdict]]:
    """Each pair with the verdict on its second answer, boxed."""
    verifier = MathVerifier()
    for start in range(0, len(pairs), CHUNK):
        part = pairs[start : start + CHUNK]
        completions = [rf"\boxed{{{pred}}}" for _, pred in part]
        yield from zip(part, verify_batch(verifier, completions, [gold for gold, _ in part]), strict=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, judge, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gold_pairs", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="JSONL files with answer and type")
    parser.add_argument("--pairs", type=int, default=200_000, help="pairs of different answers (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the sample of pairs (default %(default)s)")
    options = parser.parse_args(arguments)
    try:
        golds = load(options.data)
    except (OSError, ValueError) as error:
        print(printable_lines(f"error: {error}"), file=sys.stderr)
        return 2

    failing = [(pair, verdict) for pair, verdict in judge([(gold, gold) for _, gold in golds]) if not verdict.success]
    print(f"golds against themselves: {len(failing)} of {len(golds)} fail")
    for (gold, _), verdict in failing:
        print(f"  {gold!r}: {verdict.reason}: {printable(verdict.detail)}")

    pairs = sample_pairs(golds, options.pairs, options.seed)
    reasons = Counter[str]()
    accepted = []
    for pair, verdict in judge(pairs):
        reasons[verdict.reason] += 1
        if verdict.success:
            accepted.append(pair)
    print(f"\npairs of different golds: {len(accepted)} of {len(pairs)} accepted")
    for gold, pred in sorted(accepted):
        print(f"  {gold!r} = {pred!r}")
    print("verdicts: " + ", ".join(f"{reason} {count}" for reason, count in reasons.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
