"""Properties of equality: reflexive, symmetric, blind to spelling, exact on values computed elsewhere."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifiers.math.lexer import ParseError
from verifiers.math.normalise import normalise
from verifiers.math.parser import parse
from verifiers.math.verifier import MathVerifier

VERIFIER = MathVerifier()
EXAMPLES = settings(max_examples=120, deadline=None)


def right(gold: str, answer: str) -> bool:
    """Whether the verifier takes `answer` for `gold`."""
    return VERIFIER.decide(gold, answer)[0] == "right"


integers = st.integers(-50, 50)
rationals = st.builds(Fraction, st.integers(-60, 60), st.integers(1, 30))


def latex(value: Fraction) -> str:
    """A rational number in LaTeX."""
    sign = "-" if value < 0 else ""
    if value.denominator == 1:
        return f"{value}"
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 3) -> tuple[str, Fraction]:
    """An expression of rational numbers with its exact value, computed here with `Fraction`."""
    if depth == 0 or draw(st.booleans()):
        value = abs(draw(rationals))
        return latex(value), value
    left, a = draw(arithmetic(depth=depth - 1))
    right_, b = draw(arithmetic(depth=depth - 1))
    match draw(st.sampled_from("+-*/^")):
        case "+":
            return f"({left} + {right_})", a + b
        case "-":
            return f"({left} - {right_})", a - b
        case "*":
            return rf"{left} \cdot {right_}", a * b
        case "/" if b:
            return rf"\frac{{{left}}}{{{right_}}}", a / b
        case _:
            exponent = draw(st.integers(0, 4)) if a else 1
            return rf"\left({left}\right)^{{{exponent}}}", a**exponent


@st.composite
def polynomials(draw: st.DrawFn) -> tuple[str, str]:
    """A product of linear factors in x, and its expansion with coefficients computed here."""
    roots = draw(st.lists(st.integers(-9, 9), min_size=1, max_size=4))
    lead = draw(st.integers(1, 9))
    coefficients = [lead]
    for root in roots:  # multiply by (x - root)
        shifted = [*coefficients, 0]
        coefficients = [a - root * b for a, b in zip(shifted, [0, *coefficients], strict=True)]
    factored = str(lead) + "".join(f"(x {'-' if root >= 0 else '+'} {abs(root)})" for root in roots)
    degree = len(roots)
    expanded = " + ".join(f"({c})x^{{{degree - power}}}" for power, c in enumerate(coefficients))
    return factored, expanded


answers = st.one_of(
    arithmetic().map(lambda pair: pair[0]),
    polynomials().map(lambda pair: pair[0]),
    st.lists(rationals, min_size=2, max_size=5).map(lambda v: ", ".join(map(latex, v))),
    st.lists(rationals, min_size=2, max_size=4).map(lambda v: "(" + ", ".join(map(latex, v)) + ")"),
    st.lists(rationals, min_size=1, max_size=4).map(lambda v: r"\{" + ", ".join(map(latex, v)) + r"\}"),
    st.tuples(integers, st.integers(1, 20)).map(lambda p: f"[{p[0]}, {p[0] + p[1]})"),
    st.tuples(integers, st.integers(2, 30)).map(lambda p: rf"{p[0]} + 2\sqrt{{{p[1]}}}"),
    st.sampled_from(
        [r"x = 3", r"y = 2x + 1", r"x > 3", r"5\text{ cm}", r"45^\circ", r"25\%", "52_8", r"\text{yes}", "C"]
    ),
)


@EXAMPLES
@given(answers)
def test_reflexive(answer: str) -> None:
    assert right(answer, answer)


@EXAMPLES
@given(answers, answers)
def test_symmetric(first: str, second: str) -> None:
    if {first, second} & {"C"}:
        return  # a letter is an option on the reference's side, a constant on the other
    assert right(first, second) == right(second, first)


@EXAMPLES
@given(answers)
def test_blind_to_spelling(answer: str) -> None:
    for spelled in (
        f"${answer}$",
        f" {answer} .",
        rf"\({answer}\)",
        answer.replace(" ", r"\, "),
        answer.replace(" ", ""),
        answer.replace(r"\frac", r"\dfrac"),
        answer.replace("(", r"\left(").replace(")", r"\right)"),
        rf"\displaystyle {answer}",
        f"{{{answer}}}",
    ):
        assert right(answer, spelled), spelled


@EXAMPLES
@given(arithmetic())
def test_arithmetic_is_exact(pair: tuple[str, Fraction]) -> None:
    expression, value = pair
    assert right(latex(value), expression)
    assert not right(latex(value + Fraction(1, 10**9)), expression)
    assert not right(latex(value + 1), expression)
    if value:
        assert not right(latex(-value), expression)


@EXAMPLES
@given(polynomials(), st.integers(1, 5))
def test_expansion(pair: tuple[str, str], change: int) -> None:
    factored, expanded = pair
    assert right(factored, expanded)
    assert not right(factored, f"{expanded} + {change}")
    assert not right(factored, f"{expanded} + {change}y")


@EXAMPLES
@given(st.lists(rationals, min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_sets_and_lists_have_no_order_and_tuples_do(values: list[Fraction], generator: object) -> None:
    shuffled = list(values)
    generator.shuffle(shuffled)  # type: ignore[attr-defined]
    first, second = (", ".join(map(latex, v)) for v in (values, shuffled))
    assert right(rf"\{{{first}\}}", rf"\{{{second}\}}")
    assert right(first, second)
    assert right(f"({first})", f"({second})") == (values == shuffled)
    assert not right(first, ", ".join(map(latex, values[:-1])))
    assert not right(first, f"{first}, {latex(max(values) + 1)}")


@EXAMPLES
@given(st.integers(-99, 99), st.integers(2, 9))
def test_a_variable_is_never_dropped(number: int, power: int) -> None:
    for name in "mgsdhkx":
        assert not right(str(number + 100), f"{number + 100}{name}")
        assert not right(f"{number + 100}{name}^{power}", str(number + 100))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"0123456789abxy+-*/^_=<>()[]{}|,.;:!%$\ ~'&" + "√π½²°≤∞×", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ParseError):
        parse(normalise(text))
    reason, _ = VERIFIER.decide("42", text)
    assert reason in ("right", "wrong", "no_answer", "refused")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                *[
                    r"0",
                    r"1",
                    r"2",
                    r"x",
                    r"y",
                    r"n",
                    r"e",
                    r"i",
                    r"\pi",
                    r"+",
                    r"-",
                    r"*",
                    r"/",
                    r"^",
                    r"(",
                    r")",
                    r"{",
                    r"}",
                    r"[",
                    r"]",
                    r",",
                    r"=",
                    r"<",
                    r"|",
                    r"!",
                    r"\frac",
                    r"\sqrt",
                    r"\sin",
                    r"\log",
                    r"\pm",
                ]
            ]
        )
    )
)
def test_any_formula_is_read_or_refused(tokens: list[str]) -> None:
    text = " ".join(tokens)
    reason, _ = VERIFIER.decide("x+1", text)
    assert reason in ("right", "wrong", "no_answer", "refused", "timeout")


@pytest.mark.parametrize(
    "text", ["3 +", "(3", "3)", "{3", r"\frac{1}", r"\sqrt", "x_", "2^", r"\foo", "3 4", "|x", "1,,", "[1,2"]
)
def test_broken_text_is_refused(text: str) -> None:
    if text in ("1,,",):
        parse(normalise(text))  # a trailing comma is punctuation
        return
    with pytest.raises(ParseError):
        parse(normalise(text))
