"""Keys and values of rows that are written side by side: in buffers with room to grow, from which rows leave and others enter.

All rows end in the same column. A row of n tokens occupies the last n columns; what lies before its start is masked. Hence a
row that enters late needs no column of its own, and columns that nobody occupies any more can be cut off at the left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import Cache, DynamicCache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

_STEP = 32
"""Buffers have a multiple of so many columns: few ahead, since every token is compared with all of them, and softmax takes half
the time where the last vector is full."""


class BufferedLayer(CacheLayerMixin):
    """One layer's keys and values, (R, H, C, D) each, of which the first `length` columns are filled.

    Transformers' own growing layer copies everything at every token; this one writes one column. Layers with a sliding window
    keep all columns too, and leave the window to the model's mask.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate buffers for the first update."""
        self.keys, self.values = torch.empty_like(key_states), torch.empty_like(value_states)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns.

        Args:
            key_states, value_states: (R, H, n, D).

        Returns:
            Both buffers, (R, H, C, D), with the columns that are not filled yet, which the mask leaves out: products of whole
            buffers, which are contiguous, are faster than those of parts.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        end = self.length + key_states.shape[2]
        if end > self.keys.shape[2]:
            capacity = self.capacity(key_states.shape[2])
            self.keys, self.values = (_widened(buffer, self.length, capacity) for buffer in (self.keys, self.values))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """(Columns of the buffer after the next update, index of the first one.)"""
        return self.capacity(query_length), 0

    def capacity(self, new: int) -> int:
        """Columns of the buffer after an update by so many."""
        if self.keys is None:
            return new
        present, end = self.keys.shape[2], self.length + new
        return present if end <= present else _rounded(end)

    def get_seq_length(self) -> int:
        """Columns filled."""
        return self.length

    def get_max_length(self) -> int:
        """-1: there is none."""
        return -1


class RowCache(Cache):
    """The cache of a batch of rows.

    Args:
        starts: (R,) int64, each row's first column.

    Attributes:
        starts: as given.
    """

    def __init__(self, starts: torch.Tensor) -> None:
        super().__init__(layer_class_to_replicate=BufferedLayer)
        self.starts = starts

    def mask(self, new_columns: int) -> torch.Tensor:
        """(R, C) bool: which columns of the buffers belong to each row, those of the next forward pass included."""
        filled = self.get_seq_length() + new_columns
        capacity, _ = self.get_mask_sizes(new_columns, 0)
        columns = torch.arange(capacity, device=self.starts.device)
        return (columns >= self.starts.unsqueeze(-1)) & (columns < filled)


def merged(parts: Sequence[tuple[RowCache, torch.Tensor]]) -> RowCache:
    """Rows of several caches side by side in a new one, without the columns that none of them needs.

    Args:
        parts: caches of the same model, each with the indices (n,) int64 of the rows to take, in any order and number. The
            caches lose their contents layer by layer, so that there are never two copies of everything.
    """
    length = max(int(cache.get_seq_length() - cache.starts[rows].min()) for cache, rows in parts)
    starts = torch.cat([cache.starts[rows] - cache.get_seq_length() + length for cache, rows in parts])
    result = RowCache(starts)
    for layers in zip(*(cache.layers for cache, _ in parts), strict=True):
        layer = BufferedLayer()
        result.layers.append(layer)
        if not layers[0].is_initialized:  # it shares another layer's keys
            continue
        layer.length = length
        layer.is_initialized = True
        chosen = list(zip(layers, (rows for _, rows in parts), strict=True))
        layer.keys = _aligned([(part.keys, part.length, rows) for part, rows in chosen], length)
        layer.values = _aligned([(part.values, part.length, rows) for part, rows in chosen], length)
        for part in layers:
            part.keys = part.values = None
    return result


def repeated(prefix: RowCache, starts: torch.Tensor) -> RowCache:
    """Rows that all begin with one row's tokens, each moved so far to the right that it begins at a column of its own.

    What a row has of those tokens beyond the prefix's last column is left out: it is computed again, in the place of padding.

    Args:
        prefix: a cache of one row, which stays as it is.
        starts: (R,) int64, each row's first column.

    Returns:
        R rows with as many columns as the prefix.
    """
    length = prefix.get_seq_length()
    result = RowCache(starts)
    for layer in prefix.layers:
        row = BufferedLayer()
        result.layers.append(row)
        assert isinstance(layer, BufferedLayer)
        if layer.keys is None or layer.values is None:  # it shares another layer's keys
            continue
        row.length, row.is_initialized = length, True
        row.keys, row.values = (moved(buffer[:, :, :length], starts) for buffer in (layer.keys, layer.values))
    return result


def moved(values: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Copies of one row's keys or values, moved to the right; gradients flow back.

    Args:
        values: (1, H, C, D).
        starts: (R,) int64, the columns by which each copy is moved; before them stands its first column's value.

    Returns:
        (R, H, C, D), contiguous.
    """
    _, heads, columns, width = values.shape
    chosen = (torch.arange(columns, device=starts.device) - starts.unsqueeze(-1)).clamp(min=0)
    copies = values[0].index_select(1, chosen.flatten()).view(heads, len(starts), columns, width)
    return copies.transpose(0, 1).contiguous()


def is_cacheable(config: PreTrainedConfig) -> bool:
    """Whether a model carries nothing but keys and values from token to token, so that its rows can be moved about."""
    layers = DynamicCache(config=config).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


def _aligned(parts: Sequence[tuple[torch.Tensor, int, torch.Tensor]], length: int) -> torch.Tensor:
    """Rows of several buffers (R, H, C, D) in one, their filled columns ending at `length`."""
    first = parts[0][0]
    total = sum(len(rows) for _, _, rows in parts)
    # Masked columns are multiplied by 0, so they must be finite.
    result = first.new_zeros((total, first.shape[1], _rounded(length + 1), first.shape[3]))
    row = 0
    for buffer, filled, rows in parts:
        kept = min(filled, length)
        place = result[row : row + len(rows)]
        place[:, :, length - kept : length] = buffer[:, :, filled - kept : filled].index_select(0, rows)
        row += len(rows)
    return result


def _rounded(columns: int) -> int:
    """The columns of a buffer that has to have so many."""
    return -(-columns // _STEP) * _STEP


def _widened(buffer: torch.Tensor, filled: int, capacity: int) -> torch.Tensor:
    """The buffer (R, H, C, D) with more columns."""
    result = buffer.new_zeros((*buffer.shape[:2], capacity, buffer.shape[3]))
    result[:, :, :filled] = buffer[:, :, :filled]
    return result
