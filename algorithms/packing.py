"""Rows side by side, so that little is computed twice or in vain: prompts once for all rows that share them, little padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from algorithms.samples import Sample

_SHARED_TOKENS = 256
"""What prompts have in common is worth a forward pass of its own if that saves so many tokens."""

EVEN = 32
"""Matrix products are fastest where the tokens of a pass are a multiple of so many; see docs/performance.md."""

_PROMPTS = 8
"""Prompts have a multiple of so many columns: a library compiles its products for each shape that it meets."""


@dataclass(frozen=True)
class Packed:
    """B rows over P prompts. A row is split before its first weighted token into prompt and tail.

    Attributes:
        common: tokens that all prompts begin with, to be computed once; 0 if that is not worth it.
        prompt_ids: (P, S) int64, padded with 0 on the left, so that all prompts end in the same column. They and the tails have
            a few columns more than the longest needs, where that makes the passes over them faster.
        prompt_mask: (P, S) bool, False on padding.
        prompt_of: (B,) int64, each row's prompt, in ascending order.
        tail_ids: (B, L) int64, up to each row's last weighted token, padded with 0 on the right.
        tail_mask: (B, L) bool, False on padding.
        weighted: (N,) int64, the weighted tokens as indices into the flattened tails.
        places: (N,) int64, the same tokens as indices into the flattened rows (B, T).
        shape: (B, T) of the rows that were packed.
    """

    common: int
    prompt_ids: torch.Tensor
    prompt_mask: torch.Tensor
    prompt_of: torch.Tensor
    tail_ids: torch.Tensor
    tail_mask: torch.Tensor
    weighted: torch.Tensor
    places: torch.Tensor
    shape: tuple[int, int]


def pack(rows: Sequence[Sample], device: torch.device | str) -> Packed:
    """Lay rows out for one forward pass.

    Args:
        rows: B rows with at least one weighted token each; rows with the same prompt side by side.
        device: where the tensors go.

    Raises:
        ValueError: if a row has no weighted token.

    Example: two rows that share a prompt of two tokens.
        >>> from algorithms.samples import make_sample
        >>> rows = [make_sample((5, 6), ids, advantage=1.0, source="me") for ids in ((7, 8), (9,))]
        >>> packed = pack(rows, "cpu")
        >>> packed.prompt_ids.tolist(), packed.tail_ids.tolist(), packed.places.tolist()
        ([[5, 6]], [[7, 8], [9, 0]], [2, 3, 6])
    """
    if not all(row.weighted.any() for row in rows):
        raise ValueError("a row has no weighted token, so there is nothing to compute for it; leave it out")
    length = max(len(row.token_ids) for row in rows)
    spans = [np.flatnonzero(row.weighted)[[0, -1]] + (0, 1) for row in rows]
    prompts: dict[bytes, np.ndarray] = {}
    prompt_of = []
    for row, (start, _) in zip(rows, spans, strict=True):
        prompt = row.token_ids[:start]
        prompts.setdefault(prompt.tobytes(), prompt)
        prompt_of.append(list(prompts).index(prompt.tobytes()))
    prompt_ids, prompt_mask = _padded(list(prompts.values()), left=True, extra=lambda longest: room(longest, _PROMPTS))
    tails = [row.token_ids[start:end] for row, (start, end) in zip(rows, spans, strict=True)]
    # All columns but the last are computed.
    step = EVEN // math.gcd(EVEN, len(rows))
    tail_ids, tail_mask = _padded(tails, left=False, extra=lambda longest: room(longest - 1, step))
    weighted = np.zeros(tail_ids.shape, dtype=bool)
    places: list[np.ndarray] = []
    for i, (row, (start, end)) in enumerate(zip(rows, spans, strict=True)):
        weighted[i, : end - start] = row.weighted[start:end]
        places.append(i * length + np.flatnonzero(row.weighted))

    def tensor(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    return Packed(
        common=common_prefix(list(prompts.values())),
        prompt_ids=tensor(prompt_ids),
        prompt_mask=tensor(prompt_mask),
        prompt_of=torch.tensor(prompt_of, device=device),
        tail_ids=tensor(tail_ids),
        tail_mask=tensor(tail_mask),
        weighted=tensor(np.flatnonzero(weighted)),
        places=tensor(np.concatenate(places)),
        shape=(len(rows), length),
    )


def common_prefix(prompts: Sequence[Sequence[int] | np.ndarray]) -> int:
    """The number of tokens that all prompts begin with, as solved examples before the problem; 0 if sharing saves little.

    Args:
        prompts: P prompts of at least one token each. The last token of the shortest is not shared, for what follows it is
            asked of every prompt.

    Example:
        >>> examples = list(range(100))
        >>> common_prefix([examples + [1, 2], examples + [3], examples + [1, 4], examples + [5]])
        100
        >>> common_prefix([[7, 8, 1], [7, 8, 2]])
        0
    """
    first, last = (np.asarray(prompt) for prompt in (min(prompts, key=list), max(prompts, key=list)))
    shortest = min(map(len, prompts)) - 1
    # Between the first and the last in alphabetical order all others have what these two have.
    differ = np.flatnonzero(first[:shortest] != last[:shortest])
    common = int(differ[0]) if len(differ) else shortest
    return common if common * (len(prompts) - 1) >= _SHARED_TOKENS else 0


def micro_batches(rows: Sequence[Sample], size: int) -> list[list[Sample]]:
    """Split rows into forward passes: prompts together, and rows of similar length, since the longest sets the padding.

    The longest come first: what they needed has room for all others, so memory grows least, and if it is too little, that is
    seen at once.

    Args:
        rows: with at least one weighted token each, in any order.
        size: rows of a forward pass, at most.

    Returns:
        Every row exactly once.
    """
    groups: dict[bytes, list[Sample]] = {}
    for row in rows:
        groups.setdefault(row.token_ids[: int(row.weighted.argmax())].tobytes(), []).append(row)
    chunks = []
    for group in groups.values():
        group.sort(key=lambda row: len(row.token_ids))
        chunks += [group[i : i + size] for i in range(0, len(group), size)]
    batches: list[list[Sample]] = []
    for chunk in sorted(chunks, key=lambda chunk: len(chunk[-1].token_ids)):
        if batches and len(batches[-1]) + len(chunk) <= size:
            batches[-1] += chunk
        else:
            batches.append(list(chunk))
    return batches[::-1]


def room(count: int, multiple: int) -> int:
    """How many more make a multiple; 0 if they are more than an eighth of what there is.

    Example:
        >>> room(63, 4), room(64, 4), room(5, 4)
        (1, 0, 0)
    """
    missing = -count % multiple
    return missing if missing <= count // 8 else 0


def _padded(streams: Sequence[np.ndarray], *, left: bool, extra: Callable[[int], int]) -> tuple[np.ndarray, np.ndarray]:
    """(n, T) int64 padded with 0 on one side, and (n, T) bool, False on padding; T is the longest and so many more."""
    length = max(map(len, streams))
    length += extra(length)
    ids = np.zeros((len(streams), length), dtype=np.int64)
    mask = np.zeros((len(streams), length), dtype=bool)
    for row, here, stream in zip(ids, mask, streams, strict=True):
        place = slice(length - len(stream), length) if left else slice(len(stream))
        row[place], here[place] = stream, True
    return ids, mask
