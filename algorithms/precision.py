"""The number formats of weights and computation, and what the shorter one costs on this CPU."""

from __future__ import annotations

import logging
import time
from functools import cache

import torch

logger = logging.getLogger(__name__)

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

_SLOW = 3.0
"""So many times float32's time are worth a warning; CPUs with instructions for bfloat16 take less than float32's."""

_SIZE, _REPEATS = 192, 3


@cache
def bfloat16_slowdown() -> float:
    """How many times as long as in float32 a matrix product takes in bfloat16 on this CPU; measured once.

    Below 1 with instructions for it (AVX512-BF16, AMX), several times to a hundred times without.
    """
    seconds = {}
    for dtype in TORCH_DTYPES.values():
        inputs = torch.ones(_SIZE, _SIZE, dtype=dtype)
        times = []
        for _ in range(_REPEATS + 1):  # the first one also makes the kernel
            started = time.perf_counter()
            torch.nn.functional.linear(inputs, inputs)
            times.append(time.perf_counter() - started)
        seconds[dtype] = min(times[1:])
    return seconds[torch.bfloat16] / seconds[torch.float32]


def is_slow(dtype: str, kind: str) -> bool:
    """Whether this machine should rather compute in another format.

    Args:
        dtype: `fp32` or `bf16`.
        kind: of the device, `cpu` or `cuda`.
    """
    return dtype == "bf16" and kind == "cpu" and bfloat16_slowdown() >= _SLOW


@cache
def warn_if_slow(dtype: str, kind: str) -> None:
    """Say once if `is_slow`."""
    if is_slow(dtype, kind):
        logger.warning(
            "dtype='bf16', but this CPU has no instructions for it: a matrix product takes %.0f times as long as in float32, "
            "attention even longer; set dtype fp32",
            bfloat16_slowdown(),
        )
