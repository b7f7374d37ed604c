"""THL, the Tokenizer Heterogeneity Layer: what one tokenizer wrote, as another would have.

Text crosses by decoding with the source and encoding with the learner, y' = enc_n(dec_m(y)); log-probs cross as masses
over words: for each word w with source tokens S_w and learner tokens T_w, L_w = sum of the log-probs over S_w, and each
learner token of w gets L_w / |T_w| (arXiv 2605.07244). Our reading of what the paper leaves open:

- Everything is measured in bytes, on which all tokenizers agree; characters may be split between tokens, bytes are not.
- Words are whitespace-led; neighbours are merged until both tokenizations have a boundary there.
- Where both cut the whole text alike, the trace is copied token by token, so that one tokenizer is the identity.
- Special tokens stand outside the map. The source's end-of-sequence log-prob goes to the learner's end of sequence, and
  only if the completion really stopped with it.
- Text that does not survive the round trip or does not fit the learner's budget is dropped and counted, never patched.

The sum of a trace is preserved, up to rounding; a learner token's error is at most |L_w| (1 - 1/|T_w|) if the log-probs
of the word are of one sign, which log-probs are.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

from mrl_env.types import Experience, Trace

DropReason = Literal["undecodable", "round_trip", "too_long", "empty", "no_trace"]

Span = tuple[int, int]

_WHITESPACE_RUN = re.compile(r"\s+")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_REPLACEMENT_CHARACTER = "�"


class TextTokenizer:
    """A fast Hugging Face tokenizer seen as a map between token ids and bytes, for text in the middle of a sequence.

    A completion continues a prompt, so no dummy space is put before it, no beginning-of-sequence token is added, and
    text that spells a special token is encoded as the plain characters it is (a Unigram model, and an end of sequence
    that is an ordinary token, know no other spelling: such text does not survive the round trip).

    Args:
        tokenizer: a fast tokenizer of Transformers: byte-level BPE, or SentencePiece with byte fallback.

    Raises:
        ValueError: if it is not fast, has no end-of-sequence token, or its decoder is of another kind.
    """

    def __init__(self, tokenizer: Any) -> None:
        from tokenizers import Tokenizer

        if not getattr(tokenizer, "is_fast", False):
            raise ValueError(
                f"tokenizer={type(tokenizer).__name__} is no fast tokenizer; load one with a tokenizer.json"
            )
        if tokenizer.eos_token_id is None:
            raise ValueError(
                f"tokenizer={tokenizer.name_or_path!r} has no end-of-sequence token, so no policy could learn to stop; "
                "set tokenizer.eos_token"
            )
        self.eos_token_id: int = tokenizer.eos_token_id
        pipeline = json.loads(tokenizer.backend_tokenizer.to_str())
        self._decoders = _decoders(pipeline["decoder"], tokenizer.name_or_path)
        self._special_ids = {token["id"] for token in pipeline["added_tokens"] if token["special"]}
        self._special_ids.update(tokenizer.all_special_ids)
        self._bytes: dict[int, bytes] = {}
        for part in ("normalizer", "pre_tokenizer"):
            pipeline[part] = _without_dummy_prefix(pipeline[part])
        pipeline["truncation"] = pipeline["padding"] = None
        self._backend = Tokenizer.from_str(json.dumps(pipeline))
        self._backend.encode_special_tokens = True

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token contributes to the text; empty for special tokens and unknown ids."""
        if token_id not in self._bytes:
            token = None if token_id in self._special_ids else self._backend.id_to_token(token_id)
            self._bytes[token_id] = b"" if token is None else _token_bytes(token, self._decoders)
        return self._bytes[token_id]

    def decode(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of a sequence, special tokens left out. They need not be valid UTF-8."""
        return b"".join(self.token_bytes(token_id) for token_id in token_ids)

    def encode(self, text: str) -> list[int]:
        """The ids of a text that continues a sequence; no special tokens."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def spans(self, token_ids: Sequence[int]) -> list[Span]:
        """Byte span `(start, end)` of each token in `decode(token_ids)`; empty spans for special tokens."""
        ends = list(accumulate(len(self.token_bytes(token_id)) for token_id in token_ids))
        return list(zip([0, *ends], ends, strict=False))

    def trace(self, token_ids: Sequence[int], logprobs: Sequence[float], *, stopped: bool) -> Trace | None:
        """Sampling log-probs over byte spans, to be shared.

        Args:
            token_ids: (T,) as sampled.
            logprobs: (T,) nats.
            stopped: whether the last token is an end of sequence.

        Returns:
            None if the bytes are not valid UTF-8: there is no text that the trace could lie over. Log-probs of special
            tokens other than the last end of sequence are left out.
        """
        spoken = token_ids[:-1] if stopped else token_ids
        try:
            self.decode(spoken).decode("utf-8")
        except UnicodeDecodeError:
            return None
        kept = [
            (span, logprob)
            for span, logprob in zip(self.spans(spoken), logprobs[: len(spoken)], strict=True)
            if span[0] < span[1]
        ]
        return Trace(
            spans=tuple(span for span, _ in kept),
            logprobs=tuple(logprob for _, logprob in kept),
            eos_logprob=logprobs[-1] if stopped else None,
        )


@dataclass(frozen=True)
class Retokenized:
    """A peer's completion in the learner's tokens.

    Attributes:
        token_ids: (T,) the learner's ids, its end of sequence included if the peer stopped.
        logprobs: (T,) the aligned trace in nats; None if the record brought none.
        residual_bound: mean over tokens of |L_w| (1 - 1/|T_w|), in nats; 0 without a trace.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    residual_bound: float


class Retokenizer:
    """The learner's side of the THL: peers' records in, rows of the learner's tokens out.

    Args:
        tokenizer: the learner's.
        max_completion_length: tokens that a completion may have, end of sequence included.

    Attributes:
        kept: records retokenized so far.
        dropped: records dropped so far, by reason.
        residual_bounds: the residual bound of each kept record that had a trace.
    """

    def __init__(self, tokenizer: TextTokenizer, max_completion_length: int) -> None:
        self._tokenizer = tokenizer
        self._max_completion_length = max_completion_length
        self._memo: dict[tuple[Experience, bool], Retokenized | DropReason] = {}
        self.clear()

    def clear(self) -> None:
        """Forget the counts and what was retokenized: a new step begins."""
        self.kept = 0
        self.dropped: Counter[DropReason] = Counter()
        self.residual_bounds: list[float] = []
        self._memo.clear()

    def __call__(self, experience: Experience, *, traced: bool = False) -> Retokenized | None:
        """The record in the learner's tokens, or None if it was dropped; each record counts once until `clear`.

        Args:
            experience: a peer's record with its text.
            traced: also drop a record whose trace is missing or does not fit its text.

        Raises:
            ValueError: if the record has no text, because the learner does not subscribe to `rollouts`.
        """
        if (experience, traced) not in self._memo:
            result = retokenize(self._tokenizer, experience, self._max_completion_length)
            if traced and isinstance(result, Retokenized) and result.logprobs is None:
                result = "no_trace"
            self._memo[experience, traced] = result
            if isinstance(result, Retokenized):
                self.kept += 1
                if result.logprobs is not None:
                    self.residual_bounds.append(result.residual_bound)
            else:
                self.dropped[result] += 1
        result = self._memo[experience, traced]
        return result if isinstance(result, Retokenized) else None


def retokenize(
    tokenizer: TextTokenizer, experience: Experience, max_completion_length: int
) -> Retokenized | DropReason:
    """A record in the tokens of `tokenizer`, its trace aligned to them, or why it was dropped.

    Raises:
        ValueError: if the record has no text.
    """
    text = experience.text
    if text is None:
        raise ValueError(f"record {experience.id} has no text; subscribe to the channel 'rollouts'")
    if _REPLACEMENT_CHARACTER in text:
        return "undecodable"
    try:
        encoded = text.encode("utf-8")
    except UnicodeEncodeError:
        return "undecodable"
    stopped = experience.finish_reason == "stop"
    token_ids = tokenizer.encode(text)
    if tokenizer.decode(token_ids) != encoded:
        return "round_trip"
    spans = tokenizer.spans(token_ids)
    if any(start == end for start, end in spans):
        return "round_trip"
    if not token_ids and not stopped:
        return "empty"
    if len(token_ids) + stopped > max_completion_length:
        return "too_long"
    trace = experience.trace
    logprobs, residual_bound = None, 0.0
    if trace is not None and (trace.eos_logprob is not None) == stopped and _covers(trace.spans, encoded):
        aligned, bounds = align(text, trace.spans, trace.logprobs, spans)
        if trace.eos_logprob is not None:
            aligned.append(trace.eos_logprob)
            bounds.append(0.0)
        logprobs, residual_bound = tuple(aligned), math.fsum(bounds) / len(bounds)
    return Retokenized((*token_ids, *([tokenizer.eos_token_id] if stopped else [])), logprobs, residual_bound)


def align(
    text: str, source_spans: Sequence[Span], source_logprobs: Sequence[float], target_spans: Sequence[Span]
) -> tuple[list[float], list[float]]:
    """Lay the source's log-probs over the target's tokens, word by word.

    Args:
        text: what both tokenizations spell.
        source_spans: (S,) byte spans that partition the text.
        source_logprobs: (S,) nats.
        target_spans: (T,) byte spans that partition the text.

    Returns:
        (T,) log-probs L_w / |T_w|, whose sum is that of the source, and (T,) bounds |L_w| (1 - 1/|T_w|).

    Example: two words; the learner splits the second in three.
        >>> align("a bcd", [(0, 1), (1, 5)], [-1.0, -3.0], [(0, 1), (1, 3), (3, 4), (4, 5)])
        ([-1.0, -1.0, -1.0, -1.0], [0.0, 2.0, 2.0, 2.0])
    """
    if list(source_spans) == list(target_spans):
        return list(source_logprobs), [0.0] * len(target_spans)
    boundaries = word_boundaries(text, source_spans, target_spans)
    aligned: list[float] = []
    bounds: list[float] = []
    s = t = 0
    for _, end in pairwise(boundaries):
        mass, count = [], 0
        while s < len(source_spans) and source_spans[s][1] <= end:
            mass.append(source_logprobs[s])
            s += 1
        while t < len(target_spans) and target_spans[t][1] <= end:
            count += 1
            t += 1
        total = math.fsum(mass)
        aligned += [total / count] * count
        bounds += [abs(total) * (1 - 1 / count)] * count
    return aligned, bounds


def word_boundaries(text: str, source_spans: Sequence[Span], target_spans: Sequence[Span]) -> list[int]:
    """Byte offsets between words: where whitespace begins and both tokenizations have a boundary; both ends included.

    Args:
        text: what both tokenizations spell.
        source_spans, target_spans: byte spans that partition the text.

    Returns:
        Rising offsets from 0 to the length of the text in bytes; just `[0]` for an empty text.
    """
    shared = {start for start, _ in source_spans} & {start for start, _ in target_spans}
    boundaries, characters, offset = [0], 0, 0
    for run in _WHITESPACE_RUN.finditer(text):
        offset += len(text[characters : run.start()].encode("utf-8"))
        characters = run.start()
        if offset in shared and offset > 0:
            boundaries.append(offset)
    end = len(text.encode("utf-8"))
    return [*boundaries, end] if end > 0 else boundaries


def _covers(spans: Sequence[Span], encoded: bytes) -> bool:
    """Whether spans that partition something partition these bytes: a record from a file may not fit its text."""
    return (spans[-1][1] if spans else 0) == len(encoded)


def _byte_level_alphabet() -> dict[str, int]:
    """The byte of each character of byte-level BPE (Radford et al. 2019).

    Printable bytes are written as themselves, the others numbered from U+0100.
    """
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in set(printable))
    alphabet.update({chr(256 + n): byte for n, byte in enumerate(others)})
    return alphabet


_BYTE_LEVEL = _byte_level_alphabet()


def _flatten(component: Any, children: str) -> list[dict[str, Any]]:
    """A pipeline component as a list: the parts of a `Sequence`, or itself; empty if there is none."""
    if component is None:
        return []
    if component["type"] == "Sequence":
        return [part for child in component[children] for part in _flatten(child, children)]
    return [component]


def _decoders(decoder: Any, name: str) -> list[dict[str, Any]]:
    """The steps that turn a token's string into bytes."""
    steps = _flatten(decoder, "decoders")
    # `Strip` removes the dummy space at the start of a sequence; a completion is never at the start.
    kinds = {step["type"] for step in steps}
    supported = {"ByteLevel", "ByteFallback", "Metaspace", "Replace", "Fuse", "Strip"}
    regular = all("String" in step["pattern"] for step in steps if step["type"] == "Replace")
    if not kinds & {"ByteLevel", "ByteFallback", "Metaspace"} or kinds - supported or not regular:
        raise ValueError(
            f"tokenizer={name!r} decodes by {sorted(kinds) or 'nothing'}, whose tokens have no exact bytes; "
            "use a byte-level BPE or SentencePiece tokenizer"
        )
    return steps


def _token_bytes(token: str, decoders: Sequence[dict[str, Any]]) -> bytes:
    """The bytes of one token's string."""
    for step in decoders:
        if step["type"] == "ByteLevel":
            mapped = [_BYTE_LEVEL.get(character) for character in token]
            # Added tokens are kept as they are written, and may hold characters outside the alphabet.
            return token.encode("utf-8") if None in mapped else bytes(byte for byte in mapped if byte is not None)
        if step["type"] == "ByteFallback" and (match := _BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        if step["type"] == "Replace":
            token = token.replace(step["pattern"]["String"], step["content"])
        if step["type"] == "Metaspace":
            token = token.replace(step["replacement"], " ")
    return token.encode("utf-8")


def _without_dummy_prefix(component: Any) -> Any:
    """A normalizer or pre-tokenizer without whatever puts a space before the first word."""
    if component is None:
        return None
    if component["type"] == "Sequence":
        key = "normalizers" if "normalizers" in component else "pretokenizers"
        parts = [_without_dummy_prefix(part) for part in component[key]]
        return {**component, key: [part for part in parts if part is not None]}
    if component["type"] == "Prepend":
        return None
    if component["type"] == "Metaspace":
        return {**component, "prepend_scheme": "never"}
    if component["type"] == "ByteLevel":
        return {**component, "add_prefix_space": False}
    return component
