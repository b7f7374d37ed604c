r"""Explain one verdict: `python -m verifiers --gold '\frac12' --pred 'The answer is \boxed{0.5}.'`."""

from __future__ import annotations

import argparse
import sys

from verifiers import BadGoldError, get, names
from verifiers.extraction import extract, extract_reference, final_turn
from verifiers.math.reading import read
from verifiers.printing import printable


def explain(gold: str, pred: str, name: str, fallback: bool) -> int:
    """Print what was extracted, read and decided; returns the exit status: 0 right, 1 not right, 2 bad reference."""
    turn = final_turn(pred)
    print(f"completion  {len(pred)} characters" + ("; its thinking never ends" if turn is None else ""))
    found = extract(pred, fallback)
    reference = extract_reference(gold)
    print(f"answer      {found.text!r}, found by rule {found.source!r}" if found else "answer      none found")
    print(f"reference   {reference!r}")
    if name == "math":
        for label, text in (("reference", reference), ("answer", found.text if found else None)):
            if text is not None:
                reading = read(text)
                print(f"{label:11} normalised {reading.spelling!r}")
                print(
                    f"{'':11} read as {reading.tree}"
                    if reading.tree
                    else f"{'':11} not read: {printable(reading.problem)}"
                )
    try:
        verifier = get(name)
        if fallback and name == "math":
            from verifiers.math.verifier import MathVerifier

            verifier = MathVerifier(fallback=True)
        verdict = verifier.verify(pred, gold)
    except BadGoldError as error:
        print(f"verdict     bad reference: {printable(str(error))}")
        return 2
    print(f"verdict     {verdict.reason}, score {verdict.score}: {printable(verdict.detail)}")
    return 0 if verdict.success else 1


def main() -> int:
    """Parse the command line and explain."""
    parser = argparse.ArgumentParser(prog="python -m verifiers", description="Explain one verdict step by step.")
    parser.add_argument("--gold", required=True, help="the reference answer")
    parser.add_argument("--pred", required=True, help="the completion; '-' reads standard input")
    parser.add_argument("--verifier", default="math", help=f"a name or dotted path; built in: {', '.join(names())}")
    parser.add_argument("--fallback", action="store_true", help="accept the last number without any answer format")
    arguments = parser.parse_args()
    pred = sys.stdin.read() if arguments.pred == "-" else arguments.pred
    return explain(arguments.gold, pred, arguments.verifier, arguments.fallback)


if __name__ == "__main__":
    sys.exit(main())
