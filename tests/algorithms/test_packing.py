"""Rows laid out for one forward pass, and rows split into several."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.packing import common_prefix, micro_batches, pack
from algorithms.samples import Sample, make_sample


def row(prompt: tuple[int, ...], completion: tuple[int, ...]) -> Sample:
    return make_sample(prompt, completion, source="me", advantage=1.0)


def test_packing_by_hand() -> None:
    rows = [row((5, 6), (0, 8)), row((5, 6), (9,)), row((7,), (1, 2, 3))]
    packed = pack(rows, "cpu")
    # The token 0 of the first completion is no padding: masks are data.
    assert packed.prompt_ids.tolist() == [[5, 6], [0, 7]]
    assert packed.prompt_mask.tolist() == [[True, True], [False, True]]
    assert packed.prompt_of.tolist() == [0, 0, 1]
    assert packed.tail_ids.tolist() == [[0, 8, 0], [9, 0, 0], [1, 2, 3]]
    assert packed.tail_mask.tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    assert packed.weighted.tolist() == [0, 1, 3, 6, 7, 8]
    # Rows of four tokens: the third row's tail begins at its second token.
    assert packed.places.tolist() == [2, 3, 6, 9, 10, 11]
    assert packed.shape == (3, 4)


def test_passes_are_of_even_numbers_of_tokens() -> None:
    """By hand: a prompt of 57 tokens has 64 columns; of 8 tails of 64 tokens 63 columns are computed, or 64: 512 tokens."""
    prompt, completion = tuple(range(1, 58)), (3,) * 64
    packed = pack([row(prompt, completion)] * 8, "cpu")
    assert packed.prompt_ids.tolist() == [[0] * 7 + list(prompt)]
    assert packed.prompt_mask.tolist() == [[False] * 7 + [True] * 57]
    assert packed.tail_ids.tolist() == [[3] * 64 + [0]] * 8
    assert packed.tail_mask.tolist() == [[True] * 64 + [False]] * 8
    assert packed.weighted.tolist() == [65 * i + j for i in range(8) for j in range(64)]
    # Where it would take more than an eighth, nothing is added: 4 to 20, 13 to 19.
    short = pack([row(prompt[:20], completion[:20])], "cpu")
    assert (short.prompt_ids.shape, short.tail_ids.shape) == ((1, 20), (1, 20))


def test_a_common_beginning_counts_if_it_saves_256_tokens() -> None:
    examples = tuple(range(128))
    assert common_prefix([(*examples, 1), (*examples, 2, 3), (*examples, 4)]) == 128  # twice
    assert common_prefix([(*examples[:-1], 500, 1), (*examples, 2, 3), (*examples, 4)]) == 0  # 127, twice
    assert common_prefix([examples * 9]) == 0
    # The last token of the shortest is always asked.
    assert common_prefix([examples * 3, examples * 3]) == 3 * 128 - 1
    assert common_prefix([examples * 3, (*examples * 3, 7)]) == 3 * 128 - 1


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=2, max_size=5))
def test_a_common_beginning_is_what_all_have(endings: list[list[int]]) -> None:
    prompts = [[0] * 300 + ending for ending in endings]
    shortest = min(map(len, prompts)) - 1
    expected = next((i for i in range(shortest) if len({prompt[i] for prompt in prompts}) > 1), shortest)
    assert common_prefix(prompts) == expected


def test_what_lies_behind_the_last_weighted_token_is_left_out() -> None:
    sample = row((5, 6), (7, 8, 9, 10))
    sample.loss_mask[[3, 5]] = False
    packed = pack([sample], "cpu")
    assert packed.tail_ids.tolist() == [[7, 8, 9]]
    assert packed.weighted.tolist() == [0, 2]
    assert packed.places.tolist() == [2, 4]


def test_micro_batches_keep_prompts_together_and_lengths_alike() -> None:
    short = [row((1,), (2,)), row((1,), (3,)), row((1,), (4,))]
    long = [row((5, 6), (7,) * n) for n in (9, 5, 8, 6, 7)]
    lone = row((8,), (9, 9))
    found = micro_batches([long[0], short[0], lone, *long[1:], *short[1:]], size=4)
    assert [[len(r.token_ids) for r in batch] for batch in found] == [[11], [7, 8, 9, 10], [2, 2, 2, 3]]


def test_rows_of_the_same_prompt_may_stand_apart() -> None:
    """The later rows of a step, such as peers', come behind those of the next problem."""
    rows = [row((1, 2), (3,)), row((4,), (5,)), row((1, 2), (6,))]
    [batch] = micro_batches(rows, size=8)
    packed = pack(batch, "cpu")
    assert len(packed.prompt_ids) == 2
    assert packed.prompt_of.tolist() in ([0, 0, 1], [0, 1, 1])


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.lists(st.integers(0, 3), min_size=1, max_size=6)), min_size=1, max_size=30
    ),
    st.integers(1, 9),
)
def test_every_row_is_in_exactly_one_micro_batch(shapes: list[tuple[int, list[int]]], size: int) -> None:
    rows = [row(tuple(range(1, length + 1)), tuple(completion)) for length, completion in shapes]
    batches = micro_batches(rows, size)
    assert sorted(id(r) for batch in batches for r in batch) == sorted(map(id, rows))
    assert all(1 <= len(batch) <= size for batch in batches)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_a_packed_row_can_be_read_back(completions: list[list[int]], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = sorted(
        (row(tuple(range(1, int(rng.integers(2, 5)))), tuple(completion)) for completion in completions),
        key=lambda r: int(r.weighted.argmax()),
    )
    packed = pack(rows, "cpu")
    for i, sample in enumerate(rows):
        p = int(packed.prompt_of[i])
        ids = [*packed.prompt_ids[p][packed.prompt_mask[p]].tolist(), *packed.tail_ids[i][packed.tail_mask[i]].tolist()]
        assert ids == sample.token_ids.tolist()


def test_a_row_without_weighted_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="no weighted token"):
        pack([make_sample((1, 2), (3,), source="me")], "cpu")
