r"""Verifiers: what turns a model's text into a score, a reason and nothing else.

A verifier is any object with `verify(completion, answer, **metadata) -> Verdict`; the built-in ones are registered here
by name and imported only when first asked for, so importing this package loads neither SymPy nor a model library.

    >>> import verifiers
    >>> verifiers.get("math").verify(r"So the answer is \boxed{0.5}.", r"\frac12").reason
    'right'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from verifiers.batch import check_answer, verify_batch
from verifiers.lookup import import_dotted
from verifiers.registry import get, make, names, register
from verifiers.verdict import REASONS, BadGoldError, Reason, Verdict, Verifier

__all__ = [
    "REASONS",
    "BadGoldError",
    "Reason",
    "Verdict",
    "Verifier",
    "check_answer",
    "get",
    "make",
    "names",
    "register",
    "verify_batch",
]

_BUILT_IN = {
    "math": "verifiers.math.verifier:MathVerifier",
    "choice": "verifiers.choice:ChoiceVerifier",
    "numeric": "verifiers.numeric:NumericVerifier",
    "exact": "verifiers.exact:ExactVerifier",
    "regex": "verifiers.exact:RegexVerifier",
    "boolean": "verifiers.boolean:BooleanVerifier",
    "format": "verifiers.format:FormatVerifier",
    "reasoning_gym": "verifiers.reasoning_gym:ReasoningGymVerifier",
}


def _lazy(path: str) -> Callable[..., Verifier]:
    """A factory that imports the class at a dotted path when it is first called."""

    def construct(**options: Any) -> Verifier:
        verifier: Verifier = import_dotted(path)(**options)
        return verifier

    return construct


for _name, _path in _BUILT_IN.items():
    register(_name, _lazy(_path))
