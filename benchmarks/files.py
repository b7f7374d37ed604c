"""How results are written: such that there is the whole file or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def replace_file(path: Path, values: Any) -> None:
    """Write JSON such that there is the whole file or none."""
    scratch = path.with_name(f".{path.name}.part")
    scratch.write_text(json.dumps(values, indent=1), encoding="utf-8")
    scratch.replace(path)
