"""Verifiers: what turns a model's text into a score, a reason and nothing else.

A verifier is any object with `verify(completion, answer, **metadata) -> Verdict`; the built-in ones are registered here
by name and imported only when first asked for, so importing this package loads neither SymPy nor a model library.

    >>> import verifiers
    >>> verifiers.get("math").verify(r"So the answer is \\boxed{0.5}.", r"\\frac12").reason
    'right'
"""

from __future__ import annotations

from collections.abc import Callable

from verifiers.batch import check_answer, verify_batch
from verifiers.lookup import import_dotted
from verifiers.registry import get, names, register
from verifiers.verdict import REASONS, BadGoldError, Reason, Verdict, Verifier

__all__ = [
    "REASONS",
    "BadGoldError",
    "Reason",
    "Verdict",
    "Verifier",
    "check_answer",
    "get",
    "names",
    "register",
    "verify_batch",
]

_BUILT_IN = {
    "math": "verifiers.math.verifier:MathVerifier",
    "choice": "verifiers.choice:ChoiceVerifier",
}


def _lazy(path: str) -> Callable[[], Verifier]:
    """A factory that imports the class at a dotted path when it is first called."""

    def make() -> Verifier:
        verifier: Verifier = import_dotted(path)()
        return verifier

    return make


for _name, _path in _BUILT_IN.items():
    register(_name, _lazy(_path))
