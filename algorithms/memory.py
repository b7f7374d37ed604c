"""What the C library does with memory that was freed: glibc has settings for it, others are left alone."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of `mallopt`'s parameters, from glibc's malloc.h."""


def keep_freed_memory(largest: int) -> None:
    """Let the process keep the memory of tensors that it frees for what it allocates next.

    Otherwise the memory of large tensors goes back to the system, and every page of the next one has to be cleared and mapped
    anew: a twentieth of an update's time. What is kept does not always fit what comes, which takes a tenth more memory.

    Args:
        largest: bytes of the largest tensor whose memory is kept.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_TRIM_THRESHOLD, max(largest, 1 << 27))
        set_option(_MMAP_THRESHOLD, largest)


def return_freed_memory() -> None:
    """Give freed memory back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
