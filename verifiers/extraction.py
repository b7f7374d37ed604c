r"""Which part of a completion is the answer: exactly one candidate, by a fixed order.

1. What follows an end-of-turn token is cut, and so is everything up to `</think>`; thinking that never ends has no answer.
2. The last complete `<answer>…</answer>`.
3. The last complete `\boxed{…}` or `\fbox{…}`.
4. The last line that starts with `####`.
5. What follows the last answer marker ("the answer is", "Answer:", "答案是", …).
6. The whole text, if it is one short line without prose.
7. Only with `fallback=True`, for evaluating models that follow no format and never for training: the last formula or the
   last number, whichever comes later; a leading or the last lone option letter. The first number behind a marker, if
   the marker is followed by a sentence.

The first rule that applies decides, also when its candidate is empty or wrong: a right number elsewhere never counts. A last
box that is denied ("it is not \boxed{4}"), or quoted with the words around it, is an empty one.
Every rule is a linear scan over a bounded tail of the completion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from verifiers.math.lexer import FUNCTIONS

WINDOW = 100_000
"""Only so many last characters of a completion are looked at; an answer stands at the end."""

TAIL = 10_000
"""Rules 5 to 7 look at fewer, since they look at every word."""

LONGEST_ANSWER = 5_000
"""A candidate longer than this is no answer."""

LONGEST_BARE = 1000
"""Characters of a completion that may be an answer as a whole."""

MOST_BOXES = 20
"""So many last boxes are tried for one that is complete."""

_NAMES = FUNCTIONS | {"pi", "infinity", "infty"}

Source = Literal["tag", "box", "hash", "marker", "bare", "fallback"]


@dataclass(frozen=True)
class Extracted:
    """The candidate and the rule that found it."""

    text: str
    source: Source


_TURN_ENDS = (
    *(f"<|{name}|>" for name in ("im_end", "im_start", "endoftext", "end_of_text", "eot_id", "eom_id", "end", "eos")),
    *("<|user|>", "<|assistant|>", "<|start_header_id|>", "</s>", "<end_of_turn>", "<start_of_turn>", "<eos>"),
    *("<｜end▁of▁sentence｜>", "[INST]", "[/INST]"),
)
_TURN_STARTS = (
    *(f"<|{name}|>" for name in ("im_start", "endoftext", "end_of_text", "assistant", "start_header_id")),
    "<start_of_turn>",
)
"""What may stand in front of a turn: the two ends of text also begin one, in some models."""
_BOX_AT = re.compile(r"(?:\\(?:begin)?f?boxed|\\fbox|\x08oxed)\Z")
_DENIED = re.compile(r"\b(?:not|never|isn't|isn’t|nor)\s*(?:\$+|\\\(|\\\[|\*+)?\s*\\?(?:begin)?\Z", re.IGNORECASE)
_NO_QUOTE = re.compile(r"(?<=[\d\\])\"")
_BOX_OR_BRACE = re.compile(r"(\\{1,2}(?:begin)?f?boxed|\\{1,2}fbox|\x08oxed)(?![A-Za-z])|\\.|[{}]", re.DOTALL)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BOLD = re.compile(r"(?<![\w*)])\*\*(?=\S)([^*\n]{1,300}?)\*\*(?![\w*(])")
_MARKER = re.compile(
    r"\b(?:final\s+answer|answers?|correct\s+(?:option|choice))\b(?:\s+to\s+(?:the|this)\s+\w+)?\s*"
    r"(?:(?:is|are|would\s+be|should\s+be|must\s+be|will\s+be)\b\s*:?|[:=]|(?=\n|\$|\\\[|\\\())"
    r"|\b(?:r[ée]ponse|antwort|respuesta|risposta|resposta|antwoord|odpowied[źz]|cevap|svar|svaret|ответ|đáp\s+án)\b"
    r"(?:\s+\w+){0,2}?\s*(?:(?:est|ist|lautet|es|è|é|is|är|là|to|это)\b\s*:?|[:=：—–-])"
    r"|(?:答案|答え|正解|정답)\s*(?:应该|应|就)?\s*(?:是|为|為|选|は|은|는|[:：=])\s*[:：]?"
    r"|(?:选|選)\s*[:：]?\s*(?=[A-Z])|(?:答|답)\s*[:：]"
    r"|(?:الإجابة|الجواب)(?:\s+\w+){0,2}?\s*(?:هي|هو|[:：])"
    r"|उत्तर\s*[:：]?\s*(?=[A-Z\d$(\\])",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:(?:therefore|thus|hence|simply|just|exactly|clearly|option|choice|letter|given by|equal to|the|la|le|die|der|das|el)"
    r"\s+)+(?=\S)",
    re.IGNORECASE,
)
_GLOSS = re.compile(r"\s+\([^\W\d_][^()\d]{2,}\)$")
_BETWEEN_FORMULAS = re.compile(r"\s*(?:,|and|or|, and|, or|,\s*$)\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|$)|[。！？]")
_CLAUSE = re.compile(
    r",\s+(?!(?:and|or|where|with|for|if|when)\b)(?=[a-z]{2,}\s)|\s+(?:because|since|which|so that|as the|as it)\b"
)
_LABEL = re.compile(r"[(\[]?[A-J][)\].:]+\s")
_VALUE = re.compile(r"[\d$\\√π]|(?<![\w'])[A-J](?![\w'])|^(?:[Yy]es|[Nn]o|[Tt]rue|[Ff]alse)$")
_COPULA = re.compile(r"\b(?:is|are|equals|was|be)\b:?\s+|:\s+")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.,\\])[-+−]?\s?[$€£¥]?\s?"
    r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+(?!\d)|\d+(?:[.,]\d+)?|\.\d+)(?:\s?/\s?\d+)?(?:\s?\\?%)?"
    r"(?!\d|[.,]\d|\s*[\^*×·]|\\[a-z])"  # not the start of a longer expression
)
_FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<!\\)\$((?:\\.|[^$\\])+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_LEADING_LETTER = re.compile(r"\(?([A-J])(?:[.):]|(?![\sA-Za-z0-9'.,:)]))")
_LONE_LETTER = re.compile(r"(?<![\w'.])\(?([A-H])\)?(?![\w'])")
_ANY_WORD = re.compile(r"(?<!\\)\b[^\W\d_]+")
_WORD = re.compile(r"(?<![\\A-Za-z])[^\W\d_]{2,}")
_UNSPACED_SCRIPT = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_DIGIT_OR_FORMULA = re.compile(r"\d|\\[A-Za-z(\[]|\$")
_NOT_PROSE = re.compile(r"\\(?:begin|end)\{[a-z]+\*?\}|\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{[^{}]*\}")
_TEXT_COMMAND = re.compile(r"\s*\\(?:text|textbf|textit|mathrm|mathbf|mbox)\s*\{([^{}]*)\}\s*")


def final_turn(completion: str) -> str | None:
    r"""The text that counts: the model's own turn, after its thinking; None if the thinking never ended.

    Closing braces right behind an end-of-turn token still belong to the text (`\boxed{42<|im_end|>}`).
    """
    text = completion[-WINDOW:].strip()
    while text.startswith(_TURN_STARTS):
        text = text[len(next(token for token in _TURN_STARTS if text.startswith(token))) :].lstrip()
    if "<" not in text and "[" not in text:
        return text
    cut, token = min(((place, token) for token in _TURN_ENDS if (place := text.find(token)) >= 0), default=(-1, ""))
    if cut >= 0:
        closers = re.match(r"\s*\}+", text[cut + len(token) : cut + len(token) + 50])
        text = text[:cut] + (closers[0] if closers else "")
    thought = text.rfind("</think>")
    if thought >= 0:
        text = text[thought + len("</think>") :]
    elif text.lstrip().startswith("<think>"):
        return None
    return text


def last_box(text: str) -> str | None:
    r"""The content of the last complete `\boxed` or `\fbox`, of an inner box before its outer; None if there is none.

    Without a brace the box holds one character, as TeX reads it: `\boxed 7`.
    """
    found = _last_box(text)
    return None if found is None else found[2]


def _last_box(text: str) -> tuple[int, int, str] | None:
    """Where the last box begins, where it ends, and its content."""
    place = limit = len(text)
    for _ in range(MOST_BOXES):
        place = max(text.rfind("boxed", 0, place), text.rfind("fbox", 0, place), text.rfind("\x08oxed", 0, place))
        if place < 0:
            return None
        head = re.compile(r"(?:boxed|fbox|\x08oxed)(?![A-Za-z])\s*").match(text, place)
        if head is None or not _BOX_AT.search(text, max(0, place - 8), place + len(head[0].rstrip())):
            continue
        opening = head.end()
        if text[opening : opening + 1] != "{":
            if text[opening : opening + 1].strip():
                return place, opening + 1, text[opening]
            limit = place
            continue
        end = _closing_brace(text, opening, limit)
        if end is not None:
            return place, end + 1, text[opening + 1 : end]
        limit = place
    return None


def _is_disowned(text: str, place: int, end: int) -> bool:
    r"""Whether the box from `place` to `end` is denied ("it is not \boxed{4}") or stands within the words of a quotation on its
    line.
    """
    start = text.rfind("\n", 0, place) + 1
    # A mark behind a digit is an inch, and one behind a backslash a dot on a letter.
    before = _NO_QUOTE.sub("", text[max(start, place - TAIL) : place])
    if _DENIED.search(before[-40:]):
        return True
    after = _NO_QUOTE.sub("", text[end : end + TAIL].partition("\n")[0])
    for opening, closing in (('"', '"'), ("“", "”"), ("«", "»")):
        within = before.count(opening) % 2 if opening == closing else before.count(opening) > before.count(closing)
        if within and closing in after and _ANY_WORD.search(before[before.rfind(opening) :].rpartition("\\")[0]):
            return True
    return False


def _closing_brace(text: str, opening: int, limit: int) -> int | None:
    r"""Where the group that opens at `opening` ends, before `limit` and within an answer's length; None if it does not.

    `limit` is where the next box begins: a box that holds one which is never closed is never closed itself.

    An escaped closing brace that nothing opened closes the group too (`\boxed{185\}`).
    """
    sets = [0]  # per open brace, the escaped braces open inside it
    for match in _BRACE.finditer(text, opening + 1, min(limit, opening + LONGEST_ANSWER)):
        token = match[0]
        if token == "{":
            sets.append(0)
        elif token == r"\{":
            sets[-1] += 1
        elif token == r"\}" and sets[-1]:
            sets[-1] -= 1
        elif token in ("}", r"\}"):
            sets.pop()
            if not sets:
                return match.start() + len(token) - 1 if token == "}" else match.start()
    return None


def boxes(text: str) -> list[tuple[int, int, str]]:
    r"""All complete `\boxed` and `\fbox` as (start, end, content), in order, boxes inside boxes left out.

    Without a brace the box holds one character, as TeX reads it: `\boxed 7`. One pass, whatever the nesting.
    """
    found: list[tuple[int, int, str]] = []
    opened: list[tuple[int, int] | None] = []  # per open brace: (start of box, start of content), None for other braces
    pending: int | None = None  # start of a box command whose brace must come next
    pending_end = 0
    for match in _BOX_OR_BRACE.finditer(text):
        token = match[0]
        if pending is not None and text[pending_end : match.start()].strip():
            found.append(_single(text, pending, pending_end))
            pending = None
        if match[1]:
            pending, pending_end = match.start(), match.end()
        elif token == "{":
            opened.append(None if pending is None else (pending, match.end()))
            pending = None
        elif token == "}":
            begun = opened.pop() if opened else None
            if begun is not None:
                start, content = begun
                while found and found[-1][0] >= start:
                    found.pop()
                found.append((start, match.end(), text[content : match.start()]))
            pending = None
        else:
            pending = None
    if pending is not None and text[pending_end:].strip():
        found.append(_single(text, pending, pending_end))
    return found


def _single(text: str, start: int, end: int) -> tuple[int, int, str]:
    position = end + len(text[end:]) - len(text[end:].lstrip())
    return start, position + 1, text[position]


def extract(completion: str, fallback: bool = False) -> Extracted | None:
    """The answer of a completion, or None if it gives none.

    Args:
        completion: the model's text.
        fallback: allow rule 7.
    """
    text = final_turn(completion)
    if text is None:
        return None
    found = _by_format(text, fallback) or _bare(text) or (_fallback(text) if fallback else None)
    if found is None or not found.text.strip() or len(found.text) > LONGEST_ANSWER:
        return None
    return Extracted(_opened(found.text), found.source)


def _opened(text: str) -> str:
    """A candidate without a box or a label of its own ("Answer: G" inside a box)."""
    inner = last_box(text)
    if inner is not None and len(text) - len(inner) < 30 and text.strip(" $.").startswith("\\"):
        return _opened(inner)
    words = _TEXT_COMMAND.fullmatch(text)
    plain = words[1] if words else text
    label = _MARKER.search(plain, 0, 60) if _is_prose(plain) or words else None
    return text if label is None else _after_marker(plain[label.end() :])


def extract_reference(answer: str) -> str:
    r"""The answer within a reference: itself, or the answer of a worked solution.

    Adjacent last boxes with no more than a few words between them are one answer in parts, joined as they were: by a comma
    (`\boxed{1} papers and \boxed{2} bins`) or by "or" (`\boxed{x+2} or \boxed{2+x}`). A box that is repeated, or restated
    behind "=", counts once.
    """
    text = answer[-WINDOW:]
    found = boxes(text)
    if not found:
        formatted = _by_format(text, fallback=False)
        # a caret at the end is a degree sign lost on the way
        return (answer if formatted is None else formatted.text).rstrip().removesuffix("^")
    reference = found[-1][2]
    parts = {reference}
    for (_, end, content), (start, _, _) in zip(found[-2::-1], found[:0:-1], strict=False):
        between = " ".join(text[end:start].replace("$", " ").split()).strip(" \\()[]")
        if len(between) > 40 or between == "=" or _SENTENCE_END.search(between):
            break
        if content not in parts:
            joined_by_or = re.search(r"\bor\b", between) is not None
            reference = content + (r" \text{ or } " if joined_by_or else ", ") + reference
            parts.add(content)
    return reference


def _by_format(text: str, fallback: bool) -> Extracted | None:
    end = max(text.rfind("</answer>"), text.rfind("</ANSWER>"), text.rfind("</Answer>"))
    start = text.lower().rfind("<answer>", 0, end) if end >= 0 else -1
    if start >= 0:
        inside = text[start + len("<answer>") : end].strip()
        within = last_box(inside)
        return Extracted(inside if within is None else within, "tag")
    box = _last_box(text)
    if box is not None:
        return Extracted("" if _is_disowned(text, *box[:2]) else box[2], "box")
    hashes = text.rfind("####")
    if hashes >= 0 and (hashes == 0 or text[hashes - 1].isspace()):
        return Extracted(unquote(text[hashes + len("####") :].partition("\n")[0]), "hash")
    last = None
    tail = _BOLD.sub(r"\1", text[-TAIL:])
    for last in _MARKER.finditer(tail):  # noqa: B007 (only the last match matters)
        pass
    if last is None:
        return None
    sentence = _after_marker(tail[last.end() :])
    if fallback and _is_prose(sentence) and (number := _NUMBER.search(sentence)):
        sentence = number[0].strip()
    return Extracted(sentence, "marker")


def unquote(text: str) -> str:
    """Text without Markdown emphasis, quotes, blanks and full stops around it."""
    text = text.strip().strip("*`\"'“”‘’ \t\n").rstrip("。.,;: ").strip("*`\"'“”‘’ ")
    return text.removesuffix("\\]").removeprefix("\\[").strip() if text.count("\\[") <= 1 else text


def _after_marker(text: str) -> str:
    """The answer at the start of what follows a marker: its first sentence, trimmed of prose around a value.

    An option with its text ("(B) red, because …") and an answer in words are kept whole.
    """
    text = text.lstrip(" \t\n*:：_`")
    formula = _FORMULA.match(text)
    start = formula.end() if formula else 0
    end = _SENTENCE_END.search(text, start)
    sentence = text[: end.start()] if end else text
    if _LABEL.match(sentence):
        return unquote(sentence)
    clause = _CLAUSE.search(sentence, start)
    if clause and (not clause[0].startswith(",") or _VALUE.search(sentence[: clause.start()])):
        sentence = sentence[: clause.start()]
    sentence = unquote(sentence)
    sentence = _GLOSS.sub("", _without_filler(sentence))
    if _is_prose(sentence):
        last_value = max((match.start() for match in _VALUE.finditer(sentence)), default=-1)
        copulas = [match for match in _COPULA.finditer(sentence) if match.end() <= last_value]
        if copulas:
            return unquote(sentence[copulas[-1].end() :])
    return sentence


def _bare(text: str) -> Extracted | None:
    text = text.strip()
    if not text or len(text) > LONGEST_BARE:
        return None
    text = _BOLD.sub(r"\1", text)
    outside = _FORMULA.sub(" ", text)
    if _is_prose(text) or "\n" in outside.strip():
        return None
    return Extracted(_without_filler(unquote(text)), "bare")


def _without_filler(text: str) -> str:
    """Text without "therefore", "option" and the like in front of a value; words in front of words stay."""
    filler = _FILLER.match(text)
    return text[filler.end() :] if filler and _VALUE.match(text, filler.end()) else text


def _is_prose(text: str) -> bool:
    """Whether words lead up to a formula or number, or there are too many words for an answer in words."""
    outside = _FORMULA.sub(" ", text)
    if _UNSPACED_SCRIPT.search(outside):
        return True
    first = _DIGIT_OR_FORMULA.search(text)
    if first is None:
        return len(_ANY_WORD.findall(outside)) > 2
    leads = any(word not in _NAMES for word in _WORD.findall(text[: first.start()]))
    return leads or len(_WORD.findall(outside)) > 4


def _fallback(text: str) -> Extracted | None:
    text = _BOLD.sub(r"\1", text[-TAIL:])
    leading = _LEADING_LETTER.match(text.strip())
    if leading:
        return Extracted(leading[1], "fallback")
    number = letter = None
    formulas = [m for m in _FORMULA.finditer(text) if len(_WORD.findall(_NOT_PROSE.sub(" ", m[0]))) < 2]
    formula = formulas[-1] if formulas else None
    for number in _NUMBER.finditer(text):  # noqa: B007
        pass
    for letter in _LONE_LETTER.finditer(text):  # noqa: B007
        pass
    if number is not None and (formula is None or number.start() >= formula.end()):
        return Extracted(number[0].strip(), "fallback")
    if formula is not None:
        start = formula.start()
        for earlier in reversed(formulas[:-1]):
            if _BETWEEN_FORMULAS.fullmatch(text, earlier.end(), start) is None:
                break
            start = earlier.start()
        return Extracted(text[start : formula.end()], "fallback")
    return None if letter is None else Extracted(letter[1], "fallback")
