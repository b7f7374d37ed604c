r"""One spelling for one thing, before reading: Unicode and LaTeX variants become a small common alphabet.

Nothing that carries meaning is dropped here: only layout (`\left`, `\displaystyle`, thin spaces), math delimiters,
quotes and final punctuation go. What is left is what the lexer knows.
"""

from __future__ import annotations

import re
import unicodedata

CURRENCIES = {"¤": "dollars", "€": "euros", "£": "gbp", "¥": "yen", "₹": "rupees", "¢": "cents"}
r"""Currency signs and the words for them; ¤ stands for a dollar sign that is money, not a math delimiter."""

_FRACTIONS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅐": "1/7", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8", "⅑": "1/9", "⅒": "1/10",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₓ", "0123456789+-()nx")
_SYMBOLS = {
    "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "∙": r"\cdot ", "•": r"\cdot ", "÷": r"\div ", "−": "-",
    "–": "-", "—": "-", "‐": "-", "‑": "-", "∕": "/", "⁄": "/", "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ",
    "≦": r"\le ", "≧": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "≡": r"\equiv ", "∈": r"\in ", "∉": r"\notin ",
    "∞": r"\infty ", "π": r"\pi ", "°": r"^{\circ}", "º": r"^{\circ}", "˚": r"^{\circ}", "±": r"\pm ", "∓": r"\mp ",
    "∪": r"\cup ", "∩": r"\cap ", "∅": r"\emptyset ", "Ø": r"\emptyset ", "∖": r"\setminus ", "√": r"\sqrt ",
    "∑": r"\sum ", "∏": r"\prod ", "∫": r"\int ", "…": r"\ldots ", "⋯": r"\ldots ", "⟨": r"\langle ",
    "⟩": r"\rangle ", "⌊": r"\lfloor ", "⌋": r"\rfloor ", "⌈": r"\lceil ", "⌉": r"\rceil ", "′": "'", "’": "'",
    "″": "''", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}", "ℂ": r"\mathbb{C}",
    "∀": r"\forall ", "∃": r"\exists ", "∠": r"\angle ", "△": r"\triangle ", "∣": "|", "，": ",", "、": ",",
    "。": ".", "“": '"', "”": '"', "ℓ": r"\ell ", "∧": r"\land ", "∨": r"\lor ", "→": r"\to ",
}  # fmt: skip
_GREEK = {
    "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "ε": "epsilon", "ϵ": "epsilon", "ζ": "zeta", "η": "eta",
    "θ": "theta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu", "ξ": "xi", "ρ": "rho", "σ": "sigma",
    "τ": "tau", "φ": "phi", "ϕ": "phi", "χ": "chi", "ψ": "psi", "ω": "omega", "Γ": "Gamma", "Δ": "Delta",
    "Θ": "Theta", "Λ": "Lambda", "Σ": "Sigma", "Φ": "Phi", "Ψ": "Psi", "Ω": "Omega",
}  # fmt: skip
_TABLE = {ord(old): new for old, new in _SYMBOLS.items()} | {ord(old): f"\\{new} " for old, new in _GREEK.items()}

