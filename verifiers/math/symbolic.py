"""The second tier: equality that normal forms cannot prove. Runs inside a worker, so it may be killed.

The difference of the two expressions is evaluated at seeded points in high precision, over its own exact terms, so that
what cancels symbolically cannot hide a small remainder. SymPy decides what has too few points to judge by.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from verifiers.math.equality import INTEGER_POINTS, quick, sample, zero_in
from verifiers.math.evaluate import Evaluator, OutOfRangeError, OutsideDomainError, contains_i, variables
from verifiers.math.expressions import of_tree
from verifiers.math.forms import Form, TooLargeError, difference
from verifiers.math.tree import Add, Apply, Big, Const, Mul, Node, Num, Pow, Sym, from_json, walk
from verifiers.math.words import vocabulary

DIGITS = 60
"""Decimal digits of the evaluation."""

AGREEMENTS = 4
"""Points of agreement that count as equality of expressions with variables."""

ATTEMPTS = 24
"""Points tried, since some lie outside the domain."""


def equal(left: Any, right: Any) -> bool | None:
    """Whether two trees (in JSON, see `tree.to_json`) are equal expressions; None if it cannot be told."""
    left_tree, right_tree = from_json(left), from_json(right)
    left_form, right_form = of_tree(left_tree), of_tree(right_tree)
    decided = quick(left_form, right_form)
    if decided is not None:
        return decided
    decided = _numerically(left_form, right_form)
    return _by_sympy(left_tree, right_tree) if decided is None else decided


def ready() -> bool:
    """Load what `equal` needs, so that the first case does not pay for it."""
    import mpmath
    import sympy

    return bool(mpmath and sympy)


def _arithmetic() -> SimpleNamespace:
    from mpmath import mp

    mp.dps = DIGITS
    return SimpleNamespace(
        number=lambda value: mp.mpc(value.numerator) / value.denominator,
        exp=mp.exp, log=mp.log, sin=mp.sin, cos=mp.cos, tan=mp.tan, asin=mp.asin, acos=mp.acos, atan=mp.atan,
        sinh=mp.sinh, cosh=mp.cosh, tanh=mp.tanh, asinh=mp.asinh, acosh=mp.acosh, atanh=mp.atanh, pi=mp.pi, e=mp.e,
        gamma=mp.gamma, tolerance=mp.mpf(10) ** -(DIGITS - 15), largest=mp.mpf(10) ** 1_000_000,
        smallest=mp.mpf(10) ** -1_000_000,
    )  # fmt: skip


def _numerically(left: Form, right: Form) -> bool | None:
    try:
        rest = difference(left, right)
    except TooLargeError:
        return None
    arithmetic = _arithmetic()
    parts = (left.numerator, left.denominator, right.numerator, right.denominator)
    names = sorted(variables(parts), key=repr)
    real = bool(names) and not contains_i(parts)
    agreements = 0
    defined = [False, False]  # whether either side has a value anywhere
    for index in [*range(ATTEMPTS), *INTEGER_POINTS] if names else [0]:
        if agreements and index == INTEGER_POINTS.start:
            break
        values = sample(names, index)
        point = {name: arithmetic.number(value) for name, value in zip(names, values, strict=True)}
        evaluator = Evaluator(arithmetic, point, real)
        try:
            values_exist = [_has_value(evaluator, form) for form in (left, right)]
            defined = [old or new for old, new in zip(defined, values_exist, strict=True)]
            if not all(values_exist):
                continue
            if not zero_in(arithmetic, rest, point, real, arithmetic.tolerance):
                return False
        except OutOfRangeError as error:
            raise TooLargeError(str(error)) from error
        except (OutsideDomainError, OverflowError, ZeroDivisionError, ValueError):
            continue
        agreements += 1
        if agreements == AGREEMENTS:
            return True
    if not agreements and all(defined):
        return False  # both have values, but nowhere together
    return True if agreements and not names else None


def _has_value(evaluator: Evaluator, form: Form) -> bool:
    """Whether a form is defined at the evaluator's point."""
    try:
        evaluator.form(form)
    except OutOfRangeError:
        raise
    except (OutsideDomainError, OverflowError, ZeroDivisionError, ValueError):
        return False
    return True


def _sums_a_sequence(node: Node) -> bool:
    """Whether a sum or product runs over terms that have only names, such as a_k, which SymPy cannot add up."""
    return any(
        isinstance(part, Big)
        and any(isinstance(s, Sym) and part.variable in s.name.partition("_")[2] for s in walk(part.body))
        for part in walk(node)
    )


def _by_sympy(left: Node, right: Node) -> bool | None:
    if _sums_a_sequence(left) or _sums_a_sequence(right):
        return None
    import sympy

    rest = sympy.simplify(to_sympy(left) - to_sympy(right))
    return True if rest == 0 else None


def to_sympy(node: Node) -> Any:
    """The SymPy expression of a tree, through constructors only.

    Raises:
        ValueError: for a node that is no expression.
    """
    import sympy

    match node:
        case Num(value):
            return sympy.Rational(value.numerator, value.denominator)
        case Sym(name):
            return sympy.Symbol(name, real=True)
        case Const(name):
            degree = sympy.pi / 180
            return {
                "pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo, "degree": degree,
                "percent": sympy.Rational(1, 100),
            }[name]  # fmt: skip
        case Add(terms):
            return sympy.Add(*map(to_sympy, terms))
        case Mul(factors):
            return sympy.Mul(*map(to_sympy, factors))
        case Pow(base, Num(value)) if value.denominator % 2 == 1 and value.denominator > 1:
            return sympy.real_root(to_sympy(base), value.denominator) ** value.numerator
        case Pow(base, exponent):
            return sympy.Pow(to_sympy(base), to_sympy(exponent))
        case Big(op, body, variable, low, high):
            limits = (sympy.Symbol(variable, real=True), to_sympy(low), to_sympy(high))
            return (sympy.Sum if op == "sum" else sympy.Product)(to_sympy(body), limits).doit()
        case Apply(name, arguments):
            return _sympy_function(name)(*map(to_sympy, arguments))
    raise ValueError(f"{type(node).__name__} is not an expression")


def _sympy_function(name: str) -> Any:
    import sympy

    special = {
        "ln": sympy.log, "abs": sympy.Abs, "ceil": sympy.ceiling, "max": sympy.Max, "min": sympy.Min,
        "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "arccot": sympy.acot, "arcsec": sympy.asec,
        "arccsc": sympy.acsc, "arcsinh": sympy.asinh, "arccosh": sympy.acosh, "arctanh": sympy.atanh,
    }  # fmt: skip
    if name in special:
        return special[name]
    return getattr(sympy, name) if name in _SAME_NAME else sympy.Function(name)


_SAME_NAME = frozenset(
    vocabulary("sin cos tan cot sec csc sinh cosh tanh coth sech csch log factorial binomial floor gcd lcm")
)
