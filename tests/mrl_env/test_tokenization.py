"""THL: bytes and spans, alignment by hand and against another aligner, and every ordered pair of real tokenizers."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers import models as tokenizer_models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

import algorithms
from mrl_env import Experience, Retokenizer, TextTokenizer, Trace
from mrl_env.tokenization import Retokenized, Span, align, retokenize, word_boundaries
from mrl_env.types import FinishReason

CORPUS = [
    "The answer is 12, because 3 times 4 is 12 and nothing is left over at the end of the day.",
    "So the total of the first of the two terms is of the form a of b.",
    "Compute \\frac{1}{2} + \\sqrt{3} and put it in a box: \\boxed{42}.",
    "x^2 + 3x + 2 = (x + 1)(x + 2), so x = -1 or x = -2.\n\nHence the sum is -3.",
    "Ägypten, naïve, 日本語, привет мир",
] * 20

SNIPPETS = [
    "The answer is \\boxed{\\frac{7}{19}}.",
    "$\\sqrt{3}\\cdot\\left(x^2+1\\right)$ \\\\ \\[ \\int_0^1 \\]",
    "1234567890 12 3.14159 1,000,000",
    "日本語のテキスト、数学。",
    "한국어 中文 العربية עברית हिन्दी",
    "👩‍👩‍👧‍👦🙂🇨🇭👍🏽",
    "e\u0301 n\u0303 ä",  # combining marks: not NFC
    "éñä",
    "ﬁ Ⅷ ½ ² ∮ √ ∞ ≤ ℝ 𝔸",
    " ",
    "  ",
    "\n\n\n",
    " \t \r\n\u3000\u00a0 ",
    "<|im_end|>",
    "<|eot_id|>",
    "</s>",
    "<s>",
    "<bos>",
    "<eos>",
    "<|endoftext|>",
    "<think>",
    "<0x0A>",
    "▁",
    "Ġ",
    "of the",
    "\x00\x1b\x7f",
    "\ufeff\u200b",
]
TEXTS = st.lists(
    st.sampled_from(SNIPPETS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6
).map("".join)

SHARED = ("qwen2_5", "qwen3", "llama3_2", "mistral_nemo")
TINY = ("llama", "qwen3")
GGUF = {"SmolLM2": "SmolLM2-135M-Instruct.Q4_1.gguf", "Gemma 3": "gemma-3-270m-q4_k_m.gguf"}


# ---------------------------------------------------------------------------------------------------------------------
# Tokenizers of kinds that the shared ones are not.


def wrapped(backend: Tokenizer, **special: str) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", **special)


def byte_pieces(vocabulary: dict[str, int]) -> dict[str, int]:
    """The vocabulary, and a piece for each byte: what SentencePiece calls byte fallback."""
    pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    return {**vocabulary, **{piece: len(vocabulary) + i for i, piece in enumerate(pieces)}}


def llama2_like() -> Any:
    """BPE with byte fallback and a dummy space first; without a pre-tokenizer, so that it merges across spaces."""
    trained = Tokenizer(tokenizer_models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], max_token_length=8, show_progress=False
    )
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(merge) for merge in model["merges"]]
    backend = Tokenizer(
        tokenizer_models.BPE(
            vocab=byte_pieces(model["vocab"]), merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True
        )
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    return wrapped(backend, bos_token="<s>", unk_token="<unk>")


def unigram() -> Any:
    """Unigram with byte fallback, and Metaspace, which puts a dummy space first."""
    trained = Tokenizer(tokenizer_models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    pieces = [(piece, score) for piece, score in json.loads(trained.to_str())["model"]["vocab"]]
    pieces += [(piece, -20.0) for piece in byte_pieces({})]
    backend = Tokenizer(tokenizer_models.Unigram(pieces, unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    backend.add_special_tokens(special)
    return wrapped(backend, unk_token="<unk>")


def byte_level(*, add_prefix_space: bool, use_regex: bool) -> Any:
    """Byte-level BPE; without the regular expression it merges across spaces."""
    backend = Tokenizer(tokenizer_models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=8,
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    backend.add_tokens([AddedToken("<think>", normalized=False), AddedToken(" \\boxed{", normalized=False)])
    return wrapped(backend)


MAKERS: dict[str, Callable[[], Any]] = {
    "Llama 2's kind": llama2_like,
    "Unigram": unigram,
    "byte-level, dummy space": lambda: byte_level(add_prefix_space=True, use_regex=True),
    "byte-level across spaces": lambda: byte_level(add_prefix_space=False, use_regex=False),
}
DUMMY_SPACE = ("Llama 2's kind", "Unigram")
"""Their decoders take one space off the beginning."""

SMOLLM2_LACKS = frozenset(b"\x04\x06\x13\x14\x16\x1d" + bytes([0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)]))
"""Bytes that no token of SmolLM2 spells: it leaves them out, so texts with them must be dropped, never taught."""


@pytest.fixture(scope="session")
def local() -> dict[str, Any]:
    """Tokenizers that need nothing but this repository."""
    tiny = Path(algorithms.__file__).parent / "pools" / "tiny"
    loaded = {f"tiny {name}": AutoTokenizer.from_pretrained(tiny / name) for name in TINY}
    return {**loaded, **{name: make() for name, make in MAKERS.items()}}


@pytest.fixture(scope="session")
def every(local: dict[str, Any], shared: Path) -> dict[str, Any]:
    """The local ones and those of four model families."""
    return {**{name: AutoTokenizer.from_pretrained(shared / "tokenizers" / name) for name in SHARED}, **local}


@pytest.fixture(scope="session")
def texts_of(local: dict[str, Any]) -> dict[str, TextTokenizer]:
    return {name: TextTokenizer(tokenizer) for name, tokenizer in local.items()}


@pytest.fixture(scope="session")
def every_text(every: dict[str, Any], texts_of: dict[str, TextTokenizer]) -> dict[str, TextTokenizer]:
    return {name: texts_of.get(name) or TextTokenizer(tokenizer) for name, tokenizer in every.items()}


@pytest.fixture(scope="session")
def real(models: Path) -> dict[str, Any]:
    """Those of the two real models."""
    return {name: AutoTokenizer.from_pretrained(models, gguf_file=file) for name, file in GGUF.items()}


@pytest.fixture(scope="session")
def real_text(real: dict[str, Any]) -> dict[str, TextTokenizer]:
    return {name: TextTokenizer(tokenizer) for name, tokenizer in real.items()}


session_fixtures = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


# ---------------------------------------------------------------------------------------------------------------------
# Another aligner, written for clarity only, and what must hold of every crossing.


def slow_words(text: str, source: Sequence[Span], target: Sequence[Span]) -> list[int]:
    """For each byte the number of its word: one begins with a blank after no blank, where both cut."""
    words: list[int] = []
    word, previous = 0, ""
    for character in text:
        here = len(words)
        begins = character.isspace() and not previous.isspace() and here > 0
        if begins and any(start == here for start, _ in source) and any(start == here for start, _ in target):
            word += 1
        words += [word] * len(character.encode())
        previous = character
    return words


def check_alignment(text: str, source: Sequence[Span], logprobs: Sequence[float], target: Sequence[Span]) -> None:
    """Mass of every word, share of every token, and the bound, against the slow aligner."""
    aligned, bounds = align(text, source, logprobs, target)
    assert len(aligned) == len(bounds) == len(target)
    assert math.fsum(aligned) == pytest.approx(math.fsum(logprobs), abs=1e-9)
    if list(source) == list(target):
        assert aligned == list(logprobs)
        assert bounds == [0.0] * len(target)
        return
    words = slow_words(text, source, target)
    for start, end in (*source, *target):
        assert len(set(words[start:end])) == 1, "a token lies in one word"
    rng = random.Random(len(text))
    for word in range(words[-1] + 1 if words else 0):
        inside = [t for t, (start, _) in enumerate(target) if words[start] == word]
        mass = math.fsum(lp for (start, _), lp in zip(source, logprobs, strict=True) if words[start] == word)
        # Whatever the learner's tokens would really have got: log-probs of one sign with the word's mass.
        weights = [rng.random() for _ in inside]
        truths = [[mass * (t == one) for t in range(len(inside))] for one in range(len(inside))]
        truths.append([mass * weight / sum(weights) for weight in weights])
        for n, t in enumerate(inside):
            assert aligned[t] == pytest.approx(mass / len(inside), abs=1e-12)
            assert bounds[t] == pytest.approx(abs(mass) * (1 - 1 / len(inside)), abs=1e-9)
            errors = [abs(aligned[t] - truth[n]) for truth in truths]
            assert all(error <= bounds[t] + 1e-9 for error in errors)
            assert max(errors) == pytest.approx(bounds[t], abs=1e-9), "the bound is reached"


def drawn_logprobs(count: int, seed: int) -> tuple[float, ...]:
    rng = random.Random(seed)
    return tuple(-rng.expovariate(0.5) for _ in range(count))


def written(
    tokenizer: TextTokenizer, token_ids: Sequence[int], finish_reason: FinishReason = "stop", seed: int = 0
) -> Experience:
    """What a policy with this tokenizer would publish after sampling these ids (end of sequence not among them)."""
    stopped = finish_reason == "stop"
    ids = [*token_ids, *([tokenizer.eos_token_id] if stopped else [])]
    trace = tokenizer.trace(ids, drawn_logprobs(len(ids), seed), stopped=stopped)
    text = tokenizer.decode(token_ids).decode("utf-8", errors="replace")
    return Experience("p", "peer", 0, finish_reason, 0, text=text, trace=trace)


def check_partition(spans: Sequence[Span], length: int) -> None:
    assert [start for start, _ in spans] == [0, *(end for _, end in spans)][: len(spans)]
    assert (spans[-1][1] if spans else 0) == length
    assert all(start < end for start, end in spans)


def check_crossing(source: TextTokenizer, learner: TextTokenizer, record: Experience) -> bool:
    """All that the THL promises of one record; returns whether it was kept."""
    assert record.text is not None
    row = retokenize(learner, record, 100_000)
    if not isinstance(row, Retokenized):
        reencoded = learner.decode(learner.encode(record.text))
        assert row in ("round_trip", "empty", "undecodable")
        assert row != "round_trip" or reencoded != record.text.encode()
        assert row != "empty" or (record.text == "" and record.finish_reason != "stop")
        assert row != "undecodable" or "\ufffd" in record.text
        return False
    stopped = record.finish_reason == "stop"
    ids = row.token_ids[:-1] if stopped else row.token_ids
    assert learner.decode(ids) == record.text.encode()
    assert not stopped or row.token_ids[-1] == learner.eos_token_id
    spans = learner.spans(ids)
    check_partition(spans, len(record.text.encode()))
    assert record.trace is not None
    assert row.logprobs is not None
    assert len(row.logprobs) == len(row.token_ids)
    assert math.fsum(row.logprobs) == pytest.approx(record.trace.total, abs=1e-9)
    assert not stopped or row.logprobs[-1] == record.trace.eos_logprob
    check_alignment(record.text, record.trace.spans, record.trace.logprobs, spans)
    if source is learner and ids == tuple(source.encode(record.text)) and spans == list(record.trace.spans):
        assert row.logprobs[: len(ids)] == record.trace.logprobs
        assert row.residual_bound == 0.0
    return True


def check_all_pairs(
    sources: dict[str, TextTokenizer], learners: dict[str, TextTokenizer], text: str, finish_reason: FinishReason
) -> None:
    for source_name, source in sources.items():
        ids = source.encode(text)
        record = written(source, ids, finish_reason, seed=len(text))
        if record.trace is None:
            assert source_name == "SmolLM2", "every other tokenizer has all bytes"
            continue
        check_partition(record.trace.spans, len(record.text.encode()))  # type: ignore[union-attr]
        for name, learner in learners.items():
            kept = check_crossing(source, learner, record)
            if name == source_name and source.decode(ids) == text.encode() and "\ufffd" not in text and record.text:
                row = retokenize(learner, record, 100_000)
                assert kept
                assert isinstance(row, Retokenized)
                stop = [source.eos_token_id] * (finish_reason == "stop")
                assert list(row.token_ids) == [*ids, *stop], "one tokenizer is the identity"
                ends = [record.trace.eos_logprob] * len(stop)
                assert row.logprobs == (*record.trace.logprobs, *ends)
                assert row.residual_bound == 0.0


# ---------------------------------------------------------------------------------------------------------------------


class TestAlignmentByHand:
    """(text, source spans, log-probs, learner spans, expected log-probs, expected bounds)."""

    CASES = {  # noqa: RUF012
        "one word split in three": (
            "a bcd", [(0, 1), (1, 5)], [-1.0, -3.0], [(0, 1), (1, 3), (3, 4), (4, 5)],
            [-1.0, -1.0, -1.0, -1.0], [0.0, 2.0, 2.0, 2.0],
        ),
        "one token for two": (
            "ab cd", [(0, 1), (1, 2), (2, 4), (4, 5)], [-0.25, -0.75, -1.0, -3.0], [(0, 2), (2, 5)],
            [-1.0, -4.0], [0.0, 0.0],
        ),
        "the same count, cut elsewhere": (
            "abc d", [(0, 1), (1, 3), (3, 5)], [-1.0, -5.0, -2.0], [(0, 2), (2, 3), (3, 5)],
            [-3.0, -3.0, -2.0], [3.0, 3.0, 0.0],
        ),
        "a source token across two words": (
            "a b c", [(0, 3), (3, 5)], [-2.0, -1.0], [(0, 1), (1, 3), (3, 5)],
            [-1.0, -1.0, -1.0], [1.0, 1.0, 0.0],
        ),
        "a learner token across two words": (
            "a b c", [(0, 1), (1, 3), (3, 5)], [-2.0, -1.0, -4.0], [(0, 1), (1, 5)],
            [-2.0, -5.0], [0.0, 0.0],
        ),
        "chained merging": (
            "a b c d", [(0, 3), (3, 5), (5, 7)], [-1.0, -2.0, -8.0], [(0, 1), (1, 5), (5, 7)],
            [-1.5, -1.5, -8.0], [1.5, 1.5, 0.0],
        ),
        "no common boundary": (
            "a b", [(0, 2), (2, 3)], [-1.0, -2.0], [(0, 1), (1, 3)],
            [-1.5, -1.5], [1.5, 1.5],
        ),
        "é in two tokens": (  # c3 a9 20 78
            "é x", [(0, 1), (1, 2), (2, 4)], [-1.0, -2.0, -4.0], [(0, 2), (2, 3), (3, 4)],
            [-3.0, -2.0, -2.0], [0.0, 2.0, 2.0],
        ),
        "a character of four bytes, tokens across its edges": (  # 61 f0 9f 99 82 62
            "a🙂b", [(0, 2), (2, 4), (4, 6)], [-1.0, -1.0, -1.0], [(0, 3), (3, 6)],
            [-1.5, -1.5], [1.5, 1.5],
        ),
        "a blank of three bytes": (  # 61 e3 80 80 62
            "a\u3000b", [(0, 1), (1, 5)], [-1.0, -3.0], [(0, 1), (1, 2), (2, 4), (4, 5)],
            [-1.0, -1.0, -1.0, -1.0], [0.0, 2.0, 2.0, 2.0],
        ),
        "a blank of three bytes, cut inside only": (
            "a\u3000b", [(0, 2), (2, 5)], [-1.0, -3.0], [(0, 2), (2, 4), (4, 5)],
            [-4 / 3] * 3, [8 / 3] * 3,
        ),
        "a run of blanks leads one word": (
            "a  \n b", [(0, 1), (1, 4), (4, 6)], [-1.0, -2.0, -4.0], [(0, 1), (1, 2), (2, 5), (5, 6)],
            [-1.0, -2.0, -2.0, -2.0], [0.0, 4.0, 4.0, 4.0],
        ),
        "blanks at both ends": (
            " a ", [(0, 1), (1, 2), (2, 3)], [-1.0, -2.0, -4.0], [(0, 2), (2, 3)],
            [-3.0, -4.0], [0.0, 0.0],
        ),
        "cut alike: copied, not averaged": (
            "ab", [(0, 1), (1, 2)], [-1.0, -7.0], [(0, 1), (1, 2)],
            [-1.0, -7.0], [0.0, 0.0],
        ),
        "no text": ("", [], [], [], [], []),
    }  # fmt: skip

    @pytest.mark.parametrize("case", CASES.values(), ids=CASES)
    def test_by_hand(self, case: tuple[Any, ...]) -> None:
        text, source, logprobs, target, expected, expected_bounds = case
        aligned, bounds = align(text, source, logprobs, target)
        assert aligned == pytest.approx(expected, abs=1e-15)
        assert bounds == pytest.approx(expected_bounds, abs=1e-15)
        check_alignment(text, source, logprobs, target)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", [0]),
            ("a", [0, 1]),
            (" a", [0, 2]),
            ("a b", [0, 1, 3]),
            ("a \n\t b c", [0, 1, 6, 8]),
            ("a ", [0, 1, 2]),
            ("é\u3000ü", [0, 2, 7]),
            ("日本", [0, 6]),
        ],
    )
    def test_words_where_every_byte_is_a_token(self, text: str, expected: list[int]) -> None:
        spans = [(i, i + 1) for i in range(len(text.encode()))]
        assert word_boundaries(text, spans, spans) == expected

    @given(st.text(st.sampled_from("ab é\n\u3000🙂"), max_size=12), st.data())
    @settings(max_examples=200, deadline=None)
    def test_against_the_slow_aligner(self, text: str, data: st.DataObject) -> None:
        length = len(text.encode())

        def cut(label: str) -> list[Span]:
            inner = data.draw(st.sets(st.integers(1, length - 1)) if length > 1 else st.just(set()), label)
            edges = sorted({0, length, *inner})
            return list(itertools.pairwise(edges))

        source = cut("source")
        logprobs = data.draw(st.lists(st.floats(-50, 0), min_size=len(source), max_size=len(source)))
        check_alignment(text, source, logprobs, cut("target"))


class TestBytes:
    def test_tiny_tokens_by_hand(self, local: dict[str, Any], texts_of: dict[str, TextTokenizer]) -> None:
        """∮ is e2 88 ae; neither tiny vocabulary merges its bytes, and one of them splits numbers."""
        for name in ("tiny llama", "tiny qwen3"):
            tokenizer = texts_of[name]
            ids = tokenizer.encode("∮")
            assert [tokenizer.token_bytes(i) for i in ids] == [b"\xe2", b"\x88", b"\xae"]
            assert tokenizer.spans(ids) == [(0, 1), (1, 2), (2, 3)]
            assert tokenizer.decode(ids[:2]) == b"\xe2\x88"
        assert [texts_of["tiny qwen3"].token_bytes(i) for i in texts_of["tiny qwen3"].encode("12")] == [b"1", b"2"]
        assert [texts_of["tiny llama"].token_bytes(i) for i in texts_of["tiny llama"].encode("12")] == [b"12"]

    def test_sentencepiece_bytes_by_hand(self, texts_of: dict[str, TextTokenizer]) -> None:
        for name in DUMMY_SPACE:
            tokenizer = texts_of[name]
            assert [tokenizer.token_bytes(i) for i in tokenizer.encode("∮")] == [b"\xe2", b"\x88", b"\xae"]
            assert tokenizer.decode(tokenizer.encode(" ∮")) == b" \xe2\x88\xae"

    @given(text=TEXTS)
    @example(text="hello")
    @example(text=" hello")
    @example(text="  hello")
    @settings(session_fixtures, max_examples=60)
    def test_encoding_keeps_the_beginning(self, texts_of: dict[str, TextTokenizer], text: str) -> None:
        """No dummy space: a completion continues a prompt."""
        for name, tokenizer in texts_of.items():
            if name in DUMMY_SPACE and "▁" in text:
                continue  # they take it for a space
            if name == "Unigram" and re.search(r"</s>|<unk>|<0x..>", text):
                continue  # it takes them for pieces
            assert tokenizer.decode(tokenizer.encode(text)) == text.encode(), name

    def test_the_users_tokenizer_stays_as_it_is(self, local: dict[str, Any]) -> None:
        for tokenizer in local.values():
            before = tokenizer.backend_tokenizer.to_str()
            encoded = tokenizer("hello </s>")["input_ids"]
            TextTokenizer(tokenizer).encode("hello </s>")
            assert tokenizer("hello </s>")["input_ids"] == encoded
            assert tokenizer.backend_tokenizer.to_str() == before

    def test_padding_and_truncation_of_the_users_tokenizer_do_not_matter(self) -> None:
        tokenizer = byte_level(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.enable_truncation(3)
        tokenizer.backend_tokenizer.enable_padding(length=64)
        text = "The answer is 12, because 3 times 4 is 12"
        wrapper = TextTokenizer(tokenizer)
        assert wrapper.decode(wrapper.encode(text)) == text.encode()
        assert len(wrapper.encode(text)) < 64

    def test_added_tokens(self, texts_of: dict[str, TextTokenizer]) -> None:
        """Those that are not special are text, written as they are, spaces and all."""
        tokenizer = texts_of["byte-level across spaces"]
        ids = tokenizer.encode("so \\boxed{1<think>")
        assert [tokenizer.token_bytes(i) for i in ids[-3:]] == [b" \\boxed{", b"1", b"<think>"]

    def test_special_and_unknown_ids_have_no_bytes(
        self, local: dict[str, Any], texts_of: dict[str, TextTokenizer]
    ) -> None:
        for name, tokenizer in texts_of.items():
            for token_id in local[name].all_special_ids:
                assert tokenizer.token_bytes(token_id) == b""
            assert tokenizer.token_bytes(10**6) == b""

    @given(text=TEXTS)
    @settings(session_fixtures, max_examples=40)
    def test_decoding_agrees_with_the_tokenizers_own(
        self, every: dict[str, Any], every_text: dict[str, TextTokenizer], text: str
    ) -> None:
        for name, tokenizer in every_text.items():
            ids = tokenizer.encode(text)
            if tokenizer.decode(ids) != text.encode():
                continue
            own = every[name].decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            assert own == (text.removeprefix(" ") if name in DUMMY_SPACE else text), name

    @pytest.mark.parametrize("name", SHARED)
    def test_special_tokens_spelt_out_are_plain_characters(
        self, name: str, every: dict[str, Any], every_text: dict[str, TextTokenizer]
    ) -> None:
        special = every[name].all_special_tokens
        assert special
        text = " and ".join(special)
        ids = every_text[name].encode(text)
        assert not set(ids) & set(every[name].all_special_ids)
        assert every_text[name].decode(ids) == text.encode()


class TestUnsuitable:
    def test_slow(self) -> None:
        with pytest.raises(ValueError, match=r"SimpleNamespace is no fast tokenizer; load"):
            TextTokenizer(SimpleNamespace(is_fast=False))

    def test_without_end_of_sequence(self) -> None:
        backend = byte_level(add_prefix_space=False, use_regex=True).backend_tokenizer
        with pytest.raises(ValueError, match=r"no end-of-sequence token.*set tokenizer\.eos_token"):
            TextTokenizer(PreTrainedTokenizerFast(tokenizer_object=backend))

    @pytest.mark.parametrize(
        ("decoder", "named"),
        [
            (None, "nothing"),
            (decoders.WordPiece(), "WordPiece"),
            (decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)]), "Fuse"),
            (decoders.Sequence([decoders.ByteFallback(), decoders.CTC()]), "CTC"),
            (decoders.Sequence([decoders.Replace(Regex("▁+"), " "), decoders.ByteFallback()]), "Replace"),
        ],
    )
    def test_decoders_without_exact_bytes(self, decoder: Any, named: str) -> None:
        backend = Tokenizer(tokenizer_models.BPE(vocab={"</s>": 0, "a": 1}, merges=[]))
        if decoder is not None:
            backend.decoder = decoder
        with pytest.raises(ValueError, match=rf"decodes by .*{named}.*use a byte-level BPE or SentencePiece"):
            TextTokenizer(wrapped(backend))


class TestTrace:
    def test_by_hand(self, texts_of: dict[str, TextTokenizer]) -> None:
        tokenizer = texts_of["tiny qwen3"]
        ids = [*tokenizer.encode("12"), tokenizer.eos_token_id]
        assert tokenizer.trace(ids, [-1.0, -2.0, -4.0], stopped=True) == Trace(((0, 1), (1, 2)), (-1.0, -2.0), -4.0)
        assert tokenizer.trace(ids[:2], [-1.0, -2.0], stopped=False) == Trace(((0, 1), (1, 2)), (-1.0, -2.0), None)

    def test_only_an_end_of_sequence(self, texts_of: dict[str, TextTokenizer]) -> None:
        tokenizer = texts_of["tiny qwen3"]
        assert tokenizer.trace([tokenizer.eos_token_id], [-4.0], stopped=True) == Trace((), (), -4.0)
        assert tokenizer.trace([], [], stopped=False) == Trace((), (), None)

    def test_another_end_of_sequence(self, texts_of: dict[str, TextTokenizer]) -> None:
        """A model may stop at a token that its tokenizer takes for text: it ends the completion and is no part of it."""
        tokenizer = texts_of["tiny qwen3"]
        ids = tokenizer.encode("12.")
        assert tokenizer.trace(ids, [-1.0, -2.0, -4.0], stopped=True) == Trace(((0, 1), (1, 2)), (-1.0, -2.0), -4.0)

    def test_an_end_of_sequence_chosen_by_the_user(self) -> None:
        tokenizer = byte_level(add_prefix_space=False, use_regex=True)
        tokenizer.eos_token = "<think>"
        wrapper = TextTokenizer(tokenizer)
        assert wrapper.token_bytes(wrapper.eos_token_id) == b""
        assert wrapper.eos_token_id == tokenizer.convert_tokens_to_ids("<think>")
        # Text that spells it cannot cross: it would end the completion.
        assert retokenize(wrapper, Experience("p", "peer", 0, "boxed", 0, text="<think> 12"), 100) == "round_trip"

    def test_special_tokens_in_the_middle_stand_outside(
        self, local: dict[str, Any], texts_of: dict[str, TextTokenizer]
    ) -> None:
        for name, tokenizer in texts_of.items():
            before, after = tokenizer.encode("The answer"), tokenizer.encode(" is 12")
            special = local[name].all_special_ids[-1]
            ids = [special, *before, special, special, *after, tokenizer.eos_token_id]
            logprobs = drawn_logprobs(len(ids), seed=1)
            trace = tokenizer.trace(ids, logprobs, stopped=True)
            assert trace is not None
            check_partition(trace.spans, len("The answer is 12"))
            spoken = [*range(1, 1 + len(before)), *range(3 + len(before), len(ids) - 1)]
            assert trace.logprobs == tuple(logprobs[i] for i in spoken)
            assert trace.eos_logprob == logprobs[-1]
            record = Experience("p", "peer", 0, "stop", 0, text="The answer is 12", trace=trace)
            row = retokenize(tokenizer, record, 100)
            assert isinstance(row, Retokenized)
            assert set(row.token_ids[:-1]).isdisjoint(local[name].all_special_ids)
            assert math.fsum(row.logprobs or ()) == pytest.approx(trace.total, abs=1e-9)

    @given(data=st.data())
    @settings(session_fixtures, max_examples=100)
    def test_any_sampled_ids(
        self, local: dict[str, Any], texts_of: dict[str, TextTokenizer], data: st.DataObject
    ) -> None:
        """A trace if and only if the bytes are text; never canonical, and yet the sum crosses."""
        name = data.draw(st.sampled_from(sorted(texts_of)))
        tokenizer = texts_of[name]
        ids = data.draw(st.lists(st.integers(0, len(local[name]) - 1), max_size=12))
        logprobs = drawn_logprobs(len(ids), seed=len(ids))
        trace = tokenizer.trace(ids, logprobs, stopped=False)
        pieces = [tokenizer.token_bytes(i) for i in ids]
        try:
            text = b"".join(pieces).decode("utf-8")
        except UnicodeDecodeError:
            assert trace is None
            return
        assert trace is not None
        check_partition(trace.spans, len(text.encode()))
        kept = [logprob for logprob, piece in zip(logprobs, pieces, strict=True) if piece]
        assert trace.logprobs == tuple(kept)
        for learner in texts_of.values():
            check_crossing(tokenizer, learner, Experience("p", "peer", 0, "length", 0, text=text, trace=trace))

    def test_half_a_character(self, texts_of: dict[str, TextTokenizer]) -> None:
        for tokenizer in texts_of.values():
            ids = tokenizer.encode("x∮")
            assert tokenizer.trace(ids[:-1], drawn_logprobs(len(ids) - 1, 0), stopped=False) is None
            assert tokenizer.trace(ids, drawn_logprobs(len(ids), 0), stopped=False) is not None


class TestPairs:
    @given(text=TEXTS, finish_reason=st.sampled_from(["stop", "boxed", "length"]))
    @example(text="", finish_reason="stop")
    @example(text="".join(SNIPPETS), finish_reason="stop")
    @example(text="of the end of the day. So the total of the first", finish_reason="boxed")
    @settings(session_fixtures, max_examples=25)
    def test_all_ordered_pairs(
        self, every_text: dict[str, TextTokenizer], text: str, finish_reason: FinishReason
    ) -> None:
        check_all_pairs(every_text, every_text, text, finish_reason)

    @given(text=TEXTS, finish_reason=st.sampled_from(["stop", "boxed", "length"]))
    @example(text="".join(SNIPPETS), finish_reason="stop")
    @settings(session_fixtures, max_examples=60)
    def test_without_shared_data(
        self, texts_of: dict[str, TextTokenizer], text: str, finish_reason: FinishReason
    ) -> None:
        check_all_pairs(texts_of, texts_of, text, finish_reason)

    @pytest.mark.models
    @given(text=TEXTS, finish_reason=st.sampled_from(["stop", "boxed", "length"]))
    @example(text="".join(SNIPPETS), finish_reason="stop")
    @settings(session_fixtures, max_examples=25)
    def test_real_models(
        self,
        real_text: dict[str, TextTokenizer],
        every_text: dict[str, TextTokenizer],
        text: str,
        finish_reason: FinishReason,
    ) -> None:
        check_all_pairs(real_text, {**real_text, **every_text}, text, finish_reason)
        check_all_pairs(every_text, real_text, text, finish_reason)

    @pytest.mark.models
    @given(text=TEXTS)
    @settings(session_fixtures, max_examples=25)
    def test_real_models_decode_as_they_do(
        self, real: dict[str, Any], real_text: dict[str, TextTokenizer], text: str
    ) -> None:
        for name, tokenizer in real_text.items():
            ids = tokenizer.encode(text)
            assert not set(ids) & set(real[name].all_special_ids)
            if tokenizer.decode(ids) == text.encode():
                assert real[name].decode(ids, clean_up_tokenization_spaces=False) == text
            elif name == "Gemma 3":
                assert "▁" in text, "it takes that for a space"
            else:
                assert set(text.encode()) & SMOLLM2_LACKS

    def test_two_models_of_one_vocabulary(self, every_text: dict[str, TextTokenizer]) -> None:
        """Qwen 2.5 and Qwen 3 cut ordinary text alike, so nothing changes between them, nor at the end of sequence."""
        source, learner = every_text["qwen2_5"], every_text["qwen3"]
        for text in ("So the answer is \\boxed{\\frac{7}{19}}.", "日本語 12 éñ 🙂\n\n  x", ""):
            record = written(source, source.encode(text))
            row = retokenize(learner, record, 1000)
            assert isinstance(row, Retokenized)
            assert list(row.token_ids) == [*source.encode(text), source.eos_token_id]
            assert record.trace is not None
            assert row.logprobs == (*record.trace.logprobs, record.trace.eos_logprob)

    def test_words_are_really_merged(self, texts_of: dict[str, TextTokenizer]) -> None:
        """The tokenizers that merge across spaces do so here; otherwise the pairs above would not show it."""
        text = "zq zq of the end of the day zq zq 12 of the first"
        for name in ("byte-level across spaces", "Llama 2's kind"):
            source, learner = texts_of[name], texts_of["tiny llama"]
            pieces = [source.token_bytes(i) for i in source.encode(text)]
            assert any(b" " in piece[1:] for piece in pieces)
            boundaries = word_boundaries(text, source.spans(source.encode(text)), learner.spans(learner.encode(text)))
            assert 2 < len(boundaries) < 1 + len(text.split())


def plain(text: str, finish_reason: FinishReason = "stop", index: int = 0) -> Experience:
    return Experience("p", "peer", index, finish_reason, 0, text=text)


class TestRetokenizer:
    @pytest.fixture
    def tokenizer(self, texts_of: dict[str, TextTokenizer]) -> TextTokenizer:
        return texts_of["tiny qwen3"]  # splits digits: as many tokens as digits

    @pytest.mark.parametrize(("finish_reason", "ends"), [("stop", True), ("boxed", False), ("length", False)])
    def test_end_of_sequence(self, tokenizer: TextTokenizer, finish_reason: FinishReason, ends: bool) -> None:
        row = retokenize(tokenizer, plain("12", finish_reason), 10)
        assert isinstance(row, Retokenized)
        assert list(row.token_ids) == [*tokenizer.encode("12"), *([tokenizer.eos_token_id] if ends else [])]
        assert (row.logprobs, row.residual_bound) == (None, 0.0)

    def test_by_hand(self, tokenizer: TextTokenizer) -> None:
        """One token for a number of the peer's, one for each digit of ours; and the end of sequence last."""
        trace = Trace(((0, 2), (2, 5), (5, 8)), (-1.0, -3.0, -0.5), eos_logprob=-0.125)
        row = retokenize(tokenizer, replace(plain("is 12 34"), trace=trace), 100)
        assert isinstance(row, Retokenized)
        pieces = [tokenizer.token_bytes(i) for i in row.token_ids]
        assert pieces[-1] == b""
        # Our tokens of the word "is", then a blank and two digits, twice.
        letters = pieces.index(b" ")
        assert pieces[letters:-1] == [b" ", b"1", b"2", b" ", b"3", b"4"]
        expected = [-1.0 / letters] * letters + [-1.0] * 3 + [-0.5 / 3] * 3 + [-0.125]
        assert row.logprobs == pytest.approx(expected, abs=1e-15)
        bounds = [1.0 * (1 - 1 / letters)] * letters + [2.0] * 3 + [0.5 * 2 / 3] * 3 + [0.0]
        assert row.residual_bound == pytest.approx(sum(bounds) / len(bounds), abs=1e-15)

    @pytest.mark.parametrize(("finish_reason", "eos_logprob"), [("stop", None), ("length", -0.5), ("boxed", -0.5)])
    def test_a_trace_that_contradicts_the_end_is_not_used(
        self, tokenizer: TextTokenizer, finish_reason: FinishReason, eos_logprob: float | None
    ) -> None:
        trace = Trace(((0, 2),), (-1.0,), eos_logprob)
        row = retokenize(tokenizer, replace(plain("12", finish_reason), trace=trace), 10)
        assert isinstance(row, Retokenized)
        assert row.logprobs is None

    def test_a_trace_of_another_text_is_not_used(self, tokenizer: TextTokenizer) -> None:
        row = retokenize(tokenizer, replace(plain("123"), trace=Trace(((0, 2),), (-1.0,), -0.5)), 10)
        assert isinstance(row, Retokenized)
        assert row.logprobs is None

    def test_budget(self, tokenizer: TextTokenizer) -> None:
        """Three digits are three tokens; with the end of sequence four."""
        assert retokenize(tokenizer, plain("123"), 3) == "too_long"
        assert isinstance(retokenize(tokenizer, plain("123"), 4), Retokenized)
        assert isinstance(retokenize(tokenizer, plain("123", "boxed"), 3), Retokenized)
        assert retokenize(tokenizer, plain("123", "boxed"), 2) == "too_long"

    def test_counts(self, texts_of: dict[str, TextTokenizer]) -> None:
        retokenizer = Retokenizer(texts_of["Llama 2's kind"], 20)
        texts: list[tuple[str, FinishReason]] = [
            ("12", "stop"),
            ("", "stop"),  # an end of sequence alone can be learnt
            ("", "length"),
            ("half a character: \ufffd", "stop"),
            ("half a pair: \ud83d", "stop"),
            ("a ▁ that is none", "stop"),
            ("z" * 21, "stop"),
            ("z" * 20, "stop"),
        ]
        records = [plain(text, reason, index) for index, (text, reason) in enumerate(texts)]
        kept = [retokenizer(record) is not None for record in records]
        assert kept == [True, True, False, False, False, False, False, False]
        for record in records:
            retokenizer(record)  # counts once
        assert retokenizer.kept == 2
        assert retokenizer.dropped == {"empty": 1, "undecodable": 2, "round_trip": 1, "too_long": 2}
        assert retokenizer.residual_bounds == []
        retokenizer.clear()
        assert (retokenizer.kept, retokenizer.dropped.total()) == (0, 0)
        assert retokenizer(records[0]) is not None
        assert retokenizer.kept == 1

    def test_residual_bounds_of_what_was_kept(self, tokenizer: TextTokenizer) -> None:
        retokenizer = Retokenizer(tokenizer, 4)
        trace = Trace(((0, 2),), (-2.0,), -0.5)
        retokenizer(replace(plain("12"), trace=trace))
        retokenizer(replace(plain("1234", index=1), trace=Trace(((0, 4),), (-2.0,), -0.5)))  # too long
        retokenizer(plain("12", index=2))  # no trace
        # |L| (1 - 1/2) = 1 for both digits, 0 for the end.
        assert retokenizer.residual_bounds == [pytest.approx(2 / 3)]
        assert retokenizer.kept == 2

    def test_two_records_of_one_id_are_not_confused(self, tokenizer: TextTokenizer) -> None:
        """Ids are unique within a round; a replayed file may hold what it likes."""
        retokenizer = Retokenizer(tokenizer, 10)
        rows = [retokenizer(plain(text)) for text in ("12", "34")]
        assert [tokenizer.decode(row.token_ids) for row in rows if row is not None] == [b"12", b"34"]

    def test_without_a_text(self, tokenizer: TextTokenizer) -> None:
        record = Experience("p", "peer", 0, "stop", 0)
        with pytest.raises(ValueError, match=r"peer/p/0@0 has no text; subscribe to the channel 'rollouts'"):
            Retokenizer(tokenizer, 10)(record)

    @pytest.mark.parametrize("name", ["qwen2_5", "qwen3"])
    def test_what_a_normalizer_changes_is_dropped(self, name: str, every_text: dict[str, TextTokenizer]) -> None:
        assert retokenize(every_text[name], plain("re\u0301sume\u0301"), 100) == "round_trip"
        assert isinstance(retokenize(every_text[name], plain("résumé"), 100), Retokenized)
        assert isinstance(retokenize(every_text["llama3_2"], plain("re\u0301sume\u0301"), 100), Retokenized)
