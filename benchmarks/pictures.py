"""Where pictures begin: Matplotlib, which only some commands need, or a word on how to get it."""

from __future__ import annotations

from typing import Any


def empty_figure(width: float = 1.0, height: float = 1.0) -> Any:
    """An empty Matplotlib figure, without a window; made once before long work, it tells whether there can be pictures.

    Args:
        width, height: in inches.

    Raises:
        ValueError: if Matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("pictures need Matplotlib; install it with: pip install 'mutual-rl[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")
