"""What the C library does with memory that was freed: glibc has settings for it, others are left alone."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Numbers of `mallopt`'s parameters, from glibc's malloc.h."""


_LARGEST = (1 << 30, 1 << 25)
"""Bytes of the largest tensor whose memory is kept: what we ask for, and what older versions of glibc allow."""


def keep_freed_memory() -> int:
    """Let the process keep the memory of tensors that it frees for what it allocates next.

    Otherwise the memory of large tensors goes back to the system, and every page of the next one has to be cleared and mapped
    anew: a twentieth of an update's time, more on a virtual machine, which gets its pages from its host.

    Returns:
        Bytes of the largest tensor whose memory is kept; 0 where the C library has no such setting.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is None:
        return 0
    set_option(_TRIM_THRESHOLD, _LARGEST[0])
    return next((size for size in _LARGEST if set_option(_MMAP_THRESHOLD, size)), 0)


def return_freed_memory() -> None:
    """Give freed memory back to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
