"""Model pools that come with the package, so that a first run needs no download.

`tiny-llama` and `tiny-qwen3` are two checkpoints of different architecture and tokenizer, warm-started to be
complementary on `problems="arithmetic"`. The gap between them is constructed: both learnt every subject, then each was
taught a wrong procedure in some (`misconceptions.py`). `python -m algorithms.pools.build` reproduces them.
"""

from __future__ import annotations

from pathlib import Path

EMBEDDED: dict[str, str] = {"tiny-llama": "tiny/llama", "tiny-qwen3": "tiny/qwen3"}
"""Names that `model_name_or_path` accepts, and their folders beside this file."""


def embedded_path(name: str) -> Path | None:
    """The folder of an embedded checkpoint, for `from_pretrained`; None if no embedded checkpoint has that name.

    Example:
        >>> embedded_path("tiny-llama").name
        'llama'
        >>> embedded_path("gpt2") is None
        True
    """
    return Path(__file__).parent / EMBEDDED[name] if name in EMBEDDED else None
