"""Units of measure: which words are one, what they measure, and how two of them compare."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

from verifiers.math.words import vocabulary


@dataclass(frozen=True)
class Unit:
    """A unit as a product of base dimensions with a factor to the base units."""

    dimensions: tuple[tuple[str, int], ...]
    factor: Fraction


def _table() -> dict[str, tuple[str, Fraction]]:
    rows = {
        "length": (
            ("mm millimeter millimetre", "1/1000"), ("cm centimeter centimetre", "1/100"), ("dm decimeter", "1/10"),
            ("m meter metre", "1"), ("km kilometer kilometre", "1000"), ("in inch", "127/5000"),
            ("ft foot", "381/1250"), ("yd yard", "1143/1250"), ("mi mile", "201168/125"), ("nm nanometer", "1/1000000000"),
        ),
        "mass": (
            ("mg milligram", "1/1000000"), ("g gram gm", "1/1000"), ("kg kilogram", "1"), ("lb pound", "45359237/100000000"),
            ("oz ounce", "45359237/1600000000"), ("ton", "1000"),
        ),
        "time": (
            ("ms millisecond", "1/1000"), ("s sec second", "1"), ("min minute", "60"), ("h hr hour", "3600"),
            ("day", "86400"), ("week", "604800"), ("month", "2629746"), ("year yr", "31556952"),
        ),
        "volume": (
            ("ml milliliter millilitre", "1/1000"), ("l liter litre", "1"), ("gal gallon", "473176473/125000000"),
            ("quart qt", "473176473/500000000"), ("pint pt", "473176473/1000000000"), ("cup", "473176473/2000000000"),
        ),
        "dollars": (("dollar usd buck", "1"), ("cent", "1/100")),
        "euros": (("euro eur", "1"),),
        "sterling": (("gbp quid", "1"),),
        "yen": (("yen jpy", "1"),),
        "yuan": (("yuan rmb cny", "1"),),
        "rupees": (("rupee inr", "1"),),
        "angle": (("deg degree", "1"), ("rad radian", "0")),
        "energy": (("j joule", "1"), ("kj kilojoule", "1000")),
        "force": (("n newton", "1"),),
        "power": (("w watt", "1"), ("kw kilowatt", "1000")),
        "before noon": (("a.m am", "1"),),
        "after noon": (("p.m pm", "1"),),
        "area": (("acre", "1"),),
        "unit": (("unit", "1"),),
        "celsius": (("celsius", "1"),),
        "fahrenheit": (("fahrenheit", "1"),),
    }  # fmt: skip
    return {
        name: (dimension, Fraction(factor))
        for dimension, entries in rows.items()
        for spellings, factor in entries
        for name in spellings.split()
    }


_UNITS = _table()
_ONLY_IN_TEXT = frozenset({"in", "am", "pm", "deg", "ton", "cup", "pt", "day", "ms", "mi", "dm", "nm", "kw", "kj"})
_COUNTS = frozenset(
    vocabulary(
        "unit way degree percent pct percentage dollar cent euro hour minute second week day month year meter mile pound",
        "feet foot inche inch point apple student people sq square cubic cm km kg mm ft yd lb oz min sec hr mph kph ml mg",
    )
)
_SCALES = {
    "hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12,
}  # fmt: skip
_WORD = re.compile(r"[a-z.]+")
_ATOM = re.compile(r"(square|sq\.?|cubic|cu\.?)?\s*([a-z.]+?)\.?\s*(?:\^\s*\{?\s*(-?\d)\s*\}?)?(squared|cubed)?")


def _singular(word: str) -> str:
    word = word.rstrip(".")
    if word == "feet":
        return "foot"
    for ending, short in (("inches", "inch"), ("ies", "y"), ("s", "")):
        if word.endswith(ending) and word not in _UNITS:
            stem = word[: -len(ending)] + short
            return stem if ending != "inches" else "inch"
    return word


def is_bare_unit(word: str) -> bool:
    """Whether a run of letters directly behind a number is a unit, not a product of variables.

    Single letters never are: `3d` is three times d.
    """
    word = word.lower()
    return _singular(word) in _COUNTS or word in _COUNTS or (len(word) >= 4 and word.isalpha())


def scale(words: str) -> tuple[int, str]:
    """The factor that leading words such as "million" stand for, and the words left."""
    factor = 1
    rest = words.strip()
    while rest:
        first, _, others = rest.partition(" ")
        key = first.lower().strip(".,")
        if key not in _SCALES:
            break
        factor *= _SCALES[key]
        rest = others.strip()
    return factor, rest


def contradict(first: Unit, second: Unit) -> bool:
    """Whether two units measure different things; "square units" may be any area."""
    if first.dimensions == second.dimensions:
        return False
    generic = [tuple((name.replace("unit", "length"), power) for name, power in u.dimensions) for u in (first, second)]
    return generic[0] != generic[1]


@functools.lru_cache(maxsize=4096)
def read(words: str) -> Unit | None:
    """The unit that words name ("square feet", "km/h", "miles per hour", "cm^2"), or None for other words."""
    text = " ".join(words.lower().replace("{", "").replace("}", "").split()).strip(" ,;")
    text = re.sub(r"\bper\b", "/", text.replace("mph", "mi/h").replace("kph", "km/h"))
    dimensions: dict[str, int] = {}
    factor = Fraction(1)
    for index, part in enumerate(text.split("/")):
        for piece in re.split(r"\s*[*·-]\s*", part.strip()) if part.strip() else [""]:
            match = _ATOM.fullmatch(piece.strip())
            if match is None:
                return None
            known = _UNITS.get(match[2]) or _UNITS.get(_singular(match[2]))
            if known is None:
                return None
            prefix = {"s": 2, "c": 3}.get((match[1] or match[4] or " ")[0], 1)
            power = (int(match[3]) if match[3] else prefix) * (-1 if index else 1)
            dimensions[known[0]] = dimensions.get(known[0], 0) + power
            if known[1]:
                factor *= known[1] ** power
            elif dimensions[known[0]]:
                dimensions["radian"] = 1
    return Unit(tuple(sorted(item for item in dimensions.items() if item[1])), factor)
