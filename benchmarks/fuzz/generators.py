r"""Random inputs that look like what is read, so that they get past the first check: answers, completions, JSON, bytes.

Everything is drawn from one `random.Random`, so that an input can be made again from its number.
"""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

_CHARACTERS = (
    "0123456789abcxyzABCDe +-*/^=<>(){}[]|,.;:!?%$\\'\"`~&#_\n\t\r"
    "é½²³√π∞≤≥≠×÷−°′…–“”、，：（）０１２Ａα中文に한अ\u00a0\u200b\u200d\u2028\u2029\u202e\ufeff\ufffd\u0301\x00\x07\x1b\x7f\x85"
    "🙂👩‍👩‍👧🇩🇪\U0010ffff\ud800\udfff"
)
_COMMAND_LIST = (
    r"\frac \dfrac \sqrt \cdot \times \pi \infty \left( \right) \left. \right] \{ \} \boxed \text \mathrm \\ & \pm \le \ge "
    r"\begin{pmatrix} \end{pmatrix} \cup \cap \sin \log_2 \ln \overline \binom \circ ^\circ \% \$ \mathbb{R} \emptyset "
    r"\sum_{i=1}^{n} \int_0^1 \lim_{x\to0} \lfloor \rfloor \dots \not \def\x{\x\x}\x \input{/etc/passwd} \write18{id} \unknown"
)
_COMMANDS = tuple(_COMMAND_LIST.split())
_ANSWER_LIST = (
    r"42 | -3 | 0.5 | \frac{1}{2} | \frac34 | 2\sqrt{3} | x^2+2x+1 | (1,2) | [0,1) | \{1,2,3\} | x=5 | y=2x+1 | x>3 | 50\% | "
    r"5\text{ cm} | 3:4 | 12_5 | 45^\circ | \pi/4 | 1,234 | 1.2\times10^5 | \text{yes} | C | (B) red | no solution | 10! | "
    r"2^{10} | \begin{pmatrix}1&2\\3&4\end{pmatrix} | (-\infty,2]\cup(3,5) | 1\pm\sqrt2 | 3+4i | \log_2 8 | e^{i\pi} | 7:15 | "
    r"\$3.50 | \frac{x+1}{x-1} | \binom{5}{2} | |x-1| | 1,2,3 | 0.\overline{3} | three | True | \emptyset | \mathbb{R}"
)
_ANSWERS = tuple(_ANSWER_LIST.split(" | "))
_BOMBS = (
    "9^{9^{9^{9^9}}}",
    "99999999999!",
    "(" * 400,
    "{" * 3000 + "1" + "}" * 3000,
    r"\frac{1}{" * 200 + "2" + "}" * 200,
    r"\sqrt{" * 100 + "x" + "}" * 100,
    "1" * 6000,
    "2^{10^{10}}",
    "(x+y+z)^{500}",
    "1," * 2000,
    r"\pm1" * 30,
    r"\binom{10^9}{5}",
    "0x" + "f" * 300,
    "1e999999999",
    "." * 5000,
    "-" * 4000 + "1",
    "((((x^9+1)^9+1)^9+1)^9+1)^9",
    r"\sin" * 500 + "x",
)
_FRAMES = (
    r"So the answer is \boxed{%s}.",
    r"\boxed{%s}",
    "<answer>%s</answer>",
    "work\n#### %s",
    "The answer is %s.",
    "Final answer: **%s**",
    "%s",
    r"<think>\boxed{1}</think>\boxed{%s}",
    r"\boxed{\boxed{%s}}",
    r"first \boxed{7}, then \boxed{%s",
    "```\n\\boxed{%s}\n```",
    "答案是 %s。",
    "<|im_start|>assistant\n\\boxed{%s}<|im_end|>\\boxed{0}",
    "$$%s$$",
    "%s or %s",
)


def text(rng: random.Random, longest: int = 60) -> str:
    """Characters of all sorts: controls, halves of surrogate pairs, marks, scripts."""
    return "".join(rng.choices(_CHARACTERS, k=rng.randint(0, longest)))


def valid_text(rng: random.Random, longest: int = 60) -> str:
    """The same without halves of surrogate pairs: what UTF-8 can hold."""
    return text(rng, longest).encode("utf-8", "ignore").decode("utf-8")


def expression(rng: random.Random, depth: int = 3) -> str:
    """A formula by a grammar, well-formed."""
    if depth == 0 or rng.random() < 0.25:
        return (
            rng.choice(_ANSWERS[:8])
            if rng.random() < 0.3
            else rng.choice(["0", "1", "2", "3", "7", "10", "12", "100", "x", "y", "n", "a", "e"])
        )
    left, right = expression(rng, depth - 1), expression(rng, depth - 1)
    formulas = (
        f"{left}+{right}",
        f"{left} - {right}",
        rf"{left}\cdot {right}",
        f"({left})({right})",
        rf"\frac{{{left}}}{{{right}}}",
        f"({left})^{{{right}}}",
        rf"\sqrt{{{left}}}",
        f"({left}, {right})",
        f"{left} = {right}",
        rf"\left({left}\right)/{right}",
        rf"\sin({left})",
        f"|{left}|",
        rf"{left}\text{{ {rng.choice(('cm', 'kg', 'm', 's', 'hours', 'apples'))}}}",
        f"-({left})",
    )
    return rng.choice(formulas)