_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ]+")
_SUBSCRIPT_RUN = re.compile("[₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙₓ]+")
_UNICODE_ROOT = re.compile(r"√\s*(\d+(?:\.\d+)?|[A-Za-z])")
_BROKEN_ESCAPES = {"\x08": r"\b", "\x0c": r"\f", "\x07": r"\a", "\x0b": r"\v"}
_BROKEN_TAB = re.compile(r"\t(?=ext\b|ext\{|imes\b|frac\b|heta\b|an\b)")
_BROKEN_RETURN = re.compile(r"\r(?=ight\b|angle\b|ho\b)")
_DOUBLED = re.compile(r"(?<!\\)\\\\(?=[A-Za-z]{2,})")
_SINGLE_BEGIN = re.compile(r"(?<!\\)\\begin\b")
_DELIMITER_SIZE = re.compile(r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])\s*")
_LAYOUT = re.compile(
    r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|noindent|mathstrut|hfill|break|newline"
    r"|tiny|small|large|Large|LARGE|huge|Huge|underline|centering)(?![A-Za-z])"
)
_DOT_DELIMITER = re.compile(r"\\(?:left|right)\s*\.")
_SPACE = re.compile(
    r"(?<!\\)\\[,;:>\s~]|~|\\(?:q?quad|enspace|thinspace|hspace\{[^{}]*\}|[hv]?phantom(?:\{[^{}]*\}|\s*-)?)(?![A-Za-z])"
)
_GLUED_QUAD = re.compile(r"\\(q?quad)(?=[A-Za-z])")
_COLOR = re.compile(r"\\(?:text)?color\s*\{[A-Za-z]+\}")
_MODULO = re.compile(r"\(\s*(?:\\b?mod|mod|\\(?:text|mathrm)\s*\{\s*mod\s*\})\s*([^()]{1,40})\)")
_FRAC = re.compile(r"\\[dtcx]frac(?![A-Za-z])")
_SUP_TAG = re.compile(r"<sup>(.*?)</sup>", re.IGNORECASE)
_SUB_TAG = re.compile(r"<sub>(.*?)</sub>", re.IGNORECASE)
_TRAILING = re.compile(r"(?:[\s.,;:]|\\\\|\\$)+$")


def normalise(text: str) -> str:
    """The text in the lexer's alphabet: ASCII and LaTeX commands, single spaces, no math delimiters."""
    for broken, repaired in _BROKEN_ESCAPES.items():
        text = text.replace(broken, repaired)
    text = _BROKEN_RETURN.sub(r"\\r", _BROKEN_TAB.sub(r"\\t", text))
    if not text.isascii():
        text = _ascii(text)
    if "\\" in text:
        text = _layout(text)
    text = text.replace("**", "^")
    if "mod" in text:
        text = _MODULO.sub(r"\\pmod{\1}", text)
    text = _dollars(text)
    text = " ".join(text.split())
    return _strip_end(text)


def _ascii(text: str) -> str:
    text = _UNICODE_ROOT.sub(r"\\sqrt{\1}", text)
    for character, fraction in _FRACTIONS.items():
        if character in text:
            numerator, denominator = fraction.split("/")
            text = text.replace(character, rf"\frac{{{numerator}}}{{{denominator}}}")
    text = _SUPERSCRIPT_RUN.sub(lambda match: "^{" + match[0].translate(_SUPERSCRIPTS) + "}", text)
    text = _SUBSCRIPT_RUN.sub(lambda match: "_{" + match[0].translate(_SUBSCRIPTS) + "}", text)
    text = text.translate(_TABLE)
    return unicodedata.normalize("NFKC", text).translate(_TABLE)


def _layout(text: str) -> str:
    if _DOUBLED.search(text) and not _SINGLE_BEGIN.search(text):  # a string escaped once too often
        text = _DOUBLED.sub(r"\\", text.replace(r"\\\\", r"\\ "))
    text = text.replace(r"\(", " ").replace(r"\)", " ")
    text = re.sub(r"(?<!\\)\\\[|(?<!\\)\\\]", " ", text)
    text = re.sub(r",\s*\\!\s*", "{,}", text).replace(r"\!", "")
    text = _DOT_DELIMITER.sub(" ", text)
    text = _DELIMITER_SIZE.sub("", text)
    text = _LAYOUT.sub(" ", text)
    text = _COLOR.sub(" ", text)
    text = _GLUED_QUAD.sub(r"\\\1 ", text)
    text = _SPACE.sub(" ", text)
    return _FRAC.sub(r"\\frac", text)


def _dollars(text: str) -> str:
    text = text.replace(r"\$", "¤").replace(r"\pounds", "£").replace(r"\euro", "€")
    if text.count("$") == 1:
        text = text.replace("$", "¤")
    if "<" in text:
        text = _SUB_TAG.sub(r"_{\1}", _SUP_TAG.sub(r"^{\1}", text))
    return text.replace("$", " ").replace("`", " ").replace('"', " ")


def _strip_end(text: str) -> str:
    kept = _TRAILING.sub("", text)
    return text if text.endswith("...") or kept.endswith("\\") else kept.strip()