def mutated(rng: random.Random, original: str, most: int = 4) -> str:
    """A text with some places changed: characters and LaTeX put in, pieces cut, doubled, moved, repeated."""
    for _ in range(rng.randint(1, most)):
        start = rng.randint(0, len(original))
        end = min(len(original), start + rng.randint(0, 8))
        match rng.randrange(7):
            case 0:
                original = original[:start] + rng.choice(_CHARACTERS) + original[start:]
            case 1:
                original = original[:start] + rng.choice(_COMMANDS) + original[start:]
            case 2:
                original = original[:start] + original[end:]
            case 3:
                original = original[:end] + original[start:end] * rng.choice((1, 2, 50)) + original[end:]
            case 4:
                original = original[end:] + original[:start]
            case 5:
                original = original[:start] + text(rng, 5) + original[end:]
            case _:
                original = original[:start] + rng.choice(_ANSWERS) + original[end:]
    return original


def answer(rng: random.Random) -> str:
    """An answer: known, by the grammar, a bomb, plain noise; half of them mutated."""
    draw = rng.random()
    if draw < 0.35:
        found = rng.choice(_ANSWERS)
    elif draw < 0.8:
        found = expression(rng)
    elif draw < 0.83:
        found = rng.choice(_BOMBS)
    else:
        found = text(rng)
    return mutated(rng, found) if rng.random() < 0.5 else found


def completion(rng: random.Random, reference: str) -> str:
    """A completion that answers with the reference, a mutant of it, or anything else, in some frame."""
    draw = rng.random()
    given = reference if draw < 0.3 else mutated(rng, reference) if draw < 0.6 else answer(rng)
    framed = rng.choice(_FRAMES).replace("%s", given)
    if rng.random() < 0.2:
        framed = mutated(rng, framed)
    if rng.random() < 0.005:
        framed = framed * rng.choice((100, 2000))
    return framed


def json_value(rng: random.Random, depth: int = 3) -> Any:
    """Any value that JSON can hold, and some that it cannot (NaN, infinities)."""
    draw = rng.randrange(9 if depth else 7)
    match draw:
        case 0:
            return text(rng, 20)
        case 1:
            return rng.choice((0, 1, -1, 2**31, 2**63, 10**40, 10**400, -(10**4000), rng.randint(-100, 100)))
        case 2:
            return rng.choice((0.0, -0.5, 1e308, 5e-324, float("nan"), float("inf"), -float("inf")))
        case 3:
            return rng.choice((None, True, False))
        case 4:
            return rng.choice(("", "__class__", "../../etc/passwd", "\x1b[2J", "<script>alert(1)</script>", "a" * 5000))
        case 5:
            return rng.choice(_ANSWERS)
        case 6:
            return nested(rng.choice((2, 50, 500, 3000)), rng.choice((list, dict)))
        case 7:
            return [json_value(rng, depth - 1) for _ in range(rng.randint(0, 4))]
        case _:
            return {text(rng, 8): json_value(rng, depth - 1) for _ in range(rng.randint(0, 4))}


class Deep:
    """A marker for `to_json`: lists or objects within one another, too many for Python's own writer."""

    def __init__(self, depth: int, kind: type) -> None:
        self.text = "[" * depth + "]" * depth if kind is list else '{"a":' * depth + "1" + "}" * depth


def nested(depth: int, kind: type) -> Deep:
    """Lists or objects, `depth` of them within one another."""
    return Deep(depth, kind)


def to_json(value: Any) -> str:
    """The value as a JSON text, in which NaN and infinities stand as Python writes them."""
    found: list[str] = []

    def marked(part: Any) -> str:
        found.append(part.text)
        return f"\x00{len(found) - 1}\x00"

    written = json.dumps(value, default=marked, allow_nan=True)
    for number, deep in enumerate(found):
        written = written.replace(json.dumps(f"\x00{number}\x00"), deep)
    return written


def mutated_bytes(rng: random.Random, original: bytes, most: int = 4) -> bytes:
    """Bytes with some places changed: bits flipped, pieces cut, doubled, overwritten."""
    found = bytearray(original)
    for _ in range(rng.randint(1, most)):
        start = rng.randint(0, len(found))
        end = min(len(found), start + rng.randint(0, 12))
        match rng.randrange(5):
            case 0 if start < len(found):
                found[start] ^= 1 << rng.randrange(8)
            case 1:
                del found[start:end]
            case 2:
                found[end:end] = found[start:end]
            case 3:
                found[start:end] = rng.randbytes(rng.randint(0, 6))
            case _:
                found[start:start] = rng.choice(
                    (
                        b"\xff",
                        b"\xed\xa0\x80",
                        b"\x00",
                        b"1e999",
                        b"NaN",
                        b"-",
                        b'"',
                        b"[" * 3000,
                        b"\\ud800",
                        b"\xef\xbb\xbf",
                        b"\r",
                    )
                )
    return bytes(found)


def cut(rng: random.Random, length: int, pieces: int) -> list[tuple[int, int]]:
    """Spans that partition `length` bytes, at random places, within characters too."""
    places = sorted({0, length, *(rng.randint(0, length) for _ in range(pieces))})
    return list(pairwise(places)) if length else []
